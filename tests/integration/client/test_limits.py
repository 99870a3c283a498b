"""Limits of time and size: each ends a call with an error of its own that says what had left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from openwop_mcp.client import CallOptions, Notice
from openwop_mcp.client._pool import HttpPool
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import (
    ConnectError,
    ConnectionLostError,
    MalformedAnswerError,
    McpError,
    ResultTooLargeError,
    TimeLimitError,
)
from tests.support.fake_server import FakeServer, Reply, Request, modern
from tests.support.mcp_client import ARGUMENTS, client_of, connected, json_reply, replies, stream_reply
from tests.support.patience import PATIENCE

SHORT = 0.1
PROGRESS = b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}\n\n'


async def _failure(url: str, arguments: bytes = ARGUMENTS, **options: Any) -> McpError:
    async with HttpPool() as transport:
        with pytest.raises(McpError) as caught:
            async with asyncio.timeout(PATIENCE):
                await client_of(url, transport, **options).call_tool("t", arguments)
        return caught.value


def _is_limit(error: McpError, limit: str, delivery: Delivery) -> bool:
    assert isinstance(error, TimeLimitError)
    assert error.limit == error.facts["limit"] == limit
    assert f"timeouts.{limit}" in error.message
    assert f"'{limit}' limit of {error.facts['seconds']:g} s" in error.message
    assert (error.code, error.retryable) == ("upstream_unavailable", True)
    return error.delivery is delivery


@contextlib.contextmanager
def _blackhole():
    """A port that takes no more connections: its backlog is full, so that SYNs go unanswered."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@contextlib.asynccontextmanager
