"""The claim of an effect: who may send, what is left of a claim, and what an operator or a cancel does to it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import signal
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from temporalio.api.activity.v1 import ActivityOptions
from temporalio.api.common.v1 import RetryPolicy, WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    PauseActivityRequest,
    ResetActivityRequest,
    UpdateActivityOptionsRequest,
)
from temporalio.client import (
    AsyncActivityCancelledError,
    AsyncActivityHandle,
    Client,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.common import RawValue
from temporalio.exceptions import CancelledError
from temporalio.worker import Worker

from activities import Calls
from activities.beat import Beat, Claim
from openwop_mcp import jsontext
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import InterruptedCallError
from openwop_mcp.runs.ledger import effect_attempts
from tests.support.author_flows import Author, Call, Told
from tests.support.doubts import Acting, Scene, scene, until_beat
from tests.support.fake_server import FakeServer, Handler, Reply, Request, modern, notice_event, result_reply
from tests.support.pack import (
    Pack,
    activity_results,
    chain,
    error_of,
    pack_worker,
    scheduled,
    settings_for,
    toml_for,
)
from tests.support.patience import PATIENCE

ROOT = Path(__file__).parents[2]
TOOLS = {"*": {"safety_tier": "write"}}

HEARTBEAT = 60.0
"""Seconds, of calls whose worker is not lost."""

LOST = 5.0
"""Seconds after which a worker is lost that was killed: the one in its place may stand still for some of them."""


async def reset_activity(client: Client, handle: WorkflowHandle[Any, Any], activity_id: str) -> None:
    """What `temporal activity reset` does."""
    await client.workflow_service.reset_activity(
        ResetActivityRequest(
            namespace=client.namespace, execution=WorkflowExecution(workflow_id=handle.id), id=activity_id
        )
    )


async def pause_activity(client: Client, handle: WorkflowHandle[Any, Any], activity_id: str) -> None:
    """What `temporal activity pause` does."""
    await client.workflow_service.pause_activity(
        PauseActivityRequest(
            namespace=client.namespace, execution=WorkflowExecution(workflow_id=handle.id), id=activity_id
        )
    )


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> Beats:
    return Beats(monkeypatch)


class Beats:
    """Every beat of this process, and whether Temporal answered one with a refusal."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.told: list[dict[str, Any]] = []
        self.refused = asyncio.Event()
        heartbeat = AsyncActivityHandle.heartbeat

        async def watched(handle: AsyncActivityHandle, *details: RawValue, **more: Any) -> None:
            self.told += [jsontext.decode(one.payload.data) for one in details]
            try:
                await heartbeat(handle, *details, **more)
            except AsyncActivityCancelledError:
                self.refused.set()
                raise

        patch.setattr(AsyncActivityHandle, "heartbeat", watched)

    @property
    def deliveries(self) -> list[str]:
        return [beat["delivery"] for beat in self.told]


@pytest.fixture
def unbeaten(beats: Beats, monkeypatch: pytest.MonkeyPatch) -> Beats:
    """The beats of calls of which none is due, however long they take: claims, and what takes them back."""
    monkeypatch.setattr(Beat, "_arm", lambda _: None)
    return beats


async def started(at: Scene, tool: str, *, graph: bool) -> WorkflowHandle[Any, Any]:
    if graph:
        return await at.pack.start(at.flow(tool), heartbeat_timeout=HEARTBEAT)
    return await at.author(Call("call_tool", ["fake", tool], heartbeat=HEARTBEAT))


async def states(client: Client, workflow_id: str) -> list[str | None]:
    """The states in the effect ledger of a workflow."""
    found = await chain(client, workflow_id)
    made = effect_attempts([one.events for one in found], workflow_id=workflow_id, tenant="acme")
    return [one.state for one in made]


