"""The judgement of an effect chaos: what became of each call, held against what the server did. Pure.

A failure is *in doubt* where it says that the effect may have happened. That is *true* if a sound client could not have
known better, by one of these causes, and false otherwise:

- `unanswered`: of the last request for the effect no whole answer was handed to an open connection;
- `worker`: it was, and the process that had asked was killed within the time that telling Temporal may take: `TELLING`,
  and twice what it took the slowest call that was told, as those that are killed would have been slower still;
- `temporal`: it was, and Temporal was away at that time;
- `unsent`: no request arrived, and by Temporal's history the process of an attempt was killed, or Temporal away, during
  that attempt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tests.chaos.counting_server import REFUSALS, Seen
from tests.chaos.plan import REPEATABLE, PlannedCall

__all__ = ("EARLIER", "IN_DOUBT", "Attempt", "Evidence", "Outcome", "Verdict", "judge")

IN_DOUBT = "the effect may have happened"

EARLIER = "an attempt before it had no answer"
"""What a failure says that is not in doubt, as it could have been sent again, and may have happened by an attempt that
was not its last."""

FAULT = "internal_error"
"""Code of a failure that is the pack's own."""

TELLING = 1.0
"""Seconds from an answer until Temporal has it: a hundred times what that takes on an idle machine."""

Kind = Literal["result", "failed", "skipped", "lost"]


@dataclass(frozen=True)
class Outcome:
    """What became of a call, as its workflow has it.

    Attributes:
        run: Id of the workflow.
        call: The call.
        kind: How it ended; `lost` where it did not.
        at: When the workflow knew, in seconds since 1970.
        result: The result's exact text.
        code, message, delivery: Of the failure.
        in_doubt: Whether the failure says so.
    """

    run: str
    call: PlannedCall
    kind: Kind
    at: float
    result: str | None = None
    code: str = ""
    message: str = ""
    delivery: str = ""
    in_doubt: bool = False


@dataclass(frozen=True)
class Attempt:
    """An attempt to make a call, as Temporal's history has it.

    Attributes:
        worker: The process that made it.
        since: When it began.
        until: When it ended.
        told: Whether the process said so itself.
    """

    worker: str
    since: float
    until: float
    told: bool = False


@dataclass(frozen=True)
class Evidence:
    """What was done to the processes.

    Attributes:
        killed: When each process ended that was killed or fell, by the name that it gives the server.
        outages: From when to when Temporal was away.
        attempts: The attempts by effect.
    """

    killed: Mapping[str, float] = field(default_factory=dict)
    outages: Sequence[tuple[float, float]] = ()
    attempts: Mapping[str, Sequence[Attempt]] = field(default_factory=dict)

    def away(self, since: float, until: float) -> bool:
        """Whether Temporal was away at some time between these."""
        return any(down <= until and since <= up for down, up in self.outages)

    def lost(self, attempt: Attempt) -> bool:
        """Whether the process ended, or Temporal was away, during the attempt."""
        end = self.killed.get(attempt.worker)
        died = end is not None and attempt.since <= end <= attempt.until
        return died or self.away(attempt.since, attempt.until)


@dataclass
class Verdict:
    """What came out.

    Attributes:
        ends: How many calls ended how.
        doubts: How many were in doubt for which true cause.
        false_doubts: How many were in doubt without one.
        effects: Effects that happened.
        executions: How often they did.
        repeats: Executions beyond the first that a policy allows.
        duplicates: Executions beyond the first that none allows.
        telling: Seconds from an answer until Temporal had it, of the slowest.
        violations: What must not be, in words.
    """

    ends: Counter[str] = field(default_factory=Counter)
    doubts: Counter[str] = field(default_factory=Counter)
    false_doubts: int = 0
    effects: int = 0
    executions: int = 0
    repeats: int = 0
    duplicates: int = 0
    telling: float = 0.0
    violations: list[str] = field(default_factory=list)


def judge(outcomes: Sequence[Outcome], seen: Iterable[Seen], evidence: Evidence) -> Verdict:
    """Hold all outcomes against all requests."""
    verdict = Verdict()
    requests: defaultdict[str, list[Seen]] = defaultdict(list)
    for request in seen:
        requests[request.effect].append(request)
    callers: defaultdict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        callers[outcome.call.effect].append(outcome)
    for effect, asked in requests.items():
        _count(verdict, effect, asked)
        verdict.telling = max(verdict.telling, _telling(asked, evidence.attempts.get(effect, ()), evidence))
    for effect, mine in callers.items():
        results = {outcome.result for outcome in mine if outcome.kind == "result"}
        if len(results) > 1:
            verdict.violations.append(f"{effect} has {len(results)} results")
        for outcome in mine:
            verdict.ends[_named(outcome)] += 1
            wrong = _wrong(verdict, outcome, requests[effect], evidence, others=results)
            if wrong is not None:
                verdict.violations.append(
                    f"{effect} in {outcome.run} {wrong}: {_told(outcome, requests[effect], evidence)}"
                )
    verdict.violations += [f"{effect} was never asked for" for effect in requests.keys() - callers.keys()]
    verdict.violations += _keys(requests)
    return verdict


def _named(outcome: Outcome) -> str:
    if outcome.kind != "failed":
        return outcome.kind
    return "in doubt" if outcome.in_doubt else f"{outcome.code} ({outcome.delivery})"


