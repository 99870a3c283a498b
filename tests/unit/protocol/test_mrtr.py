"""Multi round-trip requests: what is asked is read whole, and goes back by its own keys with the state as it came."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp import jsontext
from openwop_mcp.protocol import mrtr

ASK = b'{"method":"elicitation/create","params":{ "message":"\\u00e9","n":1.10 }}'
MEMBERS = [("name", b'"t\\u00e9"'), ("arguments", b'{ "n":1.10 }')]

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_what_is_asked_keeps_its_bytes() -> None:
    asked = mrtr.read(
        b'{"resultType":"input_required","inputRequests":{"q":%b},"requestState":"e30=\\u0000 \xc3\xbc"}' % ASK
    )
    assert asked.requests == {"q": mrtr.InputRequest("elicitation/create", b'{ "message":"\\u00e9","n":1.10 }')}
    assert asked.state == b'"e30=\\u0000 \xc3\xbc"'


@pytest.mark.parametrize("method", ["elicitation/create", "sampling/createMessage", "roots/list"])
def test_each_kind_of_the_protocol_may_be_asked_and_need_have_no_params(method: str) -> None:
    asked = mrtr.read(b'{"inputRequests":{"a":{"method":"%b"}}}' % method.encode())
    assert asked.requests == {"a": mrtr.InputRequest(method, b"{}")}
    assert asked.state is None


@pytest.mark.parametrize("requests", [b"", b',"inputRequests":{}'])
def test_a_state_alone_asks_to_be_called_again(requests: bytes) -> None:
    asked = mrtr.read(b'{"requestState":""%b}' % requests)
    assert (dict(asked.requests), asked.state) == ({}, b'""')
    assert mrtr.retry(MEMBERS, asked, {}) == [*MEMBERS, ("requestState", b'""')]


@pytest.mark.parametrize(
    "result",
    [
        b"{}",
        b'{"resultType":"input_required"}',
        b'{"requestState":null}',
        b'{"requestState":7}',
        b'{"requestState":{}}',
        b'{"requestState":["s"],"inputRequests":{}}',
        b'{"inputRequests":null}',
        b'{"inputRequests":[]}',
        b'{"inputRequests":"q"}',
        b'{"inputRequests":[{"method":"elicitation/create"}]}',
        b'{"inputRequests":{"q":null}}',
        b'{"inputRequests":{"q":"elicitation/create"}}',
        b'{"inputRequests":{"q":[]}}',
        b'{"inputRequests":{"q":{}}}',
        b'{"inputRequests":{"q":{"params":{}}}}',
        b'{"inputRequests":{"q":{"method":7}}}',
        b'{"inputRequests":{"q":{"method":null}}}',
        b'{"inputRequests":{"q":{"method":["roots/list"]}}}',
        b'{"inputRequests":{"q":{"method":"tools/call"}}}',
        b'{"inputRequests":{"q":{"method":"Elicitation/Create"}}}',
        b'{"inputRequests":{"a":{"method":"roots/list"},"q":{"method":""}},"requestState":"s"}',
        b'{"inputRequests":{"":{"method":"roots/list"}}}',
        b'{"inputRequests":{"a":{"method":"roots/list"},"\\u0061":{"method":"roots/list"}}}',
    ],
)
def test_what_cannot_be_answered_is_refused(result: bytes) -> None:
    with pytest.raises(mrtr.MalformedInputError):
        mrtr.read(result)


@given(state=st.text(), escaped=st.booleans())
def test_the_state_goes_back_byte_for_byte(state: str, escaped: bool) -> None:
    text = json.dumps(state, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    try:
        text.decode()
    except UnicodeDecodeError:
        return
    asked = mrtr.read(b'{ "resultType" : "input_required" , "requestState" : %b }' % text)
    assert dict(mrtr.retry(MEMBERS, asked, {}))["requestState"] == text


@given(asked=st.dictionaries(st.text(min_size=1), JSON, max_size=5), state=st.none() | st.text())
def test_every_question_is_answered_under_its_own_key_and_nothing_else_is_said(
    asked: dict[str, Any], state: str | None
) -> None:
    requests = jsontext.build(
        [
            (key, jsontext.build([("method", b'"roots/list"'), ("params", jsontext.encode(value))]))
            for key, value in asked.items()
        ]
    )
    members = [("inputRequests", requests)]
    if state is not None:
        members.append(("requestState", jsontext.encode(state)))
    read = mrtr.read(jsontext.build(members))
    assert {key: one.params for key, one in read.requests.items()} == {
        key: jsontext.encode(value) for key, value in asked.items()
    }
    answers = {key: jsontext.encode({"n": number}) for number, key in enumerate(asked)}
    retry = mrtr.retry(MEMBERS, read, {**answers, "another": b"{}"})
    expected = ["inputResponses"] * bool(asked) + ["requestState"] * (state is not None)
    assert [name for name, _ in retry] == ["name", "arguments", *expected]
    assert retry[:2] == MEMBERS
    if asked:
        assert dict(jsontext.members(dict(retry)["inputResponses"])) == answers


def test_an_answer_that_is_missing_is_no_answer() -> None:
    asked = mrtr.read(b'{"inputRequests":{"q":%b}}' % ASK)
    with pytest.raises(KeyError):
        mrtr.retry(MEMBERS, asked, {})


@given(JSON)
def test_no_result_whatever_breaks_the_reader(value: Any) -> None:
    for key in ("inputRequests", "requestState"):
        result = jsontext.encode({"resultType": "input_required", key: value})
        try:
            read = mrtr.read(result)
        except mrtr.MalformedInputError:
            continue
        assert set(read.requests) <= set(value if key == "inputRequests" else ())


EXACT_STATE = b'"e30=\\u0000 \xc3\xbc\\/"'
FORM = b'{"message":"Which?","requestedSchema":{"type":"object"}}'
URL = b'{"mode":"url","message":"Log in","url":"https://example.org/"}'


@pytest.mark.parametrize(
    "given",
    [
        mrtr.Input(1),
        mrtr.Input(2, b'{ "q":{"n":1.10} }'),
        mrtr.Input(2, state=EXACT_STATE),
        mrtr.Input(9, b"{}", EXACT_STATE, ("a", "b"), 3),
    ],
)
def test_what_a_repeat_carries_travels_byte_for_byte(given: mrtr.Input) -> None:
    text = given.encode()
    assert mrtr.Input.decode(text) == given
    assert mrtr.Input.decode(jsontext.build([*jsontext.members(text), ("newer", b"1")])) == given


def test_a_repeat_has_what_it_was_given_and_no_other_member() -> None:
    assert mrtr.carrying(MEMBERS, mrtr.Input(1)) == MEMBERS
    both = mrtr.carrying(MEMBERS, mrtr.Input(1, b'{"q":{}}', EXACT_STATE))
    assert both == [*MEMBERS, ("inputResponses", b'{"q":{}}'), ("requestState", EXACT_STATE)]


def test_answers_and_state_are_in_no_representation() -> None:
    shown = repr(mrtr.Input(1, b'{"q":"4nswer"}', b'"st4te"'))
    assert "4nswer" not in shown
    assert "st4te" not in shown


def _asking(params: bytes) -> bytes:
    return b'{"inputRequests":{"q":{"method":"elicitation/create","params":%b}}}' % params


@pytest.mark.parametrize("params", [FORM, URL, FORM[:-1] + b',"mode":"form"}'])
def test_a_person_can_be_asked_in_a_form_or_at_a_url(params: bytes) -> None:
    asked = mrtr.read_elicitations(_asking(params))
    assert asked.requests["q"].params == params


@pytest.mark.parametrize(
    "params",
    [
        b"7",
        b"{}",
        b'{"requestedSchema":{}}',
        b'{"message":7,"requestedSchema":{}}',
        b'{"message":"Which?"}',
        b'{"message":"Which?","requestedSchema":[]}',
        b'{"message":"Log in","mode":"url"}',
        b'{"message":"Log in","mode":"url","url":7}',
        b'{"message":"Which?","requestedSchema":{},"mode":"voice"}',
        b'{"message":"Which?","requestedSchema":{},"mode":null}',
        b'{"message":"Which?","requestedSchema":{},"mode":["form"]}',
    ],
)
def test_what_no_person_can_be_shown_is_malformed(params: bytes) -> None:
    with pytest.raises(mrtr.MalformedInputError):
        mrtr.read_elicitations(_asking(params))


def test_a_question_that_nobody_reads_for_its_length_is_malformed() -> None:
    fits = b'{"requestState":"%b"}' % (b"s" * (mrtr.MAX_ASKED - 19))
    assert len(fits) == mrtr.MAX_ASKED
    assert mrtr.read_elicitations(fits).requests == {}
    with pytest.raises(mrtr.MalformedInputError, match=str(mrtr.MAX_ASKED)):
        mrtr.read_elicitations(fits + b" ")


def test_the_same_question_has_the_same_digest_however_it_is_spelled_and_any_other_another() -> None:
    method = mrtr.ELICITATION
    base = mrtr.request_digest("q", mrtr.InputRequest(method, b'{"message":"\\u00e9","n":1.10}'))
    assert base == mrtr.request_digest("q", mrtr.InputRequest(method, b'{ "n":11e-1, "message":"\xc3\xa9" }'))
    others = [
        ("r", method, b'{"message":"\\u00e9","n":1.10}'),
        ("q", "roots/list", b'{"message":"\\u00e9","n":1.10}'),
        ("q", method, b'{"message":"\\u00e9","n":1.11}'),
    ]
    assert base not in {mrtr.request_digest(key, mrtr.InputRequest(kind, params)) for key, kind, params in others}
