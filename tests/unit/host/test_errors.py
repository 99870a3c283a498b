"""The registry of codes and the closed envelope."""

from __future__ import annotations

import json

import pytest

from host.errors import REGISTRY, HostError, invalid, unauthenticated

NOT_FOUND = {"error": "not_found", "message": "no such run"}


def test_a_code_that_is_not_registered_cannot_be_raised() -> None:
    for code in ("run_cancelled", "mcp_tool_not_found", "acme.teapot", "", "NOT_FOUND"):
        with pytest.raises(ValueError, match="no registered error code"):
            HostError(code, "no")


def test_the_registry_has_each_code_once_at_its_status() -> None:
    assert len(REGISTRY) == 126
    told = {code: REGISTRY[code].status for code in ("validation_error", "unauthenticated", "id_tenant_mismatch")}
    assert told == {"validation_error": 400, "unauthenticated": 401, "id_tenant_mismatch": 403}
    assert {code for code, row in REGISTRY.items() if row.status == 502} == {"mcp_error", "upstream_unavailable"}
    assert {row.status for row in REGISTRY.values()} == {
        *(400, 401, 403, 404, 406, 409, 410, 413, 415, 422, 426, 429, 500, 501, 502, 503)
    }


def test_only_what_may_pass_by_itself_is_retriable() -> None:
    assert {code for code, row in REGISTRY.items() if row.retriable} == {
        "internal_error",
        "pack_registry_unreachable",
        "rate_limited",
        "residency_unavailable",
        "runner_unavailable",
        "service_unavailable",
        "upstream_unavailable",
    }


def test_the_envelope_is_closed_and_has_details_only_where_there_are_some() -> None:
    assert json.loads(HostError("not_found", "no such run").envelope) == NOT_FOUND
    told = HostError("run_state_conflict", "not paused", {"runStatus": "running"})
    assert json.loads(told.envelope) == {
        "error": "run_state_conflict",
        "message": "not paused",
        "details": {"runStatus": "running"},
    }
    assert told.status == 409


def test_when_to_try_again_is_told_by_a_header_alone() -> None:
    told = HostError("rate_limited", "too many requests", {"limit": 5}, retry_after=3)
    assert told.headers == {"Retry-After": "3"}
    assert b"etry" not in told.envelope
    for code in ("idempotency_in_flight", "rate_limited", "run_already_active", "service_unavailable"):
        with pytest.raises(ValueError, match="retry_after"):
            HostError(code, "not now")
    for name in ("retryAfter", "retryAfterMs", "RetryAfterSeconds"):
        with pytest.raises(ValueError, match="by a header"):
            HostError("rate_limited", "too many requests", {name: 3}, retry_after=3)


@pytest.mark.parametrize(
    ("code", "owed"),
    [
        ("capability_required", "requiredCapability"),
        ("protocol_version_unsupported", "protocolVersions"),
        ("run_state_conflict", "runStatus"),
        ("unsupported_stream_mode", "supported"),
        ("upstream_unavailable", "service"),
    ],
)
def test_a_code_that_owes_a_fact_cannot_be_raised_without_it(code: str, owed: str) -> None:
    with pytest.raises(ValueError, match=owed):
        HostError(code, "no")
    assert HostError(code, "no", {owed: ["x"]}).details == {owed: ["x"]}


def test_a_message_is_never_empty() -> None:
    with pytest.raises(ValueError, match="without a message"):
        HostError("not_found", "")


def test_a_challenge_can_say_what_would_be_good_enough() -> None:
    scope = {"error": "insufficient_scope", "scope": "runs:read runs:create"}
    assert HostError("forbidden", "no", challenge=scope).headers == {
        "WWW-Authenticate": 'Bearer realm="openwop", error="insufficient_scope", scope="runs:read runs:create"'
    }


@pytest.mark.parametrize(
    ("presented", "challenge"),
    [(False, 'Bearer realm="openwop"'), (True, 'Bearer realm="openwop", error="invalid_token"')],
)
def test_who_sent_no_credential_is_told_of_no_error(presented: bool, challenge: str) -> None:
    refused = unauthenticated(presented=presented)
    assert (refused.code, refused.headers) == ("unauthenticated", {"WWW-Authenticate": challenge})


def test_every_401_and_nothing_else_has_a_challenge_which_is_always_the_same() -> None:
    owed = dict.fromkeys(("requiredCapability", "protocolVersions", "runStatus", "supported", "service"), "x")
    for code, row in REGISTRY.items():
        headers = HostError(code, "no", owed, retry_after=1).headers
        assert headers.get("WWW-Authenticate") == ('Bearer realm="openwop"' if row.status == 401 else None)


def test_a_fault_of_the_request_names_its_place() -> None:
    told = invalid("tags[3]", "write 1 to 256 characters", maxTags=100)
    assert json.loads(told.envelope) == {
        "error": "validation_error",
        "message": "tags[3]: write 1 to 256 characters",
        "details": {"field": "tags[3]", "maxTags": 100},
    }
