"""Paths as routes see them, and what is told of an exception that ended a request."""

from __future__ import annotations

import pytest
from fastapi.exceptions import RequestValidationError
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException
from temporalio.client import WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from host.errors import HostError
from host.surface import RETRY_AFTER, refusal, routed
from openwop_mcp.storage import LostValueError, StorageError


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        (b"/runs/acme%2Fabc", "/runs/acme%2Fabc"),
        (b"/runs/acme~2Fabc%3Apause", "/runs/acme~2Fabc:pause"),
        (b"/runs/acme%7E2Fabc:pause", "/runs/acme~2Fabc:pause"),
        (b"/%72uns%2D%5F%2e%5a%7a%30", "/runs-_.Zz0"),
        (b"/runs/a%252Fb", "/runs/a%252Fb"),
        (b"/runs/%", "/runs/%"),
        (b"/runs/%zz%C3%A9%00%20%3F", "/runs/%zz%C3%A9%00%20%3F"),
    ],
)
def test_only_escapes_that_no_path_needs_are_undone(sent: bytes, seen: str) -> None:
    assert routed(sent) == seen


@given(st.binary(max_size=40))
def test_no_escape_adds_a_segment_or_is_undone_twice(sent: bytes) -> None:
    escaped = b"".join(b"%%%02X" % byte for byte in sent)
    seen = routed(b"/" + escaped)
    assert seen.count("/") == 1
    assert routed(b"/" + escaped.replace(b"%", b"%25")).count("%25") == len(sent)


def status_error(status: RPCStatusCode) -> RPCError:
    return RPCError("tcp connect error: 10.0.0.7:7233", status, b"")


@pytest.mark.parametrize(
    "error",
    [
        status_error(RPCStatusCode.UNAVAILABLE),
        status_error(RPCStatusCode.DEADLINE_EXCEEDED),
        # What the client says of a Temporal that was stopped in the middle, or whose machine is gone.
        status_error(RPCStatusCode.CANCELLED),
        status_error(RPCStatusCode.RESOURCE_EXHAUSTED),
        WorkflowUpdateRPCTimeoutOrCancelledError(),
        StorageError("bucket x: 10.0.0.8 does not answer"),
    ],
    ids=lambda error: f"{type(error).__name__}-{getattr(error, 'status', '')}",
)
def test_what_does_not_answer_now_is_told_with_a_time_and_without_an_address(error: Exception) -> None:
    told = refusal(error)
    assert told is not None
    assert (told.code, told.status, told.headers) == ("service_unavailable", 503, {"Retry-After": str(RETRY_AFTER)})
    assert b"10.0" not in told.envelope


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("oh"),
        status_error(RPCStatusCode.INVALID_ARGUMENT),
        status_error(RPCStatusCode.NOT_FOUND),
        LostValueError("gone", digest="0" * 64, size=1, where="there"),
        HTTPException(418),
    ],
    ids=lambda error: f"{type(error).__name__}-{getattr(error, 'status', '')}",
)
def test_what_nobody_foresaw_is_a_fault_of_the_host(error: Exception) -> None:
    assert refusal(error) is None


def test_a_refusal_stays_what_it_is() -> None:
    error = HostError("run_terminal", "it is over")
    assert refusal(error) is error


@pytest.mark.parametrize(("status", "code"), [(404, "not_found"), (405, "not_found"), (413, "payload_too_large")])
def test_what_the_framework_refuses_has_a_registered_code(status: int, code: str) -> None:
    told = refusal(HTTPException(status))
    assert told is not None
    assert told.code == code


def test_a_parameter_that_the_framework_refuses_is_named_and_not_repeated() -> None:
    faults = [{"type": "int_parsing", "loc": ("query", "limit"), "msg": "write an integer", "input": "s3cret"}]
    told = refusal(RequestValidationError(faults))
    assert told is not None
    assert (told.code, told.details) == ("validation_error", {"field": "limit"})
    assert b"s3cret" not in told.envelope


@pytest.mark.parametrize("rest", ["", "/events", ":pause", "/interrupts/a"])
def test_a_path_with_the_slash_of_a_run_in_it_is_told_how_to_write_it(rest: str) -> None:
    told = refusal(HTTPException(404), f"/runs/acme/0123456789abcdef{rest}")
    assert told is not None
    assert (told.code, told.status) == ("not_found", 404)
    assert "~2F" in told.message


@pytest.mark.parametrize("path", ["/runs/acme~2F0123456789abcdef/events/x", "/runs/acme~2F0123456789abcdef:x", "/x"])
def test_a_path_that_is_none_for_another_reason_is_told_nothing_of_slashes(path: str) -> None:
    told = refusal(HTTPException(404), path)
    assert told is not None
    assert "~2F" not in told.message
