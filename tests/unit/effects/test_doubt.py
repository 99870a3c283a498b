"""The question about an effect in doubt, and the three answers to it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from openwop_mcp.effects.doubt import Answer, question, read_answer, read_verdict
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.questions.question import interrupt_id

DETAILS = b'{"effectId":"acme/opaque","serverId":"bank","name":"pay", "attempt":2,"n":1.10}'
EDITED = b'{ "content":[], "n":1.10, "big":123456789012345678901234 }'


def asked(details: bytes = DETAILS) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads(question(details, "the connection was lost").payload)
    return payload


def test_the_question_is_an_approval_that_says_what_is_in_doubt() -> None:
    payload = asked()
    assert payload["kind"] == "approval"
    assert payload["key"] == question(DETAILS, "").key == "in-doubt:opaque:2"
    assert payload["data"]["artifactId"] == "acme/opaque"
    assert payload["data"]["title"] == "in doubt: bank pay"
    assert payload["data"]["actions"] == ["accept", "edit-accept", "reject"]
    assert "the connection was lost." in payload["data"]["description"]


def test_the_question_holds_the_facts_of_the_attempt_byte_for_byte() -> None:
    assert b'"artifactData":' + DETAILS in question(DETAILS, "").payload


def test_the_question_shows_the_key_and_arguments_that_can_be_read() -> None:
    shown = question(DETAILS, "", key="order-7", arguments=b'{"amount":1.10}').payload
    assert b'"idempotencyKey":"order-7","arguments":{"amount":1.10}}' in shown
    assert b"arguments" not in question(DETAILS, "", arguments=b'{"x":"%s"}' % (b"y" * 9_000)).payload


def test_a_long_name_is_cut_in_the_title() -> None:
    assert len(asked(b'{"serverId":"bank","name":"%s"}' % (b"x" * 1_000))["data"]["title"]) == 200


def test_an_effect_of_which_little_is_known_can_be_asked_about() -> None:
    payload = asked(b"{}")
    assert payload["key"] == "in-doubt:unknown:1"
    assert payload["data"]["title"] == "in doubt: a call"


def test_each_doubt_of_an_effect_is_a_question_of_its_own() -> None:
    facts: dict[str, Any] = json.loads(DETAILS)
    of = [{**facts, "attempt": attempt, "round": number} for attempt in (1, 2) for number in (0, 1, 2, 12)]
    keys = {question(json.dumps(one).encode(), "").key for one in of}
    assert len(keys) == len(of)


@pytest.mark.parametrize(
    ("value", "admitted"),
    [
        ({"action": "accept"}, True),
        ({"action": "reject"}, True),
        ({"action": "edit-accept", "editedArtifactData": {"content": []}}, True),
        ({"action": "edit-accept"}, False),
        ({"action": "edit-accept", "editedArtifactData": []}, False),
        ({"action": "maybe"}, False),
        ({}, False),
    ],
)
def test_the_schema_of_the_question_admits_what_is_taken_as_an_answer(value: dict[str, Any], admitted: bool) -> None:
    validator = jsonschema.Draft202012Validator(asked()["resumeSchema"])
    assert validator.is_valid(value) is admitted
    try:
        read_answer(json.dumps(value).encode(), 0)
    except InvalidRequestError:
        assert not admitted
    else:
        assert admitted


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b'{"action":"accept"}', Answer("resend", None, 3)),
        (b'{"action":"reject", "comment":"no"}', Answer("fail", None, 3)),
        (b'{"action":"edit-accept","editedArtifactData":' + EDITED + b"}", Answer("done", EDITED, 3)),
        (b'{"action":"accept","editedArtifactData":{}}', Answer("resend", None, 3)),
    ],
)
def test_each_action_has_its_verdict_and_a_result_keeps_its_bytes(value: bytes, expected: Answer) -> None:
    assert read_answer(value, 3) == expected
    assert read_verdict(expected.encode()) == expected


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (b'"accept"', "action"),
        (b"[]", "action"),
        (b"null", "action"),
        (b"{", "action"),
        (b"", "action"),
        (b'{"action":["accept"]}', "action"),
        (b'{"action":{}}', "action"),
        (b'{"action":null}', "action"),
        (b'{"action":"ACCEPT"}', "action"),
        (b'{"action":"edit-accept"}', "editedArtifactData"),
        (b'{"action":"edit-accept","editedArtifactData":null}', "editedArtifactData"),
        (b'{"action":"edit-accept","editedArtifactData":"{}"}', "editedArtifactData"),
        (b'{"action":"edit-accept","editedArtifactData":{}}', "editedArtifactData"),
        (b'{"action":"edit-accept","editedArtifactData":{"content":"done"}}', "editedArtifactData"),
    ],
)
def test_what_is_no_answer_is_refused_and_not_echoed(value: bytes, path: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read_answer(value, 0)
    assert caught.value.facts["path"] == path
    assert "ACCEPT" not in caught.value.message


@pytest.mark.parametrize(
    "value",
    [
        b'{"action":"accept","action":"reject"}',
        b'{"action":"accept","action":"accept"}',
        b'{"action":"accept","\\u0061ction":"reject"}',
        b'{"action":"edit-accept","editedArtifactData":{"content":[1]},"editedArtifactData":{"content":[]}}',
        b'{"action":"accept","comment":1,"comment":2}',
    ],
)
def test_an_answer_in_which_a_member_stands_twice_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="once"):
        read_answer(value, 0)


def test_the_result_in_an_answer_is_taken_with_members_that_stand_twice_as_a_server_may_send_them() -> None:
    result = b'{"content":[],"x":1,"x":2}'
    assert read_answer(b'{"action":"edit-accept","editedArtifactData":' + result + b"}", 0).result == result


def test_a_result_may_be_as_large_as_there_is_room_for() -> None:
    value = b'{"action":"edit-accept","editedArtifactData":' + EDITED + b"}"
    assert read_answer(value, 0, len(EDITED)).result == EDITED
    with pytest.raises(InvalidRequestError) as caught:
        read_answer(value, 0, len(EDITED) - 1)
    assert caught.value.facts["path"] == "editedArtifactData"
    assert str(len(EDITED)) in caught.value.message
    assert read_answer(b'{"action":"accept"}', 0, 0).result is None


def test_an_interrupt_id_is_bound_to_its_tenant_and_tells_runs_and_questions_apart() -> None:
    ids = {interrupt_id("acme", run, key) for run in ("acme/1", "acme/2") for key in ("k", "l")}
    assert len(ids) == 4
    for identity in ids:
        tenant, opaque = identity.split("/")
        assert tenant == "acme"
        assert len(opaque) == 43
    assert interrupt_id("acme", "acme/1", "k") == interrupt_id("acme", "acme/1", "k")
