"""The time limits of one request: which of them is running, which one fired. Knows nothing of HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import TimeLimitError

__all__ = ("Deadline",)


LAST_TURNS = 3
"""Turns of the event loop between the end of a limit and what follows from it. In them what has come by then is read,
which was in time where only the loop stood still; uvloop looks at its timers before it looks at its sockets."""


class Deadline:
    """One timer for a whole request, moved from phase to phase and never past the total limit.

    Enter it around the request; leave it with :class:`TimeLimitError` when the running limit fires. The timer is looked
    at when it fires and not moved at every phase, since nearly every request ends long before.

    Args:
        limits: The limits.
        server: See below.
        on_connected: Called when there is a connection.

    Attributes:
        server: Host and port of the server, to name it where no connection is had; empty without one.
        connected: Whether a connection was there to write to: before that nothing can have been sent.
        dialled: Whether the network policy let an address be dialled.
        refused: An address that it did not, and why, if there was one.
        hang_up: Closes the connection, also once the request is over.
    """

    __slots__ = (
        "_armed",
        "_before",
        "_due",
        "_end",
        "_fired",
        "_handle",
        "_held_back",
        "_limit",
        "_limits",
        "_loop",
        "_on_connected",
        "_seconds",
        "_task",
        "connected",
        "dialled",
        "hang_up",
        "refused",
        "server",
    )

    def __init__(self, limits: Timeouts, *, server: str = "", on_connected: Callable[[], None] | None = None) -> None:
        self.server = server
        self._on_connected = on_connected
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._end = self._loop.time() + limits.total
        self._due = self._end
        self._limit, self._seconds = "total", limits.total
        self._handle: asyncio.Handle | None = None
        self._armed = self._end
        self._task: asyncio.Task[Any] | None = None
        self._before = 0
        self._fired = False
        self._held_back = False
        self.hang_up: Callable[[], None] = _nothing
        self.elsewhere()

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None
        self._before = self._task.cancelling()
        self._run("connect", self._limits.connect)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.answered()
        # As in asyncio.timeout: a cancellation from elsewhere at the same time goes first.
        if self._fired and self._task is not None and self._task.uncancel() <= self._before:
            if kind is not asyncio.CancelledError:
                return
            nowhere = f" before there was a connection to {self.server}" if self.server and not self.connected else ""
            delivery = Delivery.UNKNOWN if self.connected else Delivery.NOT_SENT
            if self._held_back:
                raise TimeLimitError(
                    f"no answer: the '{self._limit}' limit of {self._seconds:g} s ran out while it waited for room in"
                    " the worker's memory, which other large answers had (setting limits.memory_bytes, or"
                    f" servers.<id>.timeouts.{self._limit})",
                    limit=self._limit,
                    seconds=self._seconds,
                    delivery=delivery,
                    setting="limits.memory_bytes",
                ) from None
            raise TimeLimitError(
                f"no answer: the '{self._limit}' limit of {self._seconds:g} s ran out{nowhere}"
                f" (setting servers.<id>.timeouts.{self._limit}, or the call's own timeout)",
                limit=self._limit,
                seconds=self._seconds,
                delivery=delivery,
            ) from None

    def elsewhere(self) -> None:
        """What was sent so far, if anything, was answered: it begins anew at another place, with no limit moved."""
        self.connected = False
        self.dialled = False
        self.refused: tuple[str, str] | None = None

    @property
    def left(self) -> float:
        """Seconds until the total limit, whichever is running; not below zero."""
        return max(0.0, self._end - self._loop.time())

    def sending(self, hang_up: Callable[[], None] | None = None) -> None:
        """A connection is there and the request is written from now on."""
        self.connected = True
        self.hang_up = hang_up or _nothing
        self._run("first_byte", self._limits.first_byte)
        if self._on_connected is not None:
            self._on_connected()

    def alive(self) -> None:
        """Something came, or is read again: the idle limit starts anew."""
        self._held_back = False
        self._run("idle", self._limits.idle)

    def resting(self) -> None:
        """Nothing is to come for a time that the server named: only the total limit goes on."""
        self._run("total", self._limits.total)

    def held_back(self) -> None:
        """What comes is not read for now, which is not the server's fault: only the total limit goes on."""
        self._held_back = True
        self.resting()

    def answered(self) -> None:
        """The verdict is known: what is still read has a bound of its own."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self, limit: str, seconds: float) -> None:
        due = self._loop.time() + seconds
        if due > self._end:
            due, limit, seconds = self._end, "total", self._limits.total
        self._limit, self._seconds, self._due = limit, seconds, due
        if self._handle is None or self._armed > due:
            self._arm()

    def _arm(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        # A handle does not always know its time: uvloop's has none where that has come already.
        self._armed = self._due
        self._handle = self._loop.call_at(self._due, self._look)

    def _look(self) -> None:
        self._handle = None
        if self._loop.time() < self._due:
            self._arm()
        else:
            self._handle = self._loop.call_soon(self._fire, LAST_TURNS)

    def _fire(self, turns: int) -> None:
        self._handle = None
        if self._loop.time() < self._due:
            self._arm()
        elif turns:
            self._handle = self._loop.call_soon(self._fire, turns - 1)
        elif self._task is not None:
            self._fired = True
            self._task.cancel()


def _nothing() -> None:
    """There is nothing to close."""
