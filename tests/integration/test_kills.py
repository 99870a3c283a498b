"""Worker processes that are killed at every moment of a call: each run reaches an end, and no effect happens twice."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.worker import Worker

from openwop_mcp import jsontext
from openwop_mcp.runs.events import RunEvent
from tests.support.author_flows import Author, Call, Calls
from tests.support.doubts import until, until_beat
from tests.support.fake_server import FakeServer, Handler, Reply, Request, modern, result_reply
from tests.support.graphs import edge, node, workflow
from tests.support.pack import (
    Pack,
    activity_results,
    error_of,
    pack_worker,
    payload_of,
    scheduled,
    settings_for,
    toml_for,
    types,
)
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]
TOOLS = {"*": {"safety_tier": "write"}, "read*": {"safety_tier": "read"}}
DONE = b'{"content":[]}'

LOST = 5.0
"""Seconds after which a worker is lost that was killed: the one in its place may stand still for some of them."""


@dataclass
class Served:
    """A server whose slow tools answer only once they are let go."""

    asked: dict[str, int] = field(default_factory=dict)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)

    def handler(self) -> Handler:
        async def answer(request: Request) -> Reply:
            tool = request.json["params"]["name"]
            async with self.changed:
                self.asked[tool] = self.asked.get(tool, 0) + 1
                self.changed.notify_all()
            if "slow" in tool:
                streamed = result_reply(request, DONE, "sse")
                assert streamed.chunks is not None
                return Reply(headers=streamed.headers, chunks=[self.let_go, *streamed.chunks])
            return result_reply(request, DONE)

        return modern({"tools/call": answer})

    async def until_asked(self, *tools: str) -> None:
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(lambda: all(tool in self.asked for tool in tools)), PATIENCE)


ENDED_WITHIN = 30.0
"""Seconds for a process to end: half of those after which its worker is lost, where the test is of that."""


@dataclass
class Process:
    process: asyncio.subprocess.Process

    async def line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(await asyncio.wait_for(self.process.stdout.readline(), PATIENCE))

    async def end(self, sent: signal.Signals) -> int:
        self.process.send_signal(sent)
        return await asyncio.wait_for(self.process.wait(), ENDED_WITHIN)


@dataclass
class Scene:
    client: Client
    server: FakeServer
    served: Served
    queue: str
    config: Path
    address: str

    @contextlib.asynccontextmanager
    async def process(self, *command: str) -> AsyncIterator[Process]:
        started = await asyncio.create_subprocess_exec(
            sys.executable, *command, "--config", str(self.config), stdout=asyncio.subprocess.PIPE, cwd=ROOT
        )
        process = Process(started)
        try:
            assert (await process.line())["ready"] is True
            yield process
        finally:
            if started.returncode is None:
                started.kill()
                await started.wait()

    def worker(self) -> contextlib.AbstractAsyncContextManager[Pack]:
        return pack_worker(self.client, settings_for(self.server.url, tools=TOOLS), task_queue=self.queue)

    @property
    def pack(self) -> Pack:
        return Pack(self.client, self.queue)


@contextlib.asynccontextmanager
async def scene(client: Client, temporal: Any, folder: Path) -> AsyncIterator[Scene]:
    served, queue, config = Served(), f"kill-{uuid.uuid4().hex}", folder / "settings.toml"
    async with FakeServer(served.handler()) as server:
        own = {"task_queue": queue, "shutdown_grace": 0.3}
        config.write_text(toml_for(temporal.address, server.url, tools=TOOLS, worker=own), encoding="utf-8")
        yield Scene(client, server, served, queue, config, temporal.address)


async def until_completed(handle: WorkflowHandle[Any, Any], count: int) -> None:
    """Wait until so many activities of a run are recorded as completed."""
    async for event in handle.fetch_history_events(wait_new_event=True):
        count -= event.HasField("activity_task_completed_event_attributes")
        if not count:
            return


def call(node_id: str, tool: str, key: str | None = None) -> dict[str, Any]:
    inputs = {} if key is None else {"idempotencyKey": {"type": "static", "value": key}}
    return node(node_id, config={"serverId": "fake", "name": tool}, inputs=inputs)


async def killed(at: Scene, moment: str, tool: str, *, keyed: bool) -> tuple[list[RunEvent], list[WorkflowHistory]]:
    """A run whose worker is killed at a moment of its only call; another takes over."""
    async with at.process("-m", "tests.support.held_worker", moment) as first:
        flow = workflow([call("a", tool, f"order-{uuid.uuid4().hex}" if keyed else None)])
        handle = await at.pack.start(flow, heartbeat_timeout=LOST)
        if moment == "sent":
            await at.served.until_asked(tool)
        else:
            assert (await first.line())["reached"] == moment
        await first.end(signal.SIGKILL)
    at.served.let_go.set()
    async with at.worker() as pack:
        return await asyncio.wait_for(pack.end(handle), PATIENCE)


async def test_a_worker_killed_before_the_claim_costs_an_attempt_and_no_effect_is_lost_or_doubled(
    client, temporal, tmp_path
):
    async with scene(client, temporal, tmp_path) as at:
        async with at.process("-m", "tests.support.held_worker", "claim") as first:
            handle = await at.pack.start(workflow([call("a", "write")]), heartbeat_timeout=LOST)
            assert (await first.line())["reached"] == "claim"
            await first.end(signal.SIGKILL)
        async with at.worker() as pack:
            log, found = await asyncio.wait_for(pack.end(handle), PATIENCE)
        assert types(log)[2:] == ["node.retried a", "negotiation.decided a", "node.completed a", "run.completed"]
        assert scheduled(found) == ["a:1", "a:2"]
        assert at.served.asked == {"write": 1}


async def test_a_worker_killed_during_calls_leaves_reads_to_another_and_writes_in_doubt(client, temporal, tmp_path):
    branches = workflow(
        [
            call("quick", "write-quick"),
            call("after", "write-after"),
            call("slow", "read-slow"),
            call("last", "write-last"),
        ],
        [edge("quick", "after"), edge("slow", "last")],
    )
    async with (
        scene(client, temporal, tmp_path) as at,
        Worker(client, task_queue=f"author-{at.queue}", workflows=[Author]),
    ):
        async with at.process("worker.py", "run") as first:
            read = await at.pack.start(branches, heartbeat_timeout=LOST)
            writes = workflow([call("a", "write-slow"), call("b", "write-other")], [edge("a", "b")])
            write = await at.pack.start(writes, heartbeat_timeout=LOST)
            calls = [
                Call("call_tool", ["fake", "read-slow-too"], heartbeat=LOST),
                Call("call_tool", ["fake", "write-slow-too"], heartbeat=LOST),
            ]
            author = await client.start_workflow(
                Author.run,
                Calls(calls, at.queue, parallel=True),
                id=f"author-{uuid.uuid4().hex}",
                task_queue=f"author-{at.queue}",
            )
            await at.served.until_asked("read-slow", "write-slow", "read-slow-too", "write-slow-too")
            await until_completed(read, 2)
            await first.end(signal.SIGKILL)
        at.served.let_go.set()
        async with at.worker() as pack:
            (log, found), (doubtful, _), told = await asyncio.wait_for(
                asyncio.gather(pack.end(read), pack.end(write), author.result()), PATIENCE
            )
        assert log[-1].type == "run.completed"
        assert sorted(scheduled(found)) == ["after:1", "last:1", "quick:1", "slow:1", "slow:2"]
        error = error_of(doubtful)
        assert error["code"] == "upstream_unavailable"
        assert "the effect may have happened" in error["message"]
        assert error["details"]["delivery"] == "unknown"
        assert "node.skipped b" in types(doubtful)
        assert told[0].raw == DONE.decode()
        assert told[1].in_doubt
        assert at.served.asked == {
            "write-quick": 1,
            "write-after": 1,
            "read-slow": 2,
            "write-last": 1,
            "write-slow": 1,
            "read-slow-too": 2,
            "write-slow-too": 1,
        }


async def test_a_worker_killed_before_it_claims_a_shared_effect_leaves_it_to_another(client, temporal, tmp_path):
    async with scene(client, temporal, tmp_path) as at:
        log, _ = await killed(at, "claim", "write", keyed=True)
        assert log[-1].type == "run.completed"
        assert at.served.asked == {"write": 1}


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
@pytest.mark.parametrize(
    ("moment", "tool", "asked"),
    [("claimed", "write", {}), ("sent", "write-slow", {"write-slow": 1}), ("answer", "write", {"write": 1})],
    ids=["before-the-send", "before-the-answer", "before-the-completion"],
)
async def test_a_worker_killed_after_the_claim_leaves_a_write_in_doubt_and_nobody_sends_it_again(
    client, temporal, tmp_path, keyed, moment, tool, asked
):
    async with scene(client, temporal, tmp_path) as at:
        log, found = await killed(at, moment, tool, keyed=keyed)
        error = error_of(log)
        assert error["code"] == "upstream_unavailable"
        assert "the effect may have happened" in error["message"]
        assert error["details"]["delivery"] == "unknown"
        assert error["details"]["effectId"].startswith("acme/")
        assert error["details"]["name"] == tool
        assert keyed or scheduled(found) == ["a:1"]
        assert at.served.asked == asked


@contextlib.asynccontextmanager
async def waiting(
    at: Scene, folder: Path, heartbeat: float
) -> AsyncIterator[tuple[Scene, Process, WorkflowHandle[Any, Any], WorkflowHandle[Any, Any]]]:
    """A worker process that only waits for an effect which a worker of another queue carries out.

    Gives that process in its scene, the run whose call it waits with, and the run that asked first.
    """
    other = dataclasses.replace(at, queue=f"{at.queue}-other", config=folder / "other.toml")
    own = {"task_queue": other.queue, "shutdown_grace": 0.3}
    other.config.write_text(toml_for(at.address, at.server.url, tools=TOOLS, worker=own), encoding="utf-8")
    flow = workflow([call("a", "write-slow", f"order-{uuid.uuid4().hex}")])
    async with at.worker() as pack:
        first = await pack.start(flow, heartbeat_timeout=60.0)
        await at.served.until_asked("write-slow")
        async with other.process("worker.py", "run") as process:
            second = await other.pack.start(flow, heartbeat_timeout=heartbeat)
            await until_beat(second, lambda beat: beat.get("waited") is True)
            yield other, process, second, first


async def taken_over(
    at: Scene, other: Scene, second: WorkflowHandle[Any, Any], first: WorkflowHandle[Any, Any]
) -> list[RunEvent]:
    """Another worker waits in place of the one that was lost, and both runs have the one result; the log."""
    async with other.worker() as pack:
        await until(second, lambda log: "node.retried a" in types(log))
        assert at.served.asked == {"write-slow": 1}
        at.served.let_go.set()
        (log, found), (_, firsts) = await asyncio.wait_for(asyncio.gather(pack.end(second), pack.end(first)), PATIENCE)
    assert [one.data for one in activity_results(found)] == [one.data for one in activity_results(firsts)] == [DONE]
    assert scheduled(found) == ["a:1", "a:2"]
    assert at.served.asked == {"write-slow": 1}
    return log


async def test_a_killed_worker_that_only_waited_for_an_effect_loses_nothing(client, temporal, tmp_path):
    async with scene(client, temporal, tmp_path) as at:
        async with waiting(at, tmp_path, LOST) as (other, process, second, first):
            await process.end(signal.SIGKILL)
            log = await taken_over(at, other, second, first)
        retried = next(event for event in log if event.type == "node.retried")
        assert "waited for an effect that goes on" in jsontext.decode(retried.payload)["lastError"]["message"]


async def test_a_worker_told_to_stop_hands_on_at_once_what_it_only_waits_for(client, temporal, tmp_path):
    async with scene(client, temporal, tmp_path) as at:
        async with waiting(at, tmp_path, 60.0) as (other, process, second, first):
            assert await process.end(signal.SIGTERM) == 0
            log = await taken_over(at, other, second, first)
        retried = next(event for event in log if event.type == "node.retried")
        assert "shut down" in jsontext.decode(retried.payload)["lastError"]["message"]


async def test_a_worker_told_to_stop_hands_its_reads_on_and_reports_its_writes_at_once(client, temporal, tmp_path):
    async with scene(client, temporal, tmp_path) as at:
        async with at.process("worker.py", "run") as first:
            read = await at.pack.start(workflow([call("a", "read-slow")]), heartbeat_timeout=60)
            write = await at.pack.start(workflow([call("a", "write-slow")]), heartbeat_timeout=60)
            await at.served.until_asked("read-slow", "write-slow")
            assert await first.end(signal.SIGTERM) == 0
        at.served.let_go.set()
        async with at.worker() as pack:
            (log, found), (doubtful, _) = await asyncio.wait_for(
                asyncio.gather(pack.end(read), pack.end(write)), PATIENCE
            )
        assert types(log)[2:] == ["node.retried a", "negotiation.decided a", "node.completed a", "run.completed"]
        assert "shut down" in payload_of(log, "node.retried")["lastError"]["message"]
        assert scheduled(found) == ["a:1", "a:2"]
        error = error_of(doubtful)
        assert "the effect may have happened" in error["message"]
        assert error["details"]["delivery"] == "unknown"
        assert at.served.asked == {"read-slow": 2, "write-slow": 1}
