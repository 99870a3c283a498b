"""Servers' requests for input: what a person is asked, which answers are taken, and what the server is sent."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from openwop_mcp import jsontext
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.protocol import mrtr
from openwop_mcp.questions.elicitation import Given, asked, check_input, input_question, read_input
from tests.support.questions import ELICITATION, input_required

SCHEMA = (
    b'{ "type":"object", "properties":{"colour":{"type":"string","enum":["red","green"]},'
    b'"count":{"type":"number","maximum":10.50}}, "required":["colour"]}'
)
RESULT = (
    b'{"resultType":"input_required","inputRequests":{"a/b":{"method":"elicitation/create","params":{'
    b'"message":"Which?","requestedSchema":' + SCHEMA + b'}},"go":{"method":"elicitation/create","params":'
    b'{"mode":"url","message":"Log in","url":"https://example.com/x?a=1"}}},"requestState":"e30=\\u0000 \xc3\xbc"}'
)
GO = b'"go":{"action":"accept"}'


def ask(result: bytes = RESULT, **options: Any) -> dict[str, Any]:
    made = input_question(result, server_id="shop", tool="buy", key="input:a:1", **options)
    payload: dict[str, Any] = json.loads(made.payload)
    return payload


def refused(answer: bytes, result: bytes = RESULT) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        check_input(answer, result)
    path = caught.value.facts["path"]
    assert path in caught.value.message
    return str(path)


# --- the question ---


def test_a_form_is_asked_with_the_servers_words_and_its_very_schema() -> None:
    made = input_question(RESULT, server_id="shop.eu", tool="buy", key="input:a:1", timeout_ms=5000)
    assert (made.kind, made.reason, made.timeout_ms) == ("clarification", "input-required", 5000)
    data = jsontext.member(made.payload, "data") or b""
    first, second = jsontext.elements(jsontext.member(data, "questions") or b"")
    assert first == b'{"id":"a/b","question":"Which?","schema":' + SCHEMA + b"}"
    assert jsontext.member(second, "schema") is None
    assert json.loads(data)["contextType"] == "mcp:shop~2Eeu.buy"
    assert json.loads(made.payload)["timeoutMs"] == 5000


def test_a_resource_is_asked_about_by_its_server() -> None:
    made = input_question(RESULT, server_id="shop", tool=None, key="k")
    assert json.loads(made.payload)["data"]["contextType"] == "mcp:shop"


def test_an_address_is_shown_whole_and_with_its_host() -> None:
    question = ask()["data"]["questions"][1]["question"]
    assert question.startswith("Log in\n")
    assert "https://example.com/x?a=1" in question
    assert "the host example.com." in question
    assert "Careful" not in question


def test_the_address_of_a_host_that_imitates_another_comes_with_a_warning() -> None:
    request = {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "m", "url": "https://ex\u0430mple.com/"},
    }
    question = ask(input_required({"q": request}))["data"]["questions"][0]["question"]
    assert "https://ex\u0430mple.com/" in question
    assert "xn--exmple-4nf.com" in question
    assert "cyrillic, latin" in question


def test_a_request_without_words_is_a_question_still() -> None:
    request = {"method": "elicitation/create", "params": {**ELICITATION["params"], "message": ""}}
    assert ask(input_required({"q": request}))["data"]["questions"][0]["question"] == "The server asks without a word."


@pytest.mark.parametrize(
    ("answer", "valid"),
    [
        (b'{"a/b":{"action":"accept","content":{"colour":"red"}},' + GO + b"}", True),
        (b'{"a/b":{"action":"decline"},"go":{"action":"cancel"}}', True),
        (b'{"a/b":{"action":"accept"},' + GO + b"}", False),
        (b'{"a/b":{"action":"decline","content":{"colour":"red"}},' + GO + b"}", False),
        (b'{"a/b":{"action":"accept","content":{"colour":"blue"}},' + GO + b"}", False),
        (b"{" + GO + b"}", False),
        (b'{"a/b":{"action":"decline"},"x":{"action":"decline"},' + GO + b"}", False),
    ],
)
def test_the_resume_schema_takes_what_is_taken_and_refuses_what_is_refused(answer: bytes, valid: bool) -> None:
    schema = ask()["resumeSchema"]
    Draft202012Validator.check_schema(schema)
    assert Draft202012Validator(schema).is_valid(json.loads(answer)) is valid
    if valid:
        check_input(answer, RESULT)
    else:
        refused(answer)


def test_a_dialect_stands_in_the_question_and_not_inside_the_resume_schema() -> None:
    schema = {**ELICITATION["params"]["requestedSchema"], "$schema": "https://json-schema.org/draft/2020-12/schema"}
    request = {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": schema}}
    payload = ask(input_required({"q": request}))
    assert payload["data"]["questions"][0]["schema"] == schema
    assert "$schema" not in payload["resumeSchema"]["properties"]["q"]["properties"]["content"]


# --- answers ---


def test_what_a_person_gives_goes_out_byte_for_byte() -> None:
    content = b'{ "colour":"r\\u0065d", "count":1.50 }'
    answer = b'{ "go" : {"action":"decline"}, "a/b":{ "content" : ' + content + b', "action":"accept"}}'
    check_input(answer, RESULT)
    given = read_input(answer, RESULT)
    assert given.responses == (
        b'{"a/b":{"action":"accept","content":{ "colour":"r\\u0065d", "count":1.50 }},"go":{"action":"decline"}}'
    )
    assert given.declined == (mrtr.request_digest("go", mrtr.read(RESULT).requests["go"]),)


def test_declined_and_cancelled_are_known_again_however_they_are_spelled() -> None:
    given = read_input(b'{"a/b":{"action":"decline"},"go":{"action":"cancel"}}', RESULT)
    respelled = RESULT.replace(b'"message":"Which?"', b' "message" : "Which\\u003f"').replace(b"10.50", b"10.5")
    assert {one.digest for one in asked(respelled).values()} == set(given.declined)
    other = RESULT.replace(b"Which?", b"Which one?")
    assert asked(other)["a/b"].digest not in given.declined


@pytest.mark.parametrize(
    ("answer", "path"),
    [
        (b"[]", "resumeValue"),
        (b"7", "resumeValue"),
        (b'{"a/b":{"action":"decline"}}', "go"),
        (b'{"a/b":{"action":"decline"},"other":{"action":"decline"},' + GO + b"}", "other"),
        (b'{"a/b":{"action":"decline"},"a/b":{"action":"decline"},' + GO + b"}", "resumeValue"),
        (b'{"a/b":"decline",' + GO + b"}", "a/b"),
        (b'{"a/b":{"action":"maybe"},' + GO + b"}", "a/b.action"),
        (b'{"a/b":{"action":["accept"]},' + GO + b"}", "a/b.action"),
        (b'{"a/b":{},' + GO + b"}", "a/b.action"),
        (b'{"a/b":{"action":"accept"},' + GO + b"}", "a/b.content"),
        (b'{"a/b":{"action":"accept","content":null},' + GO + b"}", "a/b.content"),
        (b'{"a/b":{"action":"accept","content":{"colour":"red"},"x":1},' + GO + b"}", "a/b.x"),
        (b'{"a/b":{"action":"cancel","content":{"colour":"red"}},' + GO + b"}", "a/b.content"),
        (b'{"a/b":{"action":"accept","content":{"colour":"blue"}},' + GO + b"}", "a/b.content.colour"),
        (b'{"a/b":{"action":"accept","content":{"colour":"red","count":11}},' + GO + b"}", "a/b.content.count"),
        (b'{"a/b":{"action":"accept","content":{"colour":"red","colour":"red"}},' + GO + b"}", "a/b.content"),
        (b'{"a/b":{"action":"accept","content":{"colour":"red","x":{}}},' + GO + b"}", "a/b.content.x"),
        (b'{"a/b":{"action":"accept","content":{"colour":"red","x":[1]}},' + GO + b"}", "a/b.content.x"),
        (b'{"a/b":{"action":"accept","content":{"colour":"red","x":null}},' + GO + b"}", "a/b.content.x"),
        (b'{"a/b":{"action":"decline"},"go":{"action":"accept","content":{}}}', "go.content"),
    ],
)
def test_what_is_no_answer_is_refused_with_its_place(answer: bytes, path: str) -> None:
    assert refused(answer) == path


def test_a_refusal_does_not_echo_what_was_given() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_input(b'{"a/b":{"action":"accept","content":{"colour":"s3cr3t"}},' + GO + b"}", RESULT)
    assert "s3cr3t" not in caught.value.message


@pytest.mark.parametrize("name", [b"x" * 3_000_000, b"\\ud800", b"\\u202e\\u001b[2J"])
@pytest.mark.parametrize(
    "answer", [b'{"%b":1}', b'{"a/b":{"%b":1}}', b'{"a/b":{"action":"accept","content":{"%b":{}}}}']
)
def test_a_refusal_is_short_and_has_only_characters_that_show_whatever_the_names(name: bytes, answer: bytes) -> None:
    result = RESULT.replace(b'"go"', b'"%b"' % (b"g" * 10_000))
    with pytest.raises(InvalidRequestError) as caught:
        check_input(answer % name, result)
    assert len(caught.value.message) < 1_000
    assert caught.value.message.isprintable()


def test_schemas_that_take_long_together_leave_the_judgement_to_their_server() -> None:
    doubling = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(30)}
    requests = {
        f"q{n}": {
            "method": "elicitation/create",
            "params": {
                "message": "m",
                "requestedSchema": {"title": f"{n}", "$ref": "#/$defs/d0", "$defs": {**doubling, "d30": False}},
            },
        }
        for n in range(6)
    }
    answer = json.dumps({name: {"action": "accept", "content": {}} for name in requests}).encode()
    began = time.thread_time()
    check_input(answer, input_required(requests))
    assert time.thread_time() - began < 2


def test_several_choices_are_an_answer() -> None:
    properties = {"sizes": {"type": "array", "items": {"type": "string", "enum": ["s", "m"]}}}
    schema = {"type": "object", "properties": properties}
    result = input_required(
        {"q": {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": schema}}}
    )
    check_input(b'{"q":{"action":"accept","content":{"sizes":["s","m"]}}}', result)
    assert refused(b'{"q":{"action":"accept","content":{"sizes":["xl"]}}}', result) == "q.content.sizes.0"


def test_a_schema_that_cannot_be_used_leaves_the_judgement_to_its_server() -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": "https://example.com/other"}}}
    result = input_required(
        {"q": {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": schema}}}
    )
    answer = b'{"q":{"action":"accept","content":{"x":"any"}}}'
    check_input(answer, result)
    assert read_input(answer, result) == Given(b'{"q":{"action":"accept","content":{"x":"any"}}}', ())


def test_nothing_is_asked_where_a_server_only_wants_to_be_called_again() -> None:
    assert asked(input_required(state="s")) == {}
