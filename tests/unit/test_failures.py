"""What is said of a call whose last attempt sent nothing, by what is known of the attempts before it."""

from __future__ import annotations

import pytest
from temporalio.api.failure.v1 import Failure

from openwop_mcp import failures, jsontext
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.failures import CallFailure, Escaped, remembered
from tests.support.call_failures import call_failure


def made(**facts: object) -> CallFailure:
    return failures.read(call_failure(**facts))


def lost() -> CallFailure:
    """An attempt of whose worker nothing was heard."""
    failure = Failure(message="activity Heartbeat timeout")
    failure.timeout_failure_info.timeout_type = 4
    return failures.read(failure)


SENT = made(delivery="unknown", effectId="acme/a")
REFUSED = made(effectId="acme/a")


@pytest.mark.parametrize(
    ("before", "escaped"),
    [
        ([], Escaped.NO),
        ([REFUSED], Escaped.NO),
        ([SENT], Escaped.YES),
        ([SENT, REFUSED], Escaped.YES),
        ([SENT, lost()], Escaped.YES),
        ([lost(), SENT], Escaped.YES),
        # A worker that was lost without a claim had sent something only where none is needed.
        ([lost(), REFUSED], Escaped.YES),
        ([lost(), made(effectId="acme/a", repeat_safe=False)], Escaped.PERHAPS),
        # That is not said by an attempt that ended before it was looked at, or that only waited.
        ([lost(), made()], Escaped.PERHAPS),
        ([lost(), made(effectId="acme/a", retryable=False)], Escaped.PERHAPS),
        # What only reads has no effect.
        ([made(delivery="unknown")], Escaped.NO),
    ],
)
def test_an_effect_that_may_have_happened_stays_so(before: list[CallFailure], escaped: Escaped) -> None:
    so_far = Escaped.NO
    for failure in before:
        so_far = so_far.after(failure)
    assert so_far is escaped


@pytest.mark.parametrize(
    ("last", "escaped", "delivery"),
    [
        (REFUSED, Escaped.NO, "not_sent"),
        (REFUSED, Escaped.YES, "unknown"),
        (made(delivery="not_processed", repeat_safe=False), Escaped.YES, "unknown"),
        (made(delivery="answered"), Escaped.YES, "answered"),
        (REFUSED, Escaped.PERHAPS, "not_sent"),
    ],
)
def test_a_failure_in_the_light_of_earlier_attempts(last: CallFailure, escaped: Escaped, delivery: str) -> None:
    told = remembered(last, escaped)
    assert told.happened.delivery is Delivery(delivery)
    assert jsontext.decode(told.details)["delivery"] == delivery
    changed = told.happened.delivery is not last.happened.delivery
    assert ("the effect may have happened" in told.message) is changed
    assert (told is last) is not changed
