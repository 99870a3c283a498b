"""openwop-client, as PyPI has it: what somebody else wrote by the specification alone drives the host."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from openwop_client import OpenwopClient
from openwop_client.errors import WopError
from openwop_client.types import (
    BulkCancelRunsRequest,
    CancelRunRequest,
    CreateRunRequest,
    PauseRunRequest,
    ResolveInterruptRequest,
    ResumeRunRequest,
)
from temporalio.client import Client

from host.links import Links
from host.workflows import FIXTURES
from openwop_mcp.config import Host as HostSettings
from tests.support.host_process import ACME, READER, HostProcess
from tests.support.patience import PATIENCE

ENDED = {"run.completed", "run.failed", "run.cancelled"}


@pytest.fixture
def client(dev: HostProcess) -> OpenwopClient:
    return OpenwopClient(dev.serving.facts["host"], ACME)


async def does(act: Callable[[], Any]) -> Any:
    """The client is synchronous: it has a thread."""
    async with asyncio.timeout(PATIENCE):
        return await asyncio.to_thread(act)


def refused(act: Callable[[], Any]) -> tuple[int, str]:
    with pytest.raises(WopError) as caught:
        act()
    assert caught.value.envelope is not None, caught.value.raw_text
    return caught.value.status, caught.value.envelope.error


def create(client: OpenwopClient, workflow_id: str, **members: Any) -> str:
    created = client.runs_create(CreateRunRequest(workflowId=workflow_id, **members))
    assert created.eventsUrl.startswith("/runs/")
    return created.runId


def read(client: OpenwopClient, run_id: str, **options: Any) -> list[Any]:
    """A run's events from its stream, to its end."""
    return list(client.runs_events(run_id, stream_mode="debug", timeout_seconds=20, **options))


def when(client: OpenwopClient, run_id: str, event_type: str) -> None:
    """Wait for an event."""
    for event in client.runs_events(run_id, stream_mode="debug", timeout_seconds=20):
        if event.type == event_type:
            return
    raise AssertionError(event_type)


def polled(client: OpenwopClient, run_id: str) -> list[Any]:
    events: list[Any] = []
    while True:
        after = events[-1].sequence if events else None
        page = client.runs_poll_events(run_id, after_sequence=after, timeout_seconds=10)
        events += page.events
        if page.isTerminal:
            assert page.lastSequence == events[-1].sequence
            return events


def test_it_is_the_version_that_was_meant():
    assert importlib.metadata.version("openwop-client") == "2.7.0"


async def test_it_finds_out_what_there_is(client):
    offered = await does(client.discovery_capabilities)
    assert (offered.protocolVersions, offered.preferredVersion) == (["2.0"], "2.0")
    assert offered.eventLogSchemaVersion == 3
    assert "conformance-mcp-client" in offered.fixtures
    assert offered.families["mcp"].facets["client"] is True
    assert offered.families["mcp"].facets["revisions"] == ["2026-07-28"]
    assert offered.families["interrupt"].facets["tokenAlgs"] == ["hs256"]
    assert {"auth", "eventLog", "idempotency", "limits", "runList", "toolCatalog"} <= set(offered.families)
    # It knows each of them: what it does not know it leaves among the metadata.
    described = {name for name, value in offered.raw.items() if isinstance(value, dict) and "witness" in value}
    assert described == set(offered.families)
    spec = await does(client.discovery_openapi)
    assert spec["openapi"].startswith("3.1")


async def test_it_reads_a_workflow_as_its_file_has_it(client):
    told = await does(lambda: client.workflows_get("conformance-noop"))
    assert told == json.loads((FIXTURES / "conformance-noop.json").read_bytes())


async def test_it_follows_a_run_from_its_creation_to_its_end(client):
    def drive() -> None:
        inputs = {"payload": {"city": "Bern", "low": 1.5}}
        run_id = create(client, "conformance-identity", inputs=inputs, tags=["a", "ü"], metadata={"b": [1]})
        streamed = read(client, run_id)
        assert [event.sequence for event in streamed] == list(range(len(streamed)))
        assert [event.type for event in streamed] == ["run.started", "node.started", "node.completed", "run.completed"]
        assert {event.runId for event in streamed} == {run_id}
        assert streamed[2].payload["outputs"] == inputs
        assert streamed == polled(client, run_id)
        page = client.runs_poll_events(run_id, after_sequence=1)
        assert (page.events, page.lastSequence, page.isTerminal) == (streamed[2:], 3, True)
        snapshot = client.runs_get(run_id)
        assert (snapshot.status, snapshot.workflowId) == ("completed", "conformance-identity")
        assert (snapshot.tags, snapshot.metadata) == (["a", "ü"], {"b": [1]})
        assert (snapshot.owner.tenant, snapshot.owner.subject.subjectId) == ("acme", "dev")
        assert snapshot.eventLogSchemaVersion == 3

    await does(drive)


