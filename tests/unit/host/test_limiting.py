"""What one key may ask for: as many at once, and as many a second, as the settings say; never at another's cost."""

from __future__ import annotations

import pytest

from host.errors import HostError
from host.limiting import MAX_IDLE, Admission, KeyLimits


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def refused(limits: KeyLimits, key: str) -> int | None:
    with pytest.raises(HostError) as caught:
        limits.take(key)
    assert caught.value.code == "rate_limited"
    return caught.value.retry_after


def test_a_key_may_have_so_many_requests_under_way_and_another_when_one_has_ended() -> None:
    limits = KeyLimits(at_once=2, per_second=100, body_bytes=100)
    limits.take("a")
    limits.take("a")
    assert refused(limits, "a") == 1
    limits.take("b")
    limits.give_back("a")
    limits.take("a")
    assert refused(limits, "a") == 1


def test_the_bodies_of_a_key_may_hold_so_much_together_until_their_requests_end() -> None:
    limits = KeyLimits(at_once=100, per_second=100, body_bytes=100)
    first, second, others = Admission(limits), Admission(limits), Admission(limits)
    for admission, key in ((first, "a"), (second, "a"), (others, "b")):
        admission.take(key)
    first.hold(60)
    second.hold(40)
    others.hold(100)
    for _ in range(2):
        with pytest.raises(HostError) as caught:
            second.hold(1)
        assert (caught.value.code, caught.value.retry_after) == ("rate_limited", 1)
    first.give_back()
    second.hold(60)
    second.give_back()


def test_a_key_may_begin_so_many_a_second_and_is_told_when_the_next_is_due() -> None:
    clock = Clock()
    limits = KeyLimits(at_once=100, per_second=4, body_bytes=100, clock=clock)
    for _ in range(4):
        limits.take("a")
    assert refused(limits, "a") == 1
    limits.take("b")
    clock.now += 0.5
    limits.take("a")
    limits.take("a")
    assert refused(limits, "a") == 1


def test_a_refused_request_costs_nothing() -> None:
    clock = Clock()
    limits = KeyLimits(at_once=100, per_second=1, body_bytes=100, clock=clock)
    limits.take("a")
    for _ in range(50):
        refused(limits, "a")
    clock.now += 1
    limits.take("a")


def test_what_is_not_used_is_not_saved_up() -> None:
    clock = Clock()
    limits = KeyLimits(at_once=100, per_second=2, body_bytes=100, clock=clock)
    limits.take("a")
    clock.now += 3600
    limits.take("a")
    limits.take("a")
    refused(limits, "a")


def test_keys_that_ask_for_nothing_are_forgotten_and_those_that_do_are_not() -> None:
    clock = Clock()
    limits = KeyLimits(at_once=1, per_second=1, body_bytes=100, clock=clock)
    limits.take("stays")
    for number in range(MAX_IDLE):
        limits.take(f"key-{number}")
        limits.give_back(f"key-{number}")
    clock.now += 10
    limits.take("one-more")
    assert len(limits._uses) == 2
    assert refused(limits, "stays") == 1


def test_a_request_that_was_refused_gives_nothing_back() -> None:
    limits = KeyLimits(at_once=1, per_second=100, body_bytes=100)
    first, second, third = Admission(limits), Admission(limits), Admission(limits)
    first.take("a")
    with pytest.raises(HostError):
        second.take("a")
    second.give_back()
    with pytest.raises(HostError):
        third.take("a")
    first.give_back()
    third.take("a")
