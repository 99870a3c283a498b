"""The names of tools and catalogs: ids that are unique, stable and can be read back. Pure."""

from __future__ import annotations

import re

__all__ = ("catalog_id", "node_tool_id", "read_tool_id", "tool_id", "workflow_tool_id")

_PLAIN = re.compile(rb"[^A-Za-z0-9._-]")
_PLAIN_BUT_DOTS = re.compile(rb"[^A-Za-z0-9_-]")
_ESCAPE = re.compile(rb"~([0-9A-F]{2})")
_MCP = "mcp:"


def tool_id(server_id: str, tool: str) -> str:
    """The id of a server's tool, ``mcp:<server>.<tool>``: different for any two tools of any two servers.

    Bytes other than letters, digits, ``.``, ``_`` and ``-`` become ``~HH``. So does the ``.`` of a server's id: the
    first one that is left ends it.
    """
    return f"{_MCP}{_escaped(server_id, _PLAIN_BUT_DOTS)}.{_escaped(tool, _PLAIN)}"


def read_tool_id(text: str) -> tuple[str, str] | None:
    """Server and tool of an id; None for any text that :func:`tool_id` does not write."""
    server, dot, tool = text.removeprefix(_MCP).partition(".")
    if not dot or not text.isascii():
        return None
    try:
        read = _read(server), _read(tool)
    except UnicodeDecodeError:
        return None
    return read if tool_id(*read) == text else None


def node_tool_id(type_id: str) -> str:
    """The id of a node type's tool."""
    return f"openwop:{type_id}"


def workflow_tool_id(workflow_id: str) -> str:
    """The id of a workflow's tool."""
    return f"workflow:{_escaped(workflow_id, _PLAIN)}"


def catalog_id(tenant: str, server_id: str) -> str:
    """Id of the Temporal workflow that keeps what a server offers to a tenant."""
    return f"catalog:{tenant}/{server_id}"


def _escaped(text: str, escape: re.Pattern[bytes]) -> str:
    # A name may hold half a surrogate pair, which JSON can spell and UTF-8 cannot.
    return escape.sub(lambda found: b"~%02X" % found[0][0], text.encode(errors="surrogatepass")).decode()


def _read(escaped: str) -> str:
    return _ESCAPE.sub(lambda found: bytes([int(found[1], 16)]), escaped.encode()).decode(errors="surrogatepass")
