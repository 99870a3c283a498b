"""The token bucket: never more calls than the rate and the burst allow, in whatever way they come."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp.traffic import Pace

TICK = 1e-6
"""Seconds by which sums of floats may be off."""


def test_a_burst_goes_at_once_and_then_one_call_at_a_time() -> None:
    pace = Pace(rate=10, burst=3)
    for _ in range(3):
        assert pace.wait(100.0) == 0
        pace.take(100.0)
    assert pace.wait(100.0) == pytest.approx(0.1)
    assert pace.wait(100.1) == pytest.approx(0.0)


def test_a_slow_rate_is_kept_between_calls() -> None:
    pace = Pace(rate=0.5, burst=1)
    pace.take(0.0)
    assert pace.wait(0.0) == pytest.approx(2.0)
    assert pace.wait(2.0) == 0


@given(
    rate=st.floats(0.01, 1_000),
    burst=st.integers(1, 50),
    gaps=st.lists(st.floats(0, 10), min_size=1, max_size=200),
)
def test_in_any_time_no_more_go_than_its_rate_and_one_burst(rate: float, burst: int, gaps: list[float]) -> None:
    pace, went = Pace(rate, burst), []
    for now in itertools.accumulate(gaps):
        if pace.wait(now) == 0:
            pace.take(now)
            went.append(now)
    for first, began in enumerate(went):
        for last in range(first, len(went)):
            assert last - first + 1 <= burst + (went[last] - began) * rate + TICK * rate + 1e-9


@given(rate=st.floats(0.01, 1_000), burst=st.integers(1, 50), takes=st.integers(0, 100))
def test_who_waits_for_as_long_as_was_said_may_go(rate: float, burst: int, takes: int) -> None:
    pace = Pace(rate, burst)
    for _ in range(takes):
        pace.take(5.0)
    assert pace.wait(5.0 + pace.wait(5.0) + TICK) == 0


@given(rate=st.floats(0.01, 1_000), burst=st.integers(1, 50), sent_away=st.integers(2, 100))
def test_who_is_sent_away_comes_one_after_the_other(rate: float, burst: int, sent_away: int) -> None:
    pace = Pace(rate, burst)
    for _ in range(burst):
        pace.take(0.0)
    promised = [pace.promise(0.0) for _ in range(sent_away)]
    assert promised[0] > 0
    assert all(later - sooner == pytest.approx(1 / rate) for sooner, later in itertools.pairwise(promised))
