"""The judge of the effect chaos sees what must not be, and lets pass what may: else a chaos that holds says nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.chaos.counting_server import Seen
from tests.chaos.judge import IN_DOUBT, Attempt, Evidence, Outcome, Verdict, judge
from tests.chaos.plan import AFTER, PlannedCall, plan

CALL = PlannedCall("one", "write")
KEYED = PlannedCall("keyed-1", "write", "k")
READ = PlannedCall("one", "read")


def asked(call: PlannedCall = CALL, **facts: Any) -> Seen:
    sound = {"executed": 1.0, "answered": 1.2, "did": "answers", "worker": "w1", "at": 1.0, "result": "{}"}
    key = f"key of {call.effect}"
    return Seen(**{"effect": call.effect, "tool": call.tool, "header_key": key, "meta_key": key, **sound, **facts})


def ended(call: PlannedCall = CALL, kind: Any = "result", **facts: Any) -> Outcome:
    result = {"result": "{}"} if kind == "result" else {}
    return Outcome(**{"run": "run", "call": call, "kind": kind, "at": 9.0, **result, **facts})


def failed(delivery: str, call: PlannedCall = CALL, **facts: Any) -> Outcome:
    known = {"code": "upstream_unavailable", "delivery": delivery, "message": "it failed"}
    return ended(call, "failed", **{**known, **facts})


def doubtful(call: PlannedCall = CALL, **facts: Any) -> Outcome:
    return failed("unknown", call, message=f"lost; {IN_DOUBT}", in_doubt=True, **facts)


def of(outcomes: list[Outcome], seen: list[Seen], **evidence: Any) -> Verdict:
    return judge(outcomes, seen, Evidence(**evidence))


UNANSWERED: dict[str, Any] = {"answered": None}
ATTEMPT = Attempt("w1", 0.0, 5.0)

Case = tuple[list[Outcome], list[Seen]]

SOUND: dict[str, Case] = {
    "a result that was sent": ([ended()], [asked()]),
    "a read that happened twice": ([ended(READ)], [asked(READ, **UNANSWERED), asked(READ, at=2.0)]),
    "two callers with one key": ([ended(KEYED, run="a"), ended(KEYED, run="b")], [asked(KEYED)]),
    "a refusal": ([failed("not_processed")], [asked(did="throttles", executed=None, answered=None)]),
    "an error of the server": ([failed("answered")], [asked(did="errs", executed=None)]),
    "no connection": ([failed("not_sent")], []),
    "a later call that happens": (
        [failed("not_sent", KEYED, at=0.5), ended(KEYED, run="b")],
        [asked(KEYED)],
    ),
    "a read that may have happened before its last attempt": (
        [failed("unknown", READ)],
        [asked(READ, **UNANSWERED), asked(READ, did="throttles", executed=None, answered=None, at=2.0)],
    ),
    "a read that was given up": ([failed("unknown", READ)], [asked(READ, **UNANSWERED)]),
    "a worker that was lost before it sent": (
        [failed("unknown")],
        [asked(did="throttles", executed=None, answered=None)],
    ),
    "a call that was skipped": ([ended(kind="skipped")], []),
}


@pytest.mark.parametrize("case", SOUND)
def test_what_may_be_is_no_violation(case: str) -> None:
    outcomes, seen = SOUND[case]
    assert of(outcomes, seen).violations == []


TRUE: dict[str, tuple[list[Seen], dict[str, Any]]] = {
    "unanswered": ([asked(**UNANSWERED)], {}),
    "worker": ([asked()], {"killed": {"w1": 1.5}}),
    "temporal": ([asked()], {"outages": [(1.5, 3.0)]}),
    "unsent": ([], {"attempts": {"one": [ATTEMPT]}, "killed": {"w1": 2.0}}),
}


@pytest.mark.parametrize("cause", TRUE)
def test_a_doubt_with_a_cause_is_true(cause: str) -> None:
    seen, evidence = TRUE[cause]
    verdict = of([doubtful()], seen, **evidence)
    assert (verdict.violations, verdict.doubts, verdict.false_doubts) == ([], Counter([cause]), 0)


FALSE: dict[str, tuple[list[Seen], dict[str, Any]]] = {
    "the answer came and nobody was killed": ([asked()], {}),
    "another worker was killed": ([asked()], {"killed": {"w2": 1.5}}),
    "the worker was killed long after": ([asked()], {"killed": {"w1": 4.0}}),
    "Temporal was away before": ([asked()], {"outages": [(0.1, 0.9)]}),
    "nothing was sent and nobody was killed meanwhile": (
        [],
        {"attempts": {"one": [ATTEMPT]}, "killed": {"w1": 6.0, "w2": 2.0}},
    ),
    "nothing was sent, nor tried": ([], {"killed": {"w1": 2.0}}),
}


@pytest.mark.parametrize("case", FALSE)
def test_a_doubt_without_a_cause_is_false(case: str) -> None:
    seen, evidence = FALSE[case]
    verdict = of([doubtful()], seen, **evidence)
    assert verdict.false_doubts == 1
    assert len(verdict.violations) == 1


def test_the_slowest_call_that_was_told_says_how_long_telling_takes() -> None:
    slow = PlannedCall("slow", "write")
    told = {"slow": [Attempt("w3", 0.5, 4.5, told=True)]}
    outcomes, seen = [doubtful(), ended(slow)], [asked(), asked(slow, worker="w3")]
    verdict = of(outcomes, seen, killed={"w1": 4.0}, attempts=told)
    assert verdict.telling == pytest.approx(3.3)
    assert verdict.doubts == Counter(["worker"])
    away = of(outcomes, seen, killed={"w1": 4.0}, attempts=told, outages=[(4.3, 4.4)])
    assert (away.telling, away.false_doubts) == (0.0, 1)


WRONG: dict[str, Case] = {
    "happened 2 times": ([ended()], [asked(), asked(at=2.0)]),
    "is lost": ([ended(kind="lost")], []),
    "has a result that was not sent": ([ended(result="{ }")], [asked()]),
    "has a result that was not sent, ": ([ended()], [asked(executed=None)]),
    "has a result that was not sent, '{}'": ([ended()], [asked(answered=None)]),
    "has 2 results": (
        [ended(KEYED, run="a"), ended(KEYED, run="b", result="[]")],
        [asked(KEYED), asked(KEYED, result="[]", executed=None)],
    ),
    "happened, and is said not to have": ([failed("not_sent")], [asked(**UNANSWERED)]),
    "happened, and is said not to have:": ([failed("not_sent", READ)], [asked(READ, **UNANSWERED)]),
    "was not refused": ([failed("not_processed")], []),
    "was not answered with an error": ([failed("answered")], [asked()]),
    "is not said to be in doubt": ([failed("unknown")], [asked(**UNANSWERED)]),
    "could have been sent again": ([doubtful(READ)], [asked(READ, **UNANSWERED)]),
    "a fault of the pack": ([doubtful(code="internal_error")], [asked(**UNANSWERED)]),
    "is in doubt without cause": (
        [doubtful(KEYED, run="a"), ended(KEYED, run="b")],
        [asked(KEYED), asked(KEYED, did="resets", executed=None, answered=None, at=2.0)],
    ),
    "was skipped, and sent": ([ended(kind="skipped")], [asked()]),
    "was never asked for": ([], [asked()]),
    "with the provider keys": ([ended()], [asked(meta_key=None)]),
    "with the provider keys {": ([ended(READ)], [asked(READ), asked(READ, header_key="other", meta_key="other")]),
    "have the provider key": (
        [ended(), ended(KEYED)],
        [asked(), asked(KEYED, header_key="key of one", meta_key="key of one")],
    ),
}


def test_what_needs_no_claim_may_have_been_sent_by_a_worker_of_which_nothing_more_was_heard() -> None:
    outcomes, seen = [failed("not_sent", READ)], [asked(READ, **UNANSWERED)]
    assert of(outcomes, seen, killed={"w1": 2.0}, attempts={"one": [ATTEMPT]}).violations == []
    assert of(outcomes, seen, killed={"w1": 6.0}, attempts={"one": [ATTEMPT]}).violations != []


@pytest.mark.parametrize("words", WRONG)
def test_what_must_not_be_is_a_violation(words: str) -> None:
    outcomes, seen = WRONG[words]
    violations = of(outcomes, seen).violations
    assert any(words in violation for violation in violations), violations


def test_executions_are_counted_by_effect_and_by_what_policy_allows() -> None:
    other = PlannedCall("two", "read")
    verdict = of(
        [ended(), ended(other)],
        [asked(), asked(executed=1.1), asked(other), asked(other), asked(other, executed=None)],
    )
    assert (verdict.effects, verdict.executions, verdict.duplicates, verdict.repeats) == (2, 4, 1, 1)


def test_a_plan_has_all_calls_once_and_the_same_key_in_several_runs_only() -> None:
    runs = plan(500, "seed")
    assert runs == plan(500, "seed") != plan(500, "other")
    calls = [call for run in runs for call in run.calls]
    assert len(calls) == 500
    times = Counter(calls)
    assert all(count == 1 for call, count in times.items() if call.key is None)
    assert {2, 3} <= {count for call, count in times.items() if call.key is not None}
    assert all(len(set(run.calls)) == len(run.calls) for run in runs)
    assert any(run.at == AFTER for run in runs)
    assert {run.graph for run in runs} == {run.parallel for run in runs} == {True, False}
