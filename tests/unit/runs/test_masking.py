"""What a log does not show: wherever a sensitive value goes, and nothing else."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.failure.v1 import Failure
from temporalio.converter import DataConverter

from openwop_mcp import failures
from openwop_mcp.calls import CallRequest
from openwop_mcp.effects.decide import RetryPolicy
from openwop_mcp.errors import InvalidRequestError, RpcError
from openwop_mcp.nodes import REGISTRY, NodeCall
from openwop_mcp.runs.machine import RunMachine, ScheduleNode, StartTimer
from openwop_mcp.runs.masking import masks
from openwop_mcp.runs.projection import Projector
from openwop_mcp.runs.records import MadeCall
from tests.support.call_failures import call_failure, in_doubt
from tests.support.exact import ARGUMENTS
from tests.support.graphs import CALL_CONFIG, RUN_ID, edge, node, start, workflow
from tests.support.questions import APPROVAL_FACTS, GATE_CONFIGS, input_required
from tests.support.temporal_model import TemporalModel

SECRET = "hunter2-hunter2"
MASKED = "[REDACTED]"

TOKEN = {"type": "variable", "variableName": "token"}
SENSITIVE = [{"name": "token", "type": "string", "sensitive": True}]
INPUTS = json.dumps({"token": SECRET, "city": "Bern"}).encode()


def static(value: Any) -> dict[str, Any]:
    return {"type": "static", "value": value}


def result_of(node_id: str, path: str = "result") -> dict[str, Any]:
    return {"type": "connection", "nodeId": node_id, "outputKey": path}


def model(nodes: list[Any], edges: list[Any] | None = None, inputs: bytes = INPUTS, **members: Any) -> TemporalModel:
    return TemporalModel(start(workflow(nodes, edges, **{"variables": SENSITIVE, **members})), inputs)


def taker(node_id: str = "a", **members: Any) -> dict[str, Any]:
    return node(node_id, inputs={"arguments.city": static("Bern"), "arguments.token": TOKEN}, **members)


def payload(run: TemporalModel, event_type: str, node_id: str | None = None) -> dict[str, Any]:
    [found] = [told[3] for told in run.log if told[1] == event_type and told[2] == node_id]
    decoded: dict[str, Any] = json.loads(found)
    return decoded


def succeed(run: TemporalModel, node_id: str, result: bytes) -> None:
    run.succeed(run.ordinal(node_id), result)
    run.task()


# --- wherever it goes ---


OUTPUTS = {"core.identity": "payload", "core.approvalGate": "resumeValue"}
"""The output that is read of a node of a type."""


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:  # noqa: C901 - one case each
    nodes: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    for index in range(draw(st.integers(1, 6))):
        name = f"n{index}"
        sources = draw(st.lists(st.integers(0, index - 1), max_size=2, unique=True)) if index else []
        edges += [edge(f"n{one}", name, draw(st.sampled_from(["all_complete", "all_success"]))) for one in sources]
        read = [one for one in sources if nodes[one]["typeId"] != "core.noop"]
        ports: list[dict[str, Any]] = [TOKEN, static("x")]
        for one in read:
            outputs = OUTPUTS.get(nodes[one]["typeId"], "result")
            ports.append(
                {**result_of(f"n{one}", draw(st.sampled_from([outputs, f"/{outputs}/got"]))), "optional": True}
            )
        port = draw(st.sampled_from(ports))
        more: dict[str, Any] = {"outputSensitivity": {"result": True}} if draw(st.integers(0, 4)) == 0 else {}
        match draw(st.sampled_from(["member", "whole", "key", "name", "uri", "ambient", "identity", "noop", "gate"])):
            case "member":
                inputs = {"arguments.token": port, "arguments.other": static(1)}
                nodes.append(node(name, inputs=inputs, **more))
            case "whole":
                nodes.append(node(name, inputs={"arguments": {"type": "variable", "variableName": "all"}}, **more))
            case "key":
                nodes.append(node(name, inputs={"idempotencyKey": port}, **more))
            case "name":
                nodes.append(node(name, inputs={"name": port}, **more))
            case "uri":
                reads = "community.mcp.read-resource"
                nodes.append(node(name, reads, config={"serverId": "s"}, inputs={"uri": port}, **more))
            case "ambient":
                inputs = {"method": static("callTool"), "serverId": static("s"), "name": static("t")}
                nodes.append(node(name, "core.conformance.mcp-client", inputs=inputs, **more))
            case "gate":
                config = GATE_CONFIGS["core.approvalGate"]
                nodes.append(node(name, "core.approvalGate", config=config, inputs={"artifactData": port}))
            case "identity":
                nodes.append(node(name, "core.identity", inputs={"payload": {**port, "optional": False}}))
            case _:
                nodes.append(node(name, "core.noop"))
    named = [("token", "string"), ("all", "object"), ("uri", "string"), ("idempotencyKey", "string")]
    variables = [{"name": name, "type": kind, "sensitive": True} for name, kind in named]
    return workflow(nodes, edges, variables)


ALL = json.dumps(
    {"token": SECRET, "all": {"deep": [SECRET]}, "uri": f"secret:{SECRET}", "idempotencyKey": SECRET, "city": "Bern"}
).encode()


def end(run: TemporalModel, ordinal: int, how: str) -> None:
    """End a call of a server that gives back, and quotes, all that it was sent."""
    command = run.under_way[ordinal]
    assert isinstance(command, ScheduleNode)
    got = json.loads(command.inputs)
    quoted = json.dumps(got)
    facts = {"serverId": "s", **{name: got[name] for name in ("name", "uri") if name in got}, "excerpt": quoted}
    match how:
        case "result":
            run.succeed(ordinal, json.dumps({"content": [], "got": got, "isError": True}).encode())
        case "error":
            told = json.dumps({"code": 1, "message": quoted, "data": got}).encode()
            run.fail(ordinal, call_failure(retryable=False, message=quoted, rpc_error=told, **facts))
        case "asks":
            schema = {"type": "object", "description": quoted, "properties": {"x": {"enum": [json.dumps(got)]}}}
            request = {"method": "elicitation/create", "params": {"message": quoted, "requestedSchema": schema}}
            run.succeed(ordinal, input_required({"action": request}, quoted), interim="input")
        case "approval":
            told = json.dumps({**facts, "safetyTier": "write", "effectId": f"acme/{ordinal}"}).encode()
            run.succeed(ordinal, told, interim="approval")
        case "retry":
            run.fail(ordinal, call_failure(message=quoted, retry_after=0, **facts))
        case _:
            run.fail(ordinal, in_doubt(message=quoted, attempt=command.attempt, effectId=f"acme/{ordinal}", **facts))


def answers(run: TemporalModel, node_id: str, quoted: bytes) -> list[bytes]:
    """Answers to a node's question that quote what its server, or its gate, was given."""
    asked = next(json.loads(told[3]) for told in reversed(run.log) if told[1:3] == ("node.suspended", node_id))
    if asked["reason"] == "gate":
        shown = next(json.loads(told[3]) for told in reversed(run.log) if told[1:3] == ("interrupt.requested", node_id))
        quoted = ALL if shown["data"].get("artifactData") == MASKED else b"{}"
    accept, reject = b'{"action":"accept","why":%b}' % quoted, b'{"action":"reject","why":%b}' % quoted
    edited = b'{"action":"edit-accept","editedArtifactData":{"content":[],"got":%b}}' % quoted
    match asked["reason"]:
        case "input-required":
            text = json.dumps(json.dumps(json.loads(quoted))).encode()
            filled = b'{"action":{"action":"accept","content":{"x":%b}}}' % text
            return [filled, b'{"action":{"action":"decline"}}']
        case "approval-required":
            # What is said beside it is shown: it is no part of what the node takes or gives.
            return [b'{"action":"accept"}', b'{"action":"reject"}']
        case "gate":
            return [accept, reject, edited]
        case _:
            return [b'{"action":"accept"}', b'{"action":"reject"}', edited]


