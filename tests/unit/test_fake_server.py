from __future__ import annotations

import asyncio
import json
import socket

import aiohttp
import pytest

from tests.support.fake_server import FakeServer, Reply, Request, error_reply, modern, result_reply

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}


def _call(**headers: str) -> tuple[bytes, dict[str, str]]:
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "é", "_meta": META}}
    standard = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "=?base64?w6k=?="}
    return json.dumps(message).encode(), {**standard, **headers}


async def _exchange(server: FakeServer, data: bytes) -> bytes:
    """Send raw bytes on a connection of its own and read until the server closes it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(data)
    received = await reader.read()
    writer.close()
    return received


async def test_the_bytes_told_are_the_bytes_sent() -> None:
    async def handler(request: Request) -> Reply:
        return Reply(status=418, headers=[("X-Odd", "a"), ("Connection", "close")], body=b'{ "n": 1.10 }')

    async with FakeServer(handler) as server:
        received = await _exchange(server, b"GET /x HTTP/1.1\r\nhOst: h\r\nA: 1\r\nA: 2\r\n\r\n")
    assert received == (
        b"HTTP/1.1 418 I'm a Teapot\r\nX-Odd: a\r\nConnection: close\r\nContent-Length: 13\r\n\r\n" + b'{ "n": 1.10 }'
    )
    assert server.requests == [Request("GET", "/x", [("hOst", "h"), ("A", "1"), ("A", "2")], b"", 1)]


async def test_a_connection_is_kept_and_numbered() -> None:
    async def handler(request: Request) -> Reply:
        return Reply(body=request.body)

    async with FakeServer(handler) as server, aiohttp.ClientSession() as client:
        for body in (b"one", b"two"):
            async with client.post(server.url, data=body) as response:
                assert await response.read() == body
        assert server.open_connections == 1
    assert [(request.connection, request.body) for request in server.requests] == [(1, b"one"), (1, b"two")]
    assert server.open_connections == 0


async def test_a_chunked_request_is_put_together() -> None:
    async def handler(request: Request) -> Reply:
        return Reply(headers=[("Connection", "close")])

    async with FakeServer(handler) as server:
        await _exchange(
            server, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"
        )
    assert server.requests[0].body == b"abc0123456789"


async def test_chunks_leave_one_by_one_and_wait_for_their_event() -> None:
    gate = asyncio.Event()

    async def handler(request: Request) -> Reply:
        return Reply(chunks=[b"first", gate, b"second"])

    async with FakeServer(handler) as server, aiohttp.ClientSession() as client, client.get(server.url) as response:
        assert await response.content.readany() == b"first"
        gate.set()
        assert await response.content.read() == b"second"


@pytest.mark.parametrize("chunks", [None, [b"01", b"2345", b"6789"]])
@pytest.mark.parametrize("how", ["reset", "close"])
async def test_a_reply_is_broken_off_where_told(how: str, chunks: list[bytes] | None) -> None:
    async def handler(request: Request) -> Reply:
        return Reply(body=b"0123456789" if chunks is None else b"", chunks=chunks, abort_after=4, abort=how)

    async with FakeServer(handler) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.readuntil(b"\r\n\r\n")
        expected = b"0123" if chunks is None else b"2\r\n01\r\n2\r\n23\r\n"
        assert await reader.readexactly(len(expected)) == expected
        if how == "reset":
            with pytest.raises(ConnectionResetError):
                await reader.read()
        else:
            assert await reader.read() == b""
        writer.close()


async def test_no_reply_closes_the_connection() -> None:
    async def handler(request: Request) -> None:
        return None

    async with FakeServer(handler) as server:
        assert await _exchange(server, b"GET / HTTP/1.1\r\n\r\n") == b""


@pytest.mark.parametrize(("stall", "seen"), [("head", b""), ("body", b"ab")])
async def test_a_stalled_reply_ends_when_the_client_leaves(stall: str, seen: bytes) -> None:
    async def handler(request: Request) -> Reply:
        return Reply(body=b"ab", stall=stall)

    async with FakeServer(handler) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        if seen:
            await reader.readuntil(b"\r\n\r\n")
            assert await reader.readexactly(2) == seen
        assert not server.closed[1].is_set()
        writer.close()
        await asyncio.wait_for(server.closed[1].wait(), 5)


async def test_a_client_that_leaves_is_noticed_while_the_handler_is_busy() -> None:
    entered = asyncio.Event()

    async def handler(request: Request) -> Reply:
        entered.set()
        await server.closed[request.connection].wait()
        return Reply()

    async with FakeServer(handler) as server:
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            await asyncio.wait_for(entered.wait(), 5)
        await asyncio.wait_for(server.closed[1].wait(), 5)


async def test_a_fault_in_the_handler_reaches_the_test() -> None:
    async def handler(request: Request) -> Reply:
        raise KeyError(request.path)

    with pytest.raises(KeyError, match="/odd"):
        async with FakeServer(handler) as server:
            await _exchange(server, b"GET /odd HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("as_", ["json", "sse"])
async def test_a_result_keeps_its_bytes_and_the_request_its_id(as_: str) -> None:
    result = b'{ "resultType":"complete",\n "n": 1.10 }'

    async with FakeServer(modern({"tools/call": result}, as_=as_)) as server, aiohttp.ClientSession() as client:
        body, headers = _call()
        async with client.post(server.url, data=body, headers=headers) as response:
            received = await response.read()
    message = b'{"jsonrpc":"2.0","id":7,"result":' + result + b"}"
    lines = message.split(b"\n")
    event = b"event: message\ndata: " + lines[0] + b"\ndata: " + lines[1] + b"\n\n"
    assert received == (message if as_ == "json" else event)


@pytest.mark.parametrize(
    "wrong", [{"MCP-Protocol-Version": "2025-06-18"}, {"Mcp-Method": "tools/list"}, {"Mcp-Name": "e"}]
)
async def test_a_header_that_differs_from_the_body_is_refused(wrong: dict[str, str]) -> None:
    async with FakeServer(modern()) as server, aiohttp.ClientSession() as client:
        body, headers = _call(**wrong)
        async with client.post(server.url, data=body, headers=headers) as response:
            assert response.status == 400
            assert (await response.json())["error"]["code"] == -32020


async def test_a_handler_may_answer_with_a_function() -> None:
    async def busy(request: Request) -> Reply:
        return error_reply(request, -32603, "busy", {"why": 1}, status=500)

    def name(request: Request) -> bytes:
        return json.dumps({"name": request.json["params"]["name"]}).encode()

    body, headers = _call()
    async with (
        FakeServer(modern({"tools/call": busy, "prompts/get": name})) as server,
        aiohttp.ClientSession() as client,
    ):
        async with client.post(server.url, data=body, headers=headers) as response:
            assert response.status == 500
        renamed = body.replace(b"tools/call", b"prompts/get")
        async with client.post(server.url, data=renamed, headers={**headers, "Mcp-Method": "prompts/get"}) as response:
            assert (await response.json())["result"] == {"name": "é"}


async def test_an_unknown_method_is_not_found() -> None:
    async with FakeServer(modern()) as server, aiohttp.ClientSession() as client:
        message = {"jsonrpc": "2.0", "id": "a", "method": "x/y", "params": {"_meta": META}}
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "x/y"}
        async with client.post(server.url, json=message, headers=headers) as response:
            assert response.status == 404
            assert (await response.json())["id"] == "a"


def test_an_event_stream_refuses_what_it_cannot_carry() -> None:
    with pytest.raises(AssertionError, match="carriage return"):
        result_reply(Request("POST", "/", [], b'{"id":1}', 1), b'{\r\n"a":1}', as_="sse")
