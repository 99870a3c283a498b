"""The projection: its log is the live run's, whatever happened in which order."""

from __future__ import annotations

import dataclasses
import itertools
import json
import random
from typing import Any

import pytest
import temporalio.api.enums.v1 as enums
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.update.v1 import Request

from openwop_mcp import failures
from openwop_mcp.runs.engines import ENGINES
from openwop_mcp.runs.events import TERMINAL, RunEvent
from openwop_mcp.runs.interrupts import RESOLVE, Resolution
from openwop_mcp.runs.machine import CancelRequested, NodeFailed, StartTimer
from openwop_mcp.runs.pauses import DrainPolicy
from openwop_mcp.runs.projection import ProjectionError, Projector
from openwop_mcp.runs.sessions import OPENED
from openwop_mcp.runs.start import Options
from tests.support.call_failures import call_failure, in_doubt
from tests.support.graphs import CALL_CONFIG, RUN_ID, edge, node, start, workflow
from tests.support.questions import ANSWERS, APPROVAL_FACTS, ELICITATION, GATE_CONFIGS
from tests.support.temporal_model import BEGINNING, TemporalModel, event
from tests.support.tool_sessions import BRACKETS, check_sessions, types

ACCEPTED: Any = "workflow_execution_update_accepted_event_attributes"
RUN_1 = "00000000-0000-4000-8000-000000000001"


def project(run: TemporalModel) -> list[RunEvent]:
    projector = Projector(RUN_ID)
    return [told for history in run.histories for told in projector.project(history)]


def told(events: list[RunEvent]) -> list[tuple[Any, ...]]:
    return [(item.sequence, item.type, item.node_id, item.payload) for item in events]


# --- any graph, any course of events ---

RULES = ["all_success", "any_success", "all_complete", "none_failed", "any_failed"]


CALLS = ["call", "call", "call", "core.noop", "core.fail", "core.delay"]


@st.composite
def graphs(draw: st.DrawFn, *, gates: bool = False) -> dict[str, Any]:
    count = draw(st.integers(1, 7))
    nodes, edges = [], []
    for index in range(count):
        sources = draw(st.lists(st.integers(0, index - 1), max_size=3, unique=True)) if index else []
        for source in sources:
            condition = draw(st.sampled_from([None, None, "truthy", "falsy"]))
            rule = draw(st.sampled_from(RULES))
            more = {} if condition is None else {"condition": {"type": condition}}
            edges.append(edge(f"n{source}", f"n{index}", rule, **more))
        kind = draw(st.sampled_from([*CALLS, *GATE_CONFIGS] if gates else CALLS))
        waits = draw(st.sampled_from([{}, {"timeoutMs": 30_000}]))
        if kind in GATE_CONFIGS:
            nodes.append(node(f"n{index}", kind, config={**GATE_CONFIGS[kind], **waits}))
        elif kind == "core.delay":
            nodes.append(node(f"n{index}", kind, config={"delayMs": draw(st.sampled_from([0, 700, 5000]))}))
        elif kind == "call":
            reads = draw(st.sampled_from(sources)) if sources and draw(st.booleans()) else None
            port = {"type": "connection", "nodeId": f"n{reads}", "outputKey": "result", "optional": draw(st.booleans())}
            is_call = reads is not None and nodes[reads]["typeId"] == "community.mcp.call-tool"
            config = {**CALL_CONFIG, **({"inputTimeoutMs": 20_000} if waits and gates else {})}
            nodes.append(node(f"n{index}", inputs={"arguments": port} if is_call else {}, config=config))
        else:
            nodes.append(node(f"n{index}", kind))
    return workflow(nodes, edges)


PEERS = st.sampled_from([{}, *({"peer": peer * 64, "floor": "2025-03-26"} for peer in "12")])
REVISIONS = st.sampled_from([{}, {"revision": "2026-07-28"}, {"revision": "2025-11-25"}])
STATUSES = st.sampled_from([{}, {"httpStatus": 401}])


def answers(run: TemporalModel, node_id: str) -> st.SearchStrategy[bytes]:
    """What a node's open question can be answered with."""
    asked = next(json.loads(told[3]) for told in reversed(run.log) if told[1:3] == ("node.suspended", node_id))
    return st.sampled_from(ANSWERS[asked["reason"], asked["kind"]])


