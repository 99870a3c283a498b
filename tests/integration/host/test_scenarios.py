"""What OpenWOP's conformance suite asks of a host of this kind, asked of a running one.

The rows of the two floors that concern discovery, runs, events, keys and effects, and those of families that this host
offers. What is registered is taken from a client of the specification, and not from the host.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from datetime import UTC, date, datetime
from typing import Any

import httpx
import pytest
from openwop_client._generated import CAPABILITY_FAMILY_KEYS, CAPABILITY_METADATA_KEYS, ERROR_CODE_HTTP_STATUS

from tests.support.host_process import READER, SECONDS, UMBRELLA, HostProcess, path_of
from tests.support.patience import PATIENCE

TERMINAL = {"run.completed", "run.failed", "run.cancelled"}
RUN_ID = re.compile(r"acme/[A-Za-z0-9._-]{16,128}")
OPAQUE = re.compile(r"[A-Za-z0-9._~-]{16,128}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
STATUSES = {
    "pending", "running", "paused", "waiting-approval", "waiting-input", "waiting-external", "completed", "failed",
    "cancelling", "cancelled",
}  # fmt: skip
ABSENT = "/runs/acme~2F0123456789abcdef"
FOR_EVER = {
    "conformance-approval", "conformance-cancellable", "conformance-clarification", "conformance-run-duration-breach",
}  # fmt: skip
ACCEPT = {"resumeValue": {"action": "accept"}}
FOREIGN = f"ow2.hs256.host.e30.{'A' * 43}"
"""A token that has the form of one and was signed by nobody."""

CALL = {"method": "callTool", "serverId": "conformance", "name": "echo", "arguments": {}}


def a_key(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of a refusal, which is one as the registry has it."""
    told = answer.json()
    assert answer.headers["content-type"] == "application/json"
    assert set(told) <= {"error", "message", "details"}
    assert isinstance(told["message"], str)
    assert told["message"]
    assert ERROR_CODE_HTTP_STATUS[told["error"]] == answer.status_code
    assert not [name for name in told.get("details", {}) if name.lower().startswith("retryafter")]
    assert answer.headers["openwop-version"] == "2.0"
    if answer.status_code == 429:
        assert int(answer.headers["retry-after"]) > 0
    return answer.status_code, told["error"]


async def discovered(dev: HostProcess) -> dict[str, Any]:
    answer = await dev.http.get("/.well-known/openwop", headers={"Authorization": ""})
    assert answer.status_code == 200
    document: dict[str, Any] = answer.json()
    return document


async def page(dev: HostProcess, run_id: str, query: str = "") -> dict[str, Any]:
    answer = await dev.http.get(f"{path_of(run_id)}/events/poll{query}")
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


# --- the floor of discovery


async def test_the_root_of_the_document_has_no_member_that_is_not_registered(dev):
    document = await discovered(dev)
    assert set(document) <= {*CAPABILITY_METADATA_KEYS, *CAPABILITY_FAMILY_KEYS}
    assert {"protocolVersions", "preferredVersion"} <= set(document)
    assert not [name for name in document if "." in name]
    assert not {"capabilities", "profiles", "supportedTransports", "grpc"} & set(document)
    assert "supported" not in json.dumps(document).replace('"supportedVersions"', "")


async def test_whoever_names_no_version_is_answered_in_the_preferred_one(dev):
    answer = await dev.http.get("/.well-known/openwop")
    document = answer.json()
    assert document["preferredVersion"] in document["protocolVersions"]
    assert answer.headers["openwop-version"] == document["preferredVersion"]


@pytest.mark.parametrize("version", ["2", "2.0", "2.7"])
async def test_a_major_that_is_listed_is_served_and_told(dev, version):
    for path in ("/.well-known/openwop", "/runs"):
        answer = await dev.http.get(path, headers={"OpenWOP-Version": version})
        assert (answer.status_code, answer.headers["openwop-version"]) == (200, "2.0")


@pytest.mark.parametrize("version", ["1", "1.0", "3.0", "99"])
async def test_a_major_that_is_not_listed_is_refused_with_those_that_are(dev, version):
    for path in ("/.well-known/openwop", "/runs", ABSENT):
        answer = await dev.http.get(path, headers={"OpenWOP-Version": version})
        assert refusal(answer) == (406, "protocol_version_unsupported")
        assert answer.json()["details"]["protocolVersions"] == ["2.0"]


# --- discovery and versioning


async def test_each_family_is_a_closed_record_whose_end_is_not_past(dev):
    document = await discovered(dev)
    families = {name: document[name] for name in set(document) & set(CAPABILITY_FAMILY_KEYS)}
    assert set(families) >= {"auth", "eventLog", "idempotency", "interrupt", "limits", "mcp", "runList", "toolCatalog"}
    for family in families.values():
        assert family["status"] in {"stable", "experimental", "deprecated"}
        assert family["since"] in document["protocolVersions"]
        assert family["witness"] in {"seam-gated", "witnessable-gated", "claims-check"}
        assert ("until" in family) == (family["status"] != "stable")
        if "until" in family:
            # A version that is not served yet, or a day to come.
            until = family["until"]
            assert until == "3.0" or date.fromisoformat(until) > datetime.now(UTC).date()


async def test_what_is_said_of_mcp_is_what_the_client_does(dev):
    mcp = (await discovered(dev))["mcp"]
    assert mcp["client"] is True
    assert mcp["revisions"] == ["2026-07-28"]
    assert mcp["preferredVersion"] in mcp["revisions"]
    assert mcp["minimumRevision"] in mcp["revisions"]
    assert not [profile for profile in mcp.get("profiles", []) if not re.fullmatch(r"mcp-\d{4}-\d\d-\d\d", profile)]
    assert 0 <= (datetime.now(UTC).date() - date.fromisoformat(mcp["refreshedAt"])).days <= 90


