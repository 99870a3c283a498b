"""Idempotency keys: their grammar, and what makes two requests the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.errors import REGISTRY, HostError
from host.ids import BoundId
from host.records import Keyed, _decode, _encode, _is_final
from host.web import Answer

KEY = "0b0e2a52-7a2c-4d07-9b35-1f2f0d7b6a11"


def keyed(key: str = KEY, **members: str | bytes | None) -> Keyed:
    given: dict[str, object] = {"tenant": "acme", "operation": "createRun", "body": b"{}", **members}
    made = Keyed.of(key, **given)  # type: ignore[arg-type]
    assert made is not None
    return made


def test_a_request_without_a_key_has_none() -> None:
    assert Keyed.of(None, tenant="acme", operation="createRun", body=b"{}") is None


@pytest.mark.parametrize(
    "key", ["", "short", "x" * 21, "x" * 129, "x" * 21 + " ", "x" * 21 + "é", "a, " * 10, "x" * 30 + "\n"]
)
def test_what_is_no_key_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(HostError) as caught:
        keyed(key)
    assert caught.value.code == "idempotency_key_invalid"
    assert not key or key not in caught.value.message


@given(st.from_regex(r"\A[A-Za-z0-9._~-]{22,128}\Z"))
def test_whatever_the_key_is_the_run_has_an_id_that_does_not_show_it(key: str) -> None:
    made = keyed(key)
    assert re.fullmatch(r"acme/[A-Za-z0-9_-]{43}", str(made.run_id))
    assert BoundId.parse(str(made.run_id), name="runId") == made.run_id
    assert key not in f"{made}"


def test_tenant_operation_and_key_name_a_request() -> None:
    others = [keyed(tenant="acm"), keyed(operation="cancelRun"), keyed(KEY + "x")]
    assert len({one.identity for one in [keyed(), *others]}) == 4
    assert keyed(body=b"{ }").identity == keyed(target="acme/x").identity == keyed().identity


def test_body_target_and_dedup_are_what_is_asked_for() -> None:
    others = [keyed(body=b"{ }"), keyed(target="acme/x"), keyed(dedup="enforce"), keyed(body=b'{"n":1.0}')]
    assert len({one.request for one in [keyed(), *others]}) == 5
    assert keyed(KEY + "x").request == keyed(tenant="b").request == keyed().request


def test_two_spellings_of_a_number_are_two_requests() -> None:
    assert keyed(body=b'{"n":1.1}').request != keyed(body=b'{"n":1.10}').request


NOT_NOW = ("idempotency_in_flight", "rate_limited", "run_already_active", "service_unavailable")


def test_refusals_are_kept_unless_the_same_request_may_fare_better() -> None:
    details = {"requiredCapability": "x", "runStatus": "x", "protocolVersions": [], "supported": [], "service": "mcp"}
    refusals = [HostError(code, "no", details) for code in REGISTRY if code not in NOT_NOW]
    kept = {one.code for one in refusals if _is_final(one)}
    assert {"not_found", "run_terminal", "run_state_conflict", "capability_required", "payload_too_large"} <= kept
    assert all(REGISTRY[code].status not in {401, 403} and REGISTRY[code].status < 500 for code in kept)
    assert not kept & {"validation_error", "idempotency_key_invalid", "residency_unavailable"}
    assert not any(_is_final(HostError(code, "no", retry_after=1)) for code in NOT_NOW)


@given(
    st.sampled_from([b"{}", b'{ "n": 1.10, "n":1e400 }', b'{"t":"\\ud83d"}']),
    st.dictionaries(st.text(), st.text(), max_size=2),
)
def test_an_answer_comes_back_byte_for_byte(body: bytes, headers: dict[str, str]) -> None:
    answer = Answer(201, body, headers)
    assert _decode(_encode(answer)) == answer