def asked_for_input(data: st.DataObject, run: TemporalModel, ordinal: int) -> None:
    """A server asks for input, or for nothing but another call."""
    state = data.draw(st.sampled_from([{}, {"requestState": "s\u00fc"}]))
    requests = {"inputRequests": {"q": ELICITATION}} if not state or data.draw(st.booleans()) else {}
    result = json.dumps({"resultType": "input_required", **requests, **state}).encode()
    run.succeed(ordinal, result, interim="input", **data.draw(PEERS))


OPTIONS = st.builds(
    Options,
    run_timeout_ms=st.sampled_from([None, None, None, 1_000, 60_000]),
    max_node_executions=st.sampled_from([None, None, None, 1, 3]),
)
POLICIES: st.SearchStrategy[DrainPolicy] = st.sampled_from(["drain-current-node", "immediate"])
WHILE_PAUSED = {
    "node.completed",
    "node.failed",
    "interrupt.resolved",
    "node.resumed",
    "negotiation.decided",
    "tool.session-closed",
    # What stops a run stops a paused one as well.
    "cap.breached",
    "node.cancelled",
    "run.cancelled",
    "run.failed",
}


def turn(run: TemporalModel, data: st.DataObject, *, most: int = 3) -> None:
    """Someone pauses and resumes the run some times."""
    for _ in range(data.draw(st.integers(0, most))):
        if run.standing == "running" and run.turns < 8:
            run.pause(data.draw(POLICIES))
        elif run.standing == "paused":
            run.resume()


def goes_on_by_itself(run: TemporalModel) -> bool:
    return any(not isinstance(one, StartTimer) or one.purpose != "run-timeout" for one in run.under_way.values())


def end(run: TemporalModel, ordinal: int, data: st.DataObject) -> None:
    """What is under way comes to an end of some kind."""
    under_way = run.under_way[ordinal]
    if isinstance(under_way, StartTimer):
        run.fire(ordinal)
        return
    asking = ["asks", "asks", "approval"] if run.start.engine_version > 1 else []
    match data.draw(st.sampled_from(["result", "result", "failure", "retry", "doubt", "cancelled", "cut", *asking])):
        case "asks":
            asked_for_input(data, run, ordinal)
        case "approval":
            run.succeed(ordinal, APPROVAL_FACTS, interim="approval")
        case "result":
            result = data.draw(st.sampled_from([b'{"n": 1.10}', b"{}"]))
            run.succeed(ordinal, result, **data.draw(PEERS), **data.draw(REVISIONS))
        case "failure":
            facts = {**data.draw(PEERS), **data.draw(REVISIONS), **data.draw(STATUSES)}
            run.fail(ordinal, call_failure(retryable=False, **facts))
        case "retry":
            run.fail(ordinal, call_failure(retry_after=data.draw(st.sampled_from([0, 3, 11]))))
        case "doubt":
            attempt = run.under_way[ordinal].attempt
            run.fail(ordinal, in_doubt(attempt=attempt, effectId=f"acme/{ordinal}"))
        case "cut":
            safe = data.draw(st.booleans())
            run.fail(ordinal, call_failure(delivery="unknown", retryable=False, repeat_safe=safe, cancelled=True))
        case _:
            run.cancelled(ordinal, taken=data.draw(st.booleans()))


def check_pauses(events: list[RunEvent]) -> None:
    """Pauses and resumes come in turn, and between them only what was under way comes to its end."""
    turns = [item for item in events if item.type in {"run.paused", "run.resumed"}]
    assert [item.type for item in turns] == ["run.paused", "run.resumed"] * (len(turns) // 2) + ["run.paused"] * (
        len(turns) % 2
    )
    if not any(b"immediate" in item.payload for item in turns):
        started = [item.node_id for item in events if item.type == "node.started"]
        assert sorted(started) == sorted(set(started))
    for pause, resume in zip(turns[::2], [*turns[1::2], None], strict=False):
        after = events[pause.sequence + 1 : len(events) if resume is None else resume.sequence]
        happened = {item.type for item in after}
        assert happened <= WHILE_PAUSED
        assert "run.failed" not in happened or "cap.breached" in happened
        assert resume is None or not happened & {*TERMINAL, "node.cancelled", "cap.breached"}


