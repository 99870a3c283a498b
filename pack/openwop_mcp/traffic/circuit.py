"""A circuit: after connections that failed in a row, one call at a time finds out whether they are had again.

Pure; whoever asks says what time it is.
"""

from __future__ import annotations

from typing import Literal

__all__ = ("Circuit", "CircuitState")

CircuitState = Literal["closed", "open", "probing"]
"""Calls go; none goes until the rest is over, and then one; one has gone, and all others wait for how that ends."""


class Circuit:
    """The circuit of one server.

    Args:
        failures: Connections in a row that have to fail for it to open; 0 for never.
        rest: Seconds for which it then stays open, until a call probes the server.

    Attributes:
        state: Where it stands.
        failed: How many connections have failed since one was had.
    """

    __slots__ = ("_failures", "_rest", "_until", "failed", "state")

    def __init__(self, failures: int, rest: float) -> None:
        self._failures = failures
        self._rest = rest
        self._until = 0.0
        self.state: CircuitState = "closed"
        self.failed = 0

    def wait(self, now: float) -> float | None:
        """Seconds until a call may go: 0 where it may go now, None where that depends on the one that probes."""
        if self.state == "closed":
            return 0.0
        return None if self.state == "probing" else max(0.0, self._until - now)

    def begin(self) -> bool:
        """Have a call go that may; tells whether it probes."""
        if self.state == "closed":
            return False
        self.state = "probing"
        return True

    def connected(self, *, probe: bool) -> bool:
        """Hear that a call had a connection; tells whether that closes the circuit.

        Of a call that began before the circuit opened nothing follows: it may have had its connection since before.
        """
        if self.state != "closed" and not probe:
            return False
        closes = self.state != "closed"
        self.state, self.failed = "closed", 0
        return closes

    def unconnected(self, now: float, *, probe: bool) -> bool:
        """Hear that a call got no connection; tells whether that opens a circuit that was closed."""
        if self.state != "closed" and not probe:
            return False
        opens = self.state == "closed"
        self.failed += 1
        if not self._failures or self.failed < self._failures:
            return False
        self.state, self._until = "open", now + self._rest
        return opens

    def given_up(self, *, probe: bool) -> None:
        """Hear that nobody knows whether a call would have had a connection: if it was to probe, another does."""
        if probe and self.state == "probing":
            self.state = "open"
