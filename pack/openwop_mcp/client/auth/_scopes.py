"""Which scopes to ask for (MCP 2026-07-28, authorization, scope selection). Pure decisions over scope strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = (
    "OFFLINE_ACCESS",
    "Scopes",
    "initial",
    "listed",
    "split",
    "union",
    "with_offline_access",
    "without_offline_access",
)

Scopes = tuple[str, ...]
"""Scope tokens in the order in which they were met, each once; empty for no scope at all."""

OFFLINE_ACCESS = "offline_access"
"""The scope that stands for a refresh token (OpenID Connect Core, section 11)."""

MAX_SCOPES = 100
"""Scopes that are asked for at once. A server can challenge for ever; a request line cannot grow for ever."""

_SCOPE_TOKEN = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,256}")


def split(text: str | None) -> Scopes:
    """The scopes of a ``scope`` parameter (RFC 6749, section 3.3); what is no scope token is left out."""
    return listed((text or "").split(" "))


def listed(values: object) -> Scopes:
    """The scopes of a metadata document's list."""
    if not isinstance(values, list | tuple):
        return ()
    tokens = [value for value in values if isinstance(value, str) and _SCOPE_TOKEN.fullmatch(value)]
    return tuple(dict.fromkeys(tokens))[:MAX_SCOPES]


def union(*groups: Iterable[str]) -> Scopes:
    """All scopes of all groups."""
    return tuple(dict.fromkeys(scope for group in groups for scope in group))[:MAX_SCOPES]


def initial(*, configured: Scopes, challenged: Scopes, supported: Scopes, before: Scopes) -> Scopes:
    """What to ask for when a token is needed.

    The operator's choice goes first. What the challenge says goes before what the resource's metadata lists, which
    tells what there is and not what is needed. What was asked for before is not given up.
    """
    return configured or union(before, challenged) or supported


def with_offline_access(scopes: Scopes, offered: Sequence[str]) -> Scopes:
    """Ask for a refresh token too if the authorization server lists the scope for it, and never otherwise.

    Never alone: without a scope the server takes its default ones, and this one would take their place.
    """
    others = without_offline_access(scopes)
    return union(others, [OFFLINE_ACCESS]) if others and OFFLINE_ACCESS in offered else others


def without_offline_access(scopes: Scopes) -> Scopes:
    """The scopes of a client that has no use for a refresh token, since it can ask anew."""
    return tuple(scope for scope in scopes if scope != OFFLINE_ACCESS)
