"""A question becomes a form, and what is typed becomes exactly what its schema asks for, or is asked for again."""

from __future__ import annotations

import json
import time

import pytest

from openwop_mcp.effects import doubt
from openwop_mcp.questions.approvals import call_question
from openwop_mcp.questions.custom import check_own, own_question
from openwop_mcp.questions.elicitation import check_input, input_question
from openwop_mcp.questions.form import (
    EMPTY,
    NONE,
    Field,
    Filled,
    NoFormError,
    NotWantedError,
    fields_of,
    form_of,
    read_typed,
)
from openwop_mcp.runs.masking import MASK

TYPED = "hunter2 and nothing else"
"""What must stand in no message."""


def field(schema: dict, *, required: bool = True) -> Field:
    text = json.dumps({"properties": {"it": schema}, "required": ["it"] if required else []})
    [found] = fields_of(text.encode())
    return found


def result(**requests: dict) -> bytes:
    asked = {key: {"method": "elicitation/create", "params": params} for key, params in requests.items()}
    return json.dumps({"resultType": "input_required", "inputRequests": asked}).encode()


def form(**properties: dict) -> dict:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"mode": "form", "message": "say it", "requestedSchema": schema}


URL = {"mode": "url", "message": "pay here", "url": "https://xn--pple-43d.example/pay?a=1"}

TITLED = [{"const": "r", "title": "Red"}, {"const": "g", "title": "Green"}]


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, ' a "word" \u00e9', ' a "word" \u00e9'),
        ({"type": "string"}, EMPTY, ""),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "abc", "abc"),
        ({"type": "string", "format": "email"}, "a.b@example.org", "a.b@example.org"),
        ({"type": "string", "format": "uri"}, "https://example.org/a?b#c", "https://example.org/a?b#c"),
        ({"type": "string", "format": "date"}, "2028-02-29", "2028-02-29"),
        ({"type": "string", "format": "date-time"}, "2026-12-31T18:30:00.5+01:00", "2026-12-31T18:30:00.5+01:00"),
        ({"type": "string", "format": "of-another-kind"}, "anything", "anything"),
        ({"type": "integer", "minimum": 1, "maximum": 8}, " 8 ", 8),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "n", False),
        ({"type": "string", "enum": ["red", "green"]}, "2", "green"),
        ({"type": "string", "enum": ["red", "green"]}, "green", "green"),
        ({"type": "string", "enum": ["3", "2", "1"]}, "1", "1"),
        ({"type": "string", "enum": ["r", "g"], "enumNames": ["Red", "Green"]}, "1", "r"),
        ({"type": "string", "oneOf": TITLED}, "2", "g"),
        ({"type": "array", "items": {"enum": ["a", "b", "c"]}}, "3, 1,3", ["c", "a"]),
        ({"type": "array", "items": {"anyOf": TITLED}, "maxItems": 1}, "g", ["g"]),
        ({"type": "array", "items": {"anyOf": TITLED}}, EMPTY, []),
        ({"type": "array", "items": {"enum": ["1", "a,b"]}}, '["a,b"]', ["a,b"]),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        (True, "null", None),
    ],
)
def test_what_is_typed_becomes_a_value_of_the_schema(schema, typed, value):
    assert json.loads(read_typed(field(schema), typed) or b"") == value


@pytest.mark.parametrize("typed", ["1.10", "-0", "1E400", "12345678901234567890.0"])
def test_a_number_goes_on_as_it_was_spelled(typed):
    assert read_typed(field({"type": "number"}), typed) == typed.encode()


