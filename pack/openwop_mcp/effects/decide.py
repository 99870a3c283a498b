"""The table that decides what follows an attempt: one pure function for graphs, authors' workflows and projections.

Attempts belong to the workflow: an activity runs once, and the next attempt is a decision that stands in history.
"""

from __future__ import annotations

from dataclasses import dataclass

from openwop_mcp.effects.delivery import Delivery

__all__ = ("Again", "Decision", "Fail", "Failure", "InDoubt", "RetryPolicy", "decide")

FIRST_WAIT = 0.5
"""Seconds before the second attempt where the server named no time: long enough for a restart of a local process."""

GROWTH = 2.0
"""Each further wait is this many times the one before, the factor Temporal's own retry policy uses by default."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often, and how long, a call may be tried again.

    Attributes:
        attempts: Attempts in all, the first included.
        max_wait: Seconds; the longest single wait, a server's ``Retry-After`` included.
        total: Seconds; all waits of one call together.
    """

    attempts: int = 3
    max_wait: float = 10.0
    total: float = 15.0


@dataclass(frozen=True, slots=True)
class Failure:
    """What one attempt came back with.

    Attributes:
        code: OpenWOP code of the failure.
        delivery: What is known of the request.
        retryable: Whether another attempt could end differently at all.
        repeat_safe: Whether the effect may happen twice without harm, by the host's policy.
        retry_after: Seconds that the server asked to wait, if it did.
    """

    code: str
    delivery: Delivery
    retryable: bool
    repeat_safe: bool
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Again:
    """Send again after ``wait`` seconds."""

    wait: float


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Do not send again: the effect may have happened and a repeat is not safe."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Do not send again: the outcome is known, or nothing is left to try.

    Attributes:
        limit: The retry setting that ended it (``attempts``, ``max_wait``, ``total``), or None where trying again
            could not help.
    """

    limit: str | None = None


Decision = Again | InDoubt | Fail


def decide(policy: RetryPolicy, attempts: int, waited: float, failure: Failure) -> Decision:
    """Decide what follows a failed attempt.

    Args:
        policy: The limits of the call.
        attempts: Attempts made so far, the failed one included.
        waited: Seconds waited so far between attempts.
        failure: What the last attempt came back with.
    """
    if failure.delivery is Delivery.UNKNOWN and not failure.repeat_safe:
        return InDoubt()
    if not failure.retryable:
        return Fail()
    if attempts >= policy.attempts:
        return Fail("attempts")
    wait = failure.retry_after if failure.retry_after is not None else _backoff(attempts)
    if failure.retry_after is None:
        wait = min(wait, policy.max_wait)
    elif wait > policy.max_wait:
        return Fail("max_wait")
    if waited + wait > policy.total:
        return Fail("total")
    return Again(wait)


def _backoff(attempts: int) -> float:
    return float(FIRST_WAIT * GROWTH ** (attempts - 1))
