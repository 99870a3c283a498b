"""Pauses and resumes: what a paused run still tells, what waits until it goes on, what is cut and begins afresh."""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.api.failure.v1 import Failure

from openwop_mcp.runs.machine import (
    CancelNode,
    CancelRun,
    NoteWaiting,
    PauseRequested,
    ResumeRequested,
    RunMachine,
    ScheduleNode,
    StartTimer,
)
from openwop_mcp.runs.pauses import Pause, Resume, encode_taken
from openwop_mcp.runs.projection import Projector
from tests.support.call_failures import call_failure, in_doubt
from tests.support.graphs import RUN_ID, edge, node, start, workflow
from tests.support.temporal_model import BEGINNING, TemporalModel

ACCEPT = b'{"action":"accept"}'
DELAY = {"delayMs": 60_000}


def model(nodes: list[Any], edges: list[Any] | None = None) -> TemporalModel:
    return TemporalModel(start(workflow(nodes, edges)))


def pause(run: TemporalModel, policy: Any = "drain-current-node", reason: str | None = None) -> None:
    run.pause(policy, reason)
    run.task()


def resume(run: TemporalModel, reason: str | None = None) -> None:
    run.resume(reason)
    run.task()


def succeed(run: TemporalModel, *node_ids: str, result: bytes = b'{"content":[]}', suggest: bool = False) -> None:
    for node_id in node_ids:
        run.succeed(run.ordinal(node_id), result)
    run.task(suggest=suggest)


def fail(run: TemporalModel, node_id: str, failure: Failure | None = None) -> None:
    run.fail(run.ordinal(node_id), failure or call_failure(retryable=False))
    run.task()


def cut(*, delivery: str = "unknown", repeat_safe: bool = True, **more: Any) -> Failure:
    """How an attempt ends that was cancelled."""
    return call_failure(retryable=False, cancelled=True, delivery=delivery, repeat_safe=repeat_safe, **more)


def scheduled(run: TemporalModel) -> list[str]:
    return [command.activity_id for command in run.commands if isinstance(command, ScheduleNode)]


def payloads(run: TemporalModel, event_type: str, node_id: str | None = None) -> list[dict[str, Any]]:
    return [json.loads(told[3]) for told in run.log if told[1] == event_type and told[2] == node_id]


def agree(run: TemporalModel) -> None:
    """The projected log is the one that was told live."""
    projector = Projector(RUN_ID)
    projected = [event for history in run.histories for event in projector.project(history)]
    assert [(one.sequence, one.type, one.payload) for one in projected] == [
        (sequence, event_type, payload) for sequence, event_type, _, payload, _ in run.log
    ]


# --- what comes to its end ---


def test_what_is_under_way_comes_to_its_end_and_nothing_starts_after_it() -> None:
    run = model([node("a"), node("b"), node("c")], [edge("a", "b")])
    pause(run, reason="lunch")
    assert run.commands == [NoteWaiting(0, paused=True)]
    assert payloads(run, "run.paused") == [{"reason": "lunch", "drainPolicy": "drain-current-node"}]
    succeed(run, "a")
    fail(run, "c")
    assert run.commands == []
    assert run.types[-3:] == ["run.paused", "node.completed a", "node.failed c"]
    resume(run, "back")
    assert payloads(run, "run.resumed") == [{"reason": "back"}]
    assert run.types[-2:] == ["run.resumed", "node.started b"]
    assert scheduled(run) == ["b:1"]
    assert run.commands[-1] == NoteWaiting(0, paused=False)
    agree(run)


@pytest.mark.parametrize(("fails", "end"), [(False, "run.completed"), (True, "run.failed")])
def test_a_paused_run_does_not_end_before_it_is_resumed(fails: bool, end: str) -> None:
    run = model([node("a")])
    pause(run)
    if fails:
        fail(run, "a")
    else:
        succeed(run, "a")
    assert not run.over
    resume(run)
    assert run.types[-2:] == ["run.resumed", end]
    agree(run)


def test_a_branch_that_is_skipped_is_told_after_the_resume() -> None:
    run = model([node("a"), node("b"), node("c")], [edge("a", "b")])
    pause(run)
    fail(run, "a")
    assert "node.skipped b" not in run.types
    resume(run)
    assert run.types[-2:] == ["run.resumed", "node.skipped b"]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_pause_comes_before_what_else_its_task_brings(at_once: bool) -> None:
    run = model([node("a"), node("b")], [edge("a", "b")])
    run.succeed(run.ordinal("a"))
    run.pause()
    run.task(at_once=at_once)
    assert run.types[-2:] == ["run.paused", "node.completed a"]
    agree(run)


