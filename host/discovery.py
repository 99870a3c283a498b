"""The discovery document: what this host offers, so that a client need not guess.

Builds it from what it is given and adds no claim of its own: a family stands in it if, and only if, it is passed in.
Owns the closed shape of the root and of each family's record; knows no route.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from types import MappingProxyType
from typing import Any, Literal

from openwop_mcp import jsontext
from openwop_mcp.config import Issuer
from openwop_mcp.protocol.revisions import MODERN
from openwop_mcp.runs.engines import ENGINE_VERSION
from openwop_mcp.runs.start import Options

from . import etags
from .principals import KEY_ISSUER
from .versioning import PROTOCOL_VERSIONS, VERSION

__all__ = (
    "EVENT_LOG_SCHEMA_VERSION",
    "FAMILIES",
    "Document",
    "Facets",
    "Family",
    "auth_facets",
    "document",
    "interrupt_facets",
    "limits_facets",
    "mcp_facets",
    "run_list_facets",
    "tool_catalog_facets",
)

EVENT_LOG_SCHEMA_VERSION = 3
"""The era of the logs that are written, and of each snapshot: the one of OpenWOP v2."""

SINCE = "2.0"
"""The minor of OpenWOP in which this host first had its families."""

UNTIL = "3.0"
"""By when an experimental family is reconsidered. Not a date, which would pass with nobody looking."""

MAX_ROUNDS = 16
"""How often OpenWOP lets a host say that a call may ask for input."""

NAME = "openwop-mcp-pack"
"""What answers."""

Facets = Mapping[str, Any]
"""What a family's record says besides its status: JSON-safe, only what is offered."""


@dataclass(frozen=True, slots=True)
class Family:
    """What the specification fixes of a family's record.

    Attributes:
        witness: How the claim can be checked from outside.
        required: Facets that it must have.
        optional: Facets that it may have.
    """

    witness: Literal["seam-gated", "witnessable-gated", "claims-check"]
    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "auth": Family("seam-gated", frozenset({"lanes"})),
        "eventLog": Family("claims-check", optional=frozenset({"crossEngineOrdering"})),
        "idempotency": Family("witnessable-gated", optional=frozenset({"crossRegion", "multiRegion"})),
        "interrupt": Family(
            "witnessable-gated", frozenset({"tokenAlgs"}), optional=frozenset({"callbackDelivery", "refKinds"})
        ),
        "limits": Family(
            "witnessable-gated",
            optional=frozenset({"maxLoopIterations", "maxNodeExecutions", "maxRequestBodyBytes", "maxRunDurationMs"}),
        ),
        "mcp": Family(
            "seam-gated",
            frozenset({"minimumRevision", "preferredVersion", "refreshedAt", "revisions"}),
            frozenset({"client", "features", "mrtr", "profiles", "serverMount", "serverUrls"}),
        ),
        "replay": Family("witnessable-gated", frozenset({"effectSeamsManifest", "modes"}), frozenset({"retention"})),
        "runList": Family("witnessable-gated", optional=frozenset({"filters", "maxPageSize"})),
        "toolCatalog": Family("witnessable-gated", optional=frozenset({"compactView", "sessionLifecycle", "sources"})),
        "webhooks": Family(
            "witnessable-gated",
            frozenset({"signatureAlgorithms"}),
            frozenset({"deadLetter", "retryPolicy", "secretRotation"}),
        ),
    }
)
"""The families that this host can come to offer. Others have no record here, so that none is claimed by mistake."""


@dataclass(frozen=True, slots=True)
class Document:
    """The document as it is sent.

    Attributes:
        body: JSON text. Two hosts that offer the same send the same bytes.
        etag: Strong, of these bytes.
    """

    body: bytes
    etag: str


