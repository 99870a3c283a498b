"""One page of ``tools/list``: which tools stand in it, what tells them apart, and which cannot be called. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from openwop_mcp import jsontext
from openwop_mcp.calls import MAX_NAME
from openwop_mcp.catalog.fingerprint import fingerprint
from openwop_mcp.protocol.params import ANNOTATION, InvalidHeaderAnnotationError, header_params

__all__ = ("PageTool", "definitions", "page_digest", "read_page")

RULES = 1
"""Version of what :func:`read_page` says of a page. A change that says otherwise of an old page is a new version: pages
that a catalog has are then read anew."""

MAY_BE_ANNOTATED = re.compile(rb"x-mcp-header|\\u")
"""Whether a schema's text can name a header, plainly or with escapes. Most cannot, and are not decoded."""


@dataclass(frozen=True, slots=True)
class PageTool:
    """One element of a page's tools.

    Attributes:
        name: Its name; None where it has none, or none that could be called.
        fingerprint: See :func:`~openwop_mcp.catalog.fingerprint.fingerprint`.
        unusable: Why it cannot be called, in words that quote nothing of it; None if it can.
    """

    name: str | None
    fingerprint: str
    unusable: str | None


def page_digest(page: bytes, *, http: bool) -> str:
    """What tells a page apart from others, and from itself read otherwise: 64 hexadecimal digits.

    Args:
        page: JSON text of a ``ListToolsResult``.
        http: See :func:`read_page`.
    """
    return hashlib.sha256(b"%d %d\n%b" % (RULES, http, page)).hexdigest()


def definitions(page: bytes) -> list[bytes]:
    """The exact bytes of the page's tools; a page that lists none, because its ``tools`` is no array, has none.

    Raises:
        JsonTextError: if the page is not JSON.
    """
    tools = jsontext.member(page, "tools") if jsontext.kind(page) == "object" else None
    return jsontext.elements(tools) if tools is not None and jsontext.kind(tools) == "array" else []


def read_page(page: bytes, *, http: bool) -> tuple[PageTool, ...]:
    """Read the page's tools, in order. Takes about a second for 15 MB.

    Args:
        page: JSON text of a ``ListToolsResult``.
        http: Whether the server is reached over HTTP, where a tool may ask for headers.

    Raises:
        JsonTextError: if the page is not JSON.
    """
    return tuple(_read(definition, http=http) for definition in definitions(page))


def _read(definition: bytes, *, http: bool) -> PageTool:
    known = fingerprint(definition)
    if jsontext.kind(definition) != "object":
        return PageTool(None, known, "its definition is no object")
    members = dict(jsontext.members(definition))
    name, misnamed = _name(members.get("name"))
    return PageTool(name, known, misnamed or _unfit(members.get("inputSchema"), http=http))


def _name(text: bytes | None) -> tuple[str | None, str | None]:
    """A tool's name, or why it has none."""
    if text is None:
        return None, "it has no name"
    if jsontext.kind(text) != "string":
        return None, "its name is no string"
    name: str = jsontext.decode(text)
    if not name:
        return None, "its name is empty"
    # What nobody can call by its name is not remembered by it either: it may be as long as a page.
    return (None, f"its name has more than {MAX_NAME} characters") if len(name) > MAX_NAME else (name, None)


def _unfit(schema: bytes | None, *, http: bool) -> str | None:
    if schema is None:
        return "it has no inputSchema"
    if jsontext.kind(schema) != "object":
        return "its inputSchema is no object"
    kind = jsontext.member(schema, "type")
    if kind is not None and jsontext.decode(kind) != "object":
        return "its inputSchema takes something other than an object"
    if http and MAY_BE_ANNOTATED.search(schema):
        try:
            header_params(schema)
        except InvalidHeaderAnnotationError as error:
            return f"an {ANNOTATION} in its inputSchema {error.reason}"
    return None
