"""The time limits of one request: which of them is running, which one fired. Knows nothing of HTTP."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import TimeLimitError

__all__ = ("Deadline",)


class Deadline:
    """One timer for a whole request, moved from phase to phase and never past the total limit.

    Enter it around the request; leave it with :class:`TimeLimitError` when the running limit fires.

    Attributes:
        connected: Whether a connection was there to write to: before that nothing can have been sent.
    """

    __slots__ = ("_end", "_limit", "_limits", "_loop", "_seconds", "_timeout", "connected")

    def __init__(self, limits: Timeouts) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._end = self._loop.time() + limits.total
        self._timeout = asyncio.timeout(None)
        self._limit, self._seconds = "total", limits.total
        self.connected = False

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        self._run("connect", self._limits.connect)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            raise TimeLimitError(
                f"no answer: the '{self._limit}' limit of {self._seconds:g} s ran out"
                f" (setting servers.<id>.timeouts.{self._limit}, or the call's own timeout)",
                limit=self._limit,
                seconds=self._seconds,
                delivery=Delivery.UNKNOWN if self.connected else Delivery.NOT_SENT,
            ) from None

    def sending(self) -> None:
        """A connection is there and the request is written from now on."""
        self.connected = True
        self._run("first_byte", self._limits.first_byte)

    def alive(self) -> None:
        """Something came: the idle limit starts anew."""
        self._run("idle", self._limits.idle)

    def answered(self) -> None:
        """The verdict is known: what is still read has a bound of its own."""
        self._timeout.reschedule(None)

    def _run(self, limit: str, seconds: float) -> None:
        when = self._loop.time() + seconds
        if when > self._end:
            when, limit, seconds = self._end, "total", self._limits.total
        self._limit, self._seconds = limit, seconds
        self._timeout.reschedule(when)
