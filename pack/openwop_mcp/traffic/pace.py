"""A token bucket: so many calls a second, some of them at once. Pure; whoever asks says what time it is."""

from __future__ import annotations

__all__ = ("Pace",)


class Pace:
    """The pace of calls to one server.

    Kept as the time at which the bucket would be full again, so that nothing has to fill it.

    Args:
        rate: Calls a second, over 0.
        burst: Calls that may follow one another at once, 1 at least.
    """

    __slots__ = ("_every", "_full_at", "_promised", "_slack")

    def __init__(self, rate: float, burst: int) -> None:
        self._every = 1 / rate
        self._slack = (burst - 1) / rate
        self._full_at = float("-inf")
        self._promised = float("-inf")

    def wait(self, now: float) -> float:
        """Seconds until a call may go; 0 where it may go now."""
        return max(0.0, self._full_at - self._slack - now)

    def take(self, now: float) -> None:
        """Have a call go."""
        self._full_at = max(self._full_at, now) + self._every

    def promise(self, now: float) -> float:
        """Seconds after which to come again: each who asks is sent away for longer than the one before.

        Nothing is kept for them, as they may never come; but they do not all come at once.
        """
        self._promised = max(self._promised, self._full_at - self._slack, now) + self._every
        return self._promised - now
