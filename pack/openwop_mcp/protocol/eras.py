"""What a server's answer says of its era: modern, legacy, or nothing. Pure; the client asks and acts on the verdict.

An outage is no verdict: a server that is overloaded, asks for credentials or does not answer may be of either era.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from openwop_mcp.protocol import messages, revisions

__all__ = ("Answered", "Verdict", "judge")

RECOGNISED = frozenset({messages.HEADER_MISMATCH, messages.MISSING_CAPABILITY, messages.UNSUPPORTED_REVISION})
"""Errors that only a server of revision 2026-07-28 has: it then never falls back (MCP 2026-07-28, versioning)."""

NO_EVIDENCE = frozenset({401, 402, 403, 407, 408, 421, 423, 425, 429, 451})
"""HTTP statuses below 500 with which something other than the protocol is wanting: credentials, time, permission."""

CLIENT_ERRORS = range(400, 500)
UNKNOWN_METHOD = (404, messages.METHOD_NOT_FOUND)
"""Only a modern server says in HTTP that it has no such method; an older one says it with a status of 200."""

OK = 200

Verdict = Literal["modern", "legacy", "none"]


@dataclass(frozen=True, slots=True)
class Answered:
    """What came back for a request of revision 2026-07-28.

    Attributes:
        status: HTTP status; None over stdio.
        code: The JSON-RPC error's code, if it is one.
        result: Whether it is a result.
        offered: Revisions that a DiscoverResult names, if it names any.
    """

    status: int | None
    code: int | None = None
    result: bool = False
    offered: Sequence[str] | None = None


def judge(answered: Answered, *, probe: bool) -> Verdict:
    """Judge an answer (MCP 2026-07-28, Streamable HTTP and stdio, backward compatibility).

    Args:
        answered: What came back.
        probe: Whether it answers ``server/discover``, which every modern server has. An error to another method says
            less, unless HTTP refuses the request as such.
    """
    if answered.result:
        # A result without revisions is no DiscoverResult: some servers answer anything with an empty object.
        return "modern" if not probe or revisions.MODERN in (answered.offered or ()) else "legacy"
    if answered.code in RECOGNISED or (answered.status, answered.code) == UNKNOWN_METHOD:
        return "modern"
    return "legacy" if _refuses_the_revision(answered, probe=probe) else "none"


def _refuses_the_revision(answered: Answered, *, probe: bool) -> bool:
    """Whether it is a refusal with which servers meet what they do not understand."""
    if answered.status is None:
        return probe and answered.code is not None
    if answered.code == messages.INVALID_PARAMS and not probe:
        # Modern servers say this of a method's params, with a status of 400 as well.
        return False
    if answered.status in CLIENT_ERRORS:
        return answered.status not in NO_EVIDENCE
    return probe and answered.status == OK and answered.code is not None
