"""The stream on which an older server says what belongs to no request (MCP 2025-11-25, Streamable HTTP, listening).

Owns one such stream: opens it, takes it up again where it ended, and leaves it where the server has none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import httpx

from openwop_mcp.client._answers import AnswerReader, StreamCutError
from openwop_mcp.client._deadline import Deadline
from openwop_mcp.client._faults import NETWORK_FAULTS
from openwop_mcp.client._wire import OnMessage, SizeLimits
from openwop_mcp.config import Timeouts
from openwop_mcp.errors import HttpStatusError, McpError

__all__ = ("StandingStream",)

LASTING = Timeouts(connect=5, first_byte=3600, idle=3600, total=3600)
"""Seconds: it may be silent for as long as it is open, and is opened anew after an hour."""

REST = 1.0
"""Seconds until it is opened again where the server named no time."""

LONGEST_REST = 60.0
"""Seconds of rest at most, while the server cannot be reached or whatever time it named."""


class StandingStream:
    """One stream, from its opening to :meth:`close`.

    Args:
        get: Opens it: takes the id of the last event, if there was one, and the limits.
        on_message: Takes each message.
        sizes: Limits in bytes.
    """

    def __init__(
        self,
        get: Callable[[str | None, Deadline], Awaitable[httpx.Response]],
        on_message: OnMessage,
        sizes: SizeLimits,
    ) -> None:
        self._get = get
        self._on_message = on_message
        self._sizes = sizes
        self._task = asyncio.get_running_loop().create_task(self._listen())

    def leave(self) -> None:
        """Let the stream end by itself."""
        self._task.cancel()

    async def close(self) -> None:
        """Leave the stream, and wait until it is left."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _listen(self) -> None:
        last: str | None = None
        rest = REST
        while True:
            wait = rest
            try:
                await self._once(last)
                rest = REST
            except StreamCutError as cut:
                last, rest = cut.last_event_id, REST
                wait = min(LONGEST_REST, cut.wait)
            except HttpStatusError:
                # It has none, or does not know the session any more: calls find out what that means.
                return
            except (McpError, *NETWORK_FAULTS):
                rest = min(LONGEST_REST, rest * 2)
            await asyncio.sleep(wait)

    async def _once(self, last: str | None) -> None:
        async with (deadline := Deadline(LASTING)):
            response = await self._get(last, deadline)
            reader = AnswerReader(self._sizes, deadline, self._on_message, resumable=True, lasting=True)
            async with contextlib.aclosing(response):
                await reader.read(response)
