"""`on_doubt = "ask"`: what may have happened waits for a person, in runs and in authors' workflows."""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from typing import Any, NoReturn

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.update.v1 import UpdateRef
from temporalio.api.workflowservice.v1 import PollWorkflowExecutionUpdateRequest
from temporalio.client import WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import CancelledError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from activities.effects import SharedEffects
from openwop_mcp import jsontext
from openwop_mcp.runs.interrupts import MEMO, WAITING, OpenInterrupt, Resolution, encode_open, read_open
from tests.support.author_flows import Author, Call, Calls, GivesUp
from tests.support.doubts import (
    ACCEPT,
    ALICE,
    BUSY,
    REJECT,
    Scene,
    asked_of_author,
    asked_of_run,
    done,
    refusal,
    resolve,
    scene,
)
from tests.support.fake_server import Reply
from tests.support.graphs import edge, node, workflow
from tests.support.live_log import LiveLog, told
from tests.support.pack import activity_results, chain, error_of, pack_worker, scheduled, types
from tests.support.patience import PATIENCE
from workflows.client import read_run, waits_for_answers
from workflows.replay import replay

ASK = {"*": {"on_doubt": "ask"}}
EDITED = b'{ "content":[],  "n":1.10, "big":123456789012345678901234, "e":1e400, "\\u0065":"\\/" }'
SUSPENDED = ["run.started", "node.started a", "interrupt.requested a", "node.suspended a"]
RESUMED = ["interrupt.resolved a", "node.resumed a"]


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> LiveLog:
    return LiveLog(monkeypatch)


async def suspended(at: Scene, *, keyed: bool) -> tuple[WorkflowHandle[Any, Any], str]:
    """A run that waits for a person."""
    at.acting.replies.append(BUSY)
    run = await at.pack.start(at.flow("write", keyed=keyed))
    ((identity, _),) = await asked_of_run(run)
    return run, identity


async def all_shown(flow: WorkflowHandle[Any, Any], number: int) -> list[OpenInterrupt]:
    """Wait until a workflow counts so many open questions; those that it shows then."""
    shown: list[OpenInterrupt] = []
    async with asyncio.timeout(60):
        async for event in flow.fetch_history_events(wait_new_event=True):
            if event.HasField("workflow_properties_modified_event_attributes"):
                fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
                if MEMO in fields:
                    shown = [] if fields[MEMO].data in {b"", b"null"} else read_open(fields[MEMO].data)
                if fields[WAITING].data == str(number).encode():
                    return shown
    raise AssertionError("the workflow ended before")


