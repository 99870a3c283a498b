"""Faults of TOML itself, told with the key and the line that they are at.

Knows tomllib's messages, and repeats none of them: they may hold what was written.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

from openwop_mcp.config._faults import dotted, model_at
from openwop_mcp.config._settings import Settings
from openwop_mcp.config._tables import Place, fields

__all__ = ("syntax",)

_POSITION = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")
_DECLARED = re.compile(r"Cannot declare (\(.*\)) twice")
_TWICE = ("Cannot overwrite", "Duplicate inline table key", "Cannot mutate immutable namespace", "Cannot redefine")
_HEADER_LINE = re.compile(rf"\s*\[\[?\s*((?:{'|'.join(fields(Settings))})\b[^\]]*?)\s*\]")
_KEY_LINE = re.compile(r"\s*([A-Za-z0-9._-]+)\s*=\s*(\{)?")


def syntax(text: str, message: str) -> str:
    """Say in our words what tomllib found. Its own may repeat what was written, and seldom name the key."""
    position = _POSITION.search(message)
    lines = text.splitlines() or [""]
    number = int(position[1]) if position is not None and position[1] else len(lines)
    declared = _DECLARED.match(message)
    if declared is not None:
        path = tuple(str(key) for key in ast.literal_eval(declared[1]))
        return f"{dotted(path)}: {_twice(path)} (line {number})"
    key = _key_near(lines[:number])
    if message.startswith(_TWICE):
        return (
            f"{dotted(key)}: {_twice(key)} (line {number})" if key else f"line {number}: a key stands twice: keep one"
        )
    where = f"{dotted(key)}: " if key else ""
    return (
        f"{where}not TOML at line {number}: put text in double quotes, close quotes and brackets, write one "
        "`key = value` a line"
    )


def _twice(path: Place) -> str:
    if len(path) == 2 and path[0] == "servers":  # noqa: PLR2004 - servers.ID
        return f'two servers have the id "{path[1]}": give one of them another'
    return "stands twice: keep one"


def _key_near(lines: Sequence[str]) -> Place:
    """The key that is being written where the lines end, or () if that cannot be told without repeating a value."""
    header: Place = ()
    key: re.Match[str] | None = None
    for line in reversed(lines):
        if (match := _HEADER_LINE.match(line)) is not None:
            try:
                header = tuple(_header_path(match[1]))
            except tomllib.TOMLDecodeError:
                return ()
            break
        key = key or _KEY_LINE.match(line)
    if key is None:
        return header
    place = (*header, *key[1].split("."))
    # What looks like a key may be a line of a value, so only names of ours are repeated, and ids where a table follows.
    if str(place[-1]) in fields(model_at(place)[0]) or (place[:-1] == ("servers",) and key[2]):
        return place
    return header


def _header_path(text: str) -> Iterator[str]:
    table: Any = tomllib.loads(f"[{text}]")
    while table:
        (key,) = table
        yield key
        table = table[key]