async def test_it_takes_a_stream_up_where_it_was(client):
    def drive() -> None:
        run_id = create(client, "conformance-noop")
        whole = read(client, run_id)
        assert read(client, run_id, last_event_id=str(whole[1].sequence)) == whole[2:]
        assert read(client, run_id, buffer_ms=100) == whole
        assert read(client, run_id, reconnect=False) == whole
        assert list(client.runs_events(run_id, stream_mode=["updates", "messages"])) == [
            event for event in whole if event.type != "node.started"
        ]

    await does(drive)


async def test_it_walks_through_the_list_of_runs(client):
    def drive() -> None:
        ids = [create(client, "conformance-idempotent", inputs={"nonce": str(number)}) for number in range(3)]
        for run_id in ids:
            polled(client, run_id)
        until = time.monotonic() + PATIENCE
        found: list[str] = []
        # From the second page on there is what Temporal lists, which it does a moment after the run.
        while not set(ids) <= set(found):
            assert time.monotonic() < until, found
            found, cursor, more = [], None, True
            while more and len(found) < 3:
                page = client.runs_list(
                    limit=2, cursor=cursor, workflow_id="conformance-idempotent", status="completed"
                )
                assert page is not None
                found += [one.runId for one in page.runs]
                cursor = page.next_cursor
                more = cursor is not None
        assert found[:3] == ids[::-1]
        assert refused(lambda: client.runs_list(cursor="made-up")) == (400, "validation_error")

    await does(drive)


async def test_it_cancels_one_run_and_many(client):
    def drive() -> None:
        one, *more = [create(client, "conformance-cancellable") for _ in range(3)]
        answer = client.runs_cancel(one, CancelRunRequest("enough"))
        assert (answer.runId, answer.status) == (one, "cancelling")
        last = polled(client, one)[-1]
        assert (last.type, last.payload["reason"]) == ("run.cancelled", "enough")
        assert refused(lambda: client.runs_cancel(one)) == (409, "run_terminal")
        asked = [*more, one, "umbrella/0123456789abcdef"]
        results = client.runs_bulk_cancel(BulkCancelRunsRequest(asked, "all")).results
        assert [(each.runId, each.ok) for each in results] == list(zip(asked, [True, True, False, False], strict=True))
        assert [each.error["error"] for each in results[2:]] == ["run_terminal", "id_tenant_mismatch"]
        assert {polled(client, run_id)[-1].type for run_id in more} == {"run.cancelled"}

    await does(drive)


async def test_it_holds_a_run_and_lets_it_go_on(client):
    def drive() -> None:
        run_id = create(client, "conformance-delay", inputs={"delayMs": 60_000})
        when(client, run_id, "node.started")
        paused = client.runs_pause(run_id, PauseRunRequest("lunch", "immediate"))
        assert (paused.runId, paused.status) == (run_id, "paused")
        assert client.runs_get(run_id).status == "paused"
        assert refused(lambda: client.runs_pause(run_id)) == (409, "run_state_conflict")
        resumed = client.runs_resume(run_id, ResumeRunRequest("back"))
        assert (resumed.runId, resumed.status) == (run_id, "running")
        client.runs_cancel(run_id)
        types = [event.type for event in polled(client, run_id)]
        assert types.index("run.paused") < types.index("run.resumed") < types.index("run.cancelled")

    await does(drive)


async def test_it_answers_what_a_run_waits_with(client):
    def drive() -> None:
        run_id = create(client, "conformance-approval")
        when(client, run_id, "node.suspended")
        assert client.runs_get(run_id).status == "waiting-approval"
        refusing = ResolveInterruptRequest({"action": "perhaps"})
        assert refused(lambda: client.interrupts_resolve_by_run(run_id, "gate", refusing)) == (400, "validation_error")
        accept, key = ResolveInterruptRequest({"action": "accept"}), str(uuid.uuid4())
        for _ in range(2):
            answer = client.interrupts_resolve_by_run(run_id, "gate", accept, idempotency_key=key)
            assert (answer.runId, answer.nodeId, answer.status) == (run_id, "gate", "completed")
        again = refused(lambda: client.interrupts_resolve_by_run(run_id, "gate", accept))
        assert again == (409, "interrupt_already_resolved")
        assert polled(client, run_id)[-1].type == "run.completed"

    await does(drive)


