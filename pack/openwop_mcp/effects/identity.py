"""Which effect a call asks for, and a digest of the arguments that it asks with, however their JSON is spelled.

Pure. Knows JSON text and hashing, and nothing of claims, records or what was sent before.
"""

from __future__ import annotations

import base64
import decimal
import hashlib
import heapq
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from json.encoder import encode_basestring_ascii
from typing import Any, Literal

from openwop_mcp import jsontext

__all__ = ("Effect", "Keying", "by_key", "by_recipe", "canonical", "digest")

Keying = Literal["business-identity", "activity-recipe"]

VERSION = "1"
"""Part of every identity: should what is hashed ever change, no new identity may equal an old one."""

NO_ARGUMENTS = b"{}"
"""What a call without arguments counts as: a server may not tell the two apart."""

STRIDE = 16_384
"""Steps that are left to one call of C code, a match, a sort or a join: such a call keeps the interpreter from every
other thread, and so many steps take some milliseconds."""

_Parts = list[Any]
"""Text in pieces: strings, and lists of further pieces. Joined once at the end, so that depth costs no copies."""

_WS = r"[ \t\n\r]*+"
_PLAIN_STRING = r'"[ !#-\[\]-~]*+"'
_PLAIN_INTEGER = r"(?:-?[1-9][0-9]*+(?<!0)|0)(?![0-9.eE])"
# For checked texts without white space at the end only: there, a first character tells what follows.
_LEXEME = re.compile(
    rf"{_WS}(?:"
    # What is canonical as it stands, most of many a text. The comma before a name is left out: names get sorted.
    rf'(?P<verbatim>(?:[\[\]a-z]|\{{\}}|,(?!{_WS}")|,?{_PLAIN_STRING}(?!{_WS}:)|{_PLAIN_INTEGER}){{1,{STRIDE}}}+)'
    rf'|(?P<comma>(?:,{_WS})?+)(?P<quoted>"[^"\\]*+(?:\\.[^"\\]*+)*+")(?P<string>(?:{_WS}:)?+)'
    r"|(?P<number>[-0-9][-+.0-9eE]*+)"
    r"|(?P<opens>\{)"
    r"|(?P<closes>\})"
    r")"
)

_EXACT = decimal.Context(
    prec=decimal.MAX_PREC,
    Emax=decimal.MAX_EMAX,
    Emin=decimal.MIN_EMIN,
    traps=[decimal.InvalidOperation, decimal.Inexact, decimal.Rounded, decimal.Clamped],
)
"""Adds integers of any length in linear time, where ``int`` refuses long ones."""

_read = json.JSONDecoder().raw_decode
_write = json.JSONEncoder(ensure_ascii=False).encode

_Members = list[tuple[str, int]]
"""Name of each member of an object, and where it begins among the object's pieces."""