def test_a_failure_that_another_attempt_would_follow_waits_for_the_resume() -> None:
    run = model([node("a"), node("b")], [edge("a", "b", "any_failed")])
    pause(run)
    fail(run, "a", call_failure(retry_after=2))
    assert (run.types[-1], run.commands) == ("run.paused", [])
    resume(run)
    assert run.types[-2:] == ["run.resumed", "node.retried a"]
    assert [command for command in run.commands if isinstance(command, StartTimer)] == [
        StartTimer(1, 2.0, "retry", "a"),
    ]
    agree(run)


def test_a_doubt_that_a_person_is_to_decide_waits_for_the_resume() -> None:
    run = model([node("a")])
    pause(run)
    fail(run, "a", in_doubt(effectId="acme/a"))
    assert run.types[-1] == "run.paused"
    resume(run)
    assert run.types[-3:] == ["run.resumed", "interrupt.requested a", "node.suspended a"]
    agree(run)


def test_a_doubt_that_fails_its_node_is_an_end_like_any_other() -> None:
    run = model([node("a")])
    pause(run)
    fail(run, "a", call_failure(delivery="unknown", repeat_safe=False))
    assert run.types[-2:] == ["run.paused", "node.failed a"]


def test_a_delay_runs_out_and_a_wait_for_another_attempt_starts_none() -> None:
    run = model([node("wait", "core.delay", config=DELAY), node("a")])
    fail(run, "a", call_failure(retry_after=2))
    pause(run)
    for node_id in ("wait", "a"):
        run.fire(run.ordinal(node_id))
    run.task()
    assert run.types[-2:] == ["run.paused", "node.completed wait"]
    resume(run)
    assert scheduled(run) == ["a:2"]
    agree(run)


def test_an_answer_is_taken_and_acted_upon_after_the_resume() -> None:
    run = model([node("a")])
    fail(run, "a", in_doubt(effectId="acme/a"))
    pause(run)
    run.answer("a", ACCEPT)
    run.task()
    assert run.types[-2:] == ["interrupt.resolved a", "node.resumed a"]
    assert run.commands == [NoteWaiting(0)]
    resume(run)
    assert scheduled(run) == ["a:2"]
    assert len(payloads(run, "node.started", "a")) == 1
    agree(run)


# --- what is cut ---


def test_an_immediate_pause_cuts_calls_and_delays_which_begin_afresh() -> None:
    run = model([node("a"), node("wait", "core.delay", config=DELAY), node("b")])
    pause(run, "immediate")
    assert run.commands == [CancelNode(0), CancelNode(1), CancelNode(2), NoteWaiting(0, paused=True)]
    assert payloads(run, "run.paused") == [
        {"drainPolicy": "immediate", "interruptedNodeId": "a", "interruptedAttempt": 1}
    ]
    run.cancelled(0)
    run.fail(2, cut())
    run.task()
    assert run.types[-1] == "run.paused"
    resume(run)
    assert run.types[-4:] == ["run.resumed", "node.started wait", "node.started a", "node.started b"]
    assert payloads(run, "node.started", "a")[1] == {
        "nodeId": "a",
        "typeId": "community.mcp.call-tool",
        "attempt": 1,
    }
    assert scheduled(run) == ["a:2", "b:2"]
    (timer,) = [command for command in run.commands if isinstance(command, StartTimer)]
    assert timer.seconds == 60.0
    succeed(run, "a", "b")
    run.fire(run.ordinal("wait"))
    run.task()
    assert run.types[-1] == "run.completed"
    agree(run)


def test_an_immediate_pause_of_a_run_with_nothing_under_way_names_no_node() -> None:
    run = model([node("a")])
    fail(run, "a", in_doubt(effectId="acme/a"))
    pause(run, "immediate")
    assert payloads(run, "run.paused") == [{"drainPolicy": "immediate"}]
    assert list(run.questions) == ["a"]


def test_a_cut_attempt_that_was_answered_keeps_its_result() -> None:
    run = model([node("a"), node("b")], [edge("a", "b")])
    pause(run, "immediate")
    succeed(run, "a", result=b'{"n": 1.10}')
    assert run.types[-1] == "run.paused"
    resume(run)
    assert run.types[-3:] == ["run.resumed", "node.completed a", "node.started b"]
    [completed] = [told for told in run.log if told[1] == "node.completed"]
    assert b'{"result":{"n": 1.10}}' in completed[3]
    agree(run)


