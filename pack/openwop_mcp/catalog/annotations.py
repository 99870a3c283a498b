"""MCP's four hints about a tool, derived from what the host says of it and from nothing else. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from openwop_mcp.config import EffectivePolicy

__all__ = ("HINTS", "hints")

HINTS: Mapping[str, tuple[str, frozenset[str]]] = {
    "readOnlyHint": ("safety_tier", frozenset({"pure", "read"})),
    "destructiveHint": ("safety_tier", frozenset({"write", "exec"})),
    "idempotentHint": ("replay_policy", frozenset({"deterministic", "idempotent"})),
    "openWorldHint": ("egress", frozenset({"safe-fetch", "host-mediated", "host-owned"})),
}
"""Of each hint the field that decides it, and with which values it is true (OpenWOP v2, tool catalog).

MCP's own defaults play no part: there a tool that says nothing is destructive and meets an open world.
"""


def hints(policy: EffectivePolicy) -> dict[str, bool]:
    """All four hints, in the table's order."""
    return {hint: getattr(policy, field) in values for hint, (field, values) in HINTS.items()}
