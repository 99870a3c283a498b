"""How a call's key reaches a server: MCP has no idempotency key, so an operator says what carries it.

Pure. Knows how each carrier spells a key, and nothing of what a key is made of or what a server does with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from openwop_mcp import jsontext

__all__ = ("DEFAULT_CARRIERS", "HEADER", "META", "Carried", "KeyArgument", "KeyCarrier", "carry")

HEADER: Final = "Idempotency-Key"
"""The header that HTTP servers and gateways take such keys in. Bare, as those in use read it."""

META: Final = "dev.openwop-mcp/idempotency-key"
"""``_meta`` key, under a prefix of our own as MCP wants it for what is not its own."""


@dataclass(frozen=True, slots=True)
class KeyArgument:
    """An argument of the tool that takes the key.

    Attributes:
        argument: Its name.
    """

    argument: str


KeyCarrier = KeyArgument | Literal["header", "meta"]
"""One thing that carries a key."""

DEFAULT_CARRIERS: Final[tuple[KeyCarrier, ...]] = ("header", "meta")
"""Servers pass over headers and ``_meta`` that they do not know; an argument that they do not know they may refuse."""


@dataclass(frozen=True, slots=True)
class Carried:
    """A call with its key.

    Attributes:
        arguments: JSON text of the arguments to send; None for none.
        headers: Headers beside those that the call has without a key.
        meta: Members of ``_meta``, likewise.
    """

    arguments: bytes | None
    headers: Sequence[tuple[str, str]] = ()
    meta: Sequence[tuple[str, bytes]] = ()


def carry(key: str | None, carriers: Sequence[KeyCarrier], arguments: bytes | None) -> Carried:
    """Put a key where the carriers say; the author's arguments keep their bytes, and one of the key's name its value.

    Args:
        key: Visible ASCII; None for a call without.
        carriers: Where it goes.
        arguments: JSON text of an object; None for none.

    Raises:
        JsonTextError: if an argument carries the key and ``arguments`` is not an object.
    """
    if key is None:
        return Carried(arguments)
    value = jsontext.encode(key)
    for carrier in carriers:
        if isinstance(carrier, KeyArgument):
            arguments = _with_member(b"{}" if arguments is None else arguments, carrier.argument, value)
    return Carried(
        arguments,
        headers=[(HEADER, key)] if "header" in carriers else (),
        meta=[(META, value)] if "meta" in carriers else (),
    )


def _with_member(data: bytes, name: str, value: bytes) -> bytes:
    """Add a member as the last one, unless there is one of that name."""
    if jsontext.member(data, name) is not None:
        return data
    # What closes the object is the last brace, as only white space can follow it.
    end = data.rindex(b"}")
    before = data[:end]
    comma = b"" if before.strip() == b"{" else b","
    return b"".join([before, comma, jsontext.encode(name), b":", value, data[end:]])
