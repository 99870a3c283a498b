"""The events around each call of a tool: when they are told, what they say, and when nothing is."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from openwop_mcp import jsontext
from openwop_mcp.runs.engines import ENGINE_VERSION
from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.projection import Projector
from openwop_mcp.runs.sessions import CLOSED, OPENED, called_tool, session_id
from openwop_mcp.runs.start import Options, RunStart
from tests.support.call_failures import call_failure, in_doubt
from tests.support.graphs import RUN_ID, edge, node, start, workflow
from tests.support.temporal_model import TemporalModel, event
from tests.support.tool_sessions import BRACKETS, check_sessions

CLIENT = "core.conformance.mcp-client"
ASKED = ["interrupt.requested", "node.suspended", "interrupt.resolved", "node.resumed"]


def model(nodes: list[Any], edges: list[Any] | None = None, inputs: bytes = b"{}", **members: Any) -> TemporalModel:
    return TemporalModel(start(workflow(nodes, edges, **members)), inputs)


def log(run: TemporalModel) -> list[RunEvent]:
    """The live log, which is the projected one."""
    projector = Projector(RUN_ID)
    events = [one for history in run.histories for one in projector.project(history)]
    assert [(one.sequence, one.type, one.node_id, one.payload) for one in events] == [told[:4] for told in run.log]
    check_sessions(events)
    return events


def kinds(run: TemporalModel, node_id: str = "a") -> list[str]:
    """What the log tells of a node, with how its sessions ended."""
    told = []
    for one in log(run):
        if one.node_id == node_id:
            outcome = json.loads(one.payload).get("outcome")
            told.append(one.type if outcome is None else f"{one.type} {outcome}")
    return told


def ids(run: TemporalModel) -> list[str]:
    return [json.loads(one.payload)["sessionId"] for one in log(run) if one.type == OPENED]


def succeed(run: TemporalModel, node_id: str = "a", *, suggest: bool = False) -> None:
    run.succeed(run.ordinal(node_id))
    run.task(suggest=suggest)


def fail(run: TemporalModel, node_id: str = "a", **facts: Any) -> None:
    run.fail(run.ordinal(node_id), call_failure(**facts))
    run.task()


def test_a_call_stands_between_two_events_that_hold_nothing_but_which_tool_and_how_it_ended() -> None:
    run = model([node("a")])
    succeed(run)
    assert kinds(run) == ["node.started", OPENED, f"{CLOSED} completed", "node.completed"]
    [opened, closed] = [json.loads(one.payload) for one in log(run) if one.type in BRACKETS]
    assert list(opened) == ["sessionId", "toolId"]
    assert list(closed) == ["sessionId", "toolId", "outcome"]
    assert opened["toolId"] == closed["toolId"] == "mcp:weather.get"
    assert opened["sessionId"] == closed["sessionId"]
    assert re.fullmatch("[A-Za-z0-9_-]{43}", opened["sessionId"])


def test_attempts_share_one_session_which_fails_with_its_node() -> None:
    run = model([node("a")])
    fail(run, retry_after=0)
    fail(run, retryable=False)
    assert kinds(run) == ["node.started", OPENED, "node.retried", f"{CLOSED} failed", "node.failed"]


def test_no_two_sessions_of_a_run_have_the_same_id_and_two_readings_of_a_run_tell_the_same() -> None:
    told = []
    for _ in range(2):
        run = model([node("a"), node("b")])
        for node_id in "ab":
            run.succeed(run.ordinal(node_id))
        run.task()
        told.append(ids(run))
    assert told[0] == told[1]
    assert len(set(told[0])) == 2
    assert session_id("acme/one", "a", 0) != session_id("acme/two", "a", 0)


def test_a_run_that_is_cancelled_closes_what_was_open_with_how_it_ended() -> None:
    run = model([node("a"), node("b"), node("c")])
    fail(run, "c", retry_after=3)
    run.request_cancel()
    run.task()
    run.succeed(run.ordinal("b"))
    run.cancelled(run.ordinal("a"))
    run.task()
    assert kinds(run, "a")[1:] == [OPENED, f"{CLOSED} cancelled", "node.cancelled"]
    assert kinds(run, "b")[1:] == [OPENED, f"{CLOSED} completed", "node.completed"]
    assert kinds(run, "c")[1:] == [OPENED, "node.retried", f"{CLOSED} cancelled", "node.cancelled"]


def test_a_run_that_takes_too_long_closes_what_never_answered() -> None:
    run = TemporalModel(start(workflow([node("a")]), options=Options(run_timeout_ms=1_000)))
    run.fire(next(ordinal for ordinal, one in run.under_way.items() if one.node_id is None))
    run.task()
    run.fire(next(ordinal for ordinal, one in run.under_way.items() if one.node_id is None))
    run.task()
    told = [one.type for one in log(run)]
    assert told[-4:] == ["cap.breached", CLOSED, "node.cancelled", "run.failed"]


@pytest.mark.parametrize("closing", ["terminated", "timed_out", "canceled", "failed"])
def test_a_run_that_is_ended_from_outside_closes_what_was_open(closing: str) -> None:
    run = model([node("a")])
    ended = event(len(run.histories[0]) + 1, f"workflow_execution_{closing}", run.now)
    events = Projector(RUN_ID).project([*run.histories[0], ended])
    check_sessions(events)
    assert [told.type for told in events][2:5] == [OPENED, CLOSED, "node.cancelled"]


def test_a_question_to_a_person_keeps_the_session_open_until_it_is_decided() -> None:
    run = model([node("a")])
    run.fail(run.ordinal("a"), in_doubt(effectId="acme/a"))
    run.task()
    assert kinds(run) == ["node.started", OPENED, *ASKED[:2]]
    run.answer("a", b'{"action":"accept"}')
    run.task()
    succeed(run)
    assert kinds(run) == ["node.started", OPENED, *ASKED, f"{CLOSED} completed", "node.completed"]


def test_a_pause_that_waits_leaves_a_call_its_session() -> None:
    run = model([node("a"), node("b")], [edge("a", "b")])
    run.pause()
    run.task()
    succeed(run)
    assert [one.type for one in log(run)][-3:] == ["run.paused", CLOSED, "node.completed"]


def test_what_a_pause_cuts_off_begins_afresh_in_a_session_of_its_own() -> None:
    run = model([node("a")])
    run.pause("immediate")
    run.task()
    run.cancelled(run.ordinal("a"))
    run.task()
    assert kinds(run) == ["node.started", OPENED]
    run.resume()
    run.task()
    succeed(run)
    assert kinds(run) == [
        *("node.started", OPENED, f"{CLOSED} cancelled"),
        *("node.started", OPENED, f"{CLOSED} completed", "node.completed"),
    ]
    assert len(set(ids(run))) == 2


def test_what_a_pause_cuts_off_too_late_ends_as_it_did() -> None:
    run = model([node("a")])
    run.pause("immediate")
    run.task()
    succeed(run)
    run.resume()
    run.task()
    assert kinds(run) == ["node.started", OPENED, f"{CLOSED} completed", "node.completed"]


@pytest.mark.parametrize("waits", ["for a retry", "for a person"])
def test_a_session_stays_open_through_a_continue_as_new(waits: str) -> None:
    run = model([node("a"), node("b"), node("z")])
    run.fail(run.ordinal("a"), call_failure(retry_after=3) if waits == "for a retry" else in_doubt(effectId="acme/a"))
    run.task()
    succeed(run, "b")
    run.succeed(run.ordinal("z"))
    run.task(suggest=True)
    assert len(run.histories) == 2
    if waits == "for a retry":
        run.fire(run.ordinal("a"))
    else:
        run.answer("a", b'{"action":"accept"}')
    run.task()
    succeed(run)
    told = kinds(run)
    assert told.count(OPENED) == 1
    assert told[-2:] == [f"{CLOSED} completed", "node.completed"]


def test_a_run_of_the_engine_before_tells_none_and_is_handed_over_as_it_was() -> None:
    states = []
    for version in (1, ENGINE_VERSION):
        run = TemporalModel(start(workflow([node("a"), node("b")]), engine_version=version))
        fail(run, retry_after=3)
        succeed(run, "b", suggest=True)
        states.append(json.loads(run.start.state or b""))
        assert (OPENED in kinds(run, "b")) is (version > 1)
        assert {one.engine_version for one in log(run)} == {version}
    assert "tools" not in states[0]
    assert states[1]["tools"] == {"a": "mcp:weather.get"}


def test_a_run_is_told_of_the_engine_that_it_was_started_with() -> None:
    run = TemporalModel(start(workflow([node("a")]), engine_version=1))
    assert json.loads(log(run)[0].payload)["engineVersion"] == 1
    assert RunStart.decode(run.start.encode()).has("tool-sessions") is False
    assert start(workflow([node("a")])).has("tool-sessions") is True


@pytest.mark.parametrize("sensitive", ["key", "name"])
def test_a_node_that_is_masked_tells_of_no_tool(sensitive: str) -> None:
    variables = [{"name": "key", "type": "string", "sensitive": sensitive == "key"}]
    variables += [{"name": "name", "type": "string", "sensitive": sensitive == "name"}]
    inputs = {
        "arguments.key": {"type": "variable", "variableName": "key"},
        "name": {"type": "variable", "variableName": "name"},
    }
    nodes = [node("a", config={"serverId": "weather"}, inputs=inputs), node("b")]
    run = model(nodes, inputs=b'{"key":"k","name":"secret-tool"}', variables=variables)
    for node_id in "ab":
        run.succeed(run.ordinal(node_id))
    run.task()
    assert kinds(run, "a") == ["node.started", "node.completed"]
    assert OPENED in kinds(run, "b")
    assert (b"secret-tool" in b"".join(one.payload for one in log(run))) is (sensitive == "key")


def test_a_node_that_has_nothing_to_call_with_opens_nothing() -> None:
    port = {"type": "connection", "nodeId": "a", "outputKey": "/result/structuredContent"}
    run = model([node("a"), node("b", inputs={"arguments": port})], [edge("a", "b")])
    succeed(run)
    assert kinds(run, "b") == ["node.started", "node.failed"]


def test_what_is_no_call_of_a_tool_opens_nothing() -> None:
    on = {"serverId": "weather"}
    types = [
        ("list-tools", on),
        ("read-resource", {**on, "uri": "x://y"}),
        ("get-prompt", {**on, "name": "p"}),
        ("server-health", on),
    ]
    nodes = [node(name, f"community.mcp.{name}", config=config) for name, config in types]
    run = model([*nodes, node("noop", "core.noop")])
    for name, _ in types:
        run.succeed(run.ordinal(name))
    run.task()
    assert run.over
    assert not {one.type for one in log(run)} & BRACKETS


def test_the_tool_of_a_run_s_own_inputs_is_told() -> None:
    inputs = b'{"method":"callTool","serverId":"my.server","name":"get it"}'
    run = model([node("a", CLIENT)], inputs=inputs)
    succeed(run)
    [opened] = [json.loads(one.payload) for one in log(run) if one.type == OPENED]
    assert opened["toolId"] == "mcp:my~2Eserver.get~20it"


NAMED = {"method": b'"callTool"', "serverId": b'"s"', "name": b'"t"'}


@pytest.mark.parametrize(
    "given",
    [
        {"method": b'"readResource"'},
        {"method": b"7"},
        {"method": None},
        {"serverId": None},
        {"serverId": b"null"},
        {"serverId": b'"no/id"'},
        {"serverId": jsontext.encode("s" * 65)},
        {"name": None},
        {"name": b'["t"]'},
        {"name": b'""'},
        {"name": jsontext.encode("t" * 1025)},
    ],
)
def test_a_call_whose_tool_cannot_be_told_is_no_session(given: dict[str, bytes | None]) -> None:
    whole = {**NAMED, **given}
    assert called_tool(CLIENT, b"{}", {name: value for name, value in whole.items() if value is not None}) is None


def test_a_tool_is_told_of_inputs_before_config_and_of_any_name_that_can_be_called() -> None:
    config = b'{"serverId":"s","name":"t"}'
    call = "community.mcp.call-tool"
    assert called_tool(CLIENT, b"{}", NAMED) == "mcp:s.t"
    assert called_tool(call, config, {}) == "mcp:s.t"
    assert called_tool(call, config, {"name": b'"u"'}) == "mcp:s.u"
    assert called_tool(call, config, {"name": b'"\\ud800"'}) == "mcp:s.~ED~A0~80"
    assert called_tool(call, config, {"method": b'"listTools"'}) == "mcp:s.t"
