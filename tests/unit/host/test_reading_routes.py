"""The operations that read a run, over a model of Temporal: who may, what is refused, what is answered."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from temporalio.service import RPCError, RPCStatusCode

from host import delivery
from host.context import Host
from host.logs import RunLogs
from host.routes import reading
from host.surface import Surface
from openwop_mcp.runs.events import RunEvent, timestamp
from tests.support.graphs import RUN_ID, edge, node, start, workflow
from tests.support.hosts import asked, bearer, host
from tests.support.patience import PATIENCE
from tests.support.recorded_temporal import RecordedTemporal, until
from tests.support.temporal_model import TemporalModel
from tests.unit.host.test_streaming import read

SEGMENT = RUN_ID.replace("/", "~2F")
PATH = f"/runs/{SEGMENT}"
POLL = f"{PATH}/events/poll"
EVENTS = f"{PATH}/events"
UNKNOWN = "/runs/acme~2Frun-000000000000009"
FOREIGN = "/runs/umbrella~2Frun-000000000000001"


class Setting:
    """A host over a run."""

    def __init__(self, *, ended: bool = False) -> None:
        self.run = TemporalModel(start(workflow([node("a"), node("b")], [edge("a", "b")]), metadata=b'{"n":1.10}'))
        self.temporal = RecordedTemporal(self.run)
        own = dataclasses.replace(host(), logs=RunLogs(self.temporal.client))
        self.host: Host = own
        app = FastAPI()
        app.include_router(reading.routes(own))
        app.add_middleware(Surface, beside=frozenset(), stopping=own.stopping)
        self.client = asked(app)
        if ended:
            self.go_on()
            self.go_on()

    def go_on(self) -> None:
        self.run.succeed(next(iter(self.run.under_way)))
        self.run.task()

    async def get(self, path: str, key: str = "acme-reads", method: str = "GET", **headers: str) -> httpx.Response:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.request(method, path, headers=bearer(key) | given)

    @property
    def log(self) -> list[Any]:
        """The log as a page shows it."""
        return [json.loads(event) for event in map(encoded, self.run.log)]


def encoded(told: tuple[int, str, str | None, bytes, int]) -> bytes:
    sequence, kind, node_id, payload, at = told
    generation = "00000000-0000-4000-8000-000000000001"
    return RunEvent(f"{generation}-{sequence}", RUN_ID, kind, payload, timestamp(at), sequence, node_id).encode()


def error(response: httpx.Response) -> tuple[int, str]:
    assert response.headers["openwop-version"] == "2.0"
    told = response.json()
    assert set(told) <= {"error", "message", "details"}
    return response.status_code, told["error"]


# --- who may ---


@pytest.mark.parametrize("path", ["", "/events/poll", "/events"])
async def test_who_may_not_read_learns_nothing_of_what_there_is(path: str) -> None:
    setting = Setting(ended=True)
    assert error(await setting.get(PATH + path, "nobody")) == (401, "unauthenticated")
    assert error(await setting.get(FOREIGN + path)) == (403, "id_tenant_mismatch")
    assert error(await setting.get(PATH + path, "umbrella-all")) == (403, "id_tenant_mismatch")
    assert setting.temporal.described == 0


@pytest.mark.parametrize("path", ["", "/events/poll", "/events"])
async def test_what_is_no_run_is_not_found_and_what_is_no_id_is_refused(path: str) -> None:
    setting = Setting(ended=True)
    assert error(await setting.get(f"/runs/run-000000000000001{path}")) == (400, "validation_error")
    assert error(await setting.get(f"/runs/acme~7E2Frun-000000000000001{path}")) == (400, "validation_error")
    setting.temporal.fault = RPCError("workflow not found", RPCStatusCode.NOT_FOUND, b"")
    assert error(await setting.get(UNKNOWN + path)) == (404, "not_found")


@pytest.mark.parametrize("path", ["", "/events/poll", "/events"])
async def test_a_temporal_that_does_not_answer_is_told_with_when_to_try_again(path: str) -> None:
    setting = Setting(ended=True)
    setting.temporal.fault = RPCError("connection refused", RPCStatusCode.UNAVAILABLE, b"")
    answer = await setting.get(PATH + path)
    assert error(answer) == (503, "service_unavailable")
    assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize("path", ["", "/events/poll", "/events"])
async def test_both_forms_of_an_id_are_one_run(path: str) -> None:
    setting = Setting(ended=True)
    one = await setting.get(PATH + path)
    other = await setting.get(f"/runs/{RUN_ID.replace('/', '%2F')}{path}")
    assert (one.status_code, one.content) == (200, other.content)


# --- the snapshot ---


async def test_a_run_is_shown_as_it_stands_with_a_strong_tag() -> None:
    setting = Setting()
    running = await setting.get(PATH)
    assert (running.status_code, running.headers["content-type"]) == (200, "application/json")
    assert (running.json()["status"], running.json()["runId"]) == ("running", RUN_ID)
    assert b'"metadata":{"n":1.10}' in running.content
    assert running.headers["etag"].startswith('"')
    setting.go_on()
    setting.go_on()
    ended = await setting.get(PATH)
    assert ended.json()["status"] == "completed"
    assert ended.headers["etag"] != running.headers["etag"]


async def test_a_cancel_that_was_accepted_is_shown_before_it_is_done() -> None:
    setting = Setting()
    before = await setting.get(PATH)
    setting.run.request_cancel()
    after = await setting.get(PATH)
    assert (before.json()["status"], after.json()["status"]) == ("running", "cancelling")
    assert before.headers["etag"] != after.headers["etag"]


async def test_a_client_that_has_the_run_as_it_stands_is_told_so_without_a_body() -> None:
    setting = Setting()
    tag = (await setting.get(PATH)).headers["etag"]
    for told in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        same = await setting.get(PATH, If_None_Match=told)
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
        assert same.headers["openwop-version"] == "2.0"
    setting.go_on()
    assert (await setting.get(PATH, If_None_Match=tag)).status_code == 200


async def test_the_head_of_a_run_is_that_of_the_run() -> None:
    setting = Setting()
    whole, head = await setting.get(PATH), await setting.get(PATH, method="HEAD")
    assert head.status_code == 200
    for name in ("etag", "content-type", "content-length", "openwop-version"):
        assert head.headers[name] == whole.headers[name]
    tag = whole.headers["etag"]
    assert (await setting.get(PATH, method="HEAD", If_None_Match=tag)).status_code == 304


# --- polls ---


async def test_a_poll_gives_the_events_after_its_cursor_and_ignores_what_is_not_for_it() -> None:
    setting = Setting(ended=True)
    every = await setting.get(POLL + "?streamMode=bogus&other=1")
    assert every.json() == {
        "runId": RUN_ID,
        "events": setting.log,
        "lastSequence": len(setting.log) - 1,
        "status": "completed",
        "isTerminal": True,
    }
    assert every.headers["cache-control"] == "no-store"
    assert (await setting.get(POLL + "?afterSequence=1")).json()["events"] == setting.log[2:]
    past = (await setting.get(POLL + "?afterSequence=1000&timeout=60")).json()
    assert (past["events"], past["lastSequence"]) == ([], len(setting.log) - 1)


@pytest.mark.parametrize("query", ["afterSequence=-1", "afterSequence=x", "afterSequence=", "timeout=0", "timeout=61"])
async def test_a_poll_that_asks_for_what_cannot_be_is_refused(query: str) -> None:
    assert error(await Setting(ended=True).get(f"{POLL}?{query}")) == (400, "validation_error")


async def test_a_poll_waits_for_an_event() -> None:
    setting = Setting()
    known = len(setting.log) - 1
    poll = asyncio.create_task(setting.get(f"{POLL}?afterSequence={known}&timeout=60"))
    await until(lambda: setting.temporal.polls == 1)
    assert not poll.done()
    setting.go_on()
    await setting.temporal.tell()
    found = (await asyncio.wait_for(poll, PATIENCE / 2)).json()
    assert found["events"] == setting.log[known + 1 :]


async def test_a_poll_does_not_keep_a_host_from_ending() -> None:
    setting = Setting()
    poll = asyncio.create_task(setting.get(f"{POLL}?afterSequence=100&timeout=60"))
    await until(lambda: setting.temporal.polls == 1)
    await setting.host.logs.close()
    assert (await asyncio.wait_for(poll, PATIENCE / 2)).json()["events"] == []


@pytest.mark.parametrize(("path", "media_type"), [(POLL, "application/json"), (EVENTS, "text/event-stream")])
async def test_the_head_of_events_waits_for_none(path: str, media_type: str) -> None:
    head = await asyncio.wait_for(Setting().get(path + "?afterSequence=100", method="HEAD"), PATIENCE / 4)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"].startswith(media_type)


# --- streams ---


async def test_a_stream_of_a_finished_run_is_its_log_and_ends() -> None:
    setting = Setting(ended=True)
    answer = await setting.get(EVENTS + "?streamMode=debug", Accept="application/json")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-store"
    frames = read([answer.content])
    assert [json.loads(data) for _, _, data in frames] == setting.log
    assert [int(identity) for identity, _, _ in frames] == [one["sequence"] for one in setting.log]
    assert [name for _, name, _ in frames] == [one["type"] for one in setting.log]


async def test_a_stream_goes_on_after_the_event_that_the_client_has() -> None:
    setting = Setting(ended=True)
    last = len(setting.log) - 1
    rest = await setting.get(EVENTS + "?streamMode=debug", Last_Event_ID="0")
    assert [json.loads(data) for _, _, data in read([rest.content])] == setting.log[1:]
    for cursor in (str(last), "1000"):
        nothing = await setting.get(EVENTS + "?streamMode=debug", Last_Event_ID=cursor)
        assert (nothing.status_code, nothing.content) == (200, b"")
    snapshot = await setting.get(EVENTS + "?streamMode=values", Last_Event_ID="0")
    assert [name for _, name, _ in read([snapshot.content])] == ["state.snapshot"]


async def test_events_that_are_to_wait_for_others_come_as_a_batch() -> None:
    setting = Setting(ended=True)
    frames = read([(await setting.get(EVENTS + "?streamMode=debug&bufferMs=200")).content])
    assert {name for _, name, _ in frames} == {"batch"}
    assert [one for _, _, data in frames for one in json.loads(data)] == setting.log


@pytest.mark.parametrize("mode", ["bogus", "updates,values", "", "Updates"])
@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
async def test_a_mode_that_is_not_served_is_refused_before_anything_else(mode: str, accept: str) -> None:
    setting = Setting(ended=True)
    for path in (PATH, UNKNOWN):
        refused = await setting.get(f"{path}/events?streamMode={mode}&bufferMs=x", Accept=accept, Last_Event_ID="none")
        assert error(refused) == (400, "unsupported_stream_mode")
        assert "updates" in refused.json()["details"]["supported"]
    assert error(await setting.get(f"{FOREIGN}/events?streamMode={mode}")) == (403, "id_tenant_mismatch")


@pytest.mark.parametrize(("query", "cursor"), [("?bufferMs=5001", "0"), ("?bufferMs=x", "0"), ("", "-1"), ("", "x")])
async def test_a_stream_that_asks_for_what_cannot_be_is_refused(query: str, cursor: str) -> None:
    refused = await Setting(ended=True).get(EVENTS + query, Last_Event_ID=cursor)
    assert error(refused) == (400, "validation_error")


async def test_a_malformed_cursor_tells_nothing_of_another_tenants_run() -> None:
    setting = Setting(ended=True)
    one = await setting.get(f"{FOREIGN}/events", Last_Event_ID="x")
    other = await setting.get(f"{FOREIGN}9/events")
    assert error(one) == error(other) == (403, "id_tenant_mismatch")


async def test_a_large_snapshot_is_sent_in_pieces_with_its_length() -> None:
    setting = Setting()
    small = await setting.get(PATH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delivery, "CHUNK_BYTES", 50)
        app, messages = setting.client._transport.app, list[dict[str, Any]]()  # type: ignore[attr-defined] # httpx joins pieces

        async def seen(scope: Any, receive: Any, send: Any) -> None:
            async def kept(message: Any) -> None:
                messages.append(message)
                await send(message)

            await app(scope, receive, kept)

        async with asked(seen) as client:
            large = await client.get(PATH, headers=bearer("acme-reads"))
    assert large.content == small.content
    assert large.headers["content-length"] == str(len(small.content))
    assert large.headers["etag"] == small.headers["etag"]
    assert max(len(message["body"]) for message in messages[1:]) <= 50