async def _raw(said: bytes) -> AsyncIterator[int]:
    """A port that answers whatever comes first with `said`, and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read(1)
            writer.write(said)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_connection_that_is_not_taken_ends_by_connect_with_nothing_sent() -> None:
    with _blackhole() as port:
        error = await _failure(f"http://127.0.0.1:{port}/mcp", connect=SHORT)
    assert _is_limit(error, "connect", Delivery.NOT_SENT)
    assert error.facts["seconds"] == SHORT


async def test_tls_that_is_not_answered_ends_by_connect_with_nothing_sent() -> None:
    async with FakeServer(modern()) as server:
        error = await _failure(f"https://127.0.0.1:{server.port}/mcp", connect=SHORT)
        assert server.requests == []
    assert _is_limit(error, "connect", Delivery.NOT_SENT)


async def test_a_server_that_reads_nothing_ends_by_first_byte_in_doubt() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        large = b'{"s":"' + b"x" * 20_000_000 + b'"}'
        error = await _failure(
            f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", large, first_byte=SHORT, total=PATIENCE
        )
    assert _is_limit(error, "first_byte", Delivery.UNKNOWN)


async def test_an_answer_that_does_not_begin_ends_by_first_byte_in_doubt() -> None:
    async with connected(replies(Reply(stall="head")), first_byte=SHORT) as (client, server):
        with pytest.raises(TimeLimitError) as caught:
            await client.call_tool("t", ARGUMENTS)
        await asyncio.wait_for(server.closed[1].wait(), PATIENCE)
    assert _is_limit(caught.value, "first_byte", Delivery.UNKNOWN)


@pytest.mark.parametrize(
    "reply",
    [
        json_reply(b'{"jsonrpc":', stall="body"),
        stream_reply(b"", stall="body"),
        stream_reply(PROGRESS, b'data: {"jsonrpc"', stall="body"),
    ],
)
async def test_an_answer_that_stops_ends_by_idle_in_doubt(reply: Reply) -> None:
    async with connected(replies(reply), idle=SHORT) as (client, server):
        with pytest.raises(TimeLimitError) as caught:
            await client.call_tool("t", ARGUMENTS)
        await asyncio.wait_for(server.closed[1].wait(), PATIENCE)
    assert _is_limit(caught.value, "idle", Delivery.UNKNOWN)


@pytest.mark.parametrize("alive", [PROGRESS, b": ping\n\n"])
async def test_signs_of_life_put_off_idle(alive: bytes) -> None:
    answer = b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'
    handler = replies(stream_reply(*([alive] * 25), answer, delay=0.1))
    async with connected(handler, idle=2.2, first_byte=2.2, total=PATIENCE) as (client, _):
        assert (await client.call_tool("t", ARGUMENTS)).result == b"{}"


@pytest.mark.parametrize("alive", [PROGRESS, b": ping\n\n"])
async def test_signs_of_life_never_put_off_total(alive: bytes) -> None:
    handler = replies(stream_reply(*([alive] * 1000), delay=0.01))
    # Each sign would have it go on for so long again.
    async with connected(handler, idle=PATIENCE, total=1.5) as (client, server):
        with pytest.raises(TimeLimitError) as caught:
            await client.call_tool("t", ARGUMENTS)
        await asyncio.wait_for(server.closed[1].wait(), PATIENCE)
    assert _is_limit(caught.value, "total", Delivery.UNKNOWN)
    assert caught.value.facts["seconds"] == 1.5


async def test_the_timeout_of_a_call_narrows_its_total() -> None:
    async with connected(replies(Reply(stall="head"))) as (client, _):
        with pytest.raises(TimeLimitError) as caught:
            await client.call_tool("t", ARGUMENTS, CallOptions(timeout=2.0))
    assert _is_limit(caught.value, "total", Delivery.UNKNOWN)
    assert caught.value.facts["seconds"] == 2.0
    assert "the call's own timeout" in caught.value.message


async def test_the_timeout_of_a_call_never_widens_a_limit() -> None:
    async with connected(replies(Reply(stall="head")), first_byte=SHORT) as (client, _):
        with pytest.raises(TimeLimitError) as caught:
            await client.call_tool("t", ARGUMENTS, CallOptions(timeout=60))
    assert _is_limit(caught.value, "first_byte", Delivery.UNKNOWN)


async def test_a_refused_connection_is_nothing_sent() -> None:
    # A port that is taken, and on which nobody listens: no other process gets it meanwhile.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        error = await _failure(f"http://127.0.0.1:{taken.getsockname()[1]}/mcp")
    assert isinstance(error, ConnectError)
    assert (error.delivery, error.retryable) == (Delivery.NOT_SENT, True)
    assert "refused" in error.message.lower()


async def test_a_refused_connection_says_where_to_and_what_to_do_and_nothing_else_of_the_url() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        error = await _failure(f"http://127.0.0.1:{port}/hidden-path?key=hidden-query")
    assert error.message == (
        f"no connection to the server at 127.0.0.1:{port} (Connection refused): see that it runs there,"
        " or correct the setting servers.server.url"
    )


@pytest.mark.parametrize("host", ["a..b", ".", "a" * 64, "xn--a"])
async def test_a_host_that_no_name_server_can_be_asked_for_is_final(host: str) -> None:
    error = await _failure(f"http://{host}/mcp", network="any")
    assert isinstance(error, ConnectError)
    assert not error.retryable
    assert error.delivery is Delivery.NOT_SENT


async def test_a_name_that_does_not_resolve_is_nothing_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*args: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", fails)
    error = await _failure("http://nowhere.invalid/mcp")
    assert isinstance(error, ConnectError)
    assert error.delivery is Delivery.NOT_SENT
    assert error.message.startswith("no connection to the server at nowhere.invalid:80 (")
    assert "see that the worker can resolve that name, or correct the setting" in error.message


async def test_a_name_that_takes_too_long_ends_by_connect_with_nothing_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stalls(*args: object, **options: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", stalls)
    error = await _failure("http://nowhere.invalid/mcp", connect=SHORT)
    assert _is_limit(error, "connect", Delivery.NOT_SENT)
    assert "ran out before there was a connection to nowhere.invalid:80 (" in str(error)


async def test_tls_with_a_plain_port_is_nothing_sent() -> None:
    async with _raw(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n") as port:
        error = await _failure(f"https://127.0.0.1:{port}/mcp")
    assert isinstance(error, ConnectError)
    assert error.delivery is Delivery.NOT_SENT
    assert error.message.startswith(f"no connection to the server at 127.0.0.1:{port} (")
    assert "see that it speaks TLS there" in error.message
    assert "Error" not in error.message


async def test_a_connection_closed_in_the_tls_handshake_is_nothing_sent() -> None:
    async with _raw(b"") as port:
        error = await _failure(f"https://127.0.0.1:{port}/mcp")
    assert isinstance(error, ConnectError)
    assert error.delivery is Delivery.NOT_SENT


async def test_a_kept_connection_that_closes_under_the_request_is_in_doubt_and_not_tried_again() -> None:
    calm = modern()

    async def handler(request: Request) -> Reply | None:
        return await calm(request) if len(server.requests) == 1 else None

    async with connected(handler) as (client, server):
        await client.call_tool("t", ARGUMENTS)
        with pytest.raises(ConnectionLostError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert [request.connection for request in server.requests] == [1, 1]
    assert caught.value.delivery is Delivery.UNKNOWN


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_over_its_limit_is_final_and_named(chunked: bool) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"result":{"s":"' + b"x" * 200_000 + b'"}}'
    reply = Reply(headers=[("Content-Type", "application/json")], chunks=[body]) if chunked else json_reply(body)
    async with connected(replies(reply), response_bytes=100_000) as (client, server):
        with pytest.raises(ResultTooLargeError) as caught:
            await client.call_tool("t", ARGUMENTS)
        await asyncio.wait_for(server.closed[1].wait(), PATIENCE)
        assert len(server.requests) == 1
    error = caught.value
    assert (error.code, error.retryable, error.delivery) == ("storage_limit_exceeded", False, Delivery.ANSWERED)
    assert (error.facts["limit"], error.facts["setting"]) == (100_000, "limits.response_bytes")
    assert "limits.response_bytes" in error.message


async def test_a_body_of_exactly_its_limit_passes() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"result":{"s":"xxxx"}}'
    async with connected(replies(json_reply(body)), response_bytes=len(body)) as (client, _):
        assert (await client.call_tool("t", ARGUMENTS)).result == b'{"s":"xxxx"}'


@pytest.mark.parametrize("ends", [True, False])
async def test_an_event_over_its_limit_is_final_and_named(ends: bool) -> None:
    event = b'data: {"jsonrpc":"2.0","id":1,"result":{"s":"' + b"x" * 1_200_000 + b'"}}' + b"\n\n" * ends
    async with connected(
        replies(stream_reply(event, stall="body")), event_bytes=1_000_000, response_bytes=10_000_000
    ) as (client, server):
        with pytest.raises(ResultTooLargeError) as caught:
            await client.call_tool("t", ARGUMENTS)
        await asyncio.wait_for(server.closed[1].wait(), PATIENCE)
    assert (caught.value.retryable, caught.value.delivery) == (False, Delivery.ANSWERED)
    assert caught.value.facts["setting"] == "limits.event_bytes"


async def test_a_large_event_within_its_limit_is_delivered_whole() -> None:
    result = b'{"s":"' + b"x" * 1_200_000 + b'"}'
    event = b'data: {"jsonrpc":"2.0","id":1,"result":%b}\n\n' % result
    async with connected(replies(stream_reply(event)), event_bytes=2_000_000, response_bytes=2_000_000) as (client, _):
        assert (await client.call_tool("t", ARGUMENTS)).result == result


async def test_a_stream_of_small_events_is_bounded_as_a_whole() -> None:
    async with connected(
        replies(stream_reply(*([PROGRESS * 100] * 20), stall="body")), event_bytes=50_000, response_bytes=50_000
    ) as (client, _):
        with pytest.raises(ResultTooLargeError) as caught:
            await client.call_tool("t", ARGUMENTS)
    assert caught.value.facts["setting"] == "limits.response_bytes"


async def test_a_subscription_has_no_size_as_a_whole() -> None:
    heard = 0

    def hear(_: Notice) -> None:
        nonlocal heard
        heard += 1

    def stream(request: Request) -> Reply:
        about = {"_meta": {"io.modelcontextprotocol/subscriptionId": request.json["id"]}, "uri": "a://" + "x" * 100}
        note = json.dumps({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": about})
        return stream_reply(*[b"data: %b\n\n" % note.encode()] * 500)

    async with connected(replies(stream), response_bytes=10_000) as (client, _):
        with pytest.raises(ConnectionLostError) as caught:
            await client.listen(b"{}", CallOptions(on_notice=hear))
    assert caught.value.retryable
    assert heard == 500


async def test_a_body_that_unpacks_past_its_limit_is_not_read_on() -> None:
    import gzip

    packed = gzip.compress(b" " * 50_000_000)
    reply = Reply(headers=[("Content-Type", "application/json"), ("Content-Encoding", "gzip")], body=packed)
    async with connected(replies(reply), response_bytes=100_000) as (client, _):
        with pytest.raises(ResultTooLargeError):
            await client.call_tool("t", ARGUMENTS)


async def test_a_document_of_an_authorization_server_is_unpacked_once_and_within_its_limit() -> None:
    import gzip

    once = gzip.compress(b" " * 50_000_000)
    for encoding, body, refusal in (
        ("gzip", once, ResultTooLargeError),
        ("gzip, gzip", gzip.compress(once), MalformedAnswerError),
    ):
        reply = Reply(headers=[("Content-Type", "application/json"), ("Content-Encoding", encoding)], body=body)
        async with FakeServer(replies(reply)) as server, HttpPool() as pool:
            with pytest.raises(refusal):
                await pool.fetcher("private")("POST", server.url, {}, json.dumps({"id": 1, "method": "x"}).encode())
