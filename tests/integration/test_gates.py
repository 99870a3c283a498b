"""Nodes that wait for people: answers, wrong answers, no answers, pauses and cancels, over every change of history."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest
from temporalio.client import WorkflowHandle
from temporalio.common import RawValue
from temporalio.worker import Worker

from openwop_mcp.failures import json_payload
from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.interrupts import RESOLVE, WAITING, Resolution
from tests.integration.test_in_doubt import until_admitted
from tests.support.doubts import ACCEPT, ALICE, REJECT, Scene, asked_of_run, refusal, resolve, scene, until
from tests.support.graphs import edge, node, workflow
from tests.support.live_log import LiveLog, told
from tests.support.pack import Pack, error_of, pack_worker, payload_of, types
from tests.support.patience import PATIENCE
from tests.support.pauses import pause, resume
from workflows.client import InterruptRefusedError, read_run, resolve_interrupt
from workflows.replay import replay
from workflows.run import RunWorkflow

TOOLS = {"*": {"safety_tier": "write"}}
APPROVAL = {"title": "Go on?", "artifactId": "order-7", "artifactType": "order"}
QUESTIONS = {
    "questions": [
        {"id": "colour", "question": "Which colour?"},
        {"id": "count", "question": "How many?", "schema": {"type": "integer", "minimum": 1}},
    ]
}
EVENT = {"kind": "external-event", "data": {"eventType": "paid", "correlation": {"order": 17, "state": "ok"}}}


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> LiveLog:
    return LiveLog(monkeypatch)


async def sound(live: LiveLog, log: list[RunEvent], found: Any) -> None:
    """The projected log is the one that was told live, and a replay agrees."""
    assert live.of(found) == told(log)
    for verdict in await replay(found, []):
        assert verdict.sound, verdict.prose()


def approval(node_id: str = "gate", **config: Any) -> dict[str, Any]:
    return node(node_id, "core.approvalGate", config={**APPROVAL, **config})


def clarification(node_id: str = "ask", **config: Any) -> dict[str, Any]:
    return node(node_id, "core.clarificationGate", config={**QUESTIONS, **config})


def external(node_id: str = "event", **config: Any) -> dict[str, Any]:
    return node(node_id, "core.interrupt", config={**EVENT, **config})


def call(node_id: str, tool: str = "write") -> dict[str, Any]:
    return node(node_id, config={"serverId": "fake", "name": tool})


async def ended(at: Scene, run: WorkflowHandle[Any, Any]) -> tuple[list[RunEvent], Any]:
    return await asyncio.wait_for(at.pack.end(run), PATIENCE)


async def waiting(run: WorkflowHandle[Any, Any]) -> Any:
    return (await (await run.describe()).memo()).get(WAITING)


def outputs_of(log: list[RunEvent], node_id: str) -> bytes:
    (event,) = [event for event in log if event.type == "node.completed" and event.node_id == node_id]
    return event.payload


def answer(identity: str, value: bytes, by: bytes = ALICE) -> bytes:
    return Resolution(identity, value, by).encode()


# --- what an answer does ---


async def test_an_approval_opens_its_gate_and_gives_the_answer_byte_for_byte(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(workflow([approval(), call("after")], [edge("gate", "after")]))
        ((identity, payload),) = await asked_of_run(run)
        assert payload == {
            "kind": "approval",
            "key": "gate:gate:1",
            "data": {
                "artifactId": "order-7",
                "artifactType": "order",
                "title": "Go on?",
                "actions": ["accept", "reject"],
            },
            "resumeSchema": {
                "type": "object",
                "required": ["action"],
                "properties": {"action": {"enum": ["accept", "reject"]}},
            },
        }
        assert await waiting(run) == 1
        assert (await read_run(client, run.id)).status == "waiting-approval"
        assert at.acting.asked == []
        await resolve(run, identity, b'{ "action": "accept", "n": 1.10 }')
        log, found = await ended(at, run)
        assert types(log) == [
            "run.started",
            "node.started gate",
            "interrupt.requested gate",
            "node.suspended gate",
            "interrupt.resolved gate",
            "node.resumed gate",
            "node.completed gate",
            "node.started after",
            "negotiation.decided after",
            "node.completed after",
            "run.completed",
        ]
        assert payload_of(log, "node.suspended") == {
            "nodeId": "gate",
            "interruptId": identity,
            "kind": "approval",
            "reason": "gate",
            "key": "gate:gate:1",
        }
        assert payload_of(log, "interrupt.resolved") == {
            "nodeId": "gate",
            "interruptId": identity,
            "kind": "approval",
            "resumeValue": {"action": "accept", "n": 1.1},
            "resolvedBy": json.loads(ALICE),
            "decision": "granted",
            "action": "accept",
        }
        assert b'{"action":"accept","resumeValue":{ "action": "accept", "n": 1.10 }}' in outputs_of(log, "gate")
        await sound(live, log, found)


async def test_a_rejection_fails_the_gate_and_nothing_after_it_starts(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(workflow([approval(), call("after")], [edge("gate", "after")]))
        ((identity, _),) = await asked_of_run(run)
        await resolve(run, identity, REJECT)
        log, found = await ended(at, run)
        assert types(log)[-4:] == ["node.resumed gate", "node.failed gate", "node.skipped after", "run.failed"]
        assert payload_of(log, "interrupt.resolved")["decision"] == "rejected"
        assert error_of(log)["code"] == "approval_rejected"
        assert at.acting.asked == []
        await sound(live, log, found)


async def test_three_questions_of_parallel_branches_are_answered_in_any_order(client, live):
    definition = workflow(
        [approval(), clarification(), external(), node("end", "core.noop")],
        [edge(one, "end") for one in ("gate", "ask", "event")],
    )
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(definition)
        asked = await asked_of_run(run, 3)
        by_kind = {payload["kind"]: identity for identity, payload in asked}
        assert await waiting(run) == 3
        assert (await read_run(client, run.id)).status == "waiting-approval"
        await resolve(run, by_kind["external-event"], b'{"state":"ok","order":17.0,"more":[1]}')
        await resolve(run, by_kind["approval"], ACCEPT)
        assert (await read_run(client, run.id)).status == "waiting-input"
        assert await waiting(run) == 1
        await resolve(run, by_kind["clarification"], b'{"answers":{"colour":"red","count":2.0}}')
        log, found = await ended(at, run)
        assert b'{"resumeValue":{"state":"ok","order":17.0,"more":[1]}}' in outputs_of(log, "event")
        assert b'{"answers":{"colour":"red","count":2.0}}' in outputs_of(log, "ask")
        assert types(log)[-2:] == ["node.completed end", "run.completed"]
        await sound(live, log, found)


async def test_a_wrong_answer_is_refused_and_the_right_one_taken(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(workflow([approval(), clarification(), external()]))
        ids = {payload["kind"]: identity for identity, payload in await asked_of_run(run, 3)}
        wrong = {
            "approval": [
                b"{}",
                b'{"action":"refine"}',
                b'{"action":"timeout"}',
                b'{"action":"accept","action":"reject"}',
            ],
            "clarification": [b"7", b'{"answers":{"colour":"red"}}', b'{"answers":{"colour":"red","count":0}}'],
            "external-event": [b"{}", b'{"order":17,"state":"bad"}', b'{"order":"17","state":"ok"}'],
        }
        for kind, values in wrong.items():
            for value in values:
                assert await refusal(run, answer(ids[kind], value)) == "validation_error"
        assert await refusal(run, answer("acme/none", ACCEPT)) == "not_found"
        right = {
            "approval": ACCEPT,
            "clarification": b'{"answers":{"colour":"red","count":1}}',
            "external-event": b'{"order":17,"state":"ok"}',
        }
        for kind, value in right.items():
            await resolve(run, ids[kind], value)
        log, found = await ended(at, run)
        assert log[-1].type == "run.completed"
        assert types(log).count("interrupt.resolved gate") == 1
        await sound(live, log, found)


async def test_of_two_answers_at_once_exactly_one_wins(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(workflow([approval(), clarification()]))
        ids = {payload["kind"]: identity for identity, payload in await asked_of_run(run, 2)}
        given = [Resolution(ids["approval"], value, ALICE) for value in (ACCEPT, REJECT)]
        answers = (resolve_interrupt(client, run.id, one) for one in given)
        ends = await asyncio.gather(*answers, return_exceptions=True)
        (lost,) = [end for end in ends if end is not None]
        assert isinstance(lost, InterruptRefusedError)
        assert lost.code == "interrupt_already_resolved"
        await resolve(run, ids["clarification"], b'{"answers":{"colour":"red","count":1}}')
        log, found = await ended(at, run)
        assert types(log).count("interrupt.resolved gate") == 1
        assert (log[-1].type == "run.completed") is (ends[0] is None)
        await sound(live, log, found)


async def test_an_answer_that_no_worker_takes_in_time_is_told_so_and_counts_once_one_does(client, monkeypatch):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(workflow([approval()]))
        ((identity, _),) = await asked_of_run(run)
    with monkeypatch.context() as patch:
        # Long enough for Temporal to have the answer.
        patch.setattr("workflows.client.PATIENCE", 3.0)
        with pytest.raises(InterruptRefusedError) as refused:
            await resolve_interrupt(client, run.id, Resolution(identity, ACCEPT, ALICE))
    assert refused.value.code == "service_unavailable"
    async with pack_worker(client, at.pack.settings, task_queue=at.pack.task_queue):
        await asyncio.wait_for(run.result(), PATIENCE)


async def test_whoever_an_approval_says_decided_it_the_log_says_who_did(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(workflow([approval()]))
        ((identity, _),) = await asked_of_run(run)
        await resolve(run, identity, b'{"action":"accept","decidedBy":"ceo"}', b'{"subjectId":"carol"}')
        log, found = await ended(at, run)
        assert payload_of(log, "interrupt.resolved")["resumeValue"] == {"action": "accept", "decidedBy": "carol"}
        assert not any(b"ceo" in event.payload for event in log)
        await sound(live, log, found)


async def test_only_those_whom_a_gate_names_may_answer_it(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(workflow([approval(approversList=["bob", "carol"])]))
        ((identity, payload),) = await asked_of_run(run)
        assert payload["data"]["approversList"] == ["bob", "carol"]
        assert await refusal(run, answer(identity, ACCEPT)) == "forbidden"
        assert (
            await refusal(run, answer(identity, b'{"action":"accept","decidedBy":{"subjectId":"bob"}}')) == "forbidden"
        )
        await resolve(run, identity, ACCEPT, b'{"subjectId":"carol"}')
        log, found = await ended(at, run)
        assert payload_of(log, "interrupt.resolved")["resolvedBy"] == {"subjectId": "carol"}
        await sound(live, log, found)


# --- nobody answers ---


async def test_gates_that_nobody_answers_in_time_fail_and_take_no_answer_any_more(client, live):
    waits = {"timeoutMs": 300}
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(workflow([approval(**waits), clarification(**waits), external()]))
        ids = {payload["kind"]: identity for identity, payload in await asked_of_run(run, 3)}
        log = await until(run, lambda log: {"node.failed gate", "node.failed ask"} <= set(types(log)))
        failed = {event.node_id: json.loads(event.payload)["error"] for event in log if event.type == "node.failed"}
        assert {node_id: error["code"] for node_id, error in failed.items()} == {
            "gate": "approval_rejected",
            "ask": "interrupt_expired",
        }
        assert "within 0.3 s" in failed["ask"]["message"]
        for kind in ("approval", "clarification"):
            assert await refusal(run, answer(ids[kind], ACCEPT)) == "interrupt_already_resolved"
        assert await waiting(run) == 1
        await resolve(run, ids["external-event"], b'{"order":17,"state":"ok"}')
        log, found = await ended(at, run)
        resolved = {event.node_id: json.loads(event.payload) for event in log if event.type == "interrupt.resolved"}
        assert (resolved["gate"]["action"], resolved["gate"]["decision"]) == ("timeout", "rejected")
        assert (resolved["ask"]["action"], "decision" in resolved["ask"]) == ("timeout", False)
        assert resolved["gate"]["resolvedBy"]["issuer"] == "urn:openwop-mcp:host"
        assert log[-1].type == "run.failed"
        await sound(live, log, found)


async def test_an_answer_that_comes_with_the_end_of_its_time_counts(client, live):
    """The run's worker is away while both come, so that one workflow task brings them."""
    queue = f"pack-{uuid.uuid4().hex}"
    pack = Pack(client, queue)
    async with Worker(client, task_queue=queue, workflows=[RunWorkflow]):
        run = await pack.start(workflow([approval(timeoutMs=10_000)]))
        ((identity, _),) = await asked_of_run(run)
    given = RawValue(json_payload(answer(identity, ACCEPT)))
    answering = asyncio.create_task(run.execute_update(RESOLVE, given, id="answer"))
    await until_admitted(run, "answer")
    async for event in run.fetch_history_events(wait_new_event=True):
        if event.HasField("timer_fired_event_attributes"):
            break
    async with Worker(client, task_queue=queue, workflows=[RunWorkflow]):
        await asyncio.wait_for(answering, PATIENCE)
        log, found = await asyncio.wait_for(pack.end(run), PATIENCE)
    assert types(log)[-2:] == ["node.completed gate", "run.completed"]
    assert payload_of(log, "interrupt.resolved")["action"] == "accept"
    await sound(live, log, found)


