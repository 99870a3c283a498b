"""When a server is asked for its tools without anyone asking for them, and when it is better left alone. Pure.

A pause is as long as what it follows has lasted: so it doubles each time, begins anew by itself, and nothing counts.
"""

from __future__ import annotations

from openwop_mcp.catalog.state import Catalog, Failure

__all__ = ("is_backing_off", "pause")

LEAST = 60_000
"""Milliseconds between two lists of a server that answers, at least; who reads a stale catalog does not wait for it."""

MOST = 15 * 60_000
"""Milliseconds at most while nothing changes, unless the server says that a list is good for longer."""

LEAST_AFTER_FAILURE = 10_000
"""Milliseconds until a server that failed is tried again, at least: most are being restarted."""

MOST_AFTER_FAILURE = 10 * 60_000
"""Milliseconds at most, however long it has been failing."""


def pause(catalog: Catalog, since: int) -> int:
    """Milliseconds from the end of a refresh to the next one.

    Args:
        catalog: As it is after the refresh.
        since: Since when the list has been what it is, in milliseconds since 1970.
    """
    failure = catalog.failure
    if failure is not None:
        return _after_failure(failure)
    least = max(LEAST, catalog.ttl_ms)
    return _within((catalog.listed_at or 0) - since, least, max(MOST, least))


def is_backing_off(catalog: Catalog, now_ms: int) -> bool:
    """Whether the server has failed just now, for how long it has been failing: it is not worth waiting for.

    Args:
        catalog: The server's catalog.
        now_ms: Milliseconds since 1970.
    """
    return catalog.failure is not None and now_ms < catalog.failure.at + _after_failure(catalog.failure)


def _after_failure(failure: Failure) -> int:
    return _within(failure.at - failure.since, LEAST_AFTER_FAILURE, MOST_AFTER_FAILURE)


def _within(value: int, least: int, most: int) -> int:
    return min(max(value, least), most)
