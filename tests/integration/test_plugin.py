"""`McpPlugin`: the pack inside an author's own worker."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Sequence
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import (
    ActivitySerializationContext,
    DataConverter,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)
from temporalio.worker import Worker

from activities import McpPlugin
from activities.perform import Calls as Performed
from openwop_mcp.errors import UnknownServerError
from tests.support.author_flows import Author, Call, Calls, Told
from tests.support.fake_server import FakeServer, modern
from tests.support.pack import pack_worker, settings_for

DONE = '{"resultType":"complete","content":[{"type":"text","text":"done"}],"isError":false}'
ARGUMENTS = b'"word"'
CALLS = [Call("call_tool", ["fake", "echo"]), Call("list_tools", ["fake"])]


async def ask(
    client: Client, task_queue: str, *calls: Call, queue: str | None = None
) -> tuple[list[Told], WorkflowHistory]:
    handle = await client.start_workflow(
        Author.run, Calls(list(calls), queue), id=f"author-{uuid.uuid4().hex}", task_queue=task_queue
    )
    return await handle.result(), await handle.fetch_history()


def queues(history: WorkflowHistory) -> list[str]:
    return [
        event.activity_task_scheduled_event_attributes.task_queue.name
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]


def author(client: Client, queue: str, **options: Any) -> Worker:
    return Worker(client, task_queue=queue, workflows=[Author], **options)


async def test_calls_stay_on_the_workers_own_queue(client):
    async with (
        FakeServer(modern()) as server,
        author(client, "own-queue", plugins=[McpPlugin(settings_for(server.url))]),
    ):
        told, history = await ask(client, "own-queue", *CALLS)
        assert told[0].raw == DONE
        assert queues(history) == ["own-queue"] * 2
        assert len(server.requests) == 2


async def test_a_queue_that_the_author_names_is_used(client):
    async with (
        FakeServer(modern()) as server,
        FakeServer(modern()) as other,
        pack_worker(client, settings_for(other.url)) as pack,
        author(client, "names-a-queue", plugins=[McpPlugin(settings_for(server.url))]),
    ):
        told, history = await ask(client, "names-a-queue", *CALLS, queue=pack.task_queue)
        assert told[0].raw == DONE
        assert queues(history) == [pack.task_queue] * 2
        assert len(other.requests) == 2
        assert server.requests == []


async def test_two_workers_share_one_plugin_and_the_second_outlives_the_first(client):
    async with FakeServer(modern()) as server:
        plugin = McpPlugin(settings_for(server.url))
        async with author(client, "shared-two", plugins=[plugin]):
            async with author(client, "shared-one", plugins=[plugin]):
                told, _ = await ask(client, "shared-one", *CALLS)
                assert told[0].raw == DONE
            told, _ = await ask(client, "shared-two", *CALLS)
            assert told[0].raw == DONE
        async with author(client, "shared-one", plugins=[plugin]):
            told, _ = await ask(client, "shared-one", *CALLS)
            assert told[0].raw == DONE


async def test_the_plugins_tenant_decides_which_servers_are_there(client):
    async with FakeServer(modern()) as server:
        settings = settings_for(server.url, server={"tenants": ["acme"]}, worker={"tenant": "acme"})
        async with (
            author(client, "of-acme", plugins=[McpPlugin(settings)]),
            author(client, "of-others", plugins=[McpPlugin(settings, tenant="others")]),
        ):
            (ours, _), (theirs, _) = await ask(client, "of-acme", *CALLS), await ask(client, "of-others", *CALLS)
        assert [one.code for one in ours] == [None, None]
        assert [one.code for one in theirs] == ["not_found", "not_found"]
        # It is the operator's own tenant: the cause is for the operator to hear.
        assert ".tenants does not admit tenant 'others'" in str(theirs[0].message)


async def test_a_plugin_on_the_client_reaches_its_workers(client, temporal):
    async with FakeServer(modern()) as server:
        own = await Client.connect(temporal.address, plugins=[McpPlugin(settings_for(server.url))])
        async with author(own, "by-the-client"):
            told, history = await ask(own, "by-the-client", *CALLS)
        assert told[0].raw == DONE
        assert queues(history) == ["by-the-client"] * 2


async def test_a_worker_takes_one_plugin_and_says_so_of_a_second(client, temporal):
    settings = settings_for("http://127.0.0.1:1/mcp")
    with pytest.raises(ValueError, match="to it or to its client, not to both"):
        author(client, "twice", plugins=[McpPlugin(settings), McpPlugin(settings)])
    own = await Client.connect(temporal.address, plugins=[McpPlugin(settings)])
    with (
        pytest.warns(UserWarning, match="same plugin type"),
        pytest.raises(ValueError, match="to it or to its client, not to both"),
    ):
        author(own, "both", plugins=[McpPlugin(settings)])


def test_to_a_foreign_tenant_a_server_that_does_not_admit_it_is_as_one_that_is_not_there():
    calls = Performed(settings_for("http://127.0.0.1:9/mcp", server={"tenants": ["acme"]}))

    def said(server_id: str, tenant: str | None) -> str:
        with pytest.raises(UnknownServerError) as caught:
            calls.client(server_id, tenant)
        return str(caught.value)

    assert said("fake", "foreign").replace("fake", "nobody") == said("nobody", "foreign")
    for own in (None, "default"):
        assert said("fake", own).startswith("servers.fake.tenants does not admit tenant 'default': add it there")


class Listening(PayloadCodec, WithSerializationContext):
    """Notes for whom a call's arguments are, which nobody but its workflow encodes."""

    def __init__(self, heard: list[SerializationContext | None], context: SerializationContext | None = None) -> None:
        self._heard = heard
        self._context = context

    def with_context(self, context: SerializationContext) -> Listening:
        return Listening(self._heard, context)

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        if any(ARGUMENTS in payload.data for payload in payloads):
            self._heard.append(self._context)
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)


async def test_a_codec_of_the_authors_is_told_for_whom_payloads_are(client, temporal):
    heard: list[SerializationContext | None] = []
    told_client = await Client.connect(
        temporal.address, data_converter=dataclasses.replace(DataConverter.default, payload_codec=Listening(heard))
    )
    async with (
        FakeServer(modern()) as server,
        author(told_client, "told", plugins=[McpPlugin(settings_for(server.url, storage={"driver": "none"}))]),
    ):
        await ask(told_client, "told", Call("call_tool", ["fake", "echo", {"word": "heard"}]))
    of_start, of_call = heard
    assert isinstance(of_start, WorkflowSerializationContext)
    assert isinstance(of_call, ActivitySerializationContext)
    assert of_call.activity_task_queue == "told"
