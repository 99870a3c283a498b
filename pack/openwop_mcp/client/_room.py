"""Room for large answers, of one process: how much of them is in memory at once. Knows nothing of what they are."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Self

__all__ = ("LARGE", "Room")

LARGE = 1024**2
"""Bytes from which on an answer is large: below it, a hundred calls at once take about as much memory as one that is as
large as it may be."""


class Room:
    """The room. An answer has some of it for as long as whoever asked for it keeps its bytes.

    Args:
        size: Bytes of answers that may be there at once. One that is larger waits until it is alone.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._free = size
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def held(self) -> Held:
        """What keeps the room that the answers to what is asked inside it need, if they do."""
        return Held(self)

    async def take(self, size: int) -> None:
        """Find room for an answer that turns out to be large; who waits longest is the first.

        Returns at once where whoever asked has some already, for another answer: nobody who has room waits for more,
        and so everyone gets some in the end. So it does where nobody counts.

        Args:
            size: Bytes that it may have.
        """
        held = _HELD.get()
        if held is None or held.size:
            return
        size = max(1, min(size, self._size))
        if self._waiting or size > self._free:
            await self._wait(size)
        else:
            self._free -= size
        held.size = size

    async def _wait(self, size: int) -> None:
        found = asyncio.get_running_loop().create_future()
        self._waiting.append((size, found))
        try:
            await found
        except asyncio.CancelledError:
            if found.cancelled():
                with contextlib.suppress(ValueError):
                    self._waiting.remove((size, found))
            # What it was given in the same moment is for others; and who stood behind it may fit in now.
            self.give_back(0 if found.cancelled() else size)
            raise

    def give_back(self, size: int) -> None:
        """Make room, and give it to who waits for it."""
        self._free += size
        while self._waiting and self._waiting[0][0] <= self._free:
            taken, found = self._waiting.popleft()
            if not found.cancelled():
                self._free -= taken
                found.set_result(None)


class Held:
    """Enter it around what asks for an answer and hands it on.

    Attributes:
        size: Bytes of the room that it has.
    """

    __slots__ = ("_room", "_token", "size")

    def __init__(self, room: Room) -> None:
        self._room = room
        self._token: Token[Held | None] | None = None
        self.size = 0

    def __enter__(self) -> Self:
        self._token = _HELD.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._token is not None
        _HELD.reset(self._token)
        if self.size:
            self._room.give_back(self.size)


_HELD: ContextVar[Held | None] = ContextVar("held", default=None)
