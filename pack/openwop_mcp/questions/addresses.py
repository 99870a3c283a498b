"""Addresses that a server asks a person to visit: where one leads, and what about it may deceive. Nothing is opened."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import SplitResult, urlsplit

__all__ = ("host_of", "warning")

_ENCODED = "xn--"
"""How a label begins that stands for one of other letters (RFC 5890)."""

_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+")
"""Hosts as every program takes them: some would undo the escapes in others."""

_DISPUTED = frozenset("\u00df\u03c2\u200c\u200d")
"""Letters that IDNA 2003, which is what Python has, spells as others or leaves out, and IDNA 2008, as browsers have it,
does not: the names lead to different hosts."""


def host_of(url: str) -> str | None:
    """The host that a URL leads to, in ASCII; None where there is none to be made out."""
    split = _split(url)
    return None if split is None else _ascii(split.hostname or "")


def warning(url: str) -> str | None:
    """What a person has to know before they visit a URL; None where it is what it seems to be."""
    split = _split(url)
    host = None if split is None else _ascii(split.hostname or "")
    if split is None or host is None:
        return "Careful: this is no address that can be read."
    found = []
    if split.scheme != "https":
        found.append("it is not encrypted (https)")
    if split.username is not None or split.password is not None:
        found.append("what stands before '@' in it is a name, and not where it leads")
    if any(label.startswith(_ENCODED) for label in host.split(".")):
        scripts = sorted({script for label in _letters(host).split(".") for script in _mixed(label)})
        mixed = f" of more than one script ({', '.join(scripts)})" if scripts else ""
        found.append(f"its host has letters outside of ASCII{mixed}, which may imitate another name (punycode)")
    return f"Careful: {'; '.join(found)}. It leads to the host {host}." if found else None


def _split(url: str) -> SplitResult | None:
    if "\\" in url or any(character.isspace() or not character.isprintable() for character in url):
        # Some programs leave these out or take one for a slash, and go elsewhere than others.
        return None
    try:
        split = urlsplit(url)
        sound = bool(split.scheme and split.hostname and split.port != 0)
    except ValueError:
        return None
    return split if sound else None


def _ascii(host: str) -> str | None:
    try:
        found = host.encode("idna").decode().lower() if _DISPUTED.isdisjoint(host) else ""
    except UnicodeError:
        # Names that IDNA does not know; what is left of them is at least not another name.
        return None
    return found if _HOST.fullmatch(found) else None


def _letters(host: str) -> str:
    try:
        return host.encode().decode("idna")
    except UnicodeError:
        return host


def _mixed(label: str) -> set[str]:
    """The scripts of a label that has several; a letter's name begins with that of its script."""
    scripts = {unicodedata.name(letter, "UNKNOWN").split()[0].lower() for letter in label if letter.isalpha()}
    return scripts if len(scripts) > 1 else set()
