"""An interrupt in words: how old it is and how long it waits, what it asks, and nothing that acts on a terminal."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from openwop_mcp.questions.form import HIDDEN
from openwop_mcp.questions.gates import APPROVAL, gate_question
from openwop_mcp.questions.telling import ends_at, in_brief, in_full

ASKED = "2026-11-30T12:00:00.000Z"
THEN = datetime.fromisoformat(ASKED).timestamp()

HOSTILE = "a\x1b[2J\r\u202e\nb"


def payload(kind: str, timeout_ms: int | None = None, **data: object) -> bytes:
    timeout = {} if timeout_ms is None else {"timeoutMs": timeout_ms}
    return json.dumps({"kind": kind, "key": "k", "data": data, **timeout}).encode()


@pytest.mark.parametrize(
    ("seconds", "age"),
    [(-3, "0 s"), (0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "119 min"), (7200, "2 h"), (200_000, "2 days")],
)
def test_an_age_is_told_in_a_unit_that_fits(seconds, age):
    [line, *_] = in_brief(payload("custom", customKind="k"), ASKED, THEN + seconds)
    assert line == f"custom, asked {age} ago"


def test_what_ends_says_when_and_what_does_not_says_nothing():
    [line, *_] = in_brief(payload("custom", 7_200_000, customKind="k"), ASKED, THEN + 60)
    assert line == "custom, asked 60 s ago, expires in 119 min"
    assert ends_at(payload("custom", 1500), ASKED) == THEN + 1.5
    assert ends_at(payload("custom"), ASKED) is None
    assert ends_at(payload("custom", 1500), "") is None
    assert list(in_brief(payload("approval"), "", THEN)) == ["approval"]


def test_in_brief_it_tells_what_tells_one_question_from_another():
    data = {"title": "T", "actions": ["accept"], "artifactData": {"idempotencyKey": "order-7", "arguments": {"n": 1}}}
    assert list(in_brief(payload("approval", **data), "", THEN)) == [
        "approval",
        "  | T",
        "  | order-7",
        '  | {"n": 1}',
    ]
    questions = [{"id": "why", "question": "Why?\nHow?"}]
    assert list(in_brief(payload("clarification", questions=questions), "", THEN))[1:] == [
        "why:",
        "  | Why?",
        "  | How?",
    ]


def test_in_full_it_tells_who_may_answer_and_what_an_answer_holds_to():
    config = json.dumps({"title": "T", "approversList": ["alice"]}).encode()
    asked = gate_question(APPROVAL, config, {"artifactData": b'[1,"x"]'}, key="k", node_id="n")
    lines = list(in_full(asked.payload, "", THEN))
    assert 'approversList ["alice"]' in lines
    assert '  | [1,"x"]' in lines
    assert "  accept or reject" in lines
    assert lines[-1].startswith('an answer holds to {"type":"object"')


@pytest.mark.parametrize("data", [{"questions": "[REDACTED]"}, {"questions": [{"id": HOSTILE, "question": HOSTILE}]}])
def test_what_is_masked_or_hostile_is_told_in_lines_in_which_nothing_acts(data):
    for tell in (in_brief, in_full):
        lines = list(tell(payload("clarification", **data, contextType=HOSTILE), ASKED, THEN))
        assert len(lines) > 1
        assert all(line.isprintable() for line in lines)
    masked = b'{"kind":"approval","key":"k","data":"[REDACTED]"}'
    assert list(in_brief(masked, "", THEN)) == ["approval"]
    assert list(in_full(masked, "", THEN)) == ["approval", HIDDEN]
