"""A call that is cancelled and ends with a result all the same: the result stands, and the cancel is heard."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import CancelledError

from activities import beat, effects
from openwop_mcp.effects.identity import by_key
from openwop_mcp.effects.shared import effect_workflow_id
from tests.support.author_flows import Author, Call
from tests.support.cancels import Compensates, GivesItTime, Keeps, Together
from tests.support.doubts import Scene, scene, until_cancelled
from tests.support.graphs import edge
from tests.support.pack import activity_results, chain, types
from tests.support.patience import PATIENCE
from workflows.replay import replay

FLOWS = (Compensates, GivesItTime, Keeps, Together)


@pytest.fixture(autouse=True)
def unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call hears of a cancel, as none does that ends before its next beat, however long that takes here."""
    for module in (beat, effects):
        monkeypatch.setattr(module, "is_cancel", lambda _: False)


@contextlib.asynccontextmanager
async def setting(client: Client) -> AsyncIterator[Scene]:
    async with scene(client, {"*": {"safety_tier": "write"}}, *FLOWS) as at:
        yield at


async def started(at: Scene, flow: type, *given: Any) -> WorkflowHandle[Any, Any]:
    return await at.client.start_workflow(
        flow.__name__,
        args=[at.pack.task_queue, *given],
        id=f"author-{uuid.uuid4().hex}",
        task_queue=f"author-{at.pack.task_queue}",
        result_type=str,
    )


async def cancelled_with_a_result(at: Scene, handle: WorkflowHandle[Any, Any], calls: int = 1) -> None:
    """Cancel a workflow in its slow calls, let these end, and see the workflow end as cancelled."""
    await at.acting.until_asked(calls)
    await handle.cancel()
    await until_cancelled(handle, calls)
    at.acting.let_go.set()
    with pytest.raises(WorkflowFailureError) as caught:
        await asyncio.wait_for(handle.result(), PATIENCE)
    assert isinstance(caught.value.cause, CancelledError)


def tools(at: Scene) -> list[str]:
    return [request.json["params"]["name"] for request in at.acting.asked]


async def sound(at: Scene, handle: WorkflowHandle[Any, Any]) -> bool:
    return all(one.sound for one in await replay(await chain(at.client, handle.id), [Author, *FLOWS]))


@pytest.mark.parametrize("keyed", [False, True], ids=["by its place", "by a key"])
async def test_a_workflow_that_was_cancelled_makes_no_further_call_and_the_result_stands(client, keyed):
    async with setting(client) as at:
        first = Call("call_tool", ["fake", "slow-reserve"], key=at.key if keyed else None)
        handle = await at.author(first, *(Call("call_tool", ["fake", tool]) for tool in ("charge", "ship")))
        await cancelled_with_a_result(at, handle)
        assert tools(at) == ["slow-reserve"]
        (result,) = activity_results(await chain(client, handle.id))
        assert result.data == b'{"content":[], "n":1.0}'
        assert await sound(at, handle)


@pytest.mark.parametrize("grouped", [True, False], ids=["group", "gather"])
async def test_of_calls_made_at_once_each_hears_of_the_cancel(client, grouped):
    async with setting(client) as at:
        handle = await started(at, Together, grouped)
        await cancelled_with_a_result(at, handle, 2)
        assert sorted(tools(at)) == ["slow-one", "slow-other"]
        assert await sound(at, handle)


async def test_a_workflow_that_was_cancelled_can_call_to_take_back_what_was_done(client):
    async with setting(client) as at:
        handle = await started(at, Compensates)
        await cancelled_with_a_result(at, handle)
        assert tools(at) == ["slow-reserve", "take-back"]
        assert await sound(at, handle)


async def test_the_result_of_a_call_that_is_shielded_is_had_after_a_cancel(client):
    async with setting(client) as at:
        handle = await started(at, Keeps)
        await at.acting.until_asked(1)
        await handle.cancel()
        # Nothing is cancelled of it, so that history has no event to wait for.
        at.acting.let_go.set()
        assert await asyncio.wait_for(handle.result(), PATIENCE) == '{"content":[], "n":1.0}'
        assert await sound(at, handle)


async def test_a_time_limit_of_the_workflows_own_is_over_though_the_call_had_a_result(client):
    async with setting(client) as at:
        handle = await started(at, GivesItTime)
        await at.acting.until_asked(1)
        await handle.signal(GivesItTime.asked)
        await until_cancelled(handle)
        at.acting.let_go.set()
        assert await asyncio.wait_for(handle.result(), PATIENCE) == "too late"
        assert tools(at) == ["slow-quote", "instead"]
        assert await sound(at, handle)


async def test_a_run_that_was_cancelled_keeps_the_result_and_starts_no_further_node(client):
    async with setting(client) as at:
        flow = at.flow("slow-reserve", "charge")
        handle = await at.pack.start({**flow, "edges": [edge("a", "b")]})
        await cancelled_with_a_result(at, handle)
        log, found = await at.pack.end(handle)
        assert types(log)[-2:] == ["node.completed a", "run.cancelled"]
        assert len(activity_results(found)) == 1
        assert tools(at) == ["slow-reserve"]


async def test_an_effect_that_was_cancelled_and_has_a_result_gives_it_to_who_waits(client):
    async with setting(client) as at:
        handle = await at.author(Call("call_tool", ["fake", "slow-reserve"], key=at.key))
        await at.acting.until_asked(1)
        effect = by_key("acme", "fake", "slow-reserve", at.key, None)
        carried_out = client.get_workflow_handle(effect_workflow_id(effect.effect_id))
        await carried_out.cancel()
        await until_cancelled(carried_out)
        at.acting.let_go.set()
        (told,) = await asyncio.wait_for(handle.result(), PATIENCE)
        assert told.raw == '{"content":[], "n":1.0}'
