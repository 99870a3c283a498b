"""Formats of texts: what a person writes is held to them wherever a form or an author asks for one."""

from __future__ import annotations

import json

import pytest

from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.questions.custom import check_own, own_question
from openwop_mcp.questions.elicitation import check_input
from openwop_mcp.questions.formats import format_fault

DAY = {"type": "string", "format": "date"}


@pytest.mark.parametrize(
    ("name", "sound", "unsound"),
    [
        ("email", "a@b.example", "a at b"),
        ("uri", "https://example.org/a", "hunter2"),
        ("date", "2026-12-31", "2026-02-30"),
        ("date-time", "2026-12-31T18:30:00Z", "2026-11-30"),
        ("of-nobody", "anything", None),
    ],
)
def test_a_text_is_of_its_format_or_it_is_told_what_would_be(name, sound, unsound):
    schema = json.dumps({"type": "string", "format": name}).encode()
    assert format_fault(schema, json.dumps(sound).encode()) is None
    if unsound is not None:
        place, wanted = format_fault(schema, json.dumps(unsound).encode())
        assert place == ""
        assert wanted.startswith("a")
        assert unsound not in wanted


@pytest.mark.parametrize("schema", [True, {}, {"format": 7}, {"properties": []}, {"properties": {"day": 1}}])
def test_a_schema_without_formats_that_can_be_read_has_nothing_against_any_value(schema):
    for value in ("soon", 1, {"day": "soon"}, None):
        assert format_fault(json.dumps(schema).encode(), json.dumps(value).encode()) is None


def test_a_servers_form_is_held_to_its_formats():
    asks = {"mode": "form", "message": "When?", "requestedSchema": {"type": "object", "properties": {"day": DAY}}}
    result = json.dumps(
        {"resultType": "input_required", "inputRequests": {"q": {"method": "elicitation/create", "params": asks}}}
    ).encode()
    given = {"q": {"action": "accept", "content": {"day": "2026-12-31"}}}
    check_input(json.dumps(given).encode(), result)
    given["q"]["content"]["day"] = "hunter2"
    with pytest.raises(InvalidRequestError) as refused:
        check_input(json.dumps(given).encode(), result)
    assert "q.content.day: write a date" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_an_authors_question_is_held_to_its_formats():
    data = json.dumps({"questions": [{"id": "when", "question": "When?", "schema": DAY}]}).encode()
    asked = own_question("clarification", data, key="k", resume_schema=None)
    check_own(asked.payload, b'{"answers":{"when":"2026-12-31"}}')
    with pytest.raises(InvalidRequestError) as refused:
        check_own(asked.payload, b'{"answers":{"when":"soon"}}')
    assert "answers.when: write a date" in str(refused.value)