async def sound(live: LiveLog, at: Scene, log: Any, found: Any) -> None:
    """The projected log is the one that was told live, and a replay agrees and sends nothing."""
    sent = len(at.server.requests)
    assert live.of(found) == told(log)
    for verdict in await replay(found, []):
        assert verdict.sound, verdict.prose()
    assert len(at.server.requests) == sent


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_accept_sends_a_run_s_effect_again(client, live, keyed):
    async with scene(client, ASK) as at:
        run, identity = await suspended(at, keyed=keyed)
        assert len(at.acting.asked) == 1
        await resolve(run, identity, ACCEPT)
        log, found = await at.pack.end(run)
        assert types(log) == [*SUSPENDED, *RESUMED, "negotiation.decided a", "node.completed a", "run.completed"]
        assert [one.data for one in activity_results(found)] == [b'{"content":[], "n":2.0}']
        assert scheduled(found) == ["a:1", "a:2"]
        keys = {request.header("idempotency-key") for request in at.acting.asked}
        assert len(at.acting.asked) == 2
        assert len(keys) == 1
        await sound(live, at, log, found)


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_edit_accept_takes_a_run_s_effect_as_done_with_exactly_that_result(client, live, keyed):
    async with scene(client, ASK) as at:
        run, identity = await suspended(at, keyed=keyed)
        await resolve(run, identity, done(EDITED))
        log, found = await at.pack.end(run)
        assert types(log) == [*SUSPENDED, *RESUMED, "node.completed a", "run.completed"]
        (result,) = activity_results(found)
        assert result.data == EDITED
        assert result.metadata["openwop-mcp.decided"] == b"done"
        assert jsontext.pointer(log[-1].payload, ["outputs", "a", "result"]) == EDITED
        assert len(at.acting.asked) == 1
        await sound(live, at, log, found)


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_reject_fails_a_run_and_says_that_the_effect_may_have_happened(client, live, keyed):
    async with scene(client, ASK) as at:
        run, identity = await suspended(at, keyed=keyed)
        await resolve(run, identity, REJECT)
        log, found = await at.pack.end(run)
        assert types(log) == [*SUSPENDED, *RESUMED, "node.failed a", "run.failed"]
        error = error_of(log)
        assert error["code"] == "upstream_unavailable"
        assert error["details"]["delivery"] == "unknown"
        assert "the effect may have happened" in error["message"]
        assert len(at.acting.asked) == 1
        await sound(live, at, log, found)


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_the_log_says_once_that_a_person_is_to_decide_a_doubt(client, caplog, keyed):
    async with scene(client, ASK) as at:
        run, identity = await suspended(at, keyed=keyed)
        ((_, question),) = await asked_of_run(run)
        (line,) = [one for one in caplog.records if one.name == "openwop_mcp.runs"]
        assert line.levelname == "WARNING"
        assert line.getMessage().startswith(f"run {run.id} has an effect in doubt, node a: upstream_unavailable: ")
        facts = {"server": "fake", "effect": question["data"]["artifactId"], "attempt": 1}
        assert line.facts == {**facts, "node": "a", "tenant": "acme"}
        await resolve(run, identity, REJECT)
        _, found = await at.pack.end(run)
        assert [verdict.sound for verdict in await replay(found, [])] == [True]
        said = [one.getMessage() for one in caplog.records if one.name == "openwop_mcp.runs"]
    assert [" failed, node a: " in one for one in said] == [False, True]


async def test_the_events_of_a_question_say_what_is_asked_and_who_answered(client):
    async with scene(client, ASK) as at:
        run, identity = await suspended(at, keyed=False)
        await resolve(run, identity, done(EDITED))
        log, _ = await at.pack.end(run)
    by_type = {event.type: event for event in log}
    requested = jsontext.decode(by_type["interrupt.requested"].payload)
    suspension = jsontext.decode(by_type["node.suspended"].payload)
    assert requested["kind"] == suspension["kind"] == "approval"
    assert requested["key"] == suspension["key"]
    assert requested["data"]["artifactId"].startswith("acme/")
    assert requested["data"]["artifactData"]["httpStatus"] == 503
    assert suspension["interruptId"] == identity
    assert identity.startswith("acme/")
    resolved = by_type["interrupt.resolved"].payload
    assert jsontext.member(resolved, "resolvedBy") == ALICE
    assert jsontext.member(resolved, "resumeValue") == done(EDITED)
    assert jsontext.member(resolved, "editedArtifactData") == EDITED
    assert jsontext.decode(resolved)["decision"] == "granted"
    assert jsontext.decode(by_type["node.resumed"].payload)["interruptId"] == identity


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
@pytest.mark.parametrize(
    ("answer", "raw"),
    [(ACCEPT, '{"content":[], "n":2.0}'), (done(EDITED), EDITED.decode()), (REJECT, None)],
    ids=["accept", "edit-accept", "reject"],
)
async def test_an_author_s_workflow_shows_its_question_and_goes_on_with_the_answer(client, keyed, answer, raw):
    async with scene(client, ASK) as at:
        at.acting.replies.append(BUSY)
        flow = await at.author(Call("call_tool", ["fake", "write", {}], key=at.key if keyed else None))
        (one,) = await asked_of_author(flow)
        assert jsontext.decode(one.payload)["data"]["title"] == "in doubt: fake write"
        assert one.interrupt_id.startswith("acme/")
        await resolve(flow, one.interrupt_id, answer)
        (outcome,) = await flow.result()
        assert outcome.raw == raw
        assert outcome.in_doubt is (raw is None)
        assert raw is not None or "the effect may have happened" in outcome.message
        assert MEMO not in await (await flow.describe()).memo()
        sent = len(at.acting.asked)
        assert sent == (2 if answer == ACCEPT else 1)
        for verdict in await replay([await flow.fetch_history()], [Author]):
            assert verdict.sound, verdict.prose()
        assert len(at.acting.asked) == sent


