"""One log, three ways: told by the live workflow, projected from its history, projected from an exported file."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHistory

from openwop_mcp import jsontext
from openwop_mcp.runs.events import RunEvent
from tests.support.fake_server import FakeServer, Reply, Request, error_reply, modern, result_reply
from tests.support.graphs import edge, node, workflow
from tests.support.live_log import LiveLog, told
from tests.support.pack import Pack, log_of, pack_worker, settings_for, types
from workflows.replay import export, read_file, replay

DONE = b'{"content":[], "structuredContent":{"n":1.10}}'


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> LiveLog:
    return LiveLog(monkeypatch)


def handler(stalled: asyncio.Event) -> Any:
    busy: list[Reply] = [Reply(status=503), Reply(status=503)]

    def answer(request: Request) -> Any:
        match request.json["params"]["name"]:
            case "busy" if busy:
                return busy.pop()
            case "bad":
                return error_reply(request, -32000, "no", data={"n": 1})
            case "never":
                stalled.set()
                return Reply(headers=[("Content-Type", "text/event-stream")], stall="body")
            case _:
                return result_reply(request, DONE)

    return modern({"tools/call": answer})


@contextlib.asynccontextmanager
async def setting(client: Client) -> AsyncIterator[tuple[Pack, FakeServer, asyncio.Event]]:
    tools = {"*": {"safety_tier": "write"}, "busy": {"safety_tier": "read"}}
    quick = {"retry": {"attempts": 3, "max_wait": 0.02, "total": 1}}
    stalled = asyncio.Event()
    async with (
        FakeServer(handler(stalled)) as server,
        pack_worker(client, settings_for(server.url, tools=tools, server=quick)) as pack,
    ):
        yield pack, server, stalled


def call(node_id: str, tool: str = "echo") -> dict[str, Any]:
    return node(node_id, config={"serverId": "fake", "name": tool})


async def the_same(live: LiveLog, log: Sequence[RunEvent], found: Sequence[WorkflowHistory], folder: Path) -> None:
    """All three logs are one, and the run replays."""
    assert live.of(found) == told(log)
    file = folder / "run.json"
    file.write_text(export(found), encoding="utf-8")
    again = read_file(file)
    assert [event.encode() for event in log_of(again)] == [event.encode() for event in log]
    assert [event.sequence for event in log] == list(range(len(log)))
    assert all(one.timestamp <= other.timestamp for one, other in itertools.pairwise(log))
    for verdict in await replay(again, []):
        assert verdict.sound, verdict.prose()


MIXED = workflow(
    [
        call("first"),
        call("busy", "busy"),
        call("bad", "bad"),
        call("instead"),
        node("wait", "core.delay", config={"delayMs": 30}),
        node("well", "core.noop"),
        node("ill", "core.noop"),
        node(
            "end", "core.identity", inputs={"payload": {"type": "connection", "nodeId": "first", "outputKey": "result"}}
        ),
    ],
    [
        edge("first", "busy"),
        edge("first", "bad"),
        edge("first", "wait"),
        edge("bad", "instead", "any_failed"),
        edge("bad", "well"),
        edge("well", "ill"),
        edge("busy", "end"),
        edge("instead", "end"),
        edge("wait", "end"),
    ],
)


async def test_a_run_with_retries_a_handled_failure_a_delay_and_skipped_nodes(client, live, tmp_path):
    async with setting(client) as (pack, _, _):
        log, found = await pack.run(MIXED, b'{"n": 1.10}')
        kinds = types(log)
        assert kinds.count("node.retried busy") == 2
        assert "node.failed bad" in kinds
        assert "node.skipped ill" in kinds
        assert kinds[-1] == "run.completed"
        assert jsontext.pointer(log[-1].payload, ["outputs", "end", "payload"]) == DONE
        await the_same(live, log, found, tmp_path)


async def test_a_run_that_fails(client, live, tmp_path):
    async with setting(client) as (pack, _, _):
        log, found = await pack.run(workflow([call("bad", "bad"), call("a"), call("b")], [edge("bad", "b")]))
        assert types(log)[-1] == "run.failed"
        await the_same(live, log, found, tmp_path)


async def test_a_run_that_is_cancelled_while_calls_and_timers_are_under_way(client, live, tmp_path):
    nodes = [call("a"), call("never", "never"), node("wait", "core.delay", config={"delayMs": 60_000}), call("b")]
    async with setting(client) as (pack, _, stalled):
        handle = await pack.start(workflow(nodes, [edge("never", "b")]))
        await stalled.wait()
        await handle.cancel(reason="enough")
        log, found = await pack.end(handle)
        assert types(log)[-1] == "run.cancelled"
        assert {"node.cancelled wait", "node.cancelled never"} <= set(types(log))
        await the_same(live, log, found, tmp_path)


async def test_a_run_that_fails_before_it_begins(client, live, tmp_path):
    definition = workflow([call("a")], variables=[{"name": "city", "type": "string", "required": True}])
    async with setting(client) as (pack, _, _):
        log, found = await pack.run(definition)
        assert types(log) == ["run.started", "run.failed"]
        await the_same(live, log, found, tmp_path)


async def test_many_branches_that_end_together(client, live, tmp_path):
    nodes = [call(f"n{index}", "busy" if index % 5 == 0 else "echo") for index in range(20)]
    edges = [edge(f"n{index}", f"n{index + 10}") for index in range(10)]
    async with setting(client) as (pack, _, _):
        log, found = await pack.run(workflow(nodes, edges))
        assert types(log)[-1] == "run.completed"
        await the_same(live, log, found, tmp_path)


async def test_a_run_that_is_continued_as_new(short_client, live, tmp_path):
    count = 14
    nodes = [call(f"n{index}", "busy" if index == 9 else "echo") for index in range(count)]
    nodes.append(node("aside", "core.delay", config={"delayMs": 150}))
    edges = [edge(f"n{index}", f"n{index + 1}") for index in range(count - 1)]
    async with setting(short_client) as (pack, server, _):
        log, found = await pack.run(workflow(nodes, edges))
        assert types(log)[-1] == "run.completed"
        assert len(found) > 2
        assert len(server.requests) == count + 2
        outputs = json.loads(log[-1].payload)["outputs"]
        assert outputs == {f"n{count - 1}": {"result": json.loads(DONE)}, "aside": {}}
        await the_same(live, log, found, tmp_path)


async def test_a_run_that_is_terminated_has_an_end_in_its_log(client):
    async with setting(client) as (pack, _, stalled):
        handle = await pack.start(workflow([call("never", "never")]))
        await stalled.wait()
        await handle.terminate("by hand")
        log, _ = await pack.end(handle)
        assert types(log)[-2:] == ["node.cancelled never", "run.cancelled"]
