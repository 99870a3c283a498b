"""A server whose tools act, runs and authors' workflows that call them, and a person who answers questions about it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from activities.perform import Calls as Performing
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import InterruptedCallError
from openwop_mcp.failures import json_payload
from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.interrupts import MEMO, PENDING, RESOLVE, OpenInterrupt, Resolution, read_open
from tests.support.author_flows import Author, Call, Calls, Told
from tests.support.fake_server import FakeServer, Handler, Reply, Request, modern, result_reply
from tests.support.graphs import node, workflow
from tests.support.pack import Pack, chain, log_of, pack_worker, settings_for
from tests.support.patience import PATIENCE

__all__ = (
    "ACCEPT",
    "ALICE",
    "BUSY",
    "POLL",
    "REJECT",
    "Acting",
    "Early",
    "Scene",
    "asked_of_author",
    "asked_of_run",
    "done",
    "pending",
    "refusal",
    "resolve",
    "scene",
    "until",
    "until_beat",
    "until_cancelled",
    "until_pending",
)

BUSY = Reply(status=503)
"""Leaves a call that writes in doubt: the server may have acted before it said so."""

POLL = 0.05
"""Seconds between two looks at what Temporal tells of without being waited for."""

ACCEPT = b'{"action":"accept"}'
REJECT = b'{ "action": "reject" }'
ALICE = b'{"subjectId":"alice", "n":1.0}'


def done(result: bytes) -> bytes:
    """The answer that takes an effect as done."""
    return b'{"action":"edit-accept","editedArtifactData":' + result + b"}"


@dataclass
class Acting:
    """A server that counts its executions, and answers each with its number; slow tools only once they are let go.

    Attributes:
        asked: Every request to call a tool.
        replies: What it answers first, in turn, in place of a result.
        doubtful: Tools whose next call it leaves in doubt, whichever call comes first.
    """

    asked: list[Request] = field(default_factory=list)
    replies: list[Reply | Callable[[Request], Reply]] = field(default_factory=list)
    doubtful: set[str] = field(default_factory=set)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    let_go: asyncio.Event = field(default_factory=asyncio.Event)

    def handler(self) -> Handler:
        async def answer(request: Request) -> Reply:
            async with self.changed:
                self.asked.append(request)
                number = len(self.asked)
                self.changed.notify_all()
            if (tool := request.json["params"]["name"]) in self.doubtful:
                self.doubtful.remove(tool)
                return BUSY
            if self.replies:
                reply = self.replies.pop(0)
                return reply(request) if callable(reply) else reply
            result = b'{"content":[], "n":%d.0}' % number
            if "slow" not in tool:
                return result_reply(request, result)
            streamed = result_reply(request, result, "sse")
            return Reply(headers=streamed.headers, chunks=[self.let_go, *(streamed.chunks or ())])

        return modern({"tools/call": answer})

    async def until_asked(self, times: int) -> None:
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(lambda: len(self.asked) >= times), PATIENCE)


@dataclass
class Scene:
    """A worker with one server, and ways to start what calls it."""

    client: Client
    acting: Acting
    server: FakeServer
    pack: Pack
    key: str = field(default_factory=lambda: f"order-{uuid.uuid4().hex}")

    def flow(self, *tools: str, keyed: bool = False) -> dict[str, Any]:
        """A graph of independent calls, the nodes named a, b, …."""
        given = {"idempotencyKey": {"type": "static", "value": self.key}} if keyed else {}
        names = "abcdefgh"[: len(tools)]
        return workflow(
            [
                node(name, config={"serverId": "fake", "name": tool}, inputs=given)
                for name, tool in zip(names, tools, strict=True)
            ]
        )

    async def author(self, *calls: Call, parallel: bool = False) -> WorkflowHandle[Any, list[Told]]:
        return await self.client.start_workflow(
            Author.run,
            Calls(list(calls), self.pack.task_queue, parallel),
            id=f"author-{uuid.uuid4().hex}",
            task_queue=f"author-{self.pack.task_queue}",
        )


@contextlib.asynccontextmanager
async def scene(client: Client, tools: Mapping[str, Any], *workflows: type, **server: Any) -> AsyncIterator[Scene]:
    """A scene whose settings have these tools and these keys of the server."""
    acting = Acting()
    async with FakeServer(acting.handler()) as fake:
        given = settings_for(fake.url, tools=tools, server=server, worker={"tenant": "acme"})
        async with (
            pack_worker(client, given) as pack,
            Worker(client, task_queue=f"author-{pack.task_queue}", workflows=[Author, *workflows]),
        ):
            yield Scene(client, acting, fake, pack)


async def until(handle: WorkflowHandle[Any, Any], holds: Callable[[list[RunEvent]], Any]) -> list[RunEvent]:
    """Wait until something holds for a run's log."""

    async def wait() -> list[RunEvent]:
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.HasField("workflow_task_completed_event_attributes"):
                log = log_of(await chain(handle._client, handle.id))
                if holds(log):
                    return log
        raise AssertionError("the run ended before")

    return await asyncio.wait_for(wait(), PATIENCE)


