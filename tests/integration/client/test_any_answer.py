"""Whatever comes back, a call ends in time in a result or in one typed error, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from openwop_mcp import jsontext
from openwop_mcp.client import Exchange, McpClient, _answers, _http, health
from openwop_mcp.client._pool import HttpPool
from openwop_mcp.errors import McpError
from openwop_mcp.redaction import Redactor
from tests.support.fake_server import FakeServer, Reply, Request
from tests.support.mcp_client import ARGUMENTS, client_of
from tests.support.patience import PATIENCE

CALLS: dict[str, Callable[[McpClient], Awaitable[Exchange]]] = {
    "call_tool": lambda client: client.call_tool("t", ARGUMENTS),
    "list_tools": lambda client: client.list_tools(),
    "page": lambda client: client.list_prompts("2"),
    "read_resource": lambda client: client.read_resource("u"),
    "get_prompt": lambda client: client.get_prompt("p", None),
    "complete": lambda client: client.complete(b'{"ref":{},"argument":{}}'),
    "health": health,
}
CODES = {
    "mcp_error",
    "interop_version_unsupported",
    "storage_limit_exceeded",
    "rate_limited",
    "upstream_unavailable",
    "validation_error",
    "forbidden",
}

WORDS = rb"""
    $ 1 0 -1 1.0 $.0 "$" null true [] {} 7 1E400 "2.0" "1.0" "\ud800" "\u0000" - NaN
    {"code":-32602,"message":"m"} {"code":-32020,"message":"m"} {"code":-32601,"message":"\ud800"}
    {"code":-32022,"message":"m","data":{"supported":["2025-11-25","2026-07-28"]}}
    {"code":-32022,"message":"m","data":{"supported":[7,null,"\ud800","1"]}}
    {"code":1E400,"message":"m"} {"code":1.0,"message":"m","data":[]}
    {"resultType":"complete","ttlMs":1E400,"cacheScope":7} {"resultType":[],"a":1,"a":2} {"resultType":"\ud800"}
    {"resultType":"input_required","requestState":"s"} {"resultType":"input_required","inputRequests":{"a":7}}
    {"supportedVersions":["2025-11-25"],"tools":[{"name":"t","inputSchema":{"properties":7}},{"name":"\ud800"}]}
    {"tools":[{"name":"t","inputSchema":{"type":"string","$ref":"x:y"}}],"ttlMs":9} {"tools":7,"nextCursor":""}
    {"protocolVersion":"2025-06-18","capabilities":{"tools":{},"prompts":[],"logging":7}} {"protocolVersion":7}
    {"structuredContent":{"n":1},"isError":"yes","content":7} {"progressToken":$,"progress":1E400,"message":7}
    {"level":"info","data":{"a":"\ud800"}} {"uri":"\ud800"} {"uri":7} {"_meta":7}