async def test_a_server_that_always_asks_again_is_asked_as_often_as_is_said_of_mcp_and_once_more(dev, mcp):
    ceiling = (await discovered(dev))["mcp"]["mrtr"]["maxRounds"]
    assert 1 <= ceiling <= 16
    run_id = await dev.create("conformance-mcp-client", {**CALL, "name": "needs_input_loop"})
    answer = {"resumeValue": {"who": {"action": "accept", "content": {"who": "me"}}}}
    answered = 0
    async for frame in dev.frames(run_id):
        if frame.event == "node.suspended":
            answered += 1
            resolved = await dev.http.post(f"{path_of(run_id)}/interrupts/mcp-client", json=answer)
            assert resolved.status_code == 200, resolved.text
        last = frame
    assert (last.event, last.json["payload"]["error"]["code"]) == ("run.failed", "mcp_mrtr_rounds_exceeded")
    asked = [request for request in mcp.requests if b"needs_input_loop" in request.body]
    assert (answered, len(asked)) == (ceiling, ceiling + 1)


async def test_the_document_is_known_by_its_etag(dev):
    answer = await dev.http.get("/.well-known/openwop")
    etag = answer.headers["etag"]
    assert not etag.startswith("W/")
    for known in (etag, f'"other", {etag}', f"W/{etag}", "*"):
        again = await dev.http.get("/.well-known/openwop", headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["openwop-version"]) == (304, b"", "2.0")
    assert (await dev.http.get("/.well-known/openwop", headers={"If-None-Match": '"other"'})).status_code == 200


async def test_headers_are_those_that_are_registered(dev):
    run_id = await dev.ended("conformance-noop")
    key = {"Idempotency-Key": str(uuid.uuid4())}
    answers = [
        await dev.http.get("/.well-known/openwop"),
        await dev.http.get("/openapi.json"),
        *[await dev.http.post("/runs", json={"workflowId": "conformance-noop"}, headers=key) for _ in range(2)],
        await dev.http.get(path_of(run_id)),
        await dev.http.get(f"{path_of(run_id)}/events"),
        await dev.http.get(f"{path_of(run_id)}/events/poll"),
        await dev.http.get(ABSENT),
        await dev.http.get("/runs", headers=a_key("nobody")),
        await dev.http.post("/runs", content=b"{", headers={"Content-Type": "application/json"}),
    ]
    for answer in answers:
        assert answer.headers["openwop-version"] == "2.0"
        assert {name for name in answer.headers if name.startswith("openwop-")} <= {
            "openwop-version",
            "openwop-idempotent-replay",
        }


@pytest.mark.parametrize("version", ["2.46.32", "0.1", "latest", "", "2..0"])
async def test_what_a_client_says_of_its_own_version_refuses_nobody(dev, version):
    assert (await dev.http.get("/runs", headers={"OpenWOP-Client-Version": version})).status_code == 200


async def test_each_operation_of_what_is_offered_answers_as_one(dev):
    operations = [
        ("GET", "/.well-known/openwop"),
        ("GET", "/openapi.json"),
        ("GET", "/workflows/conformance-noop"),
        ("POST", "/runs"),
        ("GET", "/runs"),
        ("GET", ABSENT),
        ("GET", f"{ABSENT}/events"),
        ("GET", f"{ABSENT}/events/poll"),
        ("POST", f"{ABSENT}/cancel"),
        ("POST", "/runs:bulk-cancel"),
        ("POST", f"{ABSENT}:pause"),
        ("POST", f"{ABSENT}:resume"),
        ("GET", f"{ABSENT}/effects"),
        ("POST", f"{ABSENT}/interrupts/gate"),
        ("GET", f"/interrupts/{FOREIGN}"),
        ("POST", f"/interrupts/{FOREIGN}"),
        ("GET", "/tools"),
        ("GET", "/tools/mcp:none.none"),
    ]
    for method, path in operations:
        answer = await dev.http.request(method, path)
        assert answer.headers["openwop-version"] == "2.0"
        assert answer.headers["content-type"] == "application/json"
        if answer.status_code >= 400:
            assert "no such operation" not in answer.json()["message"], path
            assert refusal(answer) in {
                (404, "not_found"), (400, "validation_error"), (401, "interrupt_token_invalid"),
            }  # fmt: skip
    described = (await dev.http.get("/openapi.json")).json()["paths"]
    told = {(method.upper(), re.sub(r"\{\w+\}", "*", path)) for path, item in described.items() for method in item}
    ids = {ABSENT: "/runs/*", "conformance-noop": "*", "mcp:none.none": "*", FOREIGN: "*", "s/gate": "s/*"}
    for given, shown in ids.items():
        operations = [(method, path.replace(given, shown)) for method, path in operations]
    assert told == set(operations)


async def test_an_operation_that_is_not_offered_is_not_found(dev):
    for method, path in [
        ("GET", "/prompts"),
        ("GET", "/content/settings"),
        ("GET", "/agents"),
        ("POST", "/webhooks"),
        ("GET", "/v1/runs"),
        ("GET", "/v2/runs"),
    ]:
        assert refusal(await dev.http.request(method, path)) == (404, "not_found")


async def test_each_workflow_that_is_told_can_be_run(dev):
    offered = (await discovered(dev))["fixtures"]
    needed = {
        "conformance-noop", "conformance-failure", "conformance-delay", "conformance-cancellable",
        "conformance-multi-node", "conformance-identity", "conformance-idempotent", "conformance-mcp-client",
        "conformance-approval", "conformance-clarification",
    }  # fmt: skip
    assert needed <= set(offered)
    inputs = {"conformance-identity": {"payload": {}}, "conformance-idempotent": {"nonce": "n"}}
    for workflow_id in offered:
        run_id = await dev.create(workflow_id, inputs.get(workflow_id))
        assert (await dev.http.get(f"/workflows/{workflow_id}")).json()["id"] == workflow_id
        if workflow_id in FOR_EVER:
            assert (await dev.http.post(f"{path_of(run_id)}/cancel")).status_code == 200
        ending = (await dev.log(run_id))[-1]["type"]
        assert (ending == "run.failed") == (workflow_id == "conformance-failure"), workflow_id