async def allow_more_attempts(client: Client, handle: WorkflowHandle[Any, Any], activity_id: str) -> None:
    """What `temporal activity update-options --retry-maximum-attempts 3` does."""
    await client.workflow_service.update_activity_options(
        UpdateActivityOptionsRequest(
            namespace=client.namespace,
            execution=WorkflowExecution(workflow_id=handle.id),
            id=activity_id,
            activity_options=ActivityOptions(retry_policy=RetryPolicy(maximum_attempts=3)),
            update_mask=FieldMask(paths=["retry_policy.maximum_attempts"]),
        )
    )


BOTH = pytest.mark.parametrize("graph", [True, False], ids=["graph", "author"])
OPERATORS = pytest.mark.parametrize("operate", [reset_activity, pause_activity], ids=["reset", "pause"])


# --- what an operator does ---


@BOTH
@OPERATORS
async def test_a_call_under_way_that_an_operator_resets_or_pauses_goes_on_and_its_result_is_taken(
    client, beats, operate, graph
):
    async with scene(client, TOOLS) as at:
        handle = await started(at, "write-slow", graph=graph)
        await at.acting.until_asked(1)
        await operate(client, handle, scheduled(await chain(client, handle.id))[0])
        await asyncio.wait_for(beats.refused.wait(), PATIENCE)
        at.acting.let_go.set()
        await asyncio.wait_for(handle.result(), PATIENCE)
        (result,) = activity_results(await chain(client, handle.id))
        assert result.data == b'{"content":[], "n":1.0}'
        assert len(at.acting.asked) == 1
        assert await states(client, handle.id) == ["completed"]


@BOTH
@OPERATORS
async def test_a_call_that_an_operator_resets_or_pauses_before_it_is_claimed_is_made_by_another_attempt(
    client, unbeaten, monkeypatch, operate, graph
):
    held: list[WorkflowHandle[Any, Any]] = []
    claim = Beat.claim

    async def late(beat: Beat, *, recorded: bool) -> Claim:
        if held:
            await operate(client, handle := held.pop(), scheduled(await chain(client, handle.id))[0])
        return await claim(beat, recorded=recorded)

    monkeypatch.setattr(Beat, "claim", late)
    async with scene(client, TOOLS) as at:
        gate = asyncio.Event()
        real = Calls._known

        async def gated(self: Calls, *given: Any) -> Any:
            await gate.wait()
            return await real(self, *given)

        monkeypatch.setattr(Calls, "_known", gated)
        handle = await started(at, "write", graph=graph)
        held.append(handle)
        gate.set()
        await asyncio.wait_for(handle.result(), PATIENCE)
        assert unbeaten.refused.is_set()
        assert unbeaten.deliveries == ["unknown", "not_sent", "unknown"]
        assert len(at.acting.asked) == 1
        assert await states(client, handle.id) == ["released", "completed"]


# --- workers that are lost, or late ---


@dataclass
class Apart:
    """A server, a worker of its own process, and the author's workflows in this one."""

    scene: Scene
    process: Process

    async def flow(self, tool: str) -> WorkflowHandle[Any, list[Told]]:
        return await self.scene.author(Call("call_tool", ["fake", tool], heartbeat=LOST))


class Process:
    """A worker process that prints a JSON line at a time."""

    def __init__(self, started: asyncio.subprocess.Process) -> None:
        self.started = started

    async def line(self) -> dict[str, Any]:
        assert self.started.stdout is not None
        line: dict[str, Any] = json.loads(await asyncio.wait_for(self.started.stdout.readline(), PATIENCE))
        return line

    async def end(self, sent: signal.Signals) -> None:
        self.started.send_signal(sent)
        await asyncio.wait_for(self.started.wait(), PATIENCE)


