"""Room for large answers: a slow server takes up no more than it sent, and what nobody waits for takes up none."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from openwop_mcp.client import CallOptions, Clients
from openwop_mcp.client._conversation import Exchange
from openwop_mcp.client.stdio import _process
from openwop_mcp.config import Settings
from openwop_mcp.errors import ConnectionLostError, TimeLimitError
from tests.support.fake_server import DISCOVER, FakeServer, Reply, Request, modern
from tests.support.mcp_client import ARGUMENTS
from tests.support.patience import PATIENCE

MIB = 1024**2

LOCAL = """
import json, sys

def tell(text):
    sys.stdout.write(text)
    sys.stdout.flush()

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    begin = '{"jsonrpc":"2.0","id":%d,"result":' % asked["id"]
    if asked["method"] != "tools/call":
        said = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
        tell(begin + json.dumps(said) + "}\\n")
    elif asked["params"]["name"] == "end":
        tell(rest)
        sys.exit()
    else:
        text = begin + '{"content":[{"type":"text","text":"' + "x" * asked["params"]["arguments"]["size"]
        rest = '"}]}}\\n'
        tell(text if asked["params"]["name"] == "begin" else text + rest)
"""
"""A local program whose answers are as large as they are to be. One that is only begun it ends with itself."""

PROGRAM = {"command": [sys.executable, "-I", "-S", "-c", LOCAL]}


class Slow:
    """Sends most of a large answer, and the rest when told."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.rest = asyncio.Event()

    def __call__(self, request: Request) -> Reply:
        message = b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request.json["id"], self.body)
        cut = len(message) - 1000
        return Reply(headers=[("Content-Type", "application/json")], chunks=[message[:cut], self.rest, message[cut:]])


def result_of(size: int) -> bytes:
    return b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * size)


def clients_of(memory: int, **servers: Mapping[str, Any]) -> Clients:
    settings = {
        "servers": {name: {"network": "private", **server} for name, server in servers.items()},
        "limits": {"memory_bytes": memory},
    }
    return Clients(Settings.model_validate(settings), client_info=b'{"name":"t","version":"1"}', environ={})


async def called(clients: Clients, server: str, **options: Any) -> Exchange:
    with clients.room.held():
        return await clients[server].call_tool("t", ARGUMENTS, CallOptions(**options))


