"""Further attempts: decided by the workflow, after durable timers, only where a repeat is safe. Beats; cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from temporalio.client import AsyncActivityHandle, Client, WorkflowFailureError, WorkflowHandle, WorkflowHistory
from temporalio.common import RawValue
from temporalio.exceptions import CancelledError
from temporalio.worker import Worker

from activities.beat import SDK_PATIENCE
from openwop_mcp import jsontext
from tests.support.author_flows import Author, Call, Calls, Told
from tests.support.fake_server import FakeServer, Handler, Reply, Request, modern, notice_event, result_reply
from tests.support.graphs import node, workflow
from tests.support.pack import Pack, activity_results, error_of, pack_worker, payload_of, scheduled, settings_for, types
from tests.support.patience import PATIENCE

TOOLS = {"*": {"safety_tier": "write"}, "read*": {"safety_tier": "read"}}
DONE = b'{"content":[]}'


@dataclass
class Setting:
    pack: Pack
    server: FakeServer

    async def author(self, *calls: Call) -> WorkflowHandle[Any, list[Told]]:
        return await self.pack.client.start_workflow(
            Author.run,
            Calls(list(calls), self.pack.task_queue),
            id=f"author-{uuid.uuid4().hex}",
            task_queue=f"author-{self.pack.task_queue}",
        )

    async def ask(self, *calls: Call) -> tuple[list[Told], WorkflowHistory]:
        handle = await self.author(*calls)
        return await handle.result(), await handle.fetch_history()


@contextlib.asynccontextmanager
async def setting(client: Client, handler: Handler, **options: Any) -> AsyncIterator[Setting]:
    async with (
        FakeServer(handler) as server,
        pack_worker(client, settings_for(server.url, tools=TOOLS, **options)) as pack,
        Worker(client, task_queue=f"author-{pack.task_queue}", workflows=[Author]),
    ):
        yield Setting(pack, server)


def first(*replies: Reply) -> Handler:
    """Answers each tool with these in turn, then with a result."""
    left: dict[str, list[Reply]] = {}

    def answer(request: Request) -> Reply:
        mine = left.setdefault(request.json["params"]["name"], list(replies))
        return mine.pop(0) if mine else result_reply(request, DONE)

    return modern({"tools/call": answer})


def call(tool: str) -> dict[str, Any]:
    return workflow([node("a", config={"serverId": "fake", "name": tool})])


def timers(found: WorkflowHistory | list[WorkflowHistory]) -> list[float]:
    whole = [found] if isinstance(found, WorkflowHistory) else found
    return [
        event.timer_started_event_attributes.start_to_fire_timeout.ToMilliseconds() / 1000
        for history in whole
        for event in history.events
        if event.HasField("timer_started_event_attributes")
    ]


BUSY = Reply(status=503, body=b"busy")
CUT = Reply(headers=[("Content-Type", "application/json")], body=b'{"jsonrpc":"2.0"', abort_after=8)


@pytest.mark.parametrize("fault", [BUSY, CUT], ids=["503", "cut"])
async def test_a_tool_that_only_reads_is_asked_again_after_a_durable_timer(client, fault):
    async with setting(client, first(fault)) as at:
        (log, found), (told, history) = await asyncio.gather(
            at.pack.run(call("read")), at.ask(Call("call_tool", ["fake", "read-too"]))
        )
        ended = ["negotiation.decided a", "node.completed a", "run.completed"]
        assert types(log)[1:] == ["node.started a", "node.retried a", *ended]
        assert scheduled(found) == ["a:1", "a:2"]
        assert told[0].raw == DONE.decode()
        assert len(scheduled(history)) == 2
        assert timers(found) == timers(history) == [0.5]
        for one in (*activity_results(found), *activity_results(history)):
            assert one.metadata["openwop-mcp.attempt"] == b"2"
        assert len(at.server.requests) == 4


async def test_a_tool_that_writes_is_never_asked_again_when_it_may_have_acted(client):
    async with setting(client, first(BUSY, BUSY)) as at:
        log, found = await at.pack.run(call("write"))
        told, history = await at.ask(Call("call_tool", ["fake", "write"]))
        error = error_of(log)
        assert error["code"] == told[0].code == "upstream_unavailable"
        assert error["details"]["delivery"] == told[0].delivery == "unknown"
        assert "the effect may have happened" in error["message"]
        assert "the effect may have happened" in str(told[0].message)
        assert told[0].in_doubt
        assert scheduled(found) == ["a:1"]
        assert len(scheduled(history)) == 1
        assert timers(found) == timers(history) == []
        assert len(at.server.requests) == 2


async def test_retry_after_is_waited_for_by_a_durable_timer_also_by_a_tool_that_writes(client):
    slow_down = Reply(status=429, headers=[("Retry-After", "1")])
    async with setting(client, first(slow_down)) as at:
        log, found = await at.pack.run(call("write"))
        assert types(log)[2:] == ["node.retried a", "negotiation.decided a", "node.completed a", "run.completed"]
        assert payload_of(log, "node.retried")["delayMs"] == 1000
        assert timers(found) == [1.0]
        assert len(at.server.requests) == 2


async def test_a_wait_over_the_ceiling_fails_at_once_and_names_the_setting(client):
    slow_down = Reply(status=429, headers=[("Retry-After", "3600")])
    # The first answer has others wait as well, for no longer than that.
    async with setting(client, first(slow_down, slow_down), server={"retry": {"max_wait": 0.01}}) as at:
        log, found = await at.pack.run(call("write"))
        told, history = await at.ask(Call("call_tool", ["fake", "write"]))
        error = error_of(log)
        assert error["code"] == told[0].code == "rate_limited"
        assert "retry.max_wait" in error["message"]
        assert "retry.max_wait" in str(told[0].message)
        assert error["details"]["retryAfter"] == 3600
        assert not told[0].in_doubt
        assert timers(found) == timers(history) == []
        assert len(at.server.requests) == 2


async def test_attempts_end_with_the_servers_setting_and_with_that_of_the_call(client):
    options = {"server": {"retry": {"attempts": 2, "max_wait": 0, "total": 0}}}
    async with setting(client, first(*[BUSY] * 9), **options) as at:
        log, found = await at.pack.run(call("read"))
        assert scheduled(found) == ["a:1", "a:2"]
        assert "retry.attempts" in error_of(log)["message"]
        told, history = await at.ask(
            Call("call_tool", ["fake", "read"], retry=(1, 0, 0)),
            Call("call_tool", ["fake", "read"], retry=(4, 0.0, 0.0)),
        )
        assert [one.code for one in told] == ["upstream_unavailable"] * 2
        assert len(scheduled(history)) == 1 + 4
        assert not told[0].in_doubt


async def test_a_retry_setting_of_the_call_never_makes_a_repeat_safe(client):
    async with setting(client, first(BUSY)) as at:
        told, _ = await at.ask(Call("call_tool", ["fake", "write"], retry=(5, 1, 5)))
        assert told[0].in_doubt
        assert len(at.server.requests) == 1


async def test_nothing_sent_is_tried_again_also_by_a_tool_that_writes(client):
    url = "http://127.0.0.1:9/mcp"
    options = {"servers": {"down": {"url": url, "network": "private", "retry": {"attempts": 2, "max_wait": 0.01}}}}
    async with setting(client, modern(), **options) as at:
        log, found = await at.pack.run(workflow([node("a", config={"serverId": "down", "name": "write"})]))
        error = error_of(log)
        assert scheduled(found) == ["a:1", "a:2"]
        assert error["details"]["delivery"] == "not_sent"
        assert "may have happened" not in error["message"]


async def test_a_time_limit_of_the_call_is_its_own_and_in_doubt_for_a_tool_that_writes(client):
    async with setting(client, first(Reply(stall="head"))) as at:
        # Long enough for a slow machine to have sent it, and a tenth of what the settings give it.
        told, _ = await at.ask(Call("call_tool", ["fake", "write"], timeout=3.0))
        assert told[0].code == "upstream_unavailable"
        assert told[0].in_doubt
        facts = jsontext.decode(str(told[0].facts).encode())
        assert facts["limit"] in {"first_byte", "total"}
        assert len(at.server.requests) == 1


# --- beats and cancellation ---


HEARTBEAT = 5.0
"""Seconds of a heartbeat timeout: five beats, so that a machine may stand still for some and is not lost."""

SLOW = HEARTBEAT + SDK_PATIENCE + 1.0
"""Seconds that a call takes for which the SDK, which does not see its beats, takes it for lost."""


async def test_a_slow_call_lives_on_its_beats_alone(client):
    stalled: asyncio.Queue[Request] = asyncio.Queue()

    async def slow(request: Request) -> Reply:
        if request.json["params"]["name"].startswith("stall"):
            stalled.put_nowait(request)
            return Reply(headers=[("Content-Type", "text/event-stream")], stall="body")
        if request.json["params"]["name"] == "refuse":
            return Reply(status=500, wait=SLOW)
        streamed = result_reply(request, DONE, "sse")
        return Reply(headers=streamed.headers, chunks=streamed.chunks, wait=SLOW)

    async with setting(client, modern({"tools/call": slow}), worker={"shutdown_grace": 0.2}) as at:
        cancelled = await at.pack.start(call("stall-one"), heartbeat_timeout=HEARTBEAT)
        stopped = await at.pack.start(call("stall-two"), heartbeat_timeout=HEARTBEAT)
        await stalled.get()
        await stalled.get()
        (log, found), (told, history), (refused, _) = await asyncio.gather(
            at.pack.run(call("write"), heartbeat_timeout=HEARTBEAT),
            at.ask(Call("call_tool", ["fake", "write"], heartbeat=HEARTBEAT)),
            at.pack.run(call("refuse"), heartbeat_timeout=HEARTBEAT),
        )
        assert log[-1].type == "run.completed"
        assert told[0].raw == DONE.decode()
        assert scheduled(found) == ["a:1"]
        assert activity_results(history)[0].metadata["openwop-mcp.attempt"] == b"1"
        assert error_of(refused)["details"]["httpStatus"] == 500

        await cancelled.cancel(reason="enough")
        log, _ = await at.pack.end(cancelled)
        assert types(log)[-2:] == ["node.cancelled a", "run.cancelled"]
    # The worker was not kept from stopping, and said what became of the call that it still had.
    history = await stopped.fetch_history()
    (failed,) = [
        event.activity_task_failed_event_attributes.failure
        for event in history.events
        if event.HasField("activity_task_failed_event_attributes")
    ]
    assert "shut down" in failed.message
    await stopped.terminate()


CLOSED_WITHIN = 30.0
"""Seconds: a connection that nobody gives up is closed when its call has been idle for a minute."""


@dataclass
class Stall:
    """A server that never answers, and tells when it was asked."""

    asked: asyncio.Queue[Request]

    def handler(self) -> Handler:
        async def never(request: Request) -> Reply:
            self.asked.put_nowait(request)
            return Reply(headers=[("Content-Type", "text/event-stream")], stall="body")

        return modern({"tools/call": never})


async def test_cancelling_a_workflow_closes_the_connection_and_the_answer_is_recorded(client):
    stall = Stall(asyncio.Queue())
    async with setting(client, stall.handler()) as at:
        handle = await at.author(Call("call_tool", ["fake", "write"]))
        request = await asyncio.wait_for(stall.asked.get(), PATIENCE)
        assert not at.server.closed[request.connection].is_set()
        await handle.cancel()
        await asyncio.wait_for(at.server.closed[request.connection].wait(), CLOSED_WITHIN)
        with pytest.raises(WorkflowFailureError) as caught:
            await handle.result()
        assert isinstance(caught.value.cause, CancelledError)
        history = await handle.fetch_history()
        (failed,) = [
            event.activity_task_failed_event_attributes.failure
            for event in history.events
            if event.HasField("activity_task_failed_event_attributes")
        ]
        facts = jsontext.decode(failed.application_failure_info.details.payloads[0].data)
        assert facts["cancelled"] is True
        assert facts["delivery"] == "unknown"


async def test_cancelling_a_run_closes_the_connection_and_the_log_says_so(client):
    stall = Stall(asyncio.Queue())
    async with setting(client, stall.handler()) as at:
        handle = await at.pack.start(call("write"), heartbeat_timeout=HEARTBEAT)
        request = await asyncio.wait_for(stall.asked.get(), PATIENCE)
        await handle.cancel(reason="enough")
        await asyncio.wait_for(at.server.closed[request.connection].wait(), CLOSED_WITHIN)
        log, found = await at.pack.end(handle)
        assert types(log)[-2:] == ["node.cancelled a", "run.cancelled"]
        assert jsontext.decode(log[-1].payload)["reason"] == "enough"
        assert scheduled(found) == ["a:1"]


# --- progress and logs ---


def stream_to(request: Request, *chunks: bytes | asyncio.Event) -> Reply:
    """An event stream that ends with a result."""
    streamed = result_reply(request, DONE, "sse")
    assert streamed.chunks is not None
    return Reply(headers=streamed.headers, chunks=[*chunks, *streamed.chunks])


async def beats_of(handle: WorkflowHandle[Any, Any]) -> list[Any]:
    """What the last beat of each activity under way holds."""
    description = await handle.describe()
    return [
        jsontext.decode(payload.data)
        for pending in description.raw_description.pending_activities
        for payload in pending.heartbeat_details.payloads
    ]


async def until_it_tells(handle: WorkflowHandle[Any, Any], progress: float) -> dict[str, Any]:
    """The beat of the one activity under way, once it tells so much progress or more."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for beat in await beats_of(handle):
                if beat.get("progress", {}).get("progress", -1) >= progress:
                    return dict(beat)
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("tool", ["read", "write"])
async def test_the_beats_of_a_call_say_how_far_it_is_and_a_flood_makes_no_more_of_them(client, monkeypatch, tool):
    let_go = asyncio.Event()
    beats: list[float] = []
    beat = AsyncActivityHandle.heartbeat

    async def counted(self: AsyncActivityHandle, *details: RawValue, **more: Any) -> None:
        # Not those of what comes before a call, which only beats where that takes a second.
        if jsontext.decode(details[0].payload.data)["delivery"] == "unknown":
            beats.append(time.monotonic())
        await beat(self, *details, **more)

    def flood(request: Request) -> Reply:
        token = request.json["params"]["_meta"]["progressToken"]
        told = [notice_event("progress", progressToken=token, progress=n, total=500, message="é") for n in range(500)]
        last = notice_event("progress", progressToken=token, progress=499.5, message="\U0001f600\x1b" * 300)
        return stream_to(request, *told, last, let_go)

    monkeypatch.setattr(AsyncActivityHandle, "heartbeat", counted)
    async with setting(client, modern({"tools/call": flood})) as at:
        handle = await at.pack.start(call(tool), heartbeat_timeout=HEARTBEAT)
        told = await until_it_tells(handle, 499.5)
        assert "total" not in told["progress"]
        message = told["progress"]["message"]
        assert message.startswith("\U0001f600\\u{1b}\U0001f600")
        assert "\x1b" not in message
        assert len(jsontext.encode(told)) < 1000
        assert told["repeatSafe"] is (tool == "read")
        let_go.set()
        log, _ = await at.pack.end(handle)
        assert log[-1].type == "run.completed"
    # The claim, where there is one, is the only beat that is not a second after the one before.
    regular = beats if tool == "read" else beats[1:]
    assert all(after - before > 0.9 for before, after in itertools.pairwise(regular))


