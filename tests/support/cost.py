"""What work costs in processor time, whatever else the machine and the process do."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ("cost",)

TIMES = 3
"""A collection of garbage that others left, or a processor that is throttled, hardly comes as often in a row."""


def cost(work: Callable[[], object]) -> float:
    """Seconds of this thread's processor time that some work takes, the least of a few times."""

    def once() -> float:
        began = time.thread_time()
        work()
        return time.thread_time() - began

    return min(once() for _ in range(TIMES))
