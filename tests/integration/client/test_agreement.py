"""To agree with an older server costs no call its safety, and nobody more sessions than one."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from openwop_mcp.client import CallOptions, McpClient
from openwop_mcp.client import _conversation as conversations
from openwop_mcp.client import _http as https
from openwop_mcp.client import _negotiation as negotiations
from openwop_mcp.client._wire import SizeLimits
from openwop_mcp.client.stdio import StdioWire
from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import HttpStatusError, InvalidRequestError, McpError, RpcError
from openwop_mcp.redaction import Redactor
from tests.support.fake_server import Reply, Request, error_reply, modern, notice_event, result_reply
from tests.support.legacy_server import LegacyServer
from tests.support.mcp_client import ARGUMENTS, connected, json_reply, stream_reply
from tests.support.patience import PATIENCE

OLDEST = {"floor": "2025-03-26"}

PROGRAM = """
import json, sys
def out(value): print(json.dumps(value), flush=True)
def ok(message, result): out({"jsonrpc": "2.0", "id": message["id"], "result": result})
INIT = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}
lines = (json.loads(line) for line in sys.stdin)
for message in lines:
    method = message.get("method")
    if method == "server/discover":
        %s
    elif method == "initialize":
        %s
        ok(message, INIT)
    elif "id" in message and method:
        ok(message, {"content": []})