async def test_whoever_has_no_key_is_told_the_same_of_what_there_is_and_of_what_there_is_not(dev):
    run_id = await dev.ended("conformance-noop")
    told = set()
    for path in (path_of(run_id), ABSENT, f"{path_of(run_id)}/events", f"{ABSENT}/events", f"{ABSENT}/effects"):
        for headers in ({"Authorization": ""}, a_key("nobody"), {"Authorization": "Basic eDp5"}):
            answer = await dev.http.get(path, headers=headers)
            assert refusal(answer) == (401, "unauthenticated")
            assert answer.headers["www-authenticate"].startswith("Bearer")
            told.add(answer.content)
    assert len(told) == 1


async def test_no_preflight_is_granted_to_half(dev):
    preflight = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    answer = await dev.http.options("/runs", headers=preflight)
    assert "access-control-allow-origin" not in answer.headers


# --- runs and ids


async def test_a_run_can_be_read_as_soon_as_it_is_created(dev):
    for _ in range(5):
        created = (await dev.http.post("/runs", json={"workflowId": "conformance-noop"})).json()
        assert created["status"] in {"pending", "running"}
        for path in (created["statusUrl"], f"{created['eventsUrl']}/poll"):
            answer = await dev.http.get(path)
            assert answer.status_code == 200
            assert answer.json()["runId"] == created["runId"]


async def test_ids_are_as_the_grammar_has_them_and_bound_to_the_tenant(dev):
    run_id = await dev.ended("conformance-mcp-client", CALL)
    told = await page(dev, run_id)
    snapshot = (await dev.http.get(path_of(run_id))).json()
    effects = (await dev.http.get(f"{path_of(run_id)}/effects")).json()
    bound = [run_id, told["runId"], snapshot["runId"], effects["runId"]]
    bound += [event["runId"] for event in told["events"]] + [effect["effectId"] for effect in effects["effects"]]
    assert all(RUN_ID.fullmatch(one) for one in bound)
    assert all(OPAQUE.fullmatch(event["eventId"]) for event in told["events"])
    assert len({event["eventId"] for event in told["events"]}) == len(told["events"])


async def test_an_id_in_a_path_is_projected_once_and_only_once(dev):
    run_id = await dev.ended("conformance-noop")
    tenant, _, opaque = run_id.partition("/")
    for segment in (f"{tenant}~2F{opaque}", f"{tenant}%2F{opaque}", f"{tenant}%2f{opaque}", f"{tenant}%7E2F{opaque}"):
        for rest in ("", "/events/poll", "/effects"):
            answer = await dev.http.get(f"/runs/{segment}{rest}")
            assert (answer.status_code, answer.json()["runId"]) == (200, run_id), segment
    for segment in (f"{tenant}~7E2F{opaque}", f"{tenant}~2{opaque[:1]}", f"{tenant}~2", f"{tenant}~zz{opaque}", opaque):
        answer = await dev.http.get(f"/runs/{segment}")
        assert refusal(answer) == (400, "validation_error"), segment
    assert refusal(await dev.http.get(f"/runs/{tenant}%252F{opaque}")) == (400, "validation_error")


async def test_a_run_of_another_tenant_is_refused_alike_whether_it_is_there_or_not(dev):
    theirs = (await dev.http.post("/runs", json={"workflowId": "conformance-noop"}, headers=a_key(UMBRELLA))).json()[
        "runId"
    ]
    for rest in ("", "/events", "/events/poll", "/effects"):
        answers = [
            await dev.http.get(f"{path_of(one)}{rest}", headers={"Last-Event-ID": "0"})
            for one in (theirs, "umbrella/0123456789abcdef")
        ]
        assert [refusal(answer) for answer in answers] == [(403, "id_tenant_mismatch")] * 2
        assert answers[0].content == answers[1].content
    for rest in ("/cancel", ":pause", ":resume"):
        assert refusal(await dev.http.post(f"{path_of(theirs)}{rest}")) == (403, "id_tenant_mismatch")


@pytest.mark.parametrize(
    "configurable",
    [
        {},
        {"version": 2},
        {"version": 1, "temperature": 1},
        {"version": 1, "run.recursionLimit": 3},
        {"version": 1, "run": {"limit": 3}},
        {"version": 1, "run": {"recursionLimit": 0}},
        {"version": 1, "ai": None},
    ],
)
async def test_a_configurable_is_closed(dev, configurable):
    answer = await dev.http.post("/runs", json={"workflowId": "conformance-noop", "configurable": configurable})
    assert refusal(answer) == (400, "validation_error")


async def test_a_configurable_is_heeded_and_shown(dev):
    configurable = {"version": 1, "run": {"recursionLimit": 3}, "extensions": {"example": {"a": 1}}}
    run_id = await dev.create("conformance-cap-breach", configurable=configurable)
    log = await dev.log(run_id)
    assert log[-1]["payload"]["error"]["code"] == "recursion_limit_exceeded"
    assert (await dev.http.get(path_of(run_id))).json()["configurable"] == configurable


@pytest.mark.parametrize("body", [b"{", b"", b"[]", b'"x"', b"\xff", b'{"workflowId":}', b'{"workflowId":1}', b"{}"])
async def test_a_body_that_cannot_be_read_is_refused_in_the_envelope(dev, body):
    answer = await dev.http.post("/runs", content=body, headers={"Content-Type": "application/json"})
    assert refusal(answer) == (400, "validation_error")


async def test_who_a_run_belongs_to_is_told_alike_in_its_snapshot_and_in_its_first_event(dev):
    run_id = await dev.ended("conformance-noop")
    owner = (await dev.http.get(path_of(run_id))).json()["owner"]
    started = (await page(dev, run_id))["events"][0]
    assert (started["type"], started["payload"]["owner"], started["payload"]["transport"]) == (
        "run.started",
        owner,
        "rest",
    )
    assert owner["tenant"] == "acme"
    subject = owner["subject"]
    assert set(subject) == {"issuer", "subjectId", "tenant", "lane", "kind"}
    assert (subject["tenant"], subject["lane"], subject["kind"]) == ("acme", "api-key", "user")
    [lane] = [lane for lane in (await discovered(dev))["auth"]["lanes"] if lane["lane"] == "api-key"]
    assert subject["issuer"] in lane["issuers"]