@pytest.mark.parametrize(
    ("schema", "typed", "wanted"),
    [
        ({"type": "string", "maxLength": 3}, TYPED, "a text of at most 3 characters"),
        ({"type": "string", "minLength": 99}, TYPED, "a text of 99 or more characters"),
        ({"type": "string", "pattern": "^[0-9]+$"}, TYPED, "breaks pattern"),
        ({"type": "string", "format": "email"}, TYPED, "an email address"),
        ({"type": "string", "format": "email"}, "a@b@example.org", "an email address"),
        ({"type": "string", "format": "uri"}, TYPED, "an address"),
        ({"type": "string", "format": "uri"}, "https://[::1", "an address"),
        ({"type": "string", "format": "date"}, "2027-02-29", "a date, as in"),
        ({"type": "string", "format": "date"}, "20270228", "a date, as in"),
        ({"type": "string", "format": "date-time"}, "2026-12-31T18:30:00", "a time with its offset"),
        ({"type": "string"}, "up\x1b[A", "control characters"),
        ({"type": "string"}, "\udcff", "control characters"),
        ({"type": "number"}, TYPED, "a number"),
        ({"type": "number"}, "NaN", "a number"),
        ({"type": "number", "minimum": 0}, "-1", "a number, 0 or more"),
        ({"type": "integer"}, "1.0", "a whole number"),
        ({"type": "integer"}, EMPTY, "a whole number"),
        ({"type": "integer", "minimum": 1, "maximum": 8}, "9", "a whole number, 1 to 8"),
        ({"type": "integer", "multipleOf": 5}, "7", "breaks multipleOf: 5"),
        ({"type": "boolean"}, TYPED, "yes or no"),
        ({"type": "string", "enum": ["red"]}, TYPED, "one of these"),
        ({"type": "string", "enum": ["red"]}, "0", "one of these"),
        ({"type": "string", "enum": ["red"]}, "2", "one of these"),
        ({"type": "string", "enum": ["3", "2"]}, "1", "one of these"),
        ({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 2}, "a", "2 or more of these"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "a,z", "any of these"),
        ({"type": "object"}, TYPED, "JSON"),
        ({"type": "object"}, "[1]", "breaks type"),
    ],
)
def test_what_does_not_fit_is_asked_for_again_and_not_repeated(schema, typed, wanted):
    with pytest.raises(NotWantedError) as caught:
        read_typed(field(schema), typed)
    assert wanted in str(caught.value)
    assert TYPED not in str(caught.value)


def test_an_empty_line_takes_the_default_and_is_refused_where_a_value_has_to_be_there():
    told = {"type": "number", "default": 1.50}
    assert read_typed(field(told), "") == b"1.5"
    assert read_typed(field(told, required=False), NONE) is None
    assert read_typed(field({"type": "string"}, required=False), "") is None
    for typed in ("", NONE):
        with pytest.raises(NotWantedError, match="has to be answered"):
            read_typed(field({"type": "string"}), typed)


def test_a_default_that_breaks_its_own_schema_is_none():
    assert field({"type": "integer", "maximum": 3, "default": 9}).default is None


def test_a_form_whose_defaults_take_long_to_check_is_shown_without_them():
    doubling = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}
    slow = {"type": "string", "default": "x", "$ref": "#/$defs/d0", "$defs": {**doubling, "d30": False}}
    properties = {f"it{n}": {**slow, "title": f"{n}"} for n in range(20)}
    began = time.thread_time()
    fields = fields_of(json.dumps({"properties": properties}).encode())
    assert time.thread_time() - began < 2
    assert {one.default for one in fields} == {None}


def test_a_schema_of_any_shape_gives_fields():
    odd = b'{"properties":{"a":7,"b":{"type":["string","null"],"title":3},"c":{"enum":[1,2]}},"required":"a"}'
    assert [(one.name, one.kind, one.required) for one in fields_of(odd)] == [
        ("a", "json", False),
        ("b", "json", False),
        ("c", "json", False),
    ]
    assert fields_of(b'{"properties":[]}') == ()


def test_a_servers_questions_are_answered_accepted_declined_and_cancelled():
    asked = result(who=form(name={"type": "string"}), pay=URL, sure=form(), more=form(a={"type": "string"}))
    question = input_question(asked, server_id="bank", tool="transfer", key="input:a:1")
    found = form_of(question.payload)
    assert [prompt.key for prompt in found.prompts] == ["who", "pay", "sure", "more"]
    who, pay, *_ = found.prompts
    assert list(who.actions) == ["accept", "decline", "cancel"]
    assert [one.name for one in who.actions["accept"]] == ["name"]
    assert who.actions["decline"] == pay.actions["accept"] == ()
    assert URL["url"] in pay.text
    assert "punycode" in pay.text
    answer = found.answer([Filled("accept", (("name", b'"x"'),)), Filled("accept"), Filled("accept"), Filled("cancel")])
    assert answer == (
        b'{"who":{"action":"accept","content":{"name":"x"}},"pay":{"action":"accept"},'
        b'"sure":{"action":"accept","content":{}},"more":{"action":"cancel"}}'
    )
    assert found.fault(answer) is None
    check_input(answer, asked)


