"""What a server's pages said of its tools, for calls to come: headers to mirror, schemas to check by, what is unusable.

An optimisation of one process: a tool that is not known here is called all the same.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openwop_mcp import jsontext
from openwop_mcp.protocol import params

__all__ = ("KnownTool", "ToolBook", "read_page")

MAX_TOOLS = 4096
"""Tools remembered of one server: more than any sound one has."""

MAX_SCHEMA = 64 * 1024
"""Bytes of a schema that is remembered: larger ones would be most of the memory."""

MAX_ANNOTATED = 1024 * 1024
"""Bytes of one page's schemas that are searched for headers, at a third of a second; annotated tools that would exceed
them stay unknown, until a server misses the headers of one."""

MAX_ENTERED = 128 * 1024 * 1024
"""Bytes of the parts of one large schema that are taken apart, one within another: the largest answer, and as much."""

MAX_PARTS = 100_000
"""Members and elements of them: they take 20 MB, and no sound schema has as many."""

MAX_LEVELS = 100
"""Levels of them: Python's own stack has ten times as many frames."""

MAX_HEADER = 8 * 1024
"""Bytes of a string that may name a header: no server takes a longer one."""

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

    def learn(self, tools: Mapping[str, KnownTool]) -> None:
        """Take in what a page says: it goes before what was known."""
        for name, known in tools.items():
            self._tools[name] = known
            self._tools.move_to_end(name)
        while len(self._tools) > MAX_TOOLS:
            self._tools.popitem(last=False)


def read_page(page: bytes, sought: str | None = None) -> dict[str, KnownTool]:
    """What a page of ``tools/list`` says of its tools, by name. May be called in a thread: a long one takes seconds.

    Args:
        page: JSON text of the result. Too large a one is read in part.
        sought: A tool whose headers are read however large its schema is.
    """
    read: dict[str, KnownTool] = {}
    tools = jsontext.member(page, "tools")
    listed = jsontext.elements(tools) if tools is not None and jsontext.kind(tools) == "array" else []
    left = MAX_ANNOTATED
    for at, tool in enumerate(listed if sought is not None else listed[:MAX_TOOLS]):
        found = dict(jsontext.members(tool)) if jsontext.kind(tool) == "object" else {}
        told = found.get("name")
        if told is None or jsontext.kind(told) != "string":
            continue
        name = jsontext.decode(told)
        if at >= MAX_TOOLS and name != sought:
            continue
        schema = _object(found.get("inputSchema"))
        annotated = schema is not None and MAY_BE_ANNOTATED.search(schema) is not None
        headers: Sequence[params.HeaderParam] = ()
        invalid: str | None = None
        if schema is not None and annotated:
            if name != sought:
                left -= len(schema)
                if left < 0:
                    continue
            headers, invalid = _headers(schema)
        read[name] = KnownTool(headers, invalid, _kept(schema), _kept(_object(found.get("outputSchema"))))
    return read


def _headers(schema: bytes) -> tuple[Sequence[params.HeaderParam], str | None]:
    """The arguments to mirror, or why the annotations cannot be used; neither where it would take too much to tell."""
    try:
        return params.header_params(schema if len(schema) <= MAX_SCHEMA else _Annotated().parts(schema)), None
    except params.InvalidHeaderAnnotationError as error:
        return (), str(error)
    except (_TooMuchError, jsontext.TooManyError):
        return (), None


class _TooMuchError(Exception):
    """To look for annotations would take too much."""


class _Annotated:
    """Takes a large schema apart: decoded as a whole it could take eighty times its memory."""

    def __init__(self) -> None:
        self._bytes = MAX_ENTERED
        self._parts = MAX_PARTS

    def parts(self, value: bytes, levels: int = MAX_LEVELS) -> bytes:
        """A part of a schema that may hold annotations, without what holds none.

        Raises:
            _TooMuchError: It would take too much; so says ``TooManyError``.
        """
        kind = jsontext.kind(value)
        if kind not in {"object", "array"}:
            return value
        self._bytes -= len(value)
        if self._bytes < 0 or not levels:
            raise _TooMuchError
        if kind == "object":
            members = jsontext.members(value, MAX_PARTS)
            self._count(len(members))
            return jsontext.build((name, self._part(one, levels)) for name, one in members)
        # Before it is taken apart; commas in strings are counted as well.
        self._count(value.count(b","))
        return b"[%b]" % b",".join([self._part(one, levels) for one in jsontext.elements(value)])

    def _count(self, parts: int) -> None:
        self._parts -= parts
        if self._parts < 0:
            raise _TooMuchError

    def _part(self, value: bytes, levels: int) -> bytes:
        if MAY_BE_ANNOTATED.search(value) is not None:
            return self.parts(value, levels - 1)
        # A short string may be the name of a header or of a type.
        return value if value.startswith(b'"') and len(value) <= MAX_HEADER else b"0"


def _object(text: bytes | None) -> bytes | None:
    return text if text is not None and jsontext.kind(text) == "object" else None


def _kept(schema: bytes | None) -> bytes | None:
    return schema if schema is not None and len(schema) <= MAX_SCHEMA else None
