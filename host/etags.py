"""Validators of representations (RFC 9110, section 8.8.3). Knows header values and no resource."""

from __future__ import annotations

import hashlib
import re

__all__ = ("matches", "of_bytes", "strong")

_MEMBER = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')


def strong(text: str) -> str:
    """A strong validator of a text without quotes and spaces."""
    return f'"{text}"'


def of_bytes(body: bytes) -> str:
    """A strong validator of exactly these bytes."""
    return strong(hashlib.sha256(body).hexdigest())


def matches(if_none_match: str | None, etag: str) -> bool:
    """Tell whether the client has this representation, by its ``If-None-Match``; a value that is none never matches.

    The comparison is the weak one, as HTTP has it for this header: what a proxy marked as weak is still the same.
    """
    if if_none_match is None:
        return False
    if if_none_match.strip() == "*":
        return True
    members = [_MEMBER.fullmatch(member.strip()) for member in if_none_match.split(",")]
    return any(member is not None and member[1] == etag for member in members)