async def test_an_author_s_workflow_may_wait_with_several_questions_at_once(client):
    async with scene(client, ASK) as at:
        at.acting.replies += [BUSY, BUSY, BUSY]
        flow = await at.author(*(Call("call_tool", ["fake", f"write-{n}", {}]) for n in "abc"), parallel=True)
        shown = await all_shown(flow, 3)
        by_title = {jsontext.decode(one.payload)["data"]["title"][-1]: one.interrupt_id for one in shown}
        await resolve(flow, by_title["b"], done(b'{"content":[],"b":1}'))
        assert await refusal(flow, Resolution(by_title["b"], ACCEPT, ALICE).encode()) == "interrupt_already_resolved"
        await resolve(flow, by_title["a"], REJECT)
        await resolve(flow, by_title["c"], ACCEPT)
        a, b, c = await flow.result()
        assert (a.in_doubt, b.raw, c.raw) == (True, '{"content":[],"b":1}', '{"content":[], "n":4.0}')


async def failed_attempts(flow: WorkflowHandle[Any, Any], number: int, *, taken: bool) -> None:
    """Wait until so many attempts of a workflow have failed, and maybe until it has taken that up."""
    async with asyncio.timeout(120):
        async for event in flow.fetch_history_events(wait_new_event=True):
            number -= event.HasField("activity_task_failed_event_attributes")
            if number <= 0 and (not taken or event.HasField("workflow_task_completed_event_attributes")):
                return


async def until_admitted(flow: WorkflowHandle[Any, Any], update_id: str) -> None:
    """Wait until Temporal has an update, which no worker has taken yet."""
    flow_of = WorkflowExecution(workflow_id=flow.id)
    request = PollWorkflowExecutionUpdateRequest(
        namespace=flow._client.namespace, update_ref=UpdateRef(workflow_execution=flow_of, update_id=update_id)
    )
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await flow._client.workflow_service.poll_workflow_execution_update(request)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
            else:
                return


@pytest.mark.parametrize("answer", [ACCEPT, done(EDITED), REJECT], ids=["accept", "edit-accept", "reject"])
async def test_one_answer_is_for_all_calls_of_an_author_s_workflow_that_wait_with_one_effect(client, answer):
    async with scene(client, ASK) as at:
        at.acting.replies.append(BUSY)
        flow = await at.author(*[Call("call_tool", ["fake", "write"], key=at.key)] * 2, parallel=True)
        await failed_attempts(flow, 2, taken=True)
        (one,) = await all_shown(flow, 1)
        await resolve(flow, one.interrupt_id, answer)
        first, second = await asyncio.wait_for(flow.result(), PATIENCE)
        assert (first.raw, first.in_doubt) == (second.raw, second.in_doubt)
        assert first.in_doubt is (answer == REJECT)
        assert len(at.acting.asked) == (2 if answer == ACCEPT else 1)
        assert MEMO not in await (await flow.describe()).memo()
        for verdict in await replay([await flow.fetch_history()], [Author]):
            assert verdict.sound, verdict.prose()


async def test_a_question_is_shown_as_long_as_one_call_waits_for_its_answer(client):
    async with scene(client, ASK, GivesUp) as at:
        at.acting.replies.append(BUSY)
        flow = await client.start_workflow(
            GivesUp.run,
            args=[at.key, at.pack.task_queue],
            id=f"gives-up-{uuid.uuid4().hex}",
            task_queue=f"author-{at.pack.task_queue}",
        )
        await failed_attempts(flow, 2, taken=True)
        await flow.execute_update(GivesUp.give_up)
        assert MEMO in await (await flow.describe()).memo()
        (one,) = await all_shown(flow, 1)
        await resolve(flow, one.interrupt_id, ACCEPT)
        assert await asyncio.wait_for(flow.result(), PATIENCE) == '{"content":[], "n":2.0}'


