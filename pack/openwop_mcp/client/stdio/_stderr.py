"""What a server writes to standard error: line by line in the worker's log, and its last words for errors."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from openwop_mcp.client.stdio._lines import Cut, Lines
from openwop_mcp.protocol.messages import EXCERPT_BYTES, MAX_EXCERPT, excerpt
from openwop_mcp.redaction import Redactor

__all__ = ("LOGGED_LINES", "ServerLog")

LOGGED_LINES = 100
"""Lines that are logged in a second: enough for a stack trace, too few to fill a disk."""

LAST_LINES = 3
"""Lines that an error repeats, as far as they fit an excerpt."""


class ServerLog:
    """One process's standard error, in the logger ``openwop_mcp.server.<server_id>``."""

    def __init__(self, server_id: str, redactor: Redactor) -> None:
        self._logger = logging.getLogger(f"openwop_mcp.server.{server_id}")
        self._redactor = redactor
        self._lines = Lines(EXCERPT_BYTES)
        self._last: deque[bytes] = deque(maxlen=LAST_LINES)
        self._in_second = 0
        self._second: asyncio.TimerHandle | None = None

    def feed(self, data: bytes) -> None:
        """Take what arrived."""
        for line in self._lines.feed(data):
            self._line(line)

    def close(self) -> str:
        """Take the end of it; returns the last lines, as much as fits an excerpt."""
        self._line(self._lines.close())
        if self._second is not None:
            self._second.cancel()
            self._next_second()
        text = " | ".join(map(self._shown, self._last))
        return text if len(text) <= MAX_EXCERPT else f"…{text[1 - MAX_EXCERPT :]}"

    def _line(self, line: bytes | Cut) -> None:
        text = (line.head if isinstance(line, Cut) else line).strip()
        if not text:
            return
        self._last.append(text)
        self._in_second += 1
        if self._second is None:
            self._second = asyncio.get_running_loop().call_later(1, self._next_second)
        if self._in_second <= LOGGED_LINES and self._logger.isEnabledFor(logging.INFO):
            self._logger.info("%s", self._shown(text))

    def _next_second(self) -> None:
        if self._in_second > LOGGED_LINES:
            self._logger.info("%d more lines came in a second and were dropped", self._in_second - LOGGED_LINES)
        self._in_second, self._second = 0, None

    def _shown(self, line: bytes) -> str:
        return self._redactor.text(excerpt(line))