@contextlib.asynccontextmanager
async def apart(client: Client, temporal: Any, folder: Path, moment: str, handler: Handler) -> AsyncIterator[Apart]:
    """A worker process that is held at a moment; its one slot keeps it from taking what another is to take."""
    queue, config = f"claim-{uuid.uuid4().hex}", folder / "settings.toml"
    own = {"task_queue": queue, "shutdown_grace": 0.3, "max_activities": 1, "tenant": "acme"}
    async with FakeServer(handler) as server:
        config.write_text(toml_for(temporal.address, server.url, tools=TOOLS, worker=own), encoding="utf-8")
        command = ("-m", "tests.support.held_worker", moment, "--config", str(config))
        started = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.PIPE, cwd=ROOT
        )
        process = Process(started)
        try:
            assert (await process.line())["ready"] is True
            async with Worker(client, task_queue=f"author-{queue}", workflows=[Author]):
                yield Apart(Scene(client, Acting(), server, Pack(client, queue)), process)
        finally:
            if started.returncode is None:
                started.kill()
                await started.wait()


def another(at: Apart) -> contextlib.AbstractAsyncContextManager[Pack]:
    """A worker in this process that takes over."""
    return pack_worker(
        at.scene.client,
        settings_for(at.scene.server.url, tools=TOOLS, worker={"tenant": "acme"}),
        task_queue=at.scene.pack.task_queue,
    )


def asked(at: Apart) -> int:
    return sum(request.json["method"] == "tools/call" for request in at.scene.server.requests)


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ([reset_activity], "the worker was lost"),
        ([allow_more_attempts], "had claimed the effect"),
        ([allow_more_attempts, reset_activity], "had claimed the effect"),
    ],
    ids=["reset", "retried", "retried-and-reset"],
)
async def test_a_claimed_attempt_that_an_operator_has_made_anew_is_in_doubt_and_sends_nothing(
    client, temporal, tmp_path, operations, message
):
    async with apart(client, temporal, tmp_path, "claimed", modern()) as at:
        flow = await at.flow("write")
        assert (await at.process.line())["reached"] == "claimed"
        for operate in operations:
            await operate(client, flow, scheduled(await chain(client, flow.id))[0])
        await at.process.end(signal.SIGKILL)
        async with another(at):
            (told,) = await asyncio.wait_for(flow.result(), PATIENCE)
        assert told.in_doubt
        assert message in told.message
        assert len(scheduled(await chain(client, flow.id))) == 1
        assert asked(at) == 0


async def test_a_claim_counts_before_anything_that_may_fail_when_its_attempt_is_made_anew(
    client, temporal, tmp_path, monkeypatch
):
    async def unread(*_: object) -> NoReturn:
        monkeypatch.undo()
        raise InterruptedCallError("nothing was sent", cancelled=False, delivery=Delivery.NOT_SENT)

    async with apart(client, temporal, tmp_path, "claimed", modern()) as at:
        flow = await at.flow("write")
        assert (await at.process.line())["reached"] == "claimed"
        await allow_more_attempts(client, flow, scheduled(await chain(client, flow.id))[0])
        await at.process.end(signal.SIGKILL)
        monkeypatch.setattr(Calls, "_standing", unread)
        async with another(at):
            (told,) = await asyncio.wait_for(flow.result(), PATIENCE)
        assert told.in_doubt
        facts = json.loads(told.facts)
        assert facts["effectId"].startswith("acme/")
        assert (facts["serverId"], facts["name"], facts["attempt"]) == ("fake", "write", 1)
        assert asked(at) == 0
        assert await states(client, flow.id) == ["escaped"]