async def test_what_a_run_gave_stands_in_its_last_event_and_not_in_its_snapshot(dev):
    run_id = await dev.ended("conformance-identity", {"payload": {"a": [1.5, None]}})
    events = (await page(dev, run_id))["events"]
    assert events[-1]["payload"]["outputs"] == {"echo": {"payload": {"a": [1.5, None]}}}
    snapshot = (await dev.http.get(path_of(run_id))).json()
    assert snapshot["status"] == "completed"
    assert "outputs" not in snapshot


async def test_a_snapshot_is_known_by_its_etag_until_something_happens(dev):
    run_id = await dev.create("conformance-cancellable")
    await dev.until(run_id, "node.started")
    answer = await dev.http.get(path_of(run_id))
    known = {"If-None-Match": answer.headers["etag"]}
    again = await dev.http.get(path_of(run_id), headers=known)
    assert (again.status_code, again.content, again.headers["openwop-version"]) == (304, b"", "2.0")
    await dev.http.post(f"{path_of(run_id)}/cancel")
    assert (await dev.http.get(path_of(run_id), headers=known)).status_code == 200
    await dev.log(run_id)
    changed = await dev.http.get(path_of(run_id), headers=known)
    assert (changed.status_code, changed.json()["status"]) == (200, "cancelled")
    assert changed.headers["etag"] != answer.headers["etag"]


async def test_a_snapshot_has_the_members_that_one_may_have(dev):
    admitted = {
        "runId", "workflowId", "status", "owner", "eventLogSchemaVersion", "engineVersion", "compensationStatus",
        "currentNodeId", "error", "configurable", "tags", "metadata", "agent", "runOrchestrator", "metrics",
        "startedAt", "completedAt", "nodeStates", "variables", "channels", "parentRunId", "inputs", "extensions",
    }  # fmt: skip
    for workflow_id in ("conformance-noop", "conformance-failure"):
        run_id = await dev.ended(workflow_id, {"a": 1}, tags=["x"], metadata={"m": 1})
        snapshot = (await dev.http.get(path_of(run_id))).json()
        assert {"runId", "workflowId", "status", "owner", "eventLogSchemaVersion"} <= set(snapshot) <= admitted
        assert snapshot["status"] in STATUSES
        assert TIME.fullmatch(snapshot["startedAt"])
        assert TIME.fullmatch(snapshot["completedAt"])
        if workflow_id == "conformance-failure":
            assert set(snapshot["error"]) <= {"code", "message", "details"}
            assert snapshot["error"]["code"] in ERROR_CODE_HTTP_STATUS


async def test_runs_are_listed_newest_first_page_by_page_to_their_tenant_alone(dev):
    ids = [await dev.create("conformance-multi-node") for _ in range(5)]
    query = "?workflowId=conformance-multi-node&limit=2&colour=red"

    async def walk() -> list[str]:
        found: list[str] = []
        cursor: str | None = ""
        while cursor is not None and len(found) < 5:
            told = (await dev.http.get(f"/runs{query}{cursor}")).json()
            assert len(told["runs"]) <= 2
            found += [run["runId"] for run in told["runs"]]
            cursor = f"&cursor={told['nextCursor']}" if "nextCursor" in told else None
        return found

    async with asyncio.timeout(PATIENCE):
        # From the second page on there is what Temporal lists, which it does a moment after the run.
        while not set(ids) <= set(found := await walk()):
            pass
    assert found[:5] == ids[::-1]
    cursor = (await dev.http.get(f"/runs{query}")).json()["nextCursor"]
    theirs = await dev.http.get(f"/runs{query}&cursor={cursor}", headers=a_key(UMBRELLA))
    assert refusal(theirs) == (400, "validation_error")
    assert (await dev.http.get(f"/runs{query}", headers=a_key(UMBRELLA))).json() == {"runs": []}
    limit = (await discovered(dev))["runList"]["maxPageSize"]
    assert len((await dev.http.get("/runs?limit=100000")).json()["runs"]) <= limit


@pytest.mark.parametrize(
    ("workflow_id", "ending"), [("conformance-noop", "run.completed"), ("conformance-failure", "run.failed")]
)
async def test_a_log_has_one_end_and_nothing_behind_it(dev, workflow_id, ending):
    run_id = await dev.ended(workflow_id)
    types = [event["type"] for event in (await page(dev, run_id))["events"]]
    assert [one for one in types if one in TERMINAL] == [ending]
    assert types[-1] == ending


async def test_a_callback_is_refused_and_never_called(dev, mcp):
    body = {"workflowId": "conformance-noop", "callbackUrl": mcp.url.replace("/mcp", "/callback")}
    assert refusal(await dev.http.post("/runs", json=body)) == (400, "validation_error")
    assert "/callback" not in {request.path for request in mcp.requests}


# --- the floor of runs


async def test_a_run_that_has_ended_cannot_be_cancelled_and_one_that_has_not_is_within_seconds(dev):
    over = await dev.ended("conformance-noop")
    assert refusal(await dev.http.post(f"{path_of(over)}/cancel", json={})) == (409, "run_terminal")
    run_id = await dev.create("conformance-cancellable")
    answer = await dev.http.post(f"{path_of(run_id)}/cancel", json={"reason": "enough"})
    assert answer.status_code == 200
    assert set(answer.json()) == {"runId", "status"}
    assert answer.json()["status"] in {"cancelling", "cancelled"}
    last = (await dev.log(run_id))[-1]
    assert (last["type"], last["payload"]["reason"]) == ("run.cancelled", "enough")
    assert refusal(await dev.http.post(f"{path_of('acme/0123456789abcdef')}/cancel")) == (404, "not_found")