async def until_taken(clients: Clients, size: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while clients.room._size - clients.room._free < size:  # noqa: ASYNC110 - the room tells nobody
            await asyncio.sleep(0.01)


async def test_slow_answers_leave_the_room_that_they_do_not_need_yet_to_others() -> None:
    slow = Slow(result_of(MIB + MIB // 4))
    async with (
        FakeServer(modern({"tools/call": slow})) as drips,
        FakeServer(modern({"tools/call": result_of(2_000_000)})) as quick,
        # Room for 16 MiB, and two answers of up to 64 MiB each.
        clients_of(64 * MIB, slow={"url": drips.url}, quick={"url": quick.url}) as clients,
    ):
        both = [asyncio.create_task(called(clients, "slow")) for _ in range(2)]
        await until_taken(clients, 2 * (MIB + MIB // 4))
        assert len((await called(clients, "quick", timeout=PATIENCE)).result) > 2_000_000
        slow.rest.set()
        assert [len((await one).result) for one in both] == [len(slow.body)] * 2
        assert clients.room._free == 16 * MIB


async def test_an_answer_that_waits_for_room_until_its_time_is_up_names_the_setting() -> None:
    slow = Slow(result_of(2 * MIB))
    async with (
        FakeServer(modern({"tools/call": slow})) as drips,
        FakeServer(modern({"tools/call": result_of(2_000_000)})) as quick,
        clients_of(MIB, slow={"url": drips.url}, quick={"url": quick.url}) as clients,
    ):
        first = asyncio.create_task(called(clients, "slow"))
        await until_taken(clients, MIB)
        with pytest.raises(TimeLimitError, match=r"limits\.memory_bytes.*servers\.quick\.timeouts\.total") as caught:
            await called(clients, "quick", timeout=2.0)
        assert caught.value.facts["setting"] == "limits.memory_bytes"
        slow.rest.set()
        await first
        assert clients.room._free == MIB // 4


async def test_an_agreement_that_outlives_who_sought_it_gives_its_room_back() -> None:
    slow = Slow(json.dumps(json.loads(DISCOVER) | {"instructions": "x" * 2_000_000}).encode())
    async with (
        FakeServer(modern({"server/discover": slow})) as server,
        # It is asked what it speaks, since the settings allow more than one era.
        clients_of(64 * MIB, old={"url": server.url, "minimum_revision": "2025-11-25"}) as clients,
    ):
        with pytest.raises(TimeLimitError):
            await called(clients, "old", timeout=0.3)
        slow.rest.set()
        await called(clients, "old")
        assert clients.room._free == 16 * MIB


@contextlib.contextmanager
def crowded(clients: Clients) -> Iterator[None]:
    """Another answer has all the room."""
    other = clients.room.held()
    assert clients.room.ask(other, clients.room._size).done()
    yield
    other.leave()


async def asked_for(clients: Clients, size: int, *, tool: str = "whole", **options: Any) -> Exchange:
    with clients.room.held():
        return await clients["local"].call_tool(tool, json.dumps({"size": size}).encode(), CallOptions(**options))


async def until_held_back(clients: Clients) -> None:
    async with asyncio.timeout(PATIENCE):
        while not any(held.waiting for held in clients.room._present):  # noqa: ASYNC110 - the room tells nobody
            await asyncio.sleep(0.01)


async def test_a_local_programs_answer_waits_for_room_and_comes_whole() -> None:
    async with clients_of(16 * MIB, local=PROGRAM) as clients:
        with crowded(clients):
            call = asyncio.create_task(asked_for(clients, 3 * MIB))
            await until_held_back(clients)
            # The pipe holds up the program, and the line what came of it.
            wire: Any = clients["local"]._wire
            assert wire._current._lines.held < MIB + MIB // 2
        assert len((await call).result) > 3 * MIB
        assert clients.room._free == 4 * MIB


async def test_who_called_a_local_program_has_the_room_of_its_answers_until_it_hands_them_on() -> None:
    async with clients_of(64 * MIB, local=PROGRAM) as clients:
        with clients.room.held() as held:
            for count in (1, 2):
                answer = await clients["local"].call_tool("whole", b'{"size":3000000}')
                assert count * len(answer.result) < held.size < count * (len(answer.result) + 100)
                assert clients.room._free == 16 * MIB - held.size
        assert clients.room._free == 16 * MIB


async def test_a_local_programs_answer_that_finds_no_room_names_the_setting_and_stops_no_later_one() -> None:
    async with clients_of(16 * MIB, local={**PROGRAM, "timeouts": {"first_byte": 2.0}}) as clients:
        await asked_for(clients, 1)
        with crowded(clients):
            first = asyncio.create_task(asked_for(clients, 3 * MIB, timeout=4.0))
            await until_held_back(clients)
            # The other call waits behind the same line, which is no fault of the program's either.
            failures = await asyncio.gather(first, asked_for(clients, 1, timeout=3.0), return_exceptions=True)
        for failure in failures:
            assert isinstance(failure, TimeLimitError)
            assert failure.facts["setting"] == "limits.memory_bytes"
            assert failure.facts["limit"] == "total"
        assert len((await asked_for(clients, 2 * MIB)).result) > 2 * MIB
        assert clients.room._free == 4 * MIB


async def test_an_answer_that_is_in_the_pipe_of_a_program_that_ended_needs_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_process, "LAST_WORDS", PATIENCE)
    async with clients_of(16 * MIB, local=PROGRAM) as clients:
        with crowded(clients):
            call = asyncio.create_task(asked_for(clients, MIB + 1_000, tool="begin"))
            await until_held_back(clients)
            with pytest.raises(ConnectionLostError):
                await clients["local"].call_tool("end", b"{}")
            assert len((await call).result) > MIB
        assert clients.room._free == 4 * MIB
