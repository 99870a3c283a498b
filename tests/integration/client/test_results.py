"""What comes back: the exact bytes of a result, in one piece or as an event stream, cut wherever."""

from __future__ import annotations

import gzip
import threading
import zlib
from typing import Any

import pytest

from openwop_mcp import jsontext
from openwop_mcp.errors import MalformedAnswerError, RpcError
from openwop_mcp.protocol import messages
from openwop_mcp.verbatim import Verbatim
from tests.support.fake_server import Reply, Request, modern
from tests.support.mcp_client import ARGUMENTS, connected, json_reply, replies, stream_reply

RESULTS = {
    "numbers": b'{"content":[],"structuredContent":{"a":1.10,"b":1E400,"c":-0.0,"d":0.30000000000000004441}}',
    "integers": b'{"structuredContent":{"id":9007199254740993,"n":123456789012345678901234}}',
    "escapes": b'{"content":[{"type":"text","text":"\\u00e9 \xc3\xa9 \\/ \xf0\x9f\x98\x80 \\ud83d\\ude00"}]}',
    "surrogate": b'{"resultType":"complete","text":"\\ud800"}',
    "order": b'{"z":1,"resultType":"complete","a":2}',
    "space": b'{ "resultType" : "complete" ,\n\t"content" : [ ] }',
    "duplicates": b'{"a":1,"a":2,"id":9,"result":{"error":null},"error":0,"jsonrpc":"1"}',
    "unknown": b'{"resultType":"complete","dev.example/x":[null,true],"_meta":{"k":{}}}',
    "empty": b'{"resultType":"complete","content":[]}',
    "no type": b"{}",
    "array": b'{"structuredContent":[1,"a",null]}',
    "null": b'{"structuredContent":null,"content":[]}',
    "is error": b'{"isError":true,"content":[{"type":"text","text":"invalid access token"}]}',
    "digits": b'{"n":' + b"7" * 5000 + b',"m":0.' + b"1" * 5000 + b"}",
    "deep": b'{"d":' + b"[" * 500 + b"]" * 500 + b"}",
    "line separators": '{"t":"a\u2028b\u2029c\u0085d\x7f"}'.encode(),
    "a large one": b'{"t":"' + b"x" * 700_000 + b'"}',
}


def _message(request: Request, result: bytes) -> bytes:
    request_id = jsontext.member(request.body, "id")
    assert request_id is not None
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (request_id, result)


def _event(message: bytes, end: bytes = b"\n") -> bytes:
    return b"".join(b"data: %b%b" % (line, end) for line in message.split(b"\n")) + end


@pytest.mark.parametrize("name", RESULTS)
async def test_a_result_in_one_piece_is_kept_byte_for_byte(name: str) -> None:
    async with connected(replies(lambda request: json_reply(_message(request, RESULTS[name])))) as (client, server):
        assert (await client.call_tool("t", ARGUMENTS)).result == RESULTS[name]
        assert (await client.read_resource("u")).result == RESULTS[name]
        assert (await client.list_tools()).result == RESULTS[name]
        assert (await client.discover()).result == RESULTS[name]
        assert len(server.requests) == 4


async def test_a_long_answer_is_read_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    result = b'{"content":[' + b'"\\ud800",' * 100_000 + b"1]}"
    read: dict[str, set[int]] = {}

    def watch(name: str) -> None:
        work = getattr(messages, name)

        def watched(data: bytes, **options: Any) -> object:
            if len(data) >= len(result):
                read.setdefault(name, set()).add(threading.get_ident())
            return work(data, **options)

        monkeypatch.setattr(messages, name, watched)

    watch("answer")
    watch("is_input_required")
    async with connected(modern({"tools/call": result})) as (client, _):
        assert (await client.call_tool("t", ARGUMENTS)).result == result
    assert set(read) == {"answer", "is_input_required"}
    assert threading.get_ident() not in set.union(*read.values())


@pytest.mark.parametrize("name", RESULTS)
async def test_a_result_on_an_event_stream_is_kept_byte_for_byte(name: str) -> None:
    handler = replies(lambda request: stream_reply(_event(_message(request, RESULTS[name]))))
    async with connected(handler) as (client, _):
        exchange = await client.call_tool("t", ARGUMENTS)
    assert exchange.result == RESULTS[name]
    assert (exchange.revision, exchange.http_status) == ("2026-07-28", 200)


async def test_a_tool_error_is_a_result_and_no_text_in_it_starts_anything() -> None:
    async with connected(modern({"tools/call": RESULTS["is error"]})) as (client, server):
        exchange = await client.call_tool("t", ARGUMENTS)
        assert Verbatim(exchange.result).is_error
        assert len(server.requests) == 1


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
async def test_a_stream_cut_at_any_byte_gives_the_same_result(end: bytes) -> None:
    result = b'{"t":"\xf0\x9f\x98\x80 1.10",\n"n":-0.0}'
    heads = b"\xef\xbb\xbf: ping" + end + end + b"id: 0" + end + b"retry: 1" + end + b"event: message" + end

    def reply(request: Request) -> Reply:
        stream = heads + _event(_message(request, result), end)
        cut = len(cuts) + 1
        cuts.append(cut)
        return stream_reply(stream[:cut], stream[cut:], delay=1e-6)

    cuts: list[int] = []
    async with connected(replies(reply)) as (client, server):
        for _ in range(len(heads + _event(_message(Request("", "", [], b'{"id":99}', 0), result), end)) - 1):
            assert (await client.call_tool("t", ARGUMENTS)).result == result
        assert len(server.requests) == len(cuts)