"""


@contextlib.asynccontextmanager
async def _program(tmp_path: Path, probed: str, greeted: str = "pass", **limits: float) -> AsyncIterator[McpClient]:
    """A program of before 2026-07-28 that does this when it is probed, and that before it agrees."""
    file = tmp_path / "server.py"
    file.write_text(PROGRAM % (probed, greeted), encoding="utf-8")
    wire = StdioWire("old", [sys.executable, str(file)], {}, sizes=SizeLimits(1024**2, 1024**2), redactor=Redactor(()))
    times = Timeouts(**{"connect": 10.0, "first_byte": 10.0, "idle": 10.0, "total": 20.0, **limits})
    client = McpClient(wire, timeouts=times, client_info=b'{"name":"t","version":"1"}', floor="2025-03-26")
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.parametrize("sessions", [True, False])
@pytest.mark.parametrize(
    ("code", "status"),
    [
        *[(code, 400) for code in (-32603, -32602, -32601, -32002, -32042, 7)],
        *[(code, 404) for code in (-32603, -32602, -32601, -32002)],
        *[(code, 200) for code in (-32000, -32020, -32021, -32022)],
        (-32021, 500),
    ],
)
async def test_what_an_older_server_says_of_a_call_is_not_taken_for_a_dead_session(
    sessions: bool, code: int, status: int
) -> None:
    old = LegacyServer(sessions=sessions)
    old.results["tools/call"] = lambda request: error_reply(request, code, "broke half-way", status=status)
    async with connected(old, options=OLDEST) as (client, _):
        with pytest.raises(RpcError) as caught:
            await client.call_tool("t", ARGUMENTS)
    assert caught.value.delivery is Delivery.ANSWERED
    assert old.seen.count("tools/call") == 1
    assert "tools/list" not in old.seen
    assert old.opened == 1


@pytest.mark.parametrize("code", [-32000, -32001, -32600])
@pytest.mark.parametrize("status", [400, 404])
async def test_a_dead_session_is_known_by_what_real_servers_call_it(code: int, status: int) -> None:
    old = LegacyServer()
    refusals = [(code, status)]

    def once(request: Request) -> Reply:
        if refusals:
            return error_reply(request, refusals[0][0], "no session", status=refusals.pop()[1])
        return result_reply(request, b"{}")

    old.results["tools/call"] = once
    async with connected(old, options=OLDEST) as (client, _):
        await client.call_tool("t", ARGUMENTS)
    assert old.opened == 2


def in_use(old: LegacyServer, long: Callable[[Request], Reply]) -> asyncio.Event:
    """Have a server answer its tool `long` so, and know no session at the first call of another; set once called."""
    begun, refusals = asyncio.Event(), [-32000]

    def call(request: Request) -> Reply:
        if request.json["params"]["name"] == "long":
            begun.set()
            return long(request)
        if refusals:
            return error_reply(request, refusals.pop(), "no session for you", status=400)
        return result_reply(request, b"{}")

    old.results["tools/call"] = call
    return begun


async def test_a_session_that_is_replaced_is_ended_once_nothing_is_under_way_in_it() -> None:
    old, held = LegacyServer(), asyncio.Event()
    begun = in_use(
        old, lambda request: stream_reply(b": on it\n\n", held, b"data: %b\n\n" % result_reply(request, b"{}").body)
    )
    async with connected(old, options=OLDEST) as (client, _):
        long = asyncio.create_task(client.call_tool("long", ARGUMENTS))
        await begun.wait()
        await client.call_tool("t", ARGUMENTS)
        await client.call_tool("t", ARGUMENTS)
        assert (old.opened, old.ended) == (2, [])
        held.set()
        await long
        async with asyncio.timeout(PATIENCE):
            while not old.ended:
                await client.list_tools()
        assert old.ended == ["session-1"]
    assert old.ended == ["session-1", "session-2"]


async def test_an_error_of_a_session_that_was_replaced_does_not_bring_it_back() -> None:
    old, held, begun = LegacyServer(), asyncio.Event(), asyncio.Event()
    refusals = [-32000]

    async def handler(request: Request) -> Reply | None:
        if request.body and request.json.get("method") == "tools/call":
            if request.json["params"]["name"] == "long":
                begun.set()
                await held.wait()
                return error_reply(request, -32602, "no such tool", status=400)
            if refusals:
                return error_reply(request, refusals.pop(), "no session for you", status=400)
        return await old(request)

    async with connected(handler, options=OLDEST) as (client, server):
        long = asyncio.create_task(client.call_tool("long", ARGUMENTS))
        await begun.wait()
        await client.call_tool("t", ARGUMENTS)
        held.set()
        with pytest.raises(RpcError):
            await long
        await client.call_tool("t", ARGUMENTS)
        assert server.requests[-1].header("Mcp-Session-Id") == "session-2"
    assert old.opened == 2


async def test_a_client_that_is_closed_ends_the_sessions_that_are_still_in_use() -> None:
    old = LegacyServer()
    begun = in_use(old, lambda _: Reply(stall="head"))
    async with connected(old, options=OLDEST) as (client, _):
        long = asyncio.create_task(client.call_tool("long", ARGUMENTS))
        await begun.wait()
        await client.call_tool("t", ARGUMENTS)
        await client.close()
        assert sorted(old.ended) == ["session-1", "session-2"]
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long


UNPROBED = {"503": Reply(status=503), "429": Reply(status=429), "silence": Reply(stall="head"), "nothing": None}


@pytest.mark.parametrize("floor", ["2026-07-28", "2025-03-26"])
@pytest.mark.parametrize("probed", UNPROBED)
async def test_an_answer_that_may_be_a_refusal_stands_where_that_cannot_be_found_out(probed: str, floor: str) -> None:
    def call(request: Request) -> Reply:
        agreed.append(True)
        return error_reply(request, -32000, "charged the card, then failed", status=400)

    agreed: list[bool] = []
    server = modern({"tools/call": call})

    async def handler(request: Request) -> Reply | None:
        down = agreed and request.json["method"] == "server/discover"
        return UNPROBED[probed] if down else await server(request)

    async with connected(handler, options={"floor": floor}, first_byte=2.0) as (client, fake):
        with pytest.raises(RpcError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert [one.json["method"] for one in fake.requests].count("tools/call") == 1
    assert (caught.value.rpc_code, caught.value.delivery) == (-32000, Delivery.ANSWERED)


@pytest.mark.parametrize("status", [400, 409, 422])
async def test_a_doubt_is_not_taken_away_by_a_probe_that_fails(status: int) -> None:
    called: list[bool] = []

    def call(_: Request) -> Reply:
        called.append(True)
        return Reply(status=status)

    server = modern({"tools/call": call})

    async def handler(request: Request) -> Reply | None:
        down = called and request.json["method"] == "server/discover"
        return Reply(status=503) if down else await server(request)

    async with connected(handler, options=OLDEST) as (client, _):
        with pytest.raises(HttpStatusError) as caught:
            await client.call_tool("t", ARGUMENTS)
    assert (caught.value.status, caught.value.delivery) == (status, Delivery.UNKNOWN)
    assert len(called) == 1


@pytest.mark.parametrize("status", [400, 404])
async def test_a_call_of_a_dead_session_was_not_processed_where_no_other_can_be_had(status: int) -> None:
    old = LegacyServer(dead=status)

    async def handler(request: Request) -> Reply | None:
        restarting = old.opened and request.body and request.json.get("method") == "initialize"
        return Reply(status=503) if restarting else await old(request)

    async with connected(handler, options=OLDEST) as (client, _):
        await client.call_tool("t", ARGUMENTS)
        old.live.clear()
        with pytest.raises(McpError) as caught:
            await client.call_tool("t", ARGUMENTS)
    assert (caught.value.delivery, caught.value.retryable) == (Delivery.NOT_PROCESSED, True)


class _Noted:
    """An older server that takes note of `notifications/initialized` as it is told, and no call without."""

    def __init__(self, *replies: Reply | None, strict: bool = True) -> None:
        self.replies, self.strict = list(replies), strict
        self.old, self.ready = LegacyServer(), set[str | None]()

    async def __call__(self, request: Request) -> Reply | None:
        method, session = request.body and request.json.get("method"), request.header("Mcp-Session-Id")
        if method == "notifications/initialized" and self.replies:
            return self.replies.pop(0)
        if method == "notifications/initialized":
            self.ready.add(session)
        if method == "tools/call" and self.strict and session not in self.ready:
            return error_reply(request, -32602, "Received request before initialization was complete")
        return await self.old(request)


async def test_a_server_has_time_to_hear_that_a_handshake_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https, "ASIDE", https.ASIDE.narrowed(0.05))
    server = _Noted()

    async def slow(request: Request) -> Reply | None:
        if request.body and request.json.get("method") == "notifications/initialized":
            await asyncio.sleep(0.2)
        return await server(request)

    async with connected(slow, options=OLDEST) as (client, _):
        await client.call_tool("t", ARGUMENTS)
    assert server.old.opened == 1


@pytest.mark.parametrize(
    "reply", [None, Reply(stall="head"), *(Reply(status=status) for status in (401, 403, 429, 502, 503, 504))]
)
async def test_a_handshake_that_the_server_did_not_hear_to_the_end_fails_and_is_made_anew(reply: Reply | None) -> None:
    server = _Noted(reply)
    async with connected(server, options=OLDEST, first_byte=2.0) as (client, _):
        with pytest.raises(McpError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert caught.value.delivery is Delivery.NOT_SENT
        await client.call_tool("t", ARGUMENTS)
    assert sorted(server.old.ended) == ["session-1", "session-2"]


@pytest.mark.parametrize(
    "reply",
    [
        *(Reply(status=status, body=b"x" * 5000) for status in (200, 400, 404, 405, 500)),
        Reply(status=204),
        json_reply(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"Method not found"}}'),
        stream_reply(b": on it\n\n", stall="body"),
    ],
)
async def test_a_server_may_answer_a_notification_as_oddly_as_it_likes(reply: Reply) -> None:
    server = _Noted(reply, strict=False)
    async with connected(server, options=OLDEST) as (client, _):
        await client.call_tool("t", ARGUMENTS)
    assert server.old.opened == 1


async def test_a_session_is_replaced_once_for_a_call_and_the_one_before_is_ended() -> None:
    old = LegacyServer()
    old.results["tools/call"] = lambda request: error_reply(request, -32000, "no session for you", status=400)
    async with connected(old, options=OLDEST) as (client, _):
        with pytest.raises(RpcError):
            await client.call_tool("t", ARGUMENTS)
    assert old.seen.count("tools/call") == 2
    assert old.opened == 2
    assert not old.live


@pytest.mark.parametrize("session", [None, "the-only-one"])
async def test_terms_that_are_agreed_on_anew_word_for_word_are_no_circle(session: str | None) -> None:
    old = LegacyServer(sessions=False)
    old.results["tools/call"] = lambda request: error_reply(request, -32020, "a header is missing", status=400)

    async def handler(request: Request) -> Reply | None:
        reply = await old(request)
        if reply is not None and session is not None and request.body and request.json.get("method") == "initialize":
            return Reply(headers=[*reply.headers, ("Mcp-Session-Id", session)], chunks=reply.chunks)
        return reply

    async with connected(handler, options=OLDEST) as (client, server):
        with pytest.raises(RpcError):
            async with asyncio.timeout(PATIENCE):
                await client.call_tool("t", ARGUMENTS)
        assert [request.method for request in server.requests].count("DELETE") == 0
    assert old.seen.count("tools/call") == 2
    assert old.opened == 2


@pytest.mark.parametrize("capabilities", ["null", "[]", '"x"', "1"])
async def test_capabilities_that_are_none_are_no_capabilities(capabilities: str) -> None:
    async with connected(LegacyServer(capabilities=capabilities), options=OLDEST) as (client, _):
        with pytest.raises(InvalidRequestError, match="'tools'"):
            await client.list_tools()


@pytest.mark.parametrize(
    "refusal", [lambda request: error_reply(request, -32602, "no such level"), lambda _: Reply(stall="head")]
)
async def test_a_log_level_that_is_not_taken_holds_up_no_call(refusal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "SET_LEVEL", 0.05)
    old = LegacyServer(results={"logging/setLevel": refusal})
    async with connected(old, options={**OLDEST, "log_level": "info"}) as (client, _):
        await client.call_tool("t", ARGUMENTS)
    assert old.opened == 1


async def test_calls_that_are_told_of_an_older_revision_at_once_make_one_handshake() -> None:
    old, upgraded = LegacyServer(), modern()
    back = False

    async def handler(request: Request) -> Reply | None:
        if request.method != "POST" or b"io.modelcontextprotocol/protocolVersion" not in request.body:
            return await old(request)
        if back:
            return error_reply(request, -32022, "v", {"supported": ["2025-11-25"]}, status=400)
        return await upgraded(request)

    async with connected(handler, options=OLDEST) as (client, _):
        await client.call_tool("t", ARGUMENTS)
        back = True
        await asyncio.gather(*(client.call_tool("t", ARGUMENTS) for _ in range(20)))
    assert old.opened == 1
    assert not old.live


async def test_a_call_that_gives_up_meanwhile_leaves_the_agreement_to_the_next() -> None:
    old, held = LegacyServer(), asyncio.Event()

    async def handler(request: Request) -> Reply | None:
        if request.body and request.json.get("method") == "notifications/initialized":
            await held.wait()
        return await old(request)

    async with connected(handler, options=OLDEST) as (client, _):
        for _ in range(3):
            with pytest.raises(McpError):
                await client.call_tool("t", ARGUMENTS, CallOptions(timeout=0.05))
        held.set()
        await client.call_tool("t", ARGUMENTS)
    assert old.opened == 1
    assert not old.live


async def test_a_changed_list_voids_what_is_known_of_its_tools() -> None:
    page = b'{"tools":[{"name":"t","inputSchema":{"type":"object","required":["missing"]}}]}'

    def told(request: Request) -> Reply:
        answer = b'data: {"jsonrpc":"2.0","id":%d,"result":{"contents":[]}}\n\n' % request.json["id"]
        return stream_reply(notice_event("tools/list_changed"), answer)

    handler = modern({"tools/list": page, "resources/read": told})
    async with connected(handler, options={"validate": "refuse"}) as (client, _):
        await client.list_tools()
        with pytest.raises(InvalidRequestError):
            await client.call_tool("t", ARGUMENTS)
        await client.read_resource("a://1")
        await client.call_tool("t", ARGUMENTS)


@pytest.mark.parametrize(
    "note",
    [
        b'"method":"notifications/progress","params":{"progressToken":%d,"progress":1,"message":"\xff"}',
        b'"method":"notifications/message","params":{"level":"error\xff","data":"%d"}',
        b'"method":"notifications/resources/updated","params":{"uri":"\xff%d"}',
        b'"method":"notifications/\xff%d"',
    ],
)
async def test_a_notification_that_is_not_sound_is_passed_over(note: bytes) -> None:
    def reply(request: Request) -> Reply:
        number = request.json["id"]
        answer = b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":[]}}\n\n' % number
        return stream_reply(b'data: {"jsonrpc":"2.0",' + note % number + b"}\n\n", answer)

    heard: list[Any] = []
    async with connected(modern({"tools/call": reply}), options={"log_level": "debug"}) as (client, _):
        await client.call_tool("t", ARGUMENTS, CallOptions(on_progress=heard.append))
    assert heard == []


async def test_an_older_servers_questions_are_answered_a_few_at_a_time() -> None:
    def flood(request: Request) -> Reply:
        pings = b"".join(b'data: {"jsonrpc":"2.0","id":%d,"method":"ping"}\n\n' % number for number in range(500))
        return stream_reply(pings, b'data: {"jsonrpc":"2.0","id":%d,"result":{"content":[]}}\n\n' % request.json["id"])

    old = LegacyServer(results={"tools/call": flood})
    async with connected(old, options=OLDEST) as (client, server):
        await client.call_tool("t", ARGUMENTS)
        assert len(client._conversation._replies) <= conversations.MAX_REPLIES
    assert sum(b"result" in one.body for one in server.requests) <= conversations.MAX_REPLIES


async def test_an_older_program_that_is_silent_when_probed_is_met_however_short_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(negotiations, "STDIO_PATIENCE", 0.3)
    async with _program(tmp_path, "pass") as client:
        with pytest.raises(McpError):
            await client.call_tool("t", ARGUMENTS, CallOptions(timeout=0.1))
        await client.call_tool("t", ARGUMENTS)


async def test_an_older_program_that_ends_when_probed_is_not_probed_again(tmp_path: Path) -> None:
    async with _program(tmp_path, "sys.exit(1)") as client:
        assert (await client.call_tool("t", ARGUMENTS)).revision == "2025-11-25"
        await client.call_tool("t", ARGUMENTS)


async def test_a_programs_ping_is_answered_before_it_agrees(tmp_path: Path) -> None:
    refuse = 'out({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})'
    ping = 'out({"jsonrpc": "2.0", "id": "p", "method": "ping"}); next(one for one in lines if one.get("id") == "p")'
    async with _program(tmp_path, refuse, ping) as client:
        await client.call_tool("t", ARGUMENTS)
