"""Which revisions of MCP are spoken, and which one is chosen. Knows no message and no transport."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ("LEGACY", "MODERN", "choose")

MODERN = "2026-07-28"
"""The revision without handshake or session: every request carries what the server must know."""

LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26")
"""The revisions that begin with ``initialize``, newest first."""


def choose(offered: Sequence[str], *, floor: str) -> str | None:
    """Choose the newest revision that both sides speak and that is not older than ``floor``; None if there is none."""
    # Revisions are ISO dates, so text order is time order.
    return next((ours for ours in (MODERN, *LEGACY) if ours in offered and ours >= floor), None)
