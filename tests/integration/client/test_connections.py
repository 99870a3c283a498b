"""The pool: one connection used again, none left over, a cancelled call's closed at once."""

from __future__ import annotations

import asyncio

import pytest

from openwop_mcp.client import _answers, _pool
from openwop_mcp.client._pool import HttpPool
from openwop_mcp.errors import McpError
from tests.support.fake_server import FakeServer, Handler, Reply, Request, error_reply, modern
from tests.support.mcp_client import ARGUMENTS, client_of, connected, json_reply, replies, stream_reply
from tests.support.patience import PATIENCE

LONG = {"first_byte": PATIENCE, "idle": PATIENCE, "total": PATIENCE}

AT_ONCE = PATIENCE / 2
"""Seconds: less than any limit that would end it as well."""


def _acquired(pool: HttpPool) -> int:
    """Connections that calls still hold."""
    return sum(len(transport.client.connector._acquired) for transport in pool._transports.values())


@pytest.mark.parametrize("as_", ["json", "sse"])
async def test_calls_in_sequence_share_one_connection(as_) -> None:
    async with connected(modern(as_=as_)) as (client, server):
        for _ in range(20):
            await client.call_tool("t", ARGUMENTS)
            await client.list_tools()
        assert {request.connection for request in server.requests} == {1}


async def test_clients_of_one_pool_share_its_connections() -> None:
    async with FakeServer(modern()) as server, HttpPool() as transport:
        for _ in range(3):
            await client_of(server.url, transport).list_tools()
        assert server.connections == 1