@given(graphs(), st.data())
def test_a_sensitive_value_stands_in_no_event_whatever_a_server_does_with_it(
    definition: dict[str, Any], data: st.DataObject
) -> None:
    run = TemporalModel(start(definition), ALL)
    sent: dict[str, bytes] = {}
    while not run.over:
        for ordinal in list(run.under_way):
            match run.under_way[ordinal]:
                case StartTimer():
                    run.fire(ordinal)
                case command:
                    sent[command.node_id] = command.inputs
                    ways = ["result", "result", "error", "retry", "doubt"]
                    if REGISTRY[command.type_id].asks:
                        ways += ["asks", "approval"]
                    end(run, ordinal, data.draw(st.sampled_from(ways)))
        for node_id in run.questions:
            run.answer(node_id, data.draw(st.sampled_from(answers(run, node_id, sent.get(node_id, ALL)))))
        if data.draw(st.integers(0, 9)) == 0:
            run.request_cancel()
        run.task(suggest=data.draw(st.integers(0, 4)) == 0)
    told = [one[:4] for one in run.log]
    assert not [one for one in told if SECRET.encode() in one[3]]
    projector = Projector(RUN_ID)
    projected = [event for history in run.histories for event in projector.project(history)]
    assert [(one.sequence, one.type, one.node_id, one.payload) for one in projected] == told


