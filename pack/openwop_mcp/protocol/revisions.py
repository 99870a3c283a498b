"""Which revisions of MCP are spoken, and which one is chosen. Knows no message and no transport."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

__all__ = ("COMPARED", "LEGACY", "MODERN", "choose")

MODERN = "2026-07-28"
"""The revision without handshake or session: every request carries what the server must know."""

LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26")
"""The revisions that begin with ``initialize``, newest first."""

COMPARED = date(2026, 11, 30)
"""When these were last compared with the revisions that there are. A date of this code and not of a process, since all
hosts of one version say the same; it is moved when somebody has looked."""


def choose(offered: Sequence[str], *, floor: str) -> str | None:
    """Choose the newest revision that both sides speak and that is not older than ``floor``; None if there is none."""
    # Revisions are ISO dates, so text order is time order.
    return next((ours for ours in (MODERN, *LEGACY) if ours in offered and ours >= floor), None)
