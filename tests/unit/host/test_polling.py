"""Polls: their parameters and their page."""

from __future__ import annotations

import json

import pytest

from host import polling
from host.errors import HostError


def test_a_poll_that_says_nothing_asks_for_all_and_waits_half_a_minute() -> None:
    assert polling.after_sequence(None) == -1
    assert polling.timeout(None) == 30


def test_a_cursor_is_a_sequence_and_a_wait_is_seconds() -> None:
    assert [polling.after_sequence(text) for text in ("0", "17", "999999999999999999")] == [0, 17, 10**18 - 1]
    assert [polling.timeout(text) for text in ("1", "60")] == [1, 60]


@pytest.mark.parametrize("text", ["", "-1", "01", "1.0", "x", " 1", "1\n", "٣", "1" * 19])
def test_another_cursor_is_refused(text: str) -> None:
    with pytest.raises(HostError) as caught:
        polling.after_sequence(text)
    assert (caught.value.code, caught.value.details) == ("validation_error", {"field": "afterSequence"})


@pytest.mark.parametrize("text", ["", "0", "61", "100", "1.5", "-1", "01", "x"])
def test_another_wait_is_refused(text: str) -> None:
    with pytest.raises(HostError) as caught:
        polling.timeout(text)
    assert (caught.value.code, caught.value.details) == ("validation_error", {"field": "timeout"})


@pytest.mark.parametrize("events", [[], [b'{"sequence":0}'], [b'{"sequence":0}', b'{ "n":1.10 }']])
def test_a_page_is_closed_around_the_bytes_of_its_events(events: list[bytes]) -> None:
    page = (
        polling.head("acme/r") + b",".join(events) + polling.tail(last_sequence=4, status="paused", is_terminal=False)
    )
    assert json.loads(page) == {
        "runId": "acme/r",
        "events": [json.loads(event) for event in events],
        "lastSequence": 4,
        "status": "paused",
        "isTerminal": False,
    }
    assert b",".join(events) in page
