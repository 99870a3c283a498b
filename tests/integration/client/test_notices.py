"""What a server says beside its answer: progress that is sound, and log messages that are wanted and not too many."""

from __future__ import annotations

import asyncio
import json
import logging
import sys

import pytest

from openwop_mcp.client import CallOptions, Clients, Progress
from openwop_mcp.client._notices import LEVELS, MAX_LOGGED
from openwop_mcp.config import Settings
from tests.support.fake_server import notice_event
from tests.support.mcp_client import ARGUMENTS, CLIENT_INFO, connected, replies, stream_reply

ANSWER = b'data: {"jsonrpc":"2.0","id":1,"result":{}}\n\n'
LOGGER = "openwop_mcp.messages"
PYTHON = [sys.executable, "-I", "-S", "-c"]

SAYING = """
import json, sys

held = []
for line in sys.stdin:
    asked = json.loads(line)
    result = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"completions": {}}}
    if asked["method"] == "completion/complete":
        held.append(asked["id"])
        if asked["params"]["ref"] == "wait":
            continue
        for level in ("debug", "info", "error"):
            params = {"level": level, "data": level}
            print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params}), flush=True)
    for one in (*held, *([] if held else [asked["id"]])):
        print(json.dumps({"jsonrpc": "2.0", "id": one, "result": result}), flush=True)
    held.clear()
"""
"""A server that says three things to each request, and before that lets those wait that are to."""

PINGING = """
import json, sys

def tell(**members):
    print(json.dumps({"jsonrpc": "2.0", **members}), flush=True)

for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "server/discover":
        tell(id=asked["id"], error={"code": -32601, "message": "no such method"})
    elif asked["method"] == "initialize":
        said = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        tell(id=asked["id"], result={**said, "serverInfo": {"name": "pinging", "version": "1"}})
    elif asked["method"] == "tools/list":
        tell(id="p", method="ping")
        tell(id=asked["id"], result={"tools": [], "told": json.loads(sys.stdin.readline())})
"""
"""A server of an older revision that answers only once its ping is answered."""


@pytest.fixture(autouse=True)
def everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, LOGGER)


