"""Bodies: closed, exact where it matters, and refused by place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.bodies import (
    MAX_METADATA,
    BulkCancel,
    CreateRun,
    read_bulk_cancel,
    read_create_run,
    read_pause,
    read_reason,
    read_resolve,
)
from host.errors import HostError
from openwop_mcp.runs.pauses import Pause
from tests.support.exact import ARGUMENTS

SECRET = "hunter2-hunter2"


def create(body: bytes | dict[str, Any]) -> CreateRun:
    return read_create_run(body if isinstance(body, bytes) else json.dumps(body).encode(), tenant="acme")


def refused(body: bytes | dict[str, Any], code: str = "validation_error") -> HostError:
    with pytest.raises(HostError) as caught:
        create(body)
    assert caught.value.code == code
    return caught.value


def field_of(body: bytes | dict[str, Any]) -> str:
    details = refused(body).details
    assert details is not None
    return str(details["field"])


# --- a run ---


def test_a_workflow_is_enough_for_a_run() -> None:
    assert create({"workflowId": "flow"}) == CreateRun("flow", b"{}")


def test_inputs_and_metadata_are_the_bytes_that_were_posted() -> None:
    body = b'{ "workflowId":"flow", "inputs" : ' + ARGUMENTS + b' ,"metadata":' + ARGUMENTS + b"}"
    made = create(body)
    assert made.inputs == ARGUMENTS
    assert made.metadata == ARGUMENTS


def test_what_a_run_is_labelled_and_configured_with_is_kept() -> None:
    configurable = (
        b'{"version":1,"run":{"runTimeoutMs":60000,"escalationThreshold":0.50},"extensions":{"acme-x":{"a":1.0}}}'
    )
    made = create(
        b'{"workflowId":"flow","tags":["a"," ","\xc3\xa9\xe2\x80\xa8","a"],"scopeId":"order-1","tenantId":"acme",'
        b'"configurable":' + configurable + b"}"
    )
    assert made == CreateRun("flow", b"{}", ("a", " ", "é\u2028", "a"), None, configurable, "order-1")


def test_a_whole_number_may_be_spelled_as_json_has_it() -> None:
    configurable = b'{"version":1.0,"run":{"runTimeoutMs":6e4},"ai":{"maxRefusals":0.0}}'
    assert create(b'{"workflowId":"flow","configurable":' + configurable + b"}").configurable == configurable
    assert field_of(b'{"workflowId":"flow","configurable":{"version":1,"run":{"runTimeoutMs":1.5}}}') == (
        "configurable.run.runTimeoutMs"
    )


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'"flow"',
        b"null",
        b"\xff",
        b"{}{}",
        b'\xef\xbb\xbf{"workflowId":"flow"}',
        b'{"workflowId":"flow","inputs":{"a":"\xff"}}',
        b"{" + b",".join([b'"workflowId":1'] * 1001) + b"}",
        b"[" * 100_000,
    ],
)
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    assert field_of(body) == "body"


@pytest.mark.parametrize("name", ["inputs", "metadata", "configurable"])
def test_what_comes_back_to_readers_is_not_nested_deeper_than_they_can_read(name: str) -> None:
    deep = b"[" * 20_000 + b"]" * 20_000
    body = b'{"workflowId":"flow","%s":{"version":1,"extensions":{"acme":{"a":%s}}}}' % (name.encode(), deep)
    assert field_of(body) == name


def test_metadata_which_stands_in_every_list_is_short() -> None:
    assert (
        refused({"workflowId": "flow", "metadata": {"a": "x" * MAX_METADATA}}, code="payload_too_large").status == 413
    )
    assert create({"workflowId": "flow", "metadata": {"a": "x" * 60_000}}).metadata is not None


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"workflowId": None}, "workflowId"),
        ({"workflowId": ""}, "workflowId"),
        ({"workflowId": "a/b"}, "workflowId"),
        ({"workflowID": "x"}, "workflowID"),
        ({"configurable.version": 1}, "configurable.version"),
        ({"inputs": []}, "inputs"),
        ({"inputs": None}, "inputs"),
        ({"metadata": "x"}, "metadata"),
        ({"tags": "x"}, "tags"),
        ({"tags": ["x"] * 101}, "tags"),
        ({"tags": ["x", "x" * 257]}, "tags[1]"),
        ({"tags": ["x", ""]}, "tags[1]"),
        ({"tags": ["x", 1]}, "tags[1]"),
        ({"scopeId": "x" * 257}, "scopeId"),
        ({"scopeId": "\ud800"}, "scopeId"),
        ({"tenantId": 1}, "tenantId"),
        ({"configurable": []}, "configurable"),
        ({"configurable": {}}, "configurable.version"),
        ({"configurable": {"version": 2}}, "configurable.version"),
        ({"configurable": {"version": True}}, "configurable.version"),
        ({"configurable": {"version": 1, "ai.provider": "x"}}, "configurable.ai.provider"),
        ({"configurable": {"version": 1, "other": {}}}, "configurable.other"),
        ({"configurable": {"version": 1, "run": {"runTimeout": 1}}}, "configurable.run.runTimeout"),
        ({"configurable": {"version": 1, "run": {"run_timeout_ms": 1}}}, "configurable.run.run_timeout_ms"),
        ({"configurable": {"version": 1, "run": {"runTimeoutMs": 0}}}, "configurable.run.runTimeoutMs"),
        ({"configurable": {"version": 1, "run": {"recursionLimit": "5"}}}, "configurable.run.recursionLimit"),
        ({"configurable": {"version": 1, "ai": {"temperature": 2.1}}}, "configurable.ai.temperature"),
        ({"configurable": {"version": 1, "ai": {"reasoningVerbosity": "x"}}}, "configurable.ai.reasoningVerbosity"),
        ({"configurable": {"version": 1, "ai": {"promptOverrides": {"a": 1}}}}, "configurable.ai.promptOverrides.a"),
        ({"configurable": {"version": 1, "ai": {"provider": "x"}}}, "configurable.ai.provider"),
        ({"configurable": {"version": 1, "distillation": {"tokenBudget": 0}}}, "configurable.distillation.tokenBudget"),
        ({"configurable": {"version": 1, "extensions": {"Acme": {}}}}, "configurable.extensions.Acme"),
        ({"callbackUrl": "https://example.org"}, "callbackUrl"),
    ],
)
def test_a_fault_names_its_place(members: dict[str, Any], field: str) -> None:
    assert field_of({"workflowId": "flow", **members}) == field


def test_a_callback_is_taken_where_it_is_offered() -> None:
    body = json.dumps({"workflowId": "flow", "callbackUrl": "https://example.org"}).encode()
    assert read_create_run(body, tenant="acme", callbacks=True).callback_url == "https://example.org"
    for url in ("", 1, None, "x" * 2049):
        with pytest.raises(HostError) as caught:
            read_create_run(
                json.dumps({"workflowId": "flow", "callbackUrl": url}).encode(), tenant="acme", callbacks=True
            )
        assert caught.value.details == {"field": "callbackUrl"}


def test_a_run_of_no_workflow_is_refused() -> None:
    assert field_of({"inputs": {}}) == "workflowId"


def test_a_member_that_stands_twice_is_refused_whatever_it_says() -> None:
    assert field_of(b'{"workflowId":"flow","inputs":{"a":1},"inputs":{"a":1}}') == "inputs"


@pytest.mark.parametrize(
    ("members", "code", "details"),
    [
        ({"residency": {"region": "eu"}}, "residency_unavailable", None),
        ({"mode": "eval"}, "capability_required", {"requiredCapability": "agents.evalSuite"}),
        ({"evalSuiteRef": "x"}, "capability_required", {"requiredCapability": "agents.evalSuite"}),
        ({"agentId": "x"}, "capability_required", {"requiredCapability": "agents"}),
        ({"configurable": {"version": 1, "budget": {}}}, "capability_required", {"requiredCapability": "budget"}),
        ({"configurable": {"version": 1, "ai": {"credentialRef": "x"}}}, "credential_forbidden", None),
        ({"configurable": {"version": 1, "ai": {"mockProvider": {}}}}, "mock_provider_forbidden", None),
    ],
)
def test_what_is_not_offered_is_refused_and_not_ignored(
    members: dict[str, Any], code: str, details: dict[str, Any] | None
) -> None:
    assert refused({"workflowId": "flow", **members}, code).details == details


def test_a_run_is_created_for_the_callers_tenant_alone() -> None:
    assert refused({"workflowId": "flow", "tenantId": "globex"}, "id_tenant_mismatch").status == 403


@pytest.mark.parametrize(
    "body",
    [
        {"workflowId": f"{SECRET}/"},
        {"workflowId": "flow", "inputs": SECRET},
        {"workflowId": "flow", "tags": ["x", [SECRET]]},
        {"workflowId": "flow", "tenantId": SECRET},
        {"workflowId": "flow", "agentId": SECRET},
        {"workflowId": "flow", "configurable": {"version": SECRET}},
        {"workflowId": "flow", "configurable": {"version": 1, "run": SECRET}},
        {"workflowId": "flow", "configurable": {"version": 1, "ai": {"reasoningVerbosity": SECRET}}},
        {"workflowId": "flow", "configurable": {"version": 1, "ai": {"provider": SECRET}}},
    ],
)
def test_no_refusal_repeats_a_value(body: dict[str, Any]) -> None:
    with pytest.raises(HostError) as caught:
        create(body)
    assert SECRET not in caught.value.envelope.decode()


def test_a_name_is_shown_short_and_without_what_hides() -> None:
    told = refused({"workflowId": "flow", "\u202e\ud800\n" + "x" * 1000: 1}).envelope
    assert len(told) < 500
    assert "???" + "x" * 61 + "…" in json.loads(told)["message"]


odd = st.text('aZ0"\\\n\x00\u00e9\u2028\ud800\U0001f44d', max_size=8)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | odd,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd, inner, max_size=3),
)
member_names = st.sampled_from(
    ["workflowId", "inputs", "tags", "metadata", "configurable", "scopeId", "tenantId", "mode", "agentId", "other"]
)


@given(st.dictionaries(member_names, json_values))
def test_any_object_is_read_or_refused_in_the_envelope(body: dict[str, Any]) -> None:
    text = json.dumps(body).encode()
    try:
        made = create(text)
    except HostError:
        return
    assert json.loads(made.inputs) == body.get("inputs", {})


@given(st.binary())
def test_any_bytes_are_refused_in_the_envelope(body: bytes) -> None:
    refused(body)


# --- what is done to runs ---


def test_many_runs_are_cancelled_in_the_order_that_they_were_named_in_and_each_is_judged_for_itself() -> None:
    assert read_bulk_cancel(b'{"runIds":["b","a/\\u0062","b"],"reason":"late"}') == BulkCancel(
        ("b", "a/b", "b"), "late"
    )
    assert len(read_bulk_cancel(json.dumps({"runIds": ["x"] * 100}).encode()).run_ids) == 100


@pytest.mark.parametrize("run_ids", [["x"] * 101, []])
def test_too_many_runs_and_none_are_refused_with_how_many_may_be(run_ids: list[str]) -> None:
    with pytest.raises(HostError) as caught:
        read_bulk_cancel(json.dumps({"runIds": run_ids}).encode())
    assert caught.value.code == "validation_error"
    assert caught.value.details == {"field": "runIds", "maxRunIds": 100}


@pytest.mark.parametrize("body", [b"{}", b'{"runIds":"x"}', b'{"runIds":[1]}', b'{"runIds":["x"],"force":true}', b""])
def test_a_bulk_cancel_that_names_no_runs_is_refused(body: bytes) -> None:
    with pytest.raises(HostError, match=r"^(runIds|force|(the )?body)"):
        read_bulk_cancel(body)


def test_a_cancel_and_a_resume_may_say_why_or_nothing() -> None:
    assert read_reason(b"") is None
    assert read_reason(b"{}") is None
    assert read_reason(b'{"reason":"enough \\u00e9"}') == "enough é"


@pytest.mark.parametrize("body", [b'{"reason":1}', b'{"reason":""}', b'{"reason":"\\ud800"}', b'{"why":"x"}', b"[]"])
def test_another_reason_is_refused(body: bytes) -> None:
    with pytest.raises(HostError) as caught:
        read_reason(body)
    assert caught.value.code == "validation_error"


def test_a_reason_is_no_document() -> None:
    assert read_reason(json.dumps({"reason": "x" * 1024}).encode()) == "x" * 1024
    with pytest.raises(HostError, match="1 to 1024"):
        read_reason(json.dumps({"reason": "x" * 1025}).encode())


def test_a_pause_drains_the_node_under_way_unless_told_otherwise() -> None:
    assert read_pause(b"") == Pause("drain-current-node", None)
    assert read_pause(b'{"drainPolicy":"immediate","reason":"night"}') == Pause("immediate", "night")
    assert read_pause(b'{"drainPolicy":"drain-current-node"}') == Pause()
    for body in (b'{"drainPolicy":"later"}', b'{"drainPolicy":1}', b'{"drain":"immediate"}'):
        with pytest.raises(HostError, match="drain"):
            read_pause(body)


def test_an_answer_is_the_bytes_that_were_posted_null_included() -> None:
    assert read_resolve(b'{ "resumeValue" : ' + ARGUMENTS + b"}") == ARGUMENTS
    assert read_resolve(b'{"resumeValue":null}') == b"null"
    for body in (b"{}", b"", b'{"resumeValue":1,"by":"me"}', b'{"resumeValue":1,"resumeValue":2}'):
        with pytest.raises(HostError) as caught:
            read_resolve(body)
        assert caught.value.code == "validation_error"


def test_an_empty_body_is_told_as_one() -> None:
    assert refused(b"").message == "the body is empty: write a JSON object"


def test_a_member_that_is_nearly_one_is_told_which_and_any_other_which_there_are() -> None:
    assert refused({"workflowID": "x"}).message == "workflowID: no such member: did you mean workflowId?"
    message = refused({"zzz": 1}).message
    assert message.startswith("zzz: no such member: write configurable, inputs,")
    # What would be refused is not offered.
    assert "callbackUrl" not in message