def check_questions(events: list[RunEvent]) -> None:
    """Every question has a key of its own, and is closed by one answer, by nobody in time, or by its node's end."""
    keys = [json.loads(item.payload)["key"] for item in events if item.type == "interrupt.requested"]
    assert len(keys) == len(set(keys))
    open_: dict[str | None, str] = {}
    for item in events:
        match item.type:
            case "node.suspended":
                assert item.node_id not in open_
                open_[item.node_id] = json.loads(item.payload)["interruptId"]
            case "interrupt.resolved":
                assert open_.pop(item.node_id) == json.loads(item.payload)["interruptId"]
            case "node.cancelled":
                open_.pop(item.node_id, None)
            case "node.completed" | "node.failed":
                assert item.node_id not in open_
    assert not open_


def check_every_call_has_one(definition: dict[str, Any], events: list[RunEvent]) -> None:
    """What follows a node's start is the session of its call, unless it has nothing to call with."""
    calls = {one["id"] for one in definition["nodes"] if one["typeId"] == "community.mcp.call-tool"}
    for started, after in itertools.pairwise(events):
        if started.type == "node.started" and started.node_id in calls:
            assert after.node_id == started.node_id
            assert after.type in {OPENED, "node.failed"}
    assert {item.node_id for item in events if item.type in BRACKETS} <= calls


@given(OPTIONS, st.sampled_from(sorted(ENGINES)), st.data())
def test_the_projected_log_is_the_live_one(options: Options, engine: int, data: st.DataObject) -> None:
    definition = data.draw(graphs(gates=engine > 1))
    order = random.Random(data.draw(st.integers(0, 2**16)))
    run = TemporalModel(
        start(definition, options=options, engine_version=engine),
        shuffle=lambda facts: order.sample(facts, len(facts)),
        before=lambda opened: turn(opened, data, most=1),
    )
    run.early = lambda open_: {
        node_id: data.draw(answers(run, node_id)) for node_id in open_ if data.draw(st.booleans())
    }
    cancelling = False
    while not run.over:
        paused = run.standing == "paused"
        assert goes_on_by_itself(run) or run.questions or paused, run.types
        idle = bool(run.questions) or paused
        under_way = st.lists(st.sampled_from(list(run.under_way) or [0]), min_size=not idle, unique=True)
        ended = data.draw(under_way) if run.under_way else []
        asked = [node_id for node_id in run.questions if not ended or data.draw(st.booleans())]
        for ordinal in ended:
            # Times in history go back now and then.
            run.now += data.draw(st.integers(-50, 4000))
            end(run, ordinal, data)
        turn(run, data)
        for node_id in asked:
            run.answer(node_id, data.draw(answers(run, node_id)))
        if not cancelling and data.draw(st.integers(0, 9)) == 0:
            cancelling = True
            run.request_cancel()
        run.task(suggest=data.draw(st.integers(0, 4)) == 0, at_once=data.draw(st.booleans()))
    events = project(run)
    assert told(events) == [entry[:4] for entry in run.log]
    assert [item.sequence for item in events] == list(range(len(events)))
    assert [item.timestamp for item in events] == sorted(item.timestamp for item in events)
    assert [item.type for item in events if item.type in TERMINAL] == [events[-1].type]
    check_questions(events)
    started = [item.node_id for item in events if item.type == "node.started"]
    ended = [item.node_id for item in events if item.type in {"node.completed", "node.failed", "node.cancelled"}]
    assert sorted(ended) == sorted(set(started))
    limit = options.max_node_executions
    assert limit is None or len(set(started)) <= limit
    check_pauses(events)
    check_sessions(events)
    assert {item.engine_version for item in events} == {engine}
    if engine == 1:
        assert not {item.type for item in events} & BRACKETS
    else:
        check_every_call_has_one(definition, events)


@given(st.permutations(range(4)), st.booleans())
def test_the_order_in_which_a_task_brings_its_facts_changes_nothing(order: list[int], cancel: bool) -> None:
    logs = []
    for arrangement in ([0, 1, 2, 3], order):
        nodes = [node(n) for n in "abcd"] + [node("t", "core.noop")]
        edges = [edge(n, "t", "all_complete") for n in "abcd"]
        run = TemporalModel(
            start(workflow(nodes, edges)),
            shuffle=lambda facts, by=arrangement: [facts[index] for index in [*by, *range(4, len(facts))]][::-1],
        )
        run.succeed(0, b'{"a":1}')
        run.fail(1, call_failure(retryable=False))
        run.fail(2, call_failure(retry_after=0))
        run.succeed(3)
        if cancel:
            run.request_cancel()
        run.task()
        logs.append((run.log, run.commands))
    assert logs[0] == logs[1]


