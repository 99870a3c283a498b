"""The versions of the engine that runs are driven and told by, and what each of them does that others do not.

A run keeps the version that it was started with. Whatever alters a log that was told before, or a command that was
given, is a feature of a new version; those of before stay as they are. Knows features by name alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

__all__ = ("ENGINES", "ENGINE_VERSION", "Feature")

Feature = Literal["questions", "tool-sessions", "earlier-attempts"]
"""``questions``: a node waits with what its server asks and with approvals of its call, and gates are nodes.
``tool-sessions``: the log tells when a node began to call its tool, and when it was done with it.
``earlier-attempts``: the failure of a node says so where its last attempt sent nothing and one before it may have."""

ENGINES: Mapping[int, frozenset[Feature]] = MappingProxyType(
    {
        1: frozenset(),
        2: frozenset({"questions", "tool-sessions"}),
        3: frozenset({"questions", "tool-sessions", "earlier-attempts"}),
    }
)
"""Every version that can still be run and told, with its features."""

ENGINE_VERSION = max(ENGINES)
"""The version that a run is started with: the newest, as only a run that is under way depends on another."""
