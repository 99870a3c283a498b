"""The table that decides what follows an attempt: one pure function for graphs, authors' workflows and projections.

Attempts belong to the workflow: an activity runs once, and the next attempt is a decision that stands in history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from openwop_mcp.effects.delivery import Delivery

__all__ = ("TABLE", "Again", "Ask", "Decision", "Fail", "Failure", "InDoubt", "RetryPolicy", "Rule", "decide")

FIRST_WAIT = 0.5
"""Seconds before the second attempt where the server named no time: long enough for a restart of a local process."""

GROWTH = 2.0
"""Each further wait is this many times the one before, the factor Temporal's own retry policy uses by default."""

MAX_DOUBLINGS = 32
"""A wait stops growing at 68 years: past every limit that somebody means, and short of what no float or timer holds."""


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

    @property
    def facts(self) -> dict[str, float]:
        """As it travels in JSON."""
        return {"attempts": self.attempts, "maxWait": self.max_wait, "total": self.total}


@dataclass(frozen=True, slots=True)
class Failure:
    """What one attempt came back with.

    Attributes:
        code: OpenWOP code of the failure.
        delivery: What is known of the request.
        retryable: Whether another attempt could end differently at all.
        repeat_safe: Whether the effect may happen twice without harm, by the host's policy.
        retry_after: Seconds that the server asked to wait, if it did.
        ask: Whether a person is to decide where the effect is in doubt (``on_doubt = "ask"``).
        waited: Whether the attempt only waited for an effect that another workflow carries out.
    """

    code: str
    delivery: Delivery
    retryable: bool
    repeat_safe: bool
    retry_after: float | None = None
    ask: bool = False
    waited: bool = False

    @property
    def in_doubt(self) -> bool:
        """Whether the effect may have happened, and must not happen twice."""
        return self.delivery is Delivery.UNKNOWN and not self.repeat_safe


@dataclass(frozen=True, slots=True)
class Again:
    """Send again after ``wait`` seconds."""

    wait: float


@dataclass(frozen=True, slots=True)
class Ask:
    """The effect may have happened and a repeat is not safe: a person decides what follows."""


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


Decision = Again | Ask | InDoubt | Fail


@dataclass(frozen=True, slots=True)
class _Case:
    """A failure among the attempts of its call."""

    policy: RetryPolicy
    attempts: int
    waited: float
    failure: Failure

    @property
    def wait(self) -> float:
        """Seconds until a further attempt: what the server asked for, else twice as long as the last time."""
        if self.failure.retry_after is not None:
            return self.failure.retry_after
        return min(FIRST_WAIT * GROWTH ** min(self.attempts - 1, MAX_DOUBLINGS), self.policy.max_wait)


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the table.

    Attributes:
        when: What it is for, in words; the documents print it.
        then: What follows, in words.
        holds: Whether it is for a case.
        decision: What follows.
    """

    when: str
    then: str
    holds: Callable[[_Case], bool]
    decision: Callable[[_Case], Decision]


TABLE: tuple[Rule, ...] = (
    Rule(
        "the worker was lost that waited for an effect which another workflow carries out",
        "wait again, as often as it takes: nothing is sent by that",
        lambda case: case.failure.waited,
        lambda _: Again(FIRST_WAIT),
    ),
    Rule(
        'the effect may have happened, a repeat is not safe, and `on_doubt = "ask"`',
        "a person decides: send again, take as done with a given result, or fail",
        lambda case: case.failure.in_doubt and case.failure.ask,
        lambda _: Ask(),
    ),
    Rule(
        "the effect may have happened, and a repeat is not safe",
        "in doubt: the call fails and says so, and is not sent again",
        lambda case: case.failure.in_doubt,
        lambda _: InDoubt(),
    ),
    Rule(
        "another attempt could not end differently",
        "fail",
        lambda case: not case.failure.retryable,
        lambda _: Fail(),
    ),
    Rule(
        "no attempt is left (`retry.attempts`)",
        "fail, naming that limit",
        lambda case: case.attempts >= case.policy.attempts,
        lambda _: Fail("attempts"),
    ),
    Rule(
        "the server asks for a longer wait than one may take (`retry.max_wait`)",
        "fail, naming that limit",
        lambda case: case.wait > case.policy.max_wait,
        lambda _: Fail("max_wait"),
    ),
    Rule(
        "all waits together would be longer than they may (`retry.total`)",
        "fail, naming that limit",
        lambda case: case.waited + case.wait > case.policy.total,
        lambda _: Fail("total"),
    ),
    Rule(
        "anything else",
        "send again: at the time that the server named, else after 0.5 s and each time twice as long, up to `max_wait`",
        lambda _: True,
        lambda case: Again(case.wait),
    ),
)
"""The table, from the top: the first rule that holds decides."""


def decide(policy: RetryPolicy, attempts: int, waited: float, failure: Failure) -> Decision:
    """Decide what follows a failed attempt.

    Args:
        policy: The limits of the call.
        attempts: Attempts made so far, the failed one included.
        waited: Seconds waited so far between attempts.
        failure: What the last attempt came back with.
    """
    case = _Case(policy, attempts, waited, failure)
    return next(rule.decision(case) for rule in TABLE if rule.holds(case))
