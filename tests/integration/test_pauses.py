"""Pauses, resumes and limits of real runs: at once, over every change of worker and history, and nothing sent twice."""

from __future__ import annotations

import asyncio
import itertools
import uuid
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.pauses import PAUSE, PAUSED, RESUME, Pause
from tests.support.doubts import ACCEPT, BUSY, Scene, asked_of_run, resolve, scene, until
from tests.support.fake_server import Reply
from tests.support.graphs import edge, node, workflow
from tests.support.live_log import LiveLog, told
from tests.support.pack import Pack, activity_results, error_of, pack_worker, payload_of, scheduled, types
from tests.support.patience import PATIENCE
from tests.support.pauses import pause, refused, resume, until_ended
from workflows.client import read_run
from workflows.replay import replay
from workflows.run import RunWorkflow

TOOLS = {"*": {"safety_tier": "write"}, "read*": {"safety_tier": "read"}, "asked*": {"on_doubt": "ask"}}
IMMEDIATE = Pause("immediate")
SOON = 8_000
"""Milliseconds until something is due that a pause has to come before: on a busy machine that takes seconds, too."""
NOT_NOW = Reply(503, headers=[("Retry-After", str(SOON // 1000))])


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> LiveLog:
    return LiveLog(monkeypatch)


async def told_of(run: WorkflowHandle[Any, Any], *kinds: str) -> list[RunEvent]:
    """Wait until a run's log tells all these."""
    return await until(run, lambda log: set(kinds) <= set(types(log)))


async def sound(live: LiveLog, at: Scene, log: Any, found: Any) -> None:
    """The projected log is the one that was told live, and a replay agrees and sends nothing."""
    sent = len(at.server.requests)
    assert live.of(found) == told(log)
    for verdict in await replay(found, []):
        assert verdict.sound, verdict.prose()
    assert len(at.server.requests) == sent


def chain(*tools: str) -> dict[str, Any]:
    """Calls one after the other, the nodes named a, b, …."""
    names = "abcdefgh"[: len(tools)]
    nodes = [node(name, config={"serverId": "fake", "name": tool}) for name, tool in zip(names, tools, strict=True)]
    return workflow(nodes, [edge(one, other) for one, other in itertools.pairwise(names)])


# --- drain-current-node ---


async def test_a_call_under_way_ends_and_the_next_node_starts_after_the_resume(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(chain("write-slow", "write"))
        await at.acting.until_asked(1)
        taken = await pause(run, Pause(reason="lunch"))
        assert taken["at"].endswith("Z")
        assert (await read_run(client, run.id)).status == "paused"
        assert (await (await run.describe()).memo())[PAUSED] is True
        at.acting.let_go.set()
        log = await told_of(run, "node.completed a")
        assert types(log)[-2:] == ["negotiation.decided a", "node.completed a"]
        await resume(run, "back")
        log, found = await at.pack.end(run)
        assert types(log)[2:] == [
            "run.paused",
            "negotiation.decided a",
            "node.completed a",
            "run.resumed",
            "node.started b",
            "node.completed b",
            "run.completed",
        ]
        assert payload_of(log, "run.paused") == {"reason": "lunch", "drainPolicy": "drain-current-node"}
        assert not (await (await run.describe()).memo())[PAUSED]
        assert len(at.acting.asked) == 2
        await sound(live, at, log, found)


async def test_a_run_whose_last_node_ended_while_it_was_paused_completes_with_the_resume(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(chain("read-slow"))
        await at.acting.until_asked(1)
        await pause(run)
        at.acting.let_go.set()
        await told_of(run, "node.completed a")
        assert (await read_run(client, run.id)).status == "paused"
        await resume(run)
        log, found = await at.pack.end(run)
        assert types(log)[-2:] == ["run.resumed", "run.completed"]
        await sound(live, at, log, found)


async def test_a_delay_runs_out_while_the_run_is_paused(client, live):
    definition = workflow([node("wait", "core.delay", config={"delayMs": SOON}), node("a")], [edge("wait", "a")])
    definition["nodes"][1]["config"] = {"serverId": "fake", "name": "write"}
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(definition)
        await pause(run)
        await told_of(run, "node.completed wait")
        assert at.acting.asked == []
        await resume(run)
        log, found = await at.pack.end(run)
        assert types(log)[-3:] == ["negotiation.decided a", "node.completed a", "run.completed"]
        await sound(live, at, log, found)


async def test_no_further_attempt_is_made_before_the_resume(client, live):
    async with scene(client, TOOLS) as at:
        at.acting.replies += [NOT_NOW]
        run = await at.pack.start(workflow([node("a", config={"serverId": "fake", "name": "read"})]))
        await told_of(run, "node.retried a")
        await pause(run)
        async with asyncio.timeout(PATIENCE):
            async for event in run.fetch_history_events(wait_new_event=True):
                if event.HasField("timer_fired_event_attributes"):
                    break
        assert (await read_run(client, run.id)).status == "paused"
        assert len(at.acting.asked) == 1
        await resume(run)
        log, found = await at.pack.end(run)
        assert types(log)[-2:] == ["node.completed a", "run.completed"]
        assert len(at.acting.asked) == 2
        await sound(live, at, log, found)


async def test_a_question_is_answered_while_the_run_is_paused_and_acted_upon_after_the_resume(client, live):
    async with scene(client, TOOLS) as at:
        at.acting.replies.append(BUSY)
        run = await at.pack.start(at.flow("asked"))
        ((identity, _),) = await asked_of_run(run)
        await pause(run)
        await resolve(run, identity, ACCEPT)
        await told_of(run, "node.resumed a")
        assert len(at.acting.asked) == 1
        await resume(run)
        log, found = await at.pack.end(run)
        assert log[-1].type == "run.completed"
        assert len(at.acting.asked) == 2
        await sound(live, at, log, found)


# --- immediate ---


@pytest.mark.parametrize("early", [True, False], ids=["resumed before the answer", "resumed after it"])
async def test_a_read_that_was_cut_begins_afresh(client, live, early):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(chain("read-slow"))
        await at.acting.until_asked(1)
        await pause(run, IMMEDIATE)
        if not early:
            await until_ended(run)
        await resume(run)
        await at.acting.until_asked(2)
        at.acting.let_go.set()
        log, found = await at.pack.end(run)
        assert types(log) == [
            "run.started",
            "node.started a",
            "run.paused",
            "run.resumed",
            "node.started a",
            "negotiation.decided a",
            "node.completed a",
            "run.completed",
        ]
        assert payload_of(log, "run.paused") == {
            "drainPolicy": "immediate",
            "interruptedNodeId": "a",
            "interruptedAttempt": 1,
        }
        assert scheduled(found) == ["a:1", "a:2"]
        await sound(live, at, log, found)


async def test_a_claimed_write_that_was_cut_is_in_doubt_and_the_server_sees_it_once(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(chain("write-slow"))
        await at.acting.until_asked(1)
        await pause(run, IMMEDIATE)
        await until_ended(run)
        log = (await read_run(client, run.id)).log
        assert types(log)[-1] == "run.paused"
        await resume(run)
        log, found = await at.pack.end(run)
        error = error_of(log)
        assert error["code"] == "upstream_unavailable"
        assert "the effect may have happened" in error["message"]
        assert error["details"]["delivery"] == "unknown"
        assert scheduled(found) == ["a:1"]
        assert len(at.acting.asked) == 1
        await sound(live, at, log, found)


async def test_a_claimed_write_that_was_cut_asks_after_the_resume_where_a_person_decides(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(chain("asked-slow"))
        await at.acting.until_asked(1)
        await pause(run, IMMEDIATE)
        await until_ended(run)
        await resume(run)
        ((identity, _),) = await asked_of_run(run)
        assert len(at.acting.asked) == 1
        at.acting.let_go.set()
        await resolve(run, identity, ACCEPT)
        log, found = await at.pack.end(run)
        assert log[-1].type == "run.completed"
        assert len(at.acting.asked) == 2
        assert len({request.header("idempotency-key") for request in at.acting.asked}) == 1
        await sound(live, at, log, found)


async def test_a_write_that_no_worker_had_taken_begins_afresh(client, live):
    async with scene(client, TOOLS) as at:
        queue = f"later-{uuid.uuid4().hex}"
        async with Worker(client, task_queue=queue, workflows=[RunWorkflow]):
            run = await Pack(client, queue).start(chain("write"))
            await told_of(run, "node.started a")
            await pause(run, IMMEDIATE)
            await until_ended(run)
            await resume(run)
        assert at.pack.settings is not None
        async with pack_worker(client, at.pack.settings, task_queue=queue) as pack:
            log, found = await pack.end(run)
        assert log[-1].type == "run.completed"
        assert types(log).count("node.started a") == 2
        assert scheduled(found) == ["a:1", "a:2"]
        assert len(at.acting.asked) == 1
        await sound(live, at, log, found)


async def test_a_shared_effect_goes_on_while_its_caller_is_cut_and_is_not_sent_again(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(at.flow("write-slow", keyed=True))
        await at.acting.until_asked(1)
        await pause(run, IMMEDIATE)
        await until_ended(run)
        await resume(run)
        at.acting.let_go.set()
        log, found = await at.pack.end(run)
        assert log[-1].type == "run.completed"
        assert types(log).count("node.started a") == 2
        assert [one.data for one in activity_results(found)] == [b'{"content":[], "n":1.0}']
        assert len(at.acting.asked) == 1
        await sound(live, at, log, found)


async def test_a_delay_that_was_cut_begins_afresh(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(workflow([node("wait", "core.delay", config={"delayMs": SOON})]))
        await pause(run, IMMEDIATE)
        await resume(run)
        log, found = await at.pack.end(run)
        assert types(log).count("node.started wait") == 2
        assert log[-1].type == "run.completed"
        await sound(live, at, log, found)


# --- what is refused ---


async def test_a_run_is_paused_and_resumed_once_each(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(chain("read-slow"))
        await at.acting.until_asked(1)
        assert await refused(run, RESUME) == "run_state_conflict"
        await pause(run)
        assert await refused(run, PAUSE) == "run_state_conflict"
        await resume(run)
        assert await refused(run, RESUME) == "run_state_conflict"
        await asyncio.gather(*(pause(run) for _ in range(3)), return_exceptions=True)
        await resume(run)
        at.acting.let_go.set()
        log, found = await at.pack.end(run)
        assert types(log).count("run.paused") == types(log).count("run.resumed") == 2
        await sound(live, at, log, found)


@pytest.mark.parametrize(
    ("update", "given"), [(PAUSE, b'{"drainPolicy":"later"}'), (PAUSE, b"7"), (RESUME, b'{"reason":7}')]
)
async def test_what_is_no_pause_and_no_resume_is_refused(client, update, given):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(chain("read-slow"))
        assert await refused(run, update, given) == "validation_error"
        await run.terminate()


async def test_a_run_that_is_over_is_not_there_to_be_paused(client):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(chain("read"))
        await at.pack.end(run)
        with pytest.raises(RPCError) as caught:
            await pause(run)
        assert caught.value.status is RPCStatusCode.NOT_FOUND


# --- cancel, continue-as-new, limits ---


async def test_a_paused_run_can_be_cancelled(client, live):
    async with scene(client, TOOLS) as at:
        nodes = [node("a", config={"serverId": "fake", "name": "write-slow"})]
        run = await at.pack.start(workflow([*nodes, node("wait", "core.delay", config={"delayMs": 60_000})]))
        await at.acting.until_asked(1)
        await pause(run)
        await run.cancel(reason="enough")
        log, found = await asyncio.wait_for(at.pack.end(run), PATIENCE)
        assert types(log)[-4:] == ["run.paused", "node.cancelled wait", "node.cancelled a", "run.cancelled"]
        assert (await read_run(client, run.id)).status == "cancelled"
        await sound(live, at, log, found)


async def test_a_paused_run_goes_on_in_a_new_history_as_paused(short_client, live):
    names = [f"n{index}" for index in range(12)]
    calls = [node(name, config={"serverId": "fake", "name": "read-slow"}) for name in names]
    last = node("last", config={"serverId": "fake", "name": "write"})
    definition = workflow([*calls, last], [edge(name, "last") for name in names])
    async with scene(short_client, TOOLS) as at:
        run = await at.pack.start(definition)
        await at.acting.until_asked(len(names))
        await pause(run)
        at.acting.let_go.set()
        await told_of(short_client.get_workflow_handle(run.id), *(f"node.completed {name}" for name in names))
        latest = short_client.get_workflow_handle(run.id)
        description = await latest.describe()
        assert description.raw_info.first_run_id != description.run_id
        assert (await description.memo())[PAUSED] is True
        assert (await read_run(short_client, run.id)).status == "paused"
        assert len(at.acting.asked) == len(names)
        await resume(latest)
        log, found = await at.pack.end(latest)
        assert len(found) == 2
        assert types(log)[-4:] == ["run.resumed", "node.started last", "node.completed last", "run.completed"]
        assert len(at.acting.asked) == len(names) + 1
        await sound(live, at, log, found)


async def test_a_run_that_takes_too_long_fails_while_it_is_paused(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(
            chain("write-slow", "write"), configurable=b'{"version":1,"run":{"runTimeoutMs":%d}}' % SOON
        )
        await at.acting.until_asked(1)
        await pause(run)
        log, found = await asyncio.wait_for(at.pack.end(run), PATIENCE)
        assert types(log)[-4:] == ["run.paused", "cap.breached", "node.cancelled a", "run.failed"]
        breach = payload_of(log, "cap.breached")
        assert (breach["kind"], breach["limit"]) == ("run-duration", SOON)
        assert breach["observed"] > SOON
        assert error_of(log)["code"] == "run_timeout"
        assert len(at.acting.asked) == 1
        await sound(live, at, log, found)


async def test_a_run_that_would_start_too_many_nodes_fails(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(chain("read", "read", "read"), configurable=b'{"run":{"recursionLimit":2}}')
        log, found = await at.pack.end(run)
        assert types(log)[-3:] == ["node.completed b", "cap.breached", "run.failed"]
        assert error_of(log)["code"] == "recursion_limit_exceeded"
        assert len(at.acting.asked) == 2
        await sound(live, at, log, found)
