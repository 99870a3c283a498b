"""The judge of the cluster sees what must not be, and lets pass what may: else a cluster that holds says nothing."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.judge import IN_DOUBT
from tests.cluster.counting_server import Seen
from tests.cluster.judge import Told, Verdict, judge
from tests.cluster.plan import KEYED, TOOLS, WRITES, plan

RUN, *_ = plan(1)
RUN_ID = "acme/run-0"

RESULT = '{ "n":1.10}'


def asked(tool: str, **facts: Any) -> Seen:
    sound = {"worker": "w1", "key": f"key of {tool}", "acted": True, "result": RESULT}
    return Seen(**{"effect": RUN.effects[tool], "tool": tool, **sound, **facts})


SEEN = [asked(tool) for tool in TOOLS]


def completed(tool: str, result: str = RESULT) -> str:
    return f'{{"type":"node.completed","nodeId":"{tool}","payload":{{"outputs":{{"result":{result}}}}},"sequence":%d}}'


EVENTS = [
    '{"type":"run.started","sequence":%d}',
    *(completed(tool) for tool in TOOLS),
    '{"type":"run.completed","sequence":%d}',
]


def numbered(events: list[str]) -> list[bytes]:
    return [event.replace("%d", str(number)).encode() for number, event in enumerate(events)]


def page(events: list[bytes]) -> bytes:
    return b'{"events":[%b],"isTerminal":true}' % b",".join(events)


def row(tool: str, **facts: Any) -> dict[str, Any]:
    return {"nodeId": tool, "state": "completed", "providerKey": f"key of {tool}", **facts}


ROWS = [row(tool) for tool in TOOLS]


def ledger(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps({"effects": rows}).encode()


def told(events: list[str] | None = None, rows: list[dict[str, Any]] | None = None, **facts: Any) -> Told:
    mine = numbered(EVENTS if events is None else events)
    ledgers = [ledger(ROWS if rows is None else rows)] * 2
    sound = {"ids": [RUN_ID] * 2, "followed": mine, "logs": [page(mine)] * 2, "ledgers": ledgers}
    return Told(RUN, **{**sound, **facts})


def of(one: Told, seen: list[Seen] | None = None, listed: list[str] | None = None) -> Verdict:
    return judge([one], [RUN_ID] if listed is None else listed, SEEN if seen is None else seen)


def test_what_may_be_is_no_violation():
    verdict = of(told())
    assert verdict.violations == []
    assert verdict.ends == Counter(["run.completed"])
    assert verdict.acted == verdict.planned == Counter(TOOLS)


def test_a_request_that_the_server_knew_by_its_key_is_counted_and_is_no_effect():
    again = asked("post", worker="w2", acted=False)
    verdict = of(told(rows=[row("post", state="escaped"), *ROWS]), [*SEEN, again])
    assert (verdict.violations, verdict.repeats, verdict.acted["post"]) == ([], 1, 1)


def test_a_read_may_happen_twice():
    again = asked("look", worker="w2", result="{}")
    assert of(told(rows=[row("look", state="escaped"), *ROWS]), [*SEEN, again]).violations == []


def without(tool: str) -> list[Seen]:
    return [one for one in SEEN if one.tool != tool]


FAILED = json.dumps(
    {"type": "node.failed", "nodeId": "post", "payload": {"error": {"message": IN_DOUBT}}, "sequence": 1}
)

WRONG: dict[str, tuple[Told, list[Seen], list[str]]] = {
    "was not created": (told(ids=[]), SEEN, []),
    "was created as ['acme/run-0', 'acme/run-1']": (told(ids=[RUN_ID, "acme/run-1"]), SEEN, [RUN_ID, "acme/run-1"]),
    "did not end in time: []": (told(followed=[]), SEEN, [RUN_ID]),
    "did not end in time: ['run.started'": (told(EVENTS[:-1]), SEEN, [RUN_ID]),
    "failed: ['run.started', 'run.failed']": (
        told([EVENTS[0], '{"type":"run.failed","sequence":%d}']),
        SEEN,
        [RUN_ID],
    ),
    "has 2 logs": (told(logs=[page(numbered(EVENTS)), page(numbered(EVENTS)) + b" "]), SEEN, [RUN_ID]),
    "was told with gaps: [0, 1, 2, 3, 5]": (
        told([*EVENTS[:-1], EVENTS[-1].replace("%d", "5")]),
        SEEN,
        [RUN_ID],
    ),
    "was told otherwise": (
        told(followed=[*numbered(EVENTS)[:3], b'{"type":"other","sequence":3}', *numbered(EVENTS)[-1:]]),
        SEEN,
        [RUN_ID],
    ),
    "has 2 ends of post": (told([*EVENTS[:2], completed("post"), *EVENTS[2:]]), SEEN, [RUN_ID]),
    "has 0 ends of look": (told([*EVENTS[:3], EVENTS[-1]]), SEEN, [RUN_ID]),
    "has a result of post that was not sent": (
        told([EVENTS[0], completed("post", '{"n":1.1}'), *EVENTS[2:]]),
        SEEN,
        [RUN_ID],
    ),
    "has 1 ends of post, [None]": (told([EVENTS[0], FAILED, *EVENTS[2:]]), SEEN, [RUN_ID]),
    "has 2 ledgers": (told(ledgers=[ledger(ROWS), ledger(ROWS[::-1])]), SEEN, [RUN_ID]),
    "has no completed look in its ledger": (told(rows=ROWS[:2]), SEEN, [RUN_ID]),
    "has no completed post in its ledger": (told(rows=[row("post", state="escaped"), *ROWS[1:]]), SEEN, [RUN_ID]),
    "has other keys of order in its ledger": (
        told(rows=[ROWS[0], row("order", providerKey="other"), ROWS[2]]),
        SEEN,
        [RUN_ID],
    ),
    "has 1 attempts at post in its ledger, and the server 2 requests": (
        told(),
        [*SEEN, asked("post", acted=False)],
        [RUN_ID],
    ),
    "has ['stranger'] in its ledger": (told(rows=[*ROWS, row("stranger")]), SEEN, [RUN_ID]),
    "post-0 happened 2 times": (told(), [*SEEN, asked("post")], [RUN_ID]),
    "order-0 happened 0 times": (told(), without("order"), [RUN_ID]),
    "look-0 happened 0 times": (told(), without("look"), [RUN_ID]),
    "post-0 was sent with the keys": (told(), [*SEEN, asked("post", key="another", acted=False)], [RUN_ID]),
    "look-0 was sent with the keys {None}": (told(), [*without("look"), asked("look", key=None)], [RUN_ID]),
    "order-0 and post-0 have the key": (told(), [*without("order"), asked("order", key="key of post")], [RUN_ID]),
    "stranger was never asked for": (told(), [*SEEN, asked("post", effect="stranger", key="s")], [RUN_ID]),
    "acme/run-0 is listed 2 times": (told(), SEEN, [RUN_ID, RUN_ID]),
    "acme/run-9 was created, and nobody was told": (told(), SEEN, [RUN_ID, "acme/run-9"]),
    "acme/run-0 is not listed": (told(), SEEN, []),
}


@pytest.mark.parametrize("words", WRONG)
def test_what_must_not_be_is_a_violation(words):
    one, seen, listed = WRONG[words]
    violations = of(one, seen, listed).violations
    assert any(words in violation for violation in violations), violations


def test_two_runs_that_were_told_to_be_one_are_a_violation():
    other = replace(told(), planned=replace(RUN, number=1))
    assert f"{RUN_ID} was told to be 2 runs" in judge([told(), other], [RUN_ID], SEEN).violations


def test_calls_in_doubt_are_counted():
    assert of(told([EVENTS[0], FAILED, *EVENTS[2:]])).doubts == 1


def test_an_effect_of_two_runs_is_one():
    first, second = plan(10)[8:]
    assert first.effects[KEYED] == second.effects[KEYED]
    assert first.flow != second.flow
    assert all(first.effects[tool] != second.effects[tool] for tool in WRITES - {KEYED})
