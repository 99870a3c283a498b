"""Room for large answers, of one process: how much of them is in memory at once. Knows nothing of what they are."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self

__all__ = ("LARGE", "Held", "Room", "apart", "holder")

LARGE = 1024**2
"""Bytes from which on an answer is large: below it, a hundred calls at once take about as much memory as one that is as
large as it may be."""


class Room:
    """The room. An answer has some of it for as long as whoever asked for it keeps its bytes.

    Who finds none waits, the eldest first, and keeps what it has. That all wait for each other cannot be: one at a time
    goes beyond what there is until that is made up for, so that there are never more bytes than the room has and the
    largest of those who hold some; and what comes before its answer, where several are answered in turn.

    Args:
        size: Bytes of answers that may be there at once.
    """

    def __init__(self, size: int) -> None:
        self._free = size
        self._size = size
        self._present: dict[Held, None] = {}
        self._beyond: Held | None = None

    def held(self, behind: Callable[[], Iterable[Held]] = tuple) -> Held:
        """What keeps the room that the answers to what is asked inside it need, if they do.

        Args:
            behind: Tells who cannot go on before this one can: what they have, it need not wait for.
        """
        return Held(self, behind)

    async def take(self, size: int) -> None:
        """Find room for more of an answer. Returns at once where nobody counts, or who counted has left.

        Args:
            size: Bytes that it may have beside what was found for it before.
        """
        held = _HELD.get()
        if held is None or held.left:
            return
        try:
            await self.ask(held, size)
        except asyncio.CancelledError:
            # Those behind it may fit in now. What was given in the same moment goes with all that is held.
            self.serve()
            raise

    def ask(self, held: Held, size: int) -> asyncio.Future[None]:
        """Ask for more on behalf of somebody who has not left; done when it is there, or when they have left."""
        # A dict keeps the order in which they came first.
        self._present[held] = None
        found: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        held.waiting.append((size, found))
        self.serve()
        return found

    def hand_on(self, size: int, held: Held, to: Held) -> None:
        """Give some of what somebody has, as far as it goes, to somebody else, unless they have left."""
        size = min(size, held.size)
        if to.left or not size:
            return
        held.size -= size
        to.size += size
        self._present[to] = None
        if self._beyond is held:
            self._beyond = to

    def leave(self, held: Held) -> None:
        """Take back all that somebody has. Who still waits on its behalf is not counted any more."""
        if held not in self._present:
            return
        del self._present[held]
        for _, found in held.waiting:
            if not found.done():
                found.set_result(None)
        held.waiting.clear()
        self._free += held.size
        held.size = 0
        if self._beyond is held:
            # It may have handed on some, so that there is still no room.
            self._beyond = None
        self.serve()

    def serve(self) -> None:
        """Give to those who wait what they can have."""
        if self._free >= 0:
            self._beyond = None
        behind = False
        for held in self._present:
            while held.waiting:
                size, found = held.waiting[0]
                if found.cancelled():
                    held.waiting.popleft()
                    continue
                if (behind or size > self._free) and not self._may_go_beyond(held):
                    behind = True
                    break
                held.waiting.popleft()
                found.set_result(None)
                held.size += size
                self._free -= size
                if self._free < 0:
                    self._beyond = held

    def _may_go_beyond(self, held: Held) -> bool:
        """Whether somebody need not wait: who has some already if nobody else is beyond, and who is alone.

        What those behind it have, or are, counts as its own: they would wait for each other.
        """
        together = (held, *held.behind())
        if self._beyond is not None:
            return self._beyond in together
        return any(one.size > 0 for one in together) or self._free == self._size


class Held:
    """Enter it around what asks for an answer and hands it on.

    Attributes:
        size: Bytes of the room that it has.
        waiting: What it waits for: bytes, and what tells that they are there.
        left: Whether it is over. Work that goes on in its name has no room from then on, as none would come back.
        behind: Tells who cannot go on before this one can.
    """

    __slots__ = ("_room", "_token", "behind", "left", "size", "waiting")

    def __init__(self, room: Room, behind: Callable[[], Iterable[Held]] = tuple) -> None:
        self._room = room
        self.behind = behind
        self._token: Token[Held | None] | None = None
        self.size = 0
        self.waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self.left = False

    def apart(self) -> Held:
        """Another one, of the same room."""
        return Held(self._room)

    def __enter__(self) -> Self:
        self._token = _HELD.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        _HELD.reset(self._token)
        self.leave()

    def leave(self) -> None:
        """Give back what it has, for good."""
        self.left = True
        self._room.leave(self)


def apart() -> contextlib.AbstractContextManager[object]:
    """Enter it in a task that works for more than the one who started it: it holds what it needs by itself."""
    held = _HELD.get()
    return contextlib.nullcontext() if held is None else held.apart()


def holder() -> Held | None:
    """Who counts for what is asked here; None where nobody does."""
    return _HELD.get()


_HELD: ContextVar[Held | None] = ContextVar("held", default=None)