async def test_one_answer_is_for_all_nodes_of_a_run_that_wait_with_one_effect(client, live):
    async with scene(client, ASK) as at:
        at.acting.replies.append(BUSY)
        run = await at.pack.start(at.flow("write", "write", keyed=True))
        (identity, _), (same, _) = await asked_of_run(run, 2)
        assert identity == same
        await resolve(run, identity, ACCEPT)
        log, found = await asyncio.wait_for(at.pack.end(run), PATIENCE)
        order = [one[-1] for one in types(log) if one.startswith("node.suspended")]
        assert [one for one in types(log) if one.startswith(("interrupt.resolved", "node.resumed"))] == [
            f"{kind} {name}" for name in order for kind in ("interrupt.resolved", "node.resumed")
        ]
        assert sorted(order) == ["a", "b"]
        assert log[-1].type == "run.completed"
        assert len({one.data for one in activity_results(found)}) == 1
        assert len(at.acting.asked) == 2
        await sound(live, at, log, found)


async def test_hundreds_of_doubts_at_once_are_shown_in_parts_that_history_has_room_for(client):
    number = 300
    async with scene(client, ASK) as at:
        queue = f"later-{uuid.uuid4().hex}"
        at.acting.replies += [BUSY] * number
        calls = [Call("call_tool", ["fake", f"write-{n}", {"about": "x" * 200}]) for n in range(number)]
        # All doubts reach the workflow in one task, as its worker was away.
        async with Worker(client, task_queue=queue, workflows=[Author]):
            flow = await client.start_workflow(
                Author.run, Calls(calls, at.pack.task_queue, parallel=True), id=queue, task_queue=queue
            )
            await at.acting.until_asked(1)
        await failed_attempts(flow, number, taken=False)
        async with Worker(client, task_queue=queue, workflows=[Author]):
            answered: set[str] = set()
            while len(answered) < number:
                shown = await all_shown(flow, number - len(answered))
                assert 1 < len(shown) <= 50
                assert len(encode_open(shown)) <= 33_000
                # Temporal takes ten at a time.
                now = [one.interrupt_id for one in shown[:10]]
                await asyncio.gather(*(resolve(flow, one, REJECT) for one in now))
                answered.update(now)
            outcomes = await asyncio.wait_for(flow.result(), 60)
        assert all(one.in_doubt for one in outcomes)
        size = (await flow.describe()).raw_info.history_size_bytes
        assert size < 8_000_000
        assert MEMO not in await (await flow.describe()).memo()


async def test_a_call_that_is_cancelled_in_the_moment_in_which_its_attempt_ends_asks_nobody(client):
    async with scene(client, ASK) as at:
        queue = f"later-{uuid.uuid4().hex}"
        at.acting.replies.append(BUSY)
        arguments = [at.key, at.pack.task_queue]
        async with Worker(client, task_queue=queue, workflows=[GivesUp]):
            flow = await client.start_workflow(GivesUp.run, args=arguments, id=queue, task_queue=queue)
            await at.acting.until_asked(1)
        # Both reach the workflow in one task, as its worker was away.
        await failed_attempts(flow, 2, taken=False)
        giving_up = asyncio.create_task(flow.execute_update(GivesUp.give_up, id="give-up"))
        await until_admitted(flow, "give-up")
        async with Worker(client, task_queue=queue, workflows=[GivesUp]):
            await asyncio.wait_for(giving_up, PATIENCE)
            (one,) = await all_shown(flow, 1)
            await resolve(flow, one.interrupt_id, ACCEPT)
            assert await asyncio.wait_for(flow.result(), PATIENCE) == '{"content":[], "n":2.0}'


async def test_an_effect_that_was_sent_again_may_come_into_doubt_again(client, live):
    async with scene(client, ASK) as at:
        run, identity = await suspended(at, keyed=False)
        at.acting.replies.append(BUSY)
        await resolve(run, identity, ACCEPT)
        (_, _), (again, _) = await asked_of_run(run, 2)
        assert again != identity
        assert await refusal(run, Resolution(identity, ACCEPT, ALICE).encode()) == "interrupt_already_resolved"
        await resolve(run, again, done(EDITED))
        log, found = await at.pack.end(run)
        assert activity_results(found)[0].data == EDITED
        assert len(at.acting.asked) == 2
        await sound(live, at, log, found)


