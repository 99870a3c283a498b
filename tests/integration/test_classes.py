"""Classes of servers: one that hangs keeps none waiting that is in another class, and each can be served apart."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from temporalio.client import WorkflowHistory
from temporalio.worker import Worker

from activities import McpPlugin
from commands import gauges
from openwop_mcp import ctx
from openwop_mcp.calls import class_queue
from openwop_mcp.effects.identity import by_key
from openwop_mcp.effects.shared import effect_workflow_id
from openwop_mcp.telemetry import attributes
from openwop_mcp.telemetry.instruments import CIRCUIT, IN_FLIGHT
from tests.support.author_flows import Author, Call, Calls
from tests.support.fake_server import FakeServer, Handler, Reply, Request, modern, result_reply
from tests.support.graphs import node, workflow
from tests.support.pack import chain, pack_worker, settings_for, types
from tests.support.patience import PATIENCE

HANGING = 30
SLOTS = 4
DONE = b'{"content":[]}'
CLASSES = {"slow": {"max_activities": SLOTS}}


class Hanging:
    """A server that answers once it is let go, and knows how many calls it has at once."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.calls = 0
        self.most = 0
        self.changed = asyncio.Condition()

    @property
    def handler(self) -> Handler:
        return modern({"tools/call": self.answer})

    async def answer(self, request: Request) -> Reply:
        async with self.changed:
            self.calls += 1
            self.most = max(self.most, self.calls)
            self.changed.notify_all()
        await self.let_go.wait()
        self.calls -= 1
        return result_reply(request, DONE)

    async def until(self, calls: int) -> None:
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(lambda: self.calls >= calls), PATIENCE)


def settings(fast: FakeServer, slow: FakeServer, **worker: Any) -> Any:
    # Its calls hang for as long as a test waits.
    timeouts = {"first_byte": 2 * PATIENCE}
    servers = {"slow": {"url": slow.url, "network": "private", "class": "slow", "timeouts": timeouts}}
    return settings_for(fast.url, servers=servers, worker={"tenant": "acme", "classes": CLASSES, **worker})


def call(node_id: str, server: str, **inputs: Any) -> dict[str, Any]:
    return node(node_id, config={"serverId": server, "name": "write"}, inputs=inputs)


def queues(found: Sequence[WorkflowHistory]) -> dict[str, str]:
    """The task queue of each activity, by the activity's id."""
    scheduled = [
        event.activity_task_scheduled_event_attributes
        for history in found
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]
    return {one.activity_id: one.task_queue.name for one in scheduled}


async def test_a_server_that_hangs_keeps_calls_of_its_class_waiting_and_no_others(client):
    hanging = Hanging()
    async with (
        FakeServer(modern()) as fast,
        FakeServer(hanging.handler) as slow,
        # As many slots for all else: were the calls that hang among them, there would be none left.
        pack_worker(client, settings(fast, slow, max_activities=SLOTS)) as pack,
    ):
        many = await pack.start(workflow([call(f"n{number}", "slow") for number in range(HANGING)]))
        await hanging.until(SLOTS)
        async with asyncio.timeout(PATIENCE):
            log, found = await pack.run(workflow([call(f"n{number}", "fake") for number in range(HANGING)]))
        assert log[-1].type == "run.completed"
        assert set(queues(found).values()) == {pack.task_queue}
        # Those that hang still do, as many at once as their class has slots.
        assert hanging.calls == hanging.most == SLOTS
        hanging.let_go.set()
        log, found = await pack.end(many)
        assert log[-1].type == "run.completed"
        assert set(queues(found).values()) == {class_queue("slow", pack.task_queue)}
        assert hanging.most == SLOTS


async def test_a_call_with_a_key_is_made_in_the_class_of_its_server(client):
    hanging = Hanging()
    key = {"type": "static", "value": (text := f"key-{uuid.uuid4().hex}")}
    async with (
        FakeServer(modern()) as fast,
        FakeServer(hanging.handler) as slow,
        pack_worker(client, settings(fast, slow)) as pack,
    ):
        handle = await pack.start(workflow([call(f"n{number}", "slow", idempotencyKey=key) for number in range(9)]))
        await hanging.until(1)
        hanging.let_go.set()
        log, found = await pack.end(handle)
        effect = effect_workflow_id(by_key("acme", "slow", "write", text, None).effect_id)
        kept = await chain(client, effect)
        shared = class_queue("slow", pack.task_queue)
        assert types(log)[-1] == "run.completed"
        assert set(queues(found).values()) == set(queues(kept).values()) == {shared}
        [began] = [history.events[0].workflow_execution_started_event_attributes for history in kept]
        assert began.task_queue.name == f"{pack.task_queue}-effects"
        assert (len(slow.requests), hanging.most) == (1, 1)


