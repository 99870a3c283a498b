"""The author's workflow of an effect chaos, and its worker: a process that is killed as well.

python -m tests.chaos.flows ADDRESS QUEUE FOLDER
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.client import Client
from temporalio.worker import Worker

from openwop_mcp import McpCallError, ctx

__all__ = ("Asked", "Caller", "Ended")

STICKY = 0.5
"""Seconds that a workflow waits for the process that had it."""


@dataclass
class Asked:
    """Calls to make; each is the tool, its arguments, and a key or None."""

    server_id: str
    calls: list[tuple[str, dict[str, str], str | None]]
    parallel: bool
    queue: str
    heartbeat: float


@dataclass
class Ended:
    """What came of a call, and when the workflow knew."""

    at: float
    result: str | None = None
    code: str = ""
    message: str = ""
    delivery: str = ""
    in_doubt: bool = False


@workflow.defn
class Caller:
    """Makes calls, one after the other or all at once, whatever becomes of them."""

    @workflow.run
    async def run(self, asked: Asked) -> list[Ended]:
        made = [self._make(asked, *call) for call in asked.calls]
        if asked.parallel:
            return list(await asyncio.gather(*made))
        return [await one for one in made]

    async def _make(self, asked: Asked, tool: str, arguments: dict[str, str], key: str | None) -> Ended:
        try:
            answer = await ctx.mcp.call_tool(
                asked.server_id,
                tool,
                arguments,
                idempotency_key=key,
                task_queue=asked.queue,
                heartbeat_timeout=timedelta(seconds=asked.heartbeat),
            )
        except McpCallError as error:
            return Ended(
                workflow.time(),
                code=error.code,
                message=str(error),
                delivery=error.delivery.value,
                in_doubt=error.in_doubt,
            )
        return Ended(workflow.time(), result=answer.raw.decode())


async def main(address: str, queue: str) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    client = await Client.connect(address)
    async with Worker(
        client,
        task_queue=queue,
        workflows=[Caller],
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=STICKY),
    ):
        sys.stdout.write(json.dumps({"ready": True}) + "\n")
        sys.stdout.flush()
        await stopped.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
    # Temporal's client sometimes does not survive an orderly exit of its process.
    os._exit(0)
