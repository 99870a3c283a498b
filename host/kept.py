"""What a host remembers so as not to work it out again: within a number of bytes, the latest used stays.

Knows neither what it keeps nor how large that is.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

__all__ = ("Kept",)

T = TypeVar("T")


class Kept(Generic[T]):
    """Things by their keys.

    Args:
        max_bytes: What all may take up together. The one that was put last stays though it be larger by itself.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._things: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes that all take up."""
        return self._size

    def put(self, key: Hashable, thing: T, size: int) -> None:
        """Keep a thing, in place of what had its key, and forget what was not used for longest to make room."""
        self.pop(key)
        self._things[key] = thing, size
        self._size += size
        while self._size > self._max_bytes and len(self._things) > 1:
            _, (_, freed) = self._things.popitem(last=False)
            self._size -= freed

    def get(self, key: Hashable) -> T | None:
        """A thing, which is thereby used; None if it is not there any more."""
        found = self._things.get(key)
        if found is None:
            return None
        self._things.move_to_end(key)
        return found[0]

    def pop(self, key: Hashable) -> T | None:
        """Take a thing out; None if it is not there any more."""
        found = self._things.pop(key, None)
        if found is None:
            return None
        self._size -= found[1]
        return found[0]