async def test_a_stream_that_stays_open_after_its_answer_holds_no_call_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_answers, "STREAM_END", 0.01)
    handler = replies(stream_reply(b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n', stall="body"))
    async with connected(handler, **LONG) as (client, server):
        async with asyncio.timeout(AT_ONCE):
            assert (await client.call_tool("t", ARGUMENTS)).result == b"{}"
            await server.closed[1].wait()


async def test_an_answer_is_not_lost_to_a_limit_that_runs_out_at_the_streams_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_answers, "STREAM_END", 2.5)
    handler = replies(stream_reply(b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n', stall="body"))
    async with connected(handler, idle=2.0, total=2.0) as (client, _):
        assert (await client.call_tool("t", ARGUMENTS)).result == b"{}"


async def test_after_a_json_rpc_error_the_connection_is_used_again() -> None:
    async def handler(request: Request) -> Reply:
        return error_reply(request, -32603, "no", status=500)

    async with connected(handler) as (client, server):
        for _ in range(3):
            with pytest.raises(McpError):
                await client.call_tool("t", ARGUMENTS)
        assert server.connections == 1


async def test_calls_at_once_have_a_connection_each_and_get_their_own_answers() -> None:
    everyone = asyncio.Event()

    async def answer(request: Request) -> bytes:
        if len(server.requests) == 30:
            everyone.set()
        await everyone.wait()
        return b'{"content":[],"name":"%b"}' % request.json["params"]["name"].encode()

    async with connected(modern({"tools/call": answer})) as (client, server):
        exchanges = await asyncio.gather(*(client.call_tool(f"t{n}", ARGUMENTS) for n in range(30)))
        assert [exchange.result for exchange in exchanges] == [b'{"content":[],"name":"t%d"}' % n for n in range(30)]
        assert server.connections == len({request.connection for request in server.requests}) == 30


async def test_an_idle_connection_is_closed_and_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _pool.KEEP_ALIVE == 3.0
    monkeypatch.setattr(_pool, "KEEP_ALIVE", 0.05)
    async with connected(modern()) as (client, server):
        await client.call_tool("t", ARGUMENTS)
        async with asyncio.timeout(PATIENCE):
            await server.closed[1].wait()
        await client.call_tool("t", ARGUMENTS)
        assert [request.connection for request in server.requests] == [1, 2]


async def test_a_connection_that_the_server_closed_while_idle_is_not_used_again() -> None:
    calm = modern()

    async def handler(request: Request) -> Reply | None:
        reply = await calm(request)
        assert reply is not None
        return Reply(headers=[*reply.headers, ("Connection", "close")], body=reply.body)

    async with connected(handler) as (client, server):
        for _ in range(3):
            await client.call_tool("t", ARGUMENTS)
        assert [request.connection for request in server.requests] == [1, 2, 3]


@pytest.mark.parametrize(
    "reply",
    [
        Reply(stall="head"),
        json_reply(b'{"jsonrpc":', stall="body"),
        stream_reply(b": ping\n\n", stall="body"),
        Reply(status=503, headers=[("Content-Type", "application/json")], body=b"{", stall="body"),
    ],
)
async def test_a_cancelled_call_closes_its_connection_at_once(reply: Reply) -> None:
    arrived = asyncio.Event()

    async def handler(request: Request) -> Reply:
        arrived.set()
        return reply

    async with connected(handler, **LONG) as (client, server):
        call = asyncio.ensure_future(client.call_tool("t", ARGUMENTS))
        async with asyncio.timeout(AT_ONCE):
            await arrived.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await server.closed[1].wait()
        assert _acquired(client._wire._pool) == 0
        assert len(server.requests) == 1


FAILURES: list[tuple[str, Reply | None]] = [
    ("status", Reply(status=500, body=b"no")),
    ("large status", Reply(status=404, body=b"x" * 300_000)),
    ("page", Reply(headers=[("Content-Type", "text/html")], body=b"<p>" * 50_000)),
    ("garbage", json_reply(b"{")),
    ("reset", json_reply(b"{}" * 50, abort_after=5)),
    ("cut", stream_reply(b": ping\n\n", abort_after=3, abort="close")),
    ("unanswered stream", stream_reply(b": ping\n\n")),
    ("silence", Reply(stall="head")),
    ("stop", stream_reply(b": ping\n\n", stall="body")),
    ("too large", json_reply(b" " * 300_000)),
    ("closed", None),
    ("redirect", Reply(status=302, headers=[("Location", "/elsewhere")])),
]


async def test_no_connection_is_left_over_after_two_hundred_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    # The end of the pool is what closes them.
    monkeypatch.setattr(_pool, "KEEP_ALIVE", 2 * PATIENCE)

    def make(request: Request) -> Reply | None:
        return FAILURES[request.json["id"] % len(FAILURES)][1]

    handler: Handler = replies(make)
    async with FakeServer(handler) as server:
        async with HttpPool() as transport:
            client = client_of(server.url, transport, response_bytes=100_000, idle=0.05, first_byte=0.05)
            slots = asyncio.Semaphore(20)

            async def fail(cancelled: bool) -> None:
                async with slots:
                    call = asyncio.ensure_future(client.call_tool("t", ARGUMENTS))
                    if cancelled:
                        asyncio.get_running_loop().call_later(0.01, call.cancel)
                    with pytest.raises((McpError, asyncio.CancelledError)):
                        await call

            await asyncio.gather(*(fail(n % 7 == 0) for n in range(200)))
            assert _acquired(transport) == 0
            # Each of them happened, though a call may be cancelled before its request is there.
            assert {request.json["id"] % len(FAILURES) for request in server.requests} == set(range(len(FAILURES)))
            # What is still open is the pool's to use again.
            assert server.open_connections <= 20
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(event.wait() for event in server.closed.values()))
        assert server.open_connections == 0


async def test_the_pool_is_closed_by_the_last_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_pool, "KEEP_ALIVE", 2 * PATIENCE)
    async with FakeServer(modern()) as server:
        transport = HttpPool()
        async with transport:
            async with transport:
                await client_of(server.url, transport).list_tools()
            assert server.open_connections == 1
            await client_of(server.url, transport).list_tools()
            assert server.connections == 1
        async with asyncio.timeout(PATIENCE):
            await server.closed[1].wait()


async def test_a_pool_that_was_not_entered_says_so() -> None:
    with pytest.raises(RuntimeError, match="enter it first"):
        await client_of("http://127.0.0.1:9/mcp", HttpPool()).list_tools()


async def test_no_cookie_is_kept_or_sent() -> None:
    calm = modern()

    async def handler(request: Request) -> Reply:
        reply = await calm(request)
        assert reply is not None
        return Reply(headers=[*reply.headers, ("Set-Cookie", "a=b; Path=/")], body=reply.body)

    async with connected(handler) as (client, server):
        await client.list_tools()
        await client.list_tools()
        assert [request.header("Cookie") for request in server.requests] == [None, None]


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with connected(modern()) as (client, server):
        await client.list_tools()
        assert len(server.requests) == 1