async def test_of_many_that_are_cancelled_at_once_each_has_its_verdict_in_order(dev):
    many = {"runIds": [f"acme/{number:016}" for number in range(101)]}
    answer = await dev.http.post("/runs:bulk-cancel", json=many)
    assert refusal(answer) == (400, "validation_error")
    assert answer.json()["details"]["maxRunIds"] == 100
    over, going = await dev.ended("conformance-noop"), await dev.create("conformance-cancellable")
    asked = [over, "umbrella/0123456789abcdef", going, "acme/0123456789abcdef"]
    answer = await dev.http.post("/runs:bulk-cancel", json={"runIds": asked})
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [result["runId"] for result in results] == asked
    assert [result["ok"] for result in results] == [False, False, True, False]
    codes = [result["error"]["error"] for result in results if not result["ok"]]
    assert codes == ["run_terminal", "id_tenant_mismatch", "not_found"]
    assert all(set(result) == {"runId", "ok", "status" if result["ok"] else "error"} for result in results)
    for empty in ({"runIds": []}, {}, {"runIds": [1]}, {"runIds": [going], "all": True}):
        assert refusal(await dev.http.post("/runs:bulk-cancel", json=empty)) == (400, "validation_error")


async def test_a_run_is_paused_and_resumed_and_says_so(dev):
    over = await dev.ended("conformance-noop")
    for what in ("pause", "resume"):
        assert refusal(await dev.http.post(f"{path_of(over)}:{what}", json={})) == (409, "run_terminal")
    run_id = await dev.create("conformance-delay", {"delayMs": 5000})
    await dev.until(run_id, "node.started")
    answer = await dev.http.post(f"{path_of(run_id)}:resume", json={})
    assert refusal(answer) == (409, "run_state_conflict")
    assert answer.json()["details"] == {"runStatus": "running"}
    paused = await dev.http.post(f"{path_of(run_id)}:pause", json={"reason": "x", "drainPolicy": "immediate"})
    assert (paused.status_code, paused.json()["status"]) == (202, "paused")
    assert set(paused.json()) == {"runId", "status", "pausedAt"}
    assert (await dev.http.get(path_of(run_id))).json()["status"] == "paused"
    resumed = await dev.http.post(f"{path_of(run_id)}:resume", json={})
    assert (resumed.status_code, resumed.json()["status"]) == (202, "running")
    log = await dev.log(run_id)
    types = [event["type"] for event in log]
    assert types.index("run.paused") < types.index("run.resumed")
    assert log[types.index("run.paused")]["payload"]["drainPolicy"] == "immediate"
    # What was cut begins anew.
    assert types[types.index("run.resumed") :].count("node.started") == 1
    assert types[-1] == "run.completed"


@pytest.mark.parametrize(
    "members",
    [
        {"tags": ["t"] * 101},
        {"tags": ["t" * 257]},
        {"tags": [""]},
        {"tags": "t"},
        {"colour": "red"},
        {"metadata": []},
        {"inputs": []},
    ],
)
async def test_more_tags_than_there_may_be_and_unknown_members_are_refused(dev, members):
    answer = await dev.http.post("/runs", json={"workflowId": "conformance-noop", **members})
    assert refusal(answer) == (400, "validation_error")


async def test_tags_and_metadata_come_back_as_they_were_sent(dev):
    tags = ["a b", "ü/ß", "🎉", "a,b;c=d", '"quoted"\\', "t" * 256, "\u202e", "a b"]
    metadata = b'{"low": 1.10,"deep":{"\\u00e9":[null,true,123456789012345678901234]},"":""}'
    body = b'{"workflowId":"conformance-noop","tags":%b,"metadata":%b}' % (json.dumps(tags).encode(), metadata)
    answer = await dev.http.post("/runs", content=body, headers={"Content-Type": "application/json; charset=utf-8"})
    assert answer.status_code == 201
    snapshot = await dev.http.get(answer.json()["statusUrl"])
    assert snapshot.json()["tags"] == tags
    assert metadata in snapshot.content
    # A hundred of the longest are still no more than one may have.
    most = {"workflowId": "conformance-noop", "tags": ["🎉" * 256] * 100}
    assert (await dev.http.post("/runs", json=most)).status_code == 201


@pytest.mark.parametrize("key", ["k" * 22, "A-Z.a_z~0123456789abcdef", "k" * 128])
async def test_a_key_of_the_grammar_is_taken(dev, key):
    headers = {"Idempotency-Key": f"{uuid.uuid4().hex[:8]}{key}"[: max(22, len(key))]}
    answer = await dev.http.post("/runs", json={"workflowId": "conformance-noop"}, headers=headers)
    assert answer.status_code == 201


@pytest.mark.parametrize("key", ["short", "k" * 21, "k" * 129, "k" * 22 + " k", "k" * 22 + "/", "", "k" * 22 + ",k"])
async def test_a_key_that_is_not_of_the_grammar_is_refused(dev, key):
    answer = await dev.http.post("/runs", json={"workflowId": "conformance-noop"}, headers={"Idempotency-Key": key})
    assert refusal(answer) == (400, "idempotency_key_invalid")


# --- events