async def test_a_shared_effect_may_come_into_doubt_as_often_and_each_time_is_a_question_of_its_own(client, live):
    async with scene(client, ASK) as at:
        run, identity = await suspended(at, keyed=True)
        author = await at.author(Call("call_tool", ["fake", "write"], key=at.key))
        (shown,) = await asked_of_author(author)
        for number, answer in ((2, ACCEPT), (3, ACCEPT)):
            at.acting.replies.append(BUSY)
            await resolve(run, identity, answer)
            asked = await asked_of_run(run, number)
            assert len({one for one, _ in asked}) == number
            identity = asked[-1][0]
            await resolve(author, shown.interrupt_id, answer)
            (shown,) = await asked_of_author(author, number)
        await resolve(author, shown.interrupt_id, done(EDITED))
        (outcome,) = await author.result()
        await resolve(run, identity, REJECT)
        log, found = await at.pack.end(run)
        assert outcome.raw == EDITED.decode()
        assert [one.data for one in activity_results(found)] == [EDITED]
        assert len(at.acting.asked) == 3
        await sound(live, at, log, found)


@pytest.mark.parametrize("answer", [ACCEPT, done(EDITED), REJECT], ids=["accept", "edit-accept", "reject"])
async def test_the_answer_belongs_to_the_effect_so_that_another_run_with_the_key_has_its_outcome(client, answer):
    async with scene(client, ASK) as at:
        run, identity = await suspended(at, keyed=True)
        await resolve(run, identity, answer)
        log, found = await at.pack.end(run)
        sent = len(at.acting.asked)
        other, others = await at.pack.run(at.flow("write", keyed=True))
        (told_author,) = await (await at.author(Call("call_tool", ["fake", "write"], key=at.key))).result()
        assert len(at.acting.asked) == sent
    assert other[-1].type == log[-1].type
    assert [one.data for one in activity_results(others)] == [one.data for one in activity_results(found)]
    assert told_author.in_doubt is (answer == REJECT)
    assert "node.suspended a" not in types(other)


async def test_of_two_runs_that_wait_with_one_effect_the_first_answer_holds_for_both(client):
    async with scene(client, ASK) as at:
        at.acting.replies.append(BUSY)
        runs = [await at.pack.start(at.flow("write", keyed=True)) for _ in range(2)]
        asked = [(await asked_of_run(run))[0][0] for run in runs]
        assert len(at.acting.asked) == 1
        assert len(set(asked)) == 2
        results = [b'{"content":[],"by":"one"}', b'{"content":[],"by":"two"}']
        await asyncio.gather(
            *(resolve(run, identity, done(one)) for run, identity, one in zip(runs, asked, results, strict=True))
        )
        ended = [await at.pack.end(run) for run in runs]
        assert len(at.acting.asked) == 1
    taken = {one.data for _, found in ended for one in activity_results(found)}
    assert len(taken) == 1
    assert taken < set(results)


async def test_of_two_runs_that_wait_with_one_effect_only_the_second_is_told_that_another_sent_it(client):
    async with scene(client, ASK) as at:
        at.acting.replies += [BUSY, BUSY]
        asked = []
        for _ in range(2):
            run = await at.pack.start(at.flow("write", keyed=True))
            ((identity, question),) = await asked_of_run(run)
            asked.append((run, identity, question["data"]["description"]))
        assert ["an earlier call with this key" in description for _, _, description in asked] == [False, True]
        # What its own answer led to, is its own as well.
        (run, identity, _), (other, others, _) = asked
        await resolve(run, identity, ACCEPT)
        _, (_, again) = await asked_of_run(run, 2)
        assert "another answer came first" not in again["data"]["description"]
        await resolve(other, others, REJECT)
        _, (_, again) = await asked_of_run(other, 2)
        assert "another answer came first, and the one given here was not used" in again["data"]["description"]