def test_the_same_runs_show_the_value_where_nothing_is_sensitive() -> None:
    variables = [{"name": "token", "type": "string"}]
    run = model([taker("a"), taker("b"), taker("c")], variables=variables)
    for node_id, how in (("a", "result"), ("b", "error"), ("c", "doubt")):
        end(run, run.ordinal(node_id), how)
    run.task()
    showing = {one[1] for one in run.log if SECRET.encode() in one[3]}
    assert showing == {"run.started", "node.completed", "node.failed", "interrupt.requested"}


# --- what is shown in its place ---


def test_inputs_of_the_run_are_masked_by_name_and_the_others_keep_their_bytes() -> None:
    run = model(
        [node("n", "core.noop")], inputs=b'{"n": 1.10, "token": {"a": 1}, "token":"again", "x":' + ARGUMENTS + b"}"
    )
    assert (
        run.log[0][3]
        .split(b'"inputs":')[1]
        .startswith(b'{"n":1.10,"token":"[REDACTED]","token":"[REDACTED]","x":' + ARGUMENTS + b"}")
    )


def test_the_call_itself_has_the_real_value() -> None:
    run = model([taker()])
    [command] = run.commands
    assert isinstance(command, ScheduleNode)
    assert json.loads(command.inputs) == {"arguments": {"city": "Bern", "token": SECRET}}


def test_a_worker_is_told_which_calls_it_must_not_quote() -> None:
    run = model([taker("a"), node("b"), node("c", outputSensitivity={"result": True})])
    assert [one.sensitive for one in run.commands if isinstance(one, ScheduleNode)] == [True, False, True]
    for sensitive in (True, False):
        call = NodeCall("a", "acme", 1, json.dumps(CALL_CONFIG).encode(), sensitive=sensitive)
        request, _ = NodeCall.decode(call.encode()).request(REGISTRY["community.mcp.call-tool"], b"{}")
        assert CallRequest.decode(request.encode()).sensitive is sensitive
        assert (b"sensitive" in call.encode(), b"sensitive" in request.encode()) == (sensitive, sensitive)


def test_a_failure_that_must_not_be_quoted_is_recorded_whole_and_printed_without_what_was_said() -> None:
    error = RpcError(f"no {SECRET}", rpc_code=1, error=b'{"code":1}', http_status=200, not_processed=False)
    made = failures.write(error, repeat_safe=True, policy=RetryPolicy())
    unsaid = failures.unsaid(made)
    assert SECRET in str(made)
    assert str(unsaid).startswith("mcp_error: ")
    assert SECRET not in f"{unsaid} {unsaid!r}"
    recorded = [Failure(), Failure()]
    for one, into in zip((made, unsaid), recorded, strict=True):
        DataConverter.default.failure_converter.to_failure(one, DataConverter.default.payload_converter, into)
    assert recorded[0] == recorded[1]