def _said(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    return [(record.levelno, record.getMessage()) for record in caplog.records if record.name == LOGGER]


async def test_progress_is_told_where_it_is_of_this_request_and_a_number() -> None:
    told: list[Progress] = []
    events = [
        notice_event("progress", progressToken=1, progress=1, total=4, message="a\nb\u202e"),
        notice_event("progress", progressToken=2, progress=2),
        notice_event("progress", progressToken="1", progress=2),
        notice_event("progress", progressToken=1, progress="2"),
        notice_event("progress", progressToken=1, progress=True),
        notice_event("progress", progressToken=1),
        b'data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1e999}}\n\n',
        notice_event("progress", progressToken=1, progress=2.5, total="four", message=7),
        notice_event("progress", progressToken=1, progress=3, message="x" * 1000),
    ]
    async with connected(replies(stream_reply(*events, ANSWER))) as (client, _):
        await client.call_tool("t", ARGUMENTS, CallOptions(on_progress=told.append))
    assert told == [
        Progress(1, 4, "a\\u{a}b\\u{202e}"),
        Progress(2.5),
        Progress(3, None, "x" * 199 + "…"),
    ]


async def test_a_credential_that_comes_back_as_progress_or_in_a_log_message_is_not_passed_on(caplog) -> None:
    told: list[Progress] = []
    events = [
        notice_event("progress", progressToken=1, progress=1, message="with hunter2-hunter2"),
        notice_event("message", level="error", data="with hunter2-hunter2"),
    ]
    options = CallOptions(on_progress=told.append, log_level="debug")
    headers = [("Authorization", "Bearer hunter2-hunter2")]
    async with connected(replies(stream_reply(*events, ANSWER)), headers=headers) as (client, _):
        await client.call_tool("t", ARGUMENTS, options)
    assert told[0].message is not None
    [(_, said)] = _said(caplog)
    for text in (told[0].message, said):
        assert "with " in text
        assert "hunter2" not in text


@pytest.mark.parametrize("level", LEVELS)
async def test_log_messages_come_from_the_level_on_that_was_asked_for_and_at_their_own(caplog, level) -> None:
    events = [notice_event("message", level=name, data=name) for name in LEVELS]
    async with connected(replies(stream_reply(*events, ANSWER))) as (client, server):
        await client.call_tool("t", ARGUMENTS, CallOptions(log_level=level))
        assert server.requests[0].json["params"]["_meta"]["io.modelcontextprotocol/logLevel"] == level
    wanted = list(LEVELS)[list(LEVELS).index(level) :]
    assert _said(caplog) == [(LEVELS[name], f'server says: "{name}"') for name in wanted]


async def test_the_level_of_a_call_goes_before_that_of_its_server(caplog) -> None:
    events = [notice_event("message", level=name, data=name) for name in LEVELS]
    handler = replies(stream_reply(*events, ANSWER))
    async with connected(handler, options={"log_level": "debug"}) as (client, server):
        await client.call_tool("t", ARGUMENTS, CallOptions(log_level="emergency"))
        assert server.requests[0].json["params"]["_meta"]["io.modelcontextprotocol/logLevel"] == "emergency"
    assert _said(caplog) == [(logging.CRITICAL, 'server says: "emergency"')]


async def test_log_messages_that_nobody_asked_for_and_those_that_are_none_are_passed_over(caplog) -> None:
    unsound = [
        notice_event("message", level="loud", data=1),
        notice_event("message", level=7, data=1),
        notice_event("message", data=1),
        notice_event("message", level="error"),
    ]
    async with connected(replies(stream_reply(notice_event("message", level="error", data=1), ANSWER))) as (client, _):
        await client.call_tool("t", ARGUMENTS)
    async with connected(replies(stream_reply(*unsound, ANSWER))) as (client, _):
        await client.call_tool("t", ARGUMENTS, CallOptions(log_level="debug"))
    assert _said(caplog) == []


async def test_a_flood_of_log_messages_is_cut_with_one_line_that_says_so_and_each_request_counts_anew(caplog) -> None:
    flood = [notice_event("message", level="info", data=number) for number in range(3 * MAX_LOGGED)]

    def answered(number: int) -> bytes:
        return ANSWER.replace(b'"id":1', b'"id":%d' % number)

    handler = replies(lambda request: stream_reply(*flood, answered(request.json["id"])))
    async with connected(handler) as (client, _):
        for _ in range(2):
            caplog.clear()
            await client.call_tool("t", ARGUMENTS, CallOptions(log_level="info"))
            said = _said(caplog)
            assert said[:MAX_LOGGED] == [(logging.INFO, f"server says: {number}") for number in range(MAX_LOGGED)]
            [(level, text)] = said[MAX_LOGGED:]
            assert level == logging.WARNING
            assert str(MAX_LOGGED) in text
            assert "not shown" in text


async def test_log_messages_over_stdio_are_for_the_request_under_way_that_wants_to_know_most(caplog) -> None:
    settings = Settings.model_validate({"servers": {"local": {"command": [*PYTHON, SAYING]}}})
    async with Clients(settings, client_info=CLIENT_INFO, environ={}) as clients:
        client = clients["local"]
        await client.complete(b'{"ref":"now"}')
        assert _said(caplog) == []
        await asyncio.gather(
            client.complete(b'{"ref":"wait"}', CallOptions(log_level="info")),
            client.complete(b'{"ref":"now"}', CallOptions(log_level="critical")),
        )
        await client.complete(b'{"ref":"now"}')
    assert _said(caplog) == [(logging.INFO, 'local says: "info"'), (logging.ERROR, 'local says: "error"')]


async def test_a_ping_over_stdio_is_answered_where_the_revision_has_pings() -> None:
    old = {"command": [*PYTHON, PINGING], "minimum_revision": "2025-06-18"}
    settings = Settings.model_validate({"servers": {"old": old}})
    async with Clients(settings, client_info=CLIENT_INFO, environ={}) as clients:
        page = await clients["old"].list_tools()
    assert json.loads(page.result)["told"] == {"jsonrpc": "2.0", "id": "p", "result": {}}
