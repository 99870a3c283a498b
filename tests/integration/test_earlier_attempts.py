"""What a person decided and what an earlier attempt did is known to every later one, however those in between ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from openwop_mcp.config import EffectivePolicy
from openwop_mcp.ctx import attempts
from openwop_mcp.effects.identity import by_key
from openwop_mcp.effects.shared import PERFORM, effect_workflow_id
from tests.support.author_flows import Author, Call
from tests.support.doubts import ACCEPT, BUSY, REJECT, Early, Scene, asked_of_author, asked_of_run, done, resolve, scene
from tests.support.fake_server import Reply
from tests.support.pack import activity_results, error_of
from tests.support.patience import PATIENCE
from workflows.client import read_run
from workflows.replay import replay

ASK = {"*": {"on_doubt": "ask"}}
REPEATABLE = {"*": {"replay_policy": "idempotent"}}
REFUSED = Reply(429, headers=[("Retry-After", "3600")])
EDITED = b'{"content":[], "n":1.0}'
MAY_HAVE = "the effect may have happened"

keyed_or_not = pytest.mark.parametrize("keyed", [False, True], ids=["unkeyed", "keyed"])
rejected_or_done = pytest.mark.parametrize("answer", [REJECT, done(EDITED)], ids=["reject", "edit-accept"])


async def answered(at: Scene, answer: bytes, *, keyed: bool, heartbeat: float | None = None) -> Any:
    """What an author's workflow is told of a call in doubt that a person answers."""
    at.acting.replies.append(BUSY)
    call = Call("call_tool", ["fake", "write", {}], key=at.key if keyed else None, heartbeat=heartbeat)
    flow = await at.author(call)
    (one,) = await asked_of_author(flow)
    await resolve(flow, one.interrupt_id, answer)
    (told,) = await asyncio.wait_for(flow.result(), PATIENCE)
    return told


def check(told: Any, answer: bytes) -> None:
    if answer == REJECT:
        assert told.in_doubt
        assert "a person decided that the call fails" in told.message
    else:
        assert told.raw == EDITED.decode()


@keyed_or_not
@rejected_or_done
async def test_an_attempt_of_a_run_that_failed_early_does_not_lose_what_was_decided(client, monkeypatch, keyed, answer):
    early = Early(monkeypatch)
    async with scene(client, ASK) as at:
        at.acting.replies.append(BUSY)
        run = await at.pack.start(at.flow("write", keyed=keyed))
        ((identity, _),) = await asked_of_run(run)
        await resolve(run, identity, answer)
        log, found = await at.pack.end(run)
        if answer == REJECT:
            assert "a person decided that the call fails" in error_of(log)["message"]
        else:
            assert activity_results(found)[0].data == EDITED
        assert (early.times, len(at.acting.asked)) == (1, 1)


@keyed_or_not
@rejected_or_done
async def test_an_attempt_of_an_author_that_failed_early_does_not_lose_what_was_decided(
    client, monkeypatch, keyed, answer
):
    early = Early(monkeypatch)
    async with scene(client, ASK) as at:
        check(await answered(at, answer, keyed=keyed), answer)
        assert (early.times, len(at.acting.asked)) == (1, 1)


@keyed_or_not
async def test_a_worker_that_is_lost_early_does_not_lose_what_was_decided(client, monkeypatch, keyed):
    early = Early(monkeypatch, lost=True)
    async with scene(client, ASK) as at:
        check(await answered(at, REJECT, keyed=keyed, heartbeat=5.0), REJECT)
        assert (early.times, len(at.acting.asked)) == (1, 1)


@rejected_or_done
async def test_the_workflow_of_a_shared_effect_does_not_lose_what_was_decided(client, monkeypatch, answer):
    early = Early(monkeypatch, PERFORM)
    async with scene(client, ASK) as at:
        check(await answered(at, answer, keyed=True), answer)
        assert (early.times, len(at.acting.asked)) == (1, 1)


async def test_leave_to_send_again_is_not_lost_either_and_is_used_once(client, monkeypatch):
    early = Early(monkeypatch)
    async with scene(client, ASK) as at:
        told = await answered(at, ACCEPT, keyed=False)
        assert told.raw == '{"content":[], "n":2.0}'
        assert (early.times, len(at.acting.asked)) == (1, 2)


@keyed_or_not
async def test_an_author_is_told_that_an_attempt_before_the_last_one_may_have_had_the_effect(client, keyed):
    async with scene(client, REPEATABLE) as at:
        at.acting.replies += [BUSY, REFUSED]
        flow = await at.author(Call("call_tool", ["fake", "write", {}], key=at.key if keyed else None))
        (told,) = await flow.result()
        assert (told.code, told.delivery, told.in_doubt) == ("rate_limited", "unknown", False)
        assert MAY_HAVE in told.message
        assert '"delivery":"unknown"' in told.facts
        assert len(at.acting.asked) == 2
        for verdict in await replay([await flow.fetch_history()], [Author]):
            assert verdict.sound, verdict.prose()