def test_a_result_that_may_hold_the_value_is_masked_in_its_node_and_in_the_run() -> None:
    run = model([taker("a"), node("b")])
    for node_id in "ab":
        succeed(run, node_id, b'{"content":[], "n": 1.10}')
    assert payload(run, "node.completed", "a")["outputs"] == {"result": MASKED}
    assert b'"outputs":{"result":{"content":[], "n": 1.10}}' in run.log[-2][3]
    assert b'"outputs":{"a":{"result":"[REDACTED]"},"b":{"result":{"content":[], "n": 1.10}}}' in run.log[-1][3]


def test_what_is_masked_follows_the_connections_of_the_graph() -> None:
    nodes = [
        taker("a"),
        node("b", "core.identity", inputs={"payload": result_of("a", "/result/part")}),
        node("c", inputs={"arguments.x": result_of("b", "payload")}),
        node("d"),
    ]
    run = model(nodes, [edge("a", "b"), edge("b", "c"), edge("c", "d")])
    succeed(run, "a", b'{"part": "of it"}')
    succeed(run, "c", b'{"more": 1}')
    succeed(run, "d", b'{"shown": 1}')
    assert [payload(run, "node.completed", one)["outputs"] for one in "abcd"] == [
        {"result": MASKED},
        {"payload": MASKED},
        {"result": MASKED},
        {"result": {"shown": 1}},
    ]


def test_an_author_may_say_that_an_output_is_not_sensitive_after_all() -> None:
    nodes = [taker("a", outputSensitivity={"result": False}), node("b", inputs={"arguments": result_of("a")})]
    run = model(nodes, [edge("a", "b")])
    succeed(run, "a", b'{"celsius": 3}')
    end(run, run.ordinal("b"), "error")
    run.task()
    assert payload(run, "node.completed", "a")["outputs"] == {"result": {"celsius": 3}}
    assert payload(run, "node.failed", "b")["error"]["details"]["error"]["data"] == {"arguments": {"celsius": 3}}


def test_an_author_may_say_that_an_output_is_sensitive_although_nothing_went_in() -> None:
    nodes = [node("a", outputSensitivity={"result": True}), node("b", inputs={"arguments": result_of("a")})]
    run = model(nodes, [edge("a", "b")], variables=[])
    assert payload(run, "run.started")["inputs"]["token"] == SECRET
    succeed(run, "a", b'{"ssn": 1}')
    end(run, run.ordinal("b"), "result")
    run.task()
    assert payload(run, "node.completed", "a")["outputs"] == {"result": MASKED}
    assert payload(run, "run.completed")["outputs"] == {"b": {"result": MASKED}}


def test_an_error_keeps_its_code_and_what_the_pack_says_of_it() -> None:
    run = model([taker()])
    end(run, run.ordinal("a"), "error")
    run.task()
    error = payload(run, "node.failed", "a")["error"]
    assert error == {
        "code": "upstream_unavailable",
        "message": MASKED,
        "details": {
            "code": "upstream_unavailable",
            "delivery": "not_sent",
            "retryable": False,
            "repeatSafe": True,
            "retry": {"attempts": 3, "maxWait": 10, "total": 15},
            "serverId": "s",
            "excerpt": MASKED,
            "error": MASKED,
        },
        "retryable": False,
    }
    del error["retryable"]
    failed = payload(run, "run.failed")
    assert (failed["error"], failed["failedNodeId"]) == (error, "a")


def test_what_a_server_says_of_a_sensitive_answer_is_masked_and_what_was_asked_is_not() -> None:
    run = model([node("a", inputs={"arguments": static({"id": 7})}, outputSensitivity={"result": True})])
    run.fail(run.ordinal("a"), in_doubt(message="half of it", effectId="acme/1", attempt=1, excerpt="half of it"))
    run.task()
    asked = payload(run, "interrupt.requested", "a")["data"]
    assert asked["artifactData"]["arguments"] == {"id": 7}
    assert asked["artifactData"]["excerpt"] == MASKED
    assert "half" not in json.dumps(asked)