def document(*, version: str, families: Mapping[str, Facets], fixtures: Sequence[str] = ()) -> Document:
    """Build the document.

    Args:
        version: The version of the pack.
        families: What works, each with its facets.
        fixtures: Ids of the conformance workflows that can be run; none where the settings do not offer them.

    Raises:
        ValueError: A family is unknown, lacks a facet, or has one that the specification does not know.
    """
    root: dict[str, Any] = {
        "protocolVersions": list(PROTOCOL_VERSIONS),
        "preferredVersion": VERSION,
        "implementation": {"name": NAME, "version": version},
        "engineVersion": ENGINE_VERSION,
        "eventLogSchemaVersion": EVENT_LOG_SCHEMA_VERSION,
    }
    if fixtures:
        root["fixtures"] = sorted(fixtures)
    for name in sorted(families):
        root[name] = _record(name, families[name])
    body = jsontext.encode(root)
    return Document(body, etags.of_bytes(body))


def _record(name: str, facets: Facets) -> dict[str, Any]:
    family = FAMILIES.get(name)
    if family is None:
        raise ValueError(f"no family '{name}'")
    missing = family.required - set(facets)
    unknown = set(facets) - family.required - family.optional
    if missing or unknown:
        raise ValueError(f"family '{name}': missing {sorted(missing)}, unknown {sorted(unknown)}")
    return {"status": "experimental", "since": SINCE, "until": UNTIL, "witness": family.witness, **facets}


def mcp_facets(refreshed: date, max_rounds: int) -> Facets:
    """What the MCP client speaks. Older eras are spoken where an operator says so, and claimed nowhere.

    Args:
        refreshed: The day on which the revisions were last known to be current; OpenWOP asks for one of the last 90.
        max_rounds: How often one call may ask for input. More than OpenWOP has a claim for is offered, and not claimed.
    """
    asks = {"features": ["mrtr"], "mrtr": {"maxRounds": max_rounds}} if max_rounds <= MAX_ROUNDS else {}
    return {
        "revisions": [MODERN],
        "preferredVersion": MODERN,
        "minimumRevision": MODERN,
        "refreshedAt": refreshed.isoformat(),
        "client": True,
        **asks,
    }


def auth_facets(issuers: Sequence[Issuer] = ()) -> Facets:
    """How a request says who sends it: by a key, or by a token of an issuer.

    Issuers are never asked whether a token was withdrawn, so that each is good until it ends, and none for longer than
    is told here. Those with the same bound are one lane.

    Args:
        issuers: The issuers whose tokens are taken.
    """
    by_bound: dict[int, list[str]] = {}
    for issuer in issuers:
        by_bound.setdefault(issuer.max_lifetime, []).append(issuer.issuer)
    keys = {"lane": "api-key", "issuers": [KEY_ISSUER], "revocation": "next-request", "minimumAssurance": "bearer"}
    tokens = [
        {
            "lane": "oidc",
            "issuers": names,
            "revocation": "exp-only",
            "revocationWindowSeconds": bound,
            "minimumAssurance": "bearer",
        }
        for bound, names in by_bound.items()
    ]
    return {"lanes": [keys, *tokens]}


def interrupt_facets(algorithms: Sequence[str], *, callbacks: bool) -> Facets:
    """How a run's questions are answered.

    Args:
        algorithms: What may sign the tokens of links.
        callbacks: Whether whoever creates a run can be told that it waits.
    """
    return {"tokenAlgs": list(algorithms), **({"callbackDelivery": True} if callbacks else {})}


def limits_facets(options: Options) -> Facets:
    """What a run may weigh, which is most of a request that asks for one, and what it may take.

    Args:
        options: What every run is started with.
    """
    facets = {
        "maxRequestBodyBytes": options.call_bytes,
        "maxNodeExecutions": options.max_node_executions,
        "maxRunDurationMs": options.run_timeout_ms,
    }
    return {name: limit for name, limit in facets.items() if limit is not None}


def run_list_facets(*, max_page_size: int, filters: Sequence[str]) -> Facets:
    """How runs are listed.

    Args:
        max_page_size: Runs on a page at most.
        filters: What a list can be narrowed by.
    """
    return {"maxPageSize": max_page_size, "filters": list(filters)}


def tool_catalog_facets(sources: Sequence[str]) -> Facets:
    """How tools are shown, and that a run's log says when each was in use.

    Args:
        sources: Where they come from.
    """
    return {"sources": list(sources), "compactView": True, "sessionLifecycle": True}
