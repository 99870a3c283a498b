"""A result as the server's bytes, with decoded views that are made on demand and can be thrown away.

Knows the names of a tool result's members; knows nothing of transports or records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Self

from openwop_mcp import jsontext

__all__ = ("Verbatim",)

_NOWHERE: Mapping[str, str] = MappingProxyType({})


class Verbatim:
    """Exact JSON bytes. Equal to another by its bytes alone; making one parses nothing.

    Every view but ``raw``, ``sha256`` and ``provenance`` raises :class:`openwop_mcp.jsontext.JsonTextError` where the
    bytes are not JSON. The members that MCP gives a tool result read as absent where they are missing or of another
    JSON type.

    Args:
        raw: The JSON text.
        provenance: Where the bytes came from, as words for people and auditors; no part of equality.
    """

    __slots__ = ("_members", "_provenance", "_raw", "_sha256", "_value")

    def __init__(self, raw: bytes, provenance: Mapping[str, str] = _NOWHERE) -> None:
        self._raw = raw
        self._provenance = MappingProxyType(dict(provenance)) if provenance else _NOWHERE
        self._members: dict[str, Any] = {}
        self._sha256: str | None = None
        # A tuple, so that a decoded null is told from nothing decoded.
        self._value: tuple[Any] | None = None

    @classmethod
    def of(cls, value: Any) -> Self:
        """Encode a Python value, see :func:`openwop_mcp.jsontext.encode`."""
        return cls(jsontext.encode(value))

    @property
    def raw(self) -> bytes:
        """The bytes."""
        return self._raw

    @property
    def provenance(self) -> Mapping[str, str]:
        """Where the bytes came from; read-only."""
        return self._provenance

    @property
    def sha256(self) -> str:
        """SHA-256 of the bytes in hexadecimal."""
        if self._sha256 is None:
            self._sha256 = hashlib.sha256(self._raw).hexdigest()
        return self._sha256

    @property
    def value(self) -> Any:
        """The whole, decoded once; numbers keep their spelling."""
        if self._value is None:
            self._value = (jsontext.decode(self._raw),)
        return self._value[0]

    @property
    def content(self) -> list[Any]:
        """The content blocks; empty if there are none."""
        blocks = self.get("content")
        return blocks if isinstance(blocks, list) else []

    @property
    def text(self) -> str:
        """The text of all text blocks, joined by line feeds."""
        return "\n".join(
            block["text"]
            for block in self.content
            if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)
        )

    @property
    def structured_content(self) -> Any:
        """The structured content; None if absent, see :attr:`has_structured_content` for a null that was sent."""
        return self.get("structuredContent")

    @property
    def has_structured_content(self) -> bool:
        """Whether the result has structured content, be it null."""
        return self.span("structuredContent") is not None

    @property
    def is_error(self) -> bool:
        """Whether the tool said that it failed."""
        return self.get("isError") is True

    @property
    def meta(self) -> dict[str, Any]:
        """The result's ``_meta``; empty if there is none."""
        meta = self.get("_meta")
        return meta if isinstance(meta, dict) else {}

    def get(self, name: str) -> Any:
        """Decode the member of that name, None if there is none. Decodes nothing else."""
        if name not in self._members:
            found = jsontext.pointer(self._raw, (name,))
            self._members[name] = None if found is None else jsontext.decode(found)
        return self._members[name]

    def span(self, *path: str | int) -> Verbatim | None:
        """Cut out the exact bytes at a path of member names and indexes; None if nothing stands there."""
        found = jsontext.pointer(self._raw, path)
        return None if found is None else Verbatim(found)

    def __len__(self) -> int:
        return len(self._raw)

    def __eq__(self, other: object) -> bool:
        return self._raw == other._raw if isinstance(other, Verbatim) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._raw)

    def __repr__(self) -> str:
        server = self._provenance.get("server-id")
        origin = f" from '{server}'" if server else ""
        return f"<Verbatim: {len(self._raw)} bytes{origin}, sha256 {self.sha256[:12]}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._raw, dict(self._provenance))
