"""What an attempt's record says of the terms that it was made on: the payload of the event ``negotiation.decided``.

Pure: provenance and failure facts in, payload out. Knows neither the run nor how terms are agreed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from openwop_mcp import jsontext
from openwop_mcp.calls import provenance
from openwop_mcp.errors import NoCommonRevisionError
from openwop_mcp.failures import CallFailure

__all__ = ("EVENT", "Negotiated", "Verdict", "of_answer", "of_failure")

EVENT = "negotiation.decided"
"""The event's type (OpenWOP v2, registry of event payloads: ``negotiationDecided``)."""

REFUSALS = frozenset({"below-floor", "unsupported"})
"""Why there is no common revision, in the words of the registry."""

UNAUTHORIZED = 401
"""HTTP status of a server that talks to nobody without credentials (RFC 9110, section 15.5.2)."""

TOKEN_REFUSED = "token_refused"  # noqa: S105 - names a cause
"""Why a call failed where a server took none of the tokens that were issued for it."""

Verdict = tuple[str, str | None, str | None]
"""Outcome, reason and version: where one of them changes, the event is told anew."""


@dataclass(frozen=True, slots=True)
class Negotiated:
    """What came of negotiating with one peer.

    Attributes:
        peer: SHA-256 of the server's origin, in hexadecimal; nothing else tells of it.
        outcome: Whether there are terms.
        reason: ``ok``, ``below-floor``, ``unsupported`` or ``unauthenticated``; None where the record is too short.
        floor: The oldest revision that the settings allow.
        version: The revision on the wire, where there are terms.
        requested: The revision that was asked for and refused.
    """

    peer: str
    outcome: Literal["accepted", "refused"]
    reason: str | None
    floor: str | None = None
    version: str | None = None
    requested: str | None = None

    @property
    def verdict(self) -> Verdict:
        """What makes it news."""
        return self.outcome, self.reason, self.version

    def encode(self, at: str) -> bytes:
        """JSON text of the event's payload, which is closed; ``at`` is RFC 3339."""
        members: dict[str, str | None] = {
            "protocol": "mcp",
            "outcome": self.outcome,
            "version": self.version,
            "floor": self.floor,
            "peerDigest": self.peer,
            "requested": self.requested,
            "reason": self.reason,
            "at": at,
        }
        return jsontext.encode({key: value for key, value in members.items() if value is not None})


def of_answer(metadata: Mapping[str, bytes]) -> Negotiated | None:
    """Read the metadata of an answer's payload; None where it does not say who answered, as older records do not."""
    peer = provenance(metadata, "peer")
    if peer is None:
        return None
    floor = provenance(metadata, "floor")
    refused = provenance(metadata, "refused")
    if refused is not None:
        return Negotiated(peer, "refused", refused, floor, requested=provenance(metadata, "requested"))
    version = provenance(metadata, "revision")
    return None if version is None else Negotiated(peer, "accepted", "ok", floor, version)


def of_failure(failure: CallFailure) -> Negotiated | None:
    """Read a failed attempt; None where the server's answer, if there was one, says nothing of its terms."""
    facts = _facts(failure.details)
    peer, floor = _text(facts, "peer"), _text(facts, "floor")
    if peer is None:
        return None
    if failure.code == NoCommonRevisionError.code:
        reason = _text(facts, "reason")
        known = reason if reason in REFUSALS else None
        return Negotiated(peer, "refused", known, floor, requested=_text(facts, "requested"))
    if facts.get("httpStatus") == UNAUTHORIZED or facts.get("authorization") == TOKEN_REFUSED:
        return Negotiated(peer, "refused", "unauthenticated", floor)
    version = _text(facts, "revision")
    return None if version is None else Negotiated(peer, "accepted", "ok", floor, version)


FACTS = ("peer", "floor", "reason", "requested", "httpStatus", "authorization", "revision")
"""The facts that are read; beside them stands the server's own error, which may be large."""


def _facts(details: bytes) -> Mapping[str, object]:
    spans: Sequence[tuple[str, bytes]] = jsontext.members(details)
    return {name: jsontext.decode(text) for name, text in spans if name in FACTS}


def _text(facts: Mapping[str, object], name: str) -> str | None:
    value = facts.get(name)
    return value if isinstance(value, str) else None