def test_events_can_be_fed_one_by_one_and_come_when_a_workflow_task_took_them_up() -> None:
    run = TemporalModel(start(workflow([node("a")])))
    run.succeed(0)
    projector = Projector(RUN_ID)
    [history] = run.histories
    assert types(projector.project(history)) == ["run.started", "node.started a"]
    before = len(history)
    run.task()
    fed = [types(projector.project([item])) for item in history[before:]]
    assert [item for item in fed if item] == [["node.completed a", "run.completed"]]


def test_a_fact_that_comes_while_a_workflow_task_runs_belongs_to_the_next() -> None:
    run = TemporalModel(start(workflow([node("a"), node("b")])))
    projector = Projector(RUN_ID)
    projector.project(run.histories[0])
    at = BEGINNING + 1
    scheduled = [
        item.event_id
        for item in run.histories[0]
        if item.event_type == enums.EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]
    first, second = scheduled
    projector.project([event(10, "activity_task_completed", at, scheduled_event_id=first, result=[b"{}"])])
    projector.project([event(11, "workflow_task_started", at)])
    projector.project([event(12, "activity_task_completed", at, scheduled_event_id=second, result=[b"{}"])])
    assert types(projector.project([event(13, "workflow_task_completed", at, started_event_id=11)])) == [
        "node.completed a"
    ]
    projector.project([event(14, "workflow_task_started", at)])
    assert types(projector.project([event(15, "workflow_task_completed", at, started_event_id=14)])) == [
        "node.completed b",
        "run.completed",
    ]


def test_a_workflow_task_that_failed_took_nothing_up() -> None:
    run = TemporalModel(start(workflow([node("a")])))
    projector = Projector(RUN_ID)
    projector.project(run.histories[0])
    at = BEGINNING + 1
    scheduled = run.histories[0][-1].event_id
    assert not projector.project(
        [
            event(10, "activity_task_completed", at, scheduled_event_id=scheduled, result=[b"{}"]),
            event(11, "workflow_task_started", at),
            event(12, "workflow_task_failed", at, started_event_id=11),
        ]
    )
    retried = [event(13, "workflow_task_started", at), event(14, "workflow_task_completed", at, started_event_id=13)]
    assert types(projector.project(retried)) == ["node.completed a", "run.completed"]


def test_a_timed_out_activity_is_a_failure_of_its_node() -> None:
    run = TemporalModel(start(workflow([node("a")])))
    projector = Projector(RUN_ID)
    projector.project(run.histories[0])
    failure = call_failure(retryable=False)
    failure.ClearField("application_failure_info")
    failure.timeout_failure_info.timeout_type = enums.TimeoutType.TIMEOUT_TYPE_HEARTBEAT
    scheduled = run.histories[0][-1].event_id
    at = BEGINNING + 1
    events = projector.project(
        [
            event(10, "activity_task_timed_out", at, scheduled_event_id=scheduled, failure=failure),
            event(11, "workflow_task_started", at),
            event(12, "workflow_task_completed", at, started_event_id=11),
        ]
    )
    assert types(events) == ["node.retried a"]
    assert b'"limit":"heartbeat"' in events[0].payload


def test_event_ids_name_the_temporal_run_and_a_reset_begins_a_new_generation() -> None:
    run = TemporalModel(start(workflow([node("a")])))
    projector = Projector(RUN_ID)
    before = projector.project(run.histories[0])
    assert [item.event_id for item in before] == [f"{RUN_1}-0", f"{RUN_1}-1", f"{RUN_1}-2"]
    scheduled = run.histories[0][-1].event_id
    at = BEGINNING + 1
    new = "00000000-0000-4000-8000-00000000000f"
    after = projector.project(
        [
            event(
                10,
                "workflow_task_failed",
                at,
                cause=enums.WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW,
                new_run_id=new,
            ),
            event(11, "activity_task_completed", at, scheduled_event_id=scheduled, result=[b"{}"]),
            event(12, "workflow_task_started", at),
            event(13, "workflow_task_completed", at, started_event_id=12),
        ]
    )
    assert [item.event_id for item in after] == [f"{new}-3", f"{new}-4", f"{new}-5"]


