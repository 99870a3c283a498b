"""What the host refuses and how it says so: the registered codes, and the closed envelope that carries one.

Knows statuses and headers as data; sends nothing. An error whose code is not registered cannot be made.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from openwop_mcp import jsontext

__all__ = (
    "CHALLENGE",
    "INVALID_TOKEN",
    "REGISTRY",
    "HostError",
    "Registered",
    "invalid",
    "place",
    "unauthenticated",
)

CHALLENGE = 'Bearer realm="openwop"'
"""Goes with every 401. Why a credential is not good enough stands in none; whether one came, its sender knows."""

INVALID_TOKEN: Mapping[str, str] = MappingProxyType({"error": "invalid_token"})
"""Parameters of the challenge where a credential came and is not good (RFC 6750, section 3.1)."""

UNAUTHORIZED = 401
"""The status that HTTP asks a challenge for."""


class Registered(NamedTuple):
    """What the registry says of a code."""

    status: int
    retriable: bool


_BY_STATUS: Mapping[int, str] = {
    400: """
        connection_provider_unresolved connector_action_unresolved credential_scope_unsupported
        delegation_chain_cyclic delegation_chain_too_long idempotency_key_invalid interop_version_unsupported
        oauth_provider_unsupported oauth_scope_unsupported pack_dependency_cycle pack_engine_unsupported
        pack_integrity_failure pack_kind_invalid pack_lockfile_incomplete pack_peer_dependency_missing
        pack_peer_dependency_undefined pack_signature_invalid pack_validation_failed protocol_version_mismatch
        schedule_horizon_exceeded sub_chain_cycle sub_chain_depth_exceeded unsupported_runtime
        unsupported_stream_mode until_in_past validation_error webhook_endpoint_unverified webhook_url_rejected
    """,
    401: """
        audience_mismatch connector_auth_declined connector_auth_expired credential_lifetime_exceeded
        credential_revoked delegation_expired identity_unresolvable identity_unverified interrupt_token_invalid
        key_revoked sender_constraint_missing unauthenticated
    """,
    403: """
        credential_forbidden credential_scope_forbidden delegation_scope_amplified egress_denied forbidden
        force_engine_version_forbidden id_tenant_mismatch mock_provider_forbidden pack_namespace_unauthorized
        run_forbidden sandbox_capability_denied sandbox_escape_attempt workspace_membership_required
    """,
    404: """
        credential_not_found interrupt_not_found not_found pack_version_not_found replay_source_missing
        signature_not_available
    """,
    406: "protocol_version_unsupported",
    409: """
        connection_provider_conflict envelope_correlation_conflict host_event_resync_required idempotency_in_flight
        idempotency_key_mismatch interrupt_already_resolved pack_dependency_conflict pack_integrity_mismatch
        proposal_install_conflict proposal_stale proposal_state_conflict replay_context_summary_unavailable
        replay_diverged_at_refusal replay_memory_snapshot_unavailable run_already_active run_state_conflict
        run_terminal version_conflict workspace_conflict
    """,
    410: "interrupt_cancelled interrupt_expired run_expired",
    413: "payload_too_large workspace_too_large",
    415: "unsupported_media_type",
    422: """
        approval_rejected budget_exhausted budget_model_denied capability_not_provided capability_required
        connection_auth_metadata_mismatch conversation_roster_exceeded conversation_speaker_not_participant
        credential_required envelope_invalid envelope_refusal envelope_truncation_unrecoverable eval_gate_unmet
        fork_point_invalid loop_limit_exceeded mcp_mrtr_rounds_exceeded node_config_invalid
        pack_runtime_requirement_unmet provider_policy_denied recursion_limit_exceeded residency_unavailable
        run_timeout sandbox_invocation_error sandbox_memory_exceeded sandbox_timeout storage_limit_exceeded
        token_budget_exceeded unknown_envelope_kind unknown_schema_version
    """,
    426: "client_version_unsupported",
    429: "rate_limited",
    500: "event_type_unmapped internal_error pack_load_failure payload_unprojectable",
    501: "credential_unavailable",
    502: "mcp_error upstream_unavailable",
    503: "pack_registry_unreachable runner_unavailable service_unavailable",
}
"""The error codes of OpenWOP v2 by their HTTP status."""

_RETRIABLE = frozenset(
    {
        "internal_error",
        "pack_registry_unreachable",
        "rate_limited",
        "residency_unavailable",
        "runner_unavailable",
        "service_unavailable",
        "upstream_unavailable",
    }
)
"""The codes after which the same request may succeed."""

REGISTRY: Mapping[str, Registered] = MappingProxyType(
    {code: Registered(status, code in _RETRIABLE) for status, codes in _BY_STATUS.items() for code in codes.split()}
)
"""Every code that may leave the host, in an envelope, an event or a snapshot."""

REQUIRED_DETAILS: Mapping[str, str] = {
    "capability_required": "requiredCapability",
    "protocol_version_unsupported": "protocolVersions",
    "run_state_conflict": "runStatus",
    "unsupported_stream_mode": "supported",
    "upstream_unavailable": "service",
}
"""What a client is owed with a code: the member of ``details`` that it acts on."""

NEEDS_RETRY_AFTER = frozenset({"idempotency_in_flight", "rate_limited", "run_already_active", "service_unavailable"})
"""The codes that mean "not now", and may not leave the client guessing when."""


MAX_NAME_SHOWN = 64
"""Characters of a member's name in a fault. A name is the caller's too, and the place has to be told."""


class HostError(Exception):
    """A request that is not done; the envelope that says so, its status and its headers.

    Attributes:
        code: A registered code.
        message: What is wrong and what to do; shown to the caller as it stands, so without what the caller sent.
        details: Facts for machines, JSON-safe.
        retry_after: Whole seconds after which to try again.
        challenge: Parameters of the challenge, beside the realm: what would make a credential good enough. A 401 has a
            challenge in any case.
    """

    def __init__(
        self,
        code: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        retry_after: int | None = None,
        challenge: Mapping[str, str] | None = None,
    ) -> None:
        """Make the error.

        Raises:
            ValueError: The code is not registered, the message is empty, or what the code promises is not given.
        """
        if code not in REGISTRY:
            raise ValueError(f"'{code}' is no registered error code")
        if not message:
            raise ValueError(f"{code} without a message")
        required = REQUIRED_DETAILS.get(code)
        if required is not None and required not in (details or {}):
            raise ValueError(f"{code} without details.{required}")
        if any(name.lower().startswith("retryafter") for name in details or {}):
            raise ValueError("when to try again is told by a header: give retry_after")
        if retry_after is None and code in NEEDS_RETRY_AFTER:
            raise ValueError(f"{code} without retry_after")
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details
        self.retry_after = retry_after
        self.challenge = challenge

    @property
    def status(self) -> int:
        """The HTTP status."""
        return REGISTRY[self.code].status

    @property
    def headers(self) -> dict[str, str]:
        """Headers that belong to the answer, besides those of every answer."""
        challenge: dict[str, str] = {}
        if self.status == UNAUTHORIZED or self.challenge is not None:
            parameters = [f'{name}="{value}"' for name, value in (self.challenge or {}).items()]
            challenge["WWW-Authenticate"] = ", ".join([CHALLENGE, *parameters])
        again = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        return challenge | again

    @property
    def envelope(self) -> bytes:
        """JSON text of the body. Also stands as the verdict on one entry of a request with many."""
        details = {} if self.details is None else {"details": self.details}
        return jsontext.encode({"error": self.code, "message": self.message, **details})


def invalid(field: str, what: str, /, **details: Any) -> HostError:
    """A part of the request that cannot be used.

    Args:
        field: Where it stands: a header, a parameter, or a path into the body such as ``tags[3]``.
        what: What to send instead.
        details: More facts for machines.
    """
    return HostError("validation_error", f"{field}: {what}", {"field": field, **details})


def unauthenticated(*, presented: bool) -> HostError:
    """A request of which nobody knows who sent it, in the same words whatever is wrong.

    Args:
        presented: Whether a credential came with it.
    """
    return HostError(
        "unauthenticated",
        "send a credential that this host takes, as in Authorization: Bearer KEY",
        challenge=INVALID_TOKEN if presented else None,
    )


def place(*names: str) -> str:
    """The path of a member whose names are the caller's: each is short, and without what would end a line or hide."""
    return ".".join(_shown(name) for name in names)


def _shown(name: str) -> str:
    shown = "".join(sign if sign.isprintable() else "?" for sign in name[:MAX_NAME_SHOWN])
    return shown if len(name) <= MAX_NAME_SHOWN else f"{shown}…"
