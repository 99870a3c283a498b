"""What docs/operating.md promises of Temporal being lost, restored and paid for."""

from __future__ import annotations

import asyncio
import contextlib
import re
import sqlite3
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import psutil
from temporalio.client import Client

from openwop_mcp.embedded import embedded_temporal
from tests.support.documents import read
from tests.support.doubts import ACCEPT, asked_of_run, resolve
from tests.support.fake_server import FakeServer, Reply, Request, modern, result_reply
from tests.support.graphs import edge, node, workflow
from tests.support.pack import Pack, activity_results, pack_worker, settings_for
from tests.support.patience import PATIENCE
from tests.support.ports import free_port

DOC = read("docs/operating.md")
RESULT = b'{"content":[{"type":"text","text":"done"}]}'
WRITE = {"serverId": "fake", "name": "write"}
LATER = workflow(
    [node("gate", "core.approvalGate", config={"title": "Go on?"}), node("call", config=WRITE)], [edge("gate", "call")]
)


def calls(server: FakeServer) -> list[Request]:
    return [request for request in server.requests if request.json["method"] == "tools/call"]


@contextlib.asynccontextmanager
async def installation(port: int, db: Path, server: FakeServer) -> AsyncIterator[Pack]:
    async with embedded_temporal(port=port, db=db) as temporal:
        client = await Client.connect(temporal.address)
        async with pack_worker(client, settings_for(server.url), task_queue="operations") as pack:
            yield pack


async def test_what_came_after_a_backup_is_sent_again_when_it_is_restored_and_with_the_same_key(tmp_path):
    port = free_port()
    async with FakeServer(modern({"tools/call": RESULT})) as server:
        async with installation(port, tmp_path / "lost.db", server) as pack:
            handle = await pack.start(LATER)
            ((identity, _),) = await asked_of_run(handle)
            # Taken while it runs, as backups are.
            with (
                contextlib.closing(sqlite3.connect(tmp_path / "lost.db")) as now,
                contextlib.closing(sqlite3.connect(tmp_path / "backup.db")) as backup,
            ):
                now.backup(backup)
            await resolve(handle, identity, ACCEPT)
            await pack.end(handle)
            assert len(calls(server)) == 1
        async with installation(port, tmp_path / "backup.db", server) as pack:
            restored = pack.client.get_workflow_handle(handle.id)
            # The backup does not know of the answer either.
            await resolve(restored, identity, ACCEPT)
            log, _ = await pack.end(restored)
        assert log[-1].type == "run.completed"
        first, second = [request.header("Idempotency-Key") for request in calls(server)]
        assert first == second


async def test_temporal_that_is_killed_during_a_call_and_comes_back_doubles_nothing(tmp_path):
    port, arrived, go_on = free_port(), asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Reply:
        arrived.set()
        await go_on.wait()
        return result_reply(request, RESULT)

    db = tmp_path / "temporal.db"
    async with FakeServer(modern({"tools/call": slow})) as server, contextlib.AsyncExitStack() as first:
        temporal = await first.enter_async_context(embedded_temporal(port=port, db=db))
        client = await Client.connect(temporal.address)
        async with pack_worker(client, settings_for(server.url)) as pack:
            handle = await pack.start(workflow([node("call", config=WRITE)]), heartbeat_timeout=2 * PATIENCE)
            await asyncio.wait_for(arrived.wait(), PATIENCE)
            psutil.Process(temporal.process.pid).kill()
            await first.aclose()
            go_on.set()
            async with embedded_temporal(port=port, db=db):
                log, _ = await pack.end(handle)
        assert log[-1].type == "run.completed"
        assert len(calls(server)) == 1


async def test_a_call_costs_as_much_history_as_is_said(client):
    said = {
        name: (int(events), float(size))
        for name, events, size in re.findall(r"^\| ([^|]+) \| (\d+) \| ([\d.]+) kB", DOC, re.MULTILINE)
    }
    row = [node(f"n{number}", config=WRITE) for number in range(11)]
    keyed = {"idempotencyKey": {"type": "static", "value": "order-7"}}
    flows = {
        "one": workflow(row[:1]),
        "sequence": workflow(row, [edge(one["id"], after["id"]) for one, after in pairwise(row)]),
        "parallel": workflow(row),
        "keyed": workflow([node("n0", config=WRITE, inputs=keyed)]),
        "again": workflow([node("n0", config={**WRITE, "name": "busy"})]),
    }
    busy = iter([Reply(429)])

    def answer(request: Request) -> Reply:
        again = request.json["params"]["name"] == "busy"
        return next(busy, result_reply(request, RESULT)) if again else result_reply(request, RESULT)

    async def size_of(workflow_id: str) -> tuple[int, float]:
        about = (await client.get_workflow_handle(workflow_id).describe()).raw_description.workflow_execution_info
        return about.history_length, about.history_size_bytes / 1000

    sizes = {}
    server = FakeServer(modern({"tools/call": answer}))
    async with server, pack_worker(client, settings_for(server.url)) as pack:
        for name, flow in flows.items():
            handle = await pack.start(flow)
            _, found = await pack.end(handle)
            sizes[name] = await size_of(handle.id)
            if name == "keyed":
                [result] = activity_results(found)
                sizes["effect"] = await size_of(f"effect:{result.metadata['openwop-mcp.effect-id'].decode()}")

    def more(name: str, times: int) -> tuple[float, float]:
        return (sizes[name][0] - sizes["one"][0]) / times, (sizes[name][1] - sizes["one"][1]) / times

    found = {
        "a call after another": more("sequence", 10),
        "a call beside others": more("parallel", 10),
        "another attempt, with the wait before it": more("again", 1),
        "the effect of a key of yours, as a workflow of its own": sizes["effect"],
    }
    assert found.keys() == said.keys()
    for name, (events, size) in found.items():
        # Answers that come together are told of in one workflow task, of 3 events; on a busy machine fewer do.
        more_tasks = 3 if name == "a call beside others" else 0
        assert -1 < events - said[name][0] < 1 + more_tasks, name
        assert -1 < size - said[name][1] < 1 + more_tasks, name
