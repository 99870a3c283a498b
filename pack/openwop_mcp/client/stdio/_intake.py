"""Room for the line that a process is writing: where there is none, the process is read no further.

Whose line it is shows when it is whole. Until then it has room of its own, for all calls that waited when it became
large; then who gets an answer of it gets the room too.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from openwop_mcp.client._deadline import Deadline
from openwop_mcp.client._room import LARGE, Held, Room, holder

__all__ = ("Intake",)


class Intake:
    """The room of one process's line.

    Args:
        room: What there is; None where nobody counts.
        limit: Bytes that a line can have.
        pause: Reads no further.
        resume: Reads on.
    """

    def __init__(self, room: Room | None, limit: int, *, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._room, self._limit, self._pause, self._resume = room, limit, pause, resume
        self._calls: dict[Deadline, Held | None] = {}
        self._asking: set[Deadline] = set()
        self._waited: frozenset[Deadline] = frozenset()
        self._line: Held | None = None

    @property
    def held_back(self) -> bool:
        """Whether the process is not read for now."""
        return self._line is not None and bool(self._line.waiting)

    @contextlib.contextmanager
    def awaited(self, deadline: Deadline, *, lasting: bool) -> Iterator[None]:
        """Enter it around a request to the process: it waits for its own line, and for all that come before.

        Args:
            deadline: Its time limits.
            lasting: Whether it is there to hear what happens, so that no line has room for its sake.
        """
        self._calls[deadline] = holder()
        if not lasting:
            self._asking.add(deadline)
        if self._room is not None and self.held_back:
            deadline.held_back()
            # What this call has may be what the line waits for, and neither would ever end.
            self._room.serve()
        try:
            yield
        finally:
            del self._calls[deadline]
            self._asking.discard(deadline)
            # What nobody waits for, and a process that does not end its line, keep no room from others.
            if self._line is not None and self._waited.isdisjoint(self._asking):
                self._line.leave()

    def grown(self, size: int) -> None:
        """Read no further until there is room for what has come of a line, and for as much again as far as it may grow.

        Args:
            size: Bytes of it that are held. Few are where the last one is whole and another has begun, and of one over
                the limit: what room there was is given back.
        """
        if self._room is None:
            return
        if size <= LARGE:
            if self._line is not None:
                self._line.leave()
                self._line = None
            return
        if self._line is None:
            self._waited = frozenset(self._asking)
            self._line = self._room.held(self._holders)
            if not self._waited:
                self._line.leave()
        if self._line.left or self._line.waiting or size <= self._line.size:
            return
        found = self._room.ask(self._line, max(size, min(2 * size, self._limit)) - self._line.size)
        if not found.done():
            self._pause()
            for deadline in self._calls:
                deadline.held_back()
            found.add_done_callback(lambda _: self._read_on())

    def hand_on(self, size: int, to: Held | None) -> None:
        """Let who gets an answer of the line, if anybody counts for it, have so many bytes of its room."""
        if self._room is not None and self._line is not None and to is not None:
            self._room.hand_on(size, self._line, to)

    def _holders(self) -> Iterator[Held]:
        return (held for held in self._calls.values() if held is not None)

    def _read_on(self) -> None:
        self._resume()
        for deadline in self._calls:
            deadline.alive()