PAYLOADS: dict[str, tuple[set[str], set[str]]] = {
    "run.started": ({"workflowId"}, {"inputs", "transport", "engineVersion", "owner", "tags", "metadata"}),
    "run.completed": ({"outputs"}, {"durationMs"}),
    "run.failed": ({"error"}, {"failedNodeId", "durationMs"}),
    "run.cancelled": (set(), {"reason", "cancelledBy", "durationMs", "parentRunId"}),
    "run.paused": (set(), {"reason", "drainPolicy", "interruptedNodeId", "interruptedAttempt"}),
    "run.resumed": (set(), {"reason"}),
    "node.started": ({"nodeId", "typeId"}, {"attempt"}),
    "node.completed": ({"nodeId"}, {"outputs", "durationMs"}),
    "node.failed": ({"nodeId", "error"}, {"attempts"}),
    "node.retried": ({"nodeId", "attempt"}, {"delayMs", "lastError"}),
    "node.skipped": ({"nodeId"}, {"reason"}),
    "node.cancelled": ({"nodeId"}, {"reason"}),
    "interrupt.requested": ({"kind", "key", "data"}, {"resumeSchema", "timeoutMs"}),
    "interrupt.resolved": (
        {"nodeId", "interruptId", "kind"},
        {"reason", "resumeValue", "resolvedBy", "decision", "action", "refineFeedback", "editedArtifactData"},
    ),
    "node.suspended": ({"nodeId"}, {"interruptId", "kind", "reason", "key"}),
    "node.resumed": ({"nodeId"}, {"interruptId", "resumeValue"}),
    "negotiation.decided": (
        {"protocol", "outcome", "at"},
        {"version", "floor", "peerDigest", "requested", "reason"},
    ),
    "cap.breached": ({"kind"}, {"limit", "observed", "nodeId"}),
    "tool.session-opened": ({"sessionId", "toolId"}, set()),
    "tool.session-closed": ({"sessionId", "toolId", "outcome"}, set()),
}
"""What the payload of each type must and may hold."""


async def test_each_event_is_of_a_registered_type_and_holds_what_that_may_hold(dev):
    cut = {"version": 1, "run": {"recursionLimit": 3}}
    ids = [
        await dev.create("conformance-mcp-client", CALL),
        await dev.create("conformance-mcp-client", {**CALL, "serverId": "conformance-down"}),
        await dev.create("conformance-mcp-client", {**CALL, "name": "refuses"}),
        await dev.create("conformance-failure"),
        await dev.create("conformance-multi-node", tags=["t"], metadata={}),
        await dev.create("conformance-cap-breach", configurable=cut),
        asked := await dev.create("conformance-approval"),
        held := await dev.create("conformance-delay", {"delayMs": 60_000}),
    ]
    await dev.until(asked, "node.suspended")
    assert (await dev.http.post(f"{path_of(asked)}/interrupts/gate", json=ACCEPT)).status_code == 200
    await dev.until(held, "node.started")
    for what in (":pause", ":resume", "/cancel"):
        assert (await dev.http.post(f"{path_of(held)}{what}", json={"reason": "x"})).is_success
    seen = set()
    for run_id in ids:
        log = await dev.log(run_id)
        assert [event["sequence"] for event in log] == list(range(len(log)))
        for event in log:
            seen.add(event["type"])
            assert {"eventId", "runId", "type", "payload", "timestamp", "sequence", "schemaVersion"} <= set(event)
            assert set(event) <= {
                "eventId", "runId", "type", "payload", "timestamp", "sequence", "schemaVersion", "nodeId",
                "engineVersion", "causationId",
            }  # fmt: skip
            assert TIME.fullmatch(event["timestamp"])
            assert event["schemaVersion"] >= 1
            needed, more = PAYLOADS[event["type"]]
            members = {name for name in event["payload"] if not name.startswith(("openwop-", "x-", "vendor."))}
            assert needed <= members <= needed | more, event
            for error in (event["payload"].get("error"), event["payload"].get("lastError")):
                if error is not None:
                    assert set(error) <= {"code", "message", "details", "retryable"}
                    assert error["code"] in ERROR_CODE_HTTP_STATUS
    assert seen >= set(PAYLOADS) - {"node.skipped", "negotiation.decided"}


async def test_the_era_that_is_told_is_that_of_every_run(dev):
    era = (await discovered(dev))["eventLogSchemaVersion"]
    run_id = await dev.ended("conformance-noop")
    assert (await dev.http.get(path_of(run_id))).json()["eventLogSchemaVersion"] == era == 3


async def test_a_poll_is_closed_and_its_cursor_exclusive(dev):
    run_id = await dev.ended("conformance-multi-node")
    whole = await page(dev, run_id)
    assert set(whole) == {"runId", "events", "lastSequence", "status", "isTerminal"}
    last = len(whole["events"]) - 1
    assert (whole["runId"], whole["lastSequence"], whole["status"], whole["isTerminal"]) == (
        run_id, last, "completed", True,
    )  # fmt: skip
    for after in range(last):
        rest = await page(dev, run_id, f"?afterSequence={after}&streamMode=debug")
        assert rest["events"] == whole["events"][after + 1 :]
    for after in (last, last + 1000):
        past = await page(dev, run_id, f"?afterSequence={after}&timeout=60")
        assert past == {**whole, "events": []}


@pytest.mark.parametrize(
    "query", ["afterSequence=-1", "afterSequence=x", "afterSequence=1.0", "timeout=0", "timeout=61"]
)
async def test_a_poll_that_asks_for_what_there_cannot_be_is_refused(dev, query):
    run_id = await dev.create("conformance-noop")
    assert refusal(await dev.http.get(f"{path_of(run_id)}/events/poll?{query}")) == (400, "validation_error")


async def test_a_poll_waits_for_an_event_and_no_longer_than_it_was_told_to(dev):
    run_id = await dev.create("conformance-cancellable")
    started = await dev.until(run_id, "node.started")
    none = await page(dev, run_id, f"?afterSequence={started['sequence']}&timeout=1")
    assert (none["events"], none["isTerminal"], none["lastSequence"]) == ([], False, started["sequence"])
    waiting = asyncio.create_task(page(dev, run_id, f"?afterSequence={started['sequence']}&timeout=60"))
    await dev.http.post(f"{path_of(run_id)}/cancel")
    async with asyncio.timeout(SECONDS):
        assert (await waiting)["events"] != []


async def test_the_frames_of_a_stream_are_the_log_and_are_taken_up_after_any_of_them(dev):
    run_id = await dev.ended("conformance-noop")
    log = (await page(dev, run_id))["events"]
    frames = [frame async for frame in dev.frames(run_id)]
    assert [frame.json for frame in frames] == log
    assert [(frame.id, frame.event) for frame in frames] == [(str(one["sequence"]), one["type"]) for one in log]
    for after in range(len(log)):
        assert [frame async for frame in dev.frames(run_id, after=after)] == frames[after + 1 :]
    assert [frame async for frame in dev.frames(run_id, after=len(log) + 1000)] == []


