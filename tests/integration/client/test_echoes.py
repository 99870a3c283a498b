"""A server that sends its credential back in an answer gets it into no answer: it is left out, or the call fails."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from openwop_mcp import jsontext
from openwop_mcp.client import CallOptions, McpClient, Notice, Progress
from openwop_mcp.client._clients import Clients
from openwop_mcp.client._health import health
from openwop_mcp.config import Settings
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import EchoedCredentialError, McpError
from openwop_mcp.protocol.mrtr import Input
from tests.support.fake_server import Request, modern, notice_event
from tests.support.mcp_client import ARGUMENTS, connected, stream_reply

SECRET = "sk-plain/1234567890"
ECHO = SECRET.encode()
SHOWN = {"headers": [("Authorization", f"Bearer {SECRET}")]}
FAIL = {**SHOWN, "options": {"echoed_credentials": "fail", "name": "weather"}}

METHODS: dict[str, Any] = {
    "tools/call": lambda client: client.call_tool("t", ARGUMENTS),
    "tools/list": lambda client: client.list_tools(),
    "resources/list": lambda client: client.list_resources(),
    "resources/templates/list": lambda client: client.list_resource_templates(),
    "resources/read": lambda client: client.read_resource("file:///a"),
    "prompts/list": lambda client: client.list_prompts(),
    "prompts/get": lambda client: client.get_prompt("p", None),
    "completion/complete": lambda client: client.complete(b'{"ref":{},"argument":{}}'),
    "server/discover": lambda client: client.discover(),
}


def _complete(inner: bytes) -> bytes:
    return b'{ "resultType" : "complete","n":1.10,"echo":%b}' % inner


@pytest.mark.parametrize("method", METHODS)
async def test_an_answer_of_any_method_goes_on_without_it_and_says_so(method: str) -> None:
    result = _complete(b'["%b and \\u0073k-plain\\/1234567890","\\u00e9"]' % ECHO)
    async with connected(modern({method: result}), **SHOWN) as (client, _):
        exchange = await METHODS[method](client)
    assert exchange.result == _complete(b'["[credential] and [credential]","\\u00e9"]')
    assert exchange.redacted is not None
    assert (exchange.redacted.count, exchange.redacted.sha256) == (2, hashlib.sha256(result).hexdigest())


@pytest.mark.parametrize("method", METHODS)
async def test_an_answer_of_any_method_fails_where_that_is_wanted_and_nothing_repeats_it(method: str) -> None:
    result = _complete(b'"%b"' % ECHO)
    async with connected(modern({method: result}), **FAIL) as (client, server):
        with pytest.raises(EchoedCredentialError) as caught:
            await METHODS[method](client)
        assert len(server.requests) == 1
    error = caught.value
    assert (error.delivery, error.retryable) == (Delivery.ANSWERED, False)
    assert error.facts == {
        "service": "mcp",
        "setting": "servers.weather.echoed_credentials",
        "size": len(result),
        "sha256": hashlib.sha256(result).hexdigest(),
    }
    assert "servers.weather.echoed_credentials" in error.message
    assert SECRET not in f"{error!r} {error.facts}"


async def test_a_number_that_is_the_credential_fails_where_that_is_wanted() -> None:
    result = _complete(b"12345678901234")
    for padding in (b"", b" " * 300_000):
        headers = [("Authorization", "Bearer 12345678901234")]
        async with connected(modern({"tools/call": result + padding}), **{**FAIL, "headers": headers}) as (client, _):
            with pytest.raises(EchoedCredentialError, match=r"servers\.weather\.echoed_credentials"):
                await client.call_tool("t", ARGUMENTS)


async def test_an_answer_without_it_is_exact_and_says_nothing() -> None:
    result = _complete(b'"sk-plain/123456789 is not it"')
    for options in (SHOWN, FAIL):
        async with connected(modern({"tools/call": result}), **options) as (client, _):
            exchange = await client.call_tool("t", ARGUMENTS)
            assert (exchange.result, exchange.redacted) == (result, None)


async def test_a_blob_is_searched_as_well_and_a_large_answer_beside_the_other_calls() -> None:
    for before in range(3):
        blob = base64.b64encode(b"x" * (600_000 + before) + ECHO + b"\xff" * 1000)
        result = b'{"resultType":"complete","contents":[{"uri":"file:///a","blob":"%b"}]}' % blob
        async with connected(modern({"resources/read": result}), **SHOWN) as (client, _):
            exchange = await client.read_resource("file:///a")
            assert exchange.redacted is not None
            assert exchange.result.count(b"[credential]") == exchange.redacted.count == 1
            jsontext.check(exchange.result)


async def test_what_is_remembered_of_an_answer_is_without_it_too() -> None:
    page = b'{"resultType":"complete","tools":[],"ttlMs":60000,"cacheScope":"private","hint":"%b"}' % ECHO
    async with connected(modern({"tools/list": page}), **SHOWN) as (client, server):
        first, second = await client.list_tools(), await client.list_tools()
        assert len(server.requests) == 1
    assert second.cached
    assert second.result == first.result == page.replace(ECHO, b"[credential]")
    assert second.redacted == first.redacted


async def test_health_tells_of_it_and_does_not_repeat_it() -> None:
    said = b'{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"instructions":"%b"}' % ECHO
    async with connected(modern({"server/discover": said}), **SHOWN) as (client, _):
        exchange = await health(client)
    assert exchange.redacted is not None
    assert json.loads(exchange.result)["state"] == "reachable"
    assert ECHO not in exchange.result


async def test_the_verdict_on_structured_content_is_that_on_what_is_kept() -> None:
    tool = {
        "name": "t",
        "inputSchema": {"type": "object"},
        "outputSchema": {"type": "object", "properties": {"key": {"const": SECRET}}},
    }
    page = json.dumps({"resultType": "complete", "tools": [tool]}).encode().replace(ECHO, b"sk-\\u0070lain/123456789X")
    result = b'{"resultType":"complete","content":[],"structuredContent":{"key":"%b"}}' % ECHO
    async with connected(modern({"tools/list": page, "tools/call": result}), **SHOWN) as (client, _):
        await client.list_tools()
        exchange = await client.call_tool("t", ARGUMENTS)
    assert exchange.verdict is not None
    assert exchange.verdict.state == "mismatch"
    assert SECRET not in f"{exchange.verdict}"


FORM = (
    b'{"method":"elicitation/create","params":{"message":"%b","requestedSchema":{"type":"object","properties":{%b}}}}'
)
URL = b'{"method":"elicitation/create","params":{"mode":"url","message":"go","url":"%b","elicitationId":"1"}}'


def _asks(key: bytes, request: bytes, state: bytes = b"e30") -> bytes:
    return b'{"resultType":"input_required","inputRequests":{"%b":%b},"requestState":"%b"}' % (key, request, state)


@pytest.mark.parametrize(
    "options", [CallOptions(suspends=True), CallOptions(input=Input(1, None, None), suspends=True)]
)
async def test_a_question_is_asked_without_it(options: CallOptions) -> None:
    asks = _asks(b"q", FORM % (b"is %b yours?" % ECHO, b'"a":{"type":"string"}'))
    async with connected(modern({"tools/call": asks}), **SHOWN) as (client, _):
        exchange = await client.call_tool("t", ARGUMENTS, options)
    assert exchange.questions is not None
    assert exchange.questions.requests["q"].params.startswith(b'{"message":"is [credential] yours?"')
    assert exchange.questions.state == b'"e30"'
    assert exchange.redacted is not None


@pytest.mark.parametrize(
    "asks",
    [
        _asks(b"q", FORM % (b"?", b""), ECHO),
        _asks(b"q", FORM % (b"?", b""), base64.b64encode(b"{" + ECHO + b"}")),
        _asks(ECHO, FORM % (b"?", b"")),
        _asks(b"q", FORM % (b"?", b'"%b":{"type":"string"}' % ECHO)),
        _asks(b"q", FORM % (b"?", b'"a":{"type":"string","enum":["%b"]}' % ECHO)),
        _asks(b"q", URL % (b"https://a.example/?token=%b" % ECHO)),
    ],
)
async def test_a_question_fails_where_what_goes_back_to_the_server_holds_it(asks: bytes) -> None:
    async with connected(modern({"tools/call": asks}), **SHOWN) as (client, server):
        with pytest.raises(EchoedCredentialError) as caught:
            await client.call_tool("t", ARGUMENTS, CallOptions(suspends=True))
        assert len(server.requests) == 1
    assert "has to go back to the server as it came" in caught.value.message
    assert SECRET not in f"{caught.value!r} {caught.value.facts}"


async def test_a_page_fails_whose_cursor_holds_it() -> None:
    page = b'{"resultType":"complete","tools":[],"nextCursor":"%b"}' % ECHO
    async with connected(modern({"tools/list": page}), **SHOWN) as (client, _):
        with pytest.raises(EchoedCredentialError):
            await client.list_tools()


async def test_an_answer_of_echoes_alone_fails() -> None:
    result = _complete(b'"%b"' % (ECHO * 100_001))
    async with connected(modern({"tools/call": result}), response_bytes=16 * 1024**2, **SHOWN) as (client, _):
        with pytest.raises(EchoedCredentialError, match="little else"):
            await client.call_tool("t", ARGUMENTS)


async def test_what_is_told_beside_an_answer_is_told_without_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[Progress] = []
    heard: list[Notice] = []

    def listening(request: Request) -> Any:
        number = request.json["id"]
        updated = {"uri": f"file:///{SECRET}", "_meta": {"io.modelcontextprotocol/subscriptionId": number}}
        return stream_reply(
            notice_event("progress", progressToken=number, progress=1, message=f"with {SECRET}"),
            notice_event("message", level="error", data={"said": SECRET}),
            notice_event("resources/updated", **updated),
            b"event: message\ndata: %b\n\n"
            % json.dumps({"jsonrpc": "2.0", "id": number, "result": {"resultType": "complete"}}).encode(),
        )

    async def handler(request: Request) -> Any:
        return listening(request)

    async with connected(handler, options={"log_level": "debug"}, **SHOWN) as (client, _):
        await client.call_tool("t", ARGUMENTS, CallOptions(on_progress=told.append, on_notice=heard.append))
    assert [one.message for one in told] == ["with [credential]"]
    assert [one.method for one in heard] == ["notifications/resources/updated"]
    assert b"file:///[credential]" in heard[0].params
    assert "[credential]" in caplog.text
    assert SECRET not in caplog.text


async def test_of_params_that_take_long_to_search_nothing_is_told_but_their_method() -> None:
    heard: list[Notice] = []

    async def handler(request: Request) -> Any:
        number = request.json["id"]
        subscribed = {"_meta": {"io.modelcontextprotocol/subscriptionId": number}}
        result = json.dumps({"jsonrpc": "2.0", "id": number, "result": {"resultType": "complete"}}).encode()
        return stream_reply(
            notice_event("resources/updated", uri="\\u0041" * 9_000, **subscribed),
            notice_event("resources/updated", uri="\\u0041" * 11_000, **subscribed),
            b"event: message\ndata: %b\n\n" % result,
        )

    async with connected(handler, **SHOWN) as (client, _):
        await client.call_tool("t", ARGUMENTS, CallOptions(on_notice=heard.append))
    assert [one.method for one in heard] == ["notifications/resources/updated"] * 2
    assert b"A" not in heard[0].params
    assert (b"u0041" in heard[0].params, heard[1].params) == (True, b"{}")


async def test_the_log_says_once_that_a_server_does_it(caplog: pytest.LogCaptureFixture) -> None:
    async with connected(modern({"tools/call": _complete(b'"%b"' % ECHO)}), **SHOWN) as (client, _):
        for _ in range(3):
            await client.call_tool("t", ARGUMENTS)
    assert [record.levelname for record in caplog.records if "sends a credential back" in record.getMessage()] == [
        "WARNING"
    ]
    assert SECRET not in caplog.text


SERVER = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    text = {name: os.environ[name] for name in ("TOKEN", "FOLDER")}
    sys.stderr.write(json.dumps(text) + chr(10))
    sys.stderr.flush()
    result = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}, "text": text}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


async def test_of_a_programs_variables_those_are_left_that_are_no_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "server.py").write_text(SERVER, encoding="utf-8")
    settings = Settings.model_validate(
        {
            "servers": {
                "box": {
                    "command": [sys.executable, str(tmp_path / "server.py")],
                    "environment": {"TOKEN": {"env": "BOX_TOKEN"}, "FOLDER": {"env": "BOX_FOLDER", "secret": False}},
                }
            }
        }
    )
    environ = {"BOX_TOKEN": SECRET, "BOX_FOLDER": "/srv/some/notes"}
    async with Clients(settings, client_info=b'{"name":"t","version":"1"}', environ=environ) as clients:
        exchange = await clients["box"].call_tool("t", ARGUMENTS)
    assert json.loads(exchange.result)["text"] == {"TOKEN": "[credential]", "FOLDER": "/srv/some/notes"}
    assert SECRET not in caplog.text
    assert "/srv/some/notes" in caplog.text


async def test_every_variable_of_a_program_is_looked_for_however_many_there_are(tmp_path: Path) -> None:
    secrets = {"TOKEN": SECRET, **{f"V{number:02}": f"value-of-variable-{number:02}" for number in range(40)}}
    (tmp_path / "server.py").write_text(SERVER.replace('("TOKEN", "FOLDER")', repr(tuple(secrets))), encoding="utf-8")
    environment = {name: {"env": name} for name in secrets}
    box = {"command": [sys.executable, str(tmp_path / "server.py")], "environment": environment}
    settings = Settings.model_validate({"servers": {"box": box}})
    async with Clients(settings, client_info=b'{"name":"t","version":"1"}', environ=secrets) as clients:
        exchange = await clients["box"].call_tool("t", ARGUMENTS)
    assert json.loads(exchange.result)["text"] == dict.fromkeys(secrets, "[credential]")


async def test_a_setting_decides_for_each_server() -> None:
    async with connected(modern({"tools/call": _complete(b'"%b"' % ECHO)}), **SHOWN) as (_, server):
        one = {"url": server.url, "network": "private", "credential": {"bearer": {"env": "TOKEN"}}}
        settings = Settings.model_validate({"servers": {"kind": one, "strict": {**one, "echoed_credentials": "fail"}}})
        async with Clients(settings, client_info=b'{"name":"t","version":"1"}', environ={"TOKEN": SECRET}) as clients:
            kind: McpClient = clients["kind"]
            assert (await kind.call_tool("t", ARGUMENTS)).redacted is not None
            with pytest.raises(McpError, match=r"servers\.strict\.echoed_credentials"):
                await clients["strict"].call_tool("t", ARGUMENTS)
