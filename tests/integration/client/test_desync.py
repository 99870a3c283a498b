"""A connection on which another request's answer came, or one that nobody asked for, is not used again: it would be one
answer behind, or ahead, for ever."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re

import pytest

from openwop_mcp.client._pool import HttpPool
from openwop_mcp.errors import MalformedAnswerError
from tests.support.mcp_client import ARGUMENTS, client_of
from tests.support.patience import PATIENCE

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


async def _request(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    found = LENGTH.search(head)
    assert found is not None
    return int(json.loads(await reader.readexactly(int(found[1])))["id"])


def _answer(request_id: int, content: bytes = b"[]") -> bytes:
    body = b'{"jsonrpc":"2.0","id":%d,"result":{"content":%b}}' % (request_id, content)
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


async def test_a_connection_that_is_one_answer_behind_is_given_up_at_the_first_wrong_answer() -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        behind = connections == 1
        last = None
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request_id = await _request(reader)
                writer.write(_answer(last if behind and last is not None else request_id))
                last = request_id
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, HttpPool() as pool:
        client = client_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", pool)
        await client.call_tool("t", ARGUMENTS)
        with pytest.raises(MalformedAnswerError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert caught.value.fault == "wrong_id"
        await client.call_tool("t", ARGUMENTS)
        assert connections == 2
        await client.close()


@pytest.mark.parametrize("ahead", [0, 1])
async def test_bytes_that_came_on_an_idle_connection_answer_nothing(ahead: int) -> None:
    connections, said = 0, asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                request_id = await _request(reader)
                writer.write(_answer(request_id))
                await writer.drain()
                await read.wait()
                read.clear()
                writer.write(_answer(request_id + ahead, b"[7]"))
                await writer.drain()
                said.set()
        writer.close()

    read = asyncio.Event()
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, HttpPool() as pool:
        client = client_of(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", pool)
        for _ in range(3):
            assert (await client.call_tool("t", ARGUMENTS)).result == b'{"content":[]}'
            read.set()
            await asyncio.wait_for(said.wait(), PATIENCE)
            said.clear()
            await _arrived(pool)
        assert connections == 3
        await client.close()


async def _arrived(pool: HttpPool) -> None:
    """Wait until the idle connection has what was sent on it."""
    (transport,) = pool._transports.values()
    connector = transport.client.connector
    async with asyncio.timeout(PATIENCE):
        # A connection tells nobody what it gets while it is idle.
        while not all(  # noqa: ASYNC110
            protocol.should_close for idle in connector._conns.values() for protocol, _ in idle
        ):
            await asyncio.sleep(0)