def test_a_cut_attempt_whose_server_said_no_fails_its_node_after_the_resume() -> None:
    run = model([node("a")])
    pause(run, "immediate")
    fail(run, "a", call_failure(retryable=False, delivery="answered", code="mcp_error"))
    assert run.types[-1] == "run.paused"
    resume(run)
    assert run.types[-2:] == ["node.failed a", "run.failed"]
    agree(run)


def test_a_cut_attempt_that_may_have_had_its_effect_is_not_made_again() -> None:
    run = model([node("a")])
    pause(run, "immediate")
    fail(run, "a", cut(repeat_safe=False))
    assert run.types[-1] == "run.paused"
    resume(run)
    assert run.types[-2:] == ["node.failed a", "run.failed"]
    (failed,) = payloads(run, "node.failed", "a")
    assert "the effect may have happened" in failed["error"]["message"]
    assert scheduled(run) == []
    agree(run)


def test_a_cut_attempt_in_doubt_asks_where_a_person_is_to_decide() -> None:
    run = model([node("a")])
    pause(run, "immediate")
    fail(run, "a", cut(repeat_safe=False, onDoubt="ask", effectId="acme/a"))
    resume(run)
    assert run.types[-3:] == ["run.resumed", "interrupt.requested a", "node.suspended a"]
    run.answer("a", ACCEPT)
    run.task()
    assert scheduled(run) == ["a:2"]
    agree(run)


@pytest.mark.parametrize("taken", [False, True])
def test_an_attempt_that_ended_as_cancelled_without_a_word_begins_afresh_if_no_worker_had_it(taken: bool) -> None:
    run = model([node("a")])
    pause(run, "immediate")
    run.cancelled(0, taken=taken)
    run.task()
    resume(run)
    assert (run.types[-1] == "node.started a") is not taken
    assert (run.types[-1] == "run.failed") is taken
    agree(run)


def test_a_run_that_is_resumed_before_the_cut_attempt_has_answered_waits_for_it() -> None:
    run = model([node("a")])
    pause(run, "immediate")
    resume(run)
    assert scheduled(run) == []
    fail(run, "a", cut(delivery="not_sent", repeat_safe=False))
    assert run.types[-2:] == ["run.resumed", "node.started a"]
    assert scheduled(run) == ["a:2"]
    agree(run)


def test_a_second_immediate_pause_cuts_once() -> None:
    run = model([node("a")])
    pause(run, "immediate")
    resume(run)
    pause(run, "immediate")
    assert run.commands == [NoteWaiting(0, paused=True)]
    assert payloads(run, "run.paused")[1] == {"drainPolicy": "immediate"}
    fail(run, "a", cut())
    assert run.types[-1] == "run.paused"
    resume(run)
    assert scheduled(run) == ["a:2"]
    agree(run)


def test_attempts_that_were_cut_do_not_count_against_those_that_there_may_be() -> None:
    run = model([node("a")])
    for _ in range(3):
        pause(run, "immediate")
        fail(run, "a", cut())
        resume(run)
    fail(run, "a", call_failure(retry_after=0, attempts=2))
    assert scheduled(run) == ["a:5"]
    fail(run, "a", call_failure(retry_after=0, attempts=2))
    assert run.types[-1] == "run.failed"
    assert payloads(run, "node.failed", "a")[0]["attempts"] == 5


def test_waits_between_attempts_that_were_cut_do_not_count_either() -> None:
    run = model([node("a")])
    fail(run, "a", call_failure(retry_after=9, attempts=9))
    run.fire(run.ordinal("a"))
    run.task()
    pause(run, "immediate")
    fail(run, "a", cut())
    resume(run)
    fail(run, "a", call_failure(retry_after=9, attempts=9))
    assert run.types[-1] == "node.retried a"


# --- pauses and resumes in one task ---


@pytest.mark.parametrize("at_once", [True, False])
def test_pauses_and_resumes_of_one_task_are_told_in_their_order(at_once: bool) -> None:
    run = model([node("a"), node("b")], [edge("a", "b")])
    run.succeed(run.ordinal("a"))
    run.pause(reason="1")
    run.resume("2")
    run.pause(reason="3")
    run.task(at_once=at_once)
    assert run.types[-4:] == ["run.paused", "run.resumed", "run.paused", "node.completed a"]
    assert [one["reason"] for one in payloads(run, "run.paused")] == ["1", "3"]
    agree(run)


def test_a_call_that_is_cut_in_the_task_that_scheduled_it_never_leaves() -> None:
    run = TemporalModel(start(workflow([node("a")])), before=lambda opened: opened.pause("immediate"))
    assert run.types == ["run.started", "node.started a", "run.paused"]
    assert run.under_way == {}
    resume(run)
    assert scheduled(run) == ["a:2"]
    succeed(run, "a")
    assert run.types[-1] == "run.completed"
    agree(run)


