"""The two cases in which a call is more than one request: headers that no longer fit, and another revision."""

from __future__ import annotations

import json

import pytest

from openwop_mcp.client import _tools
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import (
    ConnectionLostError,
    InvalidRequestError,
    McpError,
    NoCommonRevisionError,
    RateLimitedError,
    RpcError,
    TimeLimitError,
)
from tests.support.fake_server import Handler, Reply, Request, error_reply, modern, result_reply
from tests.support.mcp_client import connected

SCHEMA = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "n": {"type": "integer", "x-mcp-header": "Count"},
        "on": {"type": "boolean", "x-mcp-header": "On"},
        "in": {"type": "object", "properties": {"side": {"type": "string", "x-mcp-header": "Side"}}},
    },
}
ARGUMENTS = b'{"region":" padded ","n":42,"on":true,"in":{"side":"x y"}}'
MIRRORED = {
    "Mcp-Param-Region": "=?base64?IHBhZGRlZCA=?=",
    "Mcp-Param-Count": "42",
    "Mcp-Param-On": "true",
    "Mcp-Param-Side": "x y",
}


def _page(*tools: str, schema: object = SCHEMA, cursor: str | None = None) -> bytes:
    page = {"resultType": "complete", "tools": [{"name": name, "inputSchema": schema} for name in tools]}
    return json.dumps(page | ({} if cursor is None else {"nextCursor": cursor})).encode()


def _params(request: Request) -> dict[str, str]:
    return {name.title(): value for name, value in request.headers if name.lower().startswith("mcp-param-")}


def _strict(page: bytes = _page("t")) -> Handler:
    """A server that wants the mirrored headers."""

    def call(request: Request) -> Reply:
        if _params(request) != MIRRORED:
            return error_reply(request, -32020, "Mcp-Param-Region is missing", status=400)
        return result_reply(request, b'{"content":[]}')

    return modern({"tools/list": page, "tools/call": call})


def _methods(server) -> list[str]:
    return [request.json["method"] for request in server.requests]


async def test_a_header_mismatch_is_mended_by_one_list_and_one_repeat() -> None:
    async with connected(_strict()) as (client, server):
        assert (await client.call_tool("t", ARGUMENTS)).result == b'{"content":[]}'
        assert _methods(server) == ["tools/call", "tools/list", "tools/call"]
        first, _, second = server.requests
        assert first.json["id"] != second.json["id"]
        without_token = [{**request.json["params"], "_meta": None} for request in (first, second)]
        assert without_token[0] == without_token[1]
        assert _params(second) == MIRRORED


@pytest.mark.parametrize("size", [70_000, 600_000])
async def test_a_header_mismatch_is_mended_however_large_the_schema_is(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_tools, "MAX_ANNOTATED", 10_000)
    page = _page("t", schema={**SCHEMA, "description": "x" * size})
    async with connected(_strict(page)) as (client, server):
        assert (await client.call_tool("t", ARGUMENTS)).result == b'{"content":[]}'
        assert (await client.call_tool("t", ARGUMENTS)).result == b'{"content":[]}'
        assert _methods(server) == ["tools/call", "tools/list", "tools/call", "tools/call"]


async def test_a_tool_known_from_a_list_gets_its_headers_at_once() -> None:
    async with connected(_strict()) as (client, server):
        await client.list_tools()
        await client.call_tool("t", ARGUMENTS)
        await client.call_tool("t", ARGUMENTS)
        assert _methods(server) == ["tools/list", "tools/call", "tools/call"]


async def test_what_was_learnt_from_a_mismatch_is_remembered() -> None:
    async with connected(_strict()) as (client, server):
        await client.call_tool("t", ARGUMENTS)
        await client.call_tool("t", ARGUMENTS)
        assert _methods(server) == ["tools/call", "tools/list", "tools/call", "tools/call"]


@pytest.mark.parametrize("arguments", [b'{"region":null,"in":{"side":null}}', b'{"in":null}', b"{}", None])
async def test_an_argument_that_is_null_or_absent_has_no_header(arguments: bytes | None) -> None:
    async with connected(modern({"tools/list": _page("t")})) as (client, server):
        await client.list_tools()
        await client.call_tool("t", arguments)
        assert _params(server.requests[1]) == {}


