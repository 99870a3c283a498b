"""Calls whose servers ask before they act, and calls that a person approves: what is sent and recorded, and when."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError

from openwop_mcp import jsontext
from openwop_mcp.calls import CallRequest
from openwop_mcp.effects.shared import effect_workflow_id
from openwop_mcp.protocol import mrtr
from openwop_mcp.runs.ledger import effect_attempts
from openwop_mcp.runs.records import made_calls, records
from tests.integration.test_resets import first_after, reset
from tests.support.doubts import BUSY, Scene, scene
from tests.support.fake_server import Reply, Request, result_reply
from tests.support.pack import activity_results, chain
from tests.support.patience import PATIENCE
from tests.support.rounds import Outcome, Rounds, begin
from workflows.client import effect_ledger
from workflows.replay import replay

STATE = b'"e30=\\u0000 \xc3\xbc\\/"'
QUESTION = (
    b'{"method":"elicitation/create","params":{ "message":"Which \\u00e9?", "requestedSchema":{"type":"object"}}}'
)
ASKED = b'{"resultType":"input_required", "inputRequests":{"q":%b},"requestState":%b, "n":1.10}' % (QUESTION, STATE)
AGAIN = b'{"resultType":"input_required","inputRequests":{"r":%b}}' % QUESTION
STATE_ONLY = b'{"resultType":"input_required","requestState":"s"}'
DONE = b'{"content":[], "n":1.10}'
ARGUMENTS = b'{"x":1.10}'
ANSWER = '{"q":{"action":"accept","content":{"n":1.10}}}'
CALL = CallRequest("callTool", "fake", name="write", suspends=True)
READ = replace(CALL, name="read")
TOOLS: dict[str, Any] = {
    "*": {},
    "read*": {"safety_tier": "read"},
    "asked*": {"on_doubt": "ask"},
    "guarded*": {"approval": "write"},
}


def says(result: bytes) -> Any:
    return lambda request: result_reply(request, result)


def params(request: Request) -> dict[str, bytes]:
    found = jsontext.member(request.body, "params")
    assert found is not None
    return {name: value for name, value in jsontext.members(found) if name != "_meta"}


async def run(at: Scene, request: CallRequest, **given: Any) -> tuple[WorkflowHandle[Any, Any], list[Outcome]]:
    handle = await begin(at.client, at.pack, request, ARGUMENTS, **given)
    return handle, await asyncio.wait_for(handle.result(), PATIENCE)


async def told(handle: WorkflowHandle[Any, Any], times: int) -> list[Outcome]:
    """Wait until so much has come of a call."""

    async def wait() -> list[Outcome]:
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.HasField("workflow_task_completed_event_attributes"):
                found: list[Outcome] = await handle.query(Rounds.told)
                if len(found) >= times:
                    return found
        raise AssertionError("the workflow ended before")

    return await asyncio.wait_for(wait(), PATIENCE)


async def rows(at: Scene, handle: WorkflowHandle[Any, Any]) -> list[tuple[int, str | None, str | None]]:
    """The ledger: attempt, state, and what it ended with where that is no outcome."""
    ledger = await effect_ledger(at.client, handle.id, tenant="acme")
    return [(one.attempt, one.state, one.interim) for one in ledger]


async def test_each_round_is_recorded_verbatim_and_the_repeat_has_the_answers_the_exact_state_and_the_same_effect(
    client: Client,
) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(ASKED), says(AGAIN), says(DONE)]
        handle, outcomes = await run(at, CALL, answers=[ANSWER, '{"r":{"action":"cancel"}}'])
        found = await chain(client, handle.id)
        first, second, third = at.acting.asked
        assert [payload.data for payload in activity_results(found)] == [ASKED, AGAIN, DONE]
        assert [one.interim for one in outcomes] == ["input", "input", None]
        assert params(second) == {**params(first), "inputResponses": ANSWER.encode(), "requestState": STATE}
        assert params(third) == {**params(first), "inputResponses": b'{"r":{"action":"cancel"}}'}
        assert len({request.json["id"] for request in at.acting.asked}) == 3
        assert len({request.header("Idempotency-Key") for request in at.acting.asked}) == 1
        assert len({one.provenance["openwop-mcp.effect-id"] for one in outcomes}) == 1
        assert [one.provenance["openwop-mcp.attempt"] for one in outcomes] == ["1", "2", "3"]
        assert await rows(at, handle) == [(1, "released", "input"), (2, "released", "input"), (3, "completed", None)]
        events = [event for history in found for event in history.events]
        assert [(record.asks, record.intact) for record in records(events)] == [
            (True, True),
            (True, True),
            (False, True),
        ]
        (call,) = made_calls([events])
        assert (call.outcome, call.attempts, call.asks) == ("ok", 3, None)
        for verdict in await replay(found, [Rounds]):
            assert verdict.sound, verdict.prose()
        assert len(at.acting.asked) == 3


async def test_a_request_declares_what_its_caller_can_be_asked_and_one_that_cannot_suspend_declares_nothing(
    client: Client,
) -> None:
    key = "io.modelcontextprotocol/clientCapabilities"
    async with scene(client, TOOLS, Rounds) as at:
        await run(at, CALL)
        await run(at, replace(CALL, suspends=False))
        sent = [request.json["params"]["_meta"][key] for request in at.acting.asked]
        assert sent == [{"elicitation": {"form": {}, "url": {}}}, {}]
        at.acting.replies = [says(ASKED)]
        _, (refused,) = await run(at, replace(CALL, suspends=False))
        assert refused.code == "upstream_unavailable"
        assert len(at.acting.asked) == 3


async def test_a_server_that_asks_for_ever_is_asked_once_more_than_it_may_ask(client: Client) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(ASKED)] * 40
        handle, outcomes = await run(at, CALL, answers=[ANSWER])
        assert len(at.acting.asked) == 9
        assert [one.interim for one in outcomes[:-1]] == ["input"] * 8
        end = outcomes[-1]
        assert end.code == "mcp_mrtr_rounds_exceeded"
        assert end.message is not None
        assert "host.mrtr_max_rounds" in end.message
        assert end.facts is not None
        facts = json.loads(end.facts)
        assert (facts["delivery"], facts["rounds"], facts["limit"], facts["retryable"]) == ("answered", 9, 8, False)
        assert "e30=" not in end.message + end.facts
        assert (await rows(at, handle))[-1] == (9, "completed", None)


async def test_a_state_alone_goes_back_without_answers(client: Client) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(STATE_ONLY), says(DONE)]
        handle, _ = await run(at, CALL)
        assert params(at.acting.asked[1]) == {**params(at.acting.asked[0]), "requestState": b'"s"'}
        assert await rows(at, handle) == [(1, "released", "input"), (2, "completed", None)]


async def test_what_a_person_declined_is_not_asked_again_however_it_is_spelled(client: Client) -> None:
    (asked,) = mrtr.read(ASKED).requests.items()
    respelled = (
        b'{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":'
        b'{"requestedSchema":{"type":"object"},"message":"Which \xc3\xa9?"}}},"requestState":"another"}'
    )
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(ASKED), says(AGAIN), says(respelled)]
        answers = ['{"q":{"action":"decline"}}', '{"r":{"action":"accept","content":{}}}']
        _, outcomes = await run(at, CALL, answers=answers, declined=[mrtr.request_digest(*asked)])
        assert [one.interim for one in outcomes] == ["input", "input", None]
        assert outcomes[-1].code == "mcp_mrtr_rounds_exceeded"
        assert "declined" in (outcomes[-1].message or "")
        assert len(at.acting.asked) == 3


@pytest.mark.parametrize("method", ["sampling/createMessage", "roots/list"])
async def test_a_server_that_asks_for_what_was_not_declared_gets_no_answer(client: Client, method: str) -> None:
    asks = b'{"resultType":"input_required","inputRequests":{"q":%b,"s":{"method":"%b"}}}' % (QUESTION, method.encode())
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(asks)]
        _, (outcome,) = await run(at, CALL, answers=[ANSWER])
        assert outcome.code == "upstream_unavailable"
        assert method in (outcome.message or "")
        assert len(at.acting.asked) == 1


async def test_a_write_whose_answer_is_lost_in_its_second_round_is_in_doubt_and_not_sent_again(client: Client) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(ASKED), BUSY]
        handle, (_, end) = await run(at, CALL, answers=[ANSWER])
        assert end.message is not None
        assert "the effect may have happened" in end.message
        assert len(at.acting.asked) == 2
        assert await rows(at, handle) == [(1, "released", "input"), (2, "escaped", None)]


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_leave_to_send_again_after_a_doubt_sends_the_answers_of_that_round_again(
    client: Client, keyed: bool
) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(ASKED), BUSY, says(DONE)]
        request = replace(CALL, name="asked", idempotency_key=at.key if keyed else None)
        _, outcomes = await run(at, request, answers=[ANSWER])
        assert [one.interim for one in outcomes] == ["input", None, None]
        assert outcomes[-1].raw == DONE.decode()
        assert params(at.acting.asked[1]) == params(at.acting.asked[2])
        assert params(at.acting.asked[2])["requestState"] == STATE


async def test_a_read_is_retried_within_its_round_and_each_round_counts_its_own_attempts(client: Client) -> None:
    async with scene(client, TOOLS, Rounds, retry={"attempts": 2, "max_wait": 0.01}) as at:
        at.acting.replies = [BUSY, says(ASKED), BUSY, says(DONE)]
        handle, outcomes = await run(at, READ, answers=[ANSWER])
        assert outcomes[-1].raw == DONE.decode()
        assert outcomes[-1].provenance["openwop-mcp.attempt"] == "4"
        assert params(at.acting.asked[2]) == params(at.acting.asked[3])
        assert params(at.acting.asked[3])["inputResponses"] == ANSWER.encode()
        (call,) = made_calls([history.events for history in await chain(client, handle.id)])
        assert (call.outcome, call.attempts) == ("ok", 4)
        at.acting.replies = [BUSY, says(ASKED), BUSY, BUSY]
        handle, outcomes = await run(at, READ, answers=[ANSWER])
        assert "retry.attempts" in (outcomes[-1].message or "")
        (call,) = made_calls([history.events for history in await chain(client, handle.id)])
        assert (call.outcome, call.attempts) == ("failed", 4)


async def test_a_call_that_waits_for_an_answer_is_told_as_suspended(client: Client) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(ASKED), says(DONE)]
        handle = await begin(client, at.pack, CALL, ARGUMENTS, answers=[ANSWER], waits=True)
        await told(handle, 1)
        (call,) = made_calls([history.events for history in await chain(client, handle.id)])
        assert call.outcome == "suspended"
        assert call.asks is not None
        assert call.asks.raw == ASKED
        await handle.terminate()
        (call,) = made_calls([history.events for history in await chain(client, handle.id)])
        assert call.outcome == "cancelled"
        assert len(at.acting.asked) == 1


async def test_both_callers_of_a_shared_effect_are_asked_and_the_first_answer_is_sent(client: Client) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(ASKED), says(DONE)]
        request = replace(CALL, idempotency_key=at.key)
        both = [
            await begin(client, at.pack, request, ARGUMENTS, answers=[json.dumps({"q": who})], waits=True)
            for who in ("first", "second")
        ]
        asked = [await told(handle, 1) for handle in both]
        assert [(one.raw, one.provenance["openwop-mcp.effect-round"]) for (one,) in asked] == [
            (ASKED.decode(), "0")
        ] * 2
        assert {one.provenance.get("openwop-mcp.shared") for (one,) in asked} == {None, "true"}
        for handle in both:
            await handle.signal(Rounds.go_on)
            outcomes = await asyncio.wait_for(handle.result(), PATIENCE)
            assert outcomes[-1].raw == DONE.decode()
        assert params(at.acting.asked[1])["inputResponses"] == b'{"q": "first"}'
        assert len(at.acting.asked) == 2
        expected = [(1, "released", "input"), (2, "completed", None)]
        assert [await rows(at, handle) for handle in both] == [expected] * 2


async def test_a_caller_that_cannot_suspend_is_told_so_where_a_shared_effect_asks(client: Client) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(ASKED)]
        request = replace(CALL, idempotency_key=at.key)
        handle = await begin(client, at.pack, request, ARGUMENTS, answers=[ANSWER], waits=True)
        await told(handle, 1)
        _, (outcome,) = await run(at, replace(request, suspends=False))
        assert "asks for input" in (outcome.message or "")
        await handle.terminate()
        assert len(at.acting.asked) == 1


async def test_a_second_caller_who_answers_the_doubt_of_a_later_round_has_that_round_sent_again(client: Client) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(ASKED), BUSY, says(DONE)]
        request = replace(CALL, name="asked", idempotency_key=at.key)
        first = await begin(client, at.pack, request, ARGUMENTS, answers=[ANSWER], waits=True)
        await told(first, 1)
        await first.signal(Rounds.go_on)
        await told(first, 2)
        _, outcomes = await run(at, request, answers=['{"q":"never sent"}'])
        assert [one.code for one in outcomes] == ["upstream_unavailable", None]
        assert outcomes[-1].raw == DONE.decode()
        assert params(at.acting.asked[2]) == params(at.acting.asked[1])
        await first.terminate()


async def test_a_reset_goes_on_with_the_last_question_and_sends_no_earlier_round_again(client: Client) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(ASKED), says(AGAIN), says(DONE)]
        handle = await begin(client, at.pack, CALL, ARGUMENTS, answers=[ANSWER], waits=True)
        await told(handle, 1)
        await handle.signal(Rounds.go_on)
        await told(handle, 2)
        # Temporal has it hear again what it was told, so that it answers at once.
        again = await reset(client, handle)
        outcomes = await asyncio.wait_for(
            client.get_workflow_handle_for(Rounds.run, handle.id, run_id=again.run_id).result(), PATIENCE
        )
        assert [one.raw for one in outcomes] == [AGAIN.decode(), DONE.decode()]
        assert outcomes[0].provenance["openwop-mcp.before-reset"] == "true"
        assert "requestState" not in params(at.acting.asked[2])
        assert len(at.acting.asked) == 3


async def test_a_reset_after_the_result_has_it_whatever_round_it_is_reset_to(client: Client) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(ASKED), says(DONE)]
        handle, _ = await run(at, CALL, answers=[ANSWER])
        for point in (first_after(), first_after("activity_task_completed_event_attributes")):
            again = await reset(client, handle, point, handle.first_execution_run_id)
            outcomes = await asyncio.wait_for(
                client.get_workflow_handle_for(Rounds.run, handle.id, run_id=again.run_id).result(), PATIENCE
            )
            assert outcomes[-1].raw == DONE.decode()
            assert outcomes[-1].provenance["openwop-mcp.before-reset"] == "true"
        assert len(at.acting.asked) == 2


async def test_a_reset_while_a_later_round_is_in_doubt_says_so_in_that_round(client: Client) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(ASKED), BUSY]
        handle, _ = await run(at, CALL, answers=[ANSWER])
        again = await reset(client, handle)
        outcomes = await asyncio.wait_for(
            client.get_workflow_handle_for(Rounds.run, handle.id, run_id=again.run_id).result(), PATIENCE
        )
        assert [one.interim for one in outcomes] == ["input", None]
        assert "the effect may have happened" in (outcomes[-1].message or "")
        assert len(at.acting.asked) == 2


async def test_a_reset_does_not_ask_again_about_a_doubt_that_an_earlier_round_was_in(client: Client) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [BUSY, says(ASKED), says(DONE)]
        request = replace(CALL, name="asked")
        handle = await begin(client, at.pack, request, ARGUMENTS, answers=[ANSWER], waits=True)
        await told(handle, 1)
        await handle.signal(Rounds.go_on)
        await told(handle, 2)
        again = await reset(client, handle, first_after("activity_task_completed_event_attributes"))
        await again.signal(Rounds.go_on)
        outcomes = await asyncio.wait_for(
            client.get_workflow_handle_for(Rounds.run, handle.id, run_id=again.run_id).result(), PATIENCE
        )
        assert [one.interim for one in outcomes] == [None, "input", None]
        assert outcomes[-1].raw == DONE.decode()
        assert len(at.acting.asked) == 3


@pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
async def test_a_call_that_needs_approval_sends_and_claims_nothing_until_it_has_it(client: Client, keyed: bool) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(ASKED), says(DONE)]
        request = replace(CALL, name="guarded", idempotency_key=at.key if keyed else None)
        handle = await begin(client, at.pack, request, ARGUMENTS, answers=[ANSWER], waits=True)
        (asked,) = await told(handle, 1)
        assert asked.interim == "approval"
        facts = json.loads(asked.raw or "")
        assert (facts["serverId"], facts["name"], facts["safetyTier"], facts["approval"]) == (
            "fake",
            "guarded",
            "write",
            "write",
        )
        assert facts["keying"] == ("business-identity" if keyed else "activity-recipe")
        assert at.acting.asked == []
        with pytest.raises(RPCError, match="not found"):
            await client.get_workflow_handle(effect_workflow_id(facts["effectId"])).describe()
        events = [event for history in await chain(client, handle.id) for event in history.events]
        assert records(events) == []
        (attempt,) = effect_attempts([events], workflow_id=handle.id, tenant="acme")
        assert (attempt.state, attempt.interim) == ("released", "approval")
        await handle.signal(Rounds.go_on)
        await handle.signal(Rounds.go_on)
        outcomes = await asyncio.wait_for(handle.result(), PATIENCE)
        assert [one.interim for one in outcomes] == ["approval", "input", None]
        assert {request.header("Idempotency-Key") for request in at.acting.asked} == {facts["providerKey"]}


async def test_what_was_approved_as_another_tier_is_asked_about_again(client: Client) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        _, outcomes = await run(at, replace(CALL, name="guarded", approved=b'{"tier":"read"}'))
        assert [one.interim for one in outcomes] == ["approval", None]
        _, outcomes = await run(at, replace(CALL, name="guarded", approved=b'{"tier":"write"}'))
        assert [one.interim for one in outcomes] == [None]


async def test_a_caller_that_cannot_suspend_is_refused_what_needs_approval(client: Client) -> None:
    async with scene(client, TOOLS, Rounds) as at:
        _, (outcome,) = await run(at, replace(CALL, name="guarded", suspends=False))
        assert outcome.code == "forbidden"
        assert "approve" in (outcome.message or "")
        assert at.acting.asked == []


async def test_neither_state_nor_answers_are_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    async with scene(client, TOOLS, Rounds) as at:
        at.acting.replies = [says(ASKED.replace(STATE, b'"st4te-of-the-server"')), Reply(status=400)]
        _, outcomes = await run(at, CALL, answers=['{"q":{"action":"accept","content":{"n":"4nswer"}}}'])
        end = outcomes[-1]
        assert end.code == "upstream_unavailable"
        # At DEBUG the SDK logs every workflow task whole.
        ours = [
            one.getMessage()
            for one in caplog.records
            if one.levelno > logging.DEBUG or not one.name.startswith("temporalio")
        ]
        assert end.message
        said = " ".join([end.message, end.facts or "", *ours])
        assert "st4te" not in said
        assert "4nswer" not in said
