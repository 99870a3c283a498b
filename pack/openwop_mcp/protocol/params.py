"""Arguments that a tool wants mirrored into headers: ``x-mcp-header`` in its input schema.

Judges the annotations (MCP 2026-07-28, Streamable HTTP) and makes the headers; validates nothing else of a schema.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from openwop_mcp import jsontext
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.protocol.headers import encode_value

__all__ = ("HeaderParam", "InvalidHeaderAnnotationError", "header_params", "param_headers")

ANNOTATION = "x-mcp-header"

MAX_INTEGER = 2**53 - 1
"""The largest integer that every JSON reader holds exactly; the protocol allows no larger one in a header."""

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_TYPES = ("integer", "string", "boolean")

# Keywords whose value is data, where the annotation's name means nothing.
_DATA = frozenset({"const", "default", "enum", "examples"})

# Keywords whose value maps names to schemas, so that its own keys are not keywords.
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})


class InvalidHeaderAnnotationError(ValueError):
    """A schema has an annotation that breaks the rules, so that its tool cannot be called over HTTP.

    Attributes:
        reason: Which rule is broken.
        path: Where, as a JSON Pointer.
    """

    def __init__(self, reason: str, path: Sequence[str]) -> None:
        self.reason = reason
        self.path = "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in path)
        super().__init__(f"{ANNOTATION} at '{self.path}' {reason}")


@dataclass(frozen=True, slots=True)
class HeaderParam:
    """An argument that is mirrored.

    Attributes:
        path: Property names that lead to it from the root of the arguments.
        name: The annotation.
        type: Type of the property.
    """

    path: tuple[str, ...]
    name: str
    type: Literal["integer", "string", "boolean"]

    @property
    def header(self) -> str:
        """The header's name."""
        return f"Mcp-Param-{self.name}"


@dataclass(frozen=True, slots=True)
class _Steps:
    """The way to a place, by its last step: a deep schema would make tuples of all steps cost quadratic time."""

    before: _Steps | None
    last: str

    def listed(self) -> tuple[str, ...]:
        steps: list[str] = []
        step: _Steps | None = self
        while step is not None:
            steps.append(step.last)
            step = step.before
        return tuple(reversed(steps))


@dataclass(frozen=True, slots=True)
class _Place:
    """A schema inside the input schema, the way to it, and the way through properties where they alone lead to it."""

    schema: Any
    path: _Steps | None = None
    by_properties: bool = True
    properties: _Steps | None = None

    def fault(self, reason: str) -> InvalidHeaderAnnotationError:
        return InvalidHeaderAnnotationError(reason, self.path.listed() if self.path is not None else ())


def header_params(input_schema: bytes | Any) -> list[HeaderParam]:
    """List the arguments that a tool wants in headers, in the order of the schema.

    Args:
        input_schema: The schema, as JSON text or decoded.

    Raises:
        InvalidHeaderAnnotationError: if any annotation anywhere in it breaks a rule.
        JsonTextError: if the text is not JSON.
    """
    schema = jsontext.decode(input_schema) if isinstance(input_schema, bytes) else input_schema
    found: dict[str, HeaderParam] = {}
    pending = [_Place(schema)]
    while pending:
        place = pending.pop()
        if isinstance(place.schema, dict) and ANNOTATION in place.schema:
            param = _param(place)
            if param.name.lower() in found:
                raise place.fault("is used twice; names must differ by more than case")
            found[param.name.lower()] = param
        pending.extend(reversed(_inner(place)))
    return list(found.values())


def param_headers(params: Sequence[HeaderParam], arguments: bytes) -> list[tuple[str, str]]:
    """Make the headers for a call; an argument that is absent or null has none.

    Raises:
        InvalidRequestError: if an argument that must be mirrored has no form in a header.
    """
    headers: list[tuple[str, str]] = []
    for param in params:
        data = jsontext.pointer(arguments, param.path)
        if data is not None and data != b"null":
            headers.append((param.header, _mirrored(jsontext.decode(data), param)))
    return headers


def _param(place: _Place) -> HeaderParam:
    name, kind = place.schema[ANNOTATION], place.schema.get("type")
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise place.fault("is not a header name: letters, digits and !#$%&'*+-.^_`|~ only")
    if place.properties is None:
        raise place.fault("is not on a property that properties alone lead to")
    if kind not in _TYPES:
        raise place.fault("is on a property whose type is not integer, string or boolean")
    return HeaderParam(place.properties.listed(), name, cast("Literal['integer', 'string', 'boolean']", kind))


def _inner(place: _Place) -> list[_Place]:
    """List the values one step further in that can hold annotations."""
    if isinstance(place.schema, list):
        return [_Place(item, _Steps(place.path, str(at)), by_properties=False) for at, item in enumerate(place.schema)]
    if not isinstance(place.schema, dict):
        return []
    inner: list[_Place] = []
    for keyword, value in place.schema.items():
        path = _Steps(place.path, keyword)
        if keyword in _MAPS and isinstance(value, dict):
            reached = keyword == "properties" and place.by_properties
            inner += [
                _Place(schema, _Steps(path, name), reached, _Steps(place.properties, name) if reached else None)
                for name, schema in value.items()
            ]
        elif keyword not in _DATA and keyword != ANNOTATION:
            inner.append(_Place(value, path, by_properties=False))
    return inner


def _mirrored(value: Any, param: HeaderParam) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, str | int):
        raise InvalidRequestError(
            f"the tool wants this argument in the header {param.header}: it must be of type {param.type}",
            path=_argument(param),
        )
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise InvalidRequestError(
            f"the tool wants this argument in the header {param.header}: it must be within ±(2^53-1)",
            path=_argument(param),
        )
    return encode_value(value)


def _argument(param: HeaderParam) -> str:
    return ".".join(("arguments", *param.path))