async def test_what_the_answer_of_a_caller_led_to_is_its_own_also_where_its_worker_stops_meanwhile(client, monkeypatch):
    waits: list[SharedEffects] = []
    wait = SharedEffects.wait

    def noted(effects: SharedEffects, *given: Any, **named: Any) -> NoReturn:
        waits.append(effects)
        wait(effects, *given, **named)

    monkeypatch.setattr(SharedEffects, "wait", noted)
    async with scene(client, ASK) as at:
        at.acting.replies.append(BUSY)
        run = await at.pack.start(at.flow("slow-write", keyed=True))
        ((identity, _),) = await asked_of_run(run)
        await resolve(run, identity, ACCEPT)
        await at.acting.until_asked(2)
        await waits[-1].close()
        at.acting.let_go.set()
        _, found = await at.pack.end(run)
        assert scheduled(found) == ["a:1", "a:2", "a:3"]
        (record,) = activity_results(found)
        assert "openwop-mcp.shared" not in record.metadata
        assert len(at.acting.asked) == 2


async def test_a_run_whose_question_was_settled_by_another_meanwhile_has_that_outcome_whatever_it_is_answered(client):
    async with scene(client, ASK) as at:
        run, identity = await suspended(at, keyed=True)
        other = await at.pack.start(at.flow("write", keyed=True))
        ((others, _),) = await asked_of_run(other)
        await resolve(run, identity, done(EDITED))
        await at.pack.end(run)
        await resolve(other, others, ACCEPT)
        log, found = await at.pack.end(other)
        assert log[-1].type == "run.completed"
        assert [one.data for one in activity_results(found)] == [EDITED]
        assert len(at.acting.asked) == 1


WRONG = [
    (b'{"action":"maybe"}', "validation_error"),
    (b'{"action":"edit-accept"}', "validation_error"),
    (b'{"action":"edit-accept","editedArtifactData":[1]}', "validation_error"),
    (b"null", "validation_error"),
    (b'"accept"', "validation_error"),
    (b'{"action":"accept","action":"reject"}', "validation_error"),
]


async def test_what_is_no_answer_is_refused_and_the_run_still_waits(client):
    async with scene(client, ASK) as at:
        run, identity = await suspended(at, keyed=False)
        before = await chain(client, run.id)
        for value, code in WRONG:
            assert await refusal(run, Resolution(identity, value, ALICE).encode()) == code
        for given in (
            b"[]",
            b"{}",
            b'{"interruptId":"x"}',
            b'"x"',
            b'{"interruptId":7,"resumeValue":1,"resolvedBy":{}}',
        ):
            assert await refusal(run, given) in {"validation_error", "not_found"}
        assert await refusal(run, Resolution("acme/other", ACCEPT, ALICE).encode()) == "not_found"
        assert len((await chain(client, run.id))[0].events) == len(before[0].events)
        await resolve(run, identity, ACCEPT)
        log, _ = await at.pack.end(run)
        assert log[-1].type == "run.completed"


async def test_what_is_no_answer_is_refused_and_the_author_s_workflow_still_waits(client):
    async with scene(client, ASK) as at:
        at.acting.replies.append(BUSY)
        flow = await at.author(Call("call_tool", ["fake", "write"]))
        (one,) = await asked_of_author(flow)
        for value, code in WRONG:
            assert await refusal(flow, Resolution(one.interrupt_id, value, ALICE).encode()) == code
        for given in (
            b"[]",
            b"{}",
            b'{"interruptId":"x"}',
            b'"x"',
            b'{"interruptId":[7],"resumeValue":1,"resolvedBy":{}}',
        ):
            assert await refusal(flow, given) in {"validation_error", "not_found"}
        assert await refusal(flow, Resolution("acme/other", ACCEPT, ALICE).encode()) == "not_found"
        await resolve(flow, one.interrupt_id, ACCEPT)
        (outcome,) = await flow.result()
        assert outcome.raw == '{"content":[], "n":2.0}'


@pytest.mark.parametrize("graph", [True, False], ids=["graph", "author"])
async def test_a_result_that_does_not_fit_beside_the_call_is_refused_and_one_that_does_is_taken(client, graph):
    text = json.dumps({"x": "y" * 1_200_000})
    large, small = (b'{"content":[],"x":"' + b"z" * size + b'"}' for size in (1_000_000, 700_000))
    async with scene(client, ASK) as at:
        at.acting.replies.append(BUSY)
        if graph:
            flow = at.flow("write")
            flow["nodes"][0]["inputs"] = {"arguments": {"type": "static", "value": json.loads(text)}}
            handle: WorkflowHandle[Any, Any] = await at.pack.start(flow, heartbeat_timeout=10)
            ((identity, _),) = await asked_of_run(handle)
        else:
            handle = await at.author(Call("call_tool", ["fake", "write"], text=text))
            (one,) = await asked_of_author(handle)
            identity = one.interrupt_id
        assert await refusal(handle, Resolution(identity, done(large), ALICE).encode()) == "validation_error"
        await resolve(handle, identity, done(small))
        await asyncio.wait_for(handle.result(), PATIENCE)
        assert [one.data for one in activity_results(await chain(client, handle.id))] == [small]