async def test_an_empty_argument_has_an_empty_header() -> None:
    async with connected(modern({"tools/list": _page("t")})) as (client, server):
        await client.list_tools()
        await client.call_tool("t", b'{"region":"","n":-0}')
        assert _params(server.requests[1]) == {"Mcp-Param-Region": "", "Mcp-Param-Count": "0"}


async def test_an_argument_that_no_header_can_carry_is_refused_and_nothing_sent() -> None:
    async with connected(modern({"tools/list": _page("t")})) as (client, server):
        await client.list_tools()
        with pytest.raises(InvalidRequestError) as caught:
            await client.call_tool("t", b'{"n":9007199254740993}')
        assert caught.value.facts["path"] == "arguments.n"
        assert len(server.requests) == 1


async def test_a_server_that_is_never_satisfied_is_asked_twice_and_no_more() -> None:
    def never(request: Request) -> Reply:
        return error_reply(request, -32020, "no", status=400)

    async with connected(modern({"tools/list": _page("t"), "tools/call": never})) as (client, server):
        with pytest.raises(RpcError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert _methods(server) == ["tools/call", "tools/list", "tools/call"]
        with pytest.raises(RpcError):
            await client.call_tool("t", ARGUMENTS)
        # The headers are known now, and a fresh list says nothing new: there is nothing to repeat.
        assert _methods(server)[3:] == ["tools/call", "tools/list"]
    assert (caught.value.rpc_code, caught.value.delivery) == (-32020, Delivery.NOT_PROCESSED)


@pytest.mark.parametrize(
    "page", [_page("t", schema={"type": "object"}), _page("other"), _page(), b'{"tools":{}}', b"{}"]
)
async def test_a_mismatch_that_no_list_explains_is_the_servers_error(page: bytes) -> None:
    async with connected(_strict(page)) as (client, server):
        with pytest.raises(RpcError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert _methods(server) == ["tools/call", "tools/list"]
    assert caught.value.rpc_code == -32020


async def test_a_list_is_read_as_far_as_the_tool_and_no_further() -> None:
    pages = {None: _page("a", cursor=""), "": _page("b", cursor="2"), "2": _page("t", cursor="3"), "3": _page()}

    def page(request: Request) -> bytes:
        return pages[request.json["params"].get("cursor")]

    handler = _strict()

    async def handle(request: Request) -> Reply | None:
        if request.json["method"] == "tools/list":
            return result_reply(request, page(request))
        return await handler(request)

    async with connected(handle) as (client, server):
        await client.call_tool("t", ARGUMENTS)
        assert _methods(server) == ["tools/call", *["tools/list"] * 3, "tools/call"]


async def test_a_list_without_end_is_given_up() -> None:
    async with connected(_strict(_page("a", cursor="again"))) as (client, server):
        with pytest.raises(RpcError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert _methods(server) == ["tools/call", *["tools/list"] * 100]
    assert caught.value.rpc_code == -32020


async def test_a_tool_that_lost_its_annotations_loses_its_headers() -> None:
    pages = iter([_page("t"), _page("t", schema={"type": "object"})])

    def call(request: Request) -> Reply:
        if _params(request):
            return error_reply(request, -32020, "unexpected", status=400)
        return result_reply(request, b"{}")

    async with connected(modern({"tools/list": lambda _: next(pages), "tools/call": call})) as (client, server):
        await client.list_tools()
        await client.call_tool("t", ARGUMENTS)
        assert _methods(server) == ["tools/list", "tools/call", "tools/list", "tools/call"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Reply(status=429, headers=[("Retry-After", "2")]), RateLimitedError),
        (Reply(stall="head"), TimeLimitError),
        (None, ConnectionLostError),
    ],
)
async def test_a_call_that_was_refused_is_not_in_doubt_because_the_list_failed(
    answer: Reply | None, expected: type[McpError]
) -> None:
    async def nothing(_: Request) -> Reply | None:
        return answer

    async with connected(
        modern({"tools/list": nothing, "tools/call": lambda request: error_reply(request, -32020, "no", status=400)}),
        first_byte=2.0,
    ) as (client, _):
        with pytest.raises(expected) as caught:
            await client.call_tool("t", ARGUMENTS)
    assert (caught.value.delivery, caught.value.retryable) == (Delivery.NOT_PROCESSED, True)


async def test_a_list_that_the_server_refuses_leaves_the_first_error() -> None:
    handlers = {
        "tools/list": lambda request: error_reply(request, -32603, "no list"),
        "tools/call": lambda request: error_reply(request, -32020, "no", status=400),
    }
    async with connected(modern(handlers)) as (client, _):
        with pytest.raises(RpcError) as caught:
            await client.call_tool("t", ARGUMENTS)
    assert caught.value.rpc_code == -32020


async def test_all_requests_of_a_call_share_its_total_limit() -> None:
    now = [0.0]

    async def list_tools(request: Request) -> bytes:
        now[0] += 4.95
        return _page("t")

    stalled = Reply(stall="head")

    def call(request: Request) -> Reply:
        return stalled if _params(request) else error_reply(request, -32020, "no", status=400)

    handler = modern({"tools/list": list_tools, "tools/call": call})
    async with connected(handler, options={"clock": lambda: now[0]}, total=5.0) as (client, _):
        with pytest.raises(TimeLimitError) as caught:
            await client.call_tool("t", ARGUMENTS)
    assert caught.value.limit == "total"
    assert caught.value.facts["seconds"] == pytest.approx(0.05)


async def test_a_page_with_broken_tools_still_teaches_the_sound_ones() -> None:
    page = json.loads(_page("t"))
    page["tools"] = [
        7,
        {"name": 8},
        {"name": "bare"},
        {"name": "bad", "inputSchema": {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}}},
        {"name": "odd", "inputSchema": [{"x-mcp-header": 1}]},
        *page["tools"],
    ]
    async with connected(_strict(json.dumps(page).encode())) as (client, server):
        result = (await client.list_tools()).result
        assert json.loads(result) == page
        await client.call_tool("t", ARGUMENTS)
        assert _methods(server) == ["tools/list", "tools/call"]