def test_a_run_that_stands_otherwise_takes_no_pause_and_no_resume() -> None:
    run = RunMachine(start(workflow([node("a")])), b"{}")
    run.begin(1.0)
    assert run.apply([ResumeRequested(0, Resume(), 2.0)]) == []
    assert run.apply([PauseRequested(0, Pause(), 2.0)]) == [NoteWaiting(0, paused=True)]
    assert run.apply([PauseRequested(0, Pause("immediate"), 3.0)]) == []
    assert run.standing() == "paused"


def test_where_a_run_stands_counts_what_it_does_not_know_yet() -> None:
    run = model([node("a")])
    assert run.standing == "running"
    run.pause()
    assert run.standing == "paused"
    run.resume()
    assert run.standing == "running"
    run.task()
    run.request_cancel()
    run.task()
    assert run.standing == "ending"
    run.cancelled(0)
    run.task()
    assert run.standing == "over"


# --- cancelling ---


def test_a_cancel_ends_a_paused_run_and_tells_what_was_kept() -> None:
    run = model(
        [node("a"), node("b"), node("c"), node("d"), node("wait", "core.delay", config=DELAY)], [edge("d", "a")]
    )
    succeed(run, "d")
    pause(run, "immediate")
    succeed(run, "a")
    run.fail(run.ordinal("b"), cut())
    run.task()
    run.request_cancel()
    run.task()
    assert run.types[-3:] == ["node.completed a", "node.cancelled b", "node.cancelled wait"]
    assert not any(isinstance(command, CancelNode) for command in run.commands)
    run.cancelled(run.ordinal("c"))
    run.task()
    assert run.types[-2:] == ["node.cancelled c", "run.cancelled"]
    assert run.commands == [CancelRun()]
    assert "run.resumed" not in run.types
    agree(run)


def test_a_cancel_starts_nothing_after_what_ended_while_the_run_was_paused() -> None:
    run = model([node("a"), node("b"), node("c")], [edge("a", "b")])
    pause(run)
    succeed(run, "a")
    run.request_cancel()
    run.task()
    assert NoteWaiting(0, paused=False) in run.commands
    run.cancelled(run.ordinal("c"))
    run.task()
    assert run.types[-3:] == ["node.completed a", "node.cancelled c", "run.cancelled"]
    agree(run)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_cancel_that_comes_with_the_resume_wins(at_once: bool) -> None:
    run = model([node("a"), node("b")], [edge("a", "b")])
    pause(run)
    succeed(run, "a")
    run.resume()
    run.request_cancel()
    run.task(at_once=at_once)
    assert run.types[-1] == "run.cancelled"
    assert not any(isinstance(one, ScheduleNode) for one in run.under_way.values())
    agree(run)


# --- continue-as-new ---


def test_a_paused_run_goes_on_in_a_new_history_as_paused() -> None:
    reads = {"arguments": {"type": "connection", "nodeId": "a", "outputKey": "result"}}
    nodes = [node("a"), node("b", inputs=reads), node("wait", "core.delay", config=DELAY), node("c"), node("d")]
    run = model(nodes, [edge("a", "b"), edge("c", "d", "any_failed")])
    pause(run)
    run.succeed(run.ordinal("a"), b'{"n": 1.10}')
    run.succeed(run.ordinal("c"))
    run.task(suggest=True)
    assert len(run.histories) == 2
    assert run.standing == "paused"
    assert [command.purpose for command in run.commands if isinstance(command, StartTimer)] == ["delay"]
    assert len(run.commands) == 1
    resume(run)
    assert run.types[-3:] == ["run.resumed", "node.skipped d", "node.started b"]
    assert isinstance(run.commands[0], ScheduleNode)
    assert run.commands[0].inputs == b'{"arguments":{"n": 1.10}}'
    assert run.commands[-1] == NoteWaiting(0, paused=False)
    run.fire(run.ordinal("wait"))
    succeed(run, "b")
    assert run.types[-1] == "run.completed"
    agree(run)


def test_what_a_later_node_reads_goes_along_with_what_ended_while_the_run_was_paused() -> None:
    reads = {"arguments": {"type": "connection", "nodeId": "a", "outputKey": "result"}}
    run = model([node("a"), node("b", inputs=reads), node("c", inputs=reads)], [edge("a", "b"), edge("b", "c")])
    succeed(run, "a", result=b'{"n": 1.10}')
    pause(run)
    succeed(run, "b", suggest=True)
    assert len(run.histories) == 2
    resume(run)
    assert isinstance(run.commands[0], ScheduleNode)
    assert run.commands[0].inputs == b'{"arguments":{"n": 1.10}}'