def _count(verdict: Verdict, effect: str, asked: Sequence[Seen]) -> None:
    times = sum(request.executed is not None for request in asked)
    verdict.executions += times
    verdict.effects += times > 0
    if times <= 1:
        return
    if asked[0].tool in REPEATABLE:
        verdict.repeats += times - 1
        return
    verdict.duplicates += times - 1
    verdict.violations.append(f"{effect} happened {times} times: {_story(asked)}")


def _telling(asked: Sequence[Seen], attempts: Sequence[Attempt], evidence: Evidence) -> float:
    """How long it took at most to tell Temporal of an answer, while it was there."""
    return max(
        (
            attempt.until - request.answered
            for attempt in attempts
            for request in asked
            if attempt.told and request.answered is not None and request.worker == attempt.worker
            # Of several attempts of one process, the one that the request belongs to.
            if attempt.since <= request.at <= attempt.until and not evidence.away(attempt.since, attempt.until)
        ),
        default=0.0,
    )


def _keys(requests: Mapping[str, Sequence[Seen]]) -> list[str]:
    """Each effect has a provider key of its own, the same in all requests, in both of the places where it stands."""
    wrong: list[str] = []
    whose: dict[str | None, str] = {}
    for effect, asked in requests.items():
        keys = {key for request in asked for key in (request.header_key, request.meta_key)}
        if len(keys) > 1 or None in keys:
            wrong.append(f"{effect} was sent with the provider keys {keys}")
        wrong += [f"{effect} and {whose[key]} have the provider key {key}" for key in keys if key in whose and key]
        whose.update(dict.fromkeys(keys, effect))
    return wrong


def _wrong(
    verdict: Verdict, outcome: Outcome, asked: Sequence[Seen], evidence: Evidence, *, others: set[str | None]
) -> str | None:
    """What is wrong with an outcome, in words; None if nothing is."""
    so_far = [request for request in asked if request.at <= outcome.at]
    if outcome.kind == "result":
        sent = [request.result for request in so_far if request.answered is not None and request.executed is not None]
        return None if outcome.result in sent else f"has a result that was not sent, {outcome.result!r}"
    if outcome.kind == "failed":
        if outcome.in_doubt and outcome.code != FAULT:
            return _doubt(
                verdict, outcome, None if others else _cause(outcome, so_far, evidence, TELLING + 2 * verdict.telling)
            )
        return _contradiction(outcome, so_far, evidence)
    if outcome.kind == "skipped":
        return "was skipped, and sent" if asked and outcome.call.key is None else None
    return "is lost"


def _doubt(verdict: Verdict, outcome: Outcome, cause: str | None) -> str | None:
    if outcome.call.tool in REPEATABLE:
        return "is in doubt, and could have been sent again"
    if cause is None:
        verdict.false_doubts += 1
        return "is in doubt without cause"
    verdict.doubts[cause] += 1
    return None


def _cause(outcome: Outcome, so_far: Sequence[Seen], evidence: Evidence, telling: float) -> str | None:
    """Why a call is in doubt; None if there is no reason for it to be."""
    if not so_far:
        attempts = evidence.attempts.get(outcome.call.effect, ())
        return "unsent" if any(evidence.lost(attempt) for attempt in attempts) else None
    last = so_far[-1]
    if last.answered is None:
        return "unanswered"
    end = evidence.killed.get(last.worker)
    if end is not None and last.at <= end <= last.answered + telling:
        return "worker"
    return "temporal" if evidence.away(last.at, last.answered + telling) else None


def _contradiction(outcome: Outcome, so_far: Sequence[Seen], evidence: Evidence) -> str | None:
    """What a failure that is not in doubt says and the server denies."""
    repeatable = outcome.call.tool in REPEATABLE
    if outcome.code == FAULT:
        return "failed by a fault of the pack"
    refused = [request.did in REFUSALS for request in so_far]
    if outcome.delivery == "unknown" and not repeatable and not all(refused):
        return "may have happened, and is not said to be in doubt"
    if outcome.delivery in {"not_sent", "not_processed"}:
        # Of what needs no claim a process may have been lost that had sent something, without a word of it.
        unheard = repeatable and any(map(evidence.lost, evidence.attempts.get(outcome.call.effect, ())))
        if not unheard and any(request.executed is not None for request in so_far):
            return "happened, and is said not to have"
        if outcome.delivery == "not_processed" and not any(refused):
            return "was not refused"
    if outcome.delivery == "answered" and not any(request.did == "errs" for request in so_far):
        return "was not answered with an error"
    return None


def _told(outcome: Outcome, asked: Sequence[Seen], evidence: Evidence) -> str:
    failure = f"{outcome.code} {outcome.delivery} {outcome.message!r} " if outcome.kind == "failed" else ""
    workers = {request.worker for request in asked}
    ends = [f"{name} ended at {at:.3f}" for name, at in evidence.killed.items() if name in workers]
    away = [f"Temporal was away from {down:.3f} to {up:.3f}" for down, up in evidence.outages]
    return f"{failure}at {outcome.at:.3f}; {'; '.join([*ends, *away])}; the server: {_story(asked)}"


def _story(asked: Sequence[Seen]) -> str:
    return "; ".join(
        f"{request.did} {request.worker} at {request.at:.3f}"
        f"{'' if request.executed is None else f', done at {request.executed:.3f}'}"
        f"{'' if request.answered is None else f', answered at {request.answered:.3f}'}"
        for request in asked
    )
