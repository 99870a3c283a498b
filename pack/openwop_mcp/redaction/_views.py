"""A text with its escapes read, of JSON, URLs, HTML and folded lines, and where in the text itself a place of it is.

Knows no secrets. All work is linear in the text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = ("CONTROLS", "LONGEST_REFERENCE", "NAMED", "REFERENCE_BEGUN", "Span", "View", "readings", "unescaped")

CONTROLS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
"""What JSON's short escapes stand for that do not stand for themselves."""

NAMED = {b"amp": b"&", b"apos": b"'", b"gt": b">", b"lt": b"<", b"quot": b'"'}
"""The characters that have a name in HTML and are written by it: those that mean something there."""

REFERENCE_BEGUN = rb"&(?:#(?:x[0-9a-f]{0,6}|[0-9]{0,7})?|[a-z]{0,4})?"
"""What may be the beginning of a reference to a character in HTML."""

LONGEST_REFERENCE = 9
"""Bytes of such a beginning at most."""

PIECE = 64 * 1024
"""Bytes of a text that are read at once."""

Span = tuple[int, int]

_OCTETS = {b"%02x" % octet: bytes([octet]).lower() for octet in range(256)}


def _json_character(found: re.Match[bytes]) -> bytes:
    code, character = found.groups()
    if code is not None:
        return chr(int(code, 16)).encode("utf-8", "surrogatepass").lower()
    return CONTROLS.get(character, character)


def _percent_character(found: re.Match[bytes]) -> bytes:
    return _OCTETS[found[1]]


def _html_character(found: re.Match[bytes]) -> bytes:
    hexadecimal, decimal, name = found.groups()
    if name is not None:
        return NAMED[name]
    code = int(decimal) if hexadecimal is None else int(hexadecimal, 16)
    return chr(code).encode("utf-8", "surrogatepass").lower() if code <= sys.maxunicode else found[0]


def _nothing(_: re.Match[bytes]) -> bytes:
    return b""


_Escape = tuple[re.Pattern[bytes], Callable[[re.Match[bytes]], bytes]]

_JSON: _Escape = re.compile(rb'\\(?:u([0-9a-f]{4})|(["\\/bfnrt]))'), _json_character
_PERCENT: _Escape = re.compile(rb"%([0-9a-f]{2})"), _percent_character
_HTML: _Escape = (
    re.compile(rb"&(?:#(?:x([0-9a-f]{1,6})|([0-9]{1,7}))|(%b));" % b"|".join(NAMED)),
    _html_character,
)
# Byte by byte, so that none is parted where a text is read in pieces.
_FOLD: _Escape = re.compile(rb"[\r\n]"), _nothing

_LAYERS: Sequence[Sequence[_Escape]] = ((_JSON, _PERCENT), (_JSON, _PERCENT), (_JSON,))
"""Escapes within escapes that are read: JSON in a string of JSON, a URL in a parameter of a URL; JSON once more."""

_INNERMOST: Sequence[_Escape] = (_HTML, _FOLD)
"""What is read in any but the last of these layers, and nothing within it: pages of errors, Base64 in lines."""

_BEGUN = re.compile(rb"(?:%%[0-9a-f]?|\\u[0-9a-f]{0,3}|%b)\Z" % REFERENCE_BEGUN)
"""What may be the beginning of an escape, but for a backslash alone."""

_LONGEST_BEGUN = LONGEST_REFERENCE


class View:
    """A text in lower case, as it is or with its escapes read.

    Args:
        data: The text.
        source: What was read, None if this is the text itself.
        escape: The escapes that were read in it.
    """

    __slots__ = ("_escape", "_source", "data")

    def __init__(self, data: bytes, source: View | None = None, escape: _Escape = _JSON) -> None:
        self.data = data
        self._source = source
        self._escape = escape

    def read(self, escape: _Escape) -> View | None:
        """The text with its escapes read; None if there are none."""
        pattern, character = escape
        if pattern.search(self.data) is None:
            return None
        # Piece by piece, since what is substituted at once takes many times its memory.
        return View(b"".join(pattern.sub(character, piece) for piece in _pieces(self.data)), self, escape)

    def origins(self, spans: Sequence[Span]) -> list[Span]:
        """The places in the text itself that places in this one, none of them empty, were read from."""
        if self._source is None or not spans:
            return list(spans)
        read = self._read_from(sorted({position for start, end in spans for position in (start, end - 1)}))
        return self._source.origins([(read[start][0], read[end - 1][1]) for start, end in spans])

    def _read_from(self, positions: Sequence[int]) -> dict[int, Span]:
        """What of the source single bytes were read from, given in order: one pass, as a text may be all escapes."""
        assert self._source is not None
        pattern, character = self._escape
        read: dict[int, Span] = {}
        saved = done = 0
        for found in pattern.finditer(self._source.data):
            start = found.start() - saved
            end = start + len(character(found))
            while done < len(positions) and positions[done] < end:
                position = positions[done]
                read[position] = found.span() if position >= start else (position + saved, position + saved + 1)
                done += 1
            if done == len(positions):
                return read
            saved = found.end() - end
        read.update((position, (position + saved, position + saved + 1)) for position in positions[done:])
        return read


def _pieces(data: bytes) -> Iterator[bytes]:
    """A text in pieces, none of which ends within an escape."""
    start = 0
    while len(data) - start > PIECE:
        piece = data[start : start + PIECE]
        if (begun := _BEGUN.search(piece, PIECE - _LONGEST_BEGUN)) is not None:
            piece = piece[: begun.start()]
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2:
            piece = piece[:-1]
        yield piece
        start += len(piece)
    yield data[start:]


def unescaped(data: bytes) -> View:
    """JSON with its escapes read: in it, each byte is of a whole character of a string, or of no string."""
    view = View(data)
    return view.read(_JSON) or view


def readings(root: View, promising: Callable[[bytes], object]) -> Iterator[View]:
    """A text in all the ways to read its escapes.

    Args:
        root: The text.
        promising: Whether a text has escapes that are worth reading.
    """
    seen = {root.data}
    layer = [root]
    yield root
    for escapes in _LAYERS:
        worth_reading = [view for view in layer if promising(view.data)]
        yield from _read(worth_reading, _INNERMOST)
        layer = []
        for view in _read(worth_reading, escapes):
            if view.data not in seen:
                seen.add(view.data)
                layer.append(view)
        yield from layer


def _read(views: Iterable[View], escapes: Iterable[_Escape]) -> Iterator[View]:
    return (read for view in views for escape in escapes if (read := view.read(escape)) is not None)
