"""To agree with an older server costs no call its safety, and nobody more sessions than one."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from openwop_mcp.client import CallOptions, McpClient
from openwop_mcp.client import _conversation as conversations
from openwop_mcp.client import _negotiation as negotiations
from openwop_mcp.client._wire import SizeLimits
from openwop_mcp.client.stdio import StdioWire
from openwop_mcp.config import Timeouts
from openwop_mcp.errors import InvalidRequestError, McpError, RpcError
from openwop_mcp.redaction import Redactor
from tests.support.fake_server import Reply, Request, error_reply, modern, notice_event
from tests.support.legacy_server import LegacyServer
from tests.support.mcp_client import ARGUMENTS, connected, stream_reply

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
async def test_what_failed_in_the_server_is_not_taken_for_a_dead_session(sessions: bool) -> None:
    old = LegacyServer(sessions=sessions)
    old.results["tools/call"] = lambda request: error_reply(request, -32603, "broke half-way", status=400)
    async with connected(old, options=OLDEST) as (client, _):
        with pytest.raises(RpcError):
            await client.call_tool("t", ARGUMENTS)
    assert old.seen.count("tools/call") == 1
    assert old.opened == 1


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
            async with asyncio.timeout(5):
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