async def test_it_answers_by_a_link_and_needs_no_key(client, dev):
    temporal = await Client.connect(dev.serving.facts["temporal"])
    links = Links(HostSettings(url=dev.serving.facts["host"]), {}, temporal)
    run_id = await does(lambda: create(client, "conformance-clarification"))
    await does(lambda: when(client, run_id, "node.suspended"))
    [asked] = [event for event in await does(lambda: client.runs_poll_events(run_id).events) if event.nodeId == "ask"][
        -1:
    ]
    tokens = []
    for intent in ("inspect", "resolve"):
        interrupt_id = asked.payload["interruptId"]
        link = await links.make(run_id=run_id, node_id="ask", interrupt_id=interrupt_id, intent=intent)
        assert link is not None
        tokens.append(link.url.rpartition("/")[2])
    reads, answers = tokens

    def drive() -> None:
        nobody = OpenwopClient(dev.serving.facts["host"], "nobody")
        shown = nobody.interrupts_inspect_by_token(reads)
        assert (shown.kind, [one["id"] for one in shown.data["questions"]]) == ("clarification", ["q1"])
        given = ResolveInterruptRequest({"answers": {"q1": "green"}})
        assert refused(lambda: nobody.interrupts_resolve_by_token(reads, given)) == (403, "forbidden")
        assert nobody.interrupts_resolve_by_token(answers, given)["runId"] == run_id
        assert refused(lambda: nobody.interrupts_resolve_by_token(answers, given)) == (
            409,
            "interrupt_already_resolved",
        )
        assert refused(lambda: nobody.interrupts_inspect_by_token(answers[:-1])) == (401, "interrupt_token_invalid")
        assert polled(client, run_id)[-1].type == "run.completed"

    await does(drive)


async def test_it_reads_what_a_run_did(client):
    def drive() -> None:
        inputs = {"method": "callTool", "serverId": "conformance", "name": "echo", "arguments": {}}
        run_id = create(client, "conformance-mcp-client", inputs=inputs)
        polled(client, run_id)
        ledger = client.runs_effects(run_id)
        assert ledger is not None
        [effect] = ledger.effects
        assert (ledger.runId, effect.nodeId, effect.attempt, effect.state) == (run_id, "mcp-client", 1, "completed")

    await does(drive)


async def test_it_finds_the_tools(client):
    def drive() -> None:
        until = time.monotonic() + PATIENCE
        listed: dict[str, Any] = {}
        while "mcp:conformance.echo" not in listed:
            assert time.monotonic() < until, sorted(listed)
            listed = {tool.toolId: tool for tool in client.tools_list() or []}
        echo = listed["mcp:conformance.echo"]
        assert (echo.source, echo.safetyTier, echo.replayPolicy) == ("mcp", "write", "non-deterministic")
        assert {tool.source for tool in listed.values()} == {"mcp", "node-pack", "workflow"}
        for tool in listed.values():
            assert client.tools_get(tool.toolId) == tool
        assert client.tools_get("mcp:conformance.nothing") is None
        compact = client.tools_list_compact() or []
        assert [tool["toolId"] for tool in compact] == list(listed)
        assert [tool["safetyTier"] for tool in compact] == [tool.safetyTier for tool in listed.values()]

    await does(drive)


async def test_it_is_told_what_is_wrong(client, dev):
    def drive() -> None:
        address = dev.serving.facts["host"]
        stranger, reader = OpenwopClient(address, "nobody"), OpenwopClient(address, READER)
        assert refused(lambda: client.runs_get("acme/0123456789abcdef")) == (404, "not_found")
        assert refused(lambda: client.runs_get("umbrella/0123456789abcdef")) == (403, "id_tenant_mismatch")
        assert refused(lambda: stranger.runs_get("acme/0123456789abcdef")) == (401, "unauthenticated")
        assert refused(lambda: create(reader, "conformance-noop")) == (403, "forbidden")
        assert refused(lambda: create(client, "no-such-workflow")) == (404, "not_found")
        assert refused(lambda: client.runs_poll_events("acme/0123456789abcdef", timeout_seconds=61)) == (
            400,
            "validation_error",
        )
        # What is not offered is not there, which the client takes for an answer.
        assert client.runs_diff("acme/0123456789abcdef", "acme/0123456789abcdef") is None
        assert refused(client.host_effect_seams) == (404, "not_found")

    await does(drive)


async def test_it_bounds_a_run(client):
    def drive() -> None:
        # Its own class for this sends null for what is not set, which the specification has no place for.
        configurable = {"version": 1, "run": {"runTimeoutMs": 60_000}}
        run_id = create(client, "conformance-noop", configurable=configurable)
        assert client.runs_get(run_id).configurable == configurable

    await does(drive)


async def test_what_it_sends_again_with_its_key_happens_once(client):
    def drive() -> None:
        key, body = str(uuid.uuid4()), CreateRunRequest("conformance-noop")
        first, again = [client.runs_create(body, idempotency_key=key) for _ in range(2)]
        assert first == again
        other = CreateRunRequest("conformance-noop", inputs={"a": 1})
        assert refused(lambda: client.runs_create(other, idempotency_key=key)) == (409, "idempotency_key_mismatch")
        assert refused(lambda: client.runs_create(body, idempotency_key="short")) == (400, "idempotency_key_invalid")
        scope = CreateRunRequest("conformance-cancellable", scopeId=key)
        active = client.runs_create(scope, dedup=True).runId
        assert refused(lambda: client.runs_create(scope, dedup=True)) == (409, "run_already_active")
        for cancel_key in [str(uuid.uuid4())] * 2:
            assert client.runs_cancel(active, idempotency_key=cancel_key).runId == active

    await does(drive)
