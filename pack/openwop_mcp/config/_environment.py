"""Variables of the environment as values of the settings: which place each names, and how its text is read.

Judges no value: what makes no sense is put where it was meant to go, for validation to refuse. What names no place is
refused here.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel

from openwop_mcp.config._faults import dotted
from openwop_mcp.config._settings import Settings
from openwop_mcp.config._tables import Place, fields, shape

__all__ = (
    "ENVIRONMENT_PREFIX",
    "overlay",
)

ENVIRONMENT_PREFIX = "OPENWOP_MCP__"
"""Two underscores between the names on the way to a value, because names hold single ones."""


def overlay(written: dict[str, Any], environ: Mapping[str, str]) -> tuple[dict[str, Any], dict[Place, str], list[str]]:
    """The file's values with the environment's over them, which variable each of those came from, and the faults."""
    data: dict[str, Any] = _copy(written)
    origins: dict[Place, str] = {}
    faults: list[str] = []
    for name in sorted((name for name in environ if name.startswith(ENVIRONMENT_PREFIX)), key=_order):
        where, free = _place(data, _segments(name), environ[name])
        origins[where] = name
        if free is not None:
            faults.append(
                f"environment variable {name}: {dotted(where)}: positions in an array are 0, 1 and so on, without a"
                f" gap: the next one here is {free}"
            )
    return data, origins, faults


def _segments(name: str) -> list[str]:
    return name.removeprefix(ENVIRONMENT_PREFIX).split("__")


def _order(name: str) -> list[tuple[int, str]]:
    """Sorts a table before the values in it, so that both can be given, and the positions in an array as numbers."""
    return [(len(segment) if segment.isdecimal() else 0, _folded(segment)) for segment in _segments(name)]


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _place(data: dict[str, Any], segments: Sequence[str], text: str) -> tuple[Place, int | None]:
    """Put a value at its place; of one that names no position of an array, the position that is free there."""
    container: Any = data
    annotation: Any = Settings
    where: list[str | int] = []
    for depth, segment in enumerate(segments):
        key, annotation = _step(container, annotation, segment)
        where.append(key)
        if isinstance(container, list) and not isinstance(key, int):
            return tuple(where), len(container)
        last = depth == len(segments) - 1
        inner = _decode(text, annotation) if last else _inner(container, key, annotation)
        if isinstance(container, list) and key == len(container):
            container.append(inner)
        else:
            container[key] = inner
        container = inner
    return tuple(where), None


def _inner(container: Any, key: str | int, annotation: Any) -> Any:
    """The table or array at ``key`` to go on into; what is no table is replaced, since the environment wins."""
    present = None
    if isinstance(container, dict):
        present = container.get(key)
    elif isinstance(key, int) and key < len(container):
        present = container[key]
    if isinstance(present, dict | list):
        return present
    return [] if shape(annotation)[0] is tuple else {}


def _step(container: Any, annotation: Any, segment: str) -> tuple[str | int, Any]:
    """Which key a segment means, and what belongs there; an unknown one is kept for validation to refuse."""
    kind, arguments = shape(annotation)
    if isinstance(container, list):
        positions = {str(at): at for at in range(len(container) + 1)}
        return positions.get(segment, segment), arguments[0] if kind is tuple else None
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        field = fields(kind).get(segment.lower())
        return segment.lower(), field.annotation if field is not None else None
    value = arguments[1] if kind is dict else None
    return _name(container, segment), value


def _name(container: Mapping[str, Any], segment: str) -> str:
    """A server id or tool name as the file spells it: a variable's name has neither `-` nor `.`, and often no case."""
    if segment in container:
        return segment
    for name in container:
        if _folded(name) == segment.lower():
            return name
    return segment.lower() if segment.isupper() else segment


def _folded(name: str) -> str:
    return re.sub(r"[-.]", "_", name.lower())


def _decode(text: str, annotation: Any) -> Any:
    """A variable's value: text where text belongs, else as TOML or JSON would write it."""
    if shape(annotation)[0] in {str, Literal}:
        return text
    try:
        value = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        pass
    else:
        if value.keys() == {"value"}:
            return value["value"]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