async def test_of_two_answers_at_once_exactly_one_is_taken(client, live):
    async with scene(client, ASK) as at:
        run, identity = await suspended(at, keyed=False)
        results = [b'{"content":[],"by":%d}' % number for number in range(4)]
        answers = await asyncio.gather(*(resolve(run, identity, done(one)) for one in results), return_exceptions=True)
        taken = [one for one, answer in zip(results, answers, strict=True) if answer is None]
        refused = [answer for answer in answers if answer is not None]
        log, found = await at.pack.end(run)
        assert [one.data for one in activity_results(found)] == taken
        assert len(taken) == 1
        assert all(isinstance(one, WorkflowUpdateFailedError) for one in refused)
        assert types(log).count("interrupt.resolved a") == 1
        await sound(live, at, log, found)


async def test_branches_wait_each_with_a_question_of_their_own_and_other_runs_go_on(client, live):
    async with scene(client, ASK) as at:
        at.acting.replies += [BUSY, BUSY]
        run = await at.pack.start(at.flow("write", "write"))
        asked = await asked_of_run(run, 2)
        read, _ = await at.pack.run(at.flow("write"))
        assert read[-1].type == "run.completed"
        for (identity, _), answer in zip(asked, [done(EDITED), REJECT], strict=True):
            await resolve(run, identity, answer)
        log, found = await at.pack.end(run)
        assert len(activity_results(found)) == 1
        assert log[-1].type == "run.failed"
        assert len(at.acting.asked) == 3
        await sound(live, at, log, found)


async def test_a_run_waits_through_a_restart_of_its_worker(client):
    async with scene(client, ASK) as at:
        queue = f"again-{uuid.uuid4().hex}"
        async with pack_worker(client, at.pack.settings, task_queue=queue) as first:
            at.acting.replies.append(BUSY)
            run = await first.start(at.flow("write"))
            ((identity, payload),) = await asked_of_run(run)
        async with pack_worker(client, at.pack.settings, task_queue=queue) as second:
            await resolve(run, identity, ACCEPT)
            log, found = await second.end(run)
    assert payload["kind"] == "approval"
    assert log[-1].type == "run.completed"
    assert scheduled(found) == ["a:1", "a:2"]
    assert len(at.acting.asked) == 2


async def test_a_run_that_is_cancelled_while_it_waits_ends_at_once_and_sends_nothing(client, live):
    async with scene(client, ASK) as at:
        run, identity = await suspended(at, keyed=False)
        await run.cancel()
        log, found = await at.pack.end(run)
        assert types(log) == [*SUSPENDED, "node.cancelled a", "run.cancelled"]
        with pytest.raises(RPCError):
            await resolve(run, identity, ACCEPT)
        assert len(at.acting.asked) == 1
        await sound(live, at, log, found)


async def test_an_author_s_workflow_that_is_cancelled_while_it_waits_shows_no_question_any_more(client):
    async with scene(client, ASK) as at:
        at.acting.replies.append(BUSY)
        flow = await at.author(Call("call_tool", ["fake", "write"]))
        await asked_of_author(flow)
        await flow.cancel()
        with pytest.raises(WorkflowFailureError) as caught:
            await flow.result()
        assert isinstance(caught.value.cause, CancelledError)
        assert MEMO not in await (await flow.describe()).memo()
        assert len(at.acting.asked) == 1


