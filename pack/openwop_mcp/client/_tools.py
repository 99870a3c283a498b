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
"""Bytes of a schema that is remembered: larger ones are not checked by, and would be most of the memory."""

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
        """Read a page of ``tools/list``; what it says goes before what was known.

        Returns:
            The page's tools, by name.
        """
        learnt: dict[str, KnownTool] = {}
        tools = jsontext.member(page, "tools")
        for tool in jsontext.elements(tools) if tools is not None and jsontext.kind(tools) == "array" else []:
            found = dict(jsontext.members(tool)) if jsontext.kind(tool) == "object" else {}
            told = found.get("name")
            if told is not None and jsontext.kind(told) == "string":
                learnt[jsontext.decode(told)] = _known(found)
        for name, known in learnt.items():
            self._tools[name] = known
            self._tools.move_to_end(name)
        while len(self._tools) > MAX_TOOLS:
            self._tools.popitem(last=False)
        return learnt


def _known(tool: dict[str, bytes]) -> KnownTool:
    schema = tool.get("inputSchema")
    headers: Sequence[params.HeaderParam] = ()
    invalid: str | None = None
    if schema is not None and MAY_BE_ANNOTATED.search(schema) is not None:
        try:
            headers = params.header_params(schema)
        except params.InvalidHeaderAnnotationError as error:
            invalid = str(error)
    return KnownTool(headers, invalid, _schema(schema), _schema(tool.get("outputSchema")))


def _schema(text: bytes | None) -> bytes | None:
    usable = text is not None and len(text) <= MAX_SCHEMA and jsontext.kind(text) == "object"
    return text if usable else None