def test_a_question_shows_the_arguments_that_are_not_sensitive_and_what_may_be_answered() -> None:
    run = model([node("a", inputs={"arguments.n": static(1), "arguments.token": TOKEN, "idempotencyKey": TOKEN})])
    run.fail(run.ordinal("a"), in_doubt(message=f"no {SECRET}", effectId="acme/1", attempt=1, serverId="s", name="t"))
    run.task()
    asked = payload(run, "interrupt.requested", "a")
    assert asked["data"]["title"] == "in doubt: s t"
    assert asked["data"]["actions"] == ["accept", "edit-accept", "reject"]
    assert asked["data"]["description"].startswith(f"{MASKED}. 'accept' sends it again, ")
    shown = asked["data"]["artifactData"]
    assert (shown["serverId"], shown["name"], shown["idempotencyKey"]) == ("s", "t", MASKED)
    assert shown["arguments"] == {"n": 1, "token": MASKED}


def test_a_question_shows_no_part_of_arguments_that_are_sensitive_as_a_whole() -> None:
    variables = [{"name": "all", "type": "object", "sensitive": True}]
    port = {"type": "variable", "variableName": "all"}
    run = model([node("a", inputs={"arguments": port})], inputs=b'{"all":{"n":1}}', variables=variables)
    run.fail(run.ordinal("a"), in_doubt(effectId="acme/1", attempt=1))
    run.task()
    assert payload(run, "interrupt.requested", "a")["data"]["artifactData"]["arguments"] == MASKED


def test_an_answer_is_masked_like_the_result_that_it_stands_for() -> None:
    run = model([taker("a"), node("b"), taker("c", outputSensitivity={"result": False})])
    answer = json.dumps({"action": "edit-accept", "editedArtifactData": {"content": [SECRET]}, "why": SECRET}).encode()
    for node_id in "abc":
        run.fail(run.ordinal(node_id), in_doubt(effectId=f"acme/{node_id}", attempt=1))
    run.task()
    for node_id in "abc":
        run.answer(node_id, answer)
    run.task()
    hidden = {"action": "edit-accept", "editedArtifactData": MASKED, "why": MASKED}
    assert payload(run, "interrupt.resolved", "a")["resumeValue"] == hidden
    assert payload(run, "interrupt.resolved", "a")["editedArtifactData"] == MASKED
    assert payload(run, "interrupt.resolved", "a")["resolvedBy"] == {"subjectId": "alice"}
    assert payload(run, "node.resumed", "a")["resumeValue"] == hidden
    for node_id in "bc":
        assert payload(run, "node.resumed", node_id)["resumeValue"] == json.loads(answer)


def test_a_servers_question_keeps_its_keys_and_nothing_that_may_quote_what_it_was_sent() -> None:
    run = model([taker("a", outputSensitivity={"result": False})])
    end(run, run.ordinal("a"), "asks")
    run.task()
    asked = payload(run, "interrupt.requested", "a")
    assert asked["data"] == {"questions": [{"id": "action", "question": MASKED}], "contextType": "mcp:weather.get"}
    assert asked["resumeSchema"] == {"type": "object"}
    (ordinal,) = run.machine.open_interrupts(run.questions["a"])
    wrong = b'{"action":{"action":"accept","content":{"x":"y"}}}'
    with pytest.raises(InvalidRequestError) as caught:
        run.machine.check_answer(ordinal, wrong)
    assert SECRET not in caught.value.message
    run.answer("a", b'{"action":{"action":"decline"}}')
    run.task()
    assert payload(run, "node.resumed", "a")["resumeValue"] == {"action": MASKED}
    assert payload(run, "interrupt.resolved", "a")["resumeValue"] == {"action": MASKED}


def test_a_call_to_be_approved_shows_what_is_sent_but_for_what_is_sensitive() -> None:
    run = model([taker("a")])
    run.succeed(run.ordinal("a"), APPROVAL_FACTS, interim="approval")
    run.task()
    asked = payload(run, "interrupt.requested", "a")["data"]
    assert asked["artifactData"]["arguments"] == {"city": "Bern", "token": MASKED}
    assert (asked["artifactData"]["safetyTier"], asked["title"]) == ("write", "approve: weather get")
    assert "nothing sent" in asked["description"]


