"""The headers that mirror a request's body (MCP 2026-07-28, Streamable HTTP), and how a value fits into one.

Knows no HTTP client; which arguments are mirrored is for ``openwop_mcp.protocol.params``.
"""

from __future__ import annotations

import base64
import binascii
import re

from openwop_mcp.errors import InvalidRequestError

__all__ = ("decode_value", "encode_value", "standard")

_PREFIX = "=?base64?"
_SUFFIX = "?="

_PLAIN = re.compile(r"[\x20-\x7e]*")


def standard(revision: str, method: str, *, name: str | None) -> list[tuple[str, str]]:
    """List the headers that every request has.

    Args:
        revision: Revision of MCP.
        method: Method of the request.
        name: Tool or prompt name, or resource URI, for the methods that have one.
    """
    headers = [("MCP-Protocol-Version", revision), ("Mcp-Method", method)]
    if name is not None:
        headers.append(("Mcp-Name", encode_value(name)))
    return headers


def encode_value(value: str | int | bool) -> str:
    """Spell a value for a header: plain where it can stand there unaltered, else in Base64 between markers.

    Raises:
        InvalidRequestError: if it holds a lone surrogate, which no UTF-8 can carry.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    plain = _PLAIN.fullmatch(value) and value == value.strip(" ")
    if plain and not (value.startswith(_PREFIX) and value.endswith(_SUFFIX)):
        return value
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise InvalidRequestError("a value for a header holds a lone surrogate: send well-formed text") from None
    return f"{_PREFIX}{base64.b64encode(data).decode()}{_SUFFIX}"


def decode_value(text: str) -> str:
    """Read a header's value as the text that it stands for.

    Raises:
        ValueError: if it holds other characters than visible ASCII and spaces, or markers around what is not Base64
            of UTF-8.
    """
    if not _PLAIN.fullmatch(text):
        raise ValueError("a header's value holds characters outside visible ASCII")
    inner = text[len(_PREFIX) : -len(_SUFFIX)]
    if not (text.startswith(_PREFIX) and text.endswith(_SUFFIX)) or len(text) < len(_PREFIX) + len(_SUFFIX):
        return text
    try:
        return base64.b64decode(inner, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError("a header's value has Base64 markers around what is not Base64 of UTF-8") from None
