"""Streams: what a mode lets through, and frames that a client of server-sent events reads back."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host import streaming
from host.errors import HostError
from host.streaming import Batch, StreamMode
from openwop_mcp.runs.events import RunEvent
from tests.support.exact import RESULT

RUN_ID = "acme/0123456789abcdef"


def event(sequence: int, event_type: str = "node.completed", payload: bytes = b"{}") -> RunEvent:
    return RunEvent(f"generation-{sequence}", RUN_ID, event_type, payload, "2026-11-30T09:00:00.000Z", sequence)


def read(wire: Sequence[bytes]) -> list[tuple[str, str, str]]:
    """Frames as the HTML standard has a client read them: id, event, data."""
    frames, fields = [], {}
    for line in re.split(rb"\r\n|\r|\n", b"".join(wire)):
        if not line:
            if fields:
                frames.append((fields["id"], fields["event"], fields["data"]))
            fields = {}
        elif not line.startswith(b":"):
            name, _, value = line.decode().partition(":")
            value = value.removeprefix(" ")
            fields[name] = f"{fields[name]}\n{value}" if name == "data" and name in fields else value
    assert not fields, "the stream ends within a frame"
    return frames


# --- modes ---


def test_a_stream_that_says_nothing_is_of_updates() -> None:
    assert StreamMode.parse(None) == StreamMode.parse("updates") == StreamMode(("updates",))


@pytest.mark.parametrize("asked", ["debug,updates", "updates,debug", "updates,updates,debug"])
def test_modes_are_combined_in_any_order_and_count_once(asked: str) -> None:
    assert StreamMode.parse(asked) == StreamMode(("updates", "debug"))


@pytest.mark.parametrize(
    "asked",
    ["", "bogus", "updates,values", "values,values", "updates,", ",updates", "updates debug", "Updates", "debug\n"],
)
def test_another_mode_is_refused_with_each_that_is_served(asked: str) -> None:
    with pytest.raises(HostError) as caught:
        StreamMode.parse(asked)
    assert (caught.value.code, caught.value.status) == ("unsupported_stream_mode", 400)
    assert caught.value.details == {"supported": ["updates", "values", "messages", "debug"]}


def test_updates_tell_where_run_and_nodes_came_to_stand_and_debug_tells_all() -> None:
    updates, debug = StreamMode.parse("updates"), StreamMode.parse("debug")
    told = ["run.started", "run.paused", "run.failed", "node.skipped", "node.suspended", "interrupt.requested"]
    besides = ["node.started", "node.retried", "negotiation.decided", "tool.session-opened", "acme.thing"]
    assert [updates.admits(one) for one in told] == told
    assert [updates.admits(one) for one in besides] == [None] * len(besides)
    assert [debug.admits(one) for one in told + besides] == told + besides


def test_snapshots_follow_the_same_transitions_as_updates() -> None:
    values = StreamMode.parse("values")
    assert values.of_snapshots
    assert not StreamMode.parse("debug").of_snapshots
    assert values.admits("node.completed")
    assert values.admits("node.started") is None


def test_no_node_speaks_in_messages() -> None:
    assert StreamMode.parse("messages").admits("run.completed") is None


def test_a_stream_of_several_modes_is_their_union_and_names_the_mode() -> None:
    mixed = StreamMode.parse("debug,updates,messages")
    assert mixed.admits("node.completed") == "updates"
    assert mixed.admits("node.started") == "debug"
    assert StreamMode.parse("messages,updates").admits("node.started") is None


# --- parameters ---


def test_events_wait_for_company_only_if_asked_and_five_seconds_at_most() -> None:
    assert [streaming.buffer_ms(asked) for asked in (None, "0", "200", "5000")] == [0, 0, 200, 5000]
    for asked in ("", "-1", "5001", "99999", "1.5", "01", "x"):
        with pytest.raises(HostError) as caught:
            streaming.buffer_ms(asked)
        assert (caught.value.code, caught.value.details) == ("validation_error", {"field": "bufferMs"})


def test_a_stream_goes_on_after_the_last_frame_that_was_read() -> None:
    assert [streaming.last_event_id(header) for header in (None, "0", "41")] == [-1, 0, 41]
    for header in ("", "-1", "x", "1.0", "01", "1 ", "1" * 19):
        with pytest.raises(HostError) as caught:
            streaming.last_event_id(header)
        assert (caught.value.code, caught.value.details) == ("validation_error", {"field": "Last-Event-ID"})


# --- frames ---


def test_a_frame_is_an_event_by_its_sequence_and_type() -> None:
    told = event(7, payload=RESULT)
    assert read(streaming.event_frame(told, told.type)) == [("7", "node.completed", told.encode().decode())]


def test_a_snapshot_has_a_name_of_its_own() -> None:
    assert read(streaming.snapshot_frame(3, (b"{", b'"status":"running"}'))) == [
        ("3", "state.snapshot", '{"status":"running"}')
    ]


def test_line_breaks_of_a_result_arrive_as_lf_and_a_cr_too() -> None:
    told = event(0, payload=b'{\r\n"a":\r1.10,\n\n "b":"\\r"}')
    ((_, _, data),) = read(streaming.event_frame(told, told.type))
    assert '"payload":{\n"a":\n1.10,\n\n "b":"\\r"}' in data
    assert json.loads(data) == json.loads(told.encode())


odd = st.text('a:"\\\r\n\t\x00\x0b\x85\u00e9\u2028\u2029\U0001f44d', max_size=8)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | odd, lambda inner: st.dictionaries(odd, inner, max_size=3), max_leaves=5
)
spaces = st.text(" \t\r\n", max_size=4)


@given(st.lists(st.tuples(json_values, spaces, spaces), max_size=4))
def test_whatever_stands_in_a_payload_a_client_reads_the_event(payloads: list[tuple[Any, str, str]]) -> None:
    events = [
        event(
            index,
            payload=f"{before}{json.dumps(value, ensure_ascii=False, indent=1)}{after}".encode(),
        )
        for index, (value, before, after) in enumerate(payloads)
    ]
    wire = [part for one in events for part in (*streaming.event_frame(one, one.type), streaming.KEEP_ALIVE)]
    frames = read(wire)
    assert [int(identity) for identity, _, _ in frames] == [one.sequence for one in events]
    assert [json.loads(data) for _, _, data in frames] == [json.loads(one.encode()) for one in events]


def test_what_is_large_in_a_frame_is_not_copied() -> None:
    payload = b'{"n":"%b"}' % (b"x" * 1000)
    assert any(part is payload for part in streaming.event_frame(event(0, payload=payload), "batch"))


def test_a_snapshot_of_a_run_without_events_has_no_id_to_go_on_from() -> None:
    assert b"".join(streaming.snapshot_frame(-1, (b"{}",))) == b"event: state.snapshot\ndata: {}\n\n"


def test_a_keep_alive_is_no_frame_and_comes_in_time() -> None:
    assert read([streaming.KEEP_ALIVE]) == []
    assert streaming.KEEP_ALIVE_SECONDS <= 30


# --- batches ---


def test_a_batch_is_the_plain_log_in_one_frame_with_its_highest_id() -> None:
    batch, events = Batch(), [event(3), event(4, payload=RESULT), event(9)]
    assert [batch.add(one) for one in events] == [None] * 3
    frame = batch.flush()
    assert frame is not None
    ((identity, name, data),) = read(frame)
    assert (identity, name) == ("9", "batch")
    assert data.encode() == b"[" + b",".join(one.encode() for one in events) + b"]"
    assert batch.flush() is None


@pytest.mark.parametrize("event_type", ["run.completed", "run.failed", "run.cancelled", "node.suspended"])
def test_an_end_and_a_suspension_wait_for_no_company(event_type: str) -> None:
    batch = Batch()
    batch.add(event(0))
    frame = batch.add(event(1, event_type))
    assert frame is not None
    assert [one["sequence"] for one in json.loads(read(frame)[0][2])] == [0, 1]
    assert batch.flush() is None


def test_a_large_batch_is_due_so_that_a_log_of_large_results_is_not_held() -> None:
    batch = Batch()
    large = b'{"outputs":"' + b"x" * 600_000 + b'"}'
    assert batch.add(event(0, payload=large)) is None
    assert batch.add(event(1, payload=large)) is not None
    assert batch.add(event(2, payload=large)) is None