async def test_a_worker_that_stops_before_its_claim_is_taken_leaves_the_call_to_another(client, unbeaten, monkeypatch):
    claiming = asyncio.Event()
    heartbeat = AsyncActivityHandle.heartbeat

    async def late(handle: AsyncActivityHandle, *details: RawValue, **more: Any) -> None:
        if not claiming.is_set():
            claiming.set()
            await asyncio.Event().wait()
        await heartbeat(handle, *details, **more)

    monkeypatch.setattr(AsyncActivityHandle, "heartbeat", late)
    acting, queue = Acting(), f"claim-{uuid.uuid4().hex}"
    async with (
        FakeServer(acting.handler()) as server,
        Worker(client, task_queue=f"author-{queue}", workflows=[Author]),
    ):
        settings = settings_for(server.url, tools=TOOLS, worker={"tenant": "acme", "shutdown_grace": 0.3})
        async with pack_worker(client, settings, task_queue=queue) as pack:
            flow = await started(Scene(client, acting, server, pack), "write", graph=False)
            await asyncio.wait_for(claiming.wait(), PATIENCE)
        assert acting.asked == []
        async with pack_worker(client, settings, task_queue=queue):
            (told,) = await asyncio.wait_for(flow.result(), PATIENCE)
        assert told.raw == '{"content":[], "n":1.0}'
        assert unbeaten.deliveries == ["not_sent", "unknown"]
        assert await states(client, flow.id) == ["released", "completed"]


async def test_a_worker_that_comes_back_from_the_dead_may_not_claim_and_sends_nothing(client, temporal, tmp_path):
    async with apart(client, temporal, tmp_path, "stopped", modern()) as at:
        flow = await at.flow("write")
        assert (await at.process.line())["reached"] == "stopped"
        async with another(at):
            (told,) = await asyncio.wait_for(flow.result(), PATIENCE)
            assert told.raw is not None
            at.process.started.send_signal(signal.SIGCONT)
            assert (await at.process.line())["reached"] == "refused"
            await at.process.end(signal.SIGTERM)
        assert asked(at) == 1
        assert await states(client, flow.id) == ["released", "completed"]


async def test_no_beat_erases_a_claim_however_many_follow_it(client, temporal, tmp_path):
    def answer(request: Request) -> Reply:
        token = request.json["params"]["_meta"]["progressToken"]
        told = [notice_event("progress", progressToken=token, progress=n, total=500) for n in range(500)]
        # It has no end, so that whoever looks at the beats may take their time.
        return Reply(headers=result_reply(request, b"{}", "sse").headers, chunks=[*told, asyncio.Event()], delay=0.02)

    async with apart(client, temporal, tmp_path, "sent", modern({"tools/call": answer})) as at:
        flow = await at.flow("write")
        await until_beat(flow, lambda beat: beat.get("progress", {}).get("progress", 0) > 60)
        await at.process.end(signal.SIGKILL)
        async with another(at):
            (told,) = await asyncio.wait_for(flow.result(), PATIENCE)
        facts = json.loads(told.facts)
        assert told.in_doubt
        assert asked(at) == 1
        assert await states(client, flow.id) == ["escaped"]
    assert facts["limit"] == "heartbeat"
    assert facts["effectId"].startswith("acme/")
    assert (facts["serverId"], facts["name"], facts["attempt"]) == ("fake", "write", 1)
    assert facts["progress"]["progress"] > 60


# --- what is left of a claim ---


async def test_a_claim_is_withdrawn_where_the_server_says_that_it_did_nothing(client, unbeaten):
    async with scene(client, TOOLS) as at:
        at.acting.replies.append(Reply(429, headers=[("Retry-After", "0")]))
        run = await started(at, "write", graph=True)
        await at.pack.end(run)
        assert unbeaten.deliveries == ["unknown", "not_sent", "unknown"]
        assert await states(client, run.id) == ["released", "completed"]


