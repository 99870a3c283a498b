"""How a run is paused and resumed in Temporal: the Updates that do it, and the memo that shows it.

Knows shapes and names, which are persisted and never renamed; not what a pause stops.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from openwop_mcp import jsontext
from openwop_mcp.runs.events import timestamp

__all__ = ("PAUSE", "PAUSED", "RESUME", "DrainPolicy", "Pause", "Resume", "encode_taken")

PAUSE = "openwop-mcp.pauseRun"
"""The Update that a run is paused with; its one argument is a :class:`Pause`, its result says when."""

RESUME = "openwop-mcp.resumeRun"
"""The Update that a paused run is resumed with; its one argument is a :class:`Resume`, its result says when."""

PAUSED = "openwop-mcp.paused"
"""The memo that is true as long as a run is paused. A run that has ended may keep it: its status says more."""

DrainPolicy = Literal["drain-current-node", "immediate"]
"""What becomes of the attempts under way: they come to their end, or are cut (OpenWOP v2, runs)."""


@dataclass(frozen=True, slots=True)
class Pause:
    """A wish that a run be paused.

    Attributes:
        drain_policy: What becomes of the attempts under way.
        reason: Why, in the words of who asked.
    """

    drain_policy: DrainPolicy = "drain-current-node"
    reason: str | None = None

    def encode(self) -> bytes:
        """JSON text."""
        return jsontext.encode({**_told(self.reason), "drainPolicy": self.drain_policy})

    @classmethod
    def decode(cls, data: bytes) -> Pause:
        """Read what :meth:`encode` wrote.

        Raises:
            ValueError: It is no such text.
        """
        members = _members(data)
        policy = members.get("drainPolicy", "drain-current-node")
        if policy not in get_args(DrainPolicy):
            raise ValueError("drainPolicy is none that there is")
        return cls(policy, members.get("reason"))


@dataclass(frozen=True, slots=True)
class Resume:
    """A wish that a paused run go on.

    Attributes:
        reason: Why, in the words of who asked.
    """

    reason: str | None = None

    def encode(self) -> bytes:
        """JSON text."""
        return jsontext.encode(_told(self.reason))

    @classmethod
    def decode(cls, data: bytes) -> Resume:
        """Read what :meth:`encode` wrote.

        Raises:
            ValueError: It is no such text.
        """
        return cls(_members(data).get("reason"))


def encode_taken(at: float) -> bytes:
    """JSON text of the answer to either Update: when it was taken, in seconds since 1970."""
    return jsontext.encode({"at": timestamp(round(at * 1000))})


def _told(reason: str | None) -> Mapping[str, str]:
    return {} if reason is None else {"reason": reason}


def _members(data: bytes) -> Mapping[str, Any]:
    members = jsontext.decode(data)
    if not isinstance(members, dict) or not isinstance(members.get("reason", ""), str):
        raise ValueError("not an object, or its reason no string")  # noqa: TRY004 - it is the text that is wrong
    return members
