"""Keeps credentials out of errors: a server that echoes what it was called with must not put it into a history.

Knows the spellings in which an echo comes back: as it is, with JSON or percent escapes, in Base64. Leaves results be.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from openwop_mcp import jsontext
from openwop_mcp.config import MIN_SECRET
from openwop_mcp.errors import McpError, RpcError

__all__ = ("Redactor",)

MARK = "[credential]"
"""Stands where a credential was."""

MAX_SECRETS = 32
"""Header values looked for at once: those of a server's settings and a day's tokens, one an hour."""

MAX_CLEANED = 64 * 1024
"""Bytes of a JSON-RPC error that are searched and kept: no failure carries a longer one (`MAX_RPC_ERROR` there)."""

CUT = "…"
"""How an excerpt ends that was cut off, perhaps in the middle of a credential."""

START = 4
"""Characters of a credential that give it away at the end of an excerpt that was cut."""

SCHEMES = frozenset({"apikey", "basic", "bearer", "digest", "dpop", "negotiate", "token"})
"""Authentication schemes, in lower case. Their names are no part of a credential: they stand in prose too."""

LAYERS = 2
"""Escapes within escapes that are read: JSON in a string of JSON, a URL in a parameter of a URL."""

PROBE = 32
"""Bytes of a credential that are searched for, before the rest is compared: longer ones make the search no faster."""

_Span = tuple[int, int]

_CUT = (CUT.encode(), rb"\u2026")
"""How a string of JSON ends then, in lower case."""

_JSON_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"')

_CONTROLS = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_OCTETS = {b"%02x" % octet: bytes([octet]).lower() for octet in range(256)}


def _json_character(found: re.Match[bytes]) -> bytes:
    code, character = found.groups()
    if code is not None:
        return chr(int(code, 16)).encode("utf-8", "surrogatepass").lower()
    return _CONTROLS.get(character, character)


def _percent_character(found: re.Match[bytes]) -> bytes:
    return _OCTETS[found[1]]


_Escape = tuple[re.Pattern[bytes], Callable[[re.Match[bytes]], bytes]]

_JSON: _Escape = re.compile(rb"\\(?:u([0-9a-f]{4})|([^u]))"), _json_character
_PERCENT: _Escape = re.compile(rb"%([0-9a-f]{2})"), _percent_character

_BEGUN = re.compile(rb"(?:%[0-9a-f]?|\\(?:u[0-9a-f]{0,3})?)\Z")
"""An escape that was cut off."""

_LONGEST_BEGUN = 5


class Redactor:
    """Replaces the given header values wherever an error could carry them.

    Args:
        values: Header values that are, or hold, credentials; with or without a scheme. What is shorter than a setting
            may be is not looked for.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._needles: dict[str, list[bytes]] = {}
        self._starts: dict[bytes, list[bytes]] = {}
        for value in values:
            self.add(value)

    def add(self, value: str) -> None:
        """Look for one more credential from now on, besides those that it may have replaced: they can come back too."""
        needles = self._needles.pop(value, None)
        self._needles[value] = _needles(value) if needles is None else needles
        if len(self._needles) > MAX_SECRETS:
            del self._needles[next(iter(self._needles))]
        self._starts = {}
        for needle in self._all():
            self._starts.setdefault(needle[:START], []).append(needle)

    def clean(self, error: McpError) -> None:
        """Take the credentials out of an error's message, facts and JSON-RPC error, and of those that led to it.

        A JSON-RPC error of over 64 KiB is replaced: by its code, its message as far as it is shown, and its length.
        """
        if not self._needles:
            return
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, McpError):
                self._clean(cause)
            cause = cause.__cause__ or cause.__context__

    def _clean(self, error: McpError) -> None:
        error.message = self.text(error.message)
        error.args = (error.message,)
        error.facts = {key: self._value(value) for key, value in error.facts.items()}
        if isinstance(error, RpcError):
            error.error = self._json(error.error) if len(error.error) <= MAX_CLEANED else _outline(error)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        return [self._value(item) for item in value] if isinstance(value, list) else value

    def _json(self, data: bytes) -> bytes:
        """A JSON text without the credentials: inside strings only, so that it stays JSON and otherwise its bytes."""
        lower = data.lower()
        spans = self._whole(_unescaped(lower))
        if not spans and not any(cut in lower for cut in _CUT):
            return data
        strings = [found.span() for found in _JSON_STRING.finditer(data)]
        starts = [start for start, _ in strings]

        def inside(span: _Span) -> bool:
            string = bisect_right(starts, span[0] - 1) - 1
            return string >= 0 and span[1] < strings[string][1]

        spans = [span for span in spans if inside(span)]
        for start, end in strings:
            text = lower[start + 1 : end - 1]
            if text.endswith(_CUT):
                text = text.removesuffix(_CUT[0]).removesuffix(_CUT[1])
                spans += [(start + 1 + begun, start + 1 + len(text)) for begun in self._begun(_unescaped(text))]
        return _marked(data, spans) if spans else data

    def text(self, text: str) -> str:
        """A text without the credentials."""
        data = text.encode("utf-8", "surrogatepass")
        lower = data.lower()
        spans = self._whole(_View(lower))
        if text.endswith(CUT):
            lower = lower.removesuffix(_CUT[0])
            spans += [(begun, len(lower)) for begun in self._begun(_View(lower))]
        return _marked(data, spans).decode("utf-8", "surrogatepass") if spans else text

    def _whole(self, root: _View) -> list[_Span]:
        return [
            view.origin(*span) for view in _readings(root) for needle in self._all() for span in view.places(needle)
        ]

    def _begun(self, root: _View) -> list[int]:
        """Where the credentials start that the end of the text cuts off."""
        begun = [(view, view.begun(self._starts)) for view in _readings(root)]
        return [view.origin(start, start + 1)[0] for view, start in begun if start is not None]

    def _all(self) -> Iterator[bytes]:
        return itertools.chain.from_iterable(self._needles.values())


