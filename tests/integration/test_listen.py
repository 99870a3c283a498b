"""What a server changes reaches a workflow as a signal: gathered, renewed, and never silently missed."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Worker

from activities import LISTEN, ListenRequest, listen
from openwop_mcp import jsontext
from openwop_mcp.failures import json_payload
from tests.support.fake_server import FakeServer, Reply, Request, error_reply, modern
from tests.support.legacy_server import LegacyServer
from tests.support.mcp_client import stream_reply
from tests.support.pack import SERVER, pack_worker, settings_for
from tests.support.patience import PATIENCE

FILTER = b'{"toolsListChanged":true,"resourceSubscriptions":["a://1"]}'


@workflow.defn(sandboxed=False)
class Listener:
    """Listens until it was told `wanted` times; gives back what it was told."""

    def __init__(self) -> None:
        self.told: list[bytes] = []

    @workflow.signal
    def changed(self, change: RawValue) -> None:
        self.told.append(change.payload.data)

    @workflow.run
    async def run(self, queue: str, wanted: int, heartbeat: int) -> list[str]:
        request = ListenRequest(SERVER, FILTER, workflow.info().workflow_id, "changed")
        listening = workflow.start_activity(
            LISTEN,
            RawValue(json_payload(request.encode())),
            task_queue=queue,
            start_to_close_timeout=timedelta(days=1),
            heartbeat_timeout=timedelta(seconds=heartbeat),
            retry_policy=RetryPolicy(maximum_attempts=1),
        )
        heard = asyncio.ensure_future(workflow.wait_condition(lambda: len(self.told) >= wanted))
        await workflow.wait([heard, listening], return_when=asyncio.FIRST_COMPLETED)
        if not heard.done():
            await listening
        listening.cancel()
        return [told.decode() for told in self.told]


def _note(request: Request, method: str, **params: Any) -> bytes:
    meta = {"io.modelcontextprotocol/subscriptionId": request.json["id"]}
    message = {"jsonrpc": "2.0", "method": method, "params": {**params, "_meta": meta}}
    return b"data: %b\n\n" % jsontext.encode(message)


def _acknowledged(request: Request) -> bytes:
    return _note(request, "notifications/subscriptions/acknowledged", notifications={"toolsListChanged": True})


def _changed(request: Request) -> bytes:
    return _note(request, "notifications/tools/list_changed")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listen, "FIRST_WAIT", 0.02)


async def _started(client: Client, queue: str, wanted: int, heartbeat: int = 5) -> WorkflowHandle[Any, list[str]]:
    return await client.start_workflow(
        Listener.run, args=[queue, wanted, heartbeat], id=f"listener-{uuid.uuid4().hex}", task_queue=f"author-{queue}"
    )


async def _heard(client: Client, server: FakeServer, wanted: int, **settings: Any) -> list[Any]:
    async with (
        pack_worker(client, settings_for(server.url, server=settings)) as pack,
        Worker(client, task_queue=f"author-{pack.task_queue}", workflows=[Listener]),
    ):
        handle = await _started(client, pack.task_queue, wanted, heartbeat=60)
        return [jsontext.decode(told.encode()) for told in await asyncio.wait_for(handle.result(), PATIENCE)]


def _listening(*streams: Any) -> Any:
    """A server whose subscriptions go like these, one after the other; the last stays open."""
    left = list(streams)

    def answer(request: Request) -> Reply:
        make = left.pop(0) if len(left) > 1 else left[0]
        return make(request)

    return modern({"subscriptions/listen": answer})


async def test_changes_that_come_together_are_told_in_one_signal(client: Client) -> None:
    def stream(request: Request) -> Reply:
        updated = _note(request, "notifications/resources/updated", uri="a://1")
        return stream_reply(_acknowledged(request), _changed(request), updated, _changed(request), stall="body")

    async with FakeServer(_listening(stream)) as server:
        (told,) = await _heard(client, server, 1)
        (request,) = server.requests
    assert told == {
        "serverId": SERVER,
        "changes": [
            {"method": "notifications/tools/list_changed"},
            {"method": "notifications/resources/updated", "uri": "a://1"},
        ],
        "missed": False,
    }
    assert jsontext.pointer(request.body, ["params", "notifications"]) == FILTER


async def test_a_subscription_that_ends_is_renewed_and_says_that_something_may_have_been_missed(client: Client) -> None:
    def cut(request: Request) -> Reply:
        return stream_reply(_acknowledged(request))

    def again(request: Request) -> Reply:
        return stream_reply(_acknowledged(request), stall="body")

    async with FakeServer(_listening(cut, again)) as server:
        (told,) = await _heard(client, server, 1)
    assert told == {"serverId": SERVER, "changes": [], "missed": True}


async def test_a_server_that_ends_each_subscription_at_once_is_asked_ever_more_rarely(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures: list[int] = []

    def wait(failed: int) -> float:
        failures.append(failed)
        return 0.0 if len(failures) <= 3 else 3600.0

    monkeypatch.setattr(listen, "_wait", wait)

    def cut(request: Request) -> Reply:
        return stream_reply(_acknowledged(request))

    def told(request: Request) -> Reply:
        return stream_reply(_acknowledged(request), _changed(request), stall="body")

    async with FakeServer(_listening(cut, cut, cut, told)) as server:
        await _heard(client, server, 1)
    assert failures[:2] == [1, 2]


def test_a_subscription_that_follows_another_one_says_so() -> None:
    first = ListenRequest(SERVER, FILTER, "w", "changed")
    again = ListenRequest(SERVER, FILTER, "w", "changed", again=True)
    assert [ListenRequest.decode(one.encode()) for one in (first, again)] == [first, again]


async def test_a_flood_of_changes_is_told_in_few_signals_of_bounded_size(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Long enough for more than a signal holds, however slowly a flood is read.
    monkeypatch.setattr(listen, "GATHER", 1.0)

    def stream(request: Request) -> Reply:
        changes = [_note(request, "notifications/resources/updated", uri=f"a://{n}/{'x' * 500}") for n in range(2000)]
        return stream_reply(_acknowledged(request), *changes, stall="body")

    async with FakeServer(_listening(stream)) as server:
        told = await _heard(client, server, 1)
    assert told[0]["missed"]
    assert 20 < len(told[0]["changes"]) < 33
    assert len(jsontext.encode(told[0])) < 17 * 1024


async def test_a_change_of_a_resource_with_an_endless_uri_counts_as_missed(client: Client) -> None:
    def stream(request: Request) -> Reply:
        updated = _note(request, "notifications/resources/updated", uri="a://" + "x" * 3000)
        return stream_reply(_acknowledged(request), updated, _changed(request), stall="body")

    async with FakeServer(_listening(stream)) as server:
        (told,) = await _heard(client, server, 1)
    assert told["changes"] == [{"method": "notifications/tools/list_changed"}]
    assert told["missed"]


def test_changes_are_gathered_longer_while_signals_follow_each_other_and_shortly_after_quiet() -> None:
    gather, times = listen.GATHER, []
    for quiet in (60, 0, 0, 0, 0, 0, 0, 0, 0, 9.9, 10):
        gather = listen._gathering(gather, quiet=quiet)
        times.append(gather)
    assert times == [0.25, 0.5, 1, 2, 4, 8, 10, 10, 10, 10, 0.25]


async def test_a_server_of_an_older_revision_is_not_asked_to_subscribe(client: Client) -> None:
    old = LegacyServer()
    async with FakeServer(old) as server:
        with pytest.raises(WorkflowFailureError) as caught:
            await _heard(client, server, 1, minimum_revision="2025-03-26")
    assert "subscriptions/listen" not in old.seen
    cause = caught.value.cause
    assert isinstance(cause, ActivityError)
    assert isinstance(cause.cause, ApplicationError)
    assert cause.cause.type == "validation_error"
    assert "2025-11-25" in cause.cause.message


async def test_notifications_of_another_subscription_are_not_told(client: Client) -> None:
    def stream(request: Request) -> Reply:
        foreign = _changed(request).replace(b'subscriptionId":%d' % request.json["id"], b'subscriptionId":"other"')
        own = _note(request, "notifications/prompts/list_changed")
        return stream_reply(_acknowledged(request), foreign, own, stall="body")

    async with FakeServer(_listening(stream)) as server:
        (told,) = await _heard(client, server, 1)
    assert [change["method"] for change in told["changes"]] == ["notifications/prompts/list_changed"]


async def test_a_server_without_subscriptions_is_a_failure_and_no_circle(client: Client) -> None:
    def refuse(request: Request) -> Reply:
        return error_reply(request, -32601, "no such method", status=404)

    async with FakeServer(_listening(refuse)) as server:
        with pytest.raises(WorkflowFailureError) as caught:
            await _heard(client, server, 1)
        assert len(server.requests) == 1
    cause = caught.value.cause
    assert isinstance(cause, ActivityError)
    assert isinstance(cause.cause, ApplicationError)
    assert cause.cause.type == "mcp_error"


async def test_to_stop_listening_closes_the_stream(client: Client) -> None:
    asked = asyncio.Event()

    def stream(request: Request) -> Reply:
        asked.set()
        return stream_reply(_acknowledged(request), stall="body")

    async with (
        FakeServer(_listening(stream)) as server,
        pack_worker(client, settings_for(server.url)) as pack,
        Worker(client, task_queue=f"author-{pack.task_queue}", workflows=[Listener]),
    ):
        handle = await _started(client, pack.task_queue, 1)
        async with asyncio.timeout(PATIENCE):
            await asked.wait()
            await handle.cancel()
            await server.closed[1].wait()


async def test_a_worker_that_shuts_down_listens_no_more_at_once_however_long_calls_are_given(client: Client) -> None:
    asked = asyncio.Event()

    def stream(request: Request) -> Reply:
        asked.set()
        return stream_reply(_acknowledged(request), stall="body")

    queue = f"pack-{uuid.uuid4().hex}"
    async with (
        FakeServer(_listening(stream)) as server,
        Worker(client, task_queue=f"author-{queue}", workflows=[Listener]),
    ):
        settings = settings_for(server.url, worker={"shutdown_grace": 300})
        async with asyncio.timeout(PATIENCE):
            async with pack_worker(client, settings, task_queue=queue):
                handle = await _started(client, queue, 1, heartbeat=300)
                await asked.wait()
            with pytest.raises(WorkflowFailureError) as caught:
                await handle.result()
    assert isinstance(caught.value.cause, ActivityError)
    assert "shut down while it listened" in str(caught.value.cause.cause)


async def test_when_the_listener_is_gone_the_subscription_ends(client: Client) -> None:
    asked, proceed = asyncio.Event(), asyncio.Event()

    async def wait_then_change(request: Request) -> Reply:
        asked.set()
        await proceed.wait()
        return stream_reply(_acknowledged(request), _changed(request), stall="body")

    async with (
        FakeServer(modern({"subscriptions/listen": wait_then_change})) as server,
        pack_worker(client, settings_for(server.url)) as pack,
        Worker(client, task_queue=f"author-{pack.task_queue}", workflows=[Listener]),
    ):
        handle = await _started(client, pack.task_queue, 1)
        async with asyncio.timeout(PATIENCE):
            await asked.wait()
            await handle.terminate()
            proceed.set()
            await server.closed[1].wait()


async def test_what_a_server_does_not_tell_of_is_said_once(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    def stream(request: Request) -> Reply:
        return stream_reply(_acknowledged(request), _changed(request))

    async with FakeServer(_listening(stream)) as server:
        await _heard(client, server, 2)
    said = [record.getMessage() for record in caplog.records if record.name == "activities.listen"]
    assert said == [f"server {SERVER} does not tell of resourceSubscriptions"]