# --- cancel, pause, continue-as-new ---


async def test_a_cancel_closes_what_is_asked_and_a_later_answer_is_told_so(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(workflow([approval(timeoutMs=60_000), call("slow", "write-slow")]))
        ((identity, _),) = await asked_of_run(run)
        await at.acting.until_asked(1)
        await run.cancel(reason="enough")
        await until(run, lambda log: "run.cancelled" in types(log))
        with pytest.raises(InterruptRefusedError) as caught:
            await resolve_interrupt(client, run.id, Resolution(identity, ACCEPT, ALICE))
        assert caught.value.code == "interrupt_already_resolved"
        log, found = await ended(at, run)
        assert "node.cancelled gate" in types(log)
        assert "interrupt.resolved gate" not in types(log)
        await sound(live, log, found)


async def test_a_gate_is_answered_while_its_run_is_paused_and_opens_with_the_resume(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(workflow([approval(), call("after")], [edge("gate", "after")]))
        ((identity, _),) = await asked_of_run(run)
        await pause(run)
        await resolve(run, identity, ACCEPT)
        await until(run, lambda log: "node.completed gate" in types(log))
        assert (await read_run(client, run.id)).status == "paused"
        assert at.acting.asked == []
        await resume(run)
        log, found = await ended(at, run)
        assert types(log)[-3:] == ["negotiation.decided after", "node.completed after", "run.completed"]
        await sound(live, log, found)


async def test_questions_and_their_time_go_on_in_a_new_history(short_client, live):
    names = [f"n{index}" for index in range(12)]
    waits = [approval(approversList=["bob"]), clarification(timeoutMs=15_000), external(timeoutMs=60_000)]
    definition = workflow([*waits, *(call(name, "write-slow") for name in names)])
    async with scene(short_client, TOOLS) as at:
        run = await at.pack.start(definition)
        latest = short_client.get_workflow_handle(run.id)
        ids = {payload["kind"]: identity for identity, payload in await asked_of_run(latest, 3)}
        await at.acting.until_asked(len(names))
        at.acting.let_go.set()
        await until(latest, lambda log: {f"node.completed {name}" for name in names} <= set(types(log)))
        description = await latest.describe()
        assert description.raw_info.first_run_id != description.run_id
        assert await waiting(latest) == 3
        assert await refusal(latest, answer(ids["approval"], ACCEPT)) == "forbidden"
        assert await refusal(latest, answer(ids["external-event"], b"{}")) == "validation_error"
        await resolve(latest, ids["approval"], ACCEPT, b'{"subjectId":"bob"}')
        await resolve(latest, ids["external-event"], b'{"order":17,"state":"ok"}')
        assert await refusal(latest, answer(ids["approval"], ACCEPT)) == "interrupt_already_resolved"
        log, found = await ended(at, latest)
        assert len(found) > 1
        assert "node.completed event" in types(log)
        assert types(log)[-2:] == ["node.failed ask", "run.failed"]
        assert error_of(log)["code"] == "interrupt_expired"
        await sound(live, log, found)
