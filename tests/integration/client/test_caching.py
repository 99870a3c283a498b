"""What a server said is used again for as long as it allows, by whom it was said to, and by nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from openwop_mcp import jsontext
from openwop_mcp.client import CallOptions, Exchange, McpClient
from openwop_mcp.client._cache import ResultCache
from openwop_mcp.client._pool import HttpPool
from openwop_mcp.errors import McpError, RpcError
from tests.support.fake_server import FakeServer, Request, error_reply, modern, notice_event
from tests.support.legacy_server import LegacyServer
from tests.support.mcp_client import ARGUMENTS, client_of, connected, stream_reply
from tests.support.patience import PATIENCE

ACME = CallOptions(tenant="acme", principal="ada")

LISTS: dict[str, Callable[[McpClient, CallOptions], Awaitable[Exchange]]] = {
    "tools/list": lambda client, options: client.list_tools(None, options),
    "resources/list": lambda client, options: client.list_resources(None, options),
    "resources/templates/list": lambda client, options: client.list_resource_templates(None, options),
    "prompts/list": lambda client, options: client.list_prompts(None, options),
    "resources/read": lambda client, options: client.read_resource("fake://one", options),
    "server/discover": lambda client, options: client.discover(options),
}
ACTS: dict[str, Callable[[McpClient], Awaitable[Exchange]]] = {
    "tools/call": lambda client: client.call_tool("t", ARGUMENTS),
    "prompts/get": lambda client: client.get_prompt("p", None),
    "completion/complete": lambda client: client.complete(b'{"ref":{},"argument":{}}'),
}


class Clock:
    """Seconds that pass when told."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Told:
    """Answers each request with its number, and counts them."""

    def __init__(self, ttl: str = "60000", scope: str = "private", more: str = "") -> None:
        self.count = 0
        self.members = f'"ttlMs":{ttl},"cacheScope":"{scope}"{more}'

    def __call__(self, request: Request) -> bytes:
        self.count += 1
        shape = '"supportedVersions":["2026-07-28"],"tools":[],"resources":[],"prompts":[],"contents":[]'
        return f'{{"resultType":"complete",{shape},{self.members},"n":{self.count}.0}}'.encode()


class Tokens:
    """An authorizer whose context is as told."""

    context = 1

    async def header(self) -> tuple[str, str]:
        return "Authorization", f"Bearer token-{self.context}"

    async def refused(self, status: int, challenges: Sequence[str], sent: str | None) -> bool:
        return False

    async def close(self) -> None:
        return None


def _everything(answer: Any) -> dict[str, Any]:
    return dict.fromkeys([*LISTS, *ACTS], answer)


@pytest.mark.parametrize("method", LISTS)
async def test_what_is_fresh_is_not_asked_again(method: str) -> None:
    clock, told = Clock(), Told("1500")
    async with connected(modern(_everything(told)), options={"clock": clock}) as (client, server):
        first = await LISTS[method](client, ACME)
        clock.now += 1.4
        again = await LISTS[method](client, ACME)
        assert again.result == first.result
        assert (first.cached, again.cached) == (False, True)
        assert (again.revision, again.http_status) == (first.revision, first.http_status)
        assert len(server.requests) == 1
        clock.now += 0.2
        assert not (await LISTS[method](client, ACME)).cached
        assert len(server.requests) == 2


@pytest.mark.parametrize("method", ACTS)
async def test_what_acts_is_asked_each_time_whatever_its_answer_claims(method: str) -> None:
    async with connected(modern(_everything(Told(scope="public")))) as (client, server):
        for _ in range(2):
            assert not (await ACTS[method](client)).cached
        assert len(server.requests) == 2


@pytest.mark.parametrize("ttl", ["0", "-1", "null", '"60000"', "true", "[]", "1.5"])
async def test_a_result_without_a_time_to_live_is_asked_for_each_time(ttl: str) -> None:
    async with connected(modern({"tools/list": Told(ttl)})) as (client, server):
        await client.list_tools()
        await client.list_tools()
        assert len(server.requests) == 2


@pytest.mark.parametrize("method", ["tools/list", "resources/read"])
@pytest.mark.parametrize(
    "other", [CallOptions(tenant="other", principal="ada"), CallOptions(tenant="acme", principal="eve"), CallOptions()]
)
async def test_a_private_result_is_shown_to_nobody_else(method: str, other: CallOptions) -> None:
    async with connected(modern(_everything(Told()))) as (client, server):
        mine = await LISTS[method](client, ACME)
        theirs = await LISTS[method](client, other)
        assert theirs.result != mine.result
        assert not theirs.cached
        assert (await LISTS[method](client, ACME)).result == mine.result
        assert len(server.requests) == 2


