"""Effects that runs share by a key: one at the server, one result, whoever asks and whenever."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client
from temporalio.worker import Worker

from openwop_mcp.effects.identity import by_key
from openwop_mcp.effects.shared import effect_workflow_id
from tests.support.author_flows import Author, Call, Calls, Told
from tests.support.fake_server import FakeServer, Handler, Reply, Request, error_reply, modern, result_reply
from tests.support.graphs import node, workflow
from tests.support.pack import Pack, activity_results, error_of, pack_worker, settings_for, types
from tests.support.patience import PATIENCE


@dataclass
class Counting:
    """A server that counts what it is asked for, and answers each time something else."""

    asked: list[Request] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    fails: list[Callable[[Request], Reply]] = field(default_factory=list)

    def handler(self) -> Handler:
        async def answer(request: Request) -> Reply:
            async with self.changed:
                self.asked.append(request)
                self.changed.notify_all()
            number = len(self.asked)
            if self.fails:
                return self.fails.pop(0)(request)
            if "slow" in request.json["params"]["name"]:
                await self.let_go.wait()
            return result_reply(request, b'{"content":[],"n": %d.0}' % number)

        return modern({"tools/call": answer})

    async def until_asked(self, times: int) -> None:
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(lambda: len(self.asked) >= times), PATIENCE)

    @property
    def keys(self) -> list[Any]:
        return [request.json["params"]["_meta"]["dev.openwop-mcp/idempotency-key"] for request in self.asked]


@dataclass
class Scene:
    client: Client
    counting: Counting
    pack: Pack
    key: str = field(default_factory=lambda: f"order-{uuid.uuid4().hex}")

    def call(self, tool: str, *, key: str | None = "", **arguments: Any) -> dict[str, Any]:
        """A run of one call: with the scene's key, with another, or with none."""
        given = {"name": tool, "serverId": "fake", "arguments": arguments}
        if key is not None:
            given["idempotencyKey"] = key or self.key
        inputs = {name: {"type": "static", "value": value} for name, value in given.items()}
        return workflow([node("a", inputs=inputs)])

    async def author(self, *calls: Call) -> list[Told]:
        told: list[Told] = await self.client.execute_workflow(
            Author.run,
            Calls(list(calls), self.pack.task_queue),
            id=f"author-{uuid.uuid4().hex}",
            task_queue=f"author-{self.pack.task_queue}",
        )
        return told


@contextlib.asynccontextmanager
async def scene(client: Client, **settings: Any) -> AsyncIterator[Scene]:
    counting = Counting()
    async with FakeServer(counting.handler()) as server:
        given = settings_for(server.url, worker={"tenant": "acme", "max_activities": 2}, **settings)
        async with (
            pack_worker(client, given) as pack,
            Worker(client, task_queue=f"author-{pack.task_queue}", workflows=[Author]),
        ):
            yield Scene(client, counting, pack)


async def test_two_runs_with_one_key_at_once_are_one_effect_and_both_get_its_bytes(client):
    async with scene(client) as at:
        runs = [await at.pack.start(at.call("slow")) for _ in range(3)]
        await at.counting.until_asked(1)
        at.counting.let_go.set()
        ended = [await at.pack.end(run) for run in runs]
    assert [types(log)[-1] for log, _ in ended] == ["run.completed"] * 3
    results = [activity_results(found) for _, found in ended]
    assert [payload.data for (payload,) in results] == [b'{"content":[],"n": 1.0}'] * 3
    assert len(at.counting.asked) == 1


async def test_a_key_that_was_used_before_brings_the_first_bytes_to_runs_and_authors_alike(client):
    async with scene(client) as at:
        _, first = await at.pack.run(at.call("write", x=1))
        _, again = await at.pack.run(at.call("write", x=1.0))
        (told,) = await at.author(Call("call_tool", ["fake", "write"], text='{"x":10e-1}', key=at.key))
    assert told.raw == '{"content":[],"n": 1.0}'
    assert [payload.data for payload in activity_results(first) + activity_results(again)] == [told.raw.encode()] * 2
    assert len(at.counting.asked) == 1


async def test_another_tool_tenant_or_key_is_another_effect(client):
    async with scene(client) as at:
        for definition in (at.call("write"), at.call("other"), at.call("write", key=f"{at.key}-2")):
            await at.pack.run(definition)
        await at.pack.run(at.call("write"), tenant="umbrella")
    assert len(at.counting.asked) == len(set(at.counting.keys)) == 4


async def test_other_arguments_under_a_key_are_refused_and_never_sent(client):
    async with scene(client) as at:
        await at.pack.run(at.call("write", x=1))
        log, _ = await at.pack.run(at.call("write", x=2))
        (told,) = await at.author(Call("call_tool", ["fake", "write", {"x": 3}], key=at.key))
    error = error_of(log)
    assert error["code"] == told.code == "idempotency_key_mismatch"
    assert error["details"]["delivery"] == told.delivery == "not_sent"
    assert len(at.counting.asked) == 1


