"""The secrets that this process has read, for what is written of it as a whole: its log.

One process has one log, so that there is one of it. It is told of a secret by whoever reads it, before it is used.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable

from openwop_mcp.redaction._redactor import Redactor

__all__ = ("KNOWN", "MAX_READ", "Known")

MAX_READ = 4
"""Secrets of one place that stay known: what it holds now, and what may still be in use where its file rotates."""


class Known:
    """Secrets that several parts of a process know, each for as long as one of them does."""

    def __init__(self) -> None:
        self._redactor = Redactor(())
        self._holders: Counter[str] = Counter()
        self._read: defaultdict[Hashable, list[str]] = defaultdict(list)

    @property
    def redactor(self) -> Redactor:
        """Replaces them."""
        return self._redactor

    def add(self, value: str) -> None:
        """One more part knows it."""
        self._holders[value] += 1
        self._redactor.add(value)

    def read(self, place: Hashable, value: str) -> None:
        """A place of the settings holds it now; of what one held before, only the last are known."""
        held = self._read[place]
        if value in held:
            held.remove(value)
        else:
            self.add(value)
        held.append(value)
        if len(held) > MAX_READ:
            self.drop(held.pop(0))

    def drop(self, value: str) -> None:
        """A part that knew it does so no more."""
        self._holders[value] -= 1
        if self._holders[value] <= 0:
            del self._holders[value]
            self._redactor.drop(value)


KNOWN = Known()
"""All that this process has read."""
