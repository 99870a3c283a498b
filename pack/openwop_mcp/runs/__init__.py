"""Runs: definition, start, state machine, events, and the projection of a history into events. Knows no I/O."""

from __future__ import annotations

__all__ = ()
