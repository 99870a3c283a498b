"""The state machine: what it asks for, what it tells, how it ends."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from temporalio.api.failure.v1 import Failure

from openwop_mcp import failures
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.runs.machine import (
    CancelNode,
    CancelRequested,
    CancelRun,
    CompleteRun,
    ContinueAsNew,
    DrainRequested,
    FailRun,
    NodeFailed,
    NodeSucceeded,
    NoteWaiting,
    RunMachine,
    ScheduleNode,
    StartTimer,
    TimerFired,
)
from tests.support.call_failures import call_failure, in_doubt
from tests.support.graphs import CALL_CONFIG, edge, node, start, workflow
from tests.support.temporal_model import TemporalModel

STATIC = {"type": "static"}


def model(nodes: list[Any], edges: list[Any] | None = None, inputs: bytes = b"{}", **members: Any) -> TemporalModel:
    return TemporalModel(start(workflow(nodes, edges, **members)), inputs)


def payload(run: TemporalModel, event_type: str, node_id: str | None = None) -> dict[str, Any]:
    found = [told[3] for told in run.log if told[1] == event_type and told[2] == node_id]
    assert len(found) == 1, run.types
    decoded: dict[str, Any] = json.loads(found[0])
    return decoded


def succeed(run: TemporalModel, *node_ids: str, result: bytes = b'{"content":[]}') -> None:
    for node_id in node_ids:
        run.succeed(run.ordinal(node_id), result)
    run.task()


def fail(run: TemporalModel, node_id: str, failure: Failure | None = None) -> None:
    run.fail(run.ordinal(node_id), failure or call_failure(retryable=False))
    run.task()


# --- from beginning to end ---


def test_a_chain_runs_node_by_node_and_every_step_is_told() -> None:
    run = model([node("a"), node("b")], [edge("a", "b")])
    config = json.dumps(CALL_CONFIG).encode()
    assert run.commands == [ScheduleNode(0, "a", "community.mcp.call-tool", 1, config, b"{}", suspends=True)]
    run.now += 20
    succeed(run, "a")
    run.now += 30
    succeed(run, "b")
    assert run.types == [
        "run.started",
        "node.started a",
        "node.completed a",
        "node.started b",
        "node.completed b",
        "run.completed",
    ]
    assert payload(run, "node.started", "a") == {"nodeId": "a", "typeId": "community.mcp.call-tool", "attempt": 0}
    assert payload(run, "node.completed", "b") == {
        "nodeId": "b",
        "outputs": {"result": {"content": []}},
        "durationMs": 30,
    }
    assert payload(run, "run.completed") == {"outputs": {"b": {"result": {"content": []}}}, "durationMs": 50}
    assert [told[0] for told in run.log] == list(range(10))


def test_a_completed_run_refers_to_its_outputs_and_copies_none() -> None:
    run = model([node("a"), node("b")])
    succeed(run, "a", "b", result=b'{"content":["large"]}')
    assert run.commands == [CompleteRun(b'{"outputs":{"a":{"nodeId":"a","attempt":1},"b":{"nodeId":"b","attempt":1}}}')]


def test_the_run_tells_whose_it_is_and_its_inputs_byte_for_byte() -> None:
    inputs = b'{ "n": 1.10, "undeclared": [1e400] }'
    run = TemporalModel(start(workflow([node("a")]), tags=("x",), metadata=b'{"k": 1.0}', transport="mcp"), inputs)
    told = run.log[0][3]
    assert b'"inputs":' + inputs in told
    assert b'"metadata":{"k": 1.0}' in told
    said = json.loads(told)
    assert said["owner"] == json.loads(run.start.owner.encode())
    assert (said["workflowId"], said["transport"], said["engineVersion"], said["tags"]) == ("flow", "mcp", 3, ["x"])


def test_core_nodes_run_inside_the_machine() -> None:
    variable = {"name": "payload", "type": "object", "required": True}
    nodes = [
        node("a", "core.noop"),
        node("b", "core.identity", inputs={"payload": {"type": "variable", "variableName": "payload"}}),
    ]
    run = model(nodes, [edge("a", "b")], b'{"payload": {"n": 1.10}}', variables=[variable])
    assert run.over
    assert b'"outputs":{"payload":{"n": 1.10}}' in run.log[-2][3]
    assert run.types[-1] == "run.completed"


def test_a_result_reaches_the_next_node_byte_for_byte() -> None:
    arguments = {"type": "connection", "nodeId": "a", "outputKey": "/result/structuredContent"}
    run = model([node("a"), node("b", inputs={"arguments": arguments})], [edge("a", "b")])
    succeed(run, "a", result=b'{"structuredContent": {"n": 1.10, "s": "\\u00e9"} }')
    assert isinstance(run.commands[0], ScheduleNode)
    assert run.commands[0].inputs == b'{"arguments":{"n": 1.10, "s": "\\u00e9"}}'


def test_what_may_be_called_goes_with_each_attempt_at_a_call_and_with_nothing_else() -> None:
    nodes = [node("a"), node("l", "community.mcp.list-tools", config={"serverId": "weather"})]
    run = model(nodes, allowedTools=["weather.*", "é"])
    carried = {one.node_id: one.allowed for one in run.commands if isinstance(one, ScheduleNode)}
    assert carried == {"a": '["weather.*","é"]'.encode(), "l": None}
    fail(run, "a")
    run = model([node("a")])
    assert [one.allowed for one in run.commands if isinstance(one, ScheduleNode)] == [None]


def test_arguments_are_composed_member_by_member_with_their_exact_bytes() -> None:
    inputs = {
        "arguments.when": {"type": "connection", "nodeId": "a", "outputKey": "/result/when"},
        "arguments.gone": {"type": "connection", "nodeId": "a", "outputKey": "/result/gone", "optional": True},
        "arguments.city": {"type": "variable", "variableName": "city"},
        "idempotencyKey": {**STATIC, "value": "k"},
        "arguments.\u00e9": {**STATIC, "value": 1},
    }
    nodes = [node("a"), node("b", inputs=inputs)]
    variables = [{"name": "city", "type": "string"}]
    run = model(nodes, [edge("a", "b")], b'{"city": "Z\\u00fcrich"}', variables=variables)
    succeed(run, "a", result=b'{"when": [1.10, 2e0]}')
    assert isinstance(run.commands[0], ScheduleNode)
    assert run.commands[0].inputs == (
        '{"idempotencyKey":"k","arguments":{"when":[1.10, 2e0],"city":"Z\\u00fcrich","é":1}}'.encode()
    )


def test_arguments_whose_members_all_lack_a_value_are_an_empty_object() -> None:
    port = {"type": "variable", "variableName": "v", "optional": True}
    run = model([node("a", inputs={"arguments.v": port})], variables=[{"name": "v", "type": "string"}])
    assert isinstance(run.commands[0], ScheduleNode)
    assert run.commands[0].inputs == b'{"arguments":{}}'


def test_a_member_of_the_arguments_without_a_value_fails_its_node() -> None:
    port = {"type": "variable", "variableName": "v"}
    run = model([node("a", inputs={"arguments.v": port})], variables=[{"name": "v", "type": "string"}])
    assert payload(run, "node.failed", "a")["error"]["message"] == "inputs.arguments.v: variable 'v' has no value"


@pytest.mark.parametrize(
    ("key", "because"),
    [
        (
            "/result/structuredContent/cents",
            (
                "has no such member (a tool that answers with text alone has no structuredContent: take"
                " /result/content/0/text as a whole); correct outputKey, or mark"
            ),
        ),
        ("/result/cents", "has no such member; correct outputKey, or mark"),
    ],
)
def test_a_connection_without_a_value_says_what_to_do(key: str, because: str) -> None:
    port = {"type": "connection", "nodeId": "a", "outputKey": key}
    run = model([node("a"), node("b", inputs={"arguments.v": port})], [edge("a", "b")])
    succeed(run, "a", result=b'{"content": [{"type": "text", "text": "hidden"}]}')
    message = payload(run, "node.failed", "b")["error"]["message"]
    assert message.startswith(f"inputs.arguments.v: '{key}' of node 'a' has no value: its output {because}")
    assert "hidden" not in message


def test_the_conformance_node_takes_what_it_does_not_set_from_the_run() -> None:
    variables = [{"name": "method", "type": "string", "defaultValue": "serverHealth"}]
    nodes = [node("a", "core.conformance.mcp-client", inputs={"serverId": {**STATIC, "value": "s"}})]
    run = model(nodes, inputs=b'{"serverId":"t","uri":"u:1","idempotencyKey":"k"}', variables=variables)
    assert isinstance(run.commands[0], ScheduleNode)
    assert json.loads(run.commands[0].inputs) == {
        "serverId": "s",
        "method": "serverHealth",
        "uri": "u:1",
        "idempotencyKey": "k",
    }


@pytest.mark.parametrize("port", [{"type": "variable", "variableName": "v"}, None])
def test_a_node_whose_input_has_no_value_fails_and_is_not_scheduled(port: dict[str, Any] | None) -> None:
    port = port or {"type": "connection", "nodeId": "a", "outputKey": "/result/n"}
    nodes = [node("a"), node("b", inputs={"arguments": port})]
    run = model(nodes, [edge("a", "b")], variables=[{"name": "v", "type": "object"}])
    succeed(run, "a")
    error = payload(run, "node.failed", "b")["error"]
    assert error["code"] == "validation_error"
    assert error["message"].startswith("inputs.arguments: ")


def test_an_optional_input_without_value_stays_out() -> None:
    port = {"type": "variable", "variableName": "v", "optional": True}
    run = model([node("a", inputs={"arguments": port})], variables=[{"name": "v", "type": "object"}])
    assert isinstance(run.commands[0], ScheduleNode)
    assert run.commands[0].inputs == b"{}"


# --- refusals before any node ---


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (b"{}", "inputs.v: write it: the workflow requires it"),
        (b'{"v":"1"}', "inputs.v: write a JSON value of type number"),
        (b'{"v":null}', "inputs.v: write a JSON value of type number"),
        (b"[1]", "inputs: "),
    ],
)
def test_inputs_that_do_not_fit_fail_the_run_before_any_node(inputs: bytes, expected: str) -> None:
    run = model([node("a")], inputs=inputs, variables=[{"name": "v", "type": "number", "required": True}])
    assert run.types == ["run.started", "run.failed"]
    error = payload(run, "run.failed")["error"]
    assert error["code"] == "validation_error"
    assert error["message"].startswith(expected)
    assert "failedNodeId" not in payload(run, "run.failed")
    json.loads(run.log[0][3])


def test_a_required_variable_with_a_default_needs_no_input() -> None:
    variables = [{"name": "v", "type": "number", "required": True, "defaultValue": 1}]
    assert not model([node("a")], variables=variables).over


@pytest.mark.parametrize("text", [b"{", json.dumps(workflow([node("a", "core.nothing")])).encode()])
def test_a_definition_that_cannot_be_run_fails_the_run(text: bytes) -> None:
    run = TemporalModel(start(text))
    assert run.types == ["run.started", "run.failed"]
    assert payload(run, "run.failed")["error"]["code"] == "validation_error"


# --- delays ---


def test_a_delay_is_a_timer_and_then_complete() -> None:
    nodes = [node("a", "core.delay", config={"delayMs": 9000}, inputs={"delayMs": {**STATIC, "value": 1500}})]
    run = model(nodes)
    assert run.commands == [StartTimer(0, 1.5, "delay", "a")]
    run.now += 1500
    run.fire(0)
    run.task()
    assert payload(run, "node.completed", "a") == {"nodeId": "a", "outputs": {}, "durationMs": 1500}


def test_a_delay_of_nothing_starts_no_timer() -> None:
    run = model([node("a", "core.delay", config={"delayMs": 0})])
    assert run.types[-1] == "run.completed"


# --- trigger rules ---

ENDS = {"succeeds": "success", "fails": "failed", "is skipped": "skipped"}
ALL_ENDS = list(itertools.product(ENDS.values(), repeat=2))
RULES = {
    "all_success": lambda ends: all(end == "success" for end in ends),
    "any_success": lambda ends: "success" in ends,
    "all_complete": lambda ends: True,
    "none_failed": lambda ends: "failed" not in ends,
    "any_failed": lambda ends: "failed" in ends,
}


def _join(rule_of: dict[str, str], ends: dict[str, str]) -> TemporalModel:
    """Two sources that end as told, and a node ``t`` that joins them."""
    nodes = [node("top", "core.noop")]
    edges = []
    for source, end in ends.items():
        nodes.append(node(source, "core.fail" if end == "failed" else "core.noop"))
        skip = {"condition": {"type": "truthy", "left": 0}} if end == "skipped" else {}
        edges += [edge("top", source, **skip), edge(source, "t", rule_of[source])]
    return model([*nodes, node("t", "core.noop")], edges)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("ends", ALL_ENDS, ids="-".join)
def test_a_trigger_rule_decides_when_all_sources_are_settled(rule: str, ends: tuple[str, str]) -> None:
    run = _join({"p": rule, "q": rule}, dict(zip("pq", ends, strict=True)))
    runs = RULES[rule](ends)
    assert ("node.completed t" in run.types) is runs
    assert ("node.skipped t" in run.types) is not runs


@pytest.mark.parametrize("ends", ALL_ENDS, ids="-".join)
def test_edges_of_different_rules_each_have_to_hold(ends: tuple[str, str]) -> None:
    run = _join({"p": "any_failed", "q": "all_success"}, dict(zip("pq", ends, strict=True)))
    assert ("node.completed t" in run.types) is (ends == ("failed", "success"))


def test_a_join_waits_until_its_last_source_is_settled() -> None:
    run = model([node("a"), node("b"), node("t")], [edge("a", "t", "any_success"), edge("b", "t", "any_success")])
    succeed(run, "a")
    assert run.commands == []
    succeed(run, "b")
    assert [command.node_id for command in run.commands if isinstance(command, ScheduleNode)] == ["t"]


def test_a_skipped_node_tells_which_rule_and_which_edge() -> None:
    run = _join({"p": "all_success", "q": "all_success"}, {"p": "success", "q": "skipped"})
    assert payload(run, "node.skipped", "t") == {
        "nodeId": "t",
        "reason": "all_success does not hold: p>t success, q>t skipped",
    }


@pytest.mark.parametrize(
    ("condition", "reason"),
    [
        ({"type": "truthy", "left": "/result/a~1b/skyy"}, "a>b: '/result/a~1b/skyy' has no value"),
        ({"type": "equals", "left": "result.n", "right": 1}, "a>b: '/result/n' has no value"),
        (
            {"type": "equals", "left": "result", "right": {"type": "variable", "variableName": "v"}},
            "a>b: variable 'v' has no value",
        ),
        (
            {"type": "truthy", "left": {"type": "connection", "nodeId": "a", "outputKey": "/result/n"}},
            "a>b: '/result/n' of node 'a' has no value",
        ),
        ({"type": "equals", "left": "result", "right": 1}, "a>b skipped"),
    ],
)
@pytest.mark.parametrize("handed_over", [False, True])
def test_a_skipped_node_tells_which_operand_had_no_value(
    condition: dict[str, Any], reason: str, handed_over: bool
) -> None:
    nodes = [node("a"), node("c"), node("d"), node("b")]
    edges = [edge("a", "b", condition=condition), edge("c", "d"), edge("d", "b")]
    run = model(nodes, edges, variables=[{"name": "v", "type": "string"}])
    run.succeed(run.ordinal("a"), b'{"content":[]}')
    run.succeed(run.ordinal("c"))
    run.task(suggest=handed_over)
    assert len(run.histories) == 1 + handed_over
    succeed(run, "d")
    told = payload(run, "node.skipped", "b")["reason"]
    assert told.startswith(f"all_success does not hold: {reason}")


def test_a_condition_chooses_the_branch_by_the_result() -> None:
    by = {"type": "equals", "left": "result.structuredContent.n", "right": 1.1}
    edges = [edge("a", "b", condition=by), edge("a", "c", condition={**by, "type": "notEquals"})]
    run = model([node("a"), node("b", "core.noop"), node("c", "core.noop")], edges)
    succeed(run, "a", result=b'{"structuredContent":{"n":1.10}}')
    assert "node.completed b" in run.types
    assert "node.skipped c" in run.types
    assert payload(run, "run.completed")["outputs"] == {"b": {}}


# --- failures ---


def test_an_unhandled_failure_lets_independent_branches_go_on_and_fails_the_run() -> None:
    run = model([node("a"), node("b"), node("after-a"), node("after-b")], [edge("a", "after-a"), edge("b", "after-b")])
    fail(run, "a", call_failure(retryable=False, message="said no", code="mcp_error", delivery="answered"))
    assert "node.skipped after-a" in run.types
    succeed(run, "b")
    succeed(run, "after-b")
    assert run.types[-1] == "run.failed"
    failed = payload(run, "run.failed")
    assert failed["failedNodeId"] == "a"
    assert failed["error"]["code"] == "mcp_error"
    assert failed["error"]["message"] == "said no"
    assert failed["error"]["details"]["delivery"] == "answered"
    [end] = run.commands
    assert isinstance(end, FailRun)
    assert (end.code, end.node_id) == ("mcp_error", "a")


def test_the_first_failure_names_the_run() -> None:
    run = model([node("a"), node("b")])
    run.fail(run.ordinal("b"), call_failure(retryable=False, message="second"))
    run.task()
    fail(run, "a", call_failure(retryable=False, message="later"))
    assert payload(run, "run.failed")["failedNodeId"] == "b"


@pytest.mark.parametrize("rule", ["all_complete", "any_failed"])
def test_a_failure_that_an_edge_admits_does_not_fail_the_run(rule: str) -> None:
    run = model([node("a"), node("b", "core.noop")], [edge("a", "b", rule)])
    fail(run, "a")
    assert run.types[-3:] == ["node.started b", "node.completed b", "run.completed"]


def test_core_fail_fails_with_internal_error() -> None:
    run = model([node("a", "core.fail")])
    assert payload(run, "node.failed", "a")["error"]["code"] == "internal_error"
    assert payload(run, "node.failed", "a")["attempts"] == 1


def test_a_failure_keeps_the_bytes_of_its_details() -> None:
    failure = call_failure(retryable=False)
    failure.application_failure_info.details.payloads.append(failures.json_payload(b'{"code": -1, "data": 1.10}'))
    run = model([node("a")])
    fail(run, "a", failure)
    assert b'"error":{"code": -1, "data": 1.10}' in run.log[-1][3]


@pytest.mark.parametrize(
    ("failure", "retryable"),
    [
        (call_failure(attempts=1), True),
        (call_failure(attempts=1, delivery="unknown"), True),
        (call_failure(attempts=1, delivery="unknown", repeat_safe=False), False),
        (call_failure(attempts=1, retryable=False), False),
    ],
)
def test_a_failure_is_retryable_where_a_repeat_could_help_and_is_safe(failure: Failure, retryable: bool) -> None:
    run = model([node("a")])
    fail(run, "a", failure)
    assert payload(run, "node.failed", "a")["error"]["retryable"] is retryable


# --- attempts ---


def test_a_further_attempt_waits_and_goes_out_under_a_new_activity_id() -> None:
    run = model([node("a")])
    fail(run, "a", call_failure(retry_after=2.5))
    assert run.commands == [StartTimer(1, 2.5, "retry", "a")]
    told = payload(run, "node.retried", "a")
    assert (told["attempt"], told["delayMs"], told["lastError"]["code"]) == (1, 2500, "upstream_unavailable")
    run.fire(1)
    run.task()
    [command] = run.commands
    assert isinstance(command, ScheduleNode)
    assert (command.ordinal, command.attempt, command.activity_id) == (2, 2, "a:2")
    succeed(run, "a")
    assert run.types == ["run.started", "node.started a", "node.retried a", "node.completed a", "run.completed"]


def test_a_further_attempt_without_a_wait_goes_out_at_once() -> None:
    run = model([node("a")])
    fail(run, "a", call_failure(retry_after=0))
    [command] = run.commands
    assert isinstance(command, ScheduleNode)
    assert command.attempt == 2


def test_attempts_end_where_the_policy_ends_them() -> None:
    run = model([node("a")])
    for _ in range(2):
        fail(run, "a", call_failure(retry_after=0, attempts=3))
    fail(run, "a", call_failure(retry_after=0, attempts=3))
    assert payload(run, "node.failed", "a")["attempts"] == 3


def test_waits_add_up_against_the_total() -> None:
    run = model([node("a")])
    fail(run, "a", call_failure(retry_after=9, attempts=9))
    run.fire(run.ordinal("a"))
    run.task()
    fail(run, "a", call_failure(retry_after=9, attempts=9))
    assert run.types[-1] == "run.failed"


def test_a_workflow_may_allow_fewer_retries_than_the_server() -> None:
    run = model([node("a")], settings={"maxRetries": 0})
    fail(run, "a", call_failure(retry_after=0))
    assert run.types[-1] == "run.failed"


def test_a_later_attempt_has_the_same_inputs() -> None:
    port = {"type": "connection", "nodeId": "a", "outputKey": "/result/x"}
    run = model([node("a"), node("b", inputs={"arguments": port})], [edge("a", "b")])
    succeed(run, "a", result=b'{"x":{"n":1.10}}')
    fail(run, "b", call_failure(retry_after=0))
    [command] = run.commands
    assert isinstance(command, ScheduleNode)
    assert command.inputs == b'{"arguments":{"n":1.10}}'


# --- cancelling ---


def test_a_cancel_waits_for_what_is_in_flight_and_records_how_it_ended() -> None:
    run = model([node(n) for n in "abc"] + [node("d")], [edge("a", "d")])
    run.request_cancel("enough")
    run.task()
    assert run.commands == [CancelNode(0), CancelNode(1), CancelNode(2), StartTimer(3, 3.0, "cancel-grace", None)]
    run.cancelled(0)
    run.succeed(1)
    run.fail(2, call_failure())
    run.task()
    assert run.types[-4:] == ["node.cancelled a", "node.completed b", "node.failed c", "run.cancelled"]
    assert run.commands == [CancelRun()]
    assert payload(run, "run.cancelled")["reason"] == "enough"
    assert "node.started d" not in run.types


def test_a_cancel_gives_up_on_what_does_not_answer_within_the_grace() -> None:
    run = model([node("a")])
    run.request_cancel()
    run.task()
    run.now += 3000
    run.fire(1)
    run.task()
    assert run.types[-2:] == ["node.cancelled a", "run.cancelled"]


def test_a_cancel_with_nothing_but_timers_under_way_ends_at_once() -> None:
    run = model([node("a", "core.delay", config={"delayMs": 5})])
    run.request_cancel()
    run.task()
    assert run.commands == [CancelNode(0), CancelRun()]
    assert run.types[-2:] == ["node.cancelled a", "run.cancelled"]


def test_nothing_starts_in_the_task_that_brings_the_cancel() -> None:
    run = model([node("a"), node("b")], [edge("a", "b")])
    run.succeed(0)
    run.request_cancel()
    run.task()
    assert run.commands == [CancelRun()]
    assert run.types[-2:] == ["node.completed a", "run.cancelled"]


def test_an_attempt_that_would_be_repeated_is_cancelled_instead() -> None:
    run = model([node("a")])
    run.fail(0, call_failure())
    run.request_cancel()
    run.task()
    assert run.types[-2:] == ["node.cancelled a", "run.cancelled"]


def test_a_run_that_completes_in_the_task_that_brings_the_cancel_is_completed() -> None:
    run = model([node("a")])
    run.request_cancel()
    run.succeed(0)
    run.task()
    assert run.types[-1] == "run.completed"


def test_a_second_cancel_changes_nothing() -> None:
    run = model([node("a")])
    run.request_cancel("first")
    run.task()
    run.request_cancel("second")
    run.task()
    assert run.commands == []
    run.cancelled(0)
    run.task()
    assert payload(run, "run.cancelled")["reason"] == "first"


# --- continue-as-new ---


def _drained() -> TemporalModel:
    """Two branches and a delay; the drain comes with the first result."""
    port = {"type": "connection", "nodeId": "a", "outputKey": "result"}
    nodes = [
        node("a"),
        node("b"),
        node("wait", "core.delay", config={"delayMs": 60_000}),
        node("c", inputs={"arguments": port}),
        node("end", "core.noop"),
    ]
    edges = [edge("a", "c"), edge("b", "c"), edge("c", "end", "all_complete"), edge("wait", "end", "all_complete")]
    return model(nodes, edges)


def test_a_drain_starts_nothing_and_hands_over_when_no_activity_is_under_way() -> None:
    run = _drained()
    run.now += 1000
    run.succeed(run.ordinal("a"), b'{"n": 1.10}')
    run.task(suggest=True)
    assert run.commands == []
    assert len(run.histories) == 1
    succeed(run, "b")
    assert len(run.histories) == 2
    timer, call = run.under_way.values()
    assert isinstance(timer, StartTimer)
    assert (timer.purpose, timer.node_id, timer.seconds) == ("delay", "wait", 59.0)
    assert isinstance(call, ScheduleNode)
    assert call.inputs == b'{"arguments":{"n": 1.10}}'


def test_a_run_that_was_handed_over_goes_on_with_its_numbers_and_ends_once() -> None:
    run = _drained()
    run.succeed(run.ordinal("a"))
    run.succeed(run.ordinal("b"))
    run.task(suggest=True)
    assert len(run.histories) == 2
    assert min(run.under_way) > 2
    fail(run, "c", call_failure(retryable=False))
    run.now += 60_000
    run.fire(run.ordinal("wait"))
    run.task()
    assert run.types.count("run.started") == 1
    assert [told[0] for told in run.log] == list(range(len(run.log)))
    assert run.types[-1] == "run.completed"
    assert payload(run, "node.completed", "wait")["durationMs"] == 60_000


def test_a_failure_before_the_handover_still_fails_the_run_after_it() -> None:
    run = model([node("a"), node("b"), node("c")], [edge("b", "c")])
    fail(run, "a", call_failure(retryable=False, message="first"))
    run.succeed(run.ordinal("b"))
    run.task(suggest=True)
    assert len(run.histories) == 2
    succeed(run, "c")
    assert payload(run, "run.failed")["failedNodeId"] == "a"


def test_outputs_of_ends_from_before_the_handover_stand_in_the_last_event() -> None:
    run = model([node("a"), node("b"), node("c")], [edge("b", "c")])
    run.succeed(run.ordinal("a"), b'{"early": 1.0}')
    run.succeed(run.ordinal("b"))
    run.task(suggest=True)
    succeed(run, "c", result=b"{}")
    assert b'"outputs":{"a":{"result":{"early": 1.0}},"c":{"result":{}}}' in run.log[-1][3]


def test_a_handed_over_state_holds_only_outputs_that_are_still_needed() -> None:
    port = {"type": "connection", "nodeId": "a", "outputKey": "result"}
    run = RunMachine(
        start(
            workflow([node("a"), node("b"), node("c", inputs={"arguments": port})], [edge("a", "c"), edge("b", "c")])
        ),
        b"{}",
    )
    run.begin(1.0)
    [handed] = run.apply(
        [NodeSucceeded(0, b'{"kept":1}', 2.0), NodeSucceeded(1, b'{"dropped":1}', 2.0), DrainRequested(2.0)]
    )
    assert isinstance(handed, ContinueAsNew)
    assert b'{"kept":1}' in handed.state
    assert b"dropped" not in handed.state


def test_a_retry_that_waits_is_taken_along() -> None:
    run = model([node("a")])
    run.fail(0, call_failure(retry_after=4))
    run.task(suggest=True)
    assert len(run.histories) == 2
    assert run.commands == [StartTimer(2, 4.0, "retry", "a")]
    run.fire(2)
    run.task()
    [command] = run.commands
    assert isinstance(command, ScheduleNode)
    assert (command.attempt, command.ordinal) == (2, 3)


# --- facts ---


def test_a_fact_of_what_is_no_longer_under_way_is_ignored() -> None:
    run = RunMachine(start(workflow([node("a"), node("b")])), b"{}")
    run.begin(1.0)
    run.apply([NodeSucceeded(0, b"{}", 2.0)])
    assert run.apply([TimerFired(0, 3.0)]) == []


def test_a_fact_of_what_was_never_under_way_is_an_error() -> None:
    run = RunMachine(start(workflow([node("a")])), b"{}")
    run.begin(1.0)
    with pytest.raises(ValueError, match="no ordinal 7"):
        run.apply([NodeSucceeded(7, b"{}", 2.0)])


def test_after_its_end_a_run_takes_no_more_facts() -> None:
    run = RunMachine(start(workflow([node("a")])), b"{}")
    run.begin(1.0)
    [end] = run.apply([NodeSucceeded(0, b"{}", 2.0)])
    assert run.over == end
    assert run.apply([CancelRequested("late", 3.0)]) == []


def test_times_of_a_log_never_go_back() -> None:
    told: list[int] = []
    run = RunMachine(start(workflow([node("a"), node("b")])), b"{}", emit=lambda *event: told.append(event[4]))
    run.begin(10.0)
    failure = failures.read(call_failure(retryable=False))
    run.apply([NodeFailed(0, failure, 12.0), NodeSucceeded(1, b"{}", 11.0)])
    assert told == sorted(told)


def test_a_long_chain_of_core_nodes_neither_recurses_nor_takes_long() -> None:
    nodes = [node(f"n{index}", "core.noop") for index in range(2000)]
    edges = [edge(f"n{index}", f"n{index + 1}") for index in range(1999)]
    assert model(nodes, edges).types[-1] == "run.completed"


# --- questions ---

ACCEPT = b'{"action":"accept"}'
REJECT = b'{"action":"reject"}'
EDITED = b'{ "content":[], "n":1.10 }'
DONE = b'{"action":"edit-accept","editedArtifactData":' + EDITED + b"}"


def suspended(*node_ids: str, then: list[Any] | None = None) -> TemporalModel:
    """A run whose nodes all wait for a person."""
    run = model([node(n) for n in node_ids] + (then or []))
    for node_id in node_ids:
        run.fail(run.ordinal(node_id), in_doubt(effectId=f"acme/{node_id}", attempt=1))
    run.task()
    return run


def test_an_effect_in_doubt_suspends_its_node_and_asks() -> None:
    run = suspended("a")
    assert run.types[2:] == ["interrupt.requested a", "node.suspended a"]
    assert run.commands == [NoteWaiting(1)]
    asked, told = payload(run, "interrupt.requested", "a"), payload(run, "node.suspended", "a")
    assert asked["kind"] == told["kind"] == "approval"
    assert asked["data"]["artifactId"] == "acme/a"
    assert "nodeId" not in asked
    assert told["key"] == asked["key"]
    assert told["interruptId"] == run.questions["a"]
    assert told["interruptId"].startswith("acme/")


@pytest.mark.parametrize(
    ("answer", "decision", "verdict"),
    [
        (ACCEPT, "granted", b'{"verdict":"resend","round":0,"since":2}'),
        (REJECT, "rejected", b'{"verdict":"fail","round":0,"since":2}'),
        (DONE, "granted", b'{"verdict":"done","round":0,"since":2,"result":' + EDITED + b"}"),
    ],
    ids=["accept", "reject", "edit-accept"],
)
def test_the_answer_travels_with_the_next_attempt(answer: bytes, decision: str, verdict: bytes) -> None:
    run = suspended("a")
    run.answer("a", answer)
    run.task()
    assert run.types[4:] == ["interrupt.resolved a", "node.resumed a"]
    resolved = payload(run, "interrupt.resolved", "a")
    assert (resolved["decision"], resolved["action"]) == (decision, json.loads(answer)["action"])
    assert resolved["resolvedBy"] == {"subjectId": "alice"}
    assert resolved.get("editedArtifactData") == (json.loads(EDITED) if answer == DONE else None)
    assert payload(run, "node.resumed", "a")["interruptId"] == resolved["interruptId"]
    command, note = run.commands
    assert isinstance(command, ScheduleNode)
    assert (command.activity_id, command.answer) == ("a:2", verdict)
    assert note == NoteWaiting(0)


@pytest.mark.parametrize("given", [ACCEPT, REJECT, DONE])
@pytest.mark.parametrize("handed_over", [False, True])
def test_an_answer_holds_for_every_attempt_until_it_is_carried_out(given: bytes, handed_over: bool) -> None:
    run = suspended("a")
    run.answer("a", given)
    run.task()
    (first,) = run.under_way.values()
    assert isinstance(first, ScheduleNode)
    assert first.answer is not None
    run.fail(first.ordinal, call_failure())
    run.task(suggest=handed_over)
    (timer,) = run.under_way.values()
    run.fire(timer.ordinal)
    run.task()
    (second,) = run.under_way.values()
    assert isinstance(second, ScheduleNode)
    assert (second.activity_id, second.answer) == ("a:3", first.answer)
    assert len(run.histories) == 1 + handed_over


def test_an_answer_outlives_an_attempt_that_a_pause_cut_before_a_worker_took_it() -> None:
    run = suspended("a")
    run.answer("a", REJECT)
    run.task()
    (first,) = run.under_way.values()
    assert isinstance(first, ScheduleNode)
    run.pause("immediate")
    run.task()
    run.cancelled(first.ordinal, taken=False)
    run.task()
    run.resume()
    run.task()
    (second,) = run.under_way.values()
    assert isinstance(second, ScheduleNode)
    assert (second.activity_id, second.answer) == ("a:3", first.answer)


def test_leave_to_send_again_is_used_up_where_the_server_asks_or_the_effect_is_in_doubt_again() -> None:
    run = suspended("a")
    run.answer("a", ACCEPT)
    run.task()
    run.succeed(run.ordinal("a"), b'{"resultType":"input_required","requestState":"s"}', interim="input", round="1")
    run.task()
    (timer,) = run.under_way.values()
    run.fire(timer.ordinal)
    run.task()
    (command,) = run.under_way.values()
    assert isinstance(command, ScheduleNode)
    assert (command.activity_id, command.answer) == ("a:3", None)


@pytest.mark.parametrize(
    ("first", "last", "delivery"),
    [
        ({"delivery": "unknown", "effectId": "acme/a"}, {}, "unknown"),
        ({"delivery": "unknown", "effectId": "acme/a"}, {"delivery": "not_processed"}, "unknown"),
        ({"delivery": "unknown", "effectId": "acme/a"}, {"delivery": "answered", "retryable": False}, "answered"),
        # What only reads has no effect.
        ({"delivery": "unknown"}, {}, "not_sent"),
        ({"effectId": "acme/a"}, {}, "not_sent"),
    ],
)
@pytest.mark.parametrize("handed_over", [False, True])
def test_a_failure_says_what_an_attempt_before_the_last_one_may_have_done(
    first: dict[str, Any], last: dict[str, Any], delivery: str, handed_over: bool
) -> None:
    run = model([node("a")])
    run.fail(run.ordinal("a"), call_failure(attempts=2, **first))
    run.task(suggest=handed_over)
    (timer,) = run.under_way.values()
    run.fire(timer.ordinal)
    run.task()
    run.fail(run.ordinal("a"), call_failure(attempts=2, **last))
    run.task()
    error = payload(run, "run.failed")["error"]
    assert error["details"]["delivery"] == delivery
    assert ("the effect may have happened" in error["message"]) is (delivery == "unknown")


def test_a_second_doubt_is_a_question_of_its_own() -> None:
    run = suspended("a")
    first = run.questions["a"]
    run.answer("a", ACCEPT)
    run.task()
    fail(run, "a", in_doubt(effectId="acme/a", attempt=2))
    assert run.questions["a"] != first
    assert run.machine.open_interrupts(first) == []
    assert run.machine.was_answered(first)


def test_each_branch_waits_with_a_question_of_its_own_and_the_others_go_on() -> None:
    run = model([node(n) for n in "abcd"], [edge("c", "d")])
    for node_id in "ab":
        run.fail(run.ordinal(node_id), in_doubt(effectId=f"acme/{node_id}"))
    run.succeed(run.ordinal("c"))
    run.task()
    assert sorted(run.questions) == ["a", "b"]
    assert len(set(run.questions.values())) == 2
    succeed(run, "d")
    assert not run.over
    run.answer("b", REJECT)
    run.task()
    assert sorted(run.questions) == ["a"]
    fail(run, "b")
    run.answer("a", DONE)
    run.task()
    succeed(run, "a")
    assert run.types[-1] == "run.failed"


def test_two_answers_of_one_task_each_find_their_question() -> None:
    run = suspended("a", "b")
    run.answer("b", ACCEPT)
    run.answer("a", DONE)
    run.task()
    answers = {command.node_id: command.answer for command in run.commands if isinstance(command, ScheduleNode)}
    assert answers["b"] == b'{"verdict":"resend","round":0,"since":2}'
    assert EDITED in (answers["a"] or b"")


def sharing(*node_ids: str) -> TemporalModel:
    """A run whose nodes share one effect; the first two wait for a person."""
    run = model([node(n) for n in node_ids])
    for node_id in node_ids[:2]:
        run.fail(run.ordinal(node_id), in_doubt(effectId="acme/shared", attempt=1, round=1))
    run.task()
    return run


@pytest.mark.parametrize("handover", [False, True])
def test_one_answer_resumes_every_node_that_waits_with_the_same_effect(handover: bool) -> None:
    run = sharing("a", "b", "c")
    if handover:
        run.succeed(run.ordinal("c"))
        run.task(suggest=True)
        assert len(run.histories) == 2
    assert run.questions["a"] == run.questions["b"]
    run.answer("a", DONE)
    run.task()
    assert run.types[-4:] == [
        *("interrupt.resolved a", "node.resumed a"),
        *("interrupt.resolved b", "node.resumed b"),
    ]
    *attempts, note = run.commands
    verdict = b'{"verdict":"done","round":1,"since":2,"result":' + EDITED + b"}"
    assert [(one.activity_id, one.answer) for one in attempts if isinstance(one, ScheduleNode)] == [
        ("a:2", verdict),
        ("b:2", verdict),
    ]
    assert note == NoteWaiting(0)


def test_a_node_that_comes_to_a_question_after_its_answer_asks_anew_and_is_answered() -> None:
    run = sharing("a", "b", "c")
    run.answer("a", ACCEPT)
    run.task()
    fail(run, "c", in_doubt(effectId="acme/shared", attempt=1, round=1))
    assert list(run.questions) == ["c"]
    assert run.machine.was_answered(run.questions["c"])
    run.answer("c", ACCEPT)
    run.task()
    assert run.types[-2:] == ["interrupt.resolved c", "node.resumed c"]
    succeed(run, "a", "b", "c")
    assert run.types[-1] == "run.completed"


@pytest.mark.parametrize("value", [b"{}", b'{"action":"edit-accept"}', b"7"])
def test_what_is_no_answer_is_refused(value: bytes) -> None:
    run = suspended("a")
    (ordinal,) = run.machine.open_interrupts(run.questions["a"])
    with pytest.raises(InvalidRequestError):
        run.machine.check_answer(ordinal, value)


def test_a_cancel_ends_a_run_that_waits_at_once() -> None:
    run = suspended("a", "b")
    run.request_cancel()
    run.task()
    assert run.types[-3:] == ["node.cancelled a", "node.cancelled b", "run.cancelled"]
    assert run.over
    assert not any(isinstance(command, StartTimer | ScheduleNode) for command in run.commands)


@pytest.mark.parametrize("at_once", [True, False])
def test_nothing_is_sent_that_was_answered_in_the_task_that_brings_the_cancel(at_once: bool) -> None:
    run = model([node("a"), node("b"), node("c")], [edge("b", "c")])
    fail(run, "a", in_doubt(effectId="acme/a"))
    run.answer("a", ACCEPT)
    run.succeed(run.ordinal("b"))
    run.request_cancel()
    run.task(at_once=at_once)
    assert run.over
    resolved, completed = ["interrupt.resolved a", "node.resumed a"], ["node.completed b"]
    told = [*completed, *resolved] if at_once else [*resolved, *completed]
    assert run.types[5:] == [*told, "node.cancelled a", "run.cancelled"]
    assert [one for one in run.histories[-1] if one.HasField("activity_task_scheduled_event_attributes")][2:] == []


def test_questions_and_answers_are_taken_along_by_a_handover() -> None:
    run = model([node("a"), node("b"), node("c")])
    for node_id in "ab":
        run.fail(run.ordinal(node_id), in_doubt(effectId=f"acme/{node_id}", round=3))
    run.task()
    before = dict(run.questions)
    run.answer("b", DONE)
    run.succeed(run.ordinal("c"))
    run.task(suggest=True, at_once=True)
    assert len(run.histories) == 2
    (command,) = run.commands
    assert isinstance(command, ScheduleNode)
    assert (command.activity_id, command.answer) == (
        "b:2",
        b'{"verdict":"done","round":3,"since":2,"result":' + EDITED + b"}",
    )
    assert len(run.machine.open_interrupts(before["a"])) == 1
    assert run.machine.was_answered(before["b"])
    assert not run.machine.was_answered(before["a"])
    run.answer("a", ACCEPT)
    run.task()
    command, note = run.commands
    assert note == NoteWaiting(0)
    assert isinstance(command, ScheduleNode)
    assert (command.activity_id, command.answer) == ("a:2", b'{"verdict":"resend","round":3,"since":2}')
    succeed(run, "a", "b")
    assert run.types[-1] == "run.completed"


def test_an_answer_that_is_there_before_the_next_part_begins_finds_its_question() -> None:
    run = model([node("a"), node("b")])
    fail(run, "a", in_doubt(effectId="acme/a"))
    run.early = lambda _: {"a": REJECT}
    run.succeed(run.ordinal("b"))
    run.task(suggest=True)
    assert len(run.histories) == 2
    assert run.types[-2:] == ["interrupt.resolved a", "node.resumed a"]
    assert [command.activity_id for command in run.commands if isinstance(command, ScheduleNode)] == ["a:2"]


def test_a_task_that_brings_answers_only_hands_nothing_over_as_a_cancel_may_come_with_it() -> None:
    run = suspended("a")
    run.answer("a", ACCEPT)
    run.request_cancel()
    run.task(suggest=True)
    assert len(run.histories) == 1
    assert run.types[-1] == "run.cancelled"


def test_a_wait_alone_hands_nothing_over() -> None:
    run = suspended("a", "b")
    run.answer("a", ACCEPT)
    run.task(suggest=True)
    assert len(run.histories) == 1
    succeed_with_suggestion(run, "a")
    assert len(run.histories) == 2
    assert sorted(run.questions) == ["b"]


def succeed_with_suggestion(run: TemporalModel, node_id: str) -> None:
    run.succeed(run.ordinal(node_id))
    run.task(suggest=True)


def test_a_long_answer_counts_as_part_of_its_call() -> None:
    run = suspended("a", "b", "c")
    result = b'{"content":[],"x":"' + b"x" * 1_200_000 + b'"}'
    for node_id in "abc":
        run.answer(node_id, b'{"action":"edit-accept","editedArtifactData":' + result + b"}")
    run.task()
    assert len([command for command in run.commands if isinstance(command, ScheduleNode)]) == 2
    while not run.over:
        succeed(run, *[command.node_id for command in run.under_way.values() if command.node_id])
    assert run.types[-1] == "run.completed"
