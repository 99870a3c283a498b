"""Memory under large results: as many are read at once as there is room for, and none is lost by waiting."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from openwop_mcp.client._room import Held, Room
from openwop_mcp.config import Storage
from openwop_mcp.storage import data_converter
from tests.support.author_flows import Author, Call, Calls, Told
from tests.support.cli import serving
from tests.support.fake_server import FakeServer, Reply, Request, modern
from tests.support.pack import pack_worker, settings_for, toml_for
from tests.support.patience import PATIENCE

MIB = 1024**2
READ = {"*": {"safety_tier": "read"}}


def answer_of(request: Request, size: int) -> bytes:
    text = request.json["params"]["name"].ljust(size, "x")
    result = {"content": [{"type": "text", "text": text}]}
    return json.dumps({"jsonrpc": "2.0", "id": request.json["id"], "result": result}).encode()


def json_reply(body: bytes) -> Reply:
    return Reply(headers=[("Content-Type", "application/json")], body=body)


# Two hundred megabytes are made, read, kept and digested.
@pytest.mark.timeout(300)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peaks are read from /proc")
async def test_many_large_results_at_once_take_up_no_more_memory_than_they_may(temporal, tmp_path):
    size, calls, memory = 12_000_000, 16, 192 * MIB
    handler = modern({"tools/call": lambda request: json_reply(answer_of(request, size))})
    async with FakeServer(handler) as server:
        folder = tmp_path / "blobs"
        queue = f"pack-{uuid.uuid4().hex}"
        config = tmp_path / "openwop-mcp.toml"
        config.write_text(
            toml_for(
                temporal.address,
                server.url,
                tools=READ,
                worker={"task_queue": queue, "heartbeat_timeout": 60},
                limits={"memory_bytes": memory},
                storage={"driver": "folder", "folder": str(folder)},
            ),
            encoding="utf-8",
        )
        settings = settings_for(server.url).model_copy(update={"storage": Storage(folder=str(folder))})
        client = await Client.connect(temporal.address, data_converter=data_converter(settings))
        async with (
            serving("run", "--config", str(config)) as process,
            Worker(client, task_queue=f"author-{queue}", workflows=[Author]),
        ):
            before = peak_of(process.process.pid)
            flow = await client.start_workflow(
                Author.run,
                Calls(
                    [Call("call_tool", ["fake", f"t{n}"], heartbeat=60.0) for n in range(calls)], queue, parallel=True
                ),
                id=f"author-{queue}",
                task_queue=f"author-{queue}",
            )
            told = await flow.result()
            taken = peak_of(process.process.pid) - before
    assert [one.code for one in told] == [None] * calls
    # Without a bound it was 660 MiB. On top of what answers may take comes what each call reads before it needs room,
    # and what imports and an allocator that keeps what it has once had take: 330 MiB in all when it was measured.
    assert taken < memory + calls * 2 * MIB + 256 * MIB


def peak_of(pid: int) -> int:
    """Bytes that a process has had in memory at most."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


IDLE = 3.0
"""Seconds without a piece of an answer after which it is taken for one that does not come, where this is tested."""


@pytest.mark.parametrize("as_", ["json", "sse"])
async def test_an_answer_that_waits_for_room_is_not_taken_for_one_that_does_not_come(
    temporal, tmp_path, monkeypatch, as_
):
    has_room, waits, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()
    asks = Room.ask

    def ask(room: Room, held: Held, size: int) -> asyncio.Future[None]:
        found = asks(room, held, size)
        (has_room if found.done() else waits).set()
        return found

    monkeypatch.setattr(Room, "ask", ask)

    def answer(request: Request) -> Reply:
        body = answer_of(request, 3 * MIB)
        headers = [("Content-Type", "application/json")]
        if as_ == "sse":
            headers, body = [("Content-Type", "text/event-stream")], b"data: " + body + b"\n\n"
        if request.json["params"]["name"] == "quick":
            return Reply(headers=headers, chunks=[body])
        return Reply(headers=headers, chunks=[body[: 2 * MIB], go_on, body[2 * MIB :]])

    async with FakeServer(modern({"tools/call": answer})) as server:
        once = {"retry": {"attempts": 1}}
        hasty = {"url": server.url, "network": "private", "tools": READ, "timeouts": {"idle": IDLE}, **once}
        settings = settings_for(
            server.url,
            tools=READ,
            server=once,
            servers={"hasty": hasty},
            limits={"memory_bytes": 4 * MIB},
            storage={"driver": "folder", "folder": str(tmp_path)},
        )
        client = await Client.connect(temporal.address, data_converter=data_converter(settings))
        async with (
            pack_worker(client, settings) as pack,
            Worker(client, task_queue=f"author-{pack.task_queue}", workflows=[Author]),
        ):

            async def asked(server_id: str, tool: str) -> Told:
                [told] = await client.execute_workflow(
                    Author.run,
                    Calls([Call("call_tool", [server_id, tool])], pack.task_queue),
                    id=f"author-{uuid.uuid4().hex}",
                    task_queue=f"author-{pack.task_queue}",
                )
                return told

            async with asyncio.timeout(PATIENCE):
                slow = asyncio.create_task(asked("fake", "slow"))
                await has_room.wait()
                assert not waits.is_set()
                quick = asyncio.create_task(asked("hasty", "quick"))
                await waits.wait()
                # Far longer than it may be without a piece of its answer.
                asyncio.get_running_loop().call_later(2 * IDLE, go_on.set)
                await go_on.wait()
                assert not quick.done()
                assert [(await one).code for one in (slow, quick)] == [None, None]
