"""Text from servers on a terminal: every character that could act, hide or reorder is shown as an escape instead.

Owns what may reach a person's screen. Knows nothing of what the text means, and never alters what goes to a file or a
pipe.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ("escape", "escape_json", "json_for", "table")

INVISIBLE = frozenset(
    (
        0x034F,  # combining grapheme joiner
        0x115F,  # Hangul fillers: letters by category, blank on screen
        0x1160,
        0x3164,
        0xFFA0,
        0x17B4,  # Khmer inherent vowels
        0x17B5,
        *range(0x180B, 0x1810),  # Mongolian variation selectors
        *range(0xFE00, 0xFE0E),  # variation selectors, which can carry a hidden message byte by byte
        *range(0xE0000, 0xE1000),  # tags and the supplementary variation selectors, for the same reason
    )
)
"""Characters that Unicode calls printable and that show nothing. U+FE0E and U+FE0F stay: ordinary emoji need them."""

BEYOND_BMP = 0x10000
"""From here on JSON writes a character as two escapes."""

_CARRIAGE_RETURN = re.compile(r"\r\n?")


def _is_safe(code: int) -> bool:
    """Whether a character takes its own place on the screen and does nothing else."""
    character = chr(code)
    if code in INVISIBLE:
        return False
    # str.isprintable refuses controls, format characters (bidi, zero-width), line separators, surrogates, private use
    # and unassigned ones. It also refuses spaces other than U+0020, which are harmless.
    return character.isprintable() or unicodedata.category(character) == "Zs"


class _Escapes(dict[int, str]):
    """A table for ``str.translate`` that decides a character when it is first met, and remembers."""

    def __missing__(self, code: int) -> str:
        # Unicode has 1.1 million characters, so what a server makes us remember is bounded.
        shown = self[code] = chr(code) if _is_safe(code) else self.write(code)
        return shown

    def write(self, code: int) -> str:
        return f"\\u{{{code:x}}}"


class _JsonEscapes(_Escapes):
    def write(self, code: int) -> str:
        if code < BEYOND_BMP:
            return f"\\u{code:04x}"
        high, low = divmod(code - BEYOND_BMP, 0x400)
        return f"\\u{0xD800 + high:04x}\\u{0xDC00 + low:04x}"


_LINE = _Escapes()
_LINES = _Escapes({ord("\n"): "\n", ord("\t"): "\t"})
_JSON = _JsonEscapes({ord("\n"): "\n", ord("\t"): "\t"})


def escape(text: str, *, multiline: bool = False) -> str:
    r"""Make text from anywhere safe to print; what could act on a terminal or deceive its reader becomes ``\u{...}``.

    Args:
        text: Any string, lone surrogates included.
        multiline: Let line feeds and tabs stand.
    """
    return text.translate(_LINES if multiline else _LINE)


def escape_json(text: str) -> str:
    r"""JSON text of equal value, safe to print; what could act on a terminal becomes an escape (``\u202e``).

    Args:
        text: Valid JSON text. Outside strings it may hold line feeds and tabs, which stand.
    """
    return text.translate(_JSON)


def json_for(stream: TextIO, data: bytes) -> str:
    r"""JSON text for ``stream``: as it stands, or, on a terminal, of equal value with escapes (``\u202e``).

    Args:
        stream: Where the text will be written.
        data: Valid JSON text. That is what makes the escapes harmless: outside strings it holds no such character.
    """
    text = data.decode()
    if not stream.isatty():
        return text
    # A carriage return between values would let later text overwrite earlier text; as white space it may be replaced.
    return escape_json(_CARRIAGE_RETURN.sub("\n", text))


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table to print with rich. Cells are plain text: no markup, no emoji codes, nothing cut off."""
    # rich comes with the `worker` extra; escape() must work without it.
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        shown.add_column(Text(escape(header)), overflow="fold")
    for row in rows:
        shown.add_row(*(Text(escape(cell)) for cell in row))
    return shown