@keyed_or_not
async def test_a_run_tells_that_an_attempt_before_the_last_one_may_have_had_the_effect(client, keyed):
    async with scene(client, REPEATABLE) as at:
        at.acting.replies += [BUSY, REFUSED]
        log, found = await at.pack.run(at.flow("write", keyed=keyed))
        error = error_of(log)
        assert error["details"]["delivery"] == "unknown"
        assert MAY_HAVE in error["message"]
        for verdict in await replay(found, []):
            assert verdict.sound, verdict.prose()


async def test_a_run_of_an_engine_before_is_told_as_that_engine_told_it(client):
    async with scene(client, REPEATABLE) as at:
        at.acting.replies += [BUSY, REFUSED]
        log, _ = await at.pack.run(at.flow("write"), engine_version=2)
        assert error_of(log)["details"]["delivery"] == "not_processed"
        assert MAY_HAVE not in error_of(log)["message"]


@pytest.fixture
def approvals(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scene], None]:
    """Has the calls of a scene need approval once its server was asked, as if an operator had said so meanwhile."""

    def begin(at: Scene) -> None:
        monkeypatch.setattr(EffectivePolicy, "needs_approval", property(lambda _: bool(at.acting.asked)))

    return begin


async def test_an_author_whose_call_is_not_approved_is_told_what_an_attempt_before_may_have_done(client, approvals):
    async with scene(client, REPEATABLE) as at:
        approvals(at)
        at.acting.replies.append(BUSY)
        flow = await at.author(Call("call_tool", ["fake", "write", {}]))
        (one,) = await asked_of_author(flow)
        await resolve(flow, one.interrupt_id, REJECT)
        (told,) = await asyncio.wait_for(flow.result(), PATIENCE)
        assert (told.code, told.delivery) == ("approval_rejected", "unknown")
        assert MAY_HAVE in told.message
        (made,) = (await read_run(client, flow.id)).made
        assert (made.failure.message.endswith(MAY_HAVE), made.failure.happened.delivery) == (True, "unknown")
        assert len(at.acting.asked) == 1
        for verdict in await replay([await flow.fetch_history()], [Author]):
            assert verdict.sound, verdict.prose()


@pytest.mark.parametrize("expires", [False, True], ids=["rejected", "expired"])
async def test_a_run_whose_call_is_not_approved_tells_what_an_attempt_before_may_have_done(client, approvals, expires):
    async with scene(client, REPEATABLE) as at:
        approvals(at)
        at.acting.replies.append(BUSY)
        flow = at.flow("write")
        flow["nodes"][0]["config"] |= {"inputTimeoutMs": 1000} if expires else {}
        run = await at.pack.start(flow)
        if not expires:
            ((identity, _),) = await asked_of_run(run)
            await resolve(run, identity, REJECT)
        log, found = await at.pack.end(run)
        error = error_of(log)
        assert (error["code"], error["details"]["delivery"]) == ("approval_rejected", "unknown")
        assert MAY_HAVE in error["message"]
        assert len(at.acting.asked) == 1
        for verdict in await replay(found, []):
            assert verdict.sound, verdict.prose()


@pytest.mark.parametrize("before", [False, True], ids=["now", "by-an-older-version"])
async def test_a_key_is_used_up_by_any_attempt_that_may_have_had_the_effect(client, monkeypatch, before):
    if before:
        # An older version's workflow fails where its last attempt sent nothing.
        monkeypatch.setattr(attempts, "remembered", lambda failure, _: failure)
    async with scene(client, REPEATABLE) as at:
        at.acting.replies += [BUSY, REFUSED]
        first, other, same = (Call("call_tool", ["fake", "write", {"n": n}], key=at.key) for n in (1, 999, 1))
        told = [(await (await at.author(call)).result())[0] for call in (first, other, same)]
        assert [one.code for one in told] == ["rate_limited", "idempotency_key_mismatch", "rate_limited"]
        assert [told[0].delivery, told[2].delivery] == ["unknown", "unknown"]
        assert MAY_HAVE in told[0].message
        assert "nothing was sent now" in told[2].message
        assert [request.json["params"]["arguments"] for request in at.acting.asked] == [{"n": 1}] * 2
        effect = by_key("acme", "fake", "write", at.key, b'{"n":1}')
        history = await client.get_workflow_handle(effect_workflow_id(effect.effect_id)).fetch_history()
        assert history.events[-1].HasField("workflow_execution_failed_event_attributes") is before
        monkeypatch.undo()
        for verdict in await replay([history], []):
            assert verdict.sound, verdict.prose()
