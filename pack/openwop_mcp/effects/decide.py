"""The table that decides what follows an attempt: one pure function for graphs, authors' workflows and projections.

Attempts belong to the workflow: an activity runs once, and the next attempt is a decision that stands in history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from openwop_mcp.effects.delivery import Delivery

__all__ = (
    "TABLE",
    "Again",
    "Ask",
    "Decision",
    "Fail",
    "Failure",
    "InDoubt",
    "Parked",
    "Postponement",
    "RetryPolicy",
    "Rule",
    "decide",
)

FIRST_WAIT = 0.5
"""Seconds before the second attempt where the server named no time: long enough for a restart of a local process."""

GROWTH = 2.0
"""Each further wait is this many times the one before, the factor Temporal's own retry policy uses by default."""

FIRST_PARKING = 1.0
"""Seconds before a call that found no room comes again: as long as it waited for room before it gave its place up."""

LONGEST_PARKING = 30.0
"""Seconds of such a wait at most where nobody has named another: room that has been made is used soon."""

LEAST_PARKING = 0.001
"""Seconds of such a wait at least: Temporal's timers count milliseconds, and less of a patience is none."""

SPREAD = 0.5
"""By how much such a wait is longer at most, so that those who were sent away together do not come again together."""

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
class Postponement:
    """That an attempt found no room at its worker and gave its place there up: nothing was sent, nothing is used up.

    Attributes:
        patience: Seconds that a call may wait so in all.
        spread: From 0 to 1, as the worker drew it: how much longer than others this call waits. It stands in history,
            so that a replay waits as long.
    """

    patience: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class Parked:
    """How a call has waited for room so far.

    Attributes:
        times: Attempts that found none.
        seconds: Seconds waited after them.
    """

    times: int = 0
    seconds: float = 0.0

    def after(self, wait: float) -> Parked:
        """The same after one more wait."""
        return Parked(self.times + 1, self.seconds + wait)


@dataclass(frozen=True, slots=True)
class Failure:
    """What one attempt came back with.

    Attributes:
        code: OpenWOP code of the failure.
        delivery: What is known of the request.
        retryable: Whether another attempt could end differently at all.
        repeat_safe: Whether the effect may happen twice without harm, by the host's policy.
        retry_after: Seconds that the server asked to wait, if it did, or its worker where the call was postponed.
        ask: Whether a person is to decide where the effect is in doubt (``on_doubt = "ask"``).
        waited: Whether the attempt only waited for an effect that another workflow carries out.
        postponed: That it found no room; None where it was made.
    """

    code: str
    delivery: Delivery
    retryable: bool
    repeat_safe: bool
    retry_after: float | None = None
    ask: bool = False
    waited: bool = False
    postponed: Postponement | None = None

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
        limit: The retry setting that ended it (``attempts``, ``max_wait``, ``total``), or ``patience`` where the call
            waited for room; None where trying again could not help.
    """

    limit: str | None = None


Decision = Again | Ask | InDoubt | Fail


NEVER = Parked()
"""Of a call that has found room each time."""


@dataclass(frozen=True, slots=True)
class _Case:
    """A failure among the attempts of its call."""

    policy: RetryPolicy
    attempts: int
    waited: float
    failure: Failure
    parked: Parked

    @property
    def parking(self) -> float:
        """Seconds until a call that found no room comes again: each time longer, never all at once, last at its end."""
        postponed = self.failure.postponed
        assert postponed is not None
        grown = min(FIRST_PARKING * GROWTH ** min(self.parked.times, MAX_DOUBLINGS), LONGEST_PARKING)
        wait = max(grown, self.failure.retry_after or 0.0) * (1 + SPREAD * postponed.spread)
        return min(wait, postponed.patience - self.parked.seconds)

    @property
    def out_of_patience(self) -> bool:
        """Whether a call that found no room has waited as long as it may."""
        return self.failure.postponed is not None and self.parking < LEAST_PARKING

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
        "the worker had no room for the call, and it has waited for some as long as it may (`patience` of its server)",
        "fail, naming that limit",
        lambda case: case.out_of_patience,
        lambda _: Fail("patience"),
    ),
    Rule(
        "the worker had no room for the call, or leaves the server alone for now ([limits.md](limits.md))",
        "postpone, using up neither an attempt nor `retry.total`: to the time that is known, else by 1 s and each time"
        " twice as long, up to 30 s, and the last time to the end of its `patience`",
        lambda case: case.failure.postponed is not None,
        lambda case: Again(case.parking),
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


def decide(policy: RetryPolicy, attempts: int, waited: float, failure: Failure, parked: Parked = NEVER) -> Decision:
    """Decide what follows a failed attempt.

    Args:
        policy: The limits of the call.
        attempts: Attempts made so far, the failed one included; those that found no room left out.
        waited: Seconds waited so far between attempts; those for room left out.
        failure: What the last attempt came back with.
        parked: How the call has waited for room so far.
    """
    case = _Case(policy, attempts, waited, failure, parked)
    return next(rule.decision(case) for rule in TABLE if rule.holds(case))