async def test_a_key_whose_effect_was_never_sent_is_free_again(client):
    async with scene(client) as at:
        at.counting.fails = [lambda _: Reply(429, headers=[("Retry-After", "3600")])]
        log, _ = await at.pack.run(at.call("write"))
        again, _ = await at.pack.run(at.call("write"))
    assert error_of(log)["code"] == "rate_limited"
    assert again[-1].type == "run.completed"


async def test_an_effect_in_doubt_is_in_doubt_for_everyone_who_asks_for_it(client):
    async with scene(client) as at:
        at.counting.fails = [lambda _: Reply(503)]
        errors = [error_of((await at.pack.run(at.call("write")))[0]) for _ in range(2)]
        (told,) = await at.author(Call("call_tool", ["fake", "write", {}], key=at.key))
    for error in errors:
        assert "the effect may have happened" in error["message"]
        assert error["details"]["delivery"] == "unknown"
    assert told.in_doubt
    assert len(at.counting.asked) == 1


async def test_a_caller_that_is_cancelled_leaves_the_effect_to_the_others(client):
    async with scene(client) as at:
        first = await at.pack.start(at.call("slow"))
        await at.counting.until_asked(1)
        second = await at.pack.start(at.call("slow"))
        await first.cancel()
        log, _ = await at.pack.end(first)
        at.counting.let_go.set()
        other, _ = await at.pack.end(second)
    assert types(log)[-1] == "run.cancelled"
    assert types(other)[-1] == "run.completed"
    assert len(at.counting.asked) == 1


async def test_who_waits_for_an_effect_keeps_no_slot_of_the_worker(client):
    async with scene(client) as at:
        runs = [await at.pack.start(at.call("slow")) for _ in range(4)]
        await at.counting.until_asked(1)
        log, _ = await at.pack.run(at.call("quick", key=None))
        at.counting.let_go.set()
        for run in runs:
            await at.pack.end(run)
    assert log[-1].type == "run.completed"


async def test_an_answered_error_is_the_outcome_of_its_key(client):
    async with scene(client) as at:
        at.counting.fails = [partial(error_reply, code=-32602, message="no", data={"n": n}) for n in (1, 2)]
        errors = [error_of((await at.pack.run(at.call("write")))[0]) for _ in range(2)]
    assert [error["code"] for error in errors] == ["mcp_error"] * 2
    assert [error["details"]["error"]["data"] for error in errors] == [{"n": 1}] * 2
    assert len(at.counting.asked) == 1


def effect_of(at: Scene, tool: str) -> str:
    return effect_workflow_id(by_key("acme", "fake", tool, at.key, b"{}").effect_id)


async def test_an_effect_that_was_ended_from_outside_before_anything_was_sent_leaves_its_key_free(client):
    async with scene(client) as at:
        at.counting.fails = [lambda _: Reply(429, headers=[("Retry-After", "8")])]
        first = await at.pack.start(at.call("write"))
        await at.counting.until_asked(1)
        handle = client.get_workflow_handle(effect_of(at, "write"))
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.HasField("timer_started_event_attributes"):
                break
        await handle.terminate("an operator")
        log, _ = await at.pack.end(first)
        other, _ = await at.pack.run(at.call("write", x=1))
    # The run's next attempt finds the key free, and so its effect is sent once; other arguments then come too late.
    assert types(log)[-1] == "run.completed"
    assert error_of(other)["code"] == "idempotency_key_mismatch"
    assert len(at.counting.asked) == 2


async def test_an_effect_whose_workflow_is_deleted_while_it_is_under_way_is_in_doubt(client):
    async with scene(client) as at:
        run = await at.pack.start(at.call("slow"))
        await at.counting.until_asked(1)
        await client.workflow_service.delete_workflow_execution(
            DeleteWorkflowExecutionRequest(
                namespace=client.namespace, workflow_execution=WorkflowExecution(workflow_id=effect_of(at, "slow"))
            )
        )
        log, _ = await at.pack.end(run)
        at.counting.let_go.set()
    assert "the effect may have happened" in error_of(log)["message"]
    assert len(at.counting.asked) == 1


async def test_other_arguments_are_admitted_as_long_as_nothing_was_sent_under_the_key(client):
    async with scene(client) as at:
        at.counting.fails = [lambda _: Reply(429, headers=[("Retry-After", "3600")])]
        await at.pack.run(at.call("write", x=1))
        log, _ = await at.pack.run(at.call("write", x=2))
    assert log[-1].type == "run.completed"


async def test_a_key_that_is_no_name_is_refused_before_anything_is_scheduled(client):
    async with scene(client) as at:
        told = await at.author(*(Call("call_tool", ["fake", "write", {}], key=key) for key in ("", "x" * 513)))
    assert [one.code for one in told] == ["validation_error"] * 2
    assert not at.counting.asked
