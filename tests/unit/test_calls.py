"""A call on its way between workflow and activity: what is new in it leaves requests of before as they were."""

from __future__ import annotations

from dataclasses import replace

import pytest

from openwop_mcp.calls import EFFECT_ROUND, INTERIM, ROUND, CallRequest, Input, answering, interim, record
from openwop_mcp.effects.doubt import Answer

STATE = b'"e30=\\u0000 \xc3\xbc\\/"'
ASKED = b'{"resultType":"input_required","requestState":%b}' % STATE
CALL = CallRequest("callTool", "fake", name="write")


def test_a_request_that_cannot_suspend_is_spelled_as_before() -> None:
    assert CALL.encode() == b'{"method":"callTool","serverId":"fake","name":"write","attempt":1}'


@pytest.mark.parametrize(
    "request_",
    [
        replace(CALL, suspends=True),
        replace(CALL, queue="openwop-mcp-class-slow"),
        replace(CALL, suspends=True, input=Input(2, b'{"q":{"n":1.10}}', STATE, ("d",), 1)),
        replace(CALL, approved=b'{"tier":"write"}', answer=Answer("done", b'{"content":[]}', 2, 4), input=Input(1)),
    ],
)
def test_what_a_request_carries_arrives_byte_for_byte(request_: CallRequest) -> None:
    assert CallRequest.decode(request_.encode()) == request_


def test_each_further_attempt_carries_what_was_answered_and_approved_and_what_was_decided() -> None:
    approved = CALL.approved_as(b'{"tier":"write"}', "n")
    assert (approved.attempt, approved.node, approved.approved) == (2, "n", b'{"tier":"write"}')
    asked = replace(approved, answer=Answer("resend")).next_round(Input(1))
    assert (asked.attempt, asked.round, asked.answer, asked.approved) == (3, 1, None, b'{"tier":"write"}')
    retried = asked.next_attempt(answer=Answer("resend"))
    assert (retried.attempt, retried.round, retried.answer) == (4, 1, Answer("resend", since=4))
    # One that failed may have ended before it was carried out, until another is given.
    assert retried.next_attempt().answer == Answer("resend", since=4)
    assert retried.next_attempt(answer=Answer("fail")).answer == Answer("fail", since=5)
    # An approval that is asked for after a doubt must not lose what the doubt's answer was.
    assert retried.approved_as(b'{"tier":"read"}').answer == Answer("resend", since=4)


@pytest.mark.parametrize(("word", "told"), [("input", "input"), ("approval", "approval"), ("result", None)])
def test_only_records_that_are_marked_so_are_interim(word: str, told: str | None) -> None:
    assert interim(record(b"{}", {INTERIM: word}).metadata) == told
    assert interim(record(b"{}", {}).metadata) is None


def test_an_answer_counts_rounds_as_the_record_does_and_keeps_what_was_declined() -> None:
    first = answering(ASKED, record(ASKED, {ROUND: "1"}).metadata, b'{"q":{}}', ["a", "b"], before=None)
    assert first == Input(1, b'{"q":{}}', STATE, ("a", "b"))
    # After a reset the record is that of the round that was reached before it.
    metadata = record(b"{}", {ROUND: "4", EFFECT_ROUND: "2"}).metadata
    assert answering(b"{}", metadata, None, ["b", "c"], before=first) == Input(4, None, None, ("a", "b", "c"), 3)