async def asked_of_run(handle: WorkflowHandle[Any, Any], times: int = 1) -> list[tuple[str, dict[str, Any]]]:
    """Wait until a run has asked so often; the id and the payload of each question, in order."""
    log = await until(handle, lambda log: sum(event.type == "node.suspended" for event in log) >= times)
    payloads = [json.loads(event.payload) for event in log if event.type == "interrupt.requested"]
    ids = [json.loads(event.payload)["interruptId"] for event in log if event.type == "node.suspended"]
    return list(zip(ids, payloads, strict=True))


async def asked_of_author(handle: WorkflowHandle[Any, Any], times: int = 1) -> Sequence[OpenInterrupt]:
    """Wait until a workflow has shown open questions so often; what it shows then."""

    async def wait() -> Sequence[OpenInterrupt]:
        left = times
        async for event in handle.fetch_history_events(wait_new_event=True):
            if event.HasField("workflow_properties_modified_event_attributes"):
                fields = event.workflow_properties_modified_event_attributes.upserted_memo.fields
                if MEMO in fields and fields[MEMO].data not in {b"", b"null"}:
                    left -= 1
                    if not left:
                        return read_open(fields[MEMO].data)
        raise AssertionError("the workflow ended before")

    return await asyncio.wait_for(wait(), PATIENCE)


async def pending(flow: WorkflowHandle[Any, Any]) -> list[OpenInterrupt]:
    """What a workflow says it waits with."""
    answer = await flow.query(PENDING, result_type=RawValue)
    return read_open(answer.payload.data)


async def until_pending(
    flow: WorkflowHandle[Any, Any], holds: Callable[[list[OpenInterrupt]], object]
) -> list[OpenInterrupt]:
    """Wait until something holds for what a workflow waits with."""
    await asked_of_author(flow)
    async with asyncio.timeout(PATIENCE):
        while True:
            if holds(shown := await pending(flow)):
                return shown
            await asyncio.sleep(POLL)


async def until_beat(handle: WorkflowHandle[Any, Any], holds: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until Temporal has a heartbeat of an activity under way for which something holds."""
    async with asyncio.timeout(PATIENCE):
        while True:
            description = await handle.describe()
            beats = [
                json.loads(payload.data)
                for pending in description.raw_description.pending_activities
                for payload in pending.heartbeat_details.payloads
            ]
            if any(holds(beat) for beat in beats):
                return
            await asyncio.sleep(POLL)


async def until_cancelled(handle: WorkflowHandle[Any, Any], times: int = 1) -> None:
    """Wait until a workflow has asked Temporal to cancel so many activities."""

    async def wait() -> None:
        left = times
        async for event in handle.fetch_history_events(wait_new_event=True):
            left -= event.HasField("activity_task_cancel_requested_event_attributes")
            if not left:
                return

    await asyncio.wait_for(wait(), PATIENCE)


async def resolve(handle: WorkflowHandle[Any, Any], interrupt_id: str, value: bytes, by: bytes = ALICE) -> None:
    """Answer a question."""
    given = Resolution(interrupt_id, value, by).encode()
    await handle.execute_update(RESOLVE, RawValue(json_payload(given)))


async def refusal(handle: WorkflowHandle[Any, Any], given: bytes) -> str:
    """Give an answer that is refused; the code."""
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await handle.execute_update(RESOLVE, RawValue(json_payload(given)))
    assert isinstance(caught.value.cause, ApplicationError)
    return caught.value.cause.type or ""


class Early:
    """Ends the first attempt with an answer before that is looked at.

    Args:
        activity_type: Only one of this type.
        lost: Whether nothing more is heard of it, as of a worker that is killed; else it could not read the catalog.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, activity_type: str | None = None, *, lost: bool = False
    ) -> None:
        self.times = 0
        does = Performing._standing

        async def standing(calls: Performing, request: Any, tenant: str) -> Any:
            right = activity_type in {None, activity.info().activity_type}
            if request.answer is not None and right and not self.times:
                self.times += 1
                if lost:
                    await asyncio.Event().wait()
                told = "nothing was sent: the catalog could not be read within 2 s"
                raise InterruptedCallError(told, cancelled=False, delivery=Delivery.NOT_SENT)
            return await does(calls, request, tenant)

        monkeypatch.setattr(Performing, "_standing", standing)
