"""What a run's nodes wait for people with: servers' questions, approvals of calls and gates, in the state machine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openwop_mcp.calls import Input
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.protocol.mrtr import read as read_asked
from openwop_mcp.protocol.mrtr import request_digest
from openwop_mcp.runs.commands import CancelNode, NoteWaiting, ScheduleNode, StartTimer
from openwop_mcp.runs.start import Options
from tests.support.call_failures import call_failure, in_doubt
from tests.support.graphs import CALL_CONFIG, edge, node, start, workflow
from tests.support.questions import APPROVAL_FACTS, ELICITATION, GATE_CONFIGS, input_required
from tests.support.temporal_model import TemporalModel

ASKS = input_required({"q": ELICITATION}, "e30=\u0000 \u00fc")
AGAIN = input_required({"r": ELICITATION})
POLLS = input_required(state="s")
FILLED = b'{"q":{"action":"accept","content":{"colour":"r\\u0065d", "count":1.0}}}'
DECLINED = b'{"q":{"action":"decline"}}'
ACCEPT, REJECT = b'{"action":"accept"}', b'{"action":"reject"}'


def model(nodes: list[dict[str, Any]], edges: list[dict[str, Any]] | None = None, **members: Any) -> TemporalModel:
    return TemporalModel(start(workflow(nodes, edges), **members))


def asking(node_id: str = "a", **config: Any) -> dict[str, Any]:
    return node(node_id, config={**CALL_CONFIG, **config})


def gate(node_id: str, type_id: str = "core.approvalGate", **config: Any) -> dict[str, Any]:
    return node(node_id, type_id, config={**GATE_CONFIGS[type_id], **config})


def asks(run: TemporalModel, node_id: str, result: bytes = ASKS, **provenance: str) -> None:
    run.succeed(run.ordinal(node_id), result, interim="input", **provenance)
    run.task()


def needs_approval(run: TemporalModel, node_id: str) -> None:
    run.succeed(run.ordinal(node_id), APPROVAL_FACTS, interim="approval")
    run.task()


def answer(run: TemporalModel, node_id: str, value: bytes) -> None:
    run.answer(node_id, value)
    run.task()


def call_of(run: TemporalModel, node_id: str) -> ScheduleNode:
    under_way = run.under_way[run.ordinal(node_id)]
    assert isinstance(under_way, ScheduleNode)
    return under_way


def timer_of(run: TemporalModel, node_id: str) -> StartTimer:
    under_way = run.under_way[run.ordinal(node_id)]
    assert isinstance(under_way, StartTimer)
    return under_way


def payload(run: TemporalModel, event_type: str, node_id: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        next(told[3] for told in reversed(run.log) if told[1:3] == (event_type, node_id))
    )
    return found


# --- servers' questions ---


def test_a_servers_question_suspends_its_node_and_the_answer_goes_with_the_next_attempt() -> None:
    run = model([asking()])
    first = call_of(run, "a")
    assert (first.suspends, first.input, first.approved) == (True, None, None)
    asks(run, "a")
    assert run.commands == [NoteWaiting(1)]
    assert run.types[-2:] == ["interrupt.requested a", "node.suspended a"]
    assert payload(run, "node.suspended", "a")["reason"] == "input-required"
    asked = payload(run, "interrupt.requested", "a")
    assert (asked["kind"], asked["key"]) == ("clarification", "input:a:1")
    assert asked["data"]["contextType"] == "mcp:weather.get"
    answer(run, "a", FILLED)
    second = call_of(run, "a")
    assert (second.activity_id, second.inputs, second.config) == ("a:2", first.inputs, first.config)
    assert second.input == Input(1, FILLED, b'"e30=\\u0000 \\u00fc"')
    run.succeed(run.ordinal("a"))
    run.task()
    assert run.types[-4:] == ["interrupt.resolved a", "node.resumed a", "node.completed a", "run.completed"]
    assert run.types.count("node.started a") == 1


def test_each_round_answers_the_last_question_alone_and_knows_what_was_declined_in_all() -> None:
    run = model([asking()])
    asks(run, "a")
    answer(run, "a", DECLINED)
    asks(run, "a", AGAIN, round="2")
    answer(run, "a", b'{"r":{"action":"cancel"}}')
    digests = [request_digest(key, read_asked(result).requests[key]) for key, result in (("q", ASKS), ("r", AGAIN))]
    assert call_of(run, "a").input == Input(2, b'{"r":{"action":"cancel"}}', None, tuple(digests))
    keys = [json.loads(told[3])["key"] for told in run.log if told[1] == "interrupt.requested"]
    assert keys == ["input:a:1", "input:a:2"]


def test_a_record_of_a_shared_effect_says_which_of_its_rounds_the_answer_starts() -> None:
    run = model([asking()])
    asks(run, "a", **{"round": "3", "effect-round": "4"})
    answer(run, "a", FILLED)
    given = call_of(run, "a").input
    assert given is not None
    assert (given.round, given.effect_round) == (3, 5)


def test_every_attempt_of_a_round_carries_its_answer_and_counts_within_it() -> None:
    run = model([asking()])
    run.fail(run.ordinal("a"), call_failure(attempts=3, retry_after=0))
    run.task()
    run.fail(run.ordinal("a"), call_failure(attempts=3, retry_after=0))
    run.task()
    asks(run, "a")
    answer(run, "a", FILLED)
    given = call_of(run, "a").input
    assert given is not None
    for number in (5, 6):
        run.fail(run.ordinal("a"), call_failure(attempts=3, retry_after=0))
        run.task()
        assert call_of(run, "a").attempt == number
        assert call_of(run, "a").input == given
    run.fail(run.ordinal("a"), call_failure(attempts=3, retry_after=0))
    run.task()
    assert run.types[-2:] == ["node.failed a", "run.failed"]
    assert payload(run, "node.failed", "a")["attempts"] == 6


def test_a_doubt_in_a_later_round_is_asked_about_and_what_was_answered_before_stays() -> None:
    run = model([asking()])
    asks(run, "a")
    answer(run, "a", FILLED)
    run.fail(run.ordinal("a"), in_doubt(effectId="acme/a", attempt=2))
    run.task()
    assert payload(run, "node.suspended", "a")["reason"] == "in-doubt"
    answer(run, "a", ACCEPT)
    again = call_of(run, "a")
    assert again.answer == b'{"verdict":"resend","round":0,"since":3}'
    assert again.input is not None
    assert again.input.responses == FILLED


def test_a_server_that_only_wants_to_be_called_again_is_after_growing_waits_and_asks_nobody() -> None:
    run = model([asking()])
    waits = []
    for number in range(1, 9):
        asks(run, "a", POLLS, round=str(number))
        waits.append(timer_of(run, "a").seconds)
        assert timer_of(run, "a").purpose == "input-backoff"
        run.fire(run.ordinal("a"))
        run.task()
        assert call_of(run, "a").input == Input(number, None, b'"s"')
    assert waits == [0.25, 0.5, 1, 2, 4, 8, 8, 8]
    assert run.types == ["run.started", "node.started a"]


@pytest.mark.parametrize("value", [b"{}", b'{"q":{"action":"accept"}}', b'{"q":{"action":"decline"},"r":{}}', b"7"])
def test_what_does_not_answer_a_server_is_refused_and_the_question_stays(value: bytes) -> None:
    run = model([asking()])
    asks(run, "a")
    (ordinal,) = run.machine.open_interrupts(run.questions["a"])
    with pytest.raises(InvalidRequestError):
        run.machine.check_answer(ordinal, value)
    answer(run, "a", FILLED)


def test_an_answer_for_which_the_call_has_no_room_is_refused() -> None:
    run = model([asking()], options=Options(inline_bytes=1000, call_bytes=400))
    asks(run, "a")
    (ordinal,) = run.machine.open_interrupts(run.questions["a"])
    long = FILLED.replace(b"r\\u0065d", b"x" * 400)
    with pytest.raises(InvalidRequestError, match="shorter answer"):
        run.machine.check_answer(ordinal, long)
    run.machine.check_answer(ordinal, FILLED)


def test_a_state_that_does_not_fit_into_a_call_fails_its_node_with_nothing_sent() -> None:
    run = model([asking()], options=Options(inline_bytes=1000, call_bytes=400))
    asks(run, "a", input_required(state="s" * 500))
    run.fire(run.ordinal("a"))
    run.task()
    assert payload(run, "node.failed", "a")["error"]["code"] == "storage_limit_exceeded"


def test_runs_of_the_first_engine_take_every_result_as_one_and_know_no_gates() -> None:
    run = model([asking()], engine_version=1)
    assert not call_of(run, "a").suspends
    asks(run, "a")
    assert run.types[-2:] == ["node.completed a", "run.completed"]
    run = model([gate("g")], engine_version=1)
    assert run.types == ["run.started", "run.failed"]


# --- approvals of calls ---


def test_a_call_that_needs_approval_is_made_once_it_has_it() -> None:
    run = model([{**asking(), "inputs": {"arguments": {"type": "static", "value": {"n": 1}}}}])
    needs_approval(run, "a")
    assert payload(run, "node.suspended", "a")["reason"] == "approval-required"
    asked = payload(run, "interrupt.requested", "a")
    assert (asked["kind"], asked["key"], asked["data"]["artifactId"]) == ("approval", "approval:a:1", "acme/e1")
    assert asked["data"]["artifactData"]["arguments"] == {"n": 1}
    answer(run, "a", ACCEPT)
    assert call_of(run, "a").approved == b'{"tier":"write"}'
    assert call_of(run, "a").attempt == 2
    assert payload(run, "interrupt.resolved", "a")["decision"] == "granted"


def test_a_call_that_is_rejected_fails_with_nothing_sent() -> None:
    run = model([asking()])
    needs_approval(run, "a")
    answer(run, "a", REJECT)
    error = payload(run, "node.failed", "a")["error"]
    assert error["code"] == "approval_rejected"
    assert error["message"].startswith("nothing was sent")
    assert not run.under_way
    assert run.types[-1] == "run.failed"


def test_an_approval_uses_up_no_attempt_and_holds_for_all_that_follow() -> None:
    run = model([asking()])
    needs_approval(run, "a")
    answer(run, "a", ACCEPT)
    for _ in range(2):
        run.fail(run.ordinal("a"), call_failure(attempts=3, retry_after=0))
        run.task()
        assert call_of(run, "a").approved == b'{"tier":"write"}'
    asks(run, "a")
    answer(run, "a", FILLED)
    assert call_of(run, "a").approved == b'{"tier":"write"}'


def test_what_was_decided_about_a_doubt_is_carried_out_after_the_approval_that_it_needs() -> None:
    run = model([asking()])
    run.fail(run.ordinal("a"), in_doubt(effectId="acme/a", attempt=1))
    run.task()
    answer(run, "a", ACCEPT)
    needs_approval(run, "a")
    answer(run, "a", ACCEPT)
    again = call_of(run, "a")
    assert (again.answer, again.approved) == (b'{"verdict":"resend","round":0,"since":2}', b'{"tier":"write"}')


# --- several at once, and time ---


def test_questions_of_parallel_nodes_are_open_at_once_and_each_has_its_own_answer() -> None:
    run = model([asking("a"), asking("b"), gate("g"), gate("c", "core.clarificationGate")])
    asks(run, "a")
    needs_approval(run, "b")
    assert sorted(run.questions) == ["a", "b", "c", "g"]
    assert len(set(run.questions.values())) == 4
    answer(run, "b", ACCEPT)
    run.answer("g", ACCEPT)
    run.answer("a", DECLINED)
    run.answer("c", b'{"answers":{"q":"red"}}')
    run.task()
    assert run.commands[-1] == NoteWaiting(0)
    for node_id in "ab":
        run.succeed(run.ordinal(node_id))
    run.task()
    assert run.types[-1] == "run.completed"


@pytest.mark.parametrize(
    ("made", "code", "words"),
    [
        (asking(inputTimeoutMs=1500), "interrupt_expired", "within 1.5 s, and the server was not called again"),
        (gate("a", "core.clarificationGate", timeoutMs=1500), "interrupt_expired", "nobody answered within 1.5 s"),
        (gate("a", "core.interrupt", timeoutMs=1500), "interrupt_expired", "nobody answered within 1.5 s"),
        (gate("a", timeoutMs=1500, onTimeout="approve"), "approval_rejected", "nobody answered within 1.5 s"),
    ],
)
def test_a_question_that_nobody_answers_in_time_fails_its_node(made: dict[str, Any], code: str, words: str) -> None:
    run = model([made])
    if run.under_way and isinstance(run.under_way[run.ordinal("a")], ScheduleNode):
        asks(run, "a")
    assert timer_of(run, "a") == StartTimer(timer_of(run, "a").ordinal, 1.5, "interrupt-timeout", "a")
    identity = run.questions["a"]
    run.fire(run.ordinal("a"))
    run.task()
    assert run.types[-4:] == ["interrupt.resolved a", "node.resumed a", "node.failed a", "run.failed"]
    error = payload(run, "node.failed", "a")["error"]
    assert (error["code"], words in error["message"]) == (code, True)
    resolved = payload(run, "interrupt.resolved", "a")
    assert resolved["action"] == "timeout"
    assert "resumeValue" not in resolved
    assert resolved.get("decision") == ("rejected" if code == "approval_rejected" else None)
    assert resolved["resolvedBy"]["tenant"] == "acme"
    assert run.machine.was_answered(identity)


def test_a_call_whose_approval_is_not_given_in_time_fails_with_nothing_sent() -> None:
    run = model([asking(inputTimeoutMs=10)])
    needs_approval(run, "a")
    run.fire(run.ordinal("a"))
    run.task()
    error = payload(run, "node.failed", "a")["error"]
    assert error["code"] == "approval_rejected"
    assert error["message"] == "nothing was sent: nobody answered within 0.01 s"


@pytest.mark.parametrize("at_once", [False, True])
def test_an_answer_that_comes_with_the_end_of_its_time_counts(at_once: bool) -> None:
    run = model([gate("g", timeoutMs=10)])
    run.fire(run.ordinal("g"))
    run.answer("g", ACCEPT)
    run.task(at_once=at_once)
    assert run.types[-2:] == ["node.completed g", "run.completed"]


def test_an_answer_stops_the_clock() -> None:
    run = model([gate("g", timeoutMs=10), asking("a")])
    timer = timer_of(run, "g").ordinal
    answer(run, "g", ACCEPT)
    assert CancelNode(timer) in run.commands
    assert timer not in run.under_way


# --- cancel, pause, limits ---


def test_a_cancel_closes_every_question_once_and_stops_its_clock() -> None:
    run = model([gate("g", timeoutMs=10), asking("a", inputTimeoutMs=10), asking("slow")])
    asks(run, "a")
    ids = dict(run.questions)
    run.request_cancel()
    run.task()
    assert [kind for kind in run.types if kind.startswith("node.cancelled")] == ["node.cancelled g", "node.cancelled a"]
    assert not run.over
    for identity in ids.values():
        assert run.machine.open_interrupts(identity) == []
        assert run.machine.was_answered(identity)
    assert [one.purpose for one in run.under_way.values() if isinstance(one, StartTimer)] == ["cancel-grace"]


@pytest.mark.parametrize("interim", ["input", "approval"])
def test_a_cancelled_run_asks_nothing_that_its_last_attempt_ended_with(interim: str) -> None:
    run = model([asking()])
    run.request_cancel()
    run.task()
    run.succeed(run.ordinal("a"), ASKS if interim == "input" else APPROVAL_FACTS, interim=interim)
    run.task()
    assert run.types[-2:] == ["node.cancelled a", "run.cancelled"]


def test_nothing_is_asked_while_a_run_is_paused_and_answers_are_taken() -> None:
    run = model([asking("a"), asking("b"), gate("g"), node("after", "core.noop")], [edge("g", "after")])
    asks(run, "b")
    run.pause()
    run.task()
    asks(run, "a")
    assert "interrupt.requested a" not in run.types
    answer(run, "g", ACCEPT)
    answer(run, "b", FILLED)
    assert run.types[-3:] == ["node.completed g", "interrupt.resolved b", "node.resumed b"]
    assert not [one for one in run.under_way.values() if isinstance(one, ScheduleNode)]
    run.resume()
    run.task()
    assert {"interrupt.requested a", "node.completed after"} <= set(run.types)
    assert call_of(run, "b").input == Input(1, FILLED, b'"e30=\\u0000 \\u00fc"')


def test_a_question_may_expire_while_its_run_is_paused() -> None:
    run = model([gate("g", timeoutMs=10)])
    run.pause()
    run.task()
    run.fire(run.ordinal("g"))
    run.task()
    assert run.types[-1] == "node.failed g"
    run.resume()
    run.task()
    assert run.types[-2:] == ["run.resumed", "run.failed"]


def test_a_call_that_a_pause_cut_off_after_its_server_was_answered_carries_the_answer_again() -> None:
    run = model([asking()])
    asks(run, "a")
    answer(run, "a", FILLED)
    run.pause("immediate")
    run.task()
    run.cancelled(run.ordinal("a"))
    run.task()
    run.resume()
    run.task()
    given = call_of(run, "a").input
    assert given is not None
    assert given.responses == FILLED


def test_a_question_that_an_attempt_brought_although_a_pause_cut_it_off_is_asked_with_the_resume() -> None:
    run = model([asking()])
    run.pause("immediate")
    run.task()
    asks(run, "a")
    run.resume()
    run.task()
    assert run.types[-3:] == ["run.resumed", "interrupt.requested a", "node.suspended a"]


# --- continue-as-new ---


def handed_over(run: TemporalModel, node_id: str) -> None:
    parts = len(run.histories)
    run.succeed(run.ordinal(node_id))
    run.task(suggest=True)
    assert len(run.histories) == parts + 1


def test_open_questions_and_their_time_are_taken_along() -> None:
    nodes = [
        asking("a", inputTimeoutMs=20_000),
        asking("b"),
        gate("g", timeoutMs=30_000, approversList=["bob"]),
        gate("e", "core.interrupt"),
    ]
    run = model([*nodes, asking("x"), asking("y")])
    asks(run, "a")
    needs_approval(run, "b")
    ids = dict(run.questions)
    run.now += 5_000
    run.succeed(run.ordinal("y"))
    run.task()
    handed_over(run, "x")
    assert run.questions == ids
    left = {one.node_id: one.seconds for one in run.under_way.values() if isinstance(one, StartTimer)}
    assert left == {"a": 15, "g": 25}
    (bobs,) = run.machine.open_interrupts(ids["g"])
    assert not run.machine.may_answer(bobs, b'{"subjectId":"alice"}')
    assert run.machine.may_answer(bobs, b'{"subjectId":"bob"}')
    (as_,) = run.machine.open_interrupts(ids["a"])
    with pytest.raises(InvalidRequestError):
        run.machine.check_answer(as_, b"{}")
    answer(run, "a", FILLED)
    answer(run, "b", ACCEPT)
    assert call_of(run, "a").input == Input(1, FILLED, b'"e30=\\u0000 \\u00fc"')
    assert call_of(run, "b").approved == b'{"tier":"write"}'
    answer(run, "e", b'{"order":17}')
    run.fire(run.ordinal("g"))
    run.task()
    assert run.types[-1] == "node.failed g"
    for identity in (ids["a"], ids["g"]):
        assert run.machine.was_answered(identity)


def test_what_a_call_carries_and_which_attempts_count_is_taken_along() -> None:
    run = model([asking("a"), asking("x"), asking("y"), gate("g")])
    run.succeed(run.ordinal("y"))
    run.task()
    needs_approval(run, "a")
    answer(run, "a", ACCEPT)
    asks(run, "a")
    answer(run, "a", FILLED)
    asks(run, "a", POLLS, round="2")
    handed_over(run, "x")
    assert run.machine.was_answered(run.questions["g"]) is False
    run.fire(run.ordinal("a"))
    run.task()
    again = call_of(run, "a")
    assert (again.attempt, again.approved) == (4, b'{"tier":"write"}')
    assert again.input == Input(2, None, b'"s"')
    for number in (5, 6):
        run.fail(run.ordinal("a"), call_failure(attempts=3, retry_after=0))
        run.task()
        assert call_of(run, "a").attempt == number
    run.fail(run.ordinal("a"), call_failure(attempts=3, retry_after=0))
    run.task()
    assert run.types[-1] == "node.failed a"


def test_an_answer_that_is_there_before_the_next_part_begins_comes_before_the_end_of_its_time() -> None:
    run = model([gate("g", timeoutMs=1_000), asking("x"), asking("y")])
    run.now += 5_000
    run.succeed(run.ordinal("y"))
    run.task()
    run.early = lambda _: {"g": ACCEPT}
    handed_over(run, "x")
    assert run.types[-2:] == ["node.completed g", "run.completed"]


# --- in the log alone ---


def test_who_answers_is_told_as_it_was_given() -> None:
    run = model([gate("g")])
    answer(run, "g", b'{ "action":"refine", "refineFeedback":{"scope":"whole"}, "n":1.10 }')
    (told,) = [told[3] for told in run.log if told[1] == "interrupt.resolved"]
    assert b'"resumeValue":{ "action":"refine", "refineFeedback":{"scope":"whole"}, "n":1.10 }' in told
    assert b'"resolvedBy":{"subjectId":"alice"}' in told
    resolved = payload(run, "interrupt.resolved", "g")
    assert (resolved["decision"], resolved["action"]) == ("rejected", "refine")
    assert resolved["refineFeedback"] == {"scope": "whole"}
    assert payload(run, "node.completed", "g")["outputs"]["action"] == "refine"
