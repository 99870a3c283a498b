"""What makes other clients call a tool three times: here one execution, and its result is the record."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from tests.support.author_flows import Author, Call, Calls
from tests.support.fake_server import FakeServer, Reply, Request, modern, result_reply
from tests.support.graphs import edge, node, workflow
from tests.support.pack import Pack, activity_results, chain, pack_worker, scheduled, settings_for

BIG = b'{"content":[{"type":"text","text":"' + b"\\u00e9 x" * 150_000 + b'"}], "n":1.10}'
"""More than a MiB, and less than history itself holds."""

BROKEN = b'{"content":[],"structuredContent":{"total":"many"},  "n":1.10}'
SCHEMA = {"type": "object", "properties": {"total": {"type": "integer"}}, "required": ["total"]}
LISTED = json.dumps(
    {
        "resultType": "complete",
        "tools": [{"name": "write", "inputSchema": {"type": "object"}, "outputSchema": SCHEMA}],
        "ttlMs": 60_000,
        "cacheScope": "private",
    }
).encode()


@dataclass(frozen=True)
class Case:
    """A server, by what it answers to `tools/list` and to the call of a tool."""

    listed: bytes | Reply
    called: Callable[[Request], Reply]
    result: bytes

    @property
    def handlers(self) -> Mapping[str, Any]:
        return {"tools/list": lambda _: self.listed, "tools/call": self.called}


CASES = {
    "list-answers-500": Case(Reply(500), lambda asked: result_reply(asked, b'{"content":[]}'), b'{"content":[]}'),
    "breaks-its-schema": Case(LISTED, lambda asked: result_reply(asked, BROKEN), BROKEN),
    "over-a-mebibyte-in-a-stream": Case(LISTED, lambda asked: result_reply(asked, BIG, "sse"), BIG),
}


@contextlib.asynccontextmanager
async def setting(client: Client, case: Case) -> AsyncIterator[tuple[FakeServer, Pack]]:
    async with FakeServer(modern(case.handlers)) as server:
        settings = settings_for(server.url, server={"retry": {"attempts": 3, "max_wait": 0.01}})
        async with pack_worker(client, settings) as pack:
            yield server, pack


def executions(server: FakeServer) -> int:
    return sum(request.json["method"] == "tools/call" for request in server.requests)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_graph_s_call_is_executed_once_and_its_result_recorded(client, case):
    known = node("known", "community.mcp.list-tools", config={"serverId": "fake"})
    call = node("call", config={"serverId": "fake", "name": "write"})
    again = node("again", "community.mcp.list-tools", config={"serverId": "fake"})
    flow = workflow([known, call, again], [edge("known", "call", "all_complete"), edge("call", "again")])
    async with setting(client, case) as (server, pack):
        _, found = await pack.run(flow)
        assert case.result in [one.data for one in activity_results(found)]
        assert executions(server) == 1
        assert [one for one in scheduled(found) if one.startswith("call")] == ["call:1"]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_an_author_s_call_is_executed_once_and_its_result_recorded(client, case):
    calls = [Call("list_tools", ["fake"]), Call("call_tool", ["fake", "write"]), Call("list_tools", ["fake"])]
    async with (
        setting(client, case) as (server, pack),
        Worker(client, task_queue=f"author-{pack.task_queue}", workflows=[Author]),
    ):
        flow = await client.start_workflow(
            Author.run,
            Calls(calls, pack.task_queue),
            id=f"author-{uuid.uuid4().hex}",
            task_queue=f"author-{pack.task_queue}",
        )
        _, called, _ = await flow.result()
        assert called.code is None
        assert case.result in [one.data for one in activity_results(await chain(client, flow.id))]
        assert executions(server) == 1
