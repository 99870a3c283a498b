"""Approvals of calls, and what becomes of questions that nobody answers."""

from __future__ import annotations

import json

import pytest

from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.questions.approvals import approved, call_question, read_call_answer
from openwop_mcp.questions.expiry import expired_code, expired_message
from tests.support.questions import APPROVAL_FACTS


def test_who_approves_a_call_sees_all_that_will_be_sent() -> None:
    arguments = b'{ "amount":1.10, "to":"' + b"x" * 20_000 + b'" }'
    made = call_question(APPROVAL_FACTS, arguments, key="approval:a:1", idempotency_key="order-7", timeout_ms=9)
    assert (made.kind, made.reason, made.timeout_ms) == ("approval", "approval-required", 9)
    assert b'"arguments":' + arguments in made.payload
    data = json.loads(made.payload)["data"]
    shown = data.pop("artifactData")
    del shown["arguments"]
    assert shown == {
        "serverId": "weather",
        "name": "get",
        "safetyTier": "write",
        "effectId": "acme/e1",
        "idempotencyKey": "order-7",
    }
    description = data.pop("description")
    assert "nothing sent" in description
    assert data == {
        "artifactId": "acme/e1",
        "artifactType": "openwop-mcp.call",
        "title": "approve: weather get",
        "actions": ["accept", "reject"],
    }


def test_a_call_without_arguments_is_shown_without() -> None:
    made = call_question(APPROVAL_FACTS, None, key="k")
    assert "arguments" not in json.loads(made.payload)["data"]["artifactData"]
    assert "timeoutMs" not in json.loads(made.payload)


@pytest.mark.parametrize("action", ["accept", "reject"])
def test_an_answer_is_read(action: str) -> None:
    assert read_call_answer(json.dumps({"action": action, "why": 1}).encode()) == action


@pytest.mark.parametrize("value", [b"{}", b"[]", b'{"action":"edit-accept"}', b'{"action":"accept","action":"accept"}'])
def test_what_is_no_answer_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidRequestError):
        read_call_answer(value)


def test_what_was_approved_is_the_tier_that_was_shown_and_the_definition_where_it_was_known() -> None:
    assert approved(APPROVAL_FACTS) == b'{"tier":"write"}'
    known = b'{"safetyTier":"read","fingerprint":"00ff"}'
    assert approved(known) == b'{"tier":"read","fingerprint":"00ff"}'


def test_an_approval_that_nobody_gave_is_a_rejection_and_all_else_expires() -> None:
    assert expired_code("approval") == "approval_rejected"
    assert expired_code("clarification") == expired_code("custom") == "interrupt_expired"
    assert expired_message(1500, called=False) == "nobody answered within 1.5 s"
    assert expired_message(60_000, called=True) == "nobody answered within 60 s, and the server was not called again"
