"""Reads ``WWW-Authenticate`` (RFC 9110, section 11.6.1). Pure; what makes no sense in it is passed over."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

__all__ = ("Challenge", "bearer", "parse")

MAX_HEADER = 4096
"""Characters of one field value that are looked at: servers send hundreds."""

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - a grammar
_QUOTED = r'"(?:[^"\\]|\\.)*"'
# Servers leave the quotes away from URLs too, which are no tokens.
_BARE = r'[^ \t,"]+'

_SKIP = re.compile(r"[ \t,]*")
_SCHEME = re.compile(rf"({_TOKEN})(?=[ \t,]|$)")
_SPACE = re.compile(r"[ \t]+")
_TOKEN68 = re.compile(r"([A-Za-z0-9._~+/-]+=*)(?=[ \t]*(?:,|$))")
_PARAMETER = re.compile(rf"({_TOKEN})[ \t]*=[ \t]*({_QUOTED}|{_BARE})(?=[ \t]*(?:,|$)|[ \t])", re.DOTALL)
# A quote that never closes has all that follows in it.
_REST = re.compile(rf"(?:{_QUOTED}|[^,\"])+|\".*", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a server wants to be shown.

    Attributes:
        scheme: The authentication scheme in lower case.
        parameters: By name in lower case; of a name that stands twice the first counts.
        token68: What stands in place of parameters, in schemes that have none.
    """

    scheme: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    token68: str | None = None


def parse(values: Iterable[str]) -> list[Challenge]:
    """All challenges of the field's values, in order. A value may hold several, and several may have been joined."""
    return [challenge for value in values for challenge in _challenges(value[:MAX_HEADER])]


def bearer(values: Iterable[str], error: str | None = None) -> Challenge | None:
    """The first ``Bearer`` challenge, with that ``error`` if one is named.

    A server may name one of its own beside another that a gateway added, so the one that says more is preferred.
    """
    found = [
        challenge
        for challenge in parse(values)
        if challenge.scheme == "bearer" and (error is None or challenge.parameters.get("error") == error)
    ]
    telling = [challenge for challenge in found if {"resource_metadata", "scope"} & challenge.parameters.keys()]
    return next(iter(telling or found), None)


def _challenges(text: str) -> Iterator[Challenge]:
    position = _past(_SKIP, text, 0)
    while position < len(text):
        scheme = _SCHEME.match(text, position)
        if scheme is None:
            # No scheme can begin here: go on behind the next comma that is in no quotes.
            position = _past(_SKIP, text, _past(_REST, text, position))
            continue
        token68, parameters, position = _credentials(text, scheme.end())
        yield Challenge(scheme[1].lower(), parameters, token68)


def _credentials(text: str, position: int) -> tuple[str | None, dict[str, str], int]:
    """What follows a scheme, and where the next challenge may begin."""
    parameters: dict[str, str] = {}
    space = _SPACE.match(text, position)
    if space is not None:
        token68 = _TOKEN68.match(text, space.end())
        if token68 is not None:
            return token68[1], parameters, _past(_SKIP, text, token68.end())
    position = _past(_SKIP, text, position)
    while (parameter := _PARAMETER.match(text, position)) is not None:
        value = parameter[2]
        if value.startswith('"'):
            value = _ESCAPED.sub(r"\1", value[1:-1])
        parameters.setdefault(parameter[1].lower(), value)
        position = _past(_SKIP, text, parameter.end())
    return None, parameters, position


def _past(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    return match.end() if match is not None else position
