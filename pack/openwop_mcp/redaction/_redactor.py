"""Replaces secrets in texts, in JSON and in errors, in whatever spelling: as they are, escaped, in Base64.

Knows the secrets that it was told, and no more. Leaves every byte beside them as it is.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from openwop_mcp import jsontext
from openwop_mcp.errors import HttpStatusError, McpError, RpcError
from openwop_mcp.redaction._needles import needles
from openwop_mcp.redaction._search import Search
from openwop_mcp.redaction._views import LONGEST_REFERENCE, REFERENCE_BEGUN, Span, View, readings, unescaped

__all__ = ("MARK", "MAX_CLEANED", "MAX_TOKENS", "Keeper", "Redacted", "Redactor", "TooManyEchoesError")

MARK = "[credential]"
"""Stands where a credential was."""

MAX_TOKENS = 32
"""Tokens of one server that are looked for at once: a day's, one an hour, and some that they were had with."""

MAX_CLEANED = 64 * 1024
"""Bytes of a JSON-RPC error that are searched at once: longer ones take a thread, and few can be kept."""

MAX_ECHOES = 100_000
"""Places that are replaced in one answer, each of which takes memory, and excerpts that are searched in one error, at
20 us each: one with more is nothing but echoes."""

CUT = "…"
"""How an excerpt ends that was cut off, perhaps in the middle of a credential."""

START = 4
"""Characters of a credential that give it away at the end of an excerpt that was cut."""

_CUT = (CUT.encode(), rb"\u2026")
"""How a string of JSON ends then, in lower case."""

_JSON_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"')

_BEGUN = re.compile(rb"(?:%%[0-9a-f]?|\\(?:u[0-9a-f]{0,3})?|%b)\Z" % REFERENCE_BEGUN)
"""An escape that was cut off."""

_LONGEST_BEGUN = LONGEST_REFERENCE


@dataclass(frozen=True, slots=True)
class Redacted:
    """What is left of a JSON text that held secrets.

    Attributes:
        data: The text, with marks in their places.
        count: How many places that are.
        sha256: SHA-256 of the text as it was, in hexadecimal.
    """

    data: bytes
    count: int
    sha256: str


class TooManyEchoesError(Exception):
    """A text holds more secrets than are replaced in one."""


class Keeper(Protocol):
    """Is told what a redactor looks for."""

    def add(self, value: str) -> None:
        """Of one more."""

    def drop(self, value: str) -> None:
        """That one is not looked for any more."""


class Redactor:
    """Replaces the given secrets wherever they are found.

    Args:
        values: Header values and others that are, or hold, secrets; with or without a scheme. What is shorter than a
            setting may be is not looked for.
        also: Is told of each as well.
    """

    def __init__(self, values: Iterable[str], *, also: Keeper | None = None) -> None:
        self._needles: dict[str, list[bytes]] = {}
        self._tokens: dict[str, None] = {}
        self._also = also
        self._known = _Known(())
        for value in values:
            self.add(value)

    def add(self, value: str) -> None:
        """Look for one more secret, from now on and until it is dropped."""
        self._tokens.pop(value, None)
        if value in self._needles:
            return
        self._needles[value] = needles(value)
        if self._also is not None:
            self._also.add(value)
        self._known = _Known(tuple(itertools.chain.from_iterable(self._needles.values())))

    def rotate(self, value: str) -> None:
        """Look for a secret that others follow, besides those before it: they can come back too.

        Of such only those told last stay, :data:`MAX_TOKENS`.
        """
        if value in self._needles and value not in self._tokens:
            return
        self.add(value)
        self._tokens[value] = None
        if len(self._tokens) > MAX_TOKENS:
            self.drop(next(iter(self._tokens)))

    def drop(self, value: str) -> None:
        """Look for a secret no more."""
        self._tokens.pop(value, None)
        if self._needles.pop(value, None) is not None and self._also is not None:
            self._also.drop(value)
        self._known = _Known(tuple(itertools.chain.from_iterable(self._needles.values())))

    def clean(self, error: McpError) -> None:
        """Take the secrets out of an error's message, facts and JSON-RPC error, and of those that led to it.

        A JSON-RPC error of over 64 KiB is replaced, by its code, its message as far as it is shown, and its length:
        ``whole`` of it is to be searched by whoever can keep it, in a thread.
        """
        if not self._needles:
            return
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, McpError):
                self._clean(cause)
            cause = cause.__cause__ or cause.__context__

    def text(self, text: str) -> str:
        """A text without the secrets; where it ends as an excerpt does that was cut, without the beginning of one."""
        known = self._known
        search = known.search()
        data = text.encode("utf-8", "surrogatepass")
        lower = data.lower()
        cut = text.endswith(CUT)
        if not (cut or search.may_hold(lower)):
            return text
        spans = _whole(View(lower), search)
        if cut:
            lower = lower.removesuffix(_CUT[0])
            spans += [(begun, len(lower)) for begun in _begun(View(lower), known)]
        return _marked(data, spans)[0].decode("utf-8", "surrogatepass") if spans else text

    def json(self, data: bytes) -> Redacted | None:
        """A JSON text without the secrets that its strings hold; None where they hold none.

        It stays JSON. May be called in a thread: it takes seconds where a large text has many escapes.

        Raises:
            TooManyEchoesError: It holds more than are replaced.
        """
        search = self._known.search()
        lower = data.lower()
        if not search.may_hold(lower):
            return None
        spans = _inside_strings(data, _whole(unescaped(lower), search, MAX_ECHOES))
        if not spans:
            return None
        left, count = _marked(data, spans)
        return Redacted(left, count, hashlib.sha256(data).hexdigest())

    def has_number(self, data: bytes) -> bool:
        """Whether a JSON text holds a secret of digits as a number, or in one, where no mark can stand."""
        places = list(itertools.islice(self._known.numbers().spans(data), MAX_ECHOES))
        return len(_inside_strings(data, places)) < len(places)

    def _clean(self, error: McpError) -> None:
        error.message = self.text(error.message)
        error.args = (error.message,)
        error.facts = {key: self._value(value) for key, value in error.facts.items()}
        if isinstance(error, HttpStatusError):
            error.challenges = [self.text(challenge) for challenge in error.challenges]
        if isinstance(error, RpcError):
            whole = functools.partial(self._rpc, error.error, _outline(error))
            if len(error.error) <= MAX_CLEANED:
                error.error = whole()
            else:
                error.error, error.whole = _outline(error), whole

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        return [self._value(item) for item in value] if isinstance(value, list) else value

    def _rpc(self, data: bytes, outline: bytes) -> bytes:
        """A JSON-RPC error without the secrets, those included that an excerpt in it cuts off; else its outline."""
        try:
            return self._searched_through(data)
        except TooManyEchoesError:
            return outline

    def _searched_through(self, data: bytes) -> bytes:
        known = self._known
        search = known.search()
        lower = data.lower()
        cut = any(mark in lower for mark in _CUT)
        if not (cut or search.may_hold(lower)):
            return data
        spans = _inside_strings(data, _whole(unescaped(lower), search, MAX_ECHOES))
        excerpts = 0
        for start, end in (found.span() for found in _JSON_STRING.finditer(data) if cut):
            text = lower[start + 1 : end - 1]
            if text.endswith(_CUT):
                excerpts += 1
                if excerpts > MAX_ECHOES:
                    raise TooManyEchoesError
                text = text.removesuffix(_CUT[0]).removesuffix(_CUT[1])
                begun = _begun(unescaped(text), known)
                spans += [(start + 1 + one, start + 1 + len(text)) for one in begun]
        return _marked(data, spans)[0] if spans else data


