"""Looks for any of many byte strings in a text at once, whatever their number, and for escapes that could hide one.

Pure, immutable, and linear in the text. Knows not what the strings stand for.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from openwop_mcp.redaction._views import CONTROLS, NAMED, Span

__all__ = ("Search",)

GRAM = 4
"""Bytes that are looked up at once: enough that ordinary text seldom has those of a credential."""

MAX_STRIDE = 29
"""Bytes from one look-up to the next at most, however long the strings are: so many look-ups lead to each of them."""

ASCII = 0x80
"""Bytes below it are characters of their own."""

_ALWAYS = frozenset(b"\\%&u0123456789abcdef")
"""What an escape within an escape is made of: it may be escaped itself."""

_LINE = rb"[a-z0-9+/\\_\r-]{40}"
"""The end of a line of Base64 that may go on in the next: shorter ones are not made, and longer words are rare."""


class Search:
    """Some strings to look for.

    Every so many bytes of a text four are looked up in a table. The strings are longer than that stride, so that one of
    the look-ups falls into each of them.

    Args:
        needles: The strings, in lower case; each of 8 bytes at least.
    """

    def __init__(self, needles: Iterable[bytes]) -> None:
        needles = tuple(dict.fromkeys(needles))
        self._stride = min([MAX_STRIDE, *(len(needle) - GRAM + 1 for needle in needles)])
        self._grams: defaultdict[bytes, list[tuple[bytes, int]]] = defaultdict(list)
        for needle in needles:
            # At their ends, as many tokens of one issuer begin alike.
            first = len(needle) - GRAM + 1 - self._stride
            for offset in range(first, first + self._stride):
                self._grams[needle[offset : offset + GRAM]].append((needle, offset))
        self._needles = needles
        self._escapes = _hiding(frozenset().union(*needles)) if needles else ()

    def may_hold(self, data: bytes) -> bool:
        """Whether a text holds one of the strings, or escapes that could spell one: mostly neither, which costs little.

        Args:
            data: The text, in lower case.
        """
        return bool(self._needles) and (self.promising(data) or next(self.spans(data), None) is not None)

    def promising(self, data: bytes) -> bool:
        """Whether a text has escapes that may be those of a character in the strings."""
        return any(escape.search(data) is not None for escape in self._escapes)

    def spans(self, data: bytes) -> Iterator[Span]:
        """Wherever one of the strings is, overlaps included."""
        grams = self._grams
        hits = [at for at in range(0, len(data) - GRAM + 1, self._stride) if data[at : at + GRAM] in grams]
        for at in hits:
            for needle, offset in grams[data[at : at + GRAM]]:
                start = at - offset
                if start >= 0 and data.startswith(needle, start):
                    yield start, start + len(needle)


def _hiding(characters: frozenset[int]) -> Sequence[re.Pattern[bytes]]:
    r"""Escapes of certain characters, whether or not what stands before them makes them others.

    One within another, as in ``\\u0041``, holds one.
    """
    shown = characters | _ALWAYS
    octets = sorted({octet for byte in shown if byte < ASCII for octet in {byte, *bytes([byte]).upper()}})
    codes = [b"%02x" % octet for octet in octets]
    by_first: dict[bytes, bytes] = {}
    for code in codes:
        by_first[code[:1]] = by_first.get(code[:1], b"") + code[1:]
    hexadecimal = b"|".join(b"%b[%b]" % (first, seconds) for first, seconds in by_first.items())
    short = b'"\\/' + b"".join(CONTROLS)
    stands_for = {letter: CONTROLS.get(bytes([letter]), bytes([letter])) for letter in short}
    letters = bytes(letter for letter, character in stands_for.items() if character[0] in characters)
    by_letter = b"|[%b]" % re.escape(letters) if letters else b""
    beyond = any(byte >= ASCII for byte in characters)
    unicode = b"u" if beyond else b"u00(?:%b)" % hexadecimal
    percent = hexadecimal + (b"|[89a-f]" if beyond else b"")
    decimal = b"|".join(b"%d" % octet for octet in octets)
    names = b"".join(b"|%b" % name for name, character in NAMED.items() if character[0] in characters)
    references = b"#(?:x0{0,4}(?:%b)|0{0,5}(?:%b))%b" % (hexadecimal, decimal, names)
    if beyond:
        references += b"|#[0-9a-fx]{2,8}"
    # One for each character that they begin with, since a search for such skips to it.
    return (
        re.compile(rb"\\(?:%b%b|n(?<=%b\\n))" % (unicode, by_letter, _LINE)),
        re.compile(b"%%(?:%b)" % percent),
        re.compile(b"&(?:%b);" % references),
        re.compile(rb"\n(?<=%b\n)" % _LINE),
    )
