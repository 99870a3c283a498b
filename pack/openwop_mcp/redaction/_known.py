"""The secrets that this process has read, for what is written of it as a whole: its log.

One process has one log, so that there is one of it. It is told of a secret by whoever reads it, before it is used.
"""

from __future__ import annotations

from collections import Counter

from openwop_mcp.redaction._redactor import Redactor

__all__ = ("KNOWN", "Known")


class Known:
    """Secrets that several parts of a process know, each for as long as one of them does."""

    def __init__(self) -> None:
        self._redactor = Redactor((), most=None)
        self._holders: Counter[str] = Counter()

    @property
    def redactor(self) -> Redactor:
        """Replaces them."""
        return self._redactor

    def add(self, value: str) -> None:
        """One more part knows it."""
        self._holders[value] += 1
        self._redactor.add(value)

    def drop(self, value: str) -> None:
        """A part that knew it does so no more."""
        self._holders[value] -= 1
        if self._holders[value] <= 0:
            del self._holders[value]
            self._redactor.drop(value)


KNOWN = Known()
"""All that this process has read."""