async def test_a_node_whose_input_names_the_server_runs_in_that_servers_class(client):
    hanging = Hanging()
    hanging.let_go.set()
    named = {"serverId": {"type": "static", "value": "slow"}}
    async with (
        FakeServer(modern()) as fast,
        FakeServer(hanging.handler) as slow,
        pack_worker(client, settings(fast, slow)) as pack,
    ):
        nodes = [
            node("given", config={"name": "write"}, inputs=named),
            node("both", config={"serverId": "fake", "name": "write"}, inputs=named),
            node("no-text", config={"name": "write"}, inputs={"serverId": {"type": "variable", "variableName": "n"}}),
        ]
        variables = [{"name": "n", "type": "number"}]
        _, found = await pack.run(workflow(nodes, variables=variables), b'{"n":7}')
        assert queues(found) == {
            "given:1": class_queue("slow", pack.task_queue),
            "both:1": class_queue("slow", pack.task_queue),
            "no-text:1": pack.task_queue,
        }


async def test_a_class_can_have_a_process_of_its_own_and_its_calls_wait_for_one(client):
    hanging = Hanging()
    hanging.let_go.set()
    queue = f"apart-{uuid.uuid4().hex}"
    async with FakeServer(modern()) as fast, FakeServer(hanging.handler) as slow:
        without = settings(fast, slow, serves=["default"])
        alone = settings(fast, slow, serves=["slow"])
        async with pack_worker(client, without, task_queue=queue) as pack:
            handle = await pack.start(workflow([call("one", "slow"), call("other", "fake")]))
            async with asyncio.timeout(PATIENCE):
                while not fast.requests:  # noqa: ASYNC110 - a server of tests tells nobody of a request
                    await asyncio.sleep(0.01)
            assert slow.requests == []
            async with pack_worker(client, alone, task_queue=queue):
                log, _ = await pack.end(handle)
        assert log[-1].type == "run.completed"
        assert len(slow.requests) == 1


async def test_a_workflow_of_an_author_names_the_class_and_one_with_the_pack_embedded_keeps_it(client):
    hanging = Hanging()
    hanging.let_go.set()
    own, other = (f"author-{uuid.uuid4().hex}" for _ in range(2))
    calls = [Call("call_tool", ["slow", "write"]), Call("call_tool", ["slow", "write"], key=uuid.uuid4().hex)]

    async def made(queue: str, named: str) -> list[str]:
        handle = await client.start_workflow(
            Author.run, Calls(calls, named), id=f"author-{uuid.uuid4().hex}", task_queue=queue
        )
        assert [one.code for one in await handle.result()] == [None, None]
        return list(queues(await chain(client, handle.id)).values())

    async with FakeServer(modern()) as fast, FakeServer(hanging.handler) as slow:
        plugin = McpPlugin(settings(fast, slow))
        async with (
            pack_worker(client, settings(fast, slow)) as pack,
            Worker(client, task_queue=own, workflows=[Author]),
            Worker(client, task_queue=other, workflows=[Author], plugins=[plugin]),
        ):
            named = ctx.mcp.class_queue("slow", pack.task_queue)
            assert await made(own, named) == [named] * 2
            assert await made(other, ctx.mcp.class_queue("slow")) == [other] * 2


async def test_a_worker_of_one_class_alone_tells_how_its_servers_stand_and_nothing_of_the_namespace(
    client, monkeypatch
):
    told: dict[str, Any] = {}
    monkeypatch.setattr(gauges, "switch", SimpleNamespace(measured=lambda: True))
    monkeypatch.setattr(gauges, "gauge", lambda one, observe: told.update({one.name: observe}))
    async with (
        FakeServer(modern()) as fast,
        FakeServer(modern()) as slow,
        pack_worker(client, settings(fast, slow, serves=["slow"])),
    ):
        assert told.keys() == {IN_FLIGHT.name, CIRCUIT.name}
        for observe in told.values():
            assert {(one.attributes[attributes.SERVER_ID], one.value) for one in observe()} == {
                ("fake", 0),
                ("slow", 0),
            }
