"""What a server's pages said of its tools, for calls to come: headers to mirror, schemas to check by, what is unusable.

An optimisation of one process: a tool that is not known here is called all the same.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from openwop_mcp import jsontext
from openwop_mcp.protocol import params

__all__ = ("KnownTool", "ToolBook")

MAX_TOOLS = 4096
"""Tools remembered of one server: more than any sound one has."""

MAX_SCHEMA = 64 * 1024
"""Bytes of a schema that is read and remembered: larger ones would be most of the time and of the memory."""

MAX_ANNOTATED = 1024 * 1024
"""Bytes of one page's schemas that are searched for headers, at a third of a second; tools after them stay unknown."""

MAY_BE_ANNOTATED = re.compile(rb"x-mcp-header|\\u")
"""Whether a schema's text can name a header, plainly or with escapes. Most cannot, and are not decoded."""


@dataclass(frozen=True, slots=True)
class KnownTool:
    """What is known of a tool.

    Attributes:
        headers: Its arguments that are mirrored into headers.
        invalid: Why its ``x-mcp-header`` annotations make it unusable over HTTP, if they do (MCP 2026-07-28, Streamable
            HTTP).
        input_schema: JSON text, where it is an object and not too large.
        output_schema: The same.
    """

    headers: Sequence[params.HeaderParam] = ()
    invalid: str | None = None
    input_schema: bytes | None = None
    output_schema: bytes | None = None


UNKNOWN = KnownTool()


class ToolBook:
    """The tools of one server, the least recently listed of which are forgotten first."""

    def __init__(self) -> None:
        self._tools: OrderedDict[str, KnownTool] = OrderedDict()

    def get(self, name: str) -> KnownTool:
        """What is known of a tool; of one that is not known, nothing."""
        return self._tools.get(name, UNKNOWN)

    def learn(self, page: bytes) -> dict[str, KnownTool]:
        """Read a page of ``tools/list``; what it says goes before what was known. A page too large is read in part.

        Returns:
            The page's tools, by name.
        """
        learnt: dict[str, KnownTool] = {}
        tools = jsontext.member(page, "tools")
        listed = jsontext.elements(tools) if tools is not None and jsontext.kind(tools) == "array" else []
        left = MAX_ANNOTATED
        for tool in listed[:MAX_TOOLS]:
            found = dict(jsontext.members(tool)) if jsontext.kind(tool) == "object" else {}
            told = found.get("name")
            if told is None or jsontext.kind(told) != "string":
                continue
            schema = _schema(found.get("inputSchema"))
            annotated = schema is not None and MAY_BE_ANNOTATED.search(schema) is not None
            left -= len(schema) if schema is not None and annotated else 0
            if left < 0:
                break
            headers, invalid = _headers(schema) if schema is not None and annotated else ((), None)
            learnt[jsontext.decode(told)] = KnownTool(headers, invalid, schema, _schema(found.get("outputSchema")))
        for name, known in learnt.items():
            self._tools[name] = known
            self._tools.move_to_end(name)
        while len(self._tools) > MAX_TOOLS:
            self._tools.popitem(last=False)
        return learnt


def _headers(schema: bytes) -> tuple[Sequence[params.HeaderParam], str | None]:
    """The arguments to mirror, or why the annotations cannot be used."""
    try:
        return params.header_params(schema), None
    except params.InvalidHeaderAnnotationError as error:
        return (), str(error)


def _schema(text: bytes | None) -> bytes | None:
    usable = text is not None and len(text) <= MAX_SCHEMA and jsontext.kind(text) == "object"
    return text if usable else None