class _Known:
    """The secrets of a moment, and what looks for them, made when it is first needed.

    A redactor that is told another has another of these: a thread may be making one of this meanwhile.
    """

    def __init__(self, forms: Sequence[bytes]) -> None:
        self._forms = forms
        self._search: Search | None = None
        self._numbers: Search | None = None
        self._beginnings: Mapping[bytes, Sequence[bytes]] | None = None

    def search(self) -> Search:
        """Finds all of them."""
        if self._search is None:
            self._search = Search(self._forms)
        return self._search

    def numbers(self) -> Search:
        """Finds those of digits."""
        if self._numbers is None:
            self._numbers = Search(form for form in self._forms if form.isdigit())
        return self._numbers

    def beginnings(self) -> Mapping[bytes, Sequence[bytes]]:
        """Them by how they begin."""
        if self._beginnings is None:
            begin: dict[bytes, list[bytes]] = {}
            for form in self._forms:
                begin.setdefault(form[:START], []).append(form)
            self._beginnings = begin
        return self._beginnings


def _begun(root: View, known: _Known) -> list[int]:
    """Where the secrets start that the end of the text cuts off."""
    begun = [(view, _first_begun(view.data, known.beginnings())) for view in readings(root, known.search().promising)]
    return [view.origins([(start, start + 1)])[0][0] for view, start in begun if start is not None]


def _whole(root: View, search: Search, most: int | None = None) -> list[Span]:
    """Where the secrets are, however they are spelled."""
    places: list[Span] = []
    for view in readings(root, search.promising):
        room = None if most is None else most - len(places) + 1
        places += view.origins(list(itertools.islice(search.spans(view.data), room)))
        if most is not None and len(places) > most:
            raise TooManyEchoesError
    return places


def _first_begun(data: bytes, begin: Mapping[bytes, Sequence[bytes]]) -> int | None:
    """Where the first secret begins that the end of the text cuts off, of those that begin so."""
    ends = [len(data)]
    if (escape := _BEGUN.search(data, max(0, len(data) - _LONGEST_BEGUN))) is not None:
        ends.append(escape.start())
    longest = max((len(needle) for needles in begin.values() for needle in needles), default=0)
    for start in range(max(0, ends[-1] - longest), len(data) - START + 1):
        for needle in begin.get(data[start : start + START], ()):
            if any(needle.startswith(data[start:end]) for end in ends if end - start >= START):
                return start
    return None


def _inside_strings(data: bytes, spans: Iterable[Span]) -> list[Span]:
    """Those of the places that are within one string of a JSON text."""
    return list(_within(_JSON_STRING.finditer(data), sorted(spans)))


def _within(strings: Iterator[re.Match[bytes]], spans: Iterable[Span]) -> Iterator[Span]:
    string = next(strings, None)
    for start, end in spans:
        while string is not None and string.end() <= start:
            string = next(strings, None)
        if string is not None and string.start() < start and end < string.end():
            yield start, end


def _marked(data: bytes, spans: Iterable[Span]) -> tuple[bytes, int]:
    """A text with marks instead of the places, and how many; one mark for those that overlap."""
    parts: list[bytes] = []
    done = 0
    for start, end in sorted(spans):
        if start >= done:
            parts += (data[done:start], MARK.encode())
        done = max(done, end)
    return b"".join((*parts, data[done:])), len(parts) // 2


def _outline(error: RpcError) -> bytes:
    return jsontext.encode({"code": error.rpc_code, "message": error.message, "omittedBytes": len(error.error)})
