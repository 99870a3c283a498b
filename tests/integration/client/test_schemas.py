"""Arguments and structured results checked by what the server listed: a verdict beside a result, never in its way."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from typing import Any

import pytest

from openwop_mcp import schemas
from openwop_mcp.errors import InvalidRequestError, RpcError
from openwop_mcp.schemas import Verdict
from tests.support.fake_server import FakeServer, Request, error_reply, modern
from tests.support.mcp_client import ARGUMENTS, connected
from tests.support.patience import PATIENCE

INTEGER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def _page(**members: Any) -> bytes:
    tool = {"name": "t", "inputSchema": {"type": "object"}, **members}
    return json.dumps({"resultType": "complete", "tools": [tool]}).encode()


def _of_the_client(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the client logged: others in this process may log too."""
    return [record for record in caplog.records if record.name.startswith("openwop_mcp.client")]


def _server(result: bytes, **members: Any) -> Any:
    return modern({"tools/list": _page(**members), "tools/call": result})


async def _judged(result: bytes, output_schema: Any, **options: Any) -> Verdict | None:
    """The verdict on a result, which came as it is and with one call."""
    handler = _server(result, outputSchema=output_schema)
    async with connected(handler, options=options) as (client, server):
        await client.list_tools()
        exchange = await client.call_tool("t", ARGUMENTS)
        assert exchange.result == result
        assert [request.json["method"] for request in server.requests] == ["tools/list", "tools/call"]
        return exchange.verdict


@pytest.mark.parametrize(
    ("content", "path"),
    [
        (b'{"n":"x"}', "/n"),
        (b'{"n":1.5}', "/n"),
        (b'{"n":null}', "/n"),
        (b"{}", ""),
        (b"[]", ""),
        (b"null", ""),
        (b'"n"', ""),
        (b"7", ""),
    ],
)
async def test_a_result_that_breaks_its_schema_is_the_result_with_a_verdict(content: bytes, path: str) -> None:
    result = b'{ "structuredContent" : %b,"content":[{"type":"text","text":"done"}],"later":1.10}' % content
    verdict = await _judged(result, INTEGER)
    assert verdict is not None
    assert (verdict.state, verdict.path) == ("mismatch", path)
    assert verdict.reason


@pytest.mark.parametrize(
    ("content", "schema"),
    [
        (b'{"n":7}', INTEGER),
        (b'{"n":7.0}', INTEGER),
        (b'{"n":9007199254740993}', {"properties": {"n": {"const": 9007199254740993}}}),
        (b'[1,"a",null]', {"type": "array"}),
        (b"null", {"type": "null"}),
        (b"7", {"minimum": 1}),
        (b'{"n":1}', {}),
        (b'{"q":{"a":1}}', {"$defs": {"Q": INTEGER}, "properties": {"p": {"$ref": "#/$defs/Q"}}}),
    ],
)
async def test_a_result_that_keeps_to_its_schema_is_said_to(content: bytes, schema: Any) -> None:
    assert await _judged(b'{"content":[],"structuredContent":%b}' % content, schema) == Verdict("ok")


async def test_only_the_structured_content_is_judged_and_not_what_is_around_it() -> None:
    closed = {**INTEGER, "additionalProperties": False}
    result = b'{"resultType":"complete","content":7,"_meta":{"n":"x"},"n":"x","structuredContent":{"n":1}}'
    assert await _judged(result, closed) == Verdict("ok")


@pytest.mark.parametrize(
    "result",
    [
        b'{"content":[]}',
        b'{"content":[{"type":"text","text":"{\\"n\\":\\"x\\"}"}]}',
        b'{"isError":true,"content":[]}',
        b'{"isError":true,"structuredContent":{"n":"x"},"content":[]}',
    ],
)
async def test_where_there_is_nothing_to_judge_there_is_no_verdict(result: bytes) -> None:
    assert await _judged(result, INTEGER) is None


@pytest.mark.parametrize("schema", [None, "object", [], True, 7])
async def test_what_is_no_schema_of_an_object_is_none(schema: Any) -> None:
    assert await _judged(b'{"structuredContent":{"n":"x"}}', schema) is None


UNUSABLE = {
    "a number where there was a boolean": {"properties": {"n": {"type": "integer", "exclusiveMinimum": True}}},
    "a type that is none": {"type": "int"},
    "a pattern that is none": {"properties": {"q": {"pattern": "(["}}},
    "a dialect that is not known": {"$schema": "https://example.org/dialect", "type": "object"},
    "required as a word": {"required": "n"},
    "properties as a list": {"properties": []},
    "a reference into nowhere": {"properties": {"q": {"$ref": "#/$defs/none"}}, "$ref": "#/$defs/none"},
    "a reference to itself": {"$ref": "#"},
}
LEADS_OUT = [
    "http://127.0.0.1:PORT/s.json",
    "http://127.0.0.1:PORT/s.json#/definitions/x",
    "//127.0.0.1:PORT/s.json",
    "https://localhost:PORT/s",
    "file:///etc/passwd",
    "s.json",
    "urn:example:s",
]