async def test_the_snapshots_of_a_stream_begin_with_how_the_run_stands(dev):
    run_id = await dev.ended("conformance-noop")
    snapshot = (await dev.http.get(path_of(run_id))).json()
    last = (await page(dev, run_id))["lastSequence"]
    for after in (None, 0, last - 1):
        frames = [frame async for frame in dev.frames(run_id, "streamMode=values", after)]
        assert [(frame.id, frame.event, frame.json) for frame in frames] == [(str(last), "state.snapshot", snapshot)]
    assert [frame async for frame in dev.frames(run_id, "streamMode=values", last)] == []


@pytest.mark.parametrize("cursor", ["x", "-1", "1.0", "", "0x1"])
async def test_a_cursor_that_no_frame_had_is_refused(dev, cursor):
    run_id = await dev.ended("conformance-noop")
    answer = await dev.http.get(f"{path_of(run_id)}/events", headers={"Last-Event-ID": cursor})
    assert refusal(answer) == (400, "validation_error")
    # Who may not read it learns nothing of its cursors.
    for key, expected in ((UMBRELLA, 403), ("nobody", 401)):
        headers = {"Last-Event-ID": cursor, **a_key(key)}
        assert (await dev.http.get(f"{path_of(run_id)}/events", headers=headers)).status_code == expected


@pytest.mark.parametrize("mode", ["bogus", "updates,values", "values,debug", "", "updates,", "UPDATES", "debug;x"])
@pytest.mark.parametrize("accept", ["text/event-stream", "application/json", "image/png"])
async def test_a_mode_that_is_not_served_is_refused_with_those_that_are(dev, mode, accept):
    run_id = await dev.create("conformance-noop")
    answer = await dev.http.get(f"{path_of(run_id)}/events", params={"streamMode": mode}, headers={"Accept": accept})
    assert refusal(answer) == (400, "unsupported_stream_mode")
    assert set(answer.json()["details"]["supported"]) == {"updates", "values", "messages", "debug"}


async def test_each_mode_shows_its_part_of_the_log(dev):
    run_id = await dev.ended("conformance-multi-node")
    log = (await page(dev, run_id))["events"]
    expected = {
        "debug": log,
        "updates": [event for event in log if event["type"] != "node.started"],
        "messages": [],
        "updates,messages": [event for event in log if event["type"] != "node.started"],
        "debug,updates": log,
    }
    for mode, events in expected.items():
        assert [frame.json async for frame in dev.frames(run_id, f"streamMode={mode}")] == events, mode
    assert [frame.json async for frame in dev.frames(run_id, "")] == expected["updates"]


async def test_events_that_wait_for_company_come_as_batches_and_only_where_that_was_asked_for(dev):
    run_id = await dev.ended("conformance-multi-node")
    log = (await page(dev, run_id))["events"]
    batches = [frame async for frame in dev.frames(run_id, "streamMode=debug&bufferMs=200")]
    assert {frame.event for frame in batches} == {"batch"}
    assert [event for frame in batches for event in frame.json] == log
    assert "batch" not in {frame.event async for frame in dev.frames(run_id)}
    for wrong in ("-1", "5001", "x", ""):
        answer = await dev.http.get(f"{path_of(run_id)}/events?bufferMs={wrong}")
        assert refusal(answer) == (400, "validation_error")


