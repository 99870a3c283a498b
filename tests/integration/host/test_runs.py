"""Runs over HTTP: created, listed, cancelled, paused and resumed, by two hosts at once."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.deployment.v1 import WorkerDeploymentVersion
from temporalio.api.workflow.v1 import VersioningOverride, WorkflowExecutionOptions
from temporalio.api.workflowservice.v1 import UpdateWorkflowExecutionOptionsRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.client import WorkflowExecution as Listed
from temporalio.contrib.opentelemetry import TracingInterceptor
from temporalio.service import RPCError, RPCStatusCode

from host import bodies, creation, records, updates
from host.ids import BoundId, project
from host.scopes import Scopes
from host.scopes import _name as scope_name
from openwop_mcp.embedded import EmbeddedTemporal
from openwop_mcp.runs.definition import Definition
from openwop_mcp.runs.start import Options
from tests.support.fake_server import FakeServer, modern
from tests.support.graphs import node, workflow
from tests.support.hosts import bearer
from tests.support.pack import pack_worker, settings_for
from tests.support.patience import PATIENCE
from tests.support.run_hosts import FLOWS, Hosts, code, key, two_hosts


@pytest.fixture
async def hosts(client: Client, temporal: EmbeddedTemporal, tmp_path: Path) -> AsyncIterator[Hosts]:
    """Hosts with a worker, whose one server answers nothing."""
    other = await Client.connect(temporal.address)
    flows = {**FLOWS, "gate": workflow([node("gate", "core.approvalGate", config={"title": "Go on?"})])}
    async with (
        pack_worker(client, settings_for("http://127.0.0.1:9/mcp")) as pack,
        two_hosts(client, other, tmp_path, pack.task_queue, flows=flows) as both,
    ):
        yield both


@pytest.fixture
async def alone(client: Client, temporal: EmbeddedTemporal, tmp_path: Path) -> AsyncIterator[Hosts]:
    """Hosts without a worker."""
    other = await Client.connect(temporal.address)
    async with two_hosts(client, other, tmp_path, f"nobody-{uuid.uuid4().hex}") as both:
        yield both


# --- created


async def test_a_run_is_created_and_can_be_read_at_once_at_the_other_host(alone: Hosts) -> None:
    answer = await alone.first.post("/runs", json={"workflowId": "noop", "tags": ["a"], "metadata": {"b": 1}})
    told = answer.json()
    assert answer.status_code == 201
    assert set(told) == {"runId", "status", "eventsUrl", "statusUrl"}
    assert told["status"] == "pending"
    assert told["runId"].startswith("acme/")
    assert answer.headers["location"] == told["statusUrl"] == f"/runs/{project(told['runId'])}"
    snapshot = (await alone.second.get(told["statusUrl"])).json()
    assert snapshot["owner"]["subject"]["subjectId"] == "dev"
    assert (snapshot["status"], snapshot["workflowId"], snapshot["tags"]) == ("pending", "noop", ["a"])


async def test_inputs_arrive_at_a_server_digit_for_digit(client: Client, tmp_path: Path) -> None:
    arguments = b'{"a":1.10, "n":123456789012345678901234,"e":1e400}'
    body = b'{"workflowId":"call","inputs":{"arguments":' + arguments + b',"more":[1.0]}}'
    async with (
        FakeServer(modern()) as server,
        pack_worker(client, settings_for(server.url)) as pack,
        two_hosts(client, client, tmp_path, pack.task_queue) as both,
    ):
        answer = await both.first.post("/runs", content=body, headers={"Content-Type": "application/json"})
        run_id = answer.json()["runId"]
        assert (await both.ended(run_id))["type"] == "run.completed"
        assert arguments in server.calls("t")[-1].body
        assert b'"more":[1.0]' in (await both.first.get(f"/runs/{project(run_id)}")).content


@pytest.mark.parametrize(
    ("body", "headers", "wanted"),
    [
        ({"workflowId": "gone"}, {}, (404, "not_found")),
        ({"workflowId": "needs"}, {}, (400, "validation_error")),
        ({"workflowId": "needs", "inputs": {"city": 3}}, {}, (400, "validation_error")),
        ({"workflowId": "noop", "inputs": {"a": "x" * 2_000_000}}, {}, (413, "payload_too_large")),
        ({"workflowId": "noop", "metadata": {"a": "x" * 2_000_000}}, {}, (413, "payload_too_large")),
        ({"workflowId": "noop"}, {"Idempotency-Key": "short"}, (400, "idempotency_key_invalid")),
        ({"workflowId": "noop"}, {"OpenWOP-Dedup": "enforce"}, (400, "validation_error")),
        ({"workflowId": "noop", "scopeId": "a"}, {"OpenWOP-Dedup": "yes"}, (400, "validation_error")),
        ({"workflowId": "noop"}, {"OpenWOP-Force-Engine-Version": "1"}, (403, "force_engine_version_forbidden")),
        ({"workflowId": "noop", "tenantId": "umbrella"}, {}, (403, "id_tenant_mismatch")),
        ({"workflowId": "noop"}, bearer("acme-reads"), (403, "forbidden")),
    ],
)
async def test_what_cannot_be_a_run_is_refused(alone: Hosts, body: Any, headers: Any, wanted: Any) -> None:
    assert code(await alone.first.post("/runs", json=body, headers=headers)) == wanted


async def test_what_temporal_takes_for_too_large_is_too_large(client: Client, tmp_path: Path) -> None:
    generous = Options(call_bytes=10**8)
    async with two_hosts(client, client, tmp_path, "nobody", options=generous) as both:
        body = {"workflowId": "noop", "inputs": {"a": "x" * 3_000_000}}
        assert code(await both.first.post("/runs", json=body, headers=key())) == (413, "payload_too_large")


async def test_a_long_body_is_read_beside_the_event_loop(alone: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    own, seen = threading.get_ident(), list[str]()

    def watch(owner: Any, name: str) -> None:
        work = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            seen.append("the event loop's" if threading.get_ident() == own else name)
            return work(*args, **options)

        monkeypatch.setattr(owner, name, watched)

    watch(bodies, "read_create_run")
    watch(bodies, "read_resolve")
    watch(Definition, "misfits")
    long = b"[" + b'"\\ud800",' * 100_000 + b"1]"
    made = await alone.first.post(
        "/runs", content=b'{"workflowId":"noop","inputs":{"a":%b}}' % long, headers={"Content-Type": "application/json"}
    )
    assert made.status_code == 201
    await alone.first.post(
        f"/runs/{project(made.json()['runId'])}/interrupts/a",
        content=b'{"resumeValue":%b}' % long,
        headers={"Content-Type": "application/json"},
    )
    assert seen == ["read_create_run", "misfits", "read_resolve"]


async def test_inputs_that_no_variable_declares_are_kept(alone: Hosts) -> None:
    run_id = await alone.create("needs", inputs={"city": "Bern", "else": None})
    assert (await alone.first.get(f"/runs/{project(run_id)}")).status_code == 200


# --- created with a key


async def test_five_creates_at_once_with_one_key_make_one_run(alone: Hosts) -> None:
    once, body = key(), {"workflowId": "delay", "inputs": {"delayMs": 1500}}
    at = [alone.first, alone.second, alone.first, alone.second, alone.first]
    answers = await asyncio.gather(*(one.post("/runs", json=body, headers=once) for one in at))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == 1
    assert sorted(answer.headers.get(records.REPLAYED, "") for answer in answers) == ["", *["true"] * 4]


async def test_a_create_is_answered_alike_while_the_run_goes_on_and_when_it_has_ended(hosts: Hosts) -> None:
    once, body = key(), {"workflowId": "noop"}
    first = await hosts.first.post("/runs", json=body, headers=once)
    await hosts.ended(first.json()["runId"])
    again = await hosts.second.post("/runs", json=body, headers=once)
    assert (again.status_code, again.content) == (201, first.content)
    assert again.headers["location"] == first.headers["location"]
    assert again.headers[records.REPLAYED] == "true"


async def test_a_key_with_another_request_is_refused_and_makes_nothing(alone: Hosts) -> None:
    once = key()
    await alone.first.post("/runs", json={"workflowId": "noop"}, headers=once)
    other = await alone.second.post("/runs", json={"workflowId": "noop", "inputs": {"a": 1}}, headers=once)
    spelled = await alone.second.post(
        "/runs", content=b'{"workflowId": "noop" }', headers={**once, "Content-Type": "application/json"}
    )
    assert code(other) == code(spelled) == (409, "idempotency_key_mismatch")


async def test_keys_of_two_tenants_have_nothing_to_do_with_each_other(alone: Hosts) -> None:
    once, body = key(), {"workflowId": "noop"}
    ours = await alone.first.post("/runs", json=body, headers=once)
    theirs = await alone.first.post("/runs", json=body, headers={**once, **bearer("umbrella-all")})
    assert [ours.status_code, theirs.status_code] == [201, 201]
    assert records.REPLAYED not in theirs.headers
    assert ours.json()["runId"] != theirs.json()["runId"]


async def test_a_refusal_is_kept_for_its_key(alone: Hosts) -> None:
    once, body = key(), {"workflowId": "gone"}
    first = await alone.first.post("/runs", json=body, headers=once)
    again = await alone.second.post("/runs", json=body, headers=once)
    assert code(first) == (404, "not_found")
    assert (again.status_code, again.content) == (404, first.content)
    assert (first.headers.get(records.REPLAYED), again.headers.get(records.REPLAYED)) == (None, "true")
    other = await alone.second.post("/runs", json={"workflowId": "noop"}, headers=once)
    assert code(other) == (409, "idempotency_key_mismatch")


async def test_what_is_wrong_with_a_request_is_not_kept(alone: Hosts) -> None:
    once = key()
    for body in ({"workflowId": "needs"}, {"workflowId": "noop", "what": 1}):
        assert code(await alone.first.post("/runs", json=body, headers=once)) == (400, "validation_error")
    answer = await alone.first.post("/runs", json={"workflowId": "noop"}, headers=once)
    assert (answer.status_code, answer.headers.get(records.REPLAYED)) == (201, None)


async def test_a_key_is_written_nowhere(hosts: Hosts, client: Client, caplog: pytest.LogCaptureFixture) -> None:
    once = key()
    run_id = (await hosts.first.post("/runs", json={"workflowId": "delay"}, headers=once)).json()["runId"]
    await hosts.first.post(f"/runs/{project(run_id)}/cancel", headers=once)
    await hosts.ended(run_id)
    own = records.Keyed.of(once["Idempotency-Key"], tenant="acme", operation="cancelRun", body=b"")
    assert own is not None
    listed: list[Listed] = []
    async with asyncio.timeout(PATIENCE):
        while own.record_id(0) not in {one.id for one in listed}:
            listed = [found async for found in client.list_workflows("WorkflowType = 'HttpAnswer'")]
    written = "".join([str(one.raw_info) for one in listed] + [record.getMessage() for record in caplog.records])
    for found in (run_id, *(one.id for one in listed)):
        history = await client.get_workflow_handle(found).fetch_history()
        written += history.to_json()
    assert once["Idempotency-Key"] not in written


# --- one active run of a scope


async def test_of_a_scope_one_run_is_active_whoever_asks(alone: Hosts) -> None:
    enforce, scope = {"OpenWOP-Dedup": "enforce"}, uuid.uuid4().hex
    body = {"workflowId": "delay", "scopeId": scope}
    at = [alone.first, alone.second] * 3
    answers = await asyncio.gather(*(one.post("/runs", json=body, headers=enforce) for one in at))
    created = [answer for answer in answers if answer.status_code == 201]
    refused = [answer for answer in answers if answer.status_code != 201]
    assert len(created) == 1
    assert {code(answer) for answer in refused} == {(409, "run_already_active")}
    assert {answer.json()["details"]["runId"] for answer in refused} == {created[0].json()["runId"]}
    assert all(int(answer.headers["retry-after"]) > 0 for answer in refused)
    theirs = await alone.first.post("/runs", json=body, headers={**enforce, **bearer("umbrella-all")})
    unenforced = await alone.first.post("/runs", json=body)
    assert (theirs.status_code, unenforced.status_code) == (201, 201)


async def test_a_run_that_need_not_be_the_only_one_keeps_its_scope_from_those_that_must(
    hosts: Hosts, client: Client
) -> None:
    enforce, body = {"OpenWOP-Dedup": "enforce"}, {"workflowId": "delay", "scopeId": uuid.uuid4().hex}

    async def create(headers: dict[str, str]) -> str:
        answer = await hosts.first.post("/runs", json=body, headers=headers)
        return answer.json()["runId"] if answer.status_code == 201 else f"{code(answer)}"

    async def end(run_id: str) -> None:
        await hosts.first.post(f"/runs/{project(run_id)}/cancel")
        await hosts.ended(run_id)

    first, beside = await create(enforce), await create({})
    assert await create(enforce) == "(409, 'run_already_active')"
    async with asyncio.timeout(PATIENCE):
        listed = f"WorkflowId STARTS_WITH '{scope_name('acme', body['scopeId'])}:'"
        while not [one async for one in client.list_workflows(listed)]:  # noqa: ASYNC110 - the list tells nobody
            await asyncio.sleep(0.05)
    await end(first)
    refused = await hosts.second.post("/runs", json=body, headers=enforce)
    assert code(refused) == (409, "run_already_active")
    assert refused.json()["details"] == {"runId": beside}
    await end(beside)
    assert (await create(enforce)).startswith("acme/")


async def test_a_scope_is_free_when_its_run_has_ended(hosts: Hosts) -> None:
    enforce, body = {"OpenWOP-Dedup": "enforce"}, {"workflowId": "noop", "scopeId": uuid.uuid4().hex}
    for at in (hosts.first, hosts.second):
        answer = await at.post("/runs", json=body, headers=enforce)
        assert answer.status_code == 201
        await hosts.ended(answer.json()["runId"])


async def test_a_scope_that_is_free_is_tidied_away_and_one_that_is_not_stays(hosts: Hosts, client: Client) -> None:
    enforce = {"OpenWOP-Dedup": "enforce"}
    over, active = ({"workflowId": flow, "scopeId": uuid.uuid4().hex} for flow in ("noop", "delay"))
    await hosts.ended((await hosts.first.post("/runs", json=over, headers=enforce)).json()["runId"])
    assert (await hosts.first.post("/runs", json=active, headers=enforce)).status_code == 201
    names = [scope_name("acme", str(body["scopeId"])) for body in (over, active)]

    async def standing() -> list[WorkflowExecutionStatus | None]:
        return [(await client.get_workflow_handle(name).describe()).status for name in names]

    async with asyncio.timeout(PATIENCE):
        while (await standing())[0] is WorkflowExecutionStatus.RUNNING:
            await Scopes(client).tidy()
    assert await standing() == [WorkflowExecutionStatus.TERMINATED, WorkflowExecutionStatus.RUNNING]
    assert code(await hosts.second.post("/runs", json=active, headers=enforce)) == (409, "run_already_active")


async def test_a_create_with_a_key_that_made_the_active_run_is_answered_as_before(alone: Hosts) -> None:
    headers = {"OpenWOP-Dedup": "enforce", **key()}
    body = {"workflowId": "delay", "scopeId": uuid.uuid4().hex}
    first, again = [await at.post("/runs", json=body, headers=headers) for at in (alone.first, alone.second)]
    assert (first.status_code, again.status_code, again.content) == (201, 201, first.content)
    unforced = await alone.first.post("/runs", json=body, headers={"Idempotency-Key": headers["Idempotency-Key"]})
    assert code(unforced) == (409, "idempotency_key_mismatch")


async def test_creates_at_once_with_one_key_in_one_scope_make_one_run(
    alone: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_claimed, start_run = asyncio.Barrier(2), creation.runs.start_run

    async def start(*args: Any, **more: Any) -> Any:
        await both_claimed.wait()
        return await start_run(*args, **more)

    monkeypatch.setattr(creation.runs, "start_run", start)
    headers = {"OpenWOP-Dedup": "enforce", **key()}
    body = {"workflowId": "delay", "scopeId": uuid.uuid4().hex}
    answers = await asyncio.gather(
        *(at.post("/runs", json=body, headers=headers) for at in (alone.first, alone.second))
    )
    assert {(answer.status_code, answer.content) for answer in answers} == {(201, answers[0].content)}
    assert sorted(answer.headers.get(records.REPLAYED, "") for answer in answers) == ["", "true"]


# --- cancelled


async def test_a_cancelled_run_ends_with_the_reason(hosts: Hosts) -> None:
    run_id = await hosts.create("delay")
    answer = await hosts.second.post(f"/runs/{project(run_id)}/cancel", json={"reason": "enough"})
    assert (answer.status_code, answer.json()) == (200, {"runId": run_id, "status": "cancelling"})
    last = await hosts.ended(run_id)
    assert (last["type"], last["payload"]["reason"]) == ("run.cancelled", "enough")
    assert code(await hosts.first.post(f"/runs/{project(run_id)}/cancel")) == (409, "run_terminal")


async def test_a_cancel_with_a_key_is_answered_alike_also_when_the_run_has_ended(hosts: Hosts) -> None:
    run_id, once = await hosts.create("delay"), key()
    path = f"/runs/{project(run_id)}/cancel"
    at = [hosts.first, hosts.second] * 2
    answers = await asyncio.gather(*(one.post(path, headers=once) for one in at))
    await hosts.ended(run_id)
    answers.append(await hosts.second.post(path, headers=once))
    assert {(answer.status_code, answer.content) for answer in answers} == {(200, answers[0].content)}
    assert sorted(answer.headers.get(records.REPLAYED, "") for answer in answers) == ["", *["true"] * 4]
    other = await hosts.create("delay")
    assert code(await hosts.first.post(f"/runs/{project(other)}/cancel", headers=once)) == (
        409,
        "idempotency_key_mismatch",
    )


async def test_the_refusal_of_a_cancel_is_kept(hosts: Hosts) -> None:
    run_id, once = await hosts.create("noop"), key()
    await hosts.ended(run_id)
    first, again = [
        await at.post(f"/runs/{project(run_id)}/cancel", headers=once) for at in (hosts.first, hosts.second)
    ]
    assert code(first) == code(again) == (409, "run_terminal")
    assert (first.headers.get(records.REPLAYED), again.headers.get(records.REPLAYED)) == (None, "true")


async def test_a_run_that_waits_for_a_worker_can_be_cancelled(alone: Hosts) -> None:
    run_id = await alone.create("noop")
    assert (await alone.first.post(f"/runs/{project(run_id)}/cancel", headers=key())).status_code == 200
    assert (await alone.second.get(f"/runs/{project(run_id)}")).json()["status"] == "cancelling"


async def test_of_many_cancels_each_has_its_verdict(hosts: Hosts, alone: Hosts) -> None:
    # No worker ends it between the two cancels.
    going, over = await alone.create("delay"), await hosts.create("noop")
    await hosts.ended(over)
    asked_for = [going, "umbrella/0123456789abcdef", over, "acme/0123456789abcdef", "what", going]
    answer = await hosts.first.post("/runs:bulk-cancel", json={"runIds": asked_for, "reason": "all"})
    results = answer.json()["results"]
    assert answer.status_code == 200
    assert [one["runId"] for one in results] == asked_for
    told = [one.get("status") or one["error"]["error"] for one in results]
    assert told == ["cancelling", "id_tenant_mismatch", "run_terminal", "not_found", "validation_error", "cancelling"]
    assert [one["ok"] for one in results] == [True, False, False, False, False, True]
    many = {"runIds": [f"acme/{number:016}" for number in range(101)]}
    refused = await hosts.first.post("/runs:bulk-cancel", json=many)
    assert code(refused) == (400, "validation_error")
    assert refused.json()["details"]["maxRunIds"] == 100


# --- paused and resumed


async def asked_something(hosts: Hosts, run_id: str) -> None:
    """Wait until a run waits for an answer."""
    path = f"/runs/{project(run_id)}"
    async with asyncio.timeout(PATIENCE):
        while (await hosts.first.get(path)).json()["status"] != "waiting-approval":
            pass


async def test_a_run_is_paused_and_resumed(hosts: Hosts) -> None:
    run_id = await hosts.create("gate")
    await asked_something(hosts, run_id)
    paused = await hosts.second.post(f"/runs/{project(run_id)}:pause", json={"reason": "wait"})
    told = paused.json()
    assert (paused.status_code, told["runId"], told["status"]) == (202, run_id, "paused")
    assert told["pausedAt"].endswith("Z")
    assert (await hosts.first.get(f"/runs/{project(run_id)}")).json()["status"] == "paused"
    again = await hosts.first.post(f"/runs/{project(run_id)}:pause")
    assert code(again) == (409, "run_state_conflict")
    assert again.json()["details"] == {"runStatus": "paused"}
    resumed = await hosts.first.post(f"/runs/{project(run_id)}:resume")
    assert (resumed.status_code, resumed.json()["status"]) == (202, "running")
    accept = {"resumeValue": {"action": "accept"}}
    assert (await hosts.first.post(f"/runs/{project(run_id)}/interrupts/gate", json=accept)).status_code == 200
    assert (await hosts.ended(run_id))["type"] == "run.completed"
    for what in ("pause", "resume"):
        assert code(await hosts.first.post(f"/runs/{project(run_id)}:{what}")) == (409, "run_terminal")


async def test_a_run_that_is_not_paused_is_not_resumed(hosts: Hosts) -> None:
    run_id = await hosts.create("delay")
    answer = await hosts.first.post(f"/runs/{project(run_id)}:resume")
    assert code(answer) == (409, "run_state_conflict")
    assert answer.json()["details"] == {"runStatus": "running"}


async def test_a_pause_with_a_key_happens_once(hosts: Hosts) -> None:
    run_id, once = await hosts.create("delay"), key()
    path = f"/runs/{project(run_id)}:pause"
    first, again = [await at.post(path, headers=once) for at in (hosts.first, hosts.second)]
    assert (first.status_code, again.status_code, again.content) == (202, 202, first.content)
    assert again.headers[records.REPLAYED] == "true"


async def test_without_a_worker_a_pause_is_to_be_tried_again(
    alone: Hosts, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updates, "PATIENCE", 0.3)
    run_id, once = await alone.create("delay"), key()
    path = f"/runs/{project(run_id)}:pause"
    for _ in range(2):
        answer = await alone.first.post(path, headers=once)
        assert code(answer) == (503, "service_unavailable")
        assert int(answer.headers["retry-after"]) > 0
        assert records.REPLAYED not in answer.headers
    monkeypatch.undo()
    queue = (await client.get_workflow_handle(run_id).describe()).task_queue
    async with pack_worker(client, settings_for("http://127.0.0.1:9/mcp"), task_queue=queue):
        answer = await alone.second.post(path, headers=once)
    assert (answer.status_code, answer.json()["status"]) == (202, "paused")


async def overridden(client: Client, run_id: str, override: VersioningOverride) -> bool:
    """Say which workers a run is for; False where Temporal does not know them yet."""
    request = UpdateWorkflowExecutionOptionsRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=run_id),
        workflow_execution_options=WorkflowExecutionOptions(versioning_override=override),
        update_mask=FieldMask(paths=["versioning_override"]),
    )
    try:
        await client.workflow_service.update_workflow_execution_options(request)
    except RPCError as error:
        if error.status is RPCStatusCode.FAILED_PRECONDITION:
            return False
        raise
    return True


async def test_who_pauses_a_run_in_vain_is_told_the_version_that_it_is_pinned_to(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, name = (f"{kind}-{uuid.uuid4().hex}" for kind in ("pack", "deployment"))
    settings = settings_for("http://127.0.0.1:9/mcp", worker={"deployment": name, "build_id": "7"})
    pinned = VersioningOverride.PinnedOverride(
        behavior=VersioningOverride.PINNED_OVERRIDE_BEHAVIOR_PINNED,
        version=WorkerDeploymentVersion(deployment_name=name, build_id="7"),
    )
    async with two_hosts(client, client, tmp_path, queue) as both:
        run_id = await both.create("delay")
        async with pack_worker(client, settings, task_queue=queue), asyncio.timeout(PATIENCE):
            # Temporal knows a version from its first poll on.
            while not await overridden(client, run_id, VersioningOverride(pinned=pinned)):
                pass
        # Of as much time is made use to find out the version.
        monkeypatch.setattr(updates, "PATIENCE", 5)
        answer = await both.first.post(f"/runs/{project(run_id)}:pause")
    assert code(answer) == (503, "service_unavailable")
    assert f"see that one of version '{name}:7', which the run is pinned to, runs" in answer.text


async def test_more_pauses_than_a_run_takes_at_once_are_not_lost(hosts: Hosts) -> None:
    run_id = await hosts.create("delay")
    answers = await asyncio.gather(*(hosts.first.post(f"/runs/{project(run_id)}:pause") for _ in range(30)))
    assert sorted({answer.status_code for answer in answers} - {503}) == [202, 409]
    assert len([answer for answer in answers if answer.status_code == 202]) == 1


# --- whose it is


@pytest.mark.parametrize("what", ["/cancel", ":pause", ":resume", "/effects"])
async def test_what_is_another_tenants_or_nobodys_is_not_touched(hosts: Hosts, client: Client, what: str) -> None:
    method = "GET" if what == "/effects" else "POST"
    foreign = await hosts.first.request(method, f"/runs/umbrella~2F0123456789abcdef{what}")
    unknown = await hosts.first.request(method, f"/runs/acme%2F0123456789abcdef{what}")
    other = BoundId("acme", uuid.uuid4().hex)
    await client.start_workflow("Other", id=str(other), task_queue="nobody")
    of_another_type = await hosts.first.request(method, f"/runs/{other.segment}{what}")
    assert [code(foreign), code(unknown), code(of_another_type)] == [
        (403, "id_tenant_mismatch"),
        (404, "not_found"),
        (404, "not_found"),
    ]
    unscoped = await hosts.first.request(method, f"/runs/{other.segment}{what}", headers=bearer("acme-reads"))
    assert code(unscoped) == ((404, "not_found") if what == "/effects" else (403, "forbidden"))


# --- what a run did


async def test_the_ledger_of_a_run_has_its_effects_and_nothing_that_was_sent(client: Client, tmp_path: Path) -> None:
    async with (
        FakeServer(modern()) as server,
        pack_worker(client, settings_for(server.url)) as pack,
        two_hosts(client, client, tmp_path, pack.task_queue) as both,
    ):
        run_id = await both.create("call", inputs={"arguments": {"secret": "hush"}})
        await both.ended(run_id)
        answer = await both.second.get(f"/runs/{project(run_id)}/effects")
    told = answer.json()
    assert (answer.status_code, told["runId"]) == (200, run_id)
    [effect] = told["effects"]
    assert (effect["nodeId"], effect["attempt"], effect["state"]) == ("call", 1, "completed")
    assert effect["effectId"].startswith("acme/")
    assert "hush" not in answer.text


# --- the trace


async def test_the_trace_of_a_create_is_the_trace_of_the_calls_that_its_run_makes(
    client: Client, tmp_path: Path
) -> None:
    traced = Client(client.service_client, interceptors=[TracingInterceptor()])
    trace_id = uuid.uuid4().hex
    headers = {
        "traceparent": f"00-{trace_id}-00f067aa0ba902b7-01",
        "tracestate": "vendor=1",
        "baggage": "secret=hush",
    }
    async with (
        FakeServer(modern()) as server,
        pack_worker(traced, settings_for(server.url)) as pack,
        two_hosts(traced, traced, tmp_path, pack.task_queue) as both,
    ):
        body = {"workflowId": "call", "inputs": {"arguments": {}}}
        answer = await both.first.post("/runs", json=body, headers=headers)
        await both.ended(answer.json()["runId"])
        meta = server.calls("t")[-1].json["params"]["_meta"]
        await both.ended(await both.create("call", inputs={"arguments": {}}))
        without = server.calls("t")[-1].json["params"]["_meta"]
    assert meta["traceparent"].split("-")[1] == trace_id
    assert meta["tracestate"] == "vendor=1"
    assert "baggage" not in meta
    assert not {"traceparent", "tracestate"} & without.keys()
