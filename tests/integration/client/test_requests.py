"""What goes to a server: one request per call, its headers, its _meta and the exact bytes of its arguments."""

from __future__ import annotations

import base64

import pytest

from openwop_mcp import jsontext
from openwop_mcp.client._pool import HttpPool
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import InvalidRequestError
from tests.support.fake_server import FakeServer, Request, modern
from tests.support.mcp_client import ARGUMENTS, CLIENT_INFO, client_of, connected, json_reply, replies

CALLS = {
    "tools/call": lambda client: client.call_tool("echo", ARGUMENTS),
    "tools/list": lambda client: client.list_tools(),
    "resources/read": lambda client: client.read_resource("fake://one"),
    "server/discover": lambda client: client.discover(),
}


async def _sent(server: FakeServer) -> Request:
    assert len(server.requests) == 1
    return server.requests[0]


@pytest.mark.parametrize("method", CALLS)
async def test_a_call_is_exactly_one_http_request(method: str) -> None:
    async with connected(modern()) as (client, server):
        await CALLS[method](client)
        await CALLS[method](client)
        assert [request.json["method"] for request in server.requests] == [method, method]


@pytest.mark.parametrize("method", CALLS)
async def test_every_request_has_the_standard_headers_and_those_of_its_server(method: str) -> None:
    async with connected(modern(), headers=[("Authorization", "Bearer abcdefgh")]) as (client, server):
        await CALLS[method](client)
        request = await _sent(server)
        port = server.port
    expected = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "accept-encoding": "identity",
        "user-agent": "openwop-mcp-pack",
        "authorization": "Bearer abcdefgh",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": method,
        "content-length": str(len(request.body)),
        "host": f"127.0.0.1:{port}",
    }
    named = {"tools/call": "echo", "resources/read": "fake://one"}.get(method)
    if named is not None:
        expected["mcp-name"] = named
    assert {name.lower(): value for name, value in request.headers} == expected
    assert (request.method, request.path) == ("POST", "/mcp")


@pytest.mark.parametrize("method", CALLS)
async def test_every_request_says_revision_client_and_capabilities_in_its_meta(method: str) -> None:
    async with connected(modern()) as (client, server):
        await CALLS[method](client)
        request = await _sent(server)
    meta = jsontext.pointer(request.body, ["params", "_meta"])
    assert meta is not None
    assert jsontext.members(meta) == [
        ("io.modelcontextprotocol/protocolVersion", b'"2026-07-28"'),
        ("io.modelcontextprotocol/clientInfo", CLIENT_INFO),
        ("io.modelcontextprotocol/clientCapabilities", b"{}"),
        *([] if method == "server/discover" else [("progressToken", b"%d" % request.json["id"])]),
    ]
    assert request.json["jsonrpc"] == "2.0"


async def test_no_two_requests_share_an_id() -> None:
    async with connected(modern()) as (client, server):
        for _ in range(3):
            for call in CALLS.values():
                await call(client)
    ids = [request.json["id"] for request in server.requests]
    assert len(set(ids)) == len(ids) == 12
    assert all(type(one) is int for one in ids)


async def test_an_address_keeps_its_escapes_and_its_query() -> None:
    path = "/a%2Fb%20c/?k=v%26w%3D&x="
    async with FakeServer(modern()) as server, HttpPool() as transport:
        await client_of(f"http://127.0.0.1:{server.port}{path}", transport).list_tools()
        assert server.requests[0].path == path


@pytest.mark.parametrize(
    "name",
    ["tool", "a b", " padded ", "日本語", "é", "e\u0301", "tab\there", "line\nbreak", "=?base64?x?=", "\x7f", "😀"],
)
async def test_a_name_outside_plain_ascii_is_mirrored_in_base64(name: str) -> None:
    async with connected(modern()) as (client, server):
        await client.call_tool(name, ARGUMENTS)
        await client.read_resource(name)
        plain = name in ("tool", "a b")
        spelled = name if plain else f"=?base64?{base64.b64encode(name.encode()).decode()}?="
        assert [request.header("Mcp-Name") for request in server.requests] == [spelled, spelled]
        assert [request.json["params"].get("name") for request in server.requests] == [name, None]


@pytest.mark.parametrize("call", ["call_tool", "read_resource"])
async def test_a_name_that_no_header_can_carry_is_refused_and_nothing_sent(call: str) -> None:
    async with connected(modern()) as (client, server):
        with pytest.raises(InvalidRequestError) as caught:
            await getattr(client, call)("\ud800", *([ARGUMENTS] if call == "call_tool" else []))
        assert caught.value.delivery is Delivery.NOT_SENT
        assert server.connections == 0


@pytest.mark.parametrize(
    "arguments",
    [
        b"{}",
        b'{"a":1.10,"b":1E400,"c":-0.0,"d":0.30000000000000004441,"e":-0,"f":1e-400}',
        b'{"n":123456789012345678901234,"m":9007199254740993}',
        b'{"s":"\\u00e9","t":"\xc3\xa9","u":"\\/","v":"\\ud800"}',
        b'{ "z" : 1 ,\r\n\t"a":[ ] , "m" : { } }',
        b'{"k":1,"k":2,"\\u006b":3}',
        b'{"big":' + b"7" * 5000 + b"}",
        b'{"deep":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
async def test_arguments_arrive_byte_for_byte(arguments: bytes) -> None:
    # Not the strict handler: it decodes a body, which Python's json does not do to every depth.
    handler = replies(lambda request: json_reply(b'{"jsonrpc":"2.0","id":1,"result":{}}'))
    async with connected(handler) as (client, server):
        await client.call_tool("echo", arguments)
        assert b'"arguments":' + arguments + b',"_meta":' in server.requests[0].body


async def test_arguments_of_two_megabytes_arrive_with_their_length_and_not_chunked() -> None:
    arguments = b'{"s":"' + b"\xc3\xa9" * 1024**2 + b'"}'
    async with connected(modern()) as (client, server):
        await client.call_tool("echo", arguments)
        request = server.requests[0]
        assert arguments in request.body
        assert request.header("Content-Length") == str(len(request.body))
        assert request.header("Transfer-Encoding") is None


async def test_absent_arguments_are_absent_and_not_null() -> None:
    async with connected(modern()) as (client, server):
        await client.call_tool("echo", None)
        assert list(server.requests[0].json["params"]) == ["name", "_meta"]


@pytest.mark.parametrize("cursor", ["", "p2", "é\n", "\ud800"])
async def test_any_cursor_is_forwarded(cursor: str) -> None:
    async with connected(modern()) as (client, server):
        await client.list_tools(cursor)
        assert server.requests[0].json["params"]["cursor"] == cursor


async def test_without_a_cursor_none_is_sent() -> None:
    async with connected(modern()) as (client, server):
        await client.list_tools()
        assert list(server.requests[0].json["params"]) == ["_meta"]