async def test_a_stream_says_what_it_is_and_is_kept_by_nobody(dev):
    run_id = await dev.ended("conformance-noop")
    answer = await dev.http.get(f"{path_of(run_id)}/events", headers={"Accept": "text/event-stream"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["openwop-version"] == "2.0"


# --- keys and effects


async def test_of_five_creates_at_once_with_one_key_one_is_carried_out(dev):
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    body = {"workflowId": "conformance-delay", "inputs": {"delayMs": 1500}}
    answers = await asyncio.gather(*(dev.http.post("/runs", json=body, headers=headers) for _ in range(5)))
    done = [answer for answer in answers if answer.is_success]
    assert len({answer.json()["runId"] for answer in done}) == 1
    assert len([answer for answer in done if "openwop-idempotent-replay" not in answer.headers]) == 1
    assert {answer.headers.get("openwop-idempotent-replay") for answer in done} <= {None, "true"}
    for answer in answers:
        if not answer.is_success:
            assert refusal(answer) == (409, "idempotency_in_flight")
            assert int(answer.headers["retry-after"]) >= 0
    # It is no longer in flight while the run goes on.
    again = await dev.http.post("/runs", json=body, headers=headers)
    assert (again.status_code, again.content) == (201, done[0].content)


async def test_a_key_that_comes_with_another_request_is_refused(dev):
    headers = {"Idempotency-Key": str(uuid.uuid4())}
    await dev.http.post("/runs", json={"workflowId": "conformance-noop"}, headers=headers)
    other = await dev.http.post("/runs", json={"workflowId": "conformance-delay"}, headers=headers)
    assert refusal(other) == (409, "idempotency_key_mismatch")
    # Another operation and another tenant have keys of their own, and what only reads has none.
    assert (
        await dev.http.post("/runs:bulk-cancel", json={"runIds": ["acme/0123456789abcdef"]}, headers=headers)
    ).is_success
    theirs = {**headers, **a_key(UMBRELLA)}
    assert (await dev.http.post("/runs", json={"workflowId": "conformance-delay"}, headers=theirs)).status_code == 201
    assert (await dev.http.get("/runs", headers={"Idempotency-Key": "short"})).status_code == 200


async def test_the_ledger_of_a_run_has_a_row_for_each_attempt_and_no_credential(dev):
    silent, calls = await dev.ended("conformance-noop"), await dev.ended("conformance-mcp-client", CALL)
    assert (await dev.http.get(f"{path_of(silent)}/effects")).json() == {"runId": silent, "effects": []}
    told = (await dev.http.get(f"{path_of(calls)}/effects")).json()
    assert set(told) == {"runId", "effects"}
    [effect] = told["effects"]
    assert set(effect) <= {"effectId", "nodeId", "attempt", "invocationId", "keying", "providerKey", "state", "at"}
    assert effect["keying"] in {"business-identity", "activity-recipe"}
    assert (effect["nodeId"], effect["attempt"], effect["state"]) == ("mcp-client", 1, "completed")
    assert TIME.fullmatch(effect["at"])
    assert refusal(await dev.http.get(f"{ABSENT}/effects")) == (404, "not_found")


# --- errors


async def test_whatever_is_wrong_is_told_by_a_registered_code_at_its_status(dev):
    huge = b'{"workflowId":"conformance-noop","inputs":{"a":"%b"}}' % (b"x" * 3_000_000)
    as_json = {"Content-Type": "application/json"}
    noop = {"workflowId": "conformance-noop"}
    asked = [
        (dev.http.get("/nothing"), (404, "not_found")),
        (dev.http.delete("/runs"), (404, "not_found")),
        (dev.http.get(f"{ABSENT}/nothing"), (404, "not_found")),
        (dev.http.get("/workflows/nothing"), (404, "not_found")),
        (dev.http.post("/runs", content=huge, headers=as_json), (413, "payload_too_large")),
        (dev.http.post("/runs", content=b"<a/>", headers={"Content-Type": "a/b"}), (415, "unsupported_media_type")),
        (dev.http.post("/runs", json={"workflowId": "nothing"}), (404, "not_found")),
        (dev.http.post("/runs", json={"workflowId": "conformance-identity"}), (400, "validation_error")),
        (dev.http.post("/runs", json=noop, headers=a_key(READER)), (403, "forbidden")),
        (dev.http.post("/runs", json={**noop, "tenantId": "umbrella"}), (403, "id_tenant_mismatch")),
        (dev.http.post("/runs", json={**noop, "agentId": "a"}), (422, "capability_required")),
        (dev.http.get("/runs?limit=0"), (400, "validation_error")),
        (dev.http.get("/runs?status=asleep"), (400, "validation_error")),
        (dev.http.get("/runs?cursor=made-up"), (400, "validation_error")),
        (dev.http.post(f"{ABSENT}:pause", json={"drainPolicy": "soon"}), (400, "validation_error")),
        (dev.http.post(f"{ABSENT}:pause"), (404, "not_found")),
    ]  # fmt: skip
    async with asyncio.timeout(SECONDS):
        for request, expected in asked:
            assert refusal(await request) == expected


async def test_a_run_that_fails_says_why_in_a_registered_code(dev):
    run_id = await dev.ended("conformance-failure")
    log = (await page(dev, run_id))["events"]
    code = log[-1]["payload"]["error"]["code"]
    assert log[-1]["type"] == "run.failed"
    assert code in ERROR_CODE_HTTP_STATUS
    assert (await dev.http.get(path_of(run_id))).json()["error"]["code"] == code


# --- interrupts


async def test_an_approval_is_answered_where_it_waits(dev):
    run_id = await dev.create("conformance-approval")
    await dev.until(run_id, "node.suspended")
    assert (await dev.http.get(path_of(run_id))).json()["status"] == "waiting-approval"
    answer = await dev.http.post(f"{path_of(run_id)}/interrupts/gate", json=ACCEPT)
    assert answer.status_code == 200
    assert answer.json()["runId"] == run_id
    assert answer.json()["nodeId"] == "gate"
    assert (await dev.log(run_id))[-1]["type"] == "run.completed"


async def test_a_clarification_is_answered_question_by_question(dev):
    run_id = await dev.create("conformance-clarification")
    await dev.until(run_id, "node.suspended")
    assert (await dev.http.get(path_of(run_id))).json()["status"] == "waiting-input"
    where = f"{path_of(run_id)}/interrupts/ask"
    assert refusal(await dev.http.post(where, json={"resumeValue": {"answers": {}}})) == (400, "validation_error")
    assert (await dev.http.post(where, json={"resumeValue": {"answers": {"q1": "green"}}})).status_code == 200
    assert (await dev.log(run_id))[-1]["type"] == "run.completed"


async def test_what_has_its_answer_takes_no_other(dev):
    run_id = await dev.create("conformance-approval")
    await dev.until(run_id, "node.suspended")
    where = f"{path_of(run_id)}/interrupts/gate"
    assert (await dev.http.post(where, json=ACCEPT)).status_code == 200
    await dev.log(run_id)
    assert refusal(await dev.http.post(where, json=ACCEPT)) == (409, "interrupt_already_resolved")


async def test_what_was_cancelled_takes_no_answer(dev):
    run_id = await dev.create("conformance-approval")
    await dev.until(run_id, "node.suspended")
    assert (await dev.http.post(f"{path_of(run_id)}/cancel")).status_code == 200
    await dev.log(run_id)
    where = f"{path_of(run_id)}/interrupts/gate"
    assert refusal(await dev.http.post(where, json=ACCEPT)) == (409, "interrupt_already_resolved")


async def test_a_run_that_is_not_there_takes_no_answer(dev):
    assert refusal(await dev.http.post(f"{ABSENT}/interrupts/gate", json=ACCEPT)) == (404, "not_found")


async def test_tokens_are_of_the_scheme_that_is_told_and_others_are_refused(dev):
    assert (await discovered(dev))["interrupt"]["tokenAlgs"] == ["hs256"]
    for token in ("0123456789abcdef", FOREIGN, FOREIGN.replace("hs256", "none"), FOREIGN.replace("host", "other")):
        for method in ("GET", "POST"):
            answer = await dev.http.request(method, f"/interrupts/{token}", json=ACCEPT if method == "POST" else None)
            assert refusal(answer) == (401, "interrupt_token_invalid")
