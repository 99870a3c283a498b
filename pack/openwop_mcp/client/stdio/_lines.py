"""Lines from bytes, of bounded size. Knows nothing of what they say."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ("HEAD_BYTES", "TAIL_BYTES", "Cut", "Lines")

HEAD_BYTES = 4096
"""Bytes kept of a line that is too long: its id mostly stands before its result."""

TAIL_BYTES = 256
"""Bytes kept of its end, where some servers write the id."""

_BOM = b"\xef\xbb\xbf"


class Cut(NamedTuple):
    """A line over the limit, of which only the ends were kept."""

    head: bytes
    tail: bytes
    size: int


class Lines:
    """Cuts a stream into lines without their ends; of one over the limit, in bytes, only the ends are held."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held, self._size = bytearray(), 0
        self._mark = _BOM

    def feed(self, chunk: bytes) -> list[bytes | Cut]:
        """Take what arrived and return the lines that it completes."""
        *ended, rest = chunk.split(b"\n")
        lines = [self._end(piece) for piece in ended]
        self._hold(rest)
        return lines

    @property
    def held(self) -> int:
        """Bytes of a line that is not complete yet, as far as they are held."""
        return len(self._held)

    def close(self) -> bytes | Cut:
        """Return what the end of the stream left without an end of its own."""
        return self._end(b"")

    def _hold(self, piece: bytes) -> None:
        self._size += len(piece)
        self._held += piece
        if self._size > self._limit:
            del self._held[HEAD_BYTES:-TAIL_BYTES]

    def _end(self, piece: bytes) -> bytes | Cut:
        self._hold(piece)
        held, size, mark = bytes(self._held), self._size, self._mark
        # A mark of the byte order can stand before the first line only.
        self._held, self._size, self._mark = bytearray(), 0, b""
        if size > self._limit:
            return Cut(held[:HEAD_BYTES].removeprefix(mark), held[-TAIL_BYTES:], size)
        return held.removeprefix(mark).removesuffix(b"\r")