async def test_a_claim_is_withdrawn_where_nothing_was_sent(client, unbeaten):
    async with scene(client, TOOLS, retry={"attempts": 1}) as at, FakeServer(modern()) as gone:
        url = gone.url
        settings = settings_for(url, tools=TOOLS, server={"retry": {"attempts": 1}})
        async with pack_worker(client, settings) as pack:
            await gone.__aexit__(None, None, None)
            run = await pack.start(at.flow("write"), heartbeat_timeout=HEARTBEAT)
            log, _ = await pack.end(run)
        assert error_of(log)["details"]["delivery"] == "not_sent"
        assert unbeaten.deliveries == ["unknown", "not_sent"]
        assert await states(client, run.id) == ["released"]


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        (Reply(503), "escaped"),
        (Reply(headers=[("Content-Type", "application/json")], body=b"{", abort_after=1), "escaped"),
        (None, "completed"),
    ],
    ids=["503", "cut", "result"],
)
async def test_a_claim_stands_where_the_server_may_have_acted(client, unbeaten, reply, state):
    async with scene(client, TOOLS) as at:
        at.acting.replies += [] if reply is None else [reply]
        run = await started(at, "write", graph=True)
        await at.pack.end(run)
        assert unbeaten.deliveries == ["unknown"]
        assert await states(client, run.id) == [state]


async def test_what_may_be_repeated_is_not_claimed(client, unbeaten):
    async with scene(client, {"*": {"safety_tier": "read"}}) as at:
        await at.pack.end(await started(at, "read", graph=True))
        assert len(at.acting.asked) == 1
    assert unbeaten.told == []


# --- cancel ---


@BOTH
async def test_a_cancel_closes_the_call_on_the_wire_and_its_effect_has_escaped(client, graph):
    async with scene(client, TOOLS) as at:
        handle = await started(at, "write-slow", graph=graph)
        await at.acting.until_asked(1)
        connection = at.acting.asked[0].connection
        assert not at.server.closed[connection].is_set()
        await handle.cancel()
        await asyncio.wait_for(at.server.closed[connection].wait(), PATIENCE)
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, CancelledError)
        assert await states(client, handle.id) == ["escaped"]
        assert len(at.acting.asked) == 1


@BOTH
async def test_a_cancel_that_comes_before_the_claim_keeps_the_request_from_leaving(
    client, unbeaten, monkeypatch, graph
):
    handles: asyncio.Queue[WorkflowHandle[Any, Any]] = asyncio.Queue()
    claim = Beat.claim

    async def late(beat: Beat, *, recorded: bool) -> Claim:
        handle = await handles.get()
        await handle.cancel()
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.HasField("activity_task_cancel_requested_event_attributes"):
                break
        return await claim(beat, recorded=recorded)

    monkeypatch.setattr(Beat, "claim", late)
    async with scene(client, TOOLS) as at:
        handle = await started(at, "write", graph=graph)
        await handles.put(handle)
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, CancelledError)
        assert unbeaten.deliveries == ["unknown", "not_sent"]
        assert await states(client, handle.id) == ["released"]
        assert at.acting.asked == []


async def test_a_cancel_that_a_beat_hears_before_the_claim_is_answered_keeps_the_request_from_leaving(
    client, beats, monkeypatch
):
    claiming = asyncio.Event()
    heartbeat = AsyncActivityHandle.heartbeat

    async def late(handle: AsyncActivityHandle, *details: RawValue, **more: Any) -> None:
        await heartbeat(handle, *details, **more)
        # What comes before the claim may beat as well, where it takes a second.
        if not claiming.is_set() and beats.deliveries[-1] == "unknown":
            claiming.set()
            await beats.refused.wait()

    monkeypatch.setattr(AsyncActivityHandle, "heartbeat", late)
    async with scene(client, TOOLS) as at:
        handle = await started(at, "write", graph=False)
        await asyncio.wait_for(claiming.wait(), PATIENCE)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await asyncio.wait_for(handle.result(), PATIENCE)
        assert isinstance(caught.value.cause, CancelledError)
        assert at.acting.asked == []
        # As many beats follow the claim as are due until the cancel has reached the call.
        *unknown, last = itertools.dropwhile(lambda one: one == "not_sent", beats.deliveries)
        assert (set(unknown), len(unknown) > 1, last) == ({"unknown"}, True, "not_sent")
        assert await states(client, handle.id) == ["released"]
