"""Failures of calls as Temporal records them."""

from __future__ import annotations

import json
from typing import Any

from temporalio.api.failure.v1 import Failure

from openwop_mcp.failures import json_payload


def call_failure(
    *,
    delivery: str = "not_sent",
    retryable: bool = True,
    repeat_safe: bool = True,
    message: str = "no answer",
    code: str = "upstream_unavailable",
    attempts: int = 3,
    retry_after: float | None = None,
    rpc_error: bytes | None = None,
    **more: object,
) -> Failure:
    """The failure of an attempt; ``rpc_error`` is the server's JSON-RPC error, where that is the reason.

    Further facts are given by their names.
    """
    facts = {
        "code": code,
        "delivery": delivery,
        "retryable": retryable,
        "repeatSafe": repeat_safe,
        "retry": {"attempts": attempts, "maxWait": 10, "total": 15},
        **({} if retry_after is None else {"retryAfter": retry_after}),
        **more,
    }
    failure = Failure(message=message)
    failure.application_failure_info.type = code
    failure.application_failure_info.details.payloads.append(json_payload(json.dumps(facts).encode()))
    if rpc_error is not None:
        failure.application_failure_info.details.payloads.append(json_payload(rpc_error))
    return failure


def in_doubt(**more: Any) -> Failure:
    """The failure of an attempt that may have had its effect, where a person is to be asked."""
    return call_failure(delivery="unknown", repeat_safe=False, onDoubt="ask", **more)