def test_an_answer_that_the_whole_schema_refuses_has_a_fault():
    asked = form(a={"type": "string"}, b={"type": "string"})
    asked["requestedSchema"]["not"] = {"required": ["b"]}
    found = form_of(input_question(result(q=asked), server_id="s", tool=None, key="k").payload)
    fault = found.fault(found.answer([Filled("accept", (("a", b'"x"'), ("b", b'"y"')))]))
    assert fault is not None
    assert fault.startswith("q.content ")


def test_the_questions_of_an_author_are_answered_and_cannot_be_declined():
    data = {
        "questions": [{"id": "why", "question": "Why?"}, {"id": "n", "question": "#", "schema": {"type": "integer"}}]
    }
    payload = own_question("clarification", json.dumps(data).encode(), key="k", resume_schema=None).payload
    found = form_of(payload)
    assert [list(prompt.actions) for prompt in found.prompts] == [["answer"], ["answer"]]
    answer = found.answer([Filled("answer", (("", b'"so"'),)), Filled("answer", (("", b"7"),))])
    assert answer == b'{"answers":{"why":"so","n":7}}'
    check_own(payload, answer)


def test_an_approval_is_answered_with_what_its_action_takes():
    facts = b'{"serverId":"bank","name":"transfer","safetyTier":"write","effectId":"acme/x"}'
    found = form_of(call_question(facts, b'{"amount":1.10}', key="k").payload)
    [prompt] = found.prompts
    assert list(prompt.actions) == ["accept", "reject"]
    assert 'arguments: {"amount":1.10}' in prompt.text
    assert found.answer([Filled("reject")]) == b'{"action":"reject"}'


def test_a_doubt_is_answered_with_a_result():
    found = form_of(doubt.question(b'{"serverId":"bank","name":"transfer"}', "it may have happened").payload)
    [prompt] = found.prompts
    [result_field] = prompt.actions["edit-accept"]
    given = read_typed(result_field, '{"content": [],\n "n": 1.0}')
    answer = found.answer([Filled("edit-accept", (("editedArtifactData", given or b""),))])
    assert answer == b'{"action":"edit-accept","editedArtifactData":{"content": [],\n "n": 1.0}}'
    assert found.fault(b'{"action":"edit-accept"}') is not None


def test_a_wish_for_changes_has_a_scope():
    data = {"artifactId": "a", "artifactType": "t", "title": "T", "actions": ["refine"]}
    payload = own_question("approval", json.dumps(data).encode(), key="k", resume_schema=None).payload
    answer = form_of(payload).answer([Filled("refine", (("text", b'"shorter"'),))])
    assert answer == b'{"action":"refine","refineFeedback":{"scope":"whole","text":"shorter"}}'
    check_own(payload, answer)
    assert form_of(payload).answer([Filled("refine")]) == b'{"action":"refine"}'


def test_an_event_is_answered_with_its_correlation_unless_more_is_given():
    payload = own_question(
        "external-event", b'{"eventType":"paid","correlation":{"order":7}}', key="k", resume_schema=None
    ).payload
    [prompt] = form_of(payload).prompts
    [whole] = prompt.actions["answer"]
    assert read_typed(whole, "") == b'{"order":7}'
    assert form_of(payload).answer([Filled("answer", (("", b'{"order":7,"at":1}'),))]) == b'{"order":7,"at":1}'


@pytest.mark.parametrize(
    ("schema", "values", "answer"),
    [
        (b'{"type":"object","properties":{"n":{"type":"integer"}}}', (("n", b"1"),), b'{"n":1}'),
        (b'{"type":"object","properties":{"n":{"type":"integer"}}}', (), b"{}"),
        (b'{"type":"string"}', (("", b'"x"'),), b'"x"'),
    ],
)
def test_a_question_of_ones_own_is_answered_by_its_schema(schema, values, answer):
    payload = own_question("custom", b'{"customKind":"k","payload":[1]}', key="k", resume_schema=schema).payload
    found = form_of(payload)
    assert "[1]" in found.prompts[0].text
    assert found.answer([Filled("answer", values)]) == answer


@pytest.mark.parametrize(
    "payload",
    [
        b'{"kind":"clarification","data":{"questions":"[REDACTED]"}}',
        b'{"kind":"clarification","data":{"questions":[{"id":"q","question":%s}]},"resumeSchema":{"type":"object"}}'
        % MASK,
        b'{"kind":"approval","data":"[REDACTED]"}',
        b'{"kind":"credential","data":{}}',
    ],
)
def test_what_is_masked_or_unknown_cannot_be_asked(payload):
    with pytest.raises(NoFormError):
        form_of(payload)