async def test_a_public_result_is_shown_to_each_principal_of_its_tenant_and_to_no_other_tenant() -> None:
    async with connected(modern({"tools/list": Told(scope="public")})) as (client, server):
        first = await client.list_tools(None, ACME)
        again = await client.list_tools(None, CallOptions(tenant="acme", principal="eve"))
        assert (again.cached, again.result) == (True, first.result)
        assert not (await client.list_tools(None, CallOptions(tenant="other", principal="ada"))).cached
        assert len(server.requests) == 2


@pytest.mark.parametrize(("scope", "again"), [("private", False), ("public", True), ("unheard-of", False)])
async def test_another_authorization_sees_what_is_public_alone(scope: str, again: bool) -> None:
    tokens = Tokens()
    async with connected(modern({"resources/read": Told(scope=scope)}), authorizer=tokens) as (client, server):
        await client.read_resource("u", ACME)
        tokens.context = 2
        assert (await client.read_resource("u", ACME)).cached is again
        assert len(server.requests) == 1 + (not again)


async def test_an_answer_during_which_the_authorization_changed_is_kept_for_nobody() -> None:
    tokens = Tokens()
    told = Told()

    def answer(request: Request) -> bytes:
        tokens.context += told.count == 0
        return told(request)

    async with connected(modern({"tools/list": answer}), authorizer=tokens) as (client, server):
        await client.list_tools(None, ACME)
        assert not (await client.list_tools(None, ACME)).cached
        tokens.context -= 1
        assert not (await client.list_tools(None, ACME)).cached
        assert len(server.requests) == 3


async def test_two_servers_of_the_settings_at_one_address_share_nothing() -> None:
    cache: ResultCache[Exchange] = ResultCache(Clock())
    async with FakeServer(modern({"tools/list": Told(scope="public")})) as server, HttpPool() as pool:
        for name in ("one", "two"):
            client = client_of(server.url, pool, options={"cache": cache, "name": name})
            assert not (await client.list_tools(None, ACME)).cached
        assert len(server.requests) == 2


def _announcing(method: str, **params: Any) -> Callable[[Request], Any]:
    def call(request: Request) -> Any:
        note = notice_event(method, **params)
        done = b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":[]}}\n\n' % request.json["id"]
        return stream_reply(note, done)

    return call


@pytest.mark.parametrize(
    ("note", "stale"),
    [
        ("tools/list_changed", {"tools/list"}),
        ("prompts/list_changed", {"prompts/list"}),
        ("resources/list_changed", {"resources/list", "resources/templates/list"}),
        ("resources/updated", {"resources/read"}),
        ("message", set()),
        ("tools/list_changed_not", set()),
    ],
)
@pytest.mark.parametrize("scope", ["private", "public"])
async def test_a_change_told_on_the_stream_of_another_request_makes_stale_what_it_concerns(
    note: str, stale: set[str], scope: str
) -> None:
    handlers = {**_everything(Told(scope=scope)), "tools/call": _announcing(note, uri="fake://one")}
    async with connected(modern(handlers)) as (client, _):
        for ask in LISTS.values():
            await ask(client, ACME)
        await client.call_tool("t", ARGUMENTS, CallOptions(tenant="somebody else"))
        assert {method for method, ask in LISTS.items() if not (await ask(client, ACME)).cached} == stale


async def test_a_change_told_while_a_list_is_under_way_keeps_that_list_from_being_used_again() -> None:
    under_way, changed = asyncio.Event(), asyncio.Event()
    told = Told()

    async def slowly(request: Request) -> bytes:
        under_way.set()
        await changed.wait()
        return told(request)

    handlers = {"tools/list": slowly, "tools/call": _announcing("tools/list_changed")}
    async with connected(modern(handlers)) as (client, _):
        first = asyncio.ensure_future(client.list_tools())
        async with asyncio.timeout(PATIENCE):
            await under_way.wait()
            await client.call_tool("t", ARGUMENTS)
            changed.set()
            await first
        assert not (await client.list_tools()).cached


async def test_a_change_told_by_an_older_server_counts_too() -> None:
    page = b'{"tools":[],"ttlMs":60000,"cacheScope":"private"}'
    old = LegacyServer(results={"tools/list": page, "tools/call": _announcing("tools/list_changed")})
    async with connected(old, options={"floor": "2025-03-26"}) as (client, _):
        # The first tells which revision it is; what was asked before is not known to be of it.
        await client.list_tools()
        assert [(await client.list_tools()).cached for _ in range(2)] == [False, True]
        await client.call_tool("t", ARGUMENTS)
        assert not (await client.list_tools()).cached


