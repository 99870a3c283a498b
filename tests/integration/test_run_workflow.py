"""`RunWorkflow` on a real Temporal: what reaches the server, what history holds, how a graph goes on."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from openwop_mcp import jsontext
from openwop_mcp.runs.events import RunEvent
from tests.support import exact
from tests.support.fake_server import FakeServer, Handler, Reply, Request, error_reply, modern
from tests.support.graphs import edge, node, workflow
from tests.support.pack import (
    Pack,
    activity_results,
    error_of,
    failed_attempts,
    pack_worker,
    scheduled,
    settings_for,
    types,
)
from tests.support.patience import PATIENCE

FIXTURE = Path(__file__).parents[2] / "examples" / "fixtures" / "conformance-mcp-client.json"
READ = {"*": {"safety_tier": "read"}}
MIB = 1024**2
AROUND = len(b'{"content":[{"type":"text","text":""}]}')


@contextlib.asynccontextmanager
async def setting(client: Client, handler: Handler, **options: Any) -> AsyncIterator[tuple[Pack, FakeServer]]:
    async with FakeServer(handler) as server, pack_worker(client, settings_for(server.url, **options)) as pack:
        yield pack, server


def call(node_id: str, tool: str = "echo", **inputs: Any) -> dict[str, Any]:
    return node(node_id, config={"serverId": "fake", "name": tool}, inputs=inputs)


def sent_arguments(request: Request) -> bytes | None:
    return jsontext.pointer(request.body, ["params", "arguments"])


def tool_of(request: Request) -> str:
    return str(request.json["params"]["name"])


def outputs(log: list[RunEvent], node_id: str) -> bytes:
    (event,) = [event for event in log if event.type == "node.completed" and event.node_id == node_id]
    found = jsontext.pointer(event.payload, ["outputs"])
    assert found is not None
    return found


def by_tool(**answers: bytes | Callable[[Request], Any]) -> Handler:
    def answer(request: Request) -> Any:
        found = answers[tool_of(request)]
        return found(request) if callable(found) else found

    return modern({"tools/call": answer})


# --- bytes ---


@pytest.mark.parametrize("as_", ["json", "sse"])
async def test_each_method_records_the_servers_bytes_and_the_event_log_shows_them(client, as_):
    handler = modern(
        {
            "tools/call": exact.RESULT,
            "tools/list": exact.PAGE,
            "resources/list": exact.RESOURCES,
            "resources/templates/list": exact.TEMPLATES,
            "resources/read": exact.RESOURCE,
            "prompts/list": exact.PROMPTS,
            "prompts/get": exact.PROMPT,
            "completion/complete": exact.COMPLETED,
            "server/discover": exact.DISCOVERED,
        },
        as_=as_,
    )
    on = {"serverId": "fake"}
    first = {"cursor": {"type": "static", "value": ""}}
    health = b'{"state":"reachable","discover":' + exact.DISCOVERED + b"}"
    expected = {
        "call": exact.RESULT,
        "list-tools": exact.PAGE,
        "list-resources": exact.RESOURCES,
        "list-templates": exact.TEMPLATES,
        "read": exact.RESOURCE,
        "list-prompts": exact.PROMPTS,
        "prompt": exact.PROMPT,
        "complete": exact.COMPLETED,
        "health": health,
    }
    order = list(expected)
    definition = workflow(
        [
            node("call", config={**on, "name": "echo"}),
            node("list-tools", "community.mcp.list-tools", config=on, inputs=first),
            node("list-resources", "community.mcp.list-resources", config=on, inputs=first),
            node("list-templates", "community.mcp.list-resource-templates", config=on, inputs=first),
            node("read", "community.mcp.read-resource", config={**on, "uri": "fake://one"}),
            node(
                "list-prompts",
                "community.mcp.list-prompts",
                config=on,
                inputs={
                    "cursor": {"type": "connection", "nodeId": "list-resources", "outputKey": "/result/nextCursor"}
                },
            ),
            node(
                "prompt",
                "community.mcp.get-prompt",
                config={**on, "name": "greet"},
                inputs={"arguments": {"type": "static", "value": "ARGUMENTS"}},
            ),
            node(
                "complete",
                "community.mcp.complete",
                config={**on, "ref": "REF"},
                inputs={
                    "argument": {"type": "static", "value": "ARGUMENT"},
                    "context": {"type": "static", "value": "CONTEXT"},
                },
            ),
            node("health", "community.mcp.server-health", config=on),
        ],
        [edge(*pair) for pair in itertools.pairwise(order)],
    )
    text = json.dumps(definition).encode().replace(b'"ARGUMENTS"', exact.PROMPT_ARGUMENTS)
    for name, part in exact.COMPLETION.items():
        text = text.replace(b'"%b"' % name.upper().encode(), part)
    async with setting(client, handler) as (pack, server):
        log, found = await pack.run(text)
        assert log[-1].type == "run.completed", log[-1]
        assert [payload.data for payload in activity_results(found)] == list(expected.values())
        for node_id, result in expected.items():
            assert outputs(log, node_id) == b'{"result":' + result + b"}"
        assert jsontext.pointer(log[-1].payload, ["outputs", "health", "result"]) == health
        assert len(server.requests) == len(order)
        sent = dict(zip(order, (request.body for request in server.requests), strict=True))
    for node_id in ("list-tools", "list-resources", "list-templates", "list-prompts"):
        assert jsontext.pointer(sent[node_id], ["params", "cursor"]) == b'""'
    assert jsontext.pointer(sent["prompt"], ["params", "arguments"]) == exact.PROMPT_ARGUMENTS
    for name, part in exact.COMPLETION.items():
        assert jsontext.pointer(sent["complete"], ["params", name]) == part


@pytest.mark.parametrize(
    ("inputs", "result"),
    [
        (b'{"method":"callTool","serverId":"fake","name":"echo","arguments":' + exact.ARGUMENTS + b"}", exact.RESULT),
        (b'{"method":"listTools","serverId":"fake","cursor":"\\u00e9"}', exact.PAGE),
        (b'{"method":"readResource","serverId":"fake","uri":"fake://one"}', exact.RESOURCE),
        (b'{"method":"listPrompts","serverId":"fake","cursor":"\\u00e9"}', exact.PROMPTS),
        (b'{"method":"getPrompt","serverId":"fake","name":"greet","arguments":' + exact.ARGUMENTS + b"}", exact.PROMPT),
    ],
)
async def test_the_conformance_node_takes_each_input_from_the_run(client, inputs, result):
    handler = modern(
        {
            "tools/call": exact.RESULT,
            "tools/list": exact.PAGE,
            "resources/read": exact.RESOURCE,
            "prompts/list": exact.PROMPTS,
            "prompts/get": exact.PROMPT,
        }
    )
    async with setting(client, handler) as (pack, server):
        log, found = await pack.run(FIXTURE.read_bytes(), inputs)
        assert log[-1].type == "run.completed"
        assert [payload.data for payload in activity_results(found)] == [result]
        assert jsontext.pointer(log[0].payload, ["inputs"]) == inputs
        (request,) = server.requests
        assert sent_arguments(request) == (exact.ARGUMENTS if b"arguments" in inputs else None)
        assert request.json["params"].get("cursor") == ("é" if b"cursor" in inputs else None)


async def test_arguments_keep_their_bytes_as_literal_as_variable_and_as_connection(client):
    literal = workflow([call("a", arguments={"type": "static", "value": "HERE"})])
    default = workflow(
        [call("a", arguments={"type": "variable", "variableName": "v"})],
        variables=[{"name": "v", "type": "object", "defaultValue": "HERE"}],
    )
    given = workflow(
        [call("a", arguments={"type": "variable", "variableName": "v"})],
        variables=[{"name": "v", "type": "object"}],
    )
    connected = workflow(
        [
            call("first", "exact"),
            node(
                "through",
                "core.identity",
                inputs={"payload": {"type": "connection", "nodeId": "first", "outputKey": "/result/structuredContent"}},
            ),
            call("a", arguments={"type": "connection", "nodeId": "through", "outputKey": "payload"}),
        ],
        [edge("first", "through"), edge("through", "a")],
    )
    result = b'{"content":[], "structuredContent": ' + exact.ARGUMENTS + b"}"
    async with setting(client, by_tool(echo=b'{"content":[]}', exact=result)) as (pack, server):
        for definition, inputs in (
            (literal, b"{}"),
            (default, b"{}"),
            (given, b'{"v": ' + exact.ARGUMENTS + b"}"),
            (connected, b"{}"),
        ):
            text = json.dumps(definition).encode().replace(b'"HERE"', exact.ARGUMENTS)
            log, _ = await pack.run(text, inputs)
            assert log[-1].type == "run.completed", log[-1]
            assert sent_arguments(server.requests[-1]) == exact.ARGUMENTS
        assert len(server.requests) == 5


async def test_a_result_that_says_error_completes_its_node_and_can_be_branched_on(client):
    result = b'{"content":[],"isError":true}'
    definition = workflow(
        [call("a"), node("went-wrong", "core.noop"), node("went-well", "core.noop")],
        [
            edge("a", "went-wrong", sourceOutput="/result/isError", condition={"type": "truthy"}),
            edge("a", "went-well", sourceOutput="/result/isError", condition={"type": "falsy"}),
        ],
    )
    async with setting(client, by_tool(echo=result), tools=READ) as (pack, server):
        log, _ = await pack.run(definition)
        assert log[-1].type == "run.completed"
        assert "node.completed went-wrong" in types(log)
        assert "node.skipped went-well" in types(log)
        assert len(server.requests) == 1


# --- failures ---


async def test_an_error_of_the_server_fails_the_run_with_its_exact_bytes(client):
    error = b'{"code": -32000, "message":"no", "data":{"limit":1e400, "n":1.10, "s":"\\u00e9"}, "later":[1.0]}'

    def refuse(request: Request) -> Reply:
        body = b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (request.json["id"], error)
        return Reply(headers=[("Content-Type", "application/json")], body=body)

    async with setting(client, by_tool(echo=refuse), tools=READ) as (pack, server):
        handle = await pack.start(workflow([call("a"), call("after")], [edge("a", "after")]))
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, ApplicationError)
        assert caught.value.cause.type == "mcp_error"
        log, found = await pack.end(handle)
        assert jsontext.pointer(log[-1].payload, ["error", "details", "error"]) == error
        assert error_of(log)["code"] == "mcp_error"
        (failed,) = failed_attempts(found)
        assert failed.details.payloads[1].data == error
        closing = found[-1].events[-1].workflow_execution_failed_event_attributes.failure.application_failure_info
        assert jsontext.member(closing.details.payloads[0].data, "error") == error
        assert "node.skipped after" in types(log)
        assert len(server.requests) == 1


async def test_why_a_run_failed_is_one_short_line_in_the_workers_log(client, caplog):
    def refuse(request: Request) -> Reply:
        return error_reply(request, -32000, "no\nforged line " + "x" * 2000)

    async with setting(client, by_tool(echo=refuse), tools=READ) as (pack, _):
        handle = await pack.start(workflow([call("a")]))
        await pack.end(handle)
    [record] = [record for record in caplog.records if record.name == "openwop_mcp.runs"]
    line = record.getMessage()
    # What the attempt's own line would say, which is left out for this one.
    facts = vars(record)["facts"]
    assert (facts["node"], facts["server"], facts["attempt"]) == ("a", "fake", 1)
    assert line.startswith(f"run {handle.id} failed, node a: mcp_error: ")
    assert "\n" not in line
    assert len(line) < 500


async def test_an_error_over_64_kib_still_ends_the_run_with_its_code(client):
    def refuse(request: Request) -> Reply:
        return error_reply(request, -32000, "no", data="x" * 3_000_000)

    async with setting(client, by_tool(echo=refuse), tools=READ) as (pack, server):
        log, _ = await pack.run(workflow([call("a")]))
        error = error_of(log)
        assert error["code"] == "mcp_error"
        assert error["details"]["error"]["code"] == -32000
        assert error["details"]["error"]["omittedBytes"] > 3_000_000
        assert len(server.requests) == 1


async def test_a_server_that_is_not_there_for_the_tenant_is_not_found_with_one_activity(client):
    theirs = {"url": "http://127.0.0.1:9/mcp", "network": "private", "tenants": ["others"]}
    async with setting(client, modern(), servers={"theirs": theirs}) as (pack, server):
        for server_id in ("nowhere", "theirs"):
            log, found = await pack.run(workflow([node("a", config={"serverId": server_id, "name": "echo"})]))
            assert error_of(log)["code"] == "not_found"
            assert scheduled(found) == ["a:1"]
            assert "node.retried a" not in types(log)
        assert server.requests == []


async def test_a_call_that_its_node_does_not_describe_is_refused_before_it_is_sent(client):
    async with setting(client, modern()) as (pack, server):
        text = b'{"method":"callTool","serverId":"fake"}'
        log, found = await pack.run(FIXTURE.read_bytes(), text)
        assert error_of(log)["code"] == "validation_error"
        assert scheduled(found) == ["mcp-client:1"]
        assert server.requests == []


# --- sizes ---


def sized(request: Request) -> bytes:
    size = json.loads(sent_arguments(request) or b"{}")["size"]
    return b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * size)


def big(node_id: str, size: int) -> dict[str, Any]:
    return call(node_id, "big", arguments={"type": "static", "value": {"size": size}})


async def test_ten_results_of_a_mebibyte_fit_into_one_run(client):
    definition = workflow(
        [big(f"n{index}", MIB) for index in range(10)] + [node("end", "core.noop")],
        [edge(f"n{index}", "end") for index in range(10)],
    )
    async with setting(client, by_tool(big=sized)) as (pack, server):
        handle = await pack.start(definition)
        await asyncio.wait_for(handle.result(), PATIENCE)
        log, found = await pack.end(handle)
        assert log[-1].type == "run.completed"
        assert [len(payload.data) for payload in activity_results(found)] == [MIB + AROUND] * 10
        assert len(server.requests) == 10


async def test_a_chain_that_passes_a_large_result_on_goes_on_in_new_histories(client):
    passed = b'{"content":[],"structuredContent":{"text":"%b"}}' % (b"x" * 1_500_000)
    path = "/result/structuredContent"
    nodes = [call("n0")] + [
        call(f"n{index}", arguments={"type": "connection", "nodeId": f"n{index - 1}", "outputKey": path})
        for index in range(1, 4)
    ]
    definition = workflow(nodes, [edge(f"n{index}", f"n{index + 1}") for index in range(3)])
    async with setting(client, by_tool(echo=passed)) as (pack, server):
        log, found = await pack.run(definition)
        assert log[-1].type == "run.completed"
        assert len(found) > 1
        assert [payload.data == passed for payload in activity_results(found)] == [True] * 4
        assert len(server.requests[-1].body) > 1_500_000


async def test_a_mebibyte_of_arguments_for_each_of_ten_calls_at_once_arrives_whole(client):
    variable = {"type": "variable", "variableName": "v"}
    definition = workflow(
        [call(f"n{index}", arguments=variable) for index in range(10)], variables=[{"name": "v", "type": "object"}]
    )
    arguments = b'{"text":"%b"}' % (b"x" * MIB)
    async with setting(client, modern()) as (pack, server):
        handle = await pack.start(definition, b'{"v":' + arguments + b"}")
        await asyncio.wait_for(handle.result(), PATIENCE)
        assert [sent_arguments(request) == arguments for request in server.requests] == [True] * 10


async def test_a_result_of_three_mebibytes_fails_once_and_for_good(client):
    async with setting(client, by_tool(big=sized), tools=READ) as (pack, server):
        log, found = await pack.run(workflow([big("a", 3 * MIB)]))
        error = error_of(log)
        assert error["code"] == "storage_limit_exceeded"
        assert error["details"]["setting"] == "storage.driver"
        assert error["details"]["size"] == 3 * MIB + AROUND
        assert scheduled(found) == ["a:1"]
        assert len(server.requests) == 1


async def test_inputs_that_temporal_cannot_carry_fail_their_node_before_anything_is_scheduled(client):
    variables = [{"name": "v", "type": "object"}]
    twice = {"type": "variable", "variableName": "v"}
    definition = workflow(
        [call("a", arguments=twice, idempotencyKey=twice), node("b", "core.noop")],
        variables=variables,
    )
    async with setting(client, modern()) as (pack, server):
        inputs = b'{"v":{"text":"%b"}}' % (b"x" * 1_200_000)
        handle = await pack.start(definition, inputs)
        with pytest.raises(WorkflowFailureError):
            await asyncio.wait_for(handle.result(), PATIENCE)
        log, found = await pack.end(handle)
        assert error_of(log)["code"] == "storage_limit_exceeded"
        assert scheduled(found) == []
        assert "node.completed b" in types(log)
        assert server.requests == []


# --- the graph ---


async def test_branches_that_do_not_depend_on_each_other_are_under_way_at_once(client):
    met = asyncio.Event()
    waiting: set[str] = set()

    async def meet(request: Request) -> bytes:
        waiting.add(tool_of(request))
        if len(waiting) == 3:
            met.set()
        await met.wait()
        return b'{"content":[]}'

    nodes = [call(tool, tool) for tool in ("a", "b", "c")]
    async with setting(client, by_tool(a=meet, b=meet, c=meet)) as (pack, _):
        log, _ = await pack.run(workflow(nodes))
        assert types(log)[:4] == ["run.started", "node.started a", "node.started b", "node.started c"]
        assert log[-1].type == "run.completed"


async def test_a_failed_branch_ends_the_run_only_when_the_others_are_through(client):
    go_on = asyncio.Event()

    async def slow(_: Request) -> bytes:
        await go_on.wait()
        return b'{"content":[]}'

    def refuse(request: Request) -> Reply:
        go_on.set()
        return error_reply(request, -32000, "no")

    definition = workflow(
        [call("bad", "bad"), call("never"), call("good", "good"), call("next")],
        [edge("bad", "never"), edge("good", "next")],
    )
    async with setting(client, by_tool(bad=refuse, good=slow, echo=b'{"content":[]}')) as (pack, server):
        log, found = await pack.run(definition)
        assert error_of(log)["code"] == "mcp_error"
        assert "node.completed next" in types(log)
        assert "node.skipped never" in types(log)
        assert [tool_of(request) for request in server.requests].count("echo") == 1
        assert sorted(scheduled(found)) == ["bad:1", "good:1", "next:1"]


async def test_a_failure_that_the_graph_handles_lets_the_run_complete(client):
    def refuse(request: Request) -> Reply:
        return error_reply(request, -32000, "no")

    definition = workflow(
        [call("bad", "bad"), call("instead"), node("end", "core.noop")],
        [edge("bad", "instead", "any_failed"), edge("instead", "end")],
    )
    async with setting(client, by_tool(bad=refuse, echo=b'{"content":[]}')) as (pack, _):
        log, _ = await pack.run(definition)
        assert log[-1].type == "run.completed"
        assert types(log)[-4:-1] == ["node.completed instead", "node.started end", "node.completed end"]


async def test_a_run_without_a_required_input_fails_before_any_node(client):
    definition = workflow([call("a")], variables=[{"name": "city", "type": "string", "required": True}])
    async with setting(client, modern()) as (pack, server):
        log, found = await pack.run(definition)
        assert error_of(log)["code"] == "validation_error"
        assert scheduled(found) == []
        assert server.requests == []


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("noop", "run.completed"),
        ("identity", "run.completed"),
        ("delay", "run.completed"),
        ("failure", "run.failed"),
        ("multi-node", "run.completed"),
    ],
)
async def test_each_conformance_fixture_ends_as_it_should(client, name, end):
    file = FIXTURE.with_name(f"conformance-{name}.json")
    async with setting(client, modern()) as (pack, _):
        log, _ = await pack.run(file.read_bytes(), b'{"delayMs":10,"payload":{"n":1.10}}')
        assert log[-1].type == end