async def test_progress_puts_off_idle_and_never_total_and_its_last_is_in_the_beats(client):
    def lasting(request: Request) -> Reply:
        token = request.json["params"]["_meta"]["progressToken"]
        told = [notice_event("progress", progressToken=token, progress=n, total=9) for n in range(9)]
        ends = request.json["params"]["name"] == "read-to-its-end"
        reply = stream_to(request, *told) if ends else stream_to(request, *told * 100)
        return Reply(headers=reply.headers, chunks=reply.chunks, delay=0.3)

    limits = {"idle": 6, "first_byte": 6, "total": 15}
    async with setting(client, modern({"tools/call": lasting}), server={"timeouts": limits}) as at:
        done, never = [
            await at.pack.start(call(tool), heartbeat_timeout=HEARTBEAT)
            for tool in ("read-to-its-end", "write-for-ever")
        ]
        # Of the one that goes on until it is cut off: the other may end before anybody looks.
        assert (await until_it_tells(never, 2))["progress"]["total"] == 9
        (log, _), (endless, _) = await asyncio.gather(at.pack.end(done), at.pack.end(never))
        assert log[-1].type == "run.completed"
        error = error_of(endless)
        assert (error["details"]["limit"], error["details"]["delivery"]) == ("total", "unknown")


async def test_a_call_that_asks_for_it_has_what_the_server_says_in_the_workers_log(client, caplog):
    def talks(request: Request) -> Reply:
        said = [
            notice_event("message", level=level, logger="db", data={"at": level})
            for level in ("debug", "info", "error")
        ]
        return stream_to(request, *said)

    caplog.set_level(logging.DEBUG, "openwop_mcp.messages")
    talking = dict.fromkeys(("tools/call", "resources/read", "prompts/get"), talks)
    async with setting(client, modern(talking)) as at:
        told, _ = await at.ask(
            Call("call_tool", ["fake", "read"]),
            Call("call_tool", ["fake", "read"], log_level="info"),
            Call("read_resource", ["fake", "fake://one"], log_level="error"),
            Call("get_prompt", ["fake", "greet"], log_level="emergency"),
            Call("call_tool", ["fake", "read"], log_level="loud"),
        )
        asked = [
            request.json["params"]["_meta"].get("io.modelcontextprotocol/logLevel") for request in at.server.requests
        ]
    assert asked == [None, "info", "error", "emergency"]
    assert [one.code for one in told] == [None, None, None, None, "validation_error"]
    said = [
        (record.levelname, record.getMessage()) for record in caplog.records if record.name == "openwop_mcp.messages"
    ]
    assert said == [
        ("INFO", 'fake says: {"at": "info"}'),
        ("ERROR", 'fake says: {"at": "error"}'),
        ("ERROR", 'fake says: {"at": "error"}'),
    ]
