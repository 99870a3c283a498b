"""Nodes whose calls find no room: they wait by timers that use up nothing, also through a continue-as-new."""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.api.failure.v1 import Failure

from openwop_mcp.runs.machine import FailRun, ScheduleNode, StartTimer
from openwop_mcp.runs.projection import Projector
from tests.support.call_failures import call_failure, in_doubt
from tests.support.graphs import RUN_ID, node, start, workflow
from tests.support.temporal_model import TemporalModel


def full(*, patience: float = 300.0, spread: float = 0.0, **more: Any) -> Failure:
    """How an attempt ends that found no room."""
    return call_failure(
        code="rate_limited", repeat_safe=False, postponed=True, patience=patience, spread=spread, attempts=1, **more
    )


def postpone(run: TemporalModel, *, suggest: bool = False, failure: Failure | None = None) -> float:
    """End the attempt under way so; the seconds that are waited then, which pass."""
    run.fail(run.ordinal("a"), failure or full())
    run.task(suggest=suggest)
    (timer,) = run.under_way.values()
    assert isinstance(timer, StartTimer)
    run.now += round(timer.seconds * 1000)
    run.fire(timer.ordinal)
    run.task()
    return timer.seconds


def payloads(run: TemporalModel, event_type: str) -> list[dict[str, Any]]:
    return [json.loads(told[3]) for told in run.log if told[1] == event_type]


def agree(run: TemporalModel) -> None:
    """The projected log is the one that was told live."""
    projector = Projector(RUN_ID)
    projected = [event for history in run.histories for event in projector.project(history)]
    assert [(one.sequence, one.type, one.payload) for one in projected] == [
        (sequence, event_type, payload) for sequence, event_type, _, payload, _ in run.log
    ]


@pytest.mark.parametrize("handed_over", [False, True])
def test_a_node_waits_longer_each_time_and_has_its_attempts_left(handed_over: bool) -> None:
    run = TemporalModel(start(workflow([node("a")])))
    assert [postpone(run, suggest=handed_over) for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0]
    assert len(run.histories) == 1 + 6 * handed_over
    (command,) = run.under_way.values()
    assert isinstance(command, ScheduleNode)
    assert command.activity_id == "a:7"
    # One attempt was allowed, and this is it.
    run.fail(command.ordinal, call_failure(attempts=1))
    run.task()
    assert isinstance(run.commands[-1], FailRun)
    assert "retry.attempts" in run.commands[-1].message
    agree(run)


@pytest.mark.parametrize("handed_over", [False, True])
def test_patience_is_that_of_all_waits_together(handed_over: bool) -> None:
    run = TemporalModel(start(workflow([node("a")])))
    for wait in (1.0, 2.0, 4.0):
        assert postpone(run, suggest=handed_over, failure=full(patience=7.0)) == wait
    run.fail(run.ordinal("a"), full(patience=7.0))
    run.task()
    (failed,) = payloads(run, "run.failed")
    assert failed["error"]["code"] == "rate_limited"
    assert "limits.patience" in failed["error"]["message"]
    agree(run)


def test_the_log_tells_of_each_wait_and_what_it_was_for() -> None:
    run = TemporalModel(start(workflow([node("a")])))
    wait = postpone(run, failure=full(retry_after=20, spread=0.5))
    assert wait == 25.0
    (retried,) = payloads(run, "node.retried")
    assert (retried["attempt"], retried["delayMs"]) == (1, 25_000)
    assert retried["lastError"]["details"]["postponed"] is True
    agree(run)


def test_waits_for_room_and_waits_between_attempts_do_not_add_up() -> None:
    run = TemporalModel(start(workflow([node("a")])))
    waits = []
    for failure in (full(), call_failure(), full(), call_failure(retry_after=10), full(), call_failure()):
        run.fail(run.ordinal("a"), failure)
        run.task()
        if not run.over:
            (timer,) = run.under_way.values()
            assert isinstance(timer, StartTimer)
            waits.append(timer.seconds)
            run.fire(timer.ordinal)
            run.task()
    assert waits == [1.0, 0.5, 2.0, 10.0, 4.0]
    assert run.types[-1] == "run.failed"
    agree(run)


@pytest.mark.parametrize("handed_over", [False, True])
def test_what_a_person_decided_is_carried_out_by_the_attempt_that_finds_room(handed_over: bool) -> None:
    run = TemporalModel(start(workflow([node("a")])))
    run.fail(run.ordinal("a"), in_doubt())
    run.task()
    run.answer("a", b'{"action":"accept"}')
    run.task()
    for _ in range(2):
        postpone(run, suggest=handed_over)
        (command,) = run.under_way.values()
        assert isinstance(command, ScheduleNode)
        assert command.answer is not None
    run.fail(command.ordinal, call_failure(attempts=9))
    run.task()
    (timer,) = run.under_way.values()
    run.fire(timer.ordinal)
    run.task()
    (command,) = run.under_way.values()
    assert isinstance(command, ScheduleNode)
    assert command.answer is not None
    agree(run)