# --- runs that are ended from outside ---


def _under_way() -> tuple[Projector, TemporalModel]:
    run = TemporalModel(start(workflow([node("a")])))
    projector = Projector(RUN_ID)
    projector.project(run.histories[0])
    return projector, run


@pytest.mark.parametrize(
    ("closing", "attributes", "last", "says"),
    [
        ("workflow_execution_terminated", {"reason": "operator"}, "run.cancelled", b'"reason":"terminated"'),
        ("workflow_execution_terminated", {"reason": "over my own limit"}, "run.cancelled", b'"reason":"terminated"'),
        (
            "workflow_execution_terminated",
            {"reason": "Workflow history size exceeds limit.", "identity": "history-service"},
            "run.failed",
            b'"code":"storage_limit_exceeded"',
        ),
        ("workflow_execution_timed_out", {}, "run.failed", b'"code":"run_timeout"'),
        ("workflow_execution_canceled", {}, "run.cancelled", b'"durationMs":2000'),
        ("workflow_execution_failed", {}, "run.failed", b'"code":"internal_error"'),
    ],
)
def test_a_run_that_is_ended_from_outside_has_an_end_in_its_log(
    closing: str, attributes: dict[str, Any], last: str, says: bytes
) -> None:
    projector, _ = _under_way()
    events = projector.project([event(10, closing, BEGINNING + 2000, **attributes)])
    assert types(events) == ["node.cancelled a", last]
    assert says in events[-1].payload


def test_a_run_that_no_worker_ever_saw_still_has_a_beginning_and_an_end() -> None:
    run = TemporalModel(start(workflow([node("a")])))
    projector = Projector(RUN_ID)
    projector.project([run.histories[0][0]])
    events = projector.project([event(2, "workflow_execution_terminated", BEGINNING)])
    assert types(events) == ["run.started", "run.cancelled"]


def test_a_cancel_in_the_first_workflow_task_leaves_no_trace_of_what_it_cancelled() -> None:
    nodes = [node("top", "core.noop"), node("late"), node("early"), node("wait", "core.delay", config={"delayMs": 5})]
    run = TemporalModel(start(workflow(nodes, [edge("top", "late")])))
    projector = Projector(RUN_ID)
    projector.project([run.histories[0][0]])
    # What is scheduled and cancelled in one task never reaches the server, and neither does its answer.
    events = projector.project(
        [
            event(2, "workflow_execution_cancel_requested", BEGINNING, cause="at once"),
            event(3, "workflow_task_started", BEGINNING),
            event(4, "workflow_task_completed", BEGINNING, started_event_id=3),
            event(5, "timer_started", BEGINNING, workflow_task_completed_event_id=4),
            event(6, "workflow_execution_canceled", BEGINNING),
        ]
    )
    live = run.machine
    live.apply([CancelRequested("at once", BEGINNING / 1000)])
    answer = failures.read(call_failure())
    cancelled = dataclasses.replace(answer, cancelled=True)
    live.apply([NodeFailed(ordinal, cancelled, BEGINNING / 1000) for ordinal in (2, 0)])
    assert told(events) == [entry[:4] for entry in run.log]
    assert types(events)[-4:] == ["node.cancelled wait", "node.cancelled early", "node.cancelled late", "run.cancelled"]


@pytest.mark.parametrize("at_once", [True, False])
def test_an_answer_a_result_and_a_cancel_of_one_task_are_told_as_they_were_live(at_once: bool) -> None:
    run = TemporalModel(start(workflow([node("a"), node("b"), node("c")])))
    run.fail(run.ordinal("a"), in_doubt(effectId="acme/a"))
    run.task()
    run.answer("a", b'{"action":"accept"}')
    run.succeed(run.ordinal("b"))
    run.request_cancel()
    run.task(at_once=at_once)
    run.succeed(run.ordinal("c"))
    run.task()
    events = project(run)
    assert told(events) == [entry[:4] for entry in run.log]
    assert types(events)[-3:] == ["node.cancelled a", "node.completed c", "run.cancelled"]