def test_what_was_cut_begins_afresh_in_the_new_history() -> None:
    run = model([node("wait", "core.delay", config=DELAY), node("a"), node("b")])
    fail(run, "b", call_failure(retry_after=2))
    pause(run, "immediate")
    run.fire(run.ordinal("b"))
    run.task(suggest=True)
    # As long as a call has not answered, the run stays where it is.
    assert len(run.histories) == 1
    resume(run)
    run.fail(run.ordinal("a"), cut())
    run.task(suggest=True)
    assert len(run.histories) == 1
    succeed(run, "b", suggest=True)
    assert len(run.histories) == 2
    assert run.types[-1] == "node.started a"
    assert payloads(run, "node.started", "a")[1]["attempt"] == 1
    fail(run, "a", call_failure(retry_after=0, attempts=2))
    assert scheduled(run) == ["a:3"]
    agree(run)


def test_a_delay_that_was_cut_begins_afresh_in_the_new_history() -> None:
    run = model([node("wait", "core.delay", config=DELAY), node("b")])
    fail(run, "b", call_failure(retry_after=2))
    pause(run, "immediate")
    run.now += 2_000
    run.fire(run.ordinal("b"))
    run.task(suggest=True)
    assert len(run.histories) == 2
    assert run.commands == []
    resume(run)
    assert run.types[-2:] == ["run.resumed", "node.started wait"]
    assert scheduled(run) == ["b:2"]
    assert [command.seconds for command in run.commands if isinstance(command, StartTimer)] == [60.0]
    agree(run)


def test_a_full_run_that_cannot_be_carried_fails_only_once_it_is_resumed() -> None:
    # Two results that the last nodes need, a chain that fills the history, and a call beside it that is under way.
    count, large = 30, b'{"text":"%b"}' % (b"x" * 1_500_000)
    nodes = [node(n) for n in ("a", "b", "beside", *(f"n{index}" for index in range(count)))]
    for late, early in ("ca", "db"):
        reads = {"arguments": {"type": "connection", "nodeId": early, "outputKey": "result"}}
        nodes.append(node(late, inputs=reads))
    edges = [edge(f"n{index}", f"n{index + 1}") for index in range(count - 1)]
    edges += [edge(early, late) for early in ("a", "b", f"n{count - 1}") for late in "cd"]
    run = model(nodes, edges)
    succeed(run, "a", "b", result=large)
    while len(run.under_way) > 1:
        succeed(run, *({command.node_id or "" for command in run.under_way.values()} - {"beside"}), result=large)
    pause(run)
    succeed(run, "beside", result=large)
    assert (run.over, run.commands) == (False, [])
    resume(run)
    assert run.types[-2:] == ["run.resumed", "run.failed"]
    assert payloads(run, "run.failed")[0]["error"]["code"] == "storage_limit_exceeded"
    agree(run)


def test_a_run_that_waits_paused_is_not_handed_over() -> None:
    run = model([node("a")])
    run.pause()
    run.task(suggest=True)
    fail(run, "a", call_failure(retry_after=2))
    run.resume()
    run.task(suggest=True)
    assert len(run.histories) == 1
    run.fire(run.ordinal("a"))
    run.task(suggest=True)
    assert len(run.histories) == 2


def test_a_pause_alone_hands_nothing_over_as_a_cancel_may_come_with_it() -> None:
    run = model([node("wait", "core.delay", config=DELAY)])
    run.pause()
    run.request_cancel()
    run.task(suggest=True)
    assert len(run.histories) == 1
    assert run.types[-1] == "run.cancelled"
    agree(run)


# --- shapes ---


def test_what_an_update_says_survives_its_encoding() -> None:
    for asked in (Pause(), Pause("immediate", "é\u2028"), Pause(reason="")):
        assert Pause.decode(asked.encode()) == asked
    for again in (Resume(), Resume("é")):
        assert Resume.decode(again.encode()) == again
    assert Pause.decode(b"{}") == Pause("drain-current-node")
    assert encode_taken(BEGINNING / 1000) == b'{"at":"2026-09-21T14:13:20.000Z"}'


@pytest.mark.parametrize("text", [b"", b"[]", b'{"reason":1}', b'{"drainPolicy":"later"}', b'{"drainPolicy":null}'])
def test_what_is_no_pause_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Pause.decode(text)