async def test_an_annotation_spelled_with_escapes_counts() -> None:
    page = _page("t").replace(b"x-mcp-header", b"x\\u002dmcp-header")
    async with connected(_strict(page)) as (client, server):
        await client.list_tools()
        await client.call_tool("t", ARGUMENTS)
        assert _methods(server) == ["tools/list", "tools/call"]


def _unsupported(supported: object) -> Handler:
    async def handle(request: Request) -> Reply:
        data = {"supported": supported, "requested": "2026-07-28"}
        return error_reply(request, -32022, "unsupported", data, status=400)

    return handle


@pytest.mark.parametrize("supported", [["2025-11-25", "2025-06-18"], [], ["2099-01-01"], "2026-07-28", None, [7]])
async def test_a_server_of_other_revisions_is_named_with_them_and_not_asked_again(supported: object) -> None:
    async with connected(_unsupported(supported)) as (client, server):
        with pytest.raises(NoCommonRevisionError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert len(server.requests) == 1
    error = caught.value
    assert (error.code, error.delivery, error.retryable) == (
        "interop_version_unsupported",
        Delivery.NOT_PROCESSED,
        False,
    )
    strings = [one for one in supported if isinstance(one, str)] if isinstance(supported, list) else []
    assert error.facts["supported"] == strings
    assert error.facts["requested"] == "2026-07-28"


async def test_a_server_that_names_our_revision_after_all_is_asked_once_more() -> None:
    async with connected(_unsupported(["2026-07-28"])) as (client, server):
        with pytest.raises(RpcError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert len(server.requests) == 2
    assert (caught.value.rpc_code, caught.value.delivery) == (-32022, Delivery.NOT_PROCESSED)


async def test_the_revisions_shown_are_bounded_and_printable() -> None:
    async with connected(_unsupported(["\x1b[2J" + "x" * 1000] * 500)) as (client, _):
        with pytest.raises(NoCommonRevisionError) as caught:
            await client.call_tool("t", ARGUMENTS)
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 3_000
    assert len(caught.value.facts["supported"]) == 10
