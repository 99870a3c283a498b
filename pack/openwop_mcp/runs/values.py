"""Questions that a graph asks of JSON values: what stands at a path, are two the same, does a condition hold.

Works on exact bytes and compares numbers exactly. Knows nothing of nodes and runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import re2

from openwop_mcp import jsontext

__all__ = ("PatternError", "compiled", "holds", "is_beyond", "pointer", "same", "select", "tokens")

MAX_COMPARED = 2_000_000
"""Bytes of a value that is compared: what history itself can hold. Both sides are decoded in a workflow task, which the
SDK gives up after two seconds and then tries again for ever; ordinary values of this size take a tenth of that."""

_EMPTY = re.compile(rb"[{\[][ \t\n\r]*[}\]]")
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


class PatternError(ValueError):
    """A pattern that RE2 does not take. The message says why and echoes none of it."""


_PATTERNS = re2.Options()
_PATTERNS.log_errors = False


def compiled(pattern: str) -> Any:
    """A regular expression of RE2, whose time grows with the text alone: a server's text cannot make it hang.

    Raises:
        PatternError: if it is none.
    """
    try:
        return re2.compile(pattern, _PATTERNS)
    except UnicodeEncodeError:
        raise PatternError("a lone surrogate is no character") from None
    except re2.error as error:
        reason, _, _ = error.args[0].decode(errors="replace").partition(":")
        raise PatternError(reason) from None


def tokens(key: str) -> tuple[str, ...]:
    """Split a JSON Pointer (RFC 6901, starts with ``/``) into its names; any other key is one name.

    Raises:
        ValueError: if a ``~`` in a pointer stands for nothing.
    """
    if not key.startswith("/"):
        return (key,)
    if re.search(r"~(?![01])", key):
        raise ValueError("in a JSON Pointer write ~ as ~0 and / in a name as ~1")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in key[1:].split("/"))


def pointer(path: Sequence[str]) -> str:
    """Write names as a JSON Pointer."""
    return "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in path)


def select(members: Mapping[str, bytes], path: Sequence[str]) -> bytes | None:
    """Cut out the value at a path of names and indexes; None if nothing stands there. An empty path is the whole."""
    if not path:
        return jsontext.build(members.items())
    value = members.get(path[0])
    for name in path[1:]:
        if value is None:
            return None
        holds_now = jsontext.kind(value)
        if holds_now == "object":
            value = jsontext.member(value, name)
        elif holds_now == "array" and _INDEX.fullmatch(name):
            value = jsontext.pointer(value, (int(name),))
        else:
            return None
    return value


def holds(condition: str, left: bytes | None, right: bytes | None) -> bool:
    """Tell whether a condition holds. None stands for an absent value, which equals nothing and is falsy."""
    if condition in ("truthy", "falsy"):
        return _truthy(left) is (condition == "truthy")
    if condition == "notEquals":
        return not holds("equals", left, right)
    if left is None or right is None:
        return False
    return _COMPARISONS[condition](jsontext.decode(left), jsontext.decode(right))


def same(left: Any, right: Any) -> bool:
    """Tell whether two decoded values are the same JSON value: 1, 1.0 and 1e0 are, 1 and true are not."""
    pairs = [(left, right)]
    while pairs:
        one, other = pairs.pop()
        if isinstance(one, dict):
            if not isinstance(other, dict) or one.keys() != other.keys():
                return False
            pairs.extend((value, other[name]) for name, value in one.items())
        elif isinstance(one, list):
            if not isinstance(other, list) or len(one) != len(other):
                return False
            pairs.extend(zip(one, other, strict=True))
        elif _is_number(one):
            if not _is_number(other) or _exact(one) != _exact(other):
                return False
        elif type(one) is not type(other) or one != other:
            return False
    return True


def is_beyond(condition: str, operand: bytes | None) -> bool:
    """Tell whether a value is too large for a condition, which then holds for nobody."""
    return operand is not None and condition not in ("truthy", "falsy") and len(operand) > MAX_COMPARED


def _truthy(data: bytes | None) -> bool:
    if data is None:
        return False
    if data[:1] in (b"{", b"["):
        return _EMPTY.fullmatch(data) is None
    value = jsontext.decode(data)
    return bool(value) if not _is_number(value) else _exact(value) != 0


def _contains(whole: Any, part: Any) -> bool:
    if isinstance(whole, str):
        return isinstance(part, str) and part in whole
    return isinstance(whole, list) and any(same(element, part) for element in whole)


def _matches(text: Any, pattern: Any) -> bool:
    if not isinstance(text, str) or not isinstance(pattern, str):
        return False
    # RE2 reads UTF-8, which has no lone surrogates: they count as a character of which nothing is known.
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return compiled(pattern).search(text) is not None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _exact(value: float | Decimal) -> Decimal:
    # A float prints as the shortest decimal that reads back as it, which is how its text was spelled; the exact
    # binary value is nothing that anyone wrote.
    if isinstance(value, Decimal):
        return value
    return Decimal(value) if isinstance(value, int) else Decimal(str(value))


_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {"equals": same, "contains": _contains, "regex": _matches}