def test_a_gate_hides_what_it_shows_and_what_is_said_of_it_where_that_is_sensitive() -> None:
    gate = {"config": {**GATE_CONFIGS["core.approvalGate"], "description": "d"}}
    run = model([node("a", "core.approvalGate", inputs={"artifactData": TOKEN}, **gate)])
    asked = payload(run, "interrupt.requested", "a")
    assert asked["data"]["artifactData"] == MASKED
    assert (asked["data"]["title"], asked["data"]["description"]) == ("Go on?", "d")
    assert "properties" in asked["resumeSchema"]
    run.answer("a", b'{"action":"refine","refineFeedback":{"scope":"whole","text":"x"}}')
    run.task()
    resolved = payload(run, "interrupt.resolved", "a")
    assert resolved["refineFeedback"] == MASKED
    assert resolved["resumeValue"] == {"action": "refine", "refineFeedback": MASKED}
    assert payload(run, "node.completed", "a")["outputs"] == {"action": MASKED, "resumeValue": MASKED}


def test_an_event_of_which_nothing_is_known_shows_only_which_node_it_is_about() -> None:
    run = model([taker("a"), node("b")])
    found = _masks(run)
    told = json.dumps({"nodeId": "a", "said": SECRET}).encode()
    assert json.loads(found.event("node.told", "a", told)) == {"nodeId": "a", "said": MASKED}
    assert found.event("node.told", "b", told) is told
    assert found.event("run.paused", None, told) is told


def _masks(run: TemporalModel) -> Any:
    definition = RunMachine(run.start, run.inputs)._definition
    found = masks(definition, run.start.definition)
    assert found is not None
    return found


def test_nothing_is_masked_of_a_run_without_sensitive_parts_and_what_is_shown_are_the_same_bytes() -> None:
    definition = json.dumps(workflow([node("a", outputSensitivity={"result": False})])).encode()
    assert masks(RunMachine(start(definition), b"{}")._definition, definition) is None
    run = model([taker("a"), node("b")])
    told = b'{ "nodeId":"b", "outputs":{ "result":{} } }'
    assert _masks(run).event("node.completed", "b", told) is told
    told = b'{ "inputs": {"city":"Bern" } }'
    assert _masks(run).event("run.started", None, told) is told


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps(workflow([node("a", "core.none")], variables=SENSITIVE)).encode(), MASKED),
        (b'{"variables":[1,{"name":"token","sensitive":true}]}', MASKED),
        (b'{"variables":[{"name":"token","sensitive":"true"}]}', SECRET),
        (b'{"variables":7}', SECRET),
        (b'"variables"', SECRET),
        (b"{", SECRET),
    ],
)
def test_inputs_of_a_run_whose_definition_is_unsound_are_masked_as_far_as_it_can_be_read(
    text: bytes, expected: str
) -> None:
    run = TemporalModel(start(text), INPUTS)
    assert run.types[-1] == "run.failed"
    assert payload(run, "run.started")["inputs"] == {"token": expected, "city": "Bern"}


# --- calls, as they are shown to people ---


def test_a_call_is_shown_without_what_it_was_sent_and_without_what_was_said_of_it() -> None:
    nodes = [
        node("a", "community.mcp.read-resource", config={}, inputs={"serverId": TOKEN, "uri": TOKEN}),
        taker("b"),
        node("c"),
    ]
    found = _masks(model(nodes))
    failure = failures.read(call_failure(message=SECRET, uri=SECRET, httpStatus=500))
    call = MadeCall("a", "a:1", "queue", SECRET, "resources/read", SECRET, 1, "failed", failure=failure)
    shown = found.call(call)
    assert (shown.server_id, shown.subject, shown.outcome, shown.failure.message) == (MASKED, MASKED, "failed", MASKED)
    assert shown.failure.happened == failure.happened
    assert json.loads(shown.failure.details)["httpStatus"] == 500
    assert SECRET not in repr(shown)
    other = found.call(dataclasses.replace(call, name="b", failure=None))
    assert (other.server_id, other.subject, other.failure) == (SECRET, SECRET, None)
    plain = dataclasses.replace(call, name="c")
    assert found.call(plain) is plain
    assert [found.hides(node_id) for node_id in "abc"] == [True, True, False]
