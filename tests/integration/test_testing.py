"""`openwop_mcp.testing`: what an author's own tests see is what real calls would have given."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHandle, WorkflowHistory, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from openwop_mcp import RetryPolicy, Verbatim, testing
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import ConnectError, ConnectionLostError, RateLimitedError, RpcError
from openwop_mcp.protocol.mrtr import MalformedInputError
from openwop_mcp.runs.records import records
from openwop_mcp.testing import FakeCall, FakeMcp, answer, asks, form, pending, visit
from tests.support import exact
from tests.support.asking_flows import Asker
from tests.support.asking_flows import Call as AskerCall
from tests.support.author_flows import Author, Call, Calls, Told
from tests.support.graphs import node, workflow
from tests.support.pack import Pack, activity_results, scheduled, types
from tests.support.patience import PATIENCE
from workflows import RunWorkflow

QUICK = RetryPolicy(attempts=3, max_wait=0, total=1)


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing, "PATIENCE", PATIENCE)


@contextlib.asynccontextmanager
async def faked(client: Client, fake: FakeMcp) -> AsyncIterator[str]:
    queue = f"fake-{uuid.uuid4().hex}"
    async with Worker(client, task_queue=queue, workflows=[Author, Asker, RunWorkflow], activities=fake.activities):
        yield queue


async def ask(client: Client, fake: FakeMcp, *calls: Call) -> tuple[list[Told], WorkflowHistory]:
    async with faked(client, fake) as queue:
        handle = await client.start_workflow(
            Author.run, Calls(list(calls), queue), id=f"author-{uuid.uuid4().hex}", task_queue=queue
        )
        return await handle.result(), await handle.fetch_history()


async def test_a_result_is_given_as_a_mapping_as_bytes_or_as_verbatim_and_the_calls_are_kept(client):
    fake = FakeMcp(
        {
            "fake": {
                "one": {"content": [], "n": 1},
                "two": exact.RESULT,
                "three": Verbatim(exact.RESULT),
                "listTools": exact.PAGE,
                "fake://one": exact.RESOURCE,
                "serverHealth": {"state": "unreachable"},
                "greet": exact.PROMPT,
                "listResources": exact.RESOURCES,
                "listResourceTemplates": exact.TEMPLATES,
                "listPrompts": exact.PROMPTS,
                "complete": exact.COMPLETED,
            }
        }
    )
    told, history = await ask(
        client,
        fake,
        Call("call_tool", ["fake", "one"], text=exact.ARGUMENTS.decode(), key="order-1"),
        Call("call_tool", ["fake", "two"]),
        Call("call_tool", ["fake", "three"]),
        Call("list_tools", ["fake", ""]),
        Call("read_resource", ["fake", "fake://one"]),
        Call("server_health", ["fake"]),
        Call("get_prompt", ["fake", "greet"], text=exact.PROMPT_ARGUMENTS.decode()),
        Call("list_resources", ["fake"]),
        Call("list_resource_templates", ["fake", ""]),
        Call("list_prompts", ["fake", "é"]),
        Call("complete", ["fake"], texts=['{"type":"ref/prompt"}', '{"name":"who"}'], context='{"n":1.10}'),
    )
    assert [payload.data for payload in activity_results(history)] == [
        b'{"content":[],"n":1}',
        exact.RESULT,
        exact.RESULT,
        exact.PAGE,
        exact.RESOURCE,
        b'{"state":"unreachable"}',
        exact.PROMPT,
        exact.RESOURCES,
        exact.TEMPLATES,
        exact.PROMPTS,
        exact.COMPLETED,
    ]
    assert told[5].code == "unreachable"
    assert fake.calls[0] == FakeCall("callTool", "fake", "one", exact.ARGUMENTS, None, "order-1", 1)
    assert fake.calls[1].arguments is None
    assert [call.cursor for call in fake.calls[3:]] == ["", None, None, None, None, "", "é", None]
    assert fake.calls[6] == FakeCall("getPrompt", "fake", "greet", exact.PROMPT_ARGUMENTS, None, None, 1)
    completion = b'{"ref":{"type":"ref/prompt"},"argument":{"name":"who"},"context":{"n":1.10}}'
    assert fake.calls[10] == FakeCall("complete", "fake", "", completion, None, None, 1)
    assert [record.intact for record in records(history.events)] == [True] * 11


async def test_a_sequence_is_told_one_by_one_and_errors_are_retried_as_real_ones(client):
    lost = ConnectionLostError("the connection broke")
    fake = FakeMcp(
        {"fake": {"read": [lost, RateLimitedError("slow down", retry_after=0), {"content": []}]}},
        repeat_safe=True,
        retry=QUICK,
    )
    told, history = await ask(client, fake, Call("call_tool", ["fake", "read"]), Call("call_tool", ["fake", "read"]))
    assert [one.code for one in told] == [None, None]
    assert [call.attempt for call in fake.calls] == [1, 2, 3, 1]
    assert len(scheduled(history)) == 4


async def test_an_error_after_which_the_effect_may_have_happened_is_in_doubt_unless_a_repeat_is_safe(client):
    fake = FakeMcp({"fake": {"write": ConnectionLostError("the connection broke")}}, retry=QUICK)
    told, _ = await ask(client, fake, Call("call_tool", ["fake", "write"]))
    assert told[0].in_doubt
    assert told[0].delivery == Delivery.UNKNOWN
    assert len(fake.calls) == 1


async def test_nothing_sent_is_tried_again_until_the_attempts_are_used_up(client):
    fake = FakeMcp({"fake": {"write": ConnectError("no connection")}}, retry=QUICK)
    told, _ = await ask(client, fake, Call("call_tool", ["fake", "write"]))
    assert not told[0].in_doubt
    assert "retry.attempts" in str(told[0].message)
    assert len(fake.calls) == 3


async def test_an_error_of_the_server_keeps_its_bytes(client):
    error = b'{"code":-32000, "message":"no","n":1e400}'
    refusal = RpcError("no", rpc_code=-32000, error=error, http_status=200, not_processed=False)
    told, _ = await ask(client, FakeMcp({"fake": {"one": refusal}}), Call("call_tool", ["fake", "one"]))
    assert told[0].code == "mcp_error"
    assert told[0].error == error.decode()


async def test_what_is_not_given_is_refused_as_a_real_server_would(client):
    fake = FakeMcp({"fake": {}})
    told, _ = await ask(client, fake, Call("call_tool", ["other", "one"]), Call("call_tool", ["fake", "two"]))
    assert [one.code for one in told] == ["not_found", "mcp_error"]


async def test_a_function_answers_each_call_also_as_a_coroutine(client):
    def one(call: FakeCall) -> bytes:
        return call.arguments or b"{}"

    async def two(call: FakeCall) -> ConnectError | dict[str, int]:
        return ConnectError("not yet") if call.attempt == 1 else {"attempt": call.attempt}

    fake = FakeMcp({"fake": {"one": one, "two": two}}, retry=QUICK)
    told, _ = await ask(
        client, fake, Call("call_tool", ["fake", "one"], text='{"n":1.10}'), Call("call_tool", ["fake", "two"])
    )
    assert [one.raw for one in told] == ['{"n":1.10}', '{"attempt":2}']


async def test_graphs_run_on_the_same_fakes(client):
    fake = FakeMcp({"fake": {"one": exact.RESULT}})
    async with faked(client, fake) as queue:
        log, found = await Pack(client, queue).run(
            workflow([node("a", config={"serverId": "fake", "name": "one"}), node("b", "core.conformance.mcp-client")])
        )
    assert [payload.data for payload in activity_results(found)] == [exact.RESULT]
    assert types(log)[-1] == "run.failed"
    assert len(fake.calls) == 1


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


async def asker(client: Client, queue: str, *calls: AskerCall) -> WorkflowHandle[Any, Any]:
    return await client.start_workflow(
        Asker.run, args=[list(calls), queue], id=f"asker-{uuid.uuid4().hex}", task_queue=queue
    )


async def test_a_fake_server_asks_and_the_test_answers_as_a_person_would(client):
    fake = FakeMcp(
        {
            "fake": {
                "book": [
                    asks({"where": form("Which city?", CITY), "sign": visit("Sign in", "https://bank.example/")}),
                    asks({}),
                    exact.RESULT,
                ]
            }
        }
    )
    async with faked(client, fake) as queue:
        flow = await asker(client, queue, AskerCall("call_tool", ["fake", "book"], key="order-7"))
        wrong = {"where": {"action": "accept", "content": {}}, "sign": {"action": "accept"}}
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await answer(flow, wrong)
        assert isinstance(caught.value.cause, ApplicationError)
        assert caught.value.cause.type == "validation_error"
        (one,) = await pending(flow)
        assert one.payload.get("kind") == "clarification"
        right = b'{"sign":{"action":"decline"},"where":{"action":"accept","content":{"city":"Bern", "n":1.10}}}'
        assert await answer(flow, right, one) == one
        (told,) = await flow.result()
    assert told.raw == exact.RESULT.decode()
    assert [call.responses for call in fake.calls] == [
        None,
        b'{"where":{"action":"accept","content":{"city":"Bern", "n":1.10}},"sign":{"action":"decline"}}',
        None,
    ]


async def test_a_fake_call_waits_for_approval_before_it_arrives(client):
    fake = FakeMcp({"fake": {"pay": {"content": []}}}, approval=["fake.pay"])
    async with faked(client, fake) as queue:
        calls = [AskerCall("call_tool", ["fake", "pay", {"amount": amount}]) for amount in (1, 2)]
        flow = await asker(client, queue, *calls)
        first = await answer(flow, {"action": "accept"})
        # Of calls made at once either may come first.
        amount = first.payload.value["data"]["artifactData"]["arguments"]["amount"]
        await answer(flow, {"action": "reject"})
        told = await flow.result()
    accepted, rejected = told if amount == 1 else told[::-1]
    assert (accepted.raw, rejected.code) == ('{"content":[]}', "approval_rejected")
    assert [call.arguments for call in fake.calls] == [b'{"amount":%d}' % amount]


async def test_a_fake_server_that_asks_what_was_declined_ends_the_call(client):
    fake = FakeMcp({"fake": {"again": asks({"where": form("Which city?", CITY)})}})
    async with faked(client, fake) as queue:
        flow = await asker(client, queue, AskerCall("call_tool", ["fake", "again"]))
        await answer(flow, {"where": {"action": "decline"}})
        (told,) = await flow.result()
    assert told.code == "mcp_mrtr_rounds_exceeded"


async def test_what_may_not_be_asked_fails_the_call(client):
    sampling = {"resultType": "input_required", "inputRequests": {"a": {"method": "elicitation/create"}}}
    told, _ = await ask(client, FakeMcp({"fake": {"one": sampling}}), Call("call_tool", ["fake", "one"]))
    assert (told[0].code, told[0].delivery) == ("upstream_unavailable", "answered")
    with pytest.raises(MalformedInputError):
        asks({"a": {"method": "elicitation/create", "params": {"message": "?"}}})


@pytest.mark.parametrize("told", ["rain", 1, [b"{}", "rain"], RuntimeError("x")])
def test_an_answer_that_is_no_result_is_refused_when_the_fake_is_made(told):
    with pytest.raises(TypeError, match="the answer of 'weather' to 'get_forecast' is of type"):
        FakeMcp({"weather": {"get_forecast": told}})


async def test_calls_that_share_a_key_are_one_effect_and_other_arguments_are_refused(client):
    fake = FakeMcp({"fake": {"pay": [{"n": 1}, {"n": 2}], "other": {"n": 3}}})
    told, _ = await ask(
        client,
        fake,
        Call("call_tool", ["fake", "pay", {"amount": 10, "to": "a"}], key="order-1"),
        Call("call_tool", ["fake", "pay"], text='{"to":"a", "amount":1e1}', key="order-1"),
        Call("call_tool", ["fake", "pay", {"amount": 11, "to": "a"}], key="order-1"),
        Call("call_tool", ["fake", "pay", {"amount": 11, "to": "a"}], key="order-2"),
        Call("call_tool", ["fake", "other"], key="order-1"),
    )
    assert [one.raw for one in told] == ['{"n":1}', '{"n":1}', None, '{"n":2}', '{"n":3}']
    assert (told[2].code, told[2].delivery) == ("idempotency_key_mismatch", "not_sent")
    assert [call.idempotency_key for call in fake.calls] == ["order-1", "order-2", "order-1"]


async def test_calls_that_share_a_key_share_a_doubt_and_what_was_not_sent_leaves_the_key_free(client):
    lost, nobody = ConnectionLostError("the connection broke"), ConnectError("no connection")
    fake = FakeMcp({"fake": {"lost": [lost, {}], "nobody": [nobody, {}]}}, retry=RetryPolicy(attempts=1))
    told, _ = await ask(
        client,
        fake,
        Call("call_tool", ["fake", "lost"], key="order-1"),
        Call("call_tool", ["fake", "lost"], key="order-1"),
        Call("call_tool", ["fake", "nobody"], key="order-1"),
        Call("call_tool", ["fake", "nobody", {"a": 1}], key="order-1"),
    )
    assert [one.in_doubt for one in told] == [True, True, False, False]
    assert [one.raw for one in told] == [None, None, None, "{}"]
    assert [call.subject for call in fake.calls] == ["lost", "nobody", "nobody"]


async def test_of_calls_that_share_a_key_and_are_made_at_once_one_arrives(client):
    arrived = 0

    async def pay(_: FakeCall) -> dict[str, int]:
        nonlocal arrived
        arrived += 1
        await asyncio.sleep(0)
        return {"n": arrived}

    async with faked(client, FakeMcp({"fake": {"pay": pay}})) as queue:
        calls = Calls([Call("call_tool", ["fake", "pay"], key="order-1")] * 3, queue, parallel=True)
        told = await client.execute_workflow(Author.run, calls, id=f"author-{uuid.uuid4().hex}", task_queue=queue)
    assert [one.raw for one in told] == ['{"n":1}'] * 3


def test_a_sequence_of_no_answers_is_refused_when_the_fake_is_made():
    with pytest.raises(ValueError, match="the answers of 'weather' to 'get_forecast' are none"):
        FakeMcp({"weather": {"get_forecast": []}})


def test_an_approval_that_is_one_text_is_refused_when_the_fake_is_made():
    with pytest.raises(TypeError, match="approval: give a collection"):
        FakeMcp({"fake": {"pay": {}}}, approval="fake.pay")
