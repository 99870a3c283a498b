"""Workflows that an operator resets: what was done before is not done again, what may have been done is in doubt."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.common import RawValue

from openwop_mcp import jsontext
from openwop_mcp.effects.shared import effect_workflow_id
from openwop_mcp.runs.pauses import Pause
from tests.support.author_flows import Author, Call, InParts, Left, Told
from tests.support.doubts import ACCEPT, BUSY, Early, Scene, asked_of_run, done, resolve, scene
from tests.support.fake_server import Reply, result_reply
from tests.support.graphs import edge, workflow
from tests.support.pack import activity_results, error_of, log_of, scheduled, types
from tests.support.pauses import pause, resume
from workflows.replay import replay

TOOLS = {"*": {"safety_tier": "write"}, "read*": {"safety_tier": "read"}, "asked*": {"on_doubt": "ask"}}
REFUSED = Reply(429, headers=[("Retry-After", "3600")])

Point = Callable[[Sequence[HistoryEvent]], int]
"""Chooses the task of a workflow that a reset has made anew: the id of the event of its completion."""


def first_after(attributes: str | None = None) -> Point:
    """The first task that ended after an event of that kind; without one the first of all."""

    def point(events: Sequence[HistoryEvent]) -> int:
        past = (i for i, event in enumerate(events) if attributes is None or event.HasField(attributes))  # type: ignore[arg-type]  # a name of a field
        return _completions(events[next(past) :])[0]

    return point


def last_before(attributes: str) -> Point:
    """The task that ended right before an event of that kind, which follows from it."""

    def point(events: Sequence[HistoryEvent]) -> int:
        index = next(i for i, event in enumerate(events) if event.HasField(attributes))  # type: ignore[arg-type]  # a name of a field
        return _completions(events[:index])[-1]

    return point


def _completions(events: Sequence[HistoryEvent]) -> list[int]:
    return [event.event_id for event in events if event.HasField("workflow_task_completed_event_attributes")]


async def reset(
    client: Client, handle: WorkflowHandle[Any, Any], point: Point | None = None, run_id: str | None = None
) -> WorkflowHandle[Any, Any]:
    """Reset a run of a workflow, its latest if nothing else is said, to a task, its first if nothing else is said."""
    run_id = run_id or (await client.get_workflow_handle(handle.id).describe()).run_id
    events = (await client.get_workflow_handle(handle.id, run_id=run_id).fetch_history()).events
    answer = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=run_id),
            reason="a test",
            workflow_task_finish_event_id=(point or first_after())(events),
            request_id=uuid.uuid4().hex,
        )
    )
    return client.get_workflow_handle(handle.id, run_id=answer.run_id, result_type=list[Told])


async def run_of(handle: WorkflowHandle[Any, Any]) -> tuple[list[Any], list[WorkflowHistory]]:
    """The end of a reset run of a graph: its log and its history."""
    await asyncio.gather(handle.result(), return_exceptions=True)
    found = [await handle.fetch_history()]
    return log_of(found), found


async def made_again(at: Scene, *, graph: bool, tool: str, keyed: bool = False) -> tuple[Any, str | None, str | None]:
    """Call a tool, reset the workflow to before that, and see it end: (handle, raw result, message)."""
    if graph:
        first = await at.pack.start(at.flow(tool, keyed=keyed))
        await at.pack.end(first)
        return await ended(await reset(at.client, first), graph=True)
    first = await at.author(Call("call_tool", ["fake", tool], key=at.key if keyed else None))
    await first.result()
    return await ended(await reset(at.client, first), graph=False)


async def ended(handle: WorkflowHandle[Any, Any], *, graph: bool) -> tuple[Any, str | None, str | None]:
    if graph:
        log, found = await run_of(handle)
        if log[-1].type == "run.completed":
            return handle, activity_results(found)[-1].data.decode(), None
        return handle, None, error_of(log)["message"]
    (told,) = await handle.result()
    return handle, told.raw, told.message


BOTH = pytest.mark.parametrize("graph", [True, False], ids=["graph", "author"])


@BOTH
async def test_a_write_that_completed_before_the_reset_has_the_same_bytes_and_is_not_sent_again(client, graph):
    async with scene(client, TOOLS) as at:
        handle, raw, _ = await made_again(at, graph=graph, tool="write")
        assert raw == '{"content":[], "n":1.0}'
        assert len(at.acting.asked) == 1
        history = await handle.fetch_history()
        (record,) = activity_results(history)
        assert record.metadata["openwop-mcp.before-reset"] == b"true"
        for verdict in await replay([history], [] if graph else [Author]):
            assert verdict.sound, verdict.prose()
        assert len(at.acting.asked) == 1


@BOTH
async def test_a_write_that_was_under_way_at_the_reset_is_in_doubt(client, graph):
    async with scene(client, TOOLS) as at:
        if graph:
            first: WorkflowHandle[Any, Any] = await at.pack.start(at.flow("write-slow"))
        else:
            first = await at.author(Call("call_tool", ["fake", "write-slow"]))
        await at.acting.until_asked(1)
        again = await reset(client, first)
        _, raw, message = await ended(again, graph=graph)
        assert raw is None
        assert "the effect may have happened" in (message or "")
        assert "reset" in (message or "")
        assert len(at.acting.asked) == 1


@BOTH
async def test_a_write_that_the_server_had_not_processed_is_sent_after_the_reset(client, graph):
    async with scene(client, TOOLS) as at:
        at.acting.replies.append(REFUSED)
        _, raw, _ = await made_again(at, graph=graph, tool="write")
        assert raw == '{"content":[], "n":2.0}'
        assert len(at.acting.asked) == 2
        assert len({request.header("idempotency-key") for request in at.acting.asked}) == 1


@BOTH
async def test_a_write_that_was_in_doubt_before_the_reset_is_in_doubt_after_it(client, graph):
    async with scene(client, TOOLS) as at:
        at.acting.replies.append(BUSY)
        _, raw, message = await made_again(at, graph=graph, tool="write")
        assert raw is None
        assert "the effect may have happened" in (message or "")
        assert len(at.acting.asked) == 1


@BOTH
async def test_an_error_that_the_server_answered_with_is_the_outcome_after_the_reset_as_well(client, graph):
    async with scene(client, TOOLS) as at:
        at.acting.replies.append(
            lambda request: Reply(
                headers=[("Content-Type", "application/json")],
                body=result_reply(request, b"0").body.replace(b'"result":0', b'"error":{"code":-32000,"message":"no"}'),
            )
        )
        _, raw, message = await made_again(at, graph=graph, tool="write")
        assert raw is None
        assert "no" in (message or "")
        assert "may have happened" not in (message or "")
        assert len(at.acting.asked) == 1


@BOTH
async def test_a_read_is_simply_made_again(client, graph):
    async with scene(client, TOOLS) as at:
        _, raw, _ = await made_again(at, graph=graph, tool="read")
        assert raw == '{"content":[], "n":2.0}'


@BOTH
async def test_a_write_with_a_key_attaches_to_its_effect_after_the_reset(client, graph):
    async with scene(client, TOOLS) as at:
        _, raw, _ = await made_again(at, graph=graph, tool="write", keyed=True)
        assert raw == '{"content":[], "n":1.0}'
        assert len(at.acting.asked) == 1


@BOTH
async def test_a_reset_of_a_reset_still_knows_what_was_done_first(client, graph):
    async with scene(client, TOOLS) as at:
        handle, _, _ = await made_again(at, graph=graph, tool="write")
        for _ in range(2):
            handle, raw, _ = await ended(await reset(client, handle), graph=graph)
            assert raw == '{"content":[], "n":1.0}'
        assert len(at.acting.asked) == 1


@BOTH
async def test_a_reset_of_a_reset_still_knows_of_a_doubt(client, graph):
    async with scene(client, TOOLS) as at:
        at.acting.replies.append(BUSY)
        handle, _, _ = await made_again(at, graph=graph, tool="write")
        _, raw, message = await ended(await reset(client, handle), graph=graph)
        assert raw is None
        assert "the effect may have happened" in (message or "")
        assert len(at.acting.asked) == 1


async def test_the_log_of_a_run_that_was_reset_tells_the_same_under_new_event_ids(client):
    async with scene(client, TOOLS) as at:
        first = await at.pack.start(at.flow("write"))
        log, _ = await at.pack.end(first)
        handle = await reset(client, first)
        again, _ = await run_of(handle)
    assert types(again) == types(log)
    assert [event.sequence for event in again] == list(range(len(again)))
    outputs = [jsontext.pointer(one[-1].payload, ["outputs"]) for one in (log, again)]
    assert outputs[0] == outputs[1]
    assert {event.event_id for event in log}.isdisjoint(event.event_id for event in again[-1:])
    assert again[-1].event_id.startswith(handle.run_id or "none")


async def test_a_reset_in_the_middle_keeps_what_was_recorded_and_looks_up_the_rest(client):
    async with scene(client, TOOLS) as at:
        flow = await at.author(Call("call_tool", ["fake", "write-1"]), Call("call_tool", ["fake", "write-2"]))
        before = await flow.result()
        second = await reset(client, flow, first_after("activity_task_completed_event_attributes"))
        assert await second.result() == before
        assert len(at.acting.asked) == 2


async def test_a_shared_effect_whose_own_workflow_is_reset_is_not_sent_again(client):
    async with scene(client, TOOLS) as at:
        _, found = await at.pack.run(at.flow("write", keyed=True))
        effect_id = activity_results(found)[0].metadata["openwop-mcp.effect-id"].decode()
        of_effect = client.get_workflow_handle(effect_workflow_id(effect_id))
        reset_one = await reset(client, of_effect)
        await client.get_workflow_handle(of_effect.id, run_id=reset_one.run_id, result_type=RawValue).result()
        _, again = await at.pack.run(at.flow("write", keyed=True))
        assert activity_results(again)[0].data == b'{"content":[], "n":1.0}'
        assert len(at.acting.asked) == 1


async def answered(at: Scene, answer: bytes) -> tuple[WorkflowHandle[Any, Any], str]:
    """A run that came into doubt, was answered, and ended."""
    at.acting.replies.append(BUSY)
    run = await at.pack.start(at.flow("asked"))
    ((identity, _),) = await asked_of_run(run)
    await resolve(run, identity, answer)
    await at.pack.end(run)
    return run, identity


async def test_leave_to_send_again_that_was_used_before_the_reset_is_not_used_twice(client):
    async with scene(client, TOOLS) as at:
        run, _ = await answered(at, ACCEPT)
        # Temporal gives the answer anew, to a run that waits for it.
        again = await reset(client, run, last_before("workflow_execution_update_accepted_event_attributes"))
        log, found = await run_of(again)
        assert log[-1].type == "run.completed"
        assert activity_results(found)[0].data == b'{"content":[], "n":2.0}'
        assert scheduled(found) == ["a:1", "a:2"]
        assert types(log).count("interrupt.resolved a") == 1
        assert len(at.acting.asked) == 2


async def test_leave_that_was_used_before_the_reset_is_not_used_again_by_an_attempt_after_one_that_failed_early(
    client, monkeypatch
):
    async with scene(client, TOOLS) as at:
        run, _ = await answered(at, ACCEPT)
        early = Early(monkeypatch)
        again = await reset(client, run, last_before("workflow_execution_update_accepted_event_attributes"))
        _, found = await run_of(again)
        assert early.times == 1
        assert activity_results(found)[0].data == b'{"content":[], "n":2.0}'
        assert scheduled(found) == ["a:1", "a:2", "a:3"]
        assert len(at.acting.asked) == 2


async def test_an_answer_to_a_question_that_is_asked_anew_after_the_reset_repeats_nothing_that_it_did_before(client):
    async with scene(client, TOOLS) as at:
        run, identity = await answered(at, ACCEPT)
        # Temporal gives the answer anew, before the run has asked: it is refused.
        again = await reset(client, run, first_after("activity_task_failed_event_attributes"))
        ((once_more, _),) = await asked_of_run(again)
        assert once_more == identity
        await resolve(again, identity, ACCEPT)
        log, found = await run_of(again)
        assert activity_results(found)[0].data == b'{"content":[], "n":2.0}'
        assert log[-1].type == "run.completed"
        assert len(at.acting.asked) == 2
        third = await reset(client, run)
        _, found = await run_of(third)
        assert activity_results(found)[0].data == b'{"content":[], "n":2.0}'
        assert len(at.acting.asked) == 2


async def test_leave_to_send_again_that_was_not_used_before_the_reset_is_used_once(client):
    async with scene(client, TOOLS) as at:
        at.acting.replies += [BUSY, REFUSED]
        run = await at.pack.start(at.flow("asked"))
        ((identity, _),) = await asked_of_run(run)
        await resolve(run, identity, ACCEPT)
        await at.pack.end(run)
        again = await reset(client, run, last_before("workflow_execution_update_accepted_event_attributes"))
        log, found = await run_of(again)
        assert log[-1].type == "run.completed"
        assert activity_results(found)[0].data == b'{"content":[], "n":3.0}'
        assert len(at.acting.asked) == 3


async def test_a_pause_and_a_resume_that_came_after_the_point_of_a_reset_are_given_anew(client):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(at.flow("read-slow"))
        await at.acting.until_asked(1)
        await pause(run, Pause(reason="lunch"))
        await resume(run)
        at.acting.let_go.set()
        await at.pack.end(run)
        again = await reset(client, run)
        log, found = await run_of(again)
        assert types(log)[-1] == "run.completed"
        assert [kind for kind in types(log) if kind in {"run.paused", "run.resumed"}] == ["run.paused", "run.resumed"]
        assert any(event.HasField("workflow_execution_update_admitted_event_attributes") for event in found[0].events)
        for verdict in await replay(found, []):
            assert verdict.sound, verdict.prose()


async def test_a_doubt_before_the_reset_is_asked_about_after_it_and_can_be_taken_as_done(client):
    async with scene(client, TOOLS) as at:
        first = await at.pack.start(at.flow("asked-slow"))
        await at.acting.until_asked(1)
        again = await reset(client, first)
        ((identity, _),) = await asked_of_run(again)
        await resolve(again, identity, done(b'{"content":[],"by":"hand"}'))
        log, found = await run_of(again)
        assert log[-1].type == "run.completed"
        assert activity_results(found)[0].data == b'{"content":[],"by":"hand"}'
        assert len(at.acting.asked) == 1
        third, raw, _ = await ended(await reset(client, again), graph=True)
        assert raw == '{"content":[],"by":"hand"}'
        assert third.run_id != again.run_id
        assert len(at.acting.asked) == 1


async def test_each_part_of_a_workflow_that_continues_as_new_has_effects_of_its_own(client):
    async with scene(client, TOOLS, InParts) as at:
        flow = await client.start_workflow(
            InParts.run,
            Left(3, at.pack.task_queue),
            id=f"parts-{uuid.uuid4().hex}",
            task_queue=f"author-{at.pack.task_queue}",
        )
        assert await flow.result() == '{"content":[], "n":3.0}'
        keys = {request.header("idempotency-key") for request in at.acting.asked}
        assert len(at.acting.asked) == len(keys) == 3
        last = await reset(client, client.get_workflow_handle(flow.id))
        assert await client.get_workflow_handle(flow.id, run_id=last.run_id, result_type=str).result() == (
            '{"content":[], "n":3.0}'
        )
        assert len(at.acting.asked) == 3


async def test_a_reset_to_before_a_continue_as_new_repeats_nothing_of_what_came_after_it(short_client):
    async with scene(short_client, TOOLS) as at:
        nodes = at.flow(*["write"] * 8)["nodes"]
        flow = workflow(nodes, [edge(a["id"], b["id"]) for a, b in itertools.pairwise(nodes)])
        run = await at.pack.start(flow)
        log, found = await at.pack.end(run)
        assert log[-1].type == "run.completed"
        assert len(found) > 1
        await reset(short_client, run, run_id=found[0].run_id)
        again, _ = await at.pack.end(short_client.get_workflow_handle(run.id))
        assert again[-1].type == "run.completed"
        assert jsontext.pointer(again[-1].payload, ["outputs"]) == jsontext.pointer(log[-1].payload, ["outputs"])
        assert len(at.acting.asked) == 8


@pytest.mark.parametrize("graph", [True, False], ids=["graph", "author"])
async def test_a_write_in_flight_that_a_reset_schedules_again_is_not_sent_again(client, graph):
    async with scene(client, TOOLS) as at:
        if graph:
            flow: WorkflowHandle[Any, Any] = await at.pack.start(at.flow("write-slow", "write-fast"))
        else:
            made = [Call("call_tool", ["fake", tool]) for tool in ("write-slow", "write-fast")]
            flow = await at.author(*made, parallel=True)
        await at.acting.until_asked(2)
        # The task in which the fast one's result was taken, while the slow one is under way.
        answered = False
        async for event in flow.fetch_history_events(wait_new_event=True):
            answered = answered or event.HasField("activity_task_completed_event_attributes")
            if answered and event.HasField("workflow_task_completed_event_attributes"):
                break
        at.acting.let_go.set()
        await client.get_workflow_handle(flow.id, result_type=RawValue).result()
        again = await reset(client, flow, first_after("activity_task_completed_event_attributes"))
        await client.get_workflow_handle(again.id, run_id=again.run_id, result_type=RawValue).result()
        found = await again.fetch_history()
    assert len(at.acting.asked) == 2
    assert len(activity_results(found)) == 2
