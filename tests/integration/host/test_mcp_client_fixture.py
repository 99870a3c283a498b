"""The workflow that OpenWOP's conformance suite drives the MCP client by: what a server sent is what is read."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from tests.integration.host.conftest import ANOTHER_ERA, CALLED, DISCOVER, FAILED, PAGES, READ, REFUSAL
from tests.support.fake_server import MODERN
from tests.support.host_process import ACME, HostProcess, path_of

WORKFLOW = "conformance-mcp-client"


async def run(dev: HostProcess, inputs: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """A run of the workflow, which takes seconds at most; its id and its log."""
    before = time.monotonic()
    run_id = await dev.create(WORKFLOW, inputs)
    log = await dev.log(run_id)
    assert time.monotonic() - before < 30
    return run_id, log


def only(log: list[dict[str, Any]], event_type: str) -> dict[str, Any]:
    """The payload of the one event of a type."""
    [found] = [event for event in log if event["type"] == event_type]
    payload: dict[str, Any] = found["payload"]
    return payload


RESULTS = {
    "a call": ({"method": "callTool", "name": "echo", "arguments": {}}, CALLED),
    "a call that the tool says has failed": ({"method": "callTool", "name": "fails", "arguments": {}}, FAILED),
    "the first page of tools": ({"method": "listTools"}, PAGES[None]),
    "another page of tools": ({"method": "listTools", "cursor": "page:2"}, PAGES["page:2"]),
    "a resource": ({"method": "readResource", "uri": "fake://one"}, READ),
    "the health of a server": ({"method": "serverHealth"}, b'{"state":"reachable","discover":%b}' % DISCOVER),
}


@pytest.mark.parametrize(("inputs", "result"), RESULTS.values(), ids=RESULTS)
async def test_the_output_is_what_the_server_sent_to_the_byte_in_a_poll_and_in_a_stream(dev, inputs, result):
    run_id, log = await run(dev, {"serverId": "conformance", **inputs})
    assert log[-1]["type"] == "run.completed"
    assert only(log, "node.completed")["outputs"] == {"result": json.loads(result)}
    assert list(only(log, "node.completed")["outputs"]["result"]) == list(json.loads(result))
    poll = (await dev.http.get(f"{path_of(run_id)}/events/poll")).content
    assert poll.count(b'"outputs":{"result":%b}' % result) == 1
    # A line break in a frame is one line of data more.
    told = {frame.event: frame.data async for frame in dev.frames(run_id)}
    assert b'"outputs":{"result":%b}' % result in told["node.completed"]


async def test_a_request_says_which_revision_it_is_of_in_its_header_and_in_its_body(dev, mcp):
    await run(dev, {"method": "listTools", "serverId": "conformance"})
    request = mcp.requests[-1]
    assert request.header("MCP-Protocol-Version") == MODERN
    assert request.json["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"] == MODERN


async def test_the_key_of_whoever_asks_for_a_run_goes_to_no_server(dev, mcp):
    await run(dev, {"method": "callTool", "serverId": "conformance", "name": "echo", "arguments": {}})
    request = mcp.calls("echo")[-1]
    assert request.header("Authorization") is None
    assert ACME not in str(request)


@pytest.mark.parametrize("server_id", ["conformance-down", "conformance.down"])
async def test_the_health_of_a_server_that_does_not_answer_is_that_it_cannot_be_reached(dev, server_id):
    _, log = await run(dev, {"method": "serverHealth", "serverId": server_id})
    assert only(log, "node.completed")["outputs"] == {"result": {"state": "unreachable"}}


async def test_the_health_of_a_server_of_another_era_is_that_it_is_not_compatible(dev):
    run_id, log = await run(dev, {"method": "serverHealth", "serverId": "conformance-another-era"})
    result = only(log, "node.completed")["outputs"]["result"]
    assert result == {"state": "incompatible", "discover": json.loads(ANOTHER_ERA)}
    assert ANOTHER_ERA in (await dev.http.get(f"{path_of(run_id)}/events/poll")).content


async def test_numbers_arrive_at_the_server_digit_for_digit(dev, mcp):
    arguments = b'{"low": 1.10,"seen":123456789012345678901234,"e":1E+400 , "name":"B\\u00e4rn"}'
    inputs = b'{"method":"callTool","serverId":"conformance","name":"echo","arguments":%b}' % arguments
    body = b'{"workflowId":"conformance-mcp-client", "inputs":%b}' % inputs
    answer = await dev.http.post("/runs", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 201
    log = await dev.log(answer.json()["runId"])
    assert log[-1]["type"] == "run.completed"
    assert b'"arguments":%b' % arguments in mcp.calls("echo")[-1].body
    poll = (await dev.http.get(answer.json()["eventsUrl"] + "/poll")).content
    assert inputs in poll
    assert inputs in (await dev.http.get(answer.json()["statusUrl"])).content


async def test_a_server_that_nobody_named_fails_the_node_as_not_found(dev):
    _, log = await run(dev, {"method": "callTool", "serverId": "nobody", "name": "echo", "arguments": {}})
    assert only(log, "node.failed")["error"]["code"] == "not_found"
    assert only(log, "run.failed")["error"]["code"] == "not_found"


async def test_an_error_of_the_server_fails_the_node_and_is_told_unaltered(dev):
    _, log = await run(dev, {"method": "callTool", "serverId": "conformance", "name": "refuses", "arguments": {}})
    error = only(log, "node.failed")["error"]
    assert error["code"] == "mcp_error"
    assert error["details"]["error"] == {"code": -32602, "message": "no such tool", "data": REFUSAL}
    assert only(log, "node.failed").get("attempts", 1) == 1


@pytest.mark.parametrize("server_id", ["conformance-down", "conformance.down"])
async def test_a_server_that_does_not_answer_fails_the_node_and_says_which_service_it_was(dev, server_id):
    calls: list[dict[str, Any]] = [
        {"method": "callTool", "name": "echo", "arguments": {}},
        {"method": "listTools"},
        {"method": "readResource", "uri": "fake://one"},
    ]
    for run_id, log in await asyncio.gather(*(run(dev, {"serverId": server_id, **call}) for call in calls)):
        error = only(log, "node.failed")["error"]
        assert (error["code"], error["details"]["service"]) == ("upstream_unavailable", "mcp")
        snapshot = (await dev.http.get(path_of(run_id))).json()
        assert (snapshot["status"], snapshot["error"]["code"]) == ("failed", "upstream_unavailable")


@pytest.mark.parametrize("inputs", [{"method": "callTool"}, {"method": "readResource"}, {"method": "dance"}])
async def test_inputs_that_are_no_call_fail_the_run_with_a_registered_code(dev, inputs):
    _, log = await run(dev, {"serverId": "conformance", **inputs})
    assert only(log, "run.failed")["error"]["code"] == "validation_error"