""".split()
LONG = [b"", b"\xff", b'"' + b"x" * 300 + b'"', b"[" * 300 + b"]" * 300, b"9" * 300]
VALUES = st.sampled_from([*WORDS, *LONG])
NAMES = st.sampled_from(rb'"jsonrpc" "id" "result" "error" "method" "params" "x" "" "\u0069d" "\ud800"'.split())
METHODS = st.sampled_from(
    rb"""
    "notifications/progress" "notifications/message" "notifications/tools/list_changed" "ping" "\ud800" "x"
    "notifications/resources/updated" "elicitation/create" "sampling/createMessage"
    """.split()
)


def _object(members: list[tuple[bytes, bytes]]) -> bytes:
    return b"{%b}" % b",".join(b"%b:%b" % member for member in members)


ODD = st.lists(st.tuples(NAMES, VALUES), max_size=5).map(_object)
NEARLY = st.tuples(st.sampled_from([b'"result"', b'"error"']), VALUES).map(
    lambda pair: _object([(b'"jsonrpc"', b'"2.0"'), (b'"id"', b"$"), pair])
)
NOTES = st.tuples(METHODS, VALUES, st.booleans()).map(
    lambda drawn: _object(
        [(b'"jsonrpc"', b'"2.0"'), (b'"method"', drawn[0]), (b'"params"', drawn[1]), *([(b'"id"', b"$")] * drawn[2])]
    )
)
MESSAGES = (
    NEARLY | NEARLY | ODD | NOTES | VALUES | st.lists(NEARLY | NOTES, max_size=3).map(lambda m: b"[%b]" % b",".join(m))
)
LINES = [b"\n", b"\r\n", b"\r", b"\n\n", b"", b"\xef\xbb\xbf", b": ping\n", b"data:\n\n", b"\x00", b"data\n\n"]
FIELDS = [b"data: ", b"data:", b"event: message\ndata: ", b"event: x\ndata: ", b"id: 1\ndata: ", b"retry: 0\n", b""]
ENDS = [b"\n\n", b"\r\n\r\n", b"\r\r", b"\n", b""]
EVENTS = st.tuples(*map(st.sampled_from, (LINES, FIELDS)), MESSAGES, st.sampled_from(ENDS)).map(b"".join)
STREAMS = st.lists(EVENTS, max_size=4)
OTHERS = (431, 451, 499, *range(500, 512), 599, 600, 999)
COMMON = (*([200] * 120), *([400, 404, 405] * 8))
STATUSES = st.sampled_from([*COMMON, *range(201, 207), *range(300, 309), *range(399, 430), *OTHERS])
SOUND_TYPES = ("application/json", "text/event-stream", "application/JSON", "application/json; charset=utf-16")
ODD_TYPES = ("text/html", "", ";", "application/json, text/event-stream", "text/event-stream;charset=latin-1", "x/y")
TYPES = st.sampled_from(SOUND_TYPES + ODD_TYPES)
PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=30)
EXTRA = {
    "Retry-After": ["7", "Wed, 21 Oct 2099 07:28:00 GMT"],
    "Location": ["/mcp2", "//x@[", "http://127.0.0.1:1/"],
    "WWW-Authenticate": ['Bearer error="x", scope='],
    "Mcp-Session-Id": ["s", "a b"],
    "Connection": ["close"],
    "Content-Encoding": ["gzip", "identity, x", "br", "deflate"],
    "Content-Length": ["3"],
    "Content-Type": ["text/plain"],
    "Set-Cookie": ["a=b"],
}
FREE = ("Location", "Retry-After", "WWW-Authenticate", "Mcp-Session-Id", "X")
HEADERS = st.sampled_from([(name, value) for name, values in EXTRA.items() for value in values]) | (
    st.tuples(st.sampled_from(FREE), PRINTABLE)
)


@st.composite
def _replies(draw: st.DrawFn) -> Reply | None:
    kind = draw(st.sampled_from(["json"] * 4 + ["stream"] * 4 + ["bytes", "none"]))
    if kind == "none":
        return None
    headers = [("Content-Type", draw(TYPES)), *draw(st.lists(HEADERS, max_size=2))]
    status = draw(STATUSES)
    cut: dict[str, Any] = {}
    if draw(st.integers(0, 9)) == 0:
        cut = {"abort_after": draw(st.integers(0, 60)), "abort": draw(st.sampled_from(["reset", "close"]))}
    if kind == "stream":
        if draw(st.booleans()):
            headers[0] = ("Content-Type", "text/event-stream")
        headers = [header for header in headers if header[0] != "Content-Length"]
        return Reply(status, headers, chunks=draw(STREAMS), **cut)
    body = draw(MESSAGES if kind == "json" else st.binary(max_size=200))
    if kind == "json" and draw(st.booleans()):
        headers[0] = ("Content-Type", "application/json")
    return Reply(status, headers, body=body, **cut)


def _about(reply: Reply | None, request: Request) -> Reply | None:
    """The reply, with the id of the request where it has a place for one."""
    if reply is None:
        return None
    try:
        found = b"%d" % json.loads(request.body)["id"]
    except (ValueError, KeyError, TypeError):
        found = b"1"
    chunks = (
        None if reply.chunks is None else [one.replace(b"$", found) for one in reply.chunks if isinstance(one, bytes)]
    )
    return Reply(
        reply.status,
        reply.headers,
        body=reply.body.replace(b"$", found),
        chunks=chunks,
        abort_after=reply.abort_after,
        abort=reply.abort,
    )


def _sound(ended: Exchange | McpError) -> None:
    """What each end of a call has, whatever led to it."""
    if isinstance(ended, Exchange):
        jsontext.check(ended.result)
        assert jsontext.kind(ended.result) == "object"
        assert ended.revision or ended.result.startswith(b'{"state"')
        return
    assert ended.code in CODES
    assert len(ended.message) < 4000
    assert ended.message.isprintable()
    json.dumps(ended.facts, allow_nan=False).encode()
    Redactor(["s3cr3t"]).clean(ended)


@pytest.mark.parametrize("floor", ["2026-07-28", "2025-03-26"])
async def test_any_answer_ends_a_call_in_a_result_or_in_one_typed_error(
    floor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_answers, "RESUME_SOONEST", 0.001)
    monkeypatch.setattr(_answers, "RESUME_AFTER", 0.001)
    # Nor need what goes beside a call be answered.
    monkeypatch.setattr(_http, "ASIDE", _http.ASIDE.narrowed(2.0))
    loop = asyncio.get_running_loop()
    left: list[Reply | None] = []

    async def answer(request: Request) -> Reply | None:
        return _about(left.pop(0) if len(left) > 1 else left[0], request)

    async def on_input(method: str, params: bytes) -> bytes:
        return b'{"action":"decline"}'

    async def call(name: str, asks: bool) -> Exchange | McpError:
        options: dict[str, Any] = {"floor": floor, "log_level": "debug", **({"on_input": on_input} if asks else {})}
        client = client_of(
            server.url, pool, options=options, response_bytes=4000, event_bytes=1000, total=0.3, idle=0.15
        )
        try:
            async with asyncio.timeout(PATIENCE):
                return await CALLS[name](client)
        except McpError as error:
            return error
        finally:
            await client.close()

    @settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from(sorted(CALLS)), st.lists(_replies(), min_size=1, max_size=4), st.booleans())
    def check(name: str, replies: list[Reply | None], asks: bool) -> None:
        left[:] = replies
        _sound(asyncio.run_coroutine_threadsafe(call(name, asks), loop).result(2 * PATIENCE))

    async with FakeServer(answer) as server, HttpPool() as pool:
        await asyncio.to_thread(check)
        assert sum(len(transport.client.connector._acquired) for transport in pool._transports.values()) == 0
        # What the pool keeps for a while, it closes then.
        async with asyncio.timeout(PATIENCE):
            while server.open_connections > 5:  # noqa: ASYNC110 - see above
                await asyncio.sleep(0.01)
