"""Calls that found no room: what follows them uses up nothing, grows, spreads, and ends by patience."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp import failures, jsontext
from openwop_mcp.effects.decide import (
    FIRST_PARKING,
    LONGEST_PARKING,
    SPREAD,
    Again,
    Fail,
    Failure,
    Parked,
    Postponement,
    RetryPolicy,
    decide,
)
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import CircuitOpenError, PostponedError

POLICY = RetryPolicy(attempts=3, max_wait=10.0, total=15.0)
FULL = Failure(
    "rate_limited", Delivery.NOT_SENT, retryable=True, repeat_safe=False, postponed=Postponement(patience=300.0)
)
REFUSED = dataclasses.replace(FULL, postponed=None)


def full(**facts: object) -> PostponedError:
    told: dict = {"setting": "servers.s.limits.rate", "wait": 2.5, "patience": 60.0, "spread": 0.25}
    setting = "servers.s.limits.patience"
    return PostponedError("there is no room", **{**told, "patience_setting": setting, **facts})


def test_no_attempt_and_no_time_is_used_up_where_there_was_no_room() -> None:
    assert decide(POLICY, 99, 99.0, FULL) == Again(FIRST_PARKING)


def test_waits_for_room_double_up_to_the_longest() -> None:
    waits = [decide(POLICY, 1, 0.0, FULL, Parked(times, 0.0)) for times in range(8)]
    assert waits == [Again(float(wait)) for wait in (1, 2, 4, 8, 16, 30, 30, 30)]
    assert decide(POLICY, 1, 0.0, FULL, Parked(5_000, 0.0)) == Again(LONGEST_PARKING)


def test_a_time_that_is_known_is_waited_for_though_no_attempt_may_wait_so_long() -> None:
    assert decide(POLICY, 1, 0.0, dataclasses.replace(FULL, retry_after=100.0)) == Again(100.0)


@given(spread=st.floats(0, 1), times=st.integers(0, 40), known=st.none() | st.floats(0, 1_000))
def test_the_spread_makes_a_wait_longer_and_at_most_by_so_much(spread: float, times: int, known: float | None) -> None:
    patient = dataclasses.replace(FULL, retry_after=known, postponed=Postponement(1e9, spread))
    plain = dataclasses.replace(patient, postponed=Postponement(1e9))
    decided, least = decide(POLICY, 1, 0.0, patient, Parked(times)), decide(POLICY, 1, 0.0, plain, Parked(times))
    assert isinstance(decided, Again)
    assert isinstance(least, Again)
    assert least.wait <= decided.wait <= least.wait * (1 + SPREAD)
    # A replay has nothing else to go by.
    assert decide(POLICY, 1, 0.0, patient, Parked(times)) == decided


@pytest.mark.parametrize(("seconds", "decision"), [(299.0, Again(1.0)), (299.5, Again(0.5)), (300.0, Fail("patience"))])
def test_patience_holds_up_to_its_very_value(seconds: float, decision: Again | Fail) -> None:
    assert decide(POLICY, 1, 0.0, FULL, Parked(0, seconds)) == decision


@given(
    patience=st.floats(0, 86_400),
    spread=st.floats(0, 1),
    known=st.none() | st.floats(0, 1_000),
    times=st.integers(0, 9),
)
def test_a_call_is_tried_once_more_at_the_very_end_of_its_patience_and_then_fails(
    patience: float, spread: float, known: float | None, times: int
) -> None:
    failure = dataclasses.replace(FULL, retry_after=known, postponed=Postponement(patience, spread))
    parked = Parked(times)
    while isinstance(decision := decide(POLICY, 1, 0.0, failure, parked), Again):
        assert decision.wait > 0
        parked = parked.after(decision.wait)
    assert decision == Fail("patience")
    assert parked.seconds == pytest.approx(patience, abs=0.001)


def test_who_has_no_patience_fails_at_once() -> None:
    assert decide(POLICY, 1, 0.0, dataclasses.replace(FULL, postponed=Postponement(0.0))) == Fail("patience")


def test_an_attempt_that_was_made_counts_as_ever_after_a_wait_for_room() -> None:
    assert decide(POLICY, 1, 0.0, REFUSED, Parked(9, 250.0)) == Again(0.5)
    assert decide(POLICY, 3, 0.0, REFUSED, Parked(9, 250.0)) == Fail("attempts")


@pytest.mark.parametrize(
    "error",
    [
        full(),
        full(wait=None),
        CircuitOpenError("x", setting="c", wait=1, patience=2, patience_setting="p", spread=0),
    ],
)
def test_what_decides_is_recorded_and_read_again(error: PostponedError) -> None:
    failure = failures.written(failures.write(error, repeat_safe=False, policy=POLICY, name="n" * 10_000))
    assert failure.code == error.code
    assert failure.happened.delivery is Delivery.NOT_SENT
    assert failure.happened.retry_after == error.facts.get("retryAfter")
    assert failure.happened.postponed == Postponement(error.facts["patience"], error.facts["spread"])


def test_a_call_that_ran_out_of_patience_says_so_by_its_setting_and_is_final_for_whoever_waited_for_it() -> None:
    failure = failures.written(failures.write(full(), repeat_safe=False, policy=POLICY, serverId="s"))
    ended = failures.conclude(failure, Fail("patience"))
    assert "(setting servers.s.limits.rate)" in ended.message
    assert ended.message.endswith("(setting servers.s.limits.patience)")
    assert jsontext.decode(ended.details)["ended"] == "servers.s.limits.patience"
    forwarded = failures.written(failures.forward(ended))
    assert forwarded.happened.postponed is None
    assert decide(POLICY, 1, 0.0, forwarded.happened) == Fail()
