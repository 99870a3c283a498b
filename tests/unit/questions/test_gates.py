"""Gates: what they ask, which answers open them, and how they end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.questions.custom import check_own, own_question
from openwop_mcp.questions.decisions import decision
from openwop_mcp.questions.eligibility import may_answer
from openwop_mcp.questions.gates import (
    APPROVAL,
    CLARIFICATION,
    GATES,
    INTERRUPT,
    check_gate,
    gate_outcome,
    gate_question,
)
from openwop_mcp.questions.question import interrupt_id, question_key
from tests.support.questions import ANSWERS, GATE_CONFIGS

ALL = ["accept", "reject", "refine", "edit-accept", "ask"]


def text(value: Any) -> bytes:
    return json.dumps(value).encode()


def ask(type_id: str, config: Any, **inputs: bytes) -> dict[str, Any]:
    made = gate_question(type_id, text(config), inputs, key="gate:g:1", node_id="g")
    payload: dict[str, Any] = json.loads(made.payload)
    return payload


def refused(type_id: str, config: Any, answer: bytes) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        check_gate(type_id, text(config), answer)
    return str(caught.value.facts["path"])


def test_the_gates_are_the_node_types_that_run_as_such() -> None:
    assert {one.type_id for one in REGISTRY.values() if one.run == "gate"} == GATES


@pytest.mark.parametrize("type_id", sorted(GATES))
def test_every_answer_that_is_taken_holds_to_the_resume_schema_and_ends_the_gate(type_id: str) -> None:
    config = text(GATE_CONFIGS[type_id])
    made = gate_question(type_id, config, {}, key="k", node_id="g")
    schema = json.loads(made.payload).get("resumeSchema", {})
    Draft202012Validator.check_schema(schema)
    for answer in ANSWERS["gate", made.kind]:
        check_gate(type_id, config, answer)
        Draft202012Validator(schema).validate(json.loads(answer))
        outcome = gate_outcome(type_id, config, answer)
        assert (outcome.outputs is None) is (b'"reject"' in answer)
        assert set(outcome.outputs or ()) <= set(REGISTRY[type_id].output_names)


# --- approvals ---


def test_what_an_approval_does_not_say_is_taken_from_its_node() -> None:
    assert ask(APPROVAL, {"title": "t"})["data"] == {
        "artifactId": "g",
        "artifactType": "openwop-mcp.gate",
        "title": "t",
        "actions": ["accept", "reject"],
    }


def test_an_approval_shows_its_artifact_byte_for_byte_and_says_that_silence_rejects() -> None:
    made = gate_question(
        APPROVAL,
        b'{"title":"t","description":"d","artifactId":"i","artifactType":"y","onTimeout":"approve","timeoutMs":10.0,'
        b'"approversList":["a"],"profile":"p"}',
        {"artifactData": b'{ "n":1.10 }'},
        key="k",
        node_id="g",
    )
    assert b'"artifactData":{ "n":1.10 }' in made.payload
    payload = json.loads(made.payload)
    assert payload["timeoutMs"] == made.timeout_ms == 10
    assert payload["data"]["onTimeout"] == "reject"
    assert payload["data"]["approversList"] == ["a"]
    assert "profile" not in payload["data"]


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        (b"null", "resumeValue"),
        (b"{}", "action"),
        (b'{"action":"timeout"}', "action"),
        (b'{"action":7}', "action"),
        (b'{"action":["accept"]}', "action"),
        (b'{"action":"accept","action":"accept"}', "resumeValue"),
        (b'{"action":"edit-accept"}', "editedArtifactData"),
        (b'{"action":"refine","refineFeedback":{}}', "refineFeedback.scope"),
        (b'{"action":"refine","refineFeedback":{"scope":"all"}}', "refineFeedback.scope"),
        (b'{"action":"refine","refineFeedback":{"scope":"whole","x":1}}', "refineFeedback.x"),
        (b'{"action":"refine","refineFeedback":[]}', "refineFeedback"),
    ],
)
def test_what_is_no_answer_to_an_approval_is_refused(answer: bytes, path: str) -> None:
    assert refused(APPROVAL, {"title": "t", "actions": ALL}, answer) == path


def test_only_actions_that_are_offered_can_be_chosen() -> None:
    for action in ("refine", "edit-accept", "ask"):
        assert refused(APPROVAL, {"title": "t"}, text({"action": action, "editedArtifactData": 1})) == "action"


@pytest.mark.parametrize("type_id", [APPROVAL, INTERRUPT])
def test_a_person_who_asks_back_opens_no_gate(type_id: str) -> None:
    data = {"title": "t", "actions": ALL}
    own = {"kind": "approval", "data": {"artifactId": "a", "artifactType": "b", **data}}
    assert refused(type_id, data if type_id == APPROVAL else own, b'{"action":"ask"}') == "action"


@pytest.mark.parametrize("action", ["accept", "refine", "edit-accept"])
def test_all_but_a_rejection_completes_an_approval(action: str) -> None:
    answer = b'{"action":"%b", "editedArtifactData":{ "n":1.10 }, "refineFeedback":{"scope":"whole"}}' % action.encode()
    outcome = gate_outcome(APPROVAL, text({"title": "t", "actions": ALL}), answer)
    assert outcome.outputs == {
        "action": text(action),
        "resumeValue": answer,
        "editedArtifactData": b'{ "n":1.10 }',
    }


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b'{"action":"accept"}', {"decision": "granted", "action": "accept"}),
        (b'{"action":"reject"}', {"decision": "rejected", "action": "reject"}),
        (b'{"action":"ask"}', {"decision": "rejected"}),
        (
            b'{"action":"refine","refineFeedback":{"scope":"whole"}}',
            {"decision": "rejected", "action": "refine", "refineFeedback": {"scope": "whole"}},
        ),
        (
            b'{"action":"edit-accept","editedArtifactData":[1]}',
            {"decision": "granted", "action": "edit-accept", "editedArtifactData": [1]},
        ),
        (None, {"decision": "rejected", "action": "timeout"}),
    ],
)
def test_the_log_says_what_an_answer_decided(answer: bytes | None, told: dict[str, Any]) -> None:
    assert {name: json.loads(value) for name, value in decision("approval", answer)} == told


def test_the_log_says_nothing_of_a_decision_where_none_was_asked_for() -> None:
    assert decision("clarification", b'{"answers":{}}') == []
    assert decision("external-event", b"7") == []
    assert dict(decision("clarification", None)) == {"action": b'"timeout"'}


# --- clarifications ---


def test_answers_are_held_to_their_questions_one_by_one() -> None:
    config = {"questions": [{"id": "q", "question": "?"}, {"id": "n", "question": "?", "schema": {"type": "number"}}]}
    check_gate(CLARIFICATION, text(config), b'{"answers":{"n":1.5,"q":"x"}}')
    assert refused(CLARIFICATION, config, b"[]") == "resumeValue"
    assert refused(CLARIFICATION, config, b"{}") == "answers"
    assert refused(CLARIFICATION, config, b'{"answers":{"q":"x"}}') == "answers.n"
    assert refused(CLARIFICATION, config, b'{"answers":{"q":1,"n":1}}') == "answers.q"
    assert refused(CLARIFICATION, config, b'{"answers":{"q":"x","n":"x"}}') == "answers.n"
    assert refused(CLARIFICATION, config, b'{"answers":{"q":"x","n":1,"m":1}}') == "answers.m"


def test_a_schema_that_cannot_be_used_lets_no_answer_through() -> None:
    config = {"questions": [{"id": "q", "question": "?", "schema": {"type": "wrong"}}]}
    assert refused(CLARIFICATION, config, b'{"answers":{"q":"x"}}') == "answers.q"


# --- events and the rest ---


def test_only_the_event_that_is_waited_for_opens_the_gate() -> None:
    config = {
        "kind": "external-event",
        "data": {"eventType": "e", "correlation": {"id": {"a": 1, "b": [2.50]}, "s": "x"}},
    }
    check_gate(INTERRUPT, text(config), b'{"s":"\\u0078","id":{"b":[2.5],"a":1.0},"more":1}')
    assert refused(INTERRUPT, config, b'{"s":"x"}') == "id"
    assert refused(INTERRUPT, config, b'{"s":"y","id":{"b":[2.5],"a":1.0}}') == "s"
    assert refused(INTERRUPT, config, b'{"s":"x","id":{"b":[2.5],"a":true}}') == "id"
    assert refused(INTERRUPT, config, b'"x"') == "resumeValue"


def test_an_answer_of_any_kind_is_held_to_the_authors_schema() -> None:
    config = {"kind": "custom", "data": {"customKind": "c"}, "resumeSchema": {"type": "object", "required": ["x"]}}
    check_gate(INTERRUPT, text(config), b'{"x":1}')
    assert refused(INTERRUPT, config, b"{}") == "resumeValue"
    assert refused(INTERRUPT, {**config, "resumeSchema": {"type": "wrong"}}, b"{}") == "resumeValue"
    check_gate(INTERRUPT, text({"kind": "custom", "data": {"customKind": "c"}}), b"7")


def test_an_interrupt_of_kind_approval_fails_when_it_is_rejected() -> None:
    data = {"artifactId": "i", "artifactType": "t", "title": "t", "actions": ["accept", "reject"]}
    config = text({"kind": "approval", "data": data})
    assert gate_outcome(INTERRUPT, config, b'{"action":"reject"}').code == "approval_rejected"
    assert gate_outcome(INTERRUPT, config, b'{"action":"accept"}').outputs == {"resumeValue": b'{"action":"accept"}'}


def test_an_authors_own_question_is_checked_in_the_same_way() -> None:
    made = own_question("clarification", b'{"questions":[{"id":"q","question":"?"}]}', key="k", resume_schema=None)
    check_own(made.payload, b'{"answers":{"q":"x"}}')
    with pytest.raises(InvalidRequestError):
        check_own(made.payload, b'{"answers":{}}')


# --- who, and names ---


@pytest.mark.parametrize(
    ("listed", "subject", "may"),
    [
        (None, b'{"subjectId":"x"}', True),
        (["bob"], b'{"subjectId":"bob"}', True),
        (["bob"], b'{"subjectId":"Bob"}', False),
        (["bob"], b'{"name":"bob"}', False),
        (["bob"], b'"bob"', False),
        (["bob"], b'{"subjectId":["bob"]}', False),
    ],
)
def test_who_may_answer(listed: list[str] | None, subject: bytes, may: bool) -> None:
    data = {} if listed is None else {"approversList": listed}
    assert may_answer(text({"kind": "approval", "key": "k", "data": data}), subject) is may


def test_a_question_that_says_nothing_of_who_may_answer_is_for_everybody() -> None:
    assert may_answer(b'{"data":7}', b"{}")
    assert may_answer(b"{}", b"{}")


def test_keys_name_node_and_attempt_and_never_grow_too_long() -> None:
    assert question_key("input", "a", 3) == "input:a:3"
    long, other = (question_key("input", letter * 300, 3) for letter in "ab")
    assert len(long) <= 256
    assert long != other


def test_ids_are_bound_to_their_tenant() -> None:
    assert interrupt_id("acme", "acme/1", "k").startswith("acme/")
    assert interrupt_id("acme", "acme/1", "k") != interrupt_id("acme", "acme/2", "k")
