"""Which era a server is of is found out by what comes back, agreed on, remembered and forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from openwop_mcp import jsontext
from openwop_mcp.client import CallOptions, _http, _standing
from openwop_mcp.client._negotiation import REMEMBERED
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import (
    AuthorizationError,
    ConnectionLostError,
    HttpStatusError,
    InvalidRequestError,
    MalformedAnswerError,
    McpError,
    NoCommonRevisionError,
    RateLimitedError,
    RpcError,
    TimeLimitError,
)
from tests.support.fake_server import FakeServer, Reply, Request, error_reply, modern, result_reply
from tests.support.legacy_server import REFUSALS, LegacyServer
from tests.support.mcp_client import ARGUMENTS, connected, json_reply, stream_reply
from tests.support.patience import PATIENCE

OLDEST = {"floor": "2025-03-26"}


def _methods(server: FakeServer) -> list[str]:
    return [request.json.get("method", "response") if request.body else request.method for request in server.requests]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_server_with_a_handshake_is_met_with_one(refusal: str) -> None:
    old = LegacyServer(refusal=refusal, results={"tools/call": b'{"content":[],"n":1.10}'})
    async with connected(old, options=OLDEST) as (client, server):
        exchange = await client.call_tool("t", ARGUMENTS)
        assert (exchange.result, exchange.revision) == (b'{"content":[],"n":1.10}', "2025-11-25")
        await client.call_tool("t", ARGUMENTS)
        assert _methods(server) == [
            "server/discover",
            "initialize",
            "notifications/initialized",
            "tools/call",
            "tools/call",
        ]
    assert old.faults == []
    assert old.ended == ["session-1"]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_an_older_era_is_never_spoken_unless_the_settings_allow_it(refusal: str) -> None:
    async with connected(LegacyServer(refusal=refusal)) as (client, server):
        with pytest.raises(McpError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert "initialize" not in _methods(server)
    error = caught.value
    assert error.delivery in {Delivery.NOT_PROCESSED, Delivery.UNKNOWN, Delivery.ANSWERED}
    if isinstance(error, NoCommonRevisionError):
        assert error.facts["reason"] == "below-floor"
        assert "minimum_revision" in error.message


async def test_the_error_of_an_older_server_names_the_setting() -> None:
    async with connected(LegacyServer(refusal="Python with sessions")) as (client, _):
        with pytest.raises(NoCommonRevisionError, match="minimum_revision"):
            await client.list_tools()


@pytest.mark.parametrize("revision", ["2025-11-25", "2025-06-18", "2025-03-26"])
async def test_the_revision_in_the_record_is_the_one_on_the_wire(revision: str) -> None:
    old = LegacyServer(revisions=[revision])
    async with connected(old, options=OLDEST) as (client, _):
        assert (await client.list_tools()).revision == revision
    assert old.faults == []


async def test_a_revision_below_the_floor_is_left_again() -> None:
    old = LegacyServer(revisions=["2025-03-26"])
    async with connected(old, options={"floor": "2025-06-18"}) as (client, _):
        with pytest.raises(NoCommonRevisionError) as caught:
            await client.list_tools()
    assert caught.value.facts["supported"] == ["2025-03-26"]
    assert caught.value.facts["reason"] == "below-floor"
    assert old.ended == ["session-1"]


@pytest.mark.parametrize("code", [-32020, -32021])
async def test_a_recognised_modern_error_never_falls_back(code: int) -> None:
    async def handler(request: Request) -> Reply:
        return error_reply(request, code, "m", status=400)

    async with connected(handler, options=OLDEST) as (client, server):
        with pytest.raises(RpcError):
            await client.list_tools()
        assert "initialize" not in _methods(server)


async def test_an_unknown_method_in_a_404_is_a_modern_servers() -> None:
    async def handler(request: Request) -> Reply:
        if request.json["method"] == "tools/list":
            return result_reply(request, b'{"tools":[]}')
        return error_reply(request, -32601, "m", status=404)

    async with connected(handler, options=OLDEST) as (client, server):
        assert (await client.list_tools()).revision == "2026-07-28"
        assert "initialize" not in _methods(server)


async def test_a_server_of_later_revisions_only_is_not_asked_to_step_back() -> None:
    async def handler(request: Request) -> Reply:
        return error_reply(request, -32022, "m", {"supported": ["2027-01-01"], "requested": "2026-07-28"}, status=400)

    async with connected(handler, options=OLDEST) as (client, server):
        with pytest.raises(NoCommonRevisionError) as caught:
            await client.list_tools()
        assert "initialize" not in _methods(server)
    assert caught.value.facts["reason"] == "unsupported"


async def test_an_older_revision_that_the_server_names_is_agreed_on_by_its_handshake() -> None:
    old = LegacyServer()

    async def handler(request: Request) -> Reply | None:
        if request.body and request.json["method"] == "server/discover":
            supported = {"supported": ["2025-06-18"], "requested": "2026-07-28"}
            return error_reply(request, -32022, "m", supported, status=400)
        return await old(request)

    async with connected(handler, options=OLDEST) as (client, _):
        assert (await client.list_tools()).revision == "2025-06-18"


async def test_a_server_whose_discovery_names_no_common_revision_is_asked_for_a_handshake() -> None:
    old = LegacyServer()

    async def handler(request: Request) -> Reply | None:
        if request.body and request.json["method"] == "server/discover":
            return result_reply(request, b'{"supportedVersions":["2025-11-25"],"capabilities":{}}')
        return await old(request)

    async with connected(handler, options=OLDEST) as (client, _):
        assert (await client.list_tools()).revision == "2025-11-25"


OUTAGES: dict[str, tuple[Reply | None, type[McpError]]] = {
    "401": (Reply(status=401), HttpStatusError),
    "401 in JSON": (
        json_reply(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"m"}}', 401),
        HttpStatusError,
    ),
    "403": (Reply(status=403), HttpStatusError),
    "408": (Reply(status=408), HttpStatusError),
    "429": (Reply(status=429), RateLimitedError),
    "500": (Reply(status=500), HttpStatusError),
    "500 in JSON": (json_reply(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"m"}}', 500), RpcError),
    "503": (Reply(status=503), HttpStatusError),
    "302": (Reply(status=302, headers=[("Location", "http://127.0.0.2/x")]), HttpStatusError),
    "a page": (Reply(headers=[("Content-Type", "text/html")], body=b"<p>"), HttpStatusError),
    "no JSON": (json_reply(b"{"), MalformedAnswerError),
    "silence": (Reply(stall="head"), TimeLimitError),
    "a closed connection": (None, McpError),
}


@pytest.mark.parametrize("name", OUTAGES)
async def test_an_outage_is_no_verdict(name: str) -> None:
    reply, kind = OUTAGES[name]
    down = True
    old = LegacyServer()

    async def handler(request: Request) -> Reply | None:
        return reply if down else await old(request)

    # Short enough to wait for, and long enough for the handshake after it.
    limits = {"first_byte": 2.0} if name == "silence" else {}
    async with connected(handler, options=OLDEST, **limits) as (client, server):
        with pytest.raises(kind):
            await client.list_tools()
        assert _methods(server) == ["server/discover"]
        down = False
        assert (await client.list_tools()).revision == "2025-11-25"


async def test_a_modern_server_is_asked_once_which_era_it_is_of() -> None:
    async with connected(modern(), options=OLDEST) as (client, server):
        await asyncio.gather(*(client.call_tool("t", ARGUMENTS) for _ in range(5)))
        assert _methods(server).count("server/discover") == 1
        assert len(server.requests) == 6


async def test_what_was_found_out_is_asked_anew_after_a_while() -> None:
    now = [0.0]
    async with connected(modern(), options={**OLDEST, "clock": lambda: now[0]}) as (client, server):
        await client.list_tools()
        now[0] = REMEMBERED - 1
        await client.list_tools()
        assert _methods(server).count("server/discover") == 1
        now[0] = REMEMBERED + 1
        await client.list_tools()
        assert _methods(server).count("server/discover") == 2


async def test_a_session_in_use_outlives_what_was_found_out() -> None:
    now = [0.0]
    old = LegacyServer()
    async with connected(old, options={**OLDEST, "clock": lambda: now[0]}) as (client, _):
        await client.list_tools()
        now[0] = REMEMBERED + 1
        await client.list_tools()
    assert old.opened == 1


async def test_a_server_that_was_replaced_by_an_older_one_is_met_anew() -> None:
    current: Any = modern()

    async def handler(request: Request) -> Reply | None:
        return await current(request)

    async with connected(handler, options=OLDEST) as (client, _):
        assert (await client.call_tool("t", ARGUMENTS)).revision == "2026-07-28"
        current = LegacyServer()
        assert (await client.call_tool("t", ARGUMENTS)).revision == "2025-11-25"


async def test_a_server_that_was_upgraded_is_met_anew() -> None:
    current: Any = LegacyServer()

    async def handler(request: Request) -> Reply | None:
        return await current(request)

    async with connected(handler, options=OLDEST) as (client, _):
        assert (await client.call_tool("t", ARGUMENTS)).revision == "2025-11-25"
        current = modern()
        assert (await client.call_tool("t", ARGUMENTS)).revision == "2026-07-28"


@pytest.mark.parametrize("dead", [404, 400])
async def test_a_dead_session_is_replaced_and_the_call_goes_on(dead: int) -> None:
    old = LegacyServer(dead=dead)
    async with connected(old, options=OLDEST) as (client, server):
        await client.call_tool("t", ARGUMENTS)
        old.live.clear()
        await client.call_tool("t", ARGUMENTS)
        # A session that was not called gone is ended, whenever that comes through.
        asked = [method for method in _methods(server)[4:] if method != "DELETE"]
        assert asked == ["tools/call", "initialize", "notifications/initialized", "tools/call"]
    assert old.faults == []


async def test_many_calls_that_meet_a_dead_session_open_one_new() -> None:
    old = LegacyServer()
    async with connected(old, options=OLDEST) as (client, _):
        await client.call_tool("t", ARGUMENTS)
        old.live.clear()
        await asyncio.gather(*(client.call_tool("t", ARGUMENTS) for _ in range(20)))
    assert old.opened == 2


async def test_a_session_that_dies_again_and_again_is_an_error_and_no_circle() -> None:
    old = LegacyServer()
    async with connected(old, options=OLDEST) as (client, server):
        await client.list_tools()

        def die(_: Request) -> Reply:
            return Reply(status=404)

        old.results["tools/list"] = die
        with pytest.raises(HttpStatusError):
            await client.list_tools()
        assert len(server.requests) < 20


async def test_an_error_of_a_method_is_no_dead_session() -> None:
    def refuse(request: Request) -> Reply:
        return error_reply(request, -32602, "no such tool")

    old = LegacyServer(results={"tools/call": refuse})
    async with connected(old, options=OLDEST) as (client, _):
        with pytest.raises(RpcError) as caught:
            await client.call_tool("t", ARGUMENTS)
    assert caught.value.rpc_code == -32602
    assert old.opened == 1


@pytest.mark.parametrize("session", ["", "a b", "tab\tbed", "caf\xe9"])
async def test_a_session_id_that_no_header_can_carry_is_refused(session: str) -> None:
    old = LegacyServer(sessions=False)

    async def handler(request: Request) -> Reply | None:
        reply = await old(request)
        if reply is not None and request.json["method"] == "initialize":
            return Reply(headers=[*reply.headers, ("Mcp-Session-Id", session)], chunks=reply.chunks)
        return reply

    async with connected(handler, options=OLDEST) as (client, _):
        with pytest.raises(McpError):
            await client.list_tools()


async def test_only_what_an_older_server_declared_is_asked_of_it() -> None:
    old = LegacyServer(capabilities='{"tools":{}}')
    async with connected(old, options=OLDEST) as (client, server):
        await client.list_tools()
        before = len(server.requests)
        with pytest.raises(InvalidRequestError, match="'prompts'"):
            await client.list_prompts()
        assert len(server.requests) == before


async def test_the_log_level_of_the_settings_is_set_for_an_older_session() -> None:
    old = LegacyServer()
    async with connected(old, options={**OLDEST, "log_level": "warning"}) as (client, server):
        await client.list_tools()
        (request,) = [one for one in server.requests if one.body and one.json.get("method") == "logging/setLevel"]
    assert request.json["params"]["level"] == "warning"


def _asking(*questions: bytes) -> Callable[[Request], Reply]:
    def reply(request: Request) -> Reply:
        events = [b"data: " + question + b"\n\n" for question in questions]
        answer = b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":[]}}\n\n' % request.json["id"]
        return stream_reply(*events, answer)

    return reply


async def test_an_older_servers_ping_is_answered_and_its_other_questions_refused() -> None:
    ping = b'{"jsonrpc":"2.0","id":"p-1","method":"ping"}'
    sampling = b'{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"messages":[]}}'
    old = LegacyServer(results={"tools/call": _asking(ping, sampling)})
    async with connected(old, options=OLDEST) as (client, server):
        await client.call_tool("t", ARGUMENTS)
        async with asyncio.timeout(PATIENCE):
            while _methods(server).count("response") < 2:
                old.notified.clear()
                await old.notified.wait()
        answers = [one.json for one in server.requests if one.body and "method" not in one.json]
    assert {"jsonrpc": "2.0", "id": "p-1", "result": {}} in answers
    (refused,) = [answer for answer in answers if "error" in answer]
    assert (refused["id"], refused["error"]["code"]) == (7, -32601)


async def test_a_modern_servers_question_on_a_stream_gets_no_answer() -> None:
    ping = b'{"jsonrpc":"2.0","id":"p-1","method":"ping"}'
    async with connected(modern({"tools/call": _asking(ping)})) as (client, server):
        await client.call_tool("t", ARGUMENTS)
        assert len(server.requests) == 1


async def test_a_call_of_an_older_revision_that_runs_out_of_time_is_cancelled_by_a_notification() -> None:
    old = LegacyServer(results={"tools/call": lambda _: Reply(stall="head")})
    async with connected(old, options=OLDEST) as (client, server):
        await client.list_tools()
        old.notified.clear()
        # Time for the request to arrive before it runs out.
        with pytest.raises(TimeLimitError):
            await client.call_tool("t", ARGUMENTS, CallOptions(timeout=2.0))
        await asyncio.wait_for(old.notified.wait(), PATIENCE)
        sent, cancelled = server.requests[-2:]
    assert cancelled.json["method"] == "notifications/cancelled"
    assert cancelled.json["params"]["requestId"] == sent.json["id"]


async def test_a_stream_that_ends_early_is_taken_up_where_it_ended() -> None:
    resumed: list[str | None] = []

    def cut(_: Request) -> Reply:
        return stream_reply(b"id: one\nretry: 10\ndata:\n\n", b'id: two\ndata: {"jsonrpc":"2.0","method":"n"}\n\n')

    def again(request: Request) -> Reply:
        resumed.append(request.header("Last-Event-ID"))
        if len(resumed) == 1:
            return stream_reply(b"id: three\nretry: 20\ndata:\n\n")
        sent = old_requests()[-1]
        return stream_reply(b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":[]}}\n\n' % sent)

    def old_requests() -> list[int]:
        return [one.json["id"] for one in server.requests if one.body and one.json.get("method") == "tools/call"]

    old = LegacyServer(results={"tools/call": cut, "GET": again})
    async with connected(old, options=OLDEST) as (client, server):
        assert (await client.call_tool("t", ARGUMENTS)).result == b'{"content":[]}'
        (first, *_) = [one for one in server.requests if one.method == "GET"]
    assert resumed == ["two", "three"]
    assert first.header("Mcp-Session-Id") == "session-1"
    assert first.header("MCP-Protocol-Version") == "2025-11-25"
    assert first.header("Accept") == "text/event-stream"


async def test_a_stream_that_cannot_be_taken_up_is_a_lost_connection() -> None:
    old = LegacyServer(results={"tools/call": lambda _: stream_reply(b"id: 1\nretry: 1\ndata:\n\n")})
    async with connected(old, options=OLDEST) as (client, _):
        with pytest.raises(McpError) as caught:
            await client.call_tool("t", ARGUMENTS)
    assert caught.value.delivery is Delivery.UNKNOWN


REFUSED_AGAIN: dict[str, Reply] = {
    "no session": json_reply(b'{"jsonrpc":"2.0","id":"s","error":{"code":-32600,"message":"Session not found"}}', 404),
    "no valid session": json_reply(
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"No valid session ID provided"}}', 400
    ),
    "no such method": json_reply(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"m"}}', 405),
    "another revision": json_reply(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"m"}}', 400),
    "no token": Reply(status=401),
    "too many": Reply(status=429, headers=[("Retry-After", "1")]),
    "down": Reply(status=503),
    "an error": json_reply(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}'),
    "a page": Reply(headers=[("Content-Type", "text/html")], body=b"<p>"),
    "nothing": Reply(status=204),
}


@pytest.mark.parametrize("name", REFUSED_AGAIN)
async def test_whatever_refuses_to_go_on_with_a_stream_leaves_its_call_in_doubt_and_is_not_its_answer(
    name: str,
) -> None:
    old = LegacyServer()
    old.results = {
        "tools/call": lambda _: stream_reply(b"id: 1\nretry: 1\ndata:\n\n"),
        "GET": lambda _: REFUSED_AGAIN[name],
    }
    async with connected(old, options=OLDEST) as (client, server):
        with pytest.raises(ConnectionLostError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert _methods(server).count("GET") == 1
    assert caught.value.delivery is Delivery.UNKNOWN
    assert old.seen.count("tools/call") == 1
    assert old.opened == 1


class _Tokens:
    """Has as many tokens as are wanted; `dry` is what comes in place of the second one."""

    context = 0

    def __init__(self, dry: McpError | None = None) -> None:
        self.number, self.dry = 1, dry
        self.refusals: list[tuple[int, str | None]] = []

    async def header(self) -> tuple[str, str]:
        return "Authorization", f"Bearer {self.number}"

    async def refused(self, status: int, _: object, sent: str | None) -> bool:
        self.refusals.append((status, sent))
        if self.dry is not None:
            raise self.dry
        self.number += 1
        return True

    async def close(self) -> None:
        """Nothing is under way."""


def _wants(token: str, calls: Callable[[], int]) -> Callable[[Request], Reply]:
    def again(request: Request) -> Reply:
        if request.header("Authorization") != token:
            return Reply(status=401, headers=[("WWW-Authenticate", "Bearer")])
        return stream_reply(b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":[]}}\n\n' % calls())

    return again


async def test_a_stream_whose_token_has_run_out_meanwhile_is_taken_up_with_another() -> None:
    def sent() -> int:
        (call,) = [one.json["id"] for one in server.requests if one.body and one.json.get("method") == "tools/call"]
        return int(call)

    old, tokens = LegacyServer(), _Tokens()
    old.results["tools/call"] = lambda _: stream_reply(b"id: 1\nretry: 1\ndata:\n\n")
    old.results["GET"] = _wants("Bearer 2", sent)
    async with connected(old, options=OLDEST, authorizer=tokens) as (client, server):
        assert (await client.call_tool("t", ARGUMENTS)).result == b'{"content":[]}'
    assert tokens.refusals == [(401, "Bearer 1")]


@pytest.mark.parametrize("dry", [None, AuthorizationError("no token", cause="login_required")])
async def test_a_stream_that_no_token_takes_up_leaves_its_call_in_doubt(dry: McpError | None) -> None:
    old, tokens = LegacyServer(), _Tokens(dry)
    old.results["tools/call"] = lambda _: stream_reply(b"id: 1\nretry: 1\ndata:\n\n")
    old.results["GET"] = _wants("another", lambda: 0)
    async with connected(old, options=OLDEST, authorizer=tokens) as (client, _):
        with pytest.raises(ConnectionLostError) as caught:
            await client.call_tool("t", ARGUMENTS)
    assert caught.value.delivery is Delivery.UNKNOWN
    assert len(tokens.refusals) == 1
    assert old.seen.count("tools/call") == 1


async def test_a_handshake_ends_with_another_token_where_the_server_wants_one() -> None:
    old, tokens = LegacyServer(), _Tokens()

    async def handler(request: Request) -> Reply | None:
        last = request.body and request.json.get("method") == "notifications/initialized"
        return Reply(status=401) if last and request.header("Authorization") == "Bearer 1" else await old(request)

    async with connected(handler, options=OLDEST, authorizer=tokens) as (client, _):
        await client.call_tool("t", ARGUMENTS)
    assert tokens.refusals == [(401, "Bearer 1")]
    assert old.opened == 1


@pytest.mark.parametrize(
    ("retry", "silence", "limits"),
    [(1, 2.5, {"first_byte": 2.0, "idle": PATIENCE}), (2500, 0.0, {"first_byte": PATIENCE, "idle": 2.0})],
)
async def test_a_stream_that_is_taken_up_may_be_as_late_and_as_silent_as_any(
    retry: int, silence: float, limits: dict[str, float]
) -> None:
    def again(_: Request) -> Reply:
        (sent,) = [one.json["id"] for one in server.requests if one.body and one.json.get("method") == "tools/call"]
        answer = b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":[]}}\n\n' % sent
        return stream_reply(b"", answer, delay=silence)

    old = LegacyServer()
    old.results = {"tools/call": lambda _: stream_reply(b"id: 1\nretry: %d\ndata:\n\n" % retry), "GET": again}
    async with connected(old, options=OLDEST, total=PATIENCE, **limits) as (client, server):
        assert (await client.call_tool("t", ARGUMENTS)).result == b'{"content":[]}'


async def test_only_the_whole_limit_ends_a_wait_that_a_server_asked_for() -> None:
    old = LegacyServer(results={"tools/call": lambda _: stream_reply(b"id: 1\nretry: 60000\ndata:\n\n")})
    async with connected(old, options=OLDEST, idle=1.0) as (client, _):
        # The handshake is no part of what is to run out.
        await client.list_tools()
        with pytest.raises(TimeLimitError) as caught:
            await client.call_tool("t", ARGUMENTS, CallOptions(timeout=2.0))
    assert (caught.value.limit, caught.value.delivery) == ("total", Delivery.UNKNOWN)


@pytest.mark.parametrize("event_id", ["\u00e9\u4e2d", "a b\tc"])
async def test_a_stream_is_taken_up_after_an_event_of_any_id_that_a_header_can_hold(event_id: str) -> None:
    def again(request: Request) -> Reply:
        (sent,) = [one.json["id"] for one in server.requests if one.body and one.json.get("method") == "tools/call"]
        resumed.append((request.header("Last-Event-ID") or "").encode("latin-1").decode())
        return stream_reply(b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":[]}}\n\n' % sent)

    resumed: list[str] = []
    cut = b"id: %b\nretry: 1\ndata:\n\n" % event_id.encode()
    old = LegacyServer(results={"tools/call": lambda _: stream_reply(cut), "GET": again})
    async with connected(old, options=OLDEST) as (client, server):
        await client.call_tool("t", ARGUMENTS)
    assert resumed == [event_id]


@pytest.mark.parametrize("event_id", [b"\x01", b"\xff", b"  a", b"a\x7f"])
async def test_a_stream_is_not_taken_up_after_an_event_whose_id_no_header_can_hold(event_id: bytes) -> None:
    old = LegacyServer(results={"tools/call": lambda _: stream_reply(b"id: " + event_id + b"\nretry: 1\ndata:\n\n")})
    async with connected(old, options=OLDEST) as (client, server):
        with pytest.raises(ConnectionLostError):
            await client.call_tool("t", ARGUMENTS)
        assert "GET" not in [request.method for request in server.requests]


async def test_the_end_of_a_session_does_not_wait_for_a_token_that_does_not_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Authorizer:
        context, silent = 0, False

        async def header(self) -> tuple[str, str]:
            if self.silent:
                await asyncio.Event().wait()
            return "Authorization", "Bearer t"

        async def refused(self, *_: object) -> bool:
            return False

        async def close(self) -> None:
            """Nothing is under way."""

    monkeypatch.setattr(_http, "ASIDE", _http.ASIDE.narrowed(0.05))
    old, authorizer = LegacyServer(), Authorizer()
    async with connected(old, options=OLDEST, authorizer=authorizer) as (client, _):
        await client.call_tool("t", ARGUMENTS)
        authorizer.silent = True
        await asyncio.wait_for(client.close(), PATIENCE)
    assert old.opened == 1
    assert not old.ended


async def test_a_modern_stream_is_never_taken_up() -> None:
    async with connected(modern({"tools/call": lambda _: stream_reply(b"id: 1\nretry: 1\ndata:\n\n")})) as (
        client,
        server,
    ):
        with pytest.raises(McpError):
            await client.call_tool("t", ARGUMENTS)
        assert [request.method for request in server.requests] == ["POST"]


async def test_a_batch_is_taken_apart_in_the_one_revision_that_has_them() -> None:
    def batch(request: Request) -> Reply:
        return json_reply(
            b'[{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":%d,"result":{"n":1.10}}]'
            % request.json["id"]
        )

    old = LegacyServer(revisions=["2025-03-26"], results={"tools/call": batch})
    async with connected(old, options=OLDEST) as (client, _):
        assert (await client.call_tool("t", ARGUMENTS)).result == b'{"n":1.10}'
    newer = LegacyServer(revisions=["2025-06-18"], results={"tools/call": batch})
    async with connected(newer, options=OLDEST) as (client, _):
        with pytest.raises(MalformedAnswerError, match="not a JSON object"):
            await client.call_tool("t", ARGUMENTS)


async def test_what_comes_in_a_batch_beside_the_answer_is_heard() -> None:
    told: list[Any] = []

    def batch(request: Request) -> Reply:
        note = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":3}}'
        answer = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}'
        ping = b'{"jsonrpc":"2.0","id":"p","method":"ping"}'
        number = request.json["id"]
        old.notified.clear()
        return json_reply(b"[%b,%b,%b]" % (note % number, answer % number, ping))

    old = LegacyServer(revisions=["2025-03-26"], results={"tools/call": batch})
    async with connected(old, options=OLDEST) as (client, server):
        await client.call_tool("t", ARGUMENTS, CallOptions(on_progress=told.append))
        await asyncio.wait_for(old.notified.wait(), PATIENCE)
        assert server.requests[-1].json == {"jsonrpc": "2.0", "id": "p", "result": {}}
    assert [one.progress for one in told] == [3]


async def test_progress_of_an_older_server_is_told_too() -> None:
    told: list[Any] = []

    def reply(request: Request) -> Reply:
        token = request.json["params"]["_meta"]["progressToken"]
        note = jsontext.encode(
            {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 3}}
        )
        return _asking(note)(request)

    old = LegacyServer(results={"tools/call": reply})
    async with connected(old, options=OLDEST) as (client, _):
        await client.call_tool("t", ARGUMENTS, CallOptions(on_progress=told.append))
    assert [one.progress for one in told] == [3]


async def test_a_result_type_means_nothing_in_a_revision_without_them() -> None:
    old = LegacyServer(results={"tools/call": b'{"resultType":"teleport","content":[]}'})
    async with connected(old, options=OLDEST) as (client, _):
        assert (await client.call_tool("t", ARGUMENTS)).result == b'{"resultType":"teleport","content":[]}'


async def test_a_question_beside_requests_comes_on_a_stream_of_its_own_where_there_is_someone_to_ask() -> None:
    asked = b'data: {"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{"message":"Who?"}}\n\n'
    old = LegacyServer(results={"GET": lambda _: stream_reply(b"id: 1\nretry: 1\ndata:\n\n", asked, stall="body")})
    heard: list[tuple[str, bytes]] = []

    async def answer(method: str, params: bytes) -> bytes:
        heard.append((method, params))
        return b'{"action":"decline"}'

    async with connected(old, options={**OLDEST, "on_input": answer}) as (client, server):
        await client.list_tools()
        async with asyncio.timeout(PATIENCE):
            while "response" not in _methods(server):
                old.notified.clear()
                await old.notified.wait()
        (reply,) = [one.json for one in server.requests if one.body and "method" not in one.json]
        (initialize,) = [one.json for one in server.requests if one.body and one.json.get("method") == "initialize"]
    assert heard == [("elicitation/create", b'{"message":"Who?"}')]
    assert reply == {"jsonrpc": "2.0", "id": 5, "result": {"action": "decline"}}
    assert initialize["params"]["capabilities"] == {"elicitation": {"form": {}}}


@pytest.mark.parametrize(("retry", "waits"), [(0, 0.05), (86_400_000, 60.0)])
async def test_that_stream_is_opened_again_neither_at_once_nor_never(
    retry: int, waits: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    real, rested = asyncio.sleep, asyncio.Event()

    async def sleep(seconds: float) -> None:
        waited.append(seconds)
        rested.set()
        await real(0.01)

    async def answer(_: str, __: bytes) -> bytes:
        return b"{}"

    monkeypatch.setattr(_standing, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": sleep}))
    old = LegacyServer(results={"GET": lambda _: stream_reply(b"id: 1\nretry: %d\ndata:\n\n" % retry)})
    async with connected(old, options={**OLDEST, "on_input": answer}) as (client, _):
        await client.list_tools()
        await asyncio.wait_for(rested.wait(), PATIENCE)
    assert waited[0] == waits


async def test_a_server_without_such_a_stream_is_none_the_worse_for_it() -> None:
    async def answer(_: str, __: bytes) -> bytes:
        return b"{}"

    old = LegacyServer()
    async with connected(old, options={**OLDEST, "on_input": answer}) as (client, server):
        for _ in range(3):
            await client.list_tools()
        assert [request.method for request in server.requests].count("GET") <= 1
    assert old.ended == ["session-1"]


async def test_a_redirect_of_a_stream_that_is_taken_up_does_not_undo_what_was_sent() -> None:
    def again(request: Request) -> Reply | None:
        return Reply(status=307, headers=[("Location", "/moved")]) if request.path == "/mcp" else None

    cut = stream_reply(b"id: 1\nretry: 1\ndata:\n\n")
    old = LegacyServer(results={"tools/call": lambda _: cut, "GET": again})
    async with connected(old, options=OLDEST, idle=1.0, total=3.0) as (client, _):
        with pytest.raises(McpError) as caught:
            await client.call_tool("t", ARGUMENTS)
    assert caught.value.delivery is Delivery.UNKNOWN


async def test_to_end_a_session_leaves_the_stream_of_the_next_one_open() -> None:
    async def answer(_: str, __: bytes) -> bytes:
        return b"{}"

    old = LegacyServer(results={"GET": lambda _: stream_reply(b"id: 1\ndata:\n\n", stall="body")})
    old.results["tools/call"] = lambda request: error_reply(request, -32000, "no session for you", status=400)
    async with connected(old, options={**OLDEST, "on_input": answer}) as (client, _):
        with pytest.raises(RpcError):
            await client.call_tool("t", ARGUMENTS)
        async with asyncio.timeout(PATIENCE):
            while not old.ended:
                await client.list_tools()
        assert client._wire._standing is not None
        assert not client._wire._standing._task.done()
