"""What an operator should know of a tool that can be called all the same: hidden text, and schemas nobody can check by.

Pure, and in our own words, except that a reason why a schema cannot be used may quote a bounded piece of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from openwop_mcp import jsontext
from openwop_mcp.terminal import escape

__all__ = ("remarks",)

SCHEMAS = ("inputSchema", "outputSchema")

MAY_HIDE = re.compile(r"\\u|[^\n\r\t -~]")
"""Whether a definition's text can hold what does not show, plainly or escaped. Most are ASCII, and not decoded."""


def remarks(definition: bytes, *, schemas: bool = True) -> tuple[str, ...]:
    """Remarks about one tool, in the order of its fields; takes up to a second where a schema is large.

    Args:
        definition: JSON text of the tool as its server lists it; whatever it holds.
        schemas: Whether to try its schemas too, which is what takes time: some milliseconds each.

    Raises:
        JsonTextError: if it is not JSON.
    """
    if jsontext.kind(definition) != "object":
        return ()
    members = dict(jsontext.members(definition))
    return (*_hiding(definition, members), *(_unchecked(members) if schemas else ()))


def _hiding(definition: bytes, members: Mapping[str, bytes]) -> Iterator[str]:
    if not MAY_HIDE.search(definition.decode()):
        return
    annotations = members.get("annotations", b"null")
    title = jsontext.member(annotations, "title") if jsontext.kind(annotations) == "object" else None
    said = {name: members.get(name) for name in ("name", "title", "description")}
    for name, text in {**said, "annotations.title": title, **{name: members.get(name) for name in SCHEMAS}}.items():
        if text is not None and any(escape(one, multiline=True) != one for one in _strings(jsontext.decode(text))):
            yield f"{name} holds characters that do not show, or that reorder or hide text"


def _strings(value: Any) -> Iterator[str]:
    """Every string in a value, names of members too."""
    waiting = [value]
    for one in waiting:
        if isinstance(one, str):
            yield one
        elif isinstance(one, list):
            waiting.extend(one)
        elif isinstance(one, dict):
            waiting.extend(one)
            waiting.extend(one.values())


def _unchecked(members: Mapping[str, bytes]) -> Iterator[str]:
    # Costs some 100 ms to import, which readers of other remarks, and a worker that starts, do not need.
    from openwop_mcp import schemas  # noqa: PLC0415

    for name in SCHEMAS:
        schema = members.get(name)
        if schema is None:
            continue
        if jsontext.kind(schema) != "object":
            yield f"{name} is no object"
        elif (verdict := schemas.check(schema, b"{}")).state == "unchecked":
            yield f"{name} cannot be checked by: {verdict.reason}"
