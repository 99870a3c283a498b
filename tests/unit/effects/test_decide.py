"""The table that decides what follows an attempt, line by line."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from openwop_mcp import failures, jsontext
from openwop_mcp.effects.decide import MAX_DOUBLINGS, TABLE, Again, Ask, Fail, Failure, InDoubt, RetryPolicy, decide
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import InterruptedCallError

POLICY = RetryPolicy(attempts=3, max_wait=10.0, total=15.0)
SAFE = Failure("upstream_unavailable", Delivery.NOT_SENT, retryable=True, repeat_safe=False)
DOUBT = dataclasses.replace(SAFE, delivery=Delivery.UNKNOWN)


def test_a_worker_that_only_waited_is_replaced_however_often_it_is_lost() -> None:
    lost = dataclasses.replace(SAFE, waited=True)
    assert decide(POLICY, 1_000, 1_000.0, lost) == Again(0.5)


@pytest.mark.parametrize(("ask", "expected"), [(True, Ask()), (False, InDoubt())])
def test_an_effect_in_doubt_is_never_sent_again_by_itself(ask: bool, expected: Ask | InDoubt) -> None:
    for retryable, retry_after in itertools.product([True, False], [None, 0.0, 3600.0]):
        failure = dataclasses.replace(DOUBT, ask=ask, retryable=retryable, retry_after=retry_after)
        assert decide(POLICY, 1, 0.0, failure) == expected
        assert decide(POLICY, 3, 15.0, failure) == expected


@pytest.mark.parametrize("delivery", [Delivery.NOT_SENT, Delivery.NOT_PROCESSED])
def test_nobody_is_asked_where_nothing_happened(delivery: Delivery) -> None:
    assert decide(POLICY, 1, 0.0, dataclasses.replace(SAFE, delivery=delivery, ask=True)) == Again(0.5)


def test_nobody_is_asked_where_a_repeat_is_safe() -> None:
    assert decide(POLICY, 1, 0.0, dataclasses.replace(DOUBT, repeat_safe=True, ask=True)) == Again(0.5)


def test_nobody_is_asked_about_an_answer() -> None:
    answered = dataclasses.replace(DOUBT, delivery=Delivery.ANSWERED, retryable=False, ask=True)
    assert decide(POLICY, 1, 0.0, answered) == Fail()


def test_what_could_not_end_differently_names_no_setting() -> None:
    assert decide(POLICY, 3, 99.0, dataclasses.replace(SAFE, retryable=False, retry_after=99.0)) == Fail(None)


@pytest.mark.parametrize(
    ("attempts", "waited", "retry_after", "expected"),
    [
        (1, 0.0, None, Again(0.5)),
        (2, 0.5, None, Again(1.0)),
        (2, 0.0, 10.0, Again(10.0)),
        (2, 5.0, 10.0, Again(10.0)),
        (2, 5.1, 10.0, Fail("total")),
        (2, 0.0, 10.1, Fail("max_wait")),
        (3, 0.0, 0.0, Fail("attempts")),
        (1, 0.0, 0.0, Again(0.0)),
    ],
)
def test_the_limits_hold_up_to_their_very_value(
    attempts: int, waited: float, retry_after: float | None, expected: Again | Fail
) -> None:
    failure = dataclasses.replace(SAFE, retry_after=retry_after)
    assert decide(POLICY, attempts, waited, failure) == expected


def test_waits_double_up_to_the_longest() -> None:
    patient = RetryPolicy(attempts=9, max_wait=3.0, total=1_000.0)
    waits = [decide(patient, attempts, 0.0, SAFE) for attempts in range(1, 6)]
    assert waits == [Again(0.5), Again(1.0), Again(2.0), Again(3.0), Again(3.0)]


def test_waits_stop_growing_where_no_timer_could_hold_them() -> None:
    endless = RetryPolicy(attempts=5_000, max_wait=1e300, total=1e300)
    assert decide(endless, 4_999, 0.0, SAFE) == Again(0.5 * 2.0**MAX_DOUBLINGS)
    assert decide(dataclasses.replace(endless, max_wait=0.0), 4_999, 0.0, SAFE) == Again(0.0)


def test_what_the_table_needs_is_recorded_where_names_leave_no_room_for_more() -> None:
    error = InterruptedCallError("cut short", cancelled=True, delivery=Delivery.UNKNOWN)
    wordy = failures.write(
        error, repeat_safe=False, policy=POLICY, name="n" * 1_500_000, effectId="acme/x", onDoubt="ask", waited=True
    )
    (details,) = wordy.details
    assert len(details.payload.data) <= failures.MAX_DETAILS
    failure = failures.written(wordy)
    assert failure.happened == dataclasses.replace(DOUBT, retryable=False, ask=True, waited=True)
    assert failure.policy == POLICY
    assert failure.cancelled
    assert jsontext.decode(failure.details)["effectId"] == "acme/x"


def test_every_line_of_the_table_says_when_it_holds_and_what_follows() -> None:
    told = [(rule.when, rule.then) for rule in TABLE]
    assert all(when and then for when, then in told)
    assert len(set(told)) == len(told)
