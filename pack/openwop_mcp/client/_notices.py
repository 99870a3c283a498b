"""What a server sends beside its answers: progress, log messages, changes, and what an older server asks of its client.

Reads a message and tells whoever it concerns. Knows no wire; what it has to say back it returns.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from openwop_mcp import jsontext
from openwop_mcp.protocol import messages
from openwop_mcp.terminal import escape

__all__ = ("CHANGES", "Asked", "Notice", "Progress", "ServerLog", "read")

logger = logging.getLogger("openwop_mcp.messages")
"""What servers say. A name of its own, since what is said was asked for, whatever else is logged."""

PROGRESS = "notifications/progress"
MESSAGE = "notifications/message"

CHANGES = frozenset(
    {
        "notifications/tools/list_changed",
        "notifications/prompts/list_changed",
        "notifications/resources/list_changed",
        "notifications/resources/updated",
    }
)
"""Notifications that void what was read before (MCP 2026-07-28, caching)."""

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "notice": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "alert": logging.CRITICAL,
    "emergency": logging.CRITICAL,
}
"""MCP's levels, which are those of RFC 5424, the least first, in those of Python."""

SEVERITY = {name: severity for severity, name in enumerate(LEVELS)}
"""The order of the levels."""

MAX_LOGGED = 100
"""Log messages of one request that are written: enough to follow it by, too few to fill a disk with."""

MAX_MESSAGE = 200
"""Characters of a progress message that are passed on: a line for a person."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a request is (MCP 2026-07-28, progress).

    Attributes:
        progress: So much is done; grows with each notification.
        total: Of so much, if the server knows.
        message: What the server says of it: its words, escaped and cut.
    """

    progress: float
    total: float | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a server of a revision before 2026-07-28 asks of its client.

    Attributes:
        request_id: JSON text of the request's id.
        method: What is asked.
        params: JSON text of its params.
    """

    request_id: bytes
    method: str
    params: bytes


@dataclass(frozen=True, slots=True)
class Notice:
    """A message that is no answer.

    Attributes:
        method: Its method.
        params: JSON text of its params.
    """

    method: str
    params: bytes

    @property
    def subscription(self) -> bytes | None:
        """JSON text of the id of the ``subscriptions/listen`` that it belongs to, if it says so."""
        return jsontext.pointer(self.params, ["_meta", messages.SUBSCRIPTION_ID])

    def progress(self, token: int) -> Progress | None:
        """What it says of the request with that progress token, if it is about that and sound."""
        if self.method != PROGRESS or jsontext.member(self.params, "progressToken") != b"%d" % token:
            return None
        done = _number(jsontext.member(self.params, "progress"))
        if done is None:
            return None
        said = jsontext.member(self.params, "message")
        message = jsontext.decode(said) if said is not None and jsontext.kind(said) == "string" else None
        return Progress(done, _number(jsontext.member(self.params, "total")), message and _line(message))


def read(message: bytes) -> Notice | Asked | None:
    """Read a message that is no answer; None for what is none of JSON-RPC's."""
    try:
        found = dict(jsontext.members(message))
        method = jsontext.decode(found["method"])
    except (KeyError, jsontext.JsonTextError):
        return None
    params = found.get("params", b"{}")
    if not isinstance(method, str) or jsontext.kind(params) != "object":
        return None
    return Asked(found["id"], method, params) if "id" in found else Notice(method, params)


class ServerLog:
    """What a server may write to our log while it works on one request.

    Args:
        server: Its id in the settings.
        level: The level from which on it may; what is below is passed over, as older revisions set none per request.
        clean: Takes credentials out of a text.

    Attributes:
        least: The place of that level in their order.
    """

    __slots__ = ("_clean", "_server", "_taken", "least")

    def __init__(self, server: str, level: str, clean: Callable[[str], str]) -> None:
        self._server = server
        self.least = SEVERITY.get(level, 0)
        self._clean = clean
        self._taken = 0

    def take(self, notice: Notice) -> None:
        """Write a message at its level; once there have been too many, say so and write no more."""
        value = jsontext.member(notice.params, "level")
        level = jsontext.decode(value) if value is not None and jsontext.kind(value) == "string" else None
        data = jsontext.member(notice.params, "data")
        if data is None or level not in SEVERITY or SEVERITY[level] < self.least:
            return
        self._taken += 1
        if self._taken <= MAX_LOGGED:
            logger.log(LEVELS[level], "%s says: %s", self._server, self._clean(messages.excerpt(data)))
        elif self._taken == MAX_LOGGED + 1:
            logger.warning(
                "%s says more than %d things of one request: the rest is not shown", self._server, MAX_LOGGED
            )


def _number(value: bytes | None) -> float | None:
    if value is None or jsontext.kind(value) != "number":
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _line(text: str) -> str:
    # Cut before as well, as a server may write millions.
    line = escape(text[: MAX_MESSAGE + 1])
    return line if len(line) <= MAX_MESSAGE else line[: MAX_MESSAGE - 1] + "…"
