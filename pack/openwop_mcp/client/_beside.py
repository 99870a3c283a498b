"""Work on long texts beside the event loop, so that other calls go on meanwhile. Knows nothing of what the work is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

__all__ = ("beside",)

T = TypeVar("T")

LONG = 256 * 1024
"""Bytes of a text from which on it is worked through in a thread: below that it takes under a millisecond where a
server means well, and a few where it writes the worst that there is."""


async def beside(text: bytes, work: Callable[[bytes], T]) -> T:
    """Work through a text, a long one in a thread."""
    return work(text) if len(text) < LONG else await asyncio.to_thread(work, text)
