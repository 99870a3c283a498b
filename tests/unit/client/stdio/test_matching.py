"""Which request a line belongs to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp.client.stdio._matching import Match, matches, pieces, response_id
from openwop_mcp.protocol import messages

SENT = range(3, 10)
META = {"io.modelcontextprotocol/subscriptionId": 5}


def found(line: str | bytes, *in_flight: int) -> list[tuple[str, int | None]]:
    data = line if isinstance(line, bytes) else line.encode("latin-1")
    return [(one.kind, one.request_id) for one in matches(data, in_flight, SENT)]


def note(method: Any, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"jsonrpc":"2.0","id":5,"result":{}}', ("answer", 5)),
        ('{"jsonrpc":"2.0","id":"5","result":{}}', ("answer", 5)),
        ('{"id":5,"error":{}}', ("answer", 5)),
        ('{"jsonrpc":"2.0","id":5}', ("answer", 5)),
        ('{"jsonrpc":"2.0","id":5,"result":{"n":NaN}}', ("answer", 5)),
        ('{"jsonrpc":"2.0","id":4,"result":{}}', ("late", None)),
        ('{"jsonrpc":"2.0","id":99,"result":{}}', ("late", None)),
        ('{"jsonrpc":"2.0","id":null,"error":{}}', ("late", None)),
        ('{"jsonrpc":"2.0","id":5,"method":"ping"}', ("unmatched", None)),
        (note("notifications/progress", progressToken=5), ("notice", 5)),
        (note("notifications/progress", progressToken="5"), ("late", None)),
        (note("notifications/progress", progressToken=4), ("late", None)),
        (note("notifications/cancelled", requestId=5), ("cancelled", 5)),
        (note("notifications/cancelled", requestId=4), ("unmatched", None)),
        (note("notifications/tools/list_changed", _meta=META), ("notice", 5)),
        (note("notifications/tools/list_changed"), ("unmatched", None)),
        (note(7), ("noise", None)),
        ('{"jsonrpc":"2.0","method":"\xff"}', ("noise", None)),
        ('{"jsonrpc":"2.0","method":"m","params":[]}', ("noise", None)),
        ('{"method":"GET","id":5}', ("noise", None)),
        ('{"id":4,"error":{}}', ("noise", None)),
        ('{"type":"heartbeat"}', ("noise", None)),
        ("Starting up", ("noise", None)),
        ("[]", ("noise", None)),
        ("[1]", ("noise", None)),
    ],
)
def test_a_message_is_known_by_its_members(line: str, expected: tuple[str, int | None]) -> None:
    assert found(line, 5, 6) == [expected]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ('{"jsonrpc":"2.0","id":99,"result":{}}', "answer"),
        ('{"jsonrpc":"2.0","id":"7f","result":{}}', "answer"),
        ('{"jsonrpc":"2.0","id":1.5,"result":{}}', "answer"),
        ('{"jsonrpc":"2.0","id":null,"error":{}}', "answer"),
        ('{"jsonrpc":"2.0","error":{}}', "answer"),
        ('{"jsonrpc":"2.0","id":4,"result":{}}', "late"),
        ('{"jsonrpc":"2.0","id":null,"result":{}}', "late"),
    ],
)
def test_an_answer_to_nothing_is_the_only_requests_unless_it_can_be_a_late_one(line: str, kind: str) -> None:
    assert found(line, 5) == [(kind, 5 if kind == "answer" else None)]
    assert found(line, 5, 6) == found(line) == [("late", None)]


def test_messages_in_an_array_are_taken_one_by_one() -> None:
    parts = ['{"jsonrpc":"2.0","id":5,"result":{}}', note("notifications/x"), "{}"]
    assert matches(f"[{', '.join(parts)}]".encode(), [5], SENT) == [
        Match("answer", parts[0].encode(), 5),
        Match("unmatched", parts[1].encode()),
        Match("noise", b"{}"),
    ]


@given(st.binary(), st.sets(st.integers(0, 9)))
def test_any_line_is_something(line: bytes, in_flight: set[int]) -> None:
    for one in matches(line, in_flight, SENT):
        assert (one.request_id in in_flight) == (one.kind in {"answer", "notice", "cancelled"})


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b'{"jsonrpc":"2.0","id":5,"result":{', 5),
        (b' { "id" : "5" , "jsonrpc" : "2.0" , "error" : {', 5),
        (b'{"id":5,"result":{"id":6}}', 5),
        (b'{"result":{"id":6},"jsonrpc":"2.0","id":5}', 5),
        (b'{"jsonrpc":"2.0","result":{"id":6},"id":5 }\r', 5),
        (b'{"result":{},"id":5,"jsonrpc":"2.0"}', 5),
        (b'{"jsonrpc":"2.0","result":{"id":6}}', None),
        (b'{"jsonrpc":"2.0","id":5,"method":"m","params":{', None),
        (b'{"jsonrpc":"2.0","method":"m","params":{"x":1},"id":5}', None),
        (b'{"params":{"id":5}', None),
        (b'{"id":5', None),
        (b'xx"id":5}', None),
    ],
)
def test_a_response_that_cannot_be_read_is_known_by_its_ends(text: bytes, number: int | None) -> None:
    assert response_id(text, text) == number


def test_messages_that_stand_on_one_line_are_taken_apart() -> None:
    log, answer = note("notifications/message", data="}{").encode(), b'{"jsonrpc":"2.0","id":5,"result":{"a":1.10}}'
    assert pieces(log + answer) == [log, answer]
    assert pieces(b" %b%b%b\r" % (answer, log, answer)) == [answer, log, answer]


@pytest.mark.parametrize("one", [b"{}", b'{"jsonrpc":"2.0","id":5,"method":"m"}'])
def test_no_more_objects_of_a_line_are_taken_apart_than_a_batch_may_have(one: bytes) -> None:
    assert pieces(one * messages.MAX_BATCH) == [one] * messages.MAX_BATCH
    line = one * (messages.MAX_BATCH + 1)
    assert pieces(line) == [line]
    assert found(line, 5) == [("noise", None)]


@pytest.mark.parametrize("line", [b"1", b"{}", b"[]", b" x", b'{"type":"beat"}', b'"' + b"{" * 100 + b'"', b"#" * 100])
def test_a_line_that_begins_as_no_message_or_is_too_short_for_one_is_not_read(
    line: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_: bytes) -> list[tuple[str, bytes]]:
        raise AssertionError

    monkeypatch.setattr(messages, "members", read)
    assert found(line, 5) == [("noise", None)]


@pytest.mark.parametrize("line", [b'{"id":5,"error":1}', b'{"id":5,"error":', b'\r\t {"id":5,"result":1}'])
def test_the_shortest_answers_are_known(line: bytes) -> None:
    assert found(line, 5) == [("answer", 5)]


@pytest.mark.parametrize(
    "line", [b'{"a":"}{"}', b"{}{", b"{}{}]", b"{}{}1", b"}{", b'{"a":"\xff"}{}', b"{}" + b'{"a":' * 10**5 + b"}{"]
)
def test_what_is_not_objects_alone_stays_a_line(line: bytes) -> None:
    assert pieces(line) == [line]
