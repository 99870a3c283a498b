"""Worker processes that are killed at every moment of a call: each run reaches an end, and no effect happens twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from openwop_mcp import jsontext
from tests.support.author_flows import Author, Call, Calls
from tests.support.fake_server import FakeServer, Handler, Reply, Request, modern, result_reply
from tests.support.graphs import edge, node, workflow
from tests.support.pack import Pack, error_of, pack_worker, scheduled, settings_for, toml_for, types

ROOT = Path(__file__).parents[2]
TOOLS = {"*": {"safety_tier": "write"}, "read*": {"safety_tier": "read"}}
DONE = b'{"content":[]}'


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
            await asyncio.wait_for(self.changed.wait_for(lambda: all(tool in self.asked for tool in tools)), 10)


@dataclass
class Process:
    process: asyncio.subprocess.Process

    async def line(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(await asyncio.wait_for(self.process.stdout.readline(), 20))

    async def end(self, sent: signal.Signals) -> int:
        self.process.send_signal(sent)
        return await asyncio.wait_for(self.process.wait(), 12)


@dataclass
class Scene:
    client: Client
    server: FakeServer
    served: Served
    queue: str
    config: Path

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
        yield Scene(client, server, served, queue, config)


async def until_completed(handle: WorkflowHandle[Any, Any], count: int) -> None:
    """Wait until so many activities of a run are recorded as completed."""
    async for event in handle.fetch_history_events(wait_new_event=True):
        count -= event.HasField("activity_task_completed_event_attributes")
        if not count:
            return


def call(node_id: str, tool: str) -> dict[str, Any]:
    return node(node_id, config={"serverId": "fake", "name": tool})


async def test_a_worker_killed_before_the_claim_costs_an_attempt_and_no_effect_is_lost_or_doubled(
    client, temporal, tmp_path
):
    async with scene(client, temporal, tmp_path) as at:
        async with at.process("-m", "tests.support.held_worker", "claim") as first:
            handle = await at.pack.start(workflow([call("a", "write")]))
            assert (await first.line())["reached"] == "claim"
            await first.end(signal.SIGKILL)
        async with at.worker() as pack:
            log, found = await asyncio.wait_for(pack.end(handle), 15)
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
            read = await at.pack.start(branches)
            write = await at.pack.start(workflow([call("a", "write-slow"), call("b", "write-other")], [edge("a", "b")]))
            calls = [
                Call("call_tool", ["fake", "read-slow-too"], heartbeat=2.0),
                Call("call_tool", ["fake", "write-slow-too"], heartbeat=2.0),
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
                asyncio.gather(pack.end(read), pack.end(write), author.result()), 20
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


async def test_a_worker_killed_right_after_the_answer_leaves_a_write_in_doubt_and_sends_it_once(
    client, temporal, tmp_path
):
    async with scene(client, temporal, tmp_path) as at:
        async with at.process("-m", "tests.support.held_worker", "answer") as first:
            handle = await at.pack.start(workflow([call("a", "write")]))
            assert (await first.line())["reached"] == "answer"
            await first.end(signal.SIGKILL)
        async with at.worker() as pack:
            log, found = await asyncio.wait_for(pack.end(handle), 15)
        assert "the effect may have happened" in error_of(log)["message"]
        assert scheduled(found) == ["a:1"]
        assert at.served.asked == {"write": 1}


async def test_a_worker_told_to_stop_hands_its_reads_on_and_reports_its_writes_at_once(client, temporal, tmp_path):
    async with scene(client, temporal, tmp_path) as at:
        async with at.process("worker.py", "run") as first:
            read = await at.pack.start(workflow([call("a", "read-slow")]), heartbeat_timeout=60)
            write = await at.pack.start(workflow([call("a", "write-slow")]), heartbeat_timeout=60)
            await at.served.until_asked("read-slow", "write-slow")
            assert await first.end(signal.SIGTERM) == 0
        at.served.let_go.set()
        async with at.worker() as pack:
            (log, found), (doubtful, _) = await asyncio.wait_for(asyncio.gather(pack.end(read), pack.end(write)), 15)
        assert types(log)[2:] == ["node.retried a", "negotiation.decided a", "node.completed a", "run.completed"]
        assert "shut down" in jsontext.decode(log[2].payload)["lastError"]["message"]
        assert scheduled(found) == ["a:1", "a:2"]
        error = error_of(doubtful)
        assert "the effect may have happened" in error["message"]
        assert error["details"]["delivery"] == "unknown"
        assert at.served.asked == {"read-slow": 2, "write-slow": 1}