@pytest.mark.parametrize("refused", [True, False])
async def test_a_cursor_that_is_refused_makes_all_pages_of_that_list_stale(refused: bool) -> None:
    told = Told(more=',"nextCursor":"2"')

    def page(request: Request) -> Any:
        if request.json["params"].get("cursor") == "bad":
            return error_reply(request, -32602 if refused else -32603, "no such cursor")
        return told(request)

    async with connected(modern({**_everything(Told()), "tools/list": page})) as (client, _):
        await client.list_tools(None, ACME)
        await client.list_tools("2", ACME)
        await client.list_prompts(None, ACME)
        with pytest.raises(RpcError):
            await client.list_tools("bad", ACME)
        pages = [(await client.list_tools(cursor, ACME)).cached for cursor in (None, "2")]
        assert pages == [not refused, not refused]
        assert (await client.list_prompts(None, ACME)).cached


async def test_each_cursor_is_a_page_of_its_own_and_the_empty_one_too() -> None:
    async with connected(modern({"tools/list": Told()})) as (client, server):
        cursors = (None, "", "2")
        results = [(await client.list_tools(cursor)).result for cursor in cursors]
        assert len(set(results)) == 3
        assert [(await client.list_tools(cursor)).result for cursor in cursors] == results
        assert len(server.requests) == 3


@pytest.mark.parametrize("method", ["tools/list", "resources/read"])
async def test_a_failure_is_never_used_again(method: str) -> None:
    def refuse(request: Request) -> Any:
        return error_reply(request, -32603, "busy", {"ttlMs": 60000})

    async with connected(modern(_everything(refuse))) as (client, server):
        for _ in range(2):
            with pytest.raises(McpError):
                await LISTS[method](client, ACME)
        assert len(server.requests) == 2


def _asks_first(told: Told) -> Callable[[Request], bytes]:
    def read(request: Request) -> bytes:
        if "inputResponses" in request.json["params"]:
            return told(request)
        asked = {"resultType": "input_required", "ttlMs": 60000, "cacheScope": "public", "requestState": "s"}
        return jsontext.encode({**asked, "inputRequests": {"who": {"method": "elicitation/create", "params": {}}}})

    return read


async def test_neither_a_question_nor_the_answer_after_it_is_used_again() -> None:
    asked: list[str] = []

    async def on_input(method: str, params: bytes) -> bytes:
        asked.append(method)
        return b'{"action":"accept","content":{}}'

    handler = modern({"resources/read": _asks_first(Told(scope="public"))})
    async with connected(handler, options={"on_input": on_input}) as (client, server):
        results = [await client.read_resource("u", ACME) for _ in range(2)]
        assert [one.cached for one in results] == [False, False]
        assert len(asked) == 2
        assert len(server.requests) == 4
    async with connected(handler) as (client, server):
        for _ in range(2):
            with pytest.raises(McpError):
                await client.read_resource("u", ACME)
        assert len(server.requests) == 2


async def test_a_list_that_was_kept_teaches_headers_all_the_same() -> None:
    schema = {"type": "object", "properties": {"q": {"type": "integer", "x-mcp-header": "Q"}}}
    page = jsontext.encode({"tools": [{"name": "t", "inputSchema": schema}], "ttlMs": 60000, "cacheScope": "public"})
    async with connected(modern({"tools/list": page})) as (client, server):
        await client.list_tools()
        assert (await client.list_tools()).cached
        await client.call_tool("t", ARGUMENTS)
        assert server.requests[-1].header("Mcp-Param-Q") == "1"


async def test_a_mismatch_makes_the_list_stale_however_fresh_it_is() -> None:
    pages = iter(["Old", "New", "New"])

    def page(request: Request) -> bytes:
        schema = {"type": "object", "properties": {"q": {"type": "integer", "x-mcp-header": next(pages)}}}
        return jsontext.encode(
            {"tools": [{"name": "t", "inputSchema": schema}], "ttlMs": 60000, "cacheScope": "public"}
        )

    def call(request: Request) -> Any:
        if request.header("Mcp-Param-New") != "1":
            return error_reply(request, -32020, "Mcp-Param-New is missing", status=400)
        return b'{"content":[]}'

    async with connected(modern({"tools/list": page, "tools/call": call})) as (client, server):
        await client.list_tools()
        await client.call_tool("t", ARGUMENTS)
        methods = [request.json["method"] for request in server.requests]
        assert methods == ["tools/list", "tools/call", "tools/list", "tools/call"]
        assert not (await client.list_tools()).cached
