"""What a poll and a stream send of a log, piece by piece as their client takes it.

Holds one piece at a time, and waits where the log has no more. Knows no request.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Protocol

from openwop_mcp.runs.events import RunEvent

from . import polling, streaming
from .snapshot import RunView
from .streaming import Batch, Frame, StreamMode

__all__ = ("CHUNK_BYTES", "CutError", "Log", "page", "stream", "whole")

CHUNK_BYTES = 64 * 1024
"""What is sent at a time. As much is in flight of every client that is slow."""


class CutError(Exception):
    """A stream ends before the run does: its client is to come back, and must not take what it has for the whole."""


class Told(Protocol):
    """A run's log from its first event on."""

    @property
    def view(self) -> RunView:
        """The run as it stands."""
        ...

    def events(self, after: int) -> AsyncIterator[RunEvent]:
        """The events after a sequence, up to the last one that is known."""
        ...


class Log(Protocol):
    """What is sent of."""

    cancelling: bool

    @property
    def generation(self) -> Told:
        """What there is of it; another one once the run was reset."""
        ...

    @property
    def is_stopping(self) -> bool:
        """Whether the host is about to end."""
        ...

    async def wait(self, after: int, seconds: float) -> None:
        """Wait for an event after a sequence, or for no more."""
        ...


async def whole(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    """What is there already, and is not copied for the client that it is sent to."""
    pieces = _Pieces()
    pieces.put(parts)
    for piece in pieces.all():
        yield piece


async def page(run_id: str, log: Log, after: int) -> AsyncIterator[bytes]:
    """The answer to a poll: all events after a sequence that are known as it begins.

    Args:
        run_id: The run.
        log: Its log.
        after: The sequence.
    """
    told, view = log.generation, log.generation.view
    tail = polling.tail(
        last_sequence=view.last_sequence, status=view.status(cancelling=log.cancelling), is_terminal=view.is_terminal
    )
    pieces = _Pieces()
    pieces.put((polling.head(run_id),))
    separator = b""
    async for event in told.events(after):
        pieces.put((separator, *event.parts()))
        separator = b","
        for piece in pieces.full():
            yield piece
    pieces.put((tail,))
    for piece in pieces.all():
        yield piece


async def stream(
    log: Log,
    after: int,
    mode: StreamMode,
    *,
    buffer_ms: int = 0,
    seconds: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[bytes]:
    """A stream of a log, to its end.

    Args:
        log: The log.
        after: The sequence after which it begins.
        mode: What it shows.
        buffer_ms: How long events wait for company.
        seconds: How long it may go on.
        clock: Seconds, never going back.

    Raises:
        CutError: The run was reset, the host stops, or it went on for as long as it may.
    """
    told, view = log.generation, log.generation.view
    teller: _Snapshots | _Batches | _Events
    if mode.of_snapshots:
        teller = _Snapshots(log, mode, is_due=not (view.is_terminal and after >= view.last_sequence))
        # What was before is in the first snapshot.
        after = max(after, view.last_sequence)
    elif buffer_ms:
        teller = _Batches(mode, buffer_ms / 1000, clock)
    else:
        teller = _Events(mode)
    pieces = _Pieces()
    sent = clock()
    until = sent + seconds
    while True:
        async for event in _until(until, told.events(after), clock):
            after = event.sequence
            pieces.put(teller.take(event))
            for piece in pieces.full():
                yield piece
                sent = clock()
        is_over = view.is_terminal and after >= view.last_sequence
        pieces.put(teller.flush(at_end=is_over or log.is_stopping))
        for piece in pieces.all():
            yield piece
            sent = clock()
        if is_over:
            return
        if clock() >= sent + streaming.KEEP_ALIVE_SECONDS:
            yield streaming.KEEP_ALIVE
            sent = clock()
        if log.generation is not told or log.is_stopping or clock() >= until:
            raise CutError
        silent_until = sent + streaming.KEEP_ALIVE_SECONDS
        due = silent_until if teller.due is None else min(teller.due, silent_until)
        await log.wait(after, max(0.0, min(due, until) - clock()))


async def _until(end: float, events: AsyncIterator[RunEvent], clock: Callable[[], float]) -> AsyncIterator[RunEvent]:
    """The events that are asked for before a time."""
    async for event in events:
        if clock() >= end:
            raise CutError
        yield event


class _Events:
    """Each event that is let through is a frame."""

    due: float | None = None

    def __init__(self, mode: StreamMode) -> None:
        self._mode = mode

    def take(self, event: RunEvent) -> Frame:
        name = self._mode.admits(event.type)
        return () if name is None else streaming.event_frame(event, name)

    def flush(self, *, at_end: bool) -> Frame:  # noqa: ARG002 - nothing ever waits here
        return ()


class _Batches:
    """Events that are let through wait for company."""

    def __init__(self, mode: StreamMode, seconds: float, clock: Callable[[], float]) -> None:
        self.due: float | None = None
        self._mode = mode
        self._seconds = seconds
        self._clock = clock
        self._batch = Batch()

    def take(self, event: RunEvent) -> Frame:
        if self._mode.admits(event.type) is None:
            return ()
        if self.due is None:
            self.due = self._clock() + self._seconds
        frame = self._batch.add(event)
        return self.flush(at_end=False) if frame is None else self._sent(frame)

    def flush(self, *, at_end: bool) -> Frame:
        if self.due is None or (self._clock() < self.due and not at_end):
            return ()
        return self._sent(self._batch.flush() or ())

    def _sent(self, frame: Frame) -> Frame:
        self.due = None
        return frame


class _Snapshots:
    """After events that are let through, the run as it stands then; one for all that are there at once."""

    due: float | None = None

    def __init__(self, log: Log, mode: StreamMode, *, is_due: bool) -> None:
        self._log = log
        self._view = log.generation.view
        self._mode = mode
        self._is_due = is_due
        self._shown = -1

    def take(self, event: RunEvent) -> Frame:
        if event.sequence > self._shown and self._mode.admits(event.type) is not None:
            self._is_due = True
        return ()

    def flush(self, *, at_end: bool) -> Frame:  # noqa: ARG002 - what is due is sent anyway
        if not self._is_due:
            return ()
        self._is_due, self._shown = False, self._view.last_sequence
        return streaming.snapshot_frame(self._shown, self._view.parts(cancelling=self._log.cancelling))


class _Pieces:
    """Parts of any size, in and out: small ones are sent together, and large ones in several pieces."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def put(self, parts: Iterable[bytes]) -> None:
        for part in parts:
            self._parts.append(part)
            self._size += len(part)

    def full(self) -> Iterator[bytes]:
        """What can be sent without waiting for more: nothing, or all."""
        return self.all() if self._size >= CHUNK_BYTES else iter(())

    def all(self) -> Iterator[bytes]:
        """All there is."""
        parts, self._parts, self._size = self._parts, [], 0
        small: list[bytes] = []
        size = 0
        for part in parts:
            if size + len(part) > CHUNK_BYTES and small:
                yield b"".join(small)
                small, size = [], 0
            if len(part) > CHUNK_BYTES:
                yield from (part[start : start + CHUNK_BYTES] for start in range(0, len(part), CHUNK_BYTES))
            else:
                small.append(part)
                size += len(part)
        if small:
            yield b"".join(small)