def test_an_answer_that_was_given_anew_after_a_reset_is_read_from_where_it_was_admitted() -> None:
    run = TemporalModel(start(workflow([node("a")])))
    run.fail(run.ordinal("a"), in_doubt(effectId="acme/a"))
    run.task()
    run.answer("a", b'{"action":"accept"}')
    run.task()
    history = run.histories[0]
    index = next(i for i, one in enumerate(history) if one.HasField(ACCEPTED))
    accepted = history[index].workflow_execution_update_accepted_event_attributes
    admitted = event(90, "workflow_execution_update_admitted", BEGINNING, request=accepted.accepted_request)
    accepted.ClearField("accepted_request")
    accepted.accepted_request_sequencing_event_id = 90
    projector = Projector(RUN_ID)
    events = projector.project([*history[: index - 2], admitted, *history[index - 2 :]])
    assert told(events) == [entry[:4] for entry in run.log]


# --- histories that are not those of the run ---


def _foreign(*events: HistoryEvent) -> int:
    projector, _ = _under_way()
    with pytest.raises(ProjectionError) as caught:
        projector.project(events)
    return caught.value.event_id


def test_an_activity_that_the_machine_never_scheduled_is_named() -> None:
    assert _foreign(event(10, "activity_task_scheduled", BEGINNING, activity_id="b:1")) == 10


def test_a_timer_that_the_machine_never_started_is_named() -> None:
    assert _foreign(event(10, "timer_started", BEGINNING, workflow_task_completed_event_id=3)) == 10


def test_an_answer_to_nothing_is_named() -> None:
    assert _foreign(event(10, "activity_task_completed", BEGINNING, scheduled_event_id=99, result=[b"{}"])) == 10


def _update(name: str, interrupt_id: str) -> HistoryEvent:
    request = Request()
    request.input.name = name
    resolution = Resolution(interrupt_id, b'{"action":"accept"}', b"{}")
    request.input.args.payloads.append(failures.json_payload(resolution.encode()))
    return event(90, "workflow_execution_update_accepted", BEGINNING, accepted_request=request)


def test_an_update_that_no_run_takes_is_named() -> None:
    assert _foreign(_update("other", "acme/x")) == 90


def test_an_answer_to_an_interrupt_that_the_run_does_not_have_is_named() -> None:
    assert _foreign(_update(RESOLVE, "acme/x")) == 90


def test_a_result_that_is_no_json_text_is_named() -> None:
    projector, run = _under_way()
    broken = event(
        10, "activity_task_completed", BEGINNING, scheduled_event_id=run.histories[0][-1].event_id, result=[b'{"a":']
    )
    with pytest.raises(ProjectionError, match="event 10: the activity's result is no JSON text"):
        projector.project([broken])


@pytest.mark.parametrize("closing", ["workflow_execution_completed", "workflow_execution_continued_as_new"])
def test_an_end_that_the_machine_did_not_decide_is_named(closing: str) -> None:
    assert _foreign(event(10, closing, BEGINNING)) == 10


def test_a_history_without_its_beginning_is_refused() -> None:
    with pytest.raises(ProjectionError, match="beginning is missing"):
        Projector(RUN_ID).project([event(5, "timer_fired", BEGINNING)])


def test_a_chain_without_its_first_history_is_refused() -> None:
    run = TemporalModel(start(workflow([node("a"), node("b")], [edge("a", "b")])))
    run.succeed(0)
    run.task(suggest=True)
    assert len(run.histories) == 2
    with pytest.raises(ProjectionError, match="first history"):
        Projector(RUN_ID).project(run.histories[1])
    projector = Projector(RUN_ID)
    projector.project(run.histories[0])
    with pytest.raises(ProjectionError, match="follow on"):
        projector.project(run.histories[0])


def test_the_history_of_another_workflow_is_refused() -> None:
    with pytest.raises(ProjectionError, match="not the history of a run"):
        Projector(RUN_ID).project([event(1, "workflow_execution_started", BEGINNING, input=[b"{}"])])
    with pytest.raises(ProjectionError, match="engineVersion"):
        Projector(RUN_ID).project([event(1, "workflow_execution_started", BEGINNING, input=[b"{}", b"{}"])])