async def test_a_stream_of_single_bytes_gives_the_same_result() -> None:
    result = b'{"t":"\xf0\x9f\x98\x80"}'

    def reply(request: Request) -> Reply:
        stream = b": hello\r\n\r\n" + _event(_message(request, result), b"\r\n")
        return stream_reply(*(stream[at : at + 1] for at in range(len(stream))), delay=1e-6)

    async with connected(replies(reply)) as (client, _):
        assert (await client.call_tool("t", ARGUMENTS)).result == result


@pytest.mark.parametrize(
    "before",
    [
        b": ping\n\nid: 0\nretry: 1000\ndata:\n\n",
        b"data\n\n",
        b'event: ping\ndata: {"jsonrpc":"2.0","id":1,"result":{"wrong":1}}\n\n',
        b'data: {"type":"heartbeat"}\n\n' * 3,
        b'data: {"id":"ping-1","type":"ping"}\n\ndata: {"jsonrpc":"2.0","type":"ping"}\n\ndata: {}\n\n',
        b'data: 1732953600\n\ndata: "ping"\n\ndata: null\n\ndata: true\n\ndata: 1.5e3\n\n',
        b"event: ping\ndata: ping\n\nevent: endpoint\ndata: /messages?session=1\n\n",
        b": ping\r\n\r\n:\r\r:\n\ndata: \n\ndata:\ndata:\n\n",
        b"retry: 0\n\nretry: soon\n\nid\n\nid: \x00\n\nevent\n\n",
        b'data: {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}\n\n',
        b'data: {"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{}}\n\n',
        b"unknown: field\n:\n\n\n\n",
    ],
)
async def test_what_precedes_the_answer_on_a_stream_is_passed_over(before: bytes) -> None:
    handler = replies(lambda request: stream_reply(before, _event(_message(request, b'{"ok":1}'))))
    async with connected(handler) as (client, server):
        assert (await client.call_tool("t", ARGUMENTS)).result == b'{"ok":1}'
        assert len(server.requests) == 1


async def test_heartbeats_that_are_no_messages_are_logged_once_per_stream(caplog: pytest.LogCaptureFixture) -> None:
    handler = replies(
        lambda request: stream_reply(b'data: {"type":"heartbeat"}\n\n' * 9, _event(_message(request, b"{}")))
    )
    async with connected(handler) as (client, _):
        await client.call_tool("t", ARGUMENTS)
    assert [record.name for record in caplog.records if "no JSON-RPC" in record.message] == [
        "openwop_mcp.client._answers"
    ]


async def test_json_over_several_data_lines_is_joined_with_line_feeds() -> None:
    def reply(request: Request) -> Reply:
        request_id = jsontext.member(request.body, "id")
        return stream_reply(b'data: {"jsonrpc":"2.0","id":%b,\ndata: "result":{"a":\ndata: 1}}\n\n' % request_id)

    async with connected(replies(reply)) as (client, _):
        assert (await client.call_tool("t", ARGUMENTS)).result == b'{"a":\n1}'


@pytest.mark.parametrize("media_type", ["application/json; charset=utf-8", "Application/JSON", "application/json;x=1"])
async def test_a_media_type_is_told_in_any_case_and_with_parameters(media_type: str) -> None:
    def reply(request: Request) -> Reply:
        return Reply(headers=[("Content-Type", media_type)], body=_message(request, b"{}"))

    async with connected(replies(reply)) as (client, _):
        assert (await client.call_tool("t", ARGUMENTS)).result == b"{}"


def _deflate(data: bytes) -> bytes:
    return zlib.compress(data)


@pytest.mark.parametrize(("encoding", "encode"), [("gzip", gzip.compress), ("deflate", _deflate)])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_encoding_that_was_not_asked_for_is_undone(encoding: str, encode, stream: bool) -> None:
    def reply(request: Request) -> Reply:
        message = _message(request, RESULTS["numbers"])
        kind = "text/event-stream" if stream else "application/json"
        body = encode(_event(message) if stream else message)
        return Reply(headers=[("Content-Type", kind), ("Content-Encoding", encoding)], chunks=[body[:9], body[9:]])

    async with connected(replies(reply)) as (client, _):
        assert (await client.call_tool("t", ARGUMENTS)).result == RESULTS["numbers"]


async def test_a_body_that_is_not_in_the_encoding_it_claims_is_malformed() -> None:
    reply = Reply(headers=[("Content-Type", "application/json"), ("Content-Encoding", "gzip")], body=b"{}no gzip")
    async with connected(replies(reply)) as (client, server):
        with pytest.raises(MalformedAnswerError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert caught.value.fault == "invalid_http"
        assert len(server.requests) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_json_rpc_error_keeps_its_bytes(stream: bool) -> None:
    error = b'{"code":-32602,"message":"no \\u00e9","data":{"n":1.10,"uri":"x"} }'

    def reply(request: Request) -> Reply:
        message = b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (jsontext.member(request.body, "id"), error)
        return stream_reply(_event(message)) if stream else json_reply(message)

    async with connected(replies(reply)) as (client, server):
        with pytest.raises(RpcError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert caught.value.error == error
        assert caught.value.rpc_code == -32602
        assert len(server.requests) == 1