async def test_where_nothing_happened_nobody_is_asked(client):
    async with scene(client, ASK) as at:
        at.acting.replies.append(Reply(429, headers=[("Retry-After", "0")]))
        log, found = await at.pack.run(at.flow("write"))
    assert "interrupt.requested a" not in types(log)
    assert log[-1].type == "run.completed"
    assert scheduled(found) == ["a:1", "a:2"]


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_with_resend_a_doubt_is_sent_again_and_nobody_is_asked(client, keyed):
    async with scene(client, {"*": {"on_doubt": "resend"}}) as at:
        at.acting.replies.append(BUSY)
        log, found = await at.pack.run(at.flow("write", keyed=keyed))
        assert log[-1].type == "run.completed"
        assert "interrupt.requested a" not in types(log)
        assert [one.data for one in activity_results(found)] == [b'{"content":[], "n":2.0}']
        assert len(at.acting.asked) == 2
        assert len({request.header("idempotency-key") for request in at.acting.asked}) == 1


async def test_an_answer_that_comes_with_something_else_while_no_worker_runs_finds_its_question(client, live):
    async with scene(client, ASK) as at:
        queue = f"again-{uuid.uuid4().hex}"
        flow = at.flow("write", "write")
        flow["nodes"].append(node("wait", "core.delay", config={"delayMs": 2500}))
        late = Reply(headers=[("Content-Type", "text/event-stream")], chunks=[at.acting.let_go, b":"], abort_after=1)
        async with pack_worker(client, at.pack.settings, task_queue=queue) as first:
            at.acting.replies += [BUSY, late]
            run = await first.start(flow)
            ((one, _),) = await asked_of_run(run)
            at.acting.let_go.set()
            _, (other, _) = await asked_of_run(run, 2)
        # Temporal notes the task of the answer first, then the timer. To the SDK, what came before it is then no task
        # of its own, unless it has left something in history.
        answer = asyncio.create_task(resolve(run, other, done(EDITED)))
        async for event in run.fetch_history_events(wait_new_event=True):
            if event.HasField("timer_fired_event_attributes"):
                break
        async with pack_worker(client, at.pack.settings, task_queue=queue) as second:
            await asyncio.wait_for(answer, PATIENCE)
            await resolve(run, one, done(EDITED))
            log, found = await asyncio.wait_for(second.end(run), PATIENCE)
        assert log[-1].type == "run.completed"
        assert len(at.acting.asked) == 2
        await sound(live, at, log, found)


async def test_an_answer_and_a_cancel_that_come_while_no_worker_runs_are_told_as_they_were_taken(client, live):
    async with scene(client, ASK) as at:
        queue = f"again-{uuid.uuid4().hex}"
        async with pack_worker(client, at.pack.settings, task_queue=queue) as first:
            at.acting.replies.append(BUSY)
            run = await first.start(at.flow("write"))
            ((identity, _),) = await asked_of_run(run)
        answer = asyncio.create_task(resolve(run, identity, ACCEPT))
        await run.cancel()
        async with pack_worker(client, at.pack.settings, task_queue=queue) as second:
            log, found = await asyncio.wait_for(second.end(run), PATIENCE)
        await asyncio.gather(answer, return_exceptions=True)
        assert log[-1].type == "run.cancelled"
        assert len(at.acting.asked) == 1
        await sound(live, at, log, found)


async def test_a_run_that_waits_is_still_listed_as_waiting_in_its_next_history(short_client, live):
    names = [f"n{index}" for index in range(14)]
    calls = [node(name, config={"serverId": "fake", "name": "write"}) for name in names]
    edges = [edge(one, other) for one, other in itertools.pairwise(names)]
    asks = node("asks", config={"serverId": "fake", "name": "asks"})
    async with scene(short_client, {"asks": {"on_doubt": "ask"}}) as at:
        at.acting.doubtful.add("asks")
        run = await at.pack.start(workflow([asks, *calls], edges))
        await at.acting.until_asked(1 + len(names))
        latest = short_client.get_workflow_handle(run.id)
        assert len(await chain(short_client, run.id)) > 1
        assert await waits_for_answers(short_client, run.id)
        (waiting,) = (await read_run(short_client, run.id)).interrupts
        await resolve(latest, waiting.interrupt_id, ACCEPT)
        log, found = await at.pack.end(latest)
        assert log[-1].type == "run.completed"
        assert not await waits_for_answers(short_client, run.id)
        await sound(live, at, log, found)
