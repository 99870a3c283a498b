"""The discovery document: it says what it is given, in closed shapes, and nothing else."""

from __future__ import annotations

import json
import re
from datetime import date
from typing import Any

import pytest

from host import discovery
from openwop_mcp.config import Issuer
from openwop_mcp.runs.engines import ENGINE_VERSION
from openwop_mcp.runs.start import Options

FAMILIES: dict[str, discovery.Facets] = {
    "mcp": discovery.mcp_facets(date(2026, 11, 30), 8),
    "eventLog": {},
    "idempotency": {},
    "runList": discovery.run_list_facets(max_page_size=100, filters=["status", "workflowId"]),
    "limits": discovery.limits_facets(Options(call_bytes=16 * 1024**2)),
    "auth": discovery.auth_facets(),
    "toolCatalog": discovery.tool_catalog_facets(["mcp", "workflow"]),
}


def root(
    families: dict[str, discovery.Facets] | None = None, fixtures: tuple[str, ...] = (), version: str = "0.1.0"
) -> dict[str, Any]:
    made = discovery.document(version=version, families=families or {}, fixtures=fixtures)
    decoded: dict[str, Any] = json.loads(made.body)
    return decoded


def test_a_host_that_is_given_nothing_claims_nothing() -> None:
    assert root() == {
        "protocolVersions": ["2.0"],
        "preferredVersion": "2.0",
        "implementation": {"name": "openwop-mcp-pack", "version": "0.1.0"},
        "engineVersion": ENGINE_VERSION,
        "eventLogSchemaVersion": 3,
    }


def test_rounds_are_claimed_within_what_openwop_has_a_claim_for() -> None:
    assert discovery.mcp_facets(date(2026, 11, 30), 16)["mrtr"] == {"maxRounds": 16}
    assert discovery.mcp_facets(date(2026, 11, 30), 16)["features"] == ["mrtr"]
    assert not {"mrtr", "features"} & set(discovery.mcp_facets(date(2026, 11, 30), 17))


def test_each_family_that_is_given_stands_at_the_root_as_a_closed_record() -> None:
    told = root(FAMILIES)
    assert set(told) - set(root()) == set(FAMILIES)
    for name, facets in FAMILIES.items():
        record = told[name]
        assert record.keys() - facets.keys() == {"status", "since", "until", "witness"}
        assert (record["status"], record["since"], record["until"]) == ("experimental", "2.0", "3.0")


def test_a_family_is_witnessed_as_the_specification_has_it() -> None:
    assert {name: family.witness for name, family in discovery.FAMILIES.items()} == {
        "auth": "seam-gated",
        "mcp": "seam-gated",
        "eventLog": "claims-check",
        **dict.fromkeys(
            ("idempotency", "interrupt", "limits", "replay", "runList", "toolCatalog", "webhooks"), "witnessable-gated"
        ),
    }


def test_the_mcp_record_claims_one_revision_the_client_and_how_often_it_is_asked() -> None:
    assert root(FAMILIES)["mcp"] == {
        "status": "experimental",
        "since": "2.0",
        "until": "3.0",
        "witness": "seam-gated",
        "revisions": ["2026-07-28"],
        "preferredVersion": "2026-07-28",
        "minimumRevision": "2026-07-28",
        "refreshedAt": "2026-11-30",
        "client": True,
        "features": ["mrtr"],
        "mrtr": {"maxRounds": 8},
    }


def test_keys_are_a_lane_and_a_request_may_weigh_what_a_call_may() -> None:
    told = root(FAMILIES)
    assert told["auth"]["lanes"] == [
        {
            "lane": "api-key",
            "issuers": ["urn:openwop-mcp:api-key"],
            "revocation": "next-request",
            "minimumAssurance": "bearer",
        }
    ]
    assert told["limits"]["maxRequestBodyBytes"] == 16 * 1024**2