class _View:
    """A text in lower case, as it is or with its escapes read.

    Args:
        data: The text.
        source: What was read, None if this is the text itself.
        escape: The escapes that were read in it.
    """

    def __init__(self, data: bytes, source: _View | None = None, escape: _Escape = _JSON) -> None:
        self.data = data
        self._source = source
        self._escape = escape

    def read(self, escape: _Escape) -> _View | None:
        """The text with its escapes read; None if there are none."""
        pattern, character = escape
        data, escapes = pattern.subn(character, self.data)
        return _View(data, self, escape) if escapes else None

    def places(self, needle: bytes) -> Iterator[_Span]:
        """Wherever the needle is, overlaps included."""
        probe = needle[:PROBE]
        start = self.data.find(probe)
        while start >= 0:
            if self.data.startswith(needle, start):
                yield start, start + len(needle)
            start = self.data.find(probe, start + 1)

    def begun(self, starts: Mapping[bytes, list[bytes]]) -> int | None:
        """Where the first needle begins that the end of the text cuts off, of those that start so."""
        ends = [len(self.data)]
        if (escape := _BEGUN.search(self.data, max(0, len(self.data) - _LONGEST_BEGUN))) is not None:
            ends.append(escape.start())
        for start in range(len(self.data) - START + 1):
            for needle in starts.get(self.data[start : start + START], ()):
                if any(needle.startswith(self.data[start:end]) for end in ends if end - start >= START):
                    return start
        return None

    def origin(self, start: int, end: int) -> _Span:
        """The place in the text itself that a place in this one, which is not empty, was read from."""
        if self._source is None:
            return start, end
        return self._source.origin(self._read_from(start)[0], self._read_from(end - 1)[1])

    def _read_from(self, position: int) -> _Span:
        """What of the source one byte was read from."""
        starts, escapes = self._escapes
        last = bisect_right(starts, position) - 1
        if last < 0:
            return position, position + 1
        end, source_start, source_end = escapes[last]
        if position < end:
            return source_start, source_end
        return source_end + position - end, source_end + position - end + 1

    @cached_property
    def _escapes(self) -> tuple[list[int], list[tuple[int, int, int]]]:
        """Where the characters start that were escaped; where each ends, and where its escape starts and ends."""
        assert self._source is not None
        pattern, character = self._escape
        starts: list[int] = []
        escapes: list[tuple[int, int, int]] = []
        saved = 0
        for found in pattern.finditer(self._source.data):
            starts.append(found.start() - saved)
            length = len(character(found))
            escapes.append((found.start() - saved + length, *found.span()))
            saved += len(found[0]) - length
        return starts, escapes


def _unescaped(data: bytes) -> _View:
    """JSON with its escapes read: in it, each byte is of a whole character of a string, or of no string."""
    view = _View(data)
    return view.read(_JSON) or view


def _readings(root: _View) -> Iterator[_View]:
    """A text in all the ways to read its escapes."""
    seen = {root.data}
    layer = [root]
    yield root
    for _ in range(LAYERS):
        read = [view.read(escape) for view in layer for escape in (_JSON, _PERCENT)]
        layer = []
        for view in read:
            if view is not None and view.data not in seen:
                seen.add(view.data)
                layer.append(view)
        yield from layer


def _marked(data: bytes, spans: Iterable[_Span]) -> bytes:
    """A text with marks instead of the spans; one mark for those that overlap."""
    parts: list[bytes] = []
    done = 0
    for start, end in sorted(spans):
        if start >= done:
            parts += (data[done:start], MARK.encode())
        done = max(done, end)
    return b"".join((*parts, data[done:]))


def _outline(error: RpcError) -> bytes:
    return jsontext.encode({"code": error.rpc_code, "message": error.message, "omittedBytes": len(error.error)})


def _needles(value: str) -> list[bytes]:
    """What to look for in the place of a header value, in lower case."""
    secrets = [secret.encode("utf-8", "surrogatepass") for secret in _secrets(value) if len(secret) >= MIN_SECRET]
    return [form.lower() for form in dict.fromkeys(form for secret in secrets for form in (secret, *_base64(secret)))]


def _secrets(value: str) -> Iterator[str]:
    """What gives a header value away: all of it, what follows a scheme, and what Basic makes of that (RFC 7617)."""
    scheme, _, credentials = value.partition(" ")
    credentials = credentials.strip()
    if scheme.lower() not in SCHEMES or len(credentials) < MIN_SECRET:
        yield value
    yield credentials
    if scheme.lower() == "basic" and (pair := _pair(credentials)) is not None:
        yield pair
        yield pair.partition(":")[2]


def _pair(credentials: str) -> str | None:
    """The user-id and password that Basic carries; None if it is neither UTF-8 nor Latin-1 in Base64."""
    try:
        pair = binascii.a2b_base64(credentials.rstrip("=").replace("-", "+").replace("_", "/") + "==")
    except ValueError:
        return None
    try:
        return pair.decode()
    except UnicodeDecodeError:
        return pair.decode("latin-1")


def _base64(secret: bytes) -> Iterator[bytes]:
    """What stays the same of a text's Base64 wherever in a longer text it stands: one form per alignment."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + secret)
        whole = encoded[(before * 8 + 5) // 6 : (before + len(secret)) * 8 // 6]
        yield whole
        yield whole.replace(b"+", b"-").replace(b"/", b"_")
