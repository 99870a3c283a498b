"""A log from its first event on: the run as it stands by it, and its events in blocks that can be told again.

Reads what it is told to read, and waits for nothing. A reset of the run ends a generation and begins another.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import Client

from openwop_mcp.runs.events import TERMINAL, RunEvent

from .history import Extent, Reading
from .kept import Kept
from .snapshot import RunView

__all__ = ("Generation", "Memory")

BLOCK_BYTES = 1024 * 1024
"""A log is kept in blocks of as much, and of the event that went beyond it. Who reads it holds one at a time."""

EVENT_BYTES = 768
"""What an event takes up beside its payload."""

LOG_BYTES = 64 * 1024
"""What a log takes up beside its events: the machine of a small definition."""

REREADS = 2
"""Blocks that are told again at a time. Each needs what the run held at that point, which may be all its results."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Where logs are read from, and what is kept of them.

    Attributes:
        client: Connected to the namespace of the runs, with the storage of large values.
        kept: Logs, blocks of events, and readings that stand somewhere in a log.
        rereads: Taken by who tells a block again.
    """

    client: Client
    kept: Kept[Any]
    rereads: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(REREADS))


class Generation:
    """A log, as far as it was read.

    Args:
        memory: Where it is read from, and kept.
        run_id: The run.

    Attributes:
        extent: How far it was read.
        reading: What reads on at the end of the log, None once that is complete.
    """

    def __init__(self, memory: Memory, run_id: str) -> None:
        self.extent = Extent((), 0)
        self.reading: Reading | None = Reading(memory.client, run_id)
        self._memory = memory
        self._run_id = run_id
        self._view: RunView | None = None
        self._start_bytes = 0
        # The first sequence of each block; the last block is the open one.
        self._firsts = [0]
        self._open: list[RunEvent] = []
        self._open_bytes = 0
        self._key = object()
        self._telling = asyncio.Lock()

    @property
    def view(self) -> RunView:
        """The run as it stands by what was read: at least its start."""
        assert self._view is not None
        return self._view

    @property
    def last_sequence(self) -> int:
        """The highest sequence that was read, -1 if there is none."""
        return -1 if self._view is None else self._view.last_sequence

    @property
    def size(self) -> int:
        """Bytes that it takes up, beside its closed blocks."""
        held = 0 if self.reading is None else self.reading.held
        return LOG_BYTES + self._start_bytes + self._open_bytes + held

    def has(self, after: int) -> bool:
        """Whether there is an event after that sequence, or never will be."""
        return self.view.last_sequence > after or self.view.is_terminal

    async def read(self, extent: Extent) -> None:
        """Read on. One call at a time; one that is cancelled has lost nothing.

        Args:
            extent: How far, which is not less than before.

        Raises:
            HostError: See :meth:`Reading.next`.
            StorageError: See there.
            RPCError: See there.
        """
        reading = self.reading
        if reading is None:
            return
        self.extent = extent
        while (event := await reading.next(extent)) is not None:
            self._begun(reading).take((event,))
            self._open.append(event)
            self._open_bytes += _bytes_of(event)
            if self._open_bytes >= BLOCK_BYTES or event.type in TERMINAL:
                self._close()
        if self._begun(reading).is_terminal:
            self.reading = None

    def _begun(self, reading: Reading) -> RunView:
        if self._view is None:
            assert reading.start is not None
            self._view = RunView(reading.start)
            self._start_bytes = reading.start_bytes
        return self._view

    def _close(self) -> None:
        self._memory.kept.put((self._key, len(self._firsts) - 1), self._open, self._open_bytes)
        self._firsts.append(self._open[-1].sequence + 1)
        self._open, self._open_bytes = [], 0

    async def events(self, after: int) -> AsyncIterator[RunEvent]:
        """The events after a sequence, up to the last one that is known when the first is asked for.

        Raises:
            HostError: See :meth:`read`; where a block has to be told again.
            StorageError: See there.
            RPCError: See there.
        """
        last = self.last_sequence
        following = after + 1
        while following <= last:
            block = await self._block(following)
            for event in block[following - block[0].sequence :]:
                if event.sequence > last:
                    return
                yield event
            following = block[-1].sequence + 1

    async def _block(self, sequence: int) -> Sequence[RunEvent]:
        """The events of a block; of the open one those that there are."""
        index = bisect_right(self._firsts, sequence) - 1
        if index == len(self._firsts) - 1:
            return tuple(self._open)
        return self._kept(index) or await self._told_again(index)

    def _kept(self, index: int) -> Sequence[RunEvent] | None:
        block: Sequence[RunEvent] | None = self._memory.kept.get((self._key, index))
        return block

    async def _told_again(self, index: int) -> Sequence[RunEvent]:
        # Who reads the same log at about the same pace is served by the one who was first.
        async with self._telling:
            if (found := self._kept(index)) is not None:
                return found
            async with self._memory.rereads:
                return await self._tell_again(index)

    async def _tell_again(self, index: int) -> Sequence[RunEvent]:
        first, end = self._firsts[index : index + 2]
        reading = self._reading_before(index)
        block: list[RunEvent] = []
        while not block or block[-1].sequence + 1 < end:
            event = await reading.next(self.extent)
            assert event is not None, "the log was longer when it was read first"
            if event.sequence >= first:
                block.append(event)
        kept = self._memory.kept
        kept.put((self._key, index), block, sum(map(_bytes_of, block)))
        if end <= self.last_sequence:
            kept.put((self._key, "reading", end), reading, LOG_BYTES + reading.held)
        return block

    def _reading_before(self, index: int) -> Reading:
        """A reading that stands at the beginning of a block or before it, taken from what is kept if there is one."""
        for first in reversed(self._firsts[: index + 1]):
            reading: Reading | None = self._memory.kept.pop((self._key, "reading", first))
            if reading is not None:
                return reading
        return Reading(self._memory.client, self._run_id)


def _bytes_of(event: RunEvent) -> int:
    return len(event.payload) + EVENT_BYTES