def test_issuers_are_lanes_by_how_long_their_tokens_may_be_good() -> None:
    hour, day = ({"audience": "a", "tenant": "acme", **more} for more in ({}, {"max_lifetime": 86_400}))
    issuers = [
        Issuer(issuer=f"https://{name}.example.org", **told)
        for name, told in zip("abc", (hour, day, hour), strict=True)
    ]
    lane = {"lane": "oidc", "revocation": "exp-only", "minimumAssurance": "bearer"}
    assert root({"auth": discovery.auth_facets(issuers)})["auth"]["lanes"] == [
        *discovery.auth_facets()["lanes"],
        {**lane, "issuers": ["https://a.example.org", "https://c.example.org"], "revocationWindowSeconds": 3660},
        {**lane, "issuers": ["https://b.example.org"], "revocationWindowSeconds": 86_400},
    ]


def test_a_facet_of_a_later_day_needs_no_change_here() -> None:
    assert root({"mcp": {**FAMILIES["mcp"], "mrtr": {"maxRounds": 8}}})["mcp"]["mrtr"] == {"maxRounds": 8}
    assert root({"interrupt": {"tokenAlgs": ["hs256"]}})["interrupt"]["tokenAlgs"] == ["hs256"]


@pytest.mark.parametrize(
    ("families", "what"),
    [
        ({"agents": {}}, "no family 'agents'"),
        ({"mcp": {"client": True}}, r"missing \['minimumRevision'"),
        ({"eventLog": {"supported": True}}, r"unknown \['supported'\]"),
        ({"replay": {"modes": ["replay"]}}, "effectSeamsManifest"),
    ],
)
def test_a_claim_that_the_specification_does_not_know_cannot_be_made(
    families: dict[str, discovery.Facets], what: str
) -> None:
    with pytest.raises(ValueError, match=what):
        discovery.document(version="0.1.0", families=families)


def test_fixtures_are_named_where_there_are_some() -> None:
    assert root(fixtures=("conformance-noop", "conformance-delay"))["fixtures"] == [
        "conformance-delay",
        "conformance-noop",
    ]


def test_hosts_that_offer_the_same_send_the_same_bytes_and_the_tag_follows_the_bytes() -> None:
    here = discovery.document(version="0.1.0", families=FAMILIES, fixtures=("b", "a"))
    there = discovery.document(version="0.1.0", families=dict(reversed(FAMILIES.items())), fixtures=("a", "b"))
    assert here == there
    assert re.fullmatch(r'"[0-9a-f]{64}"', here.etag)
    for other in (
        discovery.document(version="0.1.1", families=FAMILIES, fixtures=("a", "b")),
        discovery.document(version="0.1.0", families=FAMILIES),
        discovery.document(
            version="0.1.0", families=FAMILIES | {"interrupt": {"tokenAlgs": ["hs256"]}}, fixtures=("a", "b")
        ),
    ):
        assert other.etag != here.etag


def test_limits_of_runs_are_told_where_the_host_has_them() -> None:
    assert discovery.limits_facets(Options(call_bytes=5)) == {"maxRequestBodyBytes": 5}
    assert discovery.limits_facets(Options(call_bytes=5, run_timeout_ms=1000, max_node_executions=9)) == {
        "maxRequestBodyBytes": 5,
        "maxRunDurationMs": 1000,
        "maxNodeExecutions": 9,
    }


def test_of_interrupts_it_says_what_signs_and_whether_somebody_is_told() -> None:
    assert discovery.interrupt_facets(("hs256",), callbacks=False) == {"tokenAlgs": ["hs256"]}
    told = root({"interrupt": discovery.interrupt_facets(("hs256",), callbacks=True)})["interrupt"]
    assert (told["tokenAlgs"], told["callbackDelivery"]) == (["hs256"], True)


def test_of_tools_it_says_where_they_come_from_and_how_they_are_shown() -> None:
    told = root(FAMILIES)["toolCatalog"]
    assert {name: told[name] for name in told.keys() - {"status", "since", "until", "witness"}} == {
        "sources": ["mcp", "workflow"],
        "compactView": True,
        "sessionLifecycle": True,
    }
