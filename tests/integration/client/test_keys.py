"""The key of a call: on every request that asks for the effect, in each carrier of the settings, and on no other."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from openwop_mcp.client import CallOptions, Clients
from openwop_mcp.config import Server, Settings
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.protocol.keys import KeyArgument, KeyCarrier
from tests.support import stdio_server
from tests.support.fake_server import FakeServer, Reply, Request, error_reply, modern, result_reply
from tests.support.legacy_server import LegacyServer
from tests.support.mcp_client import CLIENT_INFO, connected, stream_reply

KEY = "9hUyzXm3tNlUVxkS0IYWb4yKpSSdPIS8yTAvzqKSFkE"
KEYED = CallOptions(provider_key=KEY)
META = "dev.openwop-mcp/idempotency-key"
ARGUMENTS = b'{ "q":1.10 }'
DONE = b'{"resultType":"complete","content":[]}'


def _seen(request: Request) -> tuple[Any, Any, Any]:
    """The key as each carrier has it: header, ``_meta``, argument."""
    params = request.json.get("params", {}) if request.body else {}
    return (
        request.header("Idempotency-Key"),
        params.get("_meta", {}).get(META),
        params.get("arguments", {}).get("key"),
    )


def _calls(server: FakeServer) -> list[Request]:
    return [one for one in server.requests if one.body and one.json.get("method") == "tools/call"]


def _no_key_elsewhere(server: FakeServer) -> None:
    calls = _calls(server)
    for other in server.requests:
        if other not in calls:
            assert KEY not in f"{other.headers} {other.body.decode()}"


@pytest.mark.parametrize(
    ("carriers", "seen"),
    [
        (("header", "meta"), (KEY, KEY, None)),
        (("header",), (KEY, None, None)),
        (("meta",), (None, KEY, None)),
        ((KeyArgument("key"),), (None, None, KEY)),
        (("meta", KeyArgument("key"), "header"), (KEY, KEY, KEY)),
        ((), (None, None, None)),
    ],
)
async def test_each_carrier_of_the_settings_has_the_key_and_no_other_has(
    carriers: Sequence[KeyCarrier], seen: tuple[Any, Any, Any]
) -> None:
    async with connected(modern(), options={"key_carriers": carriers}) as (client, server):
        await client.call_tool("t", ARGUMENTS, KEYED)
        await client.call_tool("t", ARGUMENTS)
        with_key, without = server.requests
    assert _seen(with_key) == seen
    assert _seen(without) == (None, None, None)
    assert "io.modelcontextprotocol/protocolVersion" in with_key.json["params"]["_meta"]
    assert b'{ "q":1.10 ' in with_key.body


async def test_only_calls_of_tools_carry_a_key() -> None:
    async with connected(modern(), options={"key_carriers": ("header", "meta", KeyArgument("key"))}) as (
        client,
        server,
    ):
        await client.list_tools(None, KEYED)
        await client.list_resources(None, KEYED)
        await client.read_resource("fake://one", KEYED)
        await client.get_prompt("greet", b"{}", KEYED)
        await client.complete(b'{"ref":{},"argument":{}}', KEYED)
        await client.discover(KEYED)
        assert len(server.requests) == 6
        _no_key_elsewhere(server)


@pytest.mark.parametrize("sessions", [True, False])
@pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18", "2025-03-26"])
async def test_a_server_of_before_is_given_the_key_as_well(revision: str, sessions: bool) -> None:
    old = LegacyServer(revisions=[revision], sessions=sessions)
    carriers = ("header", "meta", KeyArgument("key"))
    async with connected(old, options={"floor": "2025-03-26", "key_carriers": carriers}) as (client, server):
        await client.list_tools()
        await client.call_tool("t", None, KEYED)
        assert [_seen(call) for call in _calls(server)] == [(KEY, KEY, KEY)]
    _no_key_elsewhere(server)
    assert old.faults == []


async def test_a_call_that_is_sent_anew_in_another_session_or_era_has_the_same_key() -> None:
    old = LegacyServer()
    async with connected(old, options={"floor": "2025-03-26"}) as (client, server):
        await client.call_tool("t", ARGUMENTS, KEYED)
        old.live.clear()
        await client.call_tool("t", ARGUMENTS, KEYED)
        # The first found out that the server is old, the second that its session had ended.
        assert len(_calls(server)) > 2
        assert {_seen(call) for call in _calls(server)} == {(KEY, KEY, None)}
        _no_key_elsewhere(server)


async def test_a_stream_that_is_taken_up_asks_for_no_effect_and_carries_no_key() -> None:
    def cut(_: Request) -> Reply:
        return stream_reply(b"id: one\nretry: 10\ndata:\n\n")

    def again(_: Request) -> Reply:
        number = _calls(server)[-1].json["id"]
        return stream_reply(b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":[]}}\n\n' % number)

    old = LegacyServer(results={"tools/call": cut, "GET": again})
    async with connected(old, options={"floor": "2025-03-26"}) as (client, server):
        await client.call_tool("t", ARGUMENTS, KEYED)
        assert [one.method for one in server.requests].count("GET") == 1
        assert _seen(_calls(server)[-1]) == (KEY, KEY, None)
        _no_key_elsewhere(server)


async def test_a_redirect_within_the_origin_takes_the_key_along() -> None:
    there = modern()

    async def moved(request: Request) -> Reply | None:
        return Reply(status=307, headers=[("Location", "/v2")]) if request.path == "/mcp" else await there(request)

    async with connected(moved) as (client, server):
        await client.call_tool("t", ARGUMENTS, KEYED)
        assert [request.path for request in server.requests] == ["/mcp", "/v2"]
        assert {_seen(request) for request in server.requests} == {(KEY, KEY, None)}


class Tokens:
    """An authorizer with a fresh token after each refusal."""

    context = 0

    def __init__(self) -> None:
        self.refusals = 0

    async def header(self) -> tuple[str, str]:
        return "Authorization", f"Bearer t0ken-t0ken-{self.refusals}"

    async def refused(self, status: int, challenges: Sequence[str], sent: str | None) -> bool:
        self.refusals += 1
        return True

    async def close(self) -> None:
        return None


async def test_after_a_401_the_call_has_another_token_and_the_same_key() -> None:
    def call(request: Request) -> bytes | Reply:
        fresh = request.header("Authorization") == "Bearer t0ken-t0ken-1"
        return DONE if fresh else Reply(status=401, headers=[("WWW-Authenticate", "Bearer")])

    async with connected(modern({"tools/call": call}), authorizer=Tokens()) as (client, server):
        await client.call_tool("t", ARGUMENTS, KEYED)
        assert [_seen(request) for request in server.requests] == [(KEY, KEY, None)] * 2
        assert len({request.header("Authorization") for request in server.requests}) == 2


def _listed(schema: dict[str, Any]) -> bytes:
    return json.dumps({"resultType": "complete", "tools": [{"name": "t", "inputSchema": schema}]}).encode()


async def test_a_header_that_mirrors_the_argument_with_the_key_is_made_from_what_is_sent() -> None:
    schema = {"type": "object", "properties": {"key": {"type": "string", "x-mcp-header": "Key"}}}

    def call(request: Request) -> Reply:
        if request.header("Mcp-Param-Key") != request.json["params"]["arguments"]["key"]:
            return error_reply(request, -32020, "Mcp-Param-Key is missing", status=400)
        return result_reply(request, DONE)

    handler = modern({"tools/list": _listed(schema), "tools/call": call})
    carriers = ("header", "meta", KeyArgument("key"))
    async with connected(handler, options={"key_carriers": carriers}) as (client, server):
        await client.call_tool("t", ARGUMENTS, KEYED)
        assert [request.json["method"] for request in server.requests] == ["tools/call", "tools/list", "tools/call"]
        assert [_seen(call) for call in _calls(server)] == [(KEY, KEY, KEY)] * 2
        _no_key_elsewhere(server)


async def test_the_schema_judges_the_arguments_with_the_key() -> None:
    handler = modern({"tools/list": _listed({"type": "object", "required": ["key"]})})
    options = {"validate": "refuse", "key_carriers": (KeyArgument("key"),)}
    async with connected(handler, options=options) as (client, server):
        await client.list_tools()
        await client.call_tool("t", ARGUMENTS, KEYED)
        with pytest.raises(InvalidRequestError):
            await client.call_tool("t", ARGUMENTS)
        assert len(_calls(server)) == 1


async def test_each_round_of_questions_has_the_same_key() -> None:
    asked = b'{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create"}},"requestState":"s"}'
    left = [asked, asked, DONE]

    async def person(_method: str, _params: bytes) -> bytes:
        return b'{"action":"decline"}'

    handler = modern({"tools/call": lambda _: left.pop(0)})
    options = {"on_input": person, "key_carriers": ("header", "meta", KeyArgument("key"))}
    async with connected(handler, options=options) as (client, server):
        await client.call_tool("t", ARGUMENTS, KEYED)
        assert [_seen(call) for call in _calls(server)] == [(KEY, KEY, KEY)] * 3


SPEAKS = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
PROGRAM = [sys.executable, "-I", "-S", str(Path(stdio_server.__file__)), json.dumps({"discover": SPEAKS})]


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        ({}, (KEY, None)),
        ({"key_carriers": ["header"]}, (None, None)),
        ({"key_carriers": ["header", {"argument": "key"}]}, (None, KEY)),
    ],
)
async def test_a_process_has_the_key_from_the_settings_and_no_headers(
    settings: dict[str, Any], seen: tuple[str | None, str | None]
) -> None:
    given = Settings(servers={"program": Server.model_validate({"command": PROGRAM, **settings})})
    async with Clients(given, client_info=CLIENT_INFO, environ={}) as clients:
        said = json.loads((await clients["program"].call_tool("t", ARGUMENTS, KEYED)).result)["echo"]
    assert (said["_meta"].get(META), said["arguments"].get("key")) == seen


async def test_a_server_over_http_has_the_key_from_the_settings() -> None:
    async with FakeServer(modern()) as server:
        written = {"url": server.url, "network": "private", "key_carriers": [{"argument": "key"}]}
        given = Settings(servers={"fake": Server.model_validate(written)})
        async with Clients(given, client_info=CLIENT_INFO, environ={}) as clients:
            await clients["fake"].call_tool("t", None, KEYED)
        assert [_seen(call) for call in _calls(server)] == [(None, None, KEY)]
