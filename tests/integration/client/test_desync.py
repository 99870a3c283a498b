"""A connection on which another request's answer came is not used again: it would be one answer behind for ever."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re

import pytest

from openwop_mcp.client._pool import HttpPool
from openwop_mcp.errors import MalformedAnswerError
from tests.support.mcp_client import ARGUMENTS, client_of

LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


async def _request(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    found = LENGTH.search(head)
    assert found is not None
    return int(json.loads(await reader.readexactly(int(found[1])))["id"])


def _answer(request_id: int) -> bytes:
    body = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % request_id
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
