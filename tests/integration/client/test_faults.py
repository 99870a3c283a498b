"""Answers that break JSON, JSON-RPC, MCP or HTTP: each a typed error at once, never a result or a second request."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from httpx_aiohttp import AiohttpTransport

from openwop_mcp import jsontext
from openwop_mcp.client._pool import HttpPool
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import (
    ConnectionLostError,
    HttpStatusError,
    MalformedAnswerError,
    McpError,
    RpcError,
)
from openwop_mcp.protocol.messages import FAULTS
from tests.support.fake_server import Handler, Reply, Request, modern
from tests.support.mcp_client import ARGUMENTS, client_of, connected, json_reply, replies, stream_reply
from tests.support.patience import PATIENCE

SOUND = b'{"jsonrpc":"2.0","id":%d,"result":{}}'


async def _failure(handler: Handler, **options: float) -> McpError:
    """How a call fails, having sent one request and left no connection behind."""
    async with connected(handler, **options) as (client, server):
        with pytest.raises(McpError) as caught:
            async with asyncio.timeout(PATIENCE):
                await client.call_tool("t", ARGUMENTS)
        assert len(server.requests) == 1
        return caught.value


def _about(request: Request, template: bytes) -> bytes:
    request_id = jsontext.member(request.body, "id")
    assert request_id is not None
    return template.replace(b"$", request_id)


class _Phrased(Reply):
    """A reply whose reason phrase is in Latin-1."""

    def head(self) -> bytes:
        return super().head().replace(b" OK\r\n", b" Succ\xe8s\r\n", 1)


async def test_a_reason_phrase_in_any_encoding_is_none_of_the_answer() -> None:
    def answered(request: Request) -> Reply:
        return _Phrased(headers=[("Content-Type", "application/json")], body=SOUND % request.json["id"])

    async with connected(replies(answered)) as (client, server):
        assert (await client.call_tool("t", ARGUMENTS)).result == b"{}"
        await client.call_tool("t", ARGUMENTS)
        assert (len(server.requests), server.connections) == (2, 1)


async def test_what_cannot_be_spelled_after_a_request_left_is_no_host_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = AiohttpTransport.handle_async_request

    async def unspeakable(self: AiohttpTransport, request: httpx.Request) -> httpx.Response:
        await (await real(self, request)).aclose()
        raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")

    monkeypatch.setattr(AiohttpTransport, "handle_async_request", unspeakable)
    async with connected(modern()) as (client, _):
        with pytest.raises(UnicodeEncodeError):
            await client.call_tool("t", ARGUMENTS)


BROKEN = {
    "another id": (b'{"jsonrpc":"2.0","id":99,"result":{}}', "wrong_id"),
    "an id of another type": (b'{"jsonrpc":"2.0","id":"$","result":{}}', "wrong_id"),
    "an id spelled as a real": (b'{"jsonrpc":"2.0","id":$.0,"result":{}}', "wrong_id"),
    "an id in scientific spelling": (b'{"jsonrpc":"2.0","id":$e0,"result":{}}', "wrong_id"),
    "an id of the other sign": (b'{"jsonrpc":"2.0","id":-$,"result":{}}', "wrong_id"),
    "an id that is true": (b'{"jsonrpc":"2.0","id":true,"result":{}}', "wrong_id"),
    "an id in an array": (b'{"jsonrpc":"2.0","id":[$],"result":{}}', "wrong_id"),
    "an id in an object": (b'{"jsonrpc":"2.0","id":{"id":$},"result":{}}', "wrong_id"),
    "an id with a zero before it": (b'{"jsonrpc":"2.0","id":0$,"result":{}}', "invalid_json"),
    "an id too large for anything": (b'{"jsonrpc":"2.0","id":%b,"result":{}}' % (b"9" * 400), "wrong_id"),
    "an error for an id of another type": (b'{"jsonrpc":"2.0","id":"$","error":{"code":1,"message":""}}', "wrong_id"),
    "no id": (b'{"jsonrpc":"2.0","result":{}}', "wrong_id"),
    "a null id": (b'{"jsonrpc":"2.0","id":null,"result":{}}', "wrong_id"),
    "an error for another id": (b'{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":""}}', "wrong_id"),
    "an array": (b'[{"jsonrpc":"2.0","id":$,"result":{}}]', "not_an_object"),
    "an array in white space": (b' \t[ {"jsonrpc":"2.0","id":$,"result":{}} ]', "not_an_object"),
    "an array of two": (b'[{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":$,"result":{}}]', "not_an_object"),
    "an empty array": (b"[]", "not_an_object"),
    "an array in an array": (b'[[{"jsonrpc":"2.0","id":$,"result":{}}]]', "not_an_object"),
    "both": (b'{"jsonrpc":"2.0","id":$,"result":{},"error":{"code":1,"message":""}}', "both_result_and_error"),
    "both, one null": (b'{"jsonrpc":"2.0","id":$,"result":{},"error":null}', "both_result_and_error"),
    "neither": (b'{"jsonrpc":"2.0","id":$}', "neither_result_nor_error"),
    "no version": (b'{"id":$,"result":{}}', "not_jsonrpc"),
    "another version": (b'{"jsonrpc":"1.0","id":$,"result":{}}', "not_jsonrpc"),
    "two results": (b'{"jsonrpc":"2.0","id":$,"result":{},"result":{}}', "duplicate_member"),
    "two ids": (b'{"jsonrpc":"2.0","id":$,"id":$,"result":{}}', "duplicate_member"),
    "two results, one escaped": (b'{"jsonrpc":"2.0","id":$,"result":{},"\\u0072esult":{}}', "duplicate_member"),
    "a result that is an array": (b'{"jsonrpc":"2.0","id":$,"result":[]}', "invalid_result"),
    "a result that is null": (b'{"jsonrpc":"2.0","id":$,"result":null}', "invalid_result"),
    "an error that is text": (b'{"jsonrpc":"2.0","id":$,"error":"no"}', "invalid_error"),
    "an error without a code": (b'{"jsonrpc":"2.0","id":$,"error":{"message":"m"}}', "invalid_error"),
    "an unknown type": (b'{"jsonrpc":"2.0","id":$,"result":{"resultType":"teleport"}}', "unknown_result_type"),
    "a type that is null": (b'{"jsonrpc":"2.0","id":$,"result":{"resultType":null}}', "unknown_result_type"),
    "an undeclared task": (b'{"jsonrpc":"2.0","id":$,"result":{"resultType":"task"}}', "unknown_result_type"),
    "invalid UTF-8": (b'{"jsonrpc":"2.0","id":$,"result":{"a":"\xff"}}', "invalid_utf8"),
    "an encoded surrogate": (b'{"jsonrpc":"2.0","id":$,"result":{"a":"\xed\xa0\x80"}}', "invalid_utf8"),
    "truncated JSON": (b'{"jsonrpc":"2.0","id":$,"result":{"a":', "invalid_json"),
    "NaN": (b'{"jsonrpc":"2.0","id":$,"result":{"a":NaN}}', "invalid_json"),
    "something after it": (b'{"jsonrpc":"2.0","id":$,"result":{}}x', "invalid_json"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_broken_answer_is_a_typed_error_at_once(name: str, stream: bool) -> None:
    template, fault = BROKEN[name]

    def reply(request: Request) -> Reply:
        message = _about(request, template)
        if not stream:
            return json_reply(message)
        # The stream stays open: the verdict must not wait for its end.
        return stream_reply(b"data: " + message + b"\n\n", stall="body")

    error = await _failure(replies(reply))
    assert isinstance(error, MalformedAnswerError)
    assert (error.fault, error.code, error.delivery) == (fault, "upstream_unavailable", Delivery.UNKNOWN)
    assert fault in FAULTS
    assert 0 < len(error.facts["excerpt"]) <= 256


@pytest.mark.parametrize("body", [b"7", b'"text"', b"null", b"true", b" 1.10 "])
async def test_a_bare_value_is_no_answer(body: bytes) -> None:
    error = await _failure(replies(json_reply(body)))
    assert isinstance(error, MalformedAnswerError)
    assert (error.fault, error.delivery) == ("not_an_object", Delivery.UNKNOWN)


async def test_a_wrong_id_is_named_with_the_one_expected() -> None:
    error = await _failure(replies(json_reply(b'{"jsonrpc":"2.0","id":"zero","result":{}}')))
    assert "expected id 1" in error.message
    assert '"zero"' in error.message


@pytest.mark.parametrize("stream", [False, True])
async def test_an_empty_body_is_no_answer(stream: bool) -> None:
    error = await _failure(replies(stream_reply(b"") if stream else json_reply(b"")))
    assert error.delivery is Delivery.UNKNOWN
    assert isinstance(error, ConnectionLostError if stream else MalformedAnswerError)


async def test_an_empty_200_is_no_answer() -> None:
    error = await _failure(replies(Reply()))
    assert isinstance(error, MalformedAnswerError)
    assert (error.fault, error.delivery) == ("empty", Delivery.UNKNOWN)
    assert error.fault in FAULTS


async def test_a_page_with_status_200_is_told_by_its_type_and_its_beginning() -> None:
    page = b"<h1>Sign in</h1>\x1b[2J" + b"x" * 100_000
    error = await _failure(replies(Reply(headers=[("Content-Type", "text/html; charset=utf-8")], body=page)))
    assert isinstance(error, HttpStatusError)
    assert error.facts["httpStatus"] == 200
    assert error.facts["mediaType"] == "text/html"
    assert error.facts["excerpt"].startswith("<h1>Sign in</h1>\\x1b[2Jxxx")
    assert len(error.facts["excerpt"]) <= 256
    assert not error.retryable
    assert error.delivery is Delivery.UNKNOWN


@pytest.mark.parametrize("status", [201, 202, 204])
async def test_a_success_other_than_200_is_no_answer(status: int) -> None:
    error = await _failure(replies(Reply(status=status, headers=[] if status != 204 else [("Connection", "close")])))
    assert isinstance(error, HttpStatusError)
    assert (error.status, error.delivery, error.retryable) == (status, Delivery.UNKNOWN, False)


CUT = json_reply(SOUND % 1 + b" " * 100)


@pytest.mark.parametrize("abort", ["reset", "close"])
@pytest.mark.parametrize("after", [0, 1, len(SOUND)])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_cut_is_a_lost_connection_whatever_arrived(abort, after: int, chunked: bool) -> None:
    more = {"abort_after": after, "abort": abort}
    reply = Reply(headers=CUT.headers, chunks=[CUT.body], **more) if chunked else json_reply(CUT.body, **more)
    error = await _failure(replies(reply))
    assert isinstance(error, ConnectionLostError)
    assert (error.delivery, error.retryable) == (Delivery.UNKNOWN, True)


@pytest.mark.parametrize("abort", ["reset", "close", None])
@pytest.mark.parametrize("before", [b": ping\n\n", b'data: {"jsonrpc":"2.0",', SOUND.join([b"data: ", b"\n"]) % 1])
async def test_a_stream_that_ends_before_the_answer_is_whole_is_a_lost_connection(before: bytes, abort) -> None:
    more = {} if abort is None else {"abort_after": len(before), "abort": abort}
    error = await _failure(replies(stream_reply(before, **more)))
    assert isinstance(error, ConnectionLostError)
    assert error.delivery is Delivery.UNKNOWN


async def test_an_answer_counts_although_the_stream_breaks_off_after_it() -> None:
    answer = b"data: " + SOUND % 1 + b"\n\n"
    handler = replies(stream_reply(answer, abort_after=len(answer), abort="close"))
    async with connected(handler) as (client, _):
        assert (await client.call_tool("t", ARGUMENTS)).result == b"{}"


async def test_a_connection_closed_before_any_byte_is_lost_and_not_tried_again() -> None:
    async def close(request: Request) -> None:
        return None

    error = await _failure(close)
    assert isinstance(error, ConnectionLostError)
    assert (error.delivery, error.retryable) == (Delivery.UNKNOWN, True)


@pytest.mark.parametrize(
    "said",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n: x\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_called_that(said: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    async with server, HttpPool() as transport:
        with pytest.raises(MalformedAnswerError) as caught:
            await client_of(url, transport).call_tool("t", ARGUMENTS)
    assert caught.value.fault == "invalid_http"
    assert caught.value.delivery is Delivery.UNKNOWN


async def test_a_question_to_a_client_that_cannot_be_asked_is_final() -> None:
    asked = b'{"resultType":"input_required","requestState":"s"}'
    error = await _failure(modern({"tools/call": asked}))
    assert isinstance(error, MalformedAnswerError)
    assert error.fault == "input_required_undeclared"
    assert error.fault in FAULTS
    assert (error.delivery, error.retryable) == (Delivery.ANSWERED, False)


async def test_a_question_where_none_can_be_is_an_unknown_result() -> None:
    async with connected(modern({"tools/list": b'{"resultType":"input_required","tools":[]}'})) as (client, _):
        with pytest.raises(MalformedAnswerError) as caught:
            await client.list_tools()
    assert caught.value.fault == "unknown_result_type"


@pytest.mark.parametrize("received", [b"", b'"id":null,', b'"id":$,'])
async def test_an_error_without_an_id_is_about_the_request_on_its_connection(received: bytes) -> None:
    template = b'{"jsonrpc":"2.0",' + received + b'"error":{"code":-32603,"message":"m"}}'
    error = await _failure(replies(lambda request: json_reply(_about(request, template))))
    assert isinstance(error, RpcError)
    assert (error.rpc_code, error.delivery) == (-32603, Delivery.ANSWERED)
