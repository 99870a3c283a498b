"""The pack in a minute: what ``make demo`` runs.

Real parts throughout: a Temporal server, an MCP server on the official SDK, a worker of the pack as a process that is
killed in the middle of a call, and an author's worker that has nothing of the pack but the library.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Worker

from examples.two_calls import TwoCalls, TwoCallsInput
from openwop_mcp import terminal
from openwop_mcp.config import ENVIRONMENT_PREFIX
from openwop_mcp.embedded import embedded_temporal
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import parse
from openwop_mcp.runs.records import CallRecord, records
from openwop_mcp.runs.start import Options, Owner, RunStart
from workflows.client import histories, mint_run_id, start_run
from workflows.replay import replay

__all__ = ("demo",)

HERE = Path(__file__).parent

SETTINGS = """\
[temporal]
address = "{address}"

# What the demo tells is not to be cut up by what its workers log.
[logs]
level = "warning"

[worker]
tenant = "demo"

[servers.sample]
url = "{url}"
network = "private"

# The operator says what a tool does; what the server claims of itself is not believed. Only a call that harms nothing
# when it is repeated is repeated after its worker was lost.
[servers.sample.tools."*"]
safety_tier = "read"
"""

HEARTBEAT_TIMEOUT = 3.0
"""Seconds after which the demo counts a silent worker as lost: it kills one on purpose and does not want to wait."""

SLOW = 2.0
"""Seconds that the slow tool takes: long enough to be killed in the middle of."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process of the demo that has said that it is ready."""

    process: asyncio.subprocess.Process
    facts: dict[str, Any]

    async def kill(self) -> None:
        """End it as a crash would."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()


@asynccontextmanager
async def running(*command: str) -> AsyncIterator[Process]:
    """A Python process that prints one JSON line when it is ready; it ends with the context."""
    # The settings are those of the demo, whatever the shell that it is run from says.
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE, env=environ
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 20)
        yield Process(process, json.loads(line))
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def demo(worker_py: Path) -> bool:
    """Run the demo and say what happens.

    Args:
        worker_py: The command line, whose ``run`` is the worker.

    Returns:
        Whether all of it went as it should.
    """
    with tempfile.TemporaryDirectory() as folder:
        journal, settings = Path(folder) / "journal.jsonl", Path(folder) / "settings.toml"
        async with (
            embedded_temporal() as temporal,
            running(str(HERE / "sample_server.py"), "--port", "0", "--journal", str(journal)) as server,
        ):
            settings.write_text(SETTINGS.format(address=temporal.address, url=server.facts["url"]), encoding="utf-8")
            say(f"Temporal at {temporal.address}, MCP server at {server.facts['url']}")
            client = await Client.connect(temporal.address)
            worker = (str(worker_py), "run", "--config", str(settings))
            async with contextlib.AsyncExitStack() as stack:
                first = await stack.enter_async_context(running(*worker))
                say(f"worker {first.process.pid} runs\n")
                done = [await graph(client)]

                handle = await two_calls_started(client, stack)
                await until_slow_call_is_under_way(client, handle)
                await first.kill()
                say(f"\nworker {first.process.pid} was killed (SIGKILL) in the middle of a slow call")
                second = await stack.enter_async_context(running(*worker))
                say(f"worker {second.process.pid} runs and goes on")
                await client.get_workflow_handle(handle).result()
                done.append(handle)

                found = [history for run in done for history in [h async for h in histories(client, run)]]
            return report(found, journal) & await replayed(found)


async def graph(client: Client) -> str:
    """Run the graph workflow ``conformance-mcp-client``; returns its id."""
    file = HERE / "fixtures" / "conformance-mcp-client.json"
    definition = parse(file.read_bytes(), source=str(file), node_types=REGISTRY)
    start = RunStart(
        run_id=mint_run_id("demo"),
        definition=definition.raw,
        owner=Owner(
            "demo",
            {"issuer": "urn:demo", "subjectId": "demo", "tenant": "demo", "lane": "workload", "kind": "workload"},
        ),
        options=Options(heartbeat_timeout=HEARTBEAT_TIMEOUT),
    )
    inputs = b'{"method":"callTool","serverId":"sample","name":"echo","arguments":{"value":[1.10,1e400,"\\u00e9"]}}'
    handle = await start_run(client, start, definition, inputs, task_queue="openwop-mcp")
    await handle.result()
    say(f"graph workflow conformance-mcp-client: run {start.run_id} completed")
    return start.run_id


async def two_calls_started(client: Client, stack: contextlib.AsyncExitStack) -> str:
    """Start the Python workflow on its author's own worker; returns its id."""
    await stack.enter_async_context(Worker(client, task_queue="author", workflows=[TwoCalls]))
    workflow_id = mint_run_id("demo")
    await client.start_workflow(
        "TwoCalls", TwoCallsInput(city="Bern", seconds=SLOW), id=workflow_id, task_queue="author"
    )
    say(f"Python workflow TwoCalls: {workflow_id} started")
    return workflow_id


async def until_slow_call_is_under_way(client: Client, workflow_id: str) -> None:
    """Wait until the second call has been claimed by a worker, which is when its request leaves."""
    handle = client.get_workflow_handle(workflow_id)
    while True:
        for pending in (await handle.describe()).raw_description.pending_activities:
            claimed = any(b'"slow"' in payload.data for payload in pending.heartbeat_details.payloads)
            if claimed:
                return
        await asyncio.sleep(0.1)


def report(found: list[WorkflowHistory], journal: Path) -> bool:
    """Print what was recorded of each call beside what the server says it sent."""
    sent = {line["sha256"]: line for line in map(json.loads, journal.read_text(encoding="utf-8").splitlines())}
    calls = [(history, call) for history in found for call in records(history.events)]
    rows = [row(history, call, sent) for history, call in calls]
    say("")
    for line in rows:
        say(line)
    return bool(rows) and all(equal(call, sent) for _, call in calls)


def equal(call: CallRecord, sent: dict[str, dict[str, Any]]) -> bool:
    """Whether the server journalled an answer of just these bytes."""
    told = sent.get(call.result.sha256)
    return call.intact and told is not None and told["resultBytes"] == len(call.result.raw)


def row(history: WorkflowHistory, call: CallRecord, sent: dict[str, dict[str, Any]]) -> str:
    """One call, for people."""
    return (
        f"{terminal.escape(call.server_id)} {call.method} {terminal.escape(call.subject)}\n"
        f"  run {history.workflow_id}, revision {call.revision}, {len(call.result.raw)} bytes, "
        f"attempts {call.attempts}\n"
        f"  sha256 {call.sha256}\n"
        f"  recorded bytes {'equal' if equal(call, sent) else 'DIFFER FROM'} what the server says it sent"
    )


async def replayed(found: list[WorkflowHistory]) -> bool:
    """Replay every history with the current code."""
    say("")
    verdicts = await replay(found, [TwoCalls])
    for verdict in verdicts:
        say(verdict.prose())
    return all(verdict.sound for verdict in verdicts)


def say(text: str) -> None:
    """Tell the watcher."""
    print(text, flush=True)
