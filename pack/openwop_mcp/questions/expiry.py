"""What becomes of a question that nobody answered in time. Pure words and codes; who waits keeps the time."""

from __future__ import annotations

from openwop_mcp.questions.question import Kind

__all__ = ("EXPIRED", "REJECTED", "expired_code", "expired_message")

EXPIRED = "interrupt_expired"
"""Code of what failed as nobody answered."""

REJECTED = "approval_rejected"
"""Code of what failed as somebody said no, or said nothing where they had to say yes."""


def expired_code(kind: Kind) -> str:
    """The code of what failed as a question of a kind had no answer: an approval that nobody gave is none."""
    return REJECTED if kind == "approval" else EXPIRED


def expired_message(timeout_ms: int, *, called: bool) -> str:
    """Why it failed.

    Args:
        timeout_ms: How long was waited.
        called: Whether a server waits for the answer, which is then not called again.
    """
    rest = ", and the server was not called again" if called else ""
    return f"nobody answered within {timeout_ms / 1000:g} s{rest}"