@pytest.mark.parametrize("name", UNUSABLE)
@pytest.mark.parametrize("validate", ["warn", "refuse"])
async def test_a_schema_that_cannot_be_used_stops_no_call_and_is_said_not_to_be_checked_by(
    name: str, validate: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema = UNUSABLE[name]
    result = b'{"structuredContent":{"q":1},"content":[]}'
    handler = _server(result, inputSchema=schema, outputSchema=schema)
    async with connected(handler, options={"validate": validate}) as (client, server):
        await client.list_tools()
        exchange = await client.call_tool("t", ARGUMENTS)
        assert server.requests[-1].json["params"]["arguments"] == {"q": 1}
    assert exchange.result == result
    assert exchange.verdict is not None
    assert exchange.verdict.state == "unchecked"
    assert exchange.verdict.reason
    assert not [one for one in caplog.records if "input schema" in one.message]


@pytest.mark.parametrize("reference", LEADS_OUT)
@pytest.mark.parametrize("where", ["$ref", "$dynamicRef", "allOf", "$schema", "$id and $ref"])
async def test_a_schema_that_leads_out_opens_no_connection(reference: str, where: str) -> None:
    async with FakeServer(modern()) as other:
        there = reference.replace("PORT", str(other.port))
        schema: dict[str, Any] = {
            "$ref": {"$ref": there},
            "$dynamicRef": {"$dynamicRef": there},
            "allOf": {"allOf": [{"properties": {"q": {"$ref": there}}}]},
            "$schema": {"$schema": there},
            "$id and $ref": {"$id": f"http://127.0.0.1:{other.port}/base/", "$ref": there},
        }[where]
        result = b'{"structuredContent":{"q":1},"content":[]}'
        async with connected(
            _server(result, inputSchema=schema, outputSchema=schema), options={"validate": "refuse"}
        ) as (client, server):
            await client.list_tools()
            exchange = await client.call_tool("t", ARGUMENTS)
            assert len(server.requests) == 2
        assert exchange.result == result
        assert exchange.verdict is not None
        assert exchange.verdict.state == "unchecked"
        assert exchange.verdict.reason
        assert other.connections == 0


WRONG = [b'{"q":"x"}', b"{}", b'{"q":1.5}', b'{"q":null}', None]
TAKES = {"type": "object", "properties": {"q": {"type": "integer"}}, "required": ["q"]}


@pytest.mark.parametrize("arguments", WRONG)
async def test_arguments_that_break_the_schema_are_not_sent_where_the_settings_say_so(arguments: bytes | None) -> None:
    async with connected(_server(b"{}", inputSchema=TAKES), options={"validate": "refuse"}) as (client, server):
        await client.list_tools()
        with pytest.raises(InvalidRequestError) as caught:
            await client.call_tool("t", arguments)
        assert len(server.requests) == 1
    error = caught.value
    assert (error.code, error.retryable) == ("validation_error", False)
    assert error.facts["path"].startswith("arguments")


@pytest.mark.parametrize("arguments", WRONG)
async def test_arguments_that_break_the_schema_are_sent_with_a_warning(arguments: bytes | None, caplog) -> None:
    async with connected(_server(b"{}", inputSchema=TAKES)) as (client, server):
        await client.list_tools()
        await client.call_tool("t", arguments)
        assert len(server.requests) == 2
    (warned,) = [one for one in caplog.records if "input schema" in one.message]
    assert warned.levelno == logging.WARNING


@pytest.mark.parametrize("arguments", WRONG)
async def test_nothing_is_checked_where_the_settings_say_so(arguments: bytes | None, caplog) -> None:
    result = b'{"structuredContent":{"n":"x"}}'
    handler = _server(result, inputSchema=TAKES, outputSchema=INTEGER)
    async with connected(handler, options={"validate": "off"}) as (client, _):
        await client.list_tools()
        exchange = await client.call_tool("t", arguments)
    assert (exchange.result, exchange.verdict) == (result, None)
    assert not _of_the_client(caplog)


async def test_a_fault_in_arguments_is_told_without_their_values(caplog) -> None:
    handler = _server(b"{}", inputSchema=TAKES)
    async with connected(handler) as (client, _):
        await client.list_tools()
        await client.call_tool("t", b'{"q":"s3cr3t"}')
    assert "input schema" in caplog.text
    assert "s3cr3t" not in caplog.text
    async with connected(handler, options={"validate": "refuse"}) as (client, _):
        await client.list_tools()
        with pytest.raises(InvalidRequestError) as caught:
            await client.call_tool("t", b'{"q":"s3cr3t"}')
    assert "s3cr3t" not in f"{caught.value} {caught.value.facts}"


async def test_a_server_may_take_what_its_schema_does_not_and_refuse_what_it_does() -> None:
    def call(request: Request) -> Any:
        return (
            error_reply(request, -32602, "q is too small") if request.json["params"]["arguments"]["q"] == 1 else b"{}"
        )

    handler = modern({"tools/list": _page(inputSchema=TAKES), "tools/call": call})
    async with connected(handler) as (client, server):
        await client.list_tools()
        await client.call_tool("t", b'{"q":"x"}')
        with pytest.raises(RpcError):
            await client.call_tool("t", ARGUMENTS)
        assert len(server.requests) == 3


@pytest.mark.parametrize("validate", ["warn", "refuse"])
async def test_a_tool_that_is_not_known_is_called_without_a_check(validate: str) -> None:
    handler = _server(b'{"structuredContent":{"n":"x"}}', inputSchema=TAKES, outputSchema=INTEGER)
    async with connected(handler, options={"validate": validate}) as (client, server):
        assert (await client.call_tool("t", b"{}")).verdict is None
        assert [request.json["method"] for request in server.requests] == ["tools/call"]


async def test_the_schema_that_was_listed_last_is_the_one_to_check_by() -> None:
    pages = iter([_page(outputSchema=INTEGER), _page(outputSchema={}), _page()])
    handler = modern({"tools/list": lambda _: next(pages), "tools/call": b'{"structuredContent":{"n":"x"}}'})
    states: list[str | None] = []
    async with connected(handler) as (client, _):
        for _ in range(3):
            await client.list_tools()
            verdict = (await client.call_tool("t", ARGUMENTS)).verdict
            states.append(verdict and verdict.state)
    assert states == ["mismatch", "ok", None]


async def test_a_bad_definition_spoils_neither_its_page_nor_the_sound_ones_beside_it() -> None:
    page = (
        b'{"tools":[{"name":"bad"},{"name":"t","inputSchema":{"type":"object"},"outputSchema":%b},7,{"name":7},'
        b'{"inputSchema":{}},{"name":"worse","inputSchema":"x","outputSchema":3}]}' % json.dumps(INTEGER).encode()
    )
    handler = modern({"tools/list": page, "tools/call": b'{"structuredContent":{"n":"x"}}'})
    async with connected(handler, options={"validate": "refuse"}) as (client, _):
        before = await client.call_tool("t", ARGUMENTS)
        assert (await client.list_tools()).result == page
        assert before.verdict is None
        verdict = (await client.call_tool("t", ARGUMENTS)).verdict
        assert verdict is not None
        assert verdict.state == "mismatch"
        for name in ("bad", "worse"):
            assert (await client.call_tool(name, ARGUMENTS)).verdict is None


async def test_a_large_result_is_judged_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []
    check = schemas.check

    def watched(schema: bytes, instance: bytes) -> Verdict:
        threads.append(threading.get_ident())
        return check(schema, instance)

    monkeypatch.setattr(schemas, "check", watched)
    large = b'{"structuredContent":{"n":"%b"}}' % (b"x" * schemas.QUICK_BYTES)
    verdict = await _judged(large, INTEGER)
    assert verdict is not None
    assert verdict.state == "mismatch"
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_a_hostile_schema_costs_the_time_of_one_call_and_not_of_every_call() -> None:
    inner = {f"n{i}": {"anyOf": [{"$ref": f"#/$defs/n{i + 1}"}] * 2} for i in range(41)}
    hostile = {"$defs": {**inner, "n41": {"const": "no"}}, "$ref": "#/$defs/n0"}
    page = _page(outputSchema=hostile)
    result = b'{"resultType":"complete","content":[],"structuredContent":{"a":1}}'
    async with connected(modern({"tools/list": page, "tools/call": result})) as (client, _):
        await client.list_tools()
        before = time.process_time()
        exchanges = await asyncio.gather(*(client.call_tool("t", ARGUMENTS) for _ in range(20)))
        # Twenty checks would be ten seconds.
        assert time.process_time() - before < 7
    assert {exchange.verdict for exchange in exchanges} == {
        Verdict("unchecked", reason="the check takes more than 0.5 s")
    }


async def test_a_hostile_schema_delays_a_result_by_a_moment_and_changes_nothing_of_it() -> None:
    deep: Any = {}
    for _ in range(50):
        deep = {"anyOf": [deep, deep]} if _ % 10 == 0 else {"properties": {"n": deep}}
    async with asyncio.timeout(PATIENCE):
        await _judged(b'{"structuredContent":' + b'{"n":' * 60 + b"1" + b"}" * 60 + b"}", deep)


async def test_that_arguments_go_unchecked_is_said_once_where_they_are_to_be_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with connected(modern(), options={"validate": "refuse"}) as (client, _):
        for _ in range(3):
            await client.call_tool("t", ARGUMENTS)
    assert [record.getMessage() for record in _of_the_client(caplog)] == [
        "server server: the arguments of t are not checked: no page with it was listed"
    ]
