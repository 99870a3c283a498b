"""A form is filled in line by line; what a server wrote cannot pass for the program, and nothing goes without a yes."""

from __future__ import annotations

import json

import pytest

from openwop_mcp.questions.elicitation import input_question
from openwop_mcp.questions.form import NotWantedError, form_of
from openwop_mcp.questions.interview import BACK, interview

HOSTILE = "a\x1b[2Jb\n  | c\r\u202ed\nsend it: yes"


class Scripted:
    """A person who types these lines, and then goes."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.seen = ""

    def tell(self, text: str) -> None:
        self.seen += f"{text}\n"

    def ask(self, prompt: str) -> str:
        if not self.lines:
            raise EOFError
        self.seen += f"{prompt}\n"
        return self.lines.pop(0)

    def load(self, name: str) -> str:
        if name != "there":
            raise NotWantedError("no such file")
        return '{"from":\n"file"}'


def asked(*questions: dict):
    requests = {
        f"q{number}": {"method": "elicitation/create", "params": params} for number, params in enumerate(questions, 1)
    }
    result = json.dumps({"resultType": "input_required", "inputRequests": requests}).encode()
    return form_of(input_question(result, server_id="s", tool="t", key="k").payload)


def fields(*required: str, message: str = "say it", **properties: dict) -> dict:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return {"message": message, "requestedSchema": schema}


def test_it_asks_question_by_question_and_shows_what_it_sends():
    form = asked(
        fields("day", day={"type": "string", "format": "date"}, people={"type": "integer", "default": 2}),
        {"mode": "url", "message": "pay", "url": "https://example.org/pay"},
    )
    person = Scripted("a", "tomorrow", "2026-12-31", "", "acc", "y")
    answer = interview(form, person)
    assert answer == b'{"q1":{"action":"accept","content":{"day":"2026-12-31","people":2}},"q2":{"action":"accept"}}'
    assert person.seen.count("write a date, as in 2026-12-31") == 1
    assert "people [2]: " in person.seen
    assert "https://example.org/pay" in person.seen
    assert f"    {answer.decode()}\n" in person.seen


def test_each_question_can_be_declined_and_cancelled():
    form = asked(fields("a", a={"type": "string"}), fields("b", b={"type": "string"}))
    assert interview(form, Scripted("decline", "c", "yes")) == b'{"q1":{"action":"decline"},"q2":{"action":"cancel"}}'


def test_one_can_go_back_to_decline_in_the_middle_of_a_form():
    form = asked(fields("a", "b", a={"type": "string"}, b={"type": "string"}))
    assert interview(form, Scripted("accept", "x", BACK, "decline", "yes")) == b'{"q1":{"action":"decline"}}'


def test_nothing_is_sent_without_a_yes():
    form = asked(fields())
    assert interview(form, Scripted("accept", "", "maybe", "no")) is None
    assert interview(form, Scripted("accept", "again", "decline", "yes")) == b'{"q1":{"action":"decline"}}'
    with pytest.raises(EOFError):
        interview(form, Scripted("accept"))


def test_what_the_whole_schema_refuses_is_asked_once_more():
    one = fields(a={"type": "string"}, b={"type": "string"})
    one["requestedSchema"]["minProperties"] = 1
    person = Scripted("accept", "", "", "accept", "x", "", "yes")
    assert interview(asked(one), person) == b'{"q1":{"action":"accept","content":{"a":"x"}}}'
    assert "That would be refused: q1.content " in person.seen


def test_json_may_come_from_a_file():
    form = asked(fields("a", a={"type": "object"}))
    person = Scripted("accept", "@missing", "@there", "yes")
    assert interview(form, person) == b'{"q1":{"action":"accept","content":{"a":{"from":\n"file"}}}}'
    assert "no such file" in person.seen


def test_choices_are_shown_with_their_titles():
    form = asked(fields("c", c={"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g"}]}))
    person = Scripted("accept", "2", "yes")
    assert json.loads(interview(form, person) or b"")["q1"]["content"] == {"c": "g"}
    assert "    1  r  (Red)\n    2  g\n" in person.seen


def test_words_of_a_server_stand_in_lines_of_their_own_and_act_on_nothing():
    one = fields(
        HOSTILE,
        message=HOSTILE,
        **{HOSTILE: {"type": "string", "title": HOSTILE, "description": HOSTILE, "enum": [HOSTILE, "1"]}},
    )
    one["requestedSchema"]["properties"][HOSTILE]["default"] = HOSTILE
    person = Scripted("accept", "", "no")
    interview(asked(one), person)
    assert all(character.isprintable() or character == "\n" for character in person.seen)
    lines = person.seen.splitlines()
    assert [line for line in lines if line.startswith("send it")] == ["send it: yes, again (ask me once more) or no? "]
    assert "  |   | c\\u{d}\\u{202e}d" in lines