_Span = tuple[str, int, int]
"""Name of a member, and where it begins and ends among the object's pieces."""


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect's identity, and the digest of what it is asked for with.

    Attributes:
        tenant: Whose effect it is.
        opaque: The SHA-256 of the identity: 43 characters of base64url without padding.
        keying: What the identity was made of: an author's key, or the call's place in its run.
        digest: The SHA-256 of the arguments' canonical form, in hex.
    """

    tenant: str
    opaque: str
    keying: Keying
    digest: str

    @property
    def effect_id(self) -> str:
        """The effect id as OpenWOP writes it: ``<tenant>/<opaque>``."""
        return f"{self.tenant}/{self.opaque}"

    @property
    def provider_key(self) -> str:
        """The idempotency key that travels to the server. Tells it nothing of what the identity was made of."""
        return self.opaque


def by_key(tenant: str, server_id: str, tool: str, key: str, arguments: bytes | None) -> Effect:
    """Identify an effect by its author's key: the same one in every run, at every node, with any arguments.

    Raises:
        JsonTextError: if the arguments are not a JSON text.
    """
    opaque = _opaque("business-identity", tenant, server_id, tool, key)
    return Effect(tenant, opaque, "business-identity", digest(arguments))


def by_recipe(
    tenant: str, server_id: str, tool: str, arguments: bytes | None, *, workflow_id: str, part: str, node: str
) -> Effect:
    """Identify an effect by its place in a workflow, and by its arguments. Attempts share it.

    Args:
        tenant: Whose effect it is.
        server_id: The server that is called.
        tool: The tool's name there.
        arguments: Their JSON text, None if there are none.
        workflow_id: The workflow that calls.
        part: Names one Temporal run of a chain, and survives a reset.
        node: Names the call within that part.

    Raises:
        JsonTextError: if the arguments are not a JSON text.
    """
    asked = digest(arguments)
    opaque = _opaque("activity-recipe", tenant, workflow_id, part, node, server_id, tool, asked)
    return Effect(tenant, opaque, "activity-recipe", asked)


def digest(arguments: bytes | None) -> str:
    """Hash the canonical form of arguments: SHA-256 in hex. None counts as ``{}``.

    Raises:
        JsonTextError: if the arguments are not a JSON text.
    """
    return hashlib.sha256(canonical(NO_ARGUMENTS if arguments is None else arguments)).hexdigest()


def canonical(text: bytes) -> bytes:
    r"""Respell a JSON text so that two texts come out alike exactly if they say the same.

    The result is JSON in ASCII without white space. Strings escape what is not printable ASCII as ``\uxxxx``. Numbers
    are an integer that does not end in 0 and, unless it is 0, an exponent (``1200`` is ``12e2``): RFC 8785 would round
    them to what a double holds, and take two amounts for one. Members are sorted by the code points of their names;
    those of one name all stay, in the order in which they stood.

    Raises:
        JsonTextError: if the text is not JSON.
    """
    jsontext.check(text)
    parts: _Parts = []
    members: _Members = []
    outer: list[tuple[_Parts, _Members]] = []
    innermost = True
    for lexeme in _LEXEME.finditer(text.decode().rstrip(" \t\n\r")):
        match lexeme.lastgroup:
            case "verbatim":
                parts.append(lexeme["verbatim"])
            case "string":
                comma, quoted, colon = lexeme.group("comma", "quoted", "string")
                string = _read(quoted)[0]
                respelled = encode_basestring_ascii(string)
                if colon:
                    members.append((string, len(parts)))
                    parts.append(respelled + ":")
                else:
                    parts.append("," + respelled if comma else respelled)
            case "number":
                parts.append(_number(lexeme["number"]))
            case "opens":
                outer.append((parts, members))
                parts, members, innermost = [], [], True
            case _:
                closed = _object(parts, members)
                parts, members = outer.pop()
                # Fewer pieces where it costs one copy only.
                parts.append(_joined(closed) if innermost else closed)
                innermost = False
    # Most texts are one flat object, which is in one piece by now.
    whole = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else _joined(_flat(parts))
    return whole.encode()


def _object(parts: _Parts, members: _Members) -> _Parts:
    """Sort an object. Members of one name stay as they stood, because a position sorts after the one before it."""
    ends = [*(start for _, start in members[1:]), len(parts)]
    spans = ((name, start, end) for (name, start), end in zip(members, ends, strict=False))
    ordered: _Parts = []
    for _, start, end in sorted(spans) if len(members) <= STRIDE else _merged(spans):
        ordered.append("," if ordered else "{")
        ordered += parts[start:end]
    ordered.append("}" if ordered else "{}")
    return ordered


def _merged(spans: Iterator[_Span]) -> Iterator[_Span]:
    """Sort in strides, and let go of each member as it is taken: to free them all at once takes long, too."""
    strides = iter(lambda: sorted(islice(spans, STRIDE), reverse=True), [])
    return heapq.merge(*map(_drained, strides))


def _drained(stride: list[_Span]) -> Iterator[_Span]:
    while stride:
        yield stride.pop()


def _joined(pieces: Iterable[str]) -> str:
    """Join in strides. No piece is empty, so that only the end is."""
    if isinstance(pieces, list) and len(pieces) <= STRIDE:
        return "".join(pieces)
    left = iter(pieces)
    return "".join(iter(lambda: "".join(islice(left, STRIDE)), ""))


def _number(text: str) -> str:
    """Respell a number: an integer that does not end in 0, and an exponent unless that is 0."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    digits = (whole + fraction).lstrip("0")
    if not digits:
        return "0"
    integer = digits.rstrip("0")
    shift = len(digits) - len(integer) - len(fraction)
    power = str(_EXACT.add(_EXACT.create_decimal(exponent), shift) if exponent else shift)
    sign = "-" if text.startswith("-") else ""
    return f"{sign}{integer}" if power == "0" else f"{sign}{integer}e{power}"


def _flat(parts: _Parts) -> Iterator[str]:
    stack = [iter(parts)]
    while stack:
        for part in stack[-1]:
            if isinstance(part, str):
                yield part
            else:
                stack.append(iter(part))
                break
        else:
            stack.pop()


def _opaque(keying: Keying, *identity: str) -> str:
    """Hash an identity, as a JSON array: its quotes keep ("a", "bc") and ("ab", "c") apart."""
    text = _write([f"openwop-mcp/{keying}/{VERSION}", *identity])
    hashed = hashlib.sha256(text.encode(errors="surrogatepass")).digest()
    return base64.urlsafe_b64encode(hashed).rstrip(b"=").decode()
