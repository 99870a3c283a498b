"""What a poll and a stream send, in virtual time: pages, frames, batches, snapshots, signs of life, ends."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from host import delivery
from host.delivery import CutError
from host.snapshot import RunView
from host.streaming import KEEP_ALIVE, KEEP_ALIVE_SECONDS, StreamMode
from openwop_mcp.runs.events import RunEvent, timestamp
from tests.support.exact import RESULT
from tests.support.graphs import RUN_ID, node, start, workflow

MIB = 1024**2
Step = Callable[["FakeLog"], None]


class FakeLog:
    """A log that grows at given times, on a clock that only waiting moves."""

    def __init__(self, *events: RunEvent, later: dict[float, Step] | None = None) -> None:
        self.cancelling = False
        self.is_stopping = False
        self.generation = self
        self.view = RunView(start(workflow([node("a")])))
        self.now = 0.0
        self.waits: list[float] = []
        self.asked: list[int] = []
        self.meanwhile: list[RunEvent] = []
        self._events: list[RunEvent] = []
        self._later = sorted((later or {}).items())
        self.grow(*events)

    def grow(self, *events: RunEvent) -> None:
        self._events += events
        self.view.take(events)

    def clock(self) -> float:
        return self.now

    async def events(self, after: int) -> AsyncIterator[RunEvent]:
        self.asked.append(after)
        for event in list(self._events):
            if event.sequence > after:
                yield event
                meanwhile, self.meanwhile = self.meanwhile, []
                self.grow(*meanwhile)

    async def wait(self, after: int, seconds: float) -> None:
        assert seconds <= KEEP_ALIVE_SECONDS + 0.001
        self.waits.append(seconds)
        until = self.now + seconds
        while self._later and self._later[0][0] <= until and self.view.last_sequence <= after:
            at, step = self._later.pop(0)
            self.now = max(self.now, at)
            step(self)
            if self.is_stopping or self.generation is not self:
                return
        if self.view.last_sequence <= after:
            self.now = until


def told(sequence: int, event_type: str = "node.completed", payload: bytes = b"{}") -> RunEvent:
    return RunEvent(f"generation-{sequence}", RUN_ID, event_type, payload, timestamp(0), sequence)


STARTED = told(0, "run.started", b'{"workflowId":"flow","inputs":{},"tags":[],"metadata":{}}')
ENDED = "run.completed"


def growing(*events: RunEvent) -> Step:
    return lambda log: log.grow(*events)


async def page(log: FakeLog, after: int = -1) -> bytes:
    return b"".join([piece async for piece in delivery.page(RUN_ID, log, after)])


async def streamed(log: FakeLog, mode: str = "debug", after: int = -1, buffer_ms: int = 0) -> bytes:
    pieces = delivery.stream(log, after, StreamMode.parse(mode), buffer_ms=buffer_ms, clock=log.clock)
    return b"".join([piece async for piece in pieces])


def names(wire: bytes) -> list[tuple[int, str]]:
    return [(int(one), other) for one, other in re.findall(r"id: (\d+)\nevent: (\S+)\n", wire.decode())]


def shown(wire: bytes) -> list[dict[str, Any]]:
    return [json.loads(data) for data in re.findall(rb"data: (.*)\n\n", wire)]


# --- pages ---


async def test_a_page_is_closed_and_holds_the_events_after_the_cursor_byte_for_byte() -> None:
    log = FakeLog(STARTED, told(1, payload=RESULT), told(2, ENDED))
    body = await page(log, 0)
    assert b'"payload":' + RESULT in body
    assert json.loads(body) == {
        "runId": RUN_ID,
        "events": [json.loads(told(1, payload=RESULT).encode()), json.loads(told(2, ENDED).encode())],
        "lastSequence": 2,
        "status": "completed",
        "isTerminal": True,
    }


@pytest.mark.parametrize("after", [2, 1000])
async def test_a_page_past_the_end_is_empty_and_tells_where_the_log_ends(after: int) -> None:
    found = json.loads(await page(FakeLog(STARTED, told(1), told(2)), after))
    assert found == {"runId": RUN_ID, "events": [], "lastSequence": 2, "status": "running", "isTerminal": False}


async def test_a_page_of_a_log_that_has_not_begun_is_empty() -> None:
    found = json.loads(await page(FakeLog()))
    assert found == {"runId": RUN_ID, "events": [], "lastSequence": -1, "status": "pending", "isTerminal": False}


async def test_a_page_says_that_a_run_is_being_cancelled() -> None:
    log = FakeLog(STARTED)
    log.cancelling = True
    assert json.loads(await page(log))["status"] == "cancelling"


async def test_what_a_page_tells_is_what_was_known_when_it_began() -> None:
    log = FakeLog(STARTED, told(1, payload=b'{"n":"%b"}' % (b"x" * MIB)))
    pieces = delivery.page(RUN_ID, log, -1)
    body = await anext(pieces)
    log.grow(told(2, ENDED))
    body += b"".join([piece async for piece in pieces])
    found = json.loads(body)
    assert (len(found["events"]), found["lastSequence"], found["status"], found["isTerminal"]) == (
        2,
        1,
        "running",
        False,
    )


async def test_small_events_are_sent_together_and_large_ones_in_pieces() -> None:
    large = [told(sequence, payload=b'{"n":"%b"}' % (b"x" * MIB)) for sequence in (500, 501)]
    log = FakeLog(*(told(sequence) for sequence in range(500)), *large)
    pieces = [piece async for piece in delivery.page(RUN_ID, log, -1)]
    assert len(json.loads(b"".join(pieces))["events"]) == 502
    assert max(map(len, pieces)) <= delivery.CHUNK_BYTES
    assert len(pieces) < 50


async def test_what_is_there_as_a_whole_is_sent_in_pieces_as_well() -> None:
    parts = (b'{"a":"', b"x" * MIB, b'","b":', b"1" * 10, b"}")
    pieces = [piece async for piece in delivery.whole(parts)]
    assert b"".join(pieces) == b"".join(parts)
    assert max(map(len, pieces)) <= delivery.CHUNK_BYTES


# --- events as they come ---


async def test_a_stream_gives_each_event_as_it_comes_and_ends_after_the_last() -> None:
    log = FakeLog(STARTED, later={1.0: growing(told(1)), 2.0: growing(told(2, ENDED))})
    assert names(await streamed(log)) == [(0, "run.started"), (1, "node.completed"), (2, "run.completed")]
    assert log.now == 2.0


async def test_events_are_sent_before_the_next_ones_are_waited_for() -> None:
    log = FakeLog(STARTED)
    pieces = delivery.stream(log, -1, StreamMode.parse("debug"), clock=log.clock)
    assert names(await anext(pieces)) == [(0, "run.started")]
    assert log.waits == []


@pytest.mark.parametrize("mode", ["updates", "debug", "values", "messages", "updates,debug"])
@pytest.mark.parametrize("after", [2, 1000])
async def test_a_stream_past_the_end_of_a_finished_run_is_empty_and_ends(mode: str, after: int) -> None:
    log = FakeLog(STARTED, told(1), told(2, ENDED))
    assert await streamed(log, mode, after) == b""
    assert log.waits == []


async def test_a_cursor_past_the_end_of_a_run_under_way_waits_for_what_is_behind_it() -> None:
    log = FakeLog(STARTED, later={1.0: growing(told(1)), 2.0: growing(told(2), told(3, ENDED))})
    assert names(await streamed(log, after=1)) == [(2, "node.completed"), (3, "run.completed")]


async def test_what_a_mode_does_not_let_through_is_not_sent_and_the_stream_ends_all_the_same() -> None:
    log = FakeLog(STARTED, told(1, "node.started"), told(2), told(3, ENDED))
    assert names(await streamed(log, "updates")) == [(0, "run.started"), (2, "node.completed"), (3, "run.completed")]
    assert await streamed(log, "messages") == b""
    assert names(await streamed(log, "updates,debug")) == [
        (0, "updates"),
        (1, "debug"),
        (2, "updates"),
        (3, "updates"),
    ]


# --- signs of life ---


async def test_a_silent_stream_shows_that_it_lives() -> None:
    log = FakeLog(STARTED, later={40.0: growing(told(1, ENDED))})
    wire = await streamed(log)
    assert wire.count(KEEP_ALIVE) == 2
    assert names(wire) == [(0, "run.started"), (1, "run.completed")]


async def test_events_that_are_not_let_through_are_no_sign_of_life() -> None:
    steps = {float(second): growing(told(second)) for second in range(1, 40)}
    log = FakeLog(STARTED, later={**steps, 40.0: growing(told(40, ENDED))})
    assert (await streamed(log, "messages")).count(KEEP_ALIVE) == 2


async def test_a_stream_that_is_not_silent_needs_no_sign_of_life() -> None:
    steps = {float(second): growing(told(second)) for second in range(1, 40)}
    log = FakeLog(STARTED, later={**steps, 40.0: growing(told(40, ENDED))})
    assert KEEP_ALIVE not in await streamed(log)


# --- batches ---


async def test_events_wait_for_company_as_long_as_was_asked_and_no_longer() -> None:
    steps = {
        0.1: growing(told(1)),
        0.3: growing(told(2)),
        1.0: growing(told(3)),
        9.0: growing(told(4), told(5, ENDED)),
    }
    wire = await streamed(FakeLog(STARTED, later=steps), buffer_ms=200)
    assert [[one["sequence"] for one in batch] for batch in shown(wire)] == [[0, 1], [2], [3], [4, 5]]
    assert names(wire) == [(1, "batch"), (2, "batch"), (3, "batch"), (5, "batch")]


async def test_a_batch_is_sent_when_its_time_is_up_though_nothing_comes() -> None:
    log = FakeLog(STARTED, later={14.0: growing(told(1, ENDED))})
    pieces = delivery.stream(log, -1, StreamMode.parse("debug"), buffer_ms=5000, clock=log.clock)
    assert names(await anext(pieces)) == [(0, "batch")]
    assert log.now == 5.0


async def test_no_frame_is_a_batch_where_none_was_asked_for() -> None:
    log = FakeLog(STARTED, told(1), told(2, ENDED))
    assert "batch" not in [name for _, name in names(await streamed(log))]


async def test_a_batch_that_is_silent_keeps_the_stream_alive() -> None:
    log = FakeLog(STARTED, later={40.0: growing(told(1, ENDED))})
    assert (await streamed(log, buffer_ms=200)).count(KEEP_ALIVE) == 2


# --- snapshots ---


async def test_a_stream_of_snapshots_begins_with_one_and_gives_one_for_what_comes_together() -> None:
    log = FakeLog(STARTED, told(1), later={1.0: growing(told(2), told(3)), 2.0: growing(told(4, ENDED))})
    wire = await streamed(log, "values")
    assert names(wire) == [(1, "state.snapshot"), (3, "state.snapshot"), (4, "state.snapshot")]
    assert [one["status"] for one in shown(wire)] == ["running", "running", "completed"]


async def test_what_comes_while_events_are_read_is_shown_once() -> None:
    def step(log: FakeLog) -> None:
        log.meanwhile = [told(2)]
        log.grow(told(1))

    log = FakeLog(STARTED, later={1.0: step, 2.0: growing(told(3, ENDED))})
    assert [identity for identity, _ in names(await streamed(log, "values"))] == [0, 2, 3]


async def test_a_stream_of_snapshots_reads_no_events_that_the_first_one_tells_of() -> None:
    log = FakeLog(STARTED, told(1), told(2, ENDED))
    await streamed(log, "values")
    assert log.asked == [2]


async def test_events_that_updates_do_not_show_are_no_reason_for_a_snapshot() -> None:
    log = FakeLog(STARTED, later={1.0: growing(told(1, "node.started")), 2.0: growing(told(2, ENDED))})
    assert [identity for identity, _ in names(await streamed(log, "values"))] == [0, 2]


async def test_a_stream_of_snapshots_that_is_taken_up_again_begins_with_one() -> None:
    assert names(await streamed(FakeLog(STARTED, told(1), told(2, ENDED)), "values", after=0)) == [
        (2, "state.snapshot")
    ]
    log = FakeLog(STARTED, later={1.0: growing(told(1, ENDED))})
    assert [identity for identity, _ in names(await streamed(log, "values", after=0))] == [0, 1]


async def test_a_run_that_has_not_begun_is_shown_as_pending_without_an_id() -> None:
    log = FakeLog(later={1.0: growing(STARTED, told(1, ENDED))})
    wire = await streamed(log, "values")
    assert wire.startswith(b"event: state.snapshot\n")
    assert [one["status"] for one in shown(wire)] == ["pending", "completed"]
    assert names(wire) == [(1, "state.snapshot")]


# --- where a stream cannot go on ---


def stop(log: FakeLog) -> None:
    log.is_stopping = True


def reset(log: FakeLog) -> None:
    log.generation = FakeLog(STARTED, told(1), told(2, ENDED))


async def cut(
    log: FakeLog, mode: str, buffer_ms: int, seconds: float = math.inf, clock: Callable[[], float] | None = None
) -> bytes:
    """What was sent before the stream was cut."""
    sent = b""
    pieces = delivery.stream(
        log, -1, StreamMode.parse(mode), buffer_ms=buffer_ms, seconds=seconds, clock=clock or log.clock
    )
    try:
        async for piece in pieces:
            sent += piece
    except CutError:
        return sent
    pytest.fail("the stream was ended")


@pytest.mark.parametrize("happens", [stop, reset])
@pytest.mark.parametrize(("mode", "buffer_ms"), [("debug", 0), ("debug", 5000), ("values", 0)])
async def test_a_stream_that_cannot_go_on_is_cut_and_not_ended(happens: Step, mode: str, buffer_ms: int) -> None:
    log = FakeLog(STARTED, later={1.0: happens})
    await cut(log, mode, buffer_ms)
    assert log.now == 1.0


@pytest.mark.parametrize(("mode", "buffer_ms"), [("debug", 0), ("debug", 5000), ("values", 0)])
async def test_a_stream_is_cut_when_the_credential_that_opened_it_ends(mode: str, buffer_ms: int) -> None:
    log = FakeLog(STARTED, later={6.5: growing(told(1))})
    await cut(log, mode, buffer_ms, seconds=6.25)
    assert log.now == 6.25


async def test_nothing_is_sent_after_the_end_of_a_credential_though_there_is_more() -> None:
    log = FakeLog(STARTED, told(1, payload=b'{"text":"%b"}' % (b"x" * delivery.CHUNK_BYTES)), told(2, ENDED))
    # Its client takes its time for the first pieces.
    times = itertools.chain([0.0] * 3, itertools.repeat(5.0))
    sent = await cut(log, "debug", 0, seconds=5.0, clock=lambda: next(times))
    assert names(sent) == [(0, "run.started"), (1, "node.completed")]


async def test_events_that_wait_for_company_are_sent_before_a_host_stops_and_none_of_another_log() -> None:
    assert names(await cut(FakeLog(STARTED, later={1.0: stop}), "debug", 5000)) == [(0, "batch")]
    assert names(await cut(FakeLog(STARTED, later={1.0: reset}), "debug", 5000)) == []
