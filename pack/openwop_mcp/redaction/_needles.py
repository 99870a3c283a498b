"""What to search for in the place of a secret: the parts of it that give it away, as they are and in Base64.

Knows the schemes of header values. How a text is searched is for others, and so are escapes outside of Base64.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from urllib.parse import quote

from openwop_mcp import jsontext

__all__ = ("MIN_SECRET", "needles")

MIN_SECRET = 8
"""Characters. A shorter credential cannot be searched for in what a server sends back without hiding ordinary words."""

SCHEMES = frozenset({"apikey", "basic", "bearer", "digest", "dpop", "negotiate", "token"})
"""Authentication schemes, in lower case. Their names are no part of a credential: they stand in prose too."""

_BREAKS = re.compile(r"[\r\n]+")
"""What parts the lines of a secret, whatever wrote it."""

_KEY_BREAKS = re.compile(r"(?:[\r\n]|\\[rn])+")
"""The same in a key in PEM (RFC 7468), which variables often hold in one line, its breaks written as in JSON."""

_KEY_BEGINS = "-----BEGIN "
"""Shows that there is such a key: elsewhere a backslash with these letters may be part of a path."""

_NO_SECRET = re.compile(r"-----(?:BEGIN|END) [^-]*-----|(.)\1*")
"""A line of a secret that gives nothing away: the label of a key in PEM, or a rule."""

_SHORT_LINE = 20
"""Characters below which a line of any other value is an ordinary one: a whole file of settings can be a variable, and
its `kind: Config` must stay in results."""

_PERCENT = re.compile(rb"%[0-9A-F]{2}")
"""An escape of URLs as Python writes it; many others write them in lower case."""


def needles(value: str) -> list[bytes]:
    """What to look for in the place of a header value or another secret, in lower case; each is 8 bytes at least."""
    secrets = [secret.encode("utf-8", "surrogatepass") for secret in _secrets(value) if len(secret) >= MIN_SECRET]
    return [form.lower() for form in dict.fromkeys(form for secret in secrets for form in _forms(secret))]


def _secrets(value: str) -> Iterator[str]:
    """What gives a value away: all of it, what follows a scheme, what Basic makes of that (RFC 7617), its lines."""
    scheme, _, credentials = value.partition(" ")
    credentials = credentials.strip()
    if scheme.lower() not in SCHEMES or len(credentials) < MIN_SECRET:
        yield value
    yield credentials
    if scheme.lower() == "basic" and (pair := _pair(credentials)) is not None:
        yield pair
        yield pair.partition(":")[2]
    yield from _lines(value)


def _lines(value: str) -> Iterator[str]:
    """What stands in each line of a secret that has several: what programs print is searched line by line."""
    breaks, least = (_KEY_BREAKS, MIN_SECRET) if _KEY_BEGINS in value else (_BREAKS, _SHORT_LINE)
    lines = [line.strip() for line in breaks.split(value)]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= least and _NO_SECRET.fullmatch(line) is None)


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


def _forms(secret: bytes) -> Iterator[bytes]:
    """A secret, and the Base64 of each way to write it in a document."""
    yield secret
    for written in dict.fromkeys((secret, *_escaped(secret))):
        yield from _base64(written)


def _escaped(secret: bytes) -> Iterator[bytes]:
    """What JSON and URLs make of it: here, since nothing reads an escape in Base64."""
    in_json = jsontext.encode(secret.decode("utf-8", "surrogatepass"))[1:-1]
    yield in_json
    yield in_json.replace(b"/", b"\\/")
    in_url = quote(secret, safe="").encode()
    yield in_url
    yield _PERCENT.sub(lambda found: found[0].lower(), in_url)


def _base64(secret: bytes) -> Iterator[bytes]:
    """What stays the same of a text's Base64 wherever in a longer text it stands: one form per alignment."""
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + secret)
        whole = encoded[(before * 8 + 5) // 6 : (before + len(secret)) * 8 // 6]
        yield whole
        yield whole.replace(b"+", b"-").replace(b"/", b"_")
