"""What differs between two definitions of a tool, field by field. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from openwop_mcp import jsontext
from openwop_mcp.catalog.fingerprint import UNSIGNED
from openwop_mcp.effects.identity import canonical

__all__ = ("Difference", "differences")

MAX_DIFFERENCES = 200
"""Differences that are told one by one; past as many a person compares the whole."""

MAX_LEVELS = 32
"""Levels that are gone into. Each reads again what is below it, so that a definition nested without end would take
seconds; schemas in use need half as many."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference.

    Attributes:
        path: Where, as a JSON Pointer (RFC 6901); empty for the whole.
        before: JSON text of what stood there, None for nothing.
        after: JSON text of what stands there now, None for nothing.
    """

    path: str
    before: bytes | None
    after: bytes | None


def differences(before: bytes, after: bytes) -> tuple[Difference, ...]:
    """Compare two definitions of a tool; texts that say the same are alike, however they are spelled.

    ``_meta`` is left out. Of more than 200 differences the last one told is of the whole definition, for the rest.

    Raises:
        JsonTextError: if one is not JSON.
    """
    found = list(islice(_between("", _signed(before), _signed(after), 0), MAX_DIFFERENCES + 1))
    if len(found) > MAX_DIFFERENCES:
        return (*found[:MAX_DIFFERENCES], Difference("", before, after))
    return tuple(found)


def _signed(definition: bytes) -> bytes:
    if jsontext.kind(definition) != "object":
        return definition
    return jsontext.build((name, value) for name, value in jsontext.members(definition) if name != UNSIGNED)


def _between(path: str, before: bytes, after: bytes, level: int) -> Iterator[Difference]:
    if before == after:
        return
    parts = None if level == MAX_LEVELS else _alike(before, after)
    if parts is None:
        if canonical(before) != canonical(after):
            yield Difference(path, before, after)
        return
    old, new = parts
    # What stood there before comes first, in its order, then what is new.
    for name in {**old, **new}:
        where = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
        if name in old and name in new:
            yield from _between(where, old[name], new[name], level + 1)
        else:
            yield Difference(where, old.get(name), new.get(name))


def _alike(before: bytes, after: bytes) -> tuple[dict[str, bytes], dict[str, bytes]] | None:
    """The parts of two containers that can be compared one by one; None for what is told as a whole."""
    kinds = {jsontext.kind(before), jsontext.kind(after)}
    if kinds == {"object"}:
        members = jsontext.members(before), jsontext.members(after)
        old, new = dict(members[0]), dict(members[1])
        # Where a name stands twice, it is anybody's guess which one counts.
        return (old, new) if (len(old), len(new)) == (len(members[0]), len(members[1])) else None
    if kinds == {"array"}:
        elements = jsontext.elements(before), jsontext.elements(after)
        # With one put in or taken out, all behind it would seem to have changed.
        return (_numbered(elements[0]), _numbered(elements[1])) if len(elements[0]) == len(elements[1]) else None
    return None


def _numbered(elements: list[bytes]) -> dict[str, bytes]:
    return {str(index): element for index, element in enumerate(elements)}
