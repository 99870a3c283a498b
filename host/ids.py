"""Ids of OpenWOP v2: which texts are ids, and how one that is bound to a tenant travels as a segment of a path.

Knows grammar and no run. Whether an id names anything is for others; whose it is stands in the id.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote_to_bytes

from .errors import HostError, invalid

__all__ = ("BoundId", "is_author_id", "project", "unproject")

_BOUND = re.compile(r"((?:anon:)?[A-Za-z0-9._~-]{1,128})/([A-Za-z0-9._~-]{16,128})")
_AUTHOR = re.compile(r"[A-Za-z0-9._~:-]{1,128}")
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
"""The bytes that stand for themselves in a segment; ``~`` does not, so that it always begins an escape."""

_ESCAPE = re.compile(rb"~(?:([0-9A-F]{2}))?")
"""Only capitals are an escape, so that a segment has one spelling and a cache or a log one key."""

_BROKEN_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")

_WRITE = "write <tenant>~2F<id>, each byte outside A-Z a-z 0-9 . _ - as ~ and two capital hexadecimal digits"


def project(identity: str) -> str:
    """Spell an id as one segment of a path, for a link. It is not looked at whether it was projected before."""
    return "".join(chr(byte) if byte in _PLAIN else f"~{byte:02X}" for byte in identity.encode())


def unproject(segment: str, *, name: str) -> str:
    """Read a segment as it stands in a request's path: projected (``~2F``) or percent-encoded (``%2F``).

    The percent escapes go first, since any client or proxy may put them in or take them out; each kind is undone once.

    Args:
        segment: The segment, not yet decoded.
        name: What the parameter is called, for the refusal.

    Raises:
        HostError: ``validation_error`` if an escape is malformed, or what is escaped is no UTF-8.
    """
    if not segment.isascii() or _BROKEN_PERCENT.search(segment):
        raise invalid(name, f"malformed escape: {_WRITE}")
    escaped = unquote_to_bytes(segment)
    if any(escape[1] is None for escape in _ESCAPE.finditer(escaped)):
        raise invalid(name, f"malformed escape: {_WRITE}")
    try:
        return _ESCAPE.sub(lambda escape: bytes.fromhex(escape[1].decode()), escaped).decode()
    except UnicodeDecodeError:
        raise invalid(name, f"not UTF-8: {_WRITE}") from None


def is_author_id(text: str) -> bool:
    """Tell whether a text can be the id of a workflow or a node, which authors choose."""
    return _AUTHOR.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class BoundId:
    """An id that says whose it is: of a run, an interrupt, an effect, a subscription or a delivery.

    Attributes:
        tenant: The tenant.
        opaque: What tells it from the tenant's others.
    """

    tenant: str
    opaque: str

    @classmethod
    def parse(cls, text: str, *, name: str) -> Self:
        """Read an id as it stands in a body.

        Raises:
            HostError: ``validation_error`` if it is none; the opaque part alone is none.
        """
        match = _BOUND.fullmatch(text)
        if match is None:
            raise invalid(name, "not an id that is bound to a tenant: write <tenant>/<16 to 128 characters>")
        return cls(match[1], match[2])

    @classmethod
    def from_segment(cls, segment: str, *, name: str) -> Self:
        """Read an id as it stands in a path, see :func:`unproject`.

        Raises:
            HostError: ``validation_error`` if it is none. An id that was projected twice is none.
        """
        return cls.parse(unproject(segment, name=name), name=name)

    def __str__(self) -> str:
        return f"{self.tenant}/{self.opaque}"

    @property
    def segment(self) -> str:
        """The segment of a path."""
        return project(str(self))

    def belongs_to(self, tenant: str) -> bool:
        """Tell whether it is the tenant's."""
        return self.tenant == tenant

    def require_tenant(self, tenant: str) -> None:
        """Refuse what is another tenant's, before anything is looked up: the answer says nothing of what exists.

        Raises:
            HostError: ``id_tenant_mismatch``.
        """
        if not self.belongs_to(tenant):
            raise HostError("id_tenant_mismatch", "the id is not one of your tenant's")
