"""Two hosts of one deployment, each an application with a Temporal client of its own, and workflows for runs."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx
from temporalio.client import Client

from host.app import create_app
from host.ids import project
from host.logs import RunLogs
from host.records import Records
from openwop_mcp.runs.start import Options
from tests.support.graphs import node, workflow
from tests.support.hosts import asked, bearer, host
from tests.support.pack import SERVER
from tests.support.patience import PATIENCE

__all__ = ("FLOWS", "Hosts", "code", "key", "two_hosts")

FLOWS: dict[str, Mapping[str, Any]] = {
    "noop": workflow([node("a", "core.noop")]),
    "fail": workflow([node("a", "core.fail")]),
    "delay": workflow(
        [node("wait", "core.delay", inputs={"delayMs": {"type": "variable", "variableName": "delayMs"}})],
        variables=[{"name": "delayMs", "type": "number", "defaultValue": 60_000}],
    ),
    "call": workflow(
        [
            node(
                "call",
                config={"serverId": SERVER, "name": "t"},
                inputs={"arguments": {"type": "variable", "variableName": "arguments"}},
            )
        ],
        variables=[{"name": "arguments", "type": "object"}],
    ),
    "needs": workflow([node("a", "core.noop")], variables=[{"name": "city", "type": "string", "required": True}]),
}


@dataclasses.dataclass
class Hosts:
    """Two hosts. Requests are those of tenant acme unless they have another key."""

    first: httpx.AsyncClient
    second: httpx.AsyncClient

    async def create(self, flow: str, **members: Any) -> str:
        """Create a run; gives its id."""
        answer = await self.first.post("/runs", json={"workflowId": flow, **members})
        assert answer.status_code == 201, answer.text
        run_id: str = answer.json()["runId"]
        return run_id

    async def ended(self, run_id: str) -> dict[str, Any]:
        """Wait for a run's end; its log's last event."""
        async with asyncio.timeout(PATIENCE):
            while True:
                told = (await self.first.get(f"/runs/{project(run_id)}/events/poll?timeout=5")).json()
                if told["isTerminal"]:
                    last: dict[str, Any] = told["events"][-1]
                    return last


@contextlib.asynccontextmanager
async def two_hosts(
    first: Client,
    second: Client,
    folder: Path,
    task_queue: str,
    *,
    options: Options | None = None,
    flows: Mapping[str, Mapping[str, Any]] = FLOWS,
    settings: Mapping[str, Any] | None = None,
) -> AsyncIterator[Hosts]:
    """Two hosts whose runs go to one task queue.

    Args:
        first: What the first one asks Temporal with.
        second: What the other one does.
        folder: An empty folder, for the workflows.
        task_queue: Where the runs wait for a worker.
        options: What each run is started with.
        flows: The workflows by their ids.
        settings: More of the table ``[host]``.
    """
    for name, flow in flows.items():
        (folder / f"{name}.json").write_text(json.dumps({**flow, "id": name}), encoding="utf-8")
    async with contextlib.AsyncExitStack() as stack:
        asking: list[httpx.AsyncClient] = []
        for client in (first, second):
            logs = RunLogs(client)
            stack.push_async_callback(logs.close)
            own = host({"host": {"workflows": [str(folder)], **(settings or {})}}, client)
            made = dataclasses.replace(
                own,
                logs=logs,
                records=Records(client),
                task_queue=task_queue,
                options=own.options if options is None else options,
            )
            one = await stack.enter_async_context(asked(create_app(made)))
            one.headers.update(bearer("acme-all"))
            asking.append(one)
        yield Hosts(*asking)


def key() -> dict[str, str]:
    """The header of a key that nobody has used."""
    return {"Idempotency-Key": str(uuid.uuid4())}


def code(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of a refusal."""
    return answer.status_code, answer.json()["error"]
