"""Runs read over HTTP from a real Temporal: whole, as they come, and at the price of what is new."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import json
import math
import re
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

import workflows.client
from host import server
from host.ids import BoundId
from openwop_mcp.embedded import EmbeddedTemporal
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import parse
from openwop_mcp.runs.ledger import Ledger
from openwop_mcp.runs.start import RunStart
from openwop_mcp.storage import data_converter
from tests.integration.test_resets import last_before, reset
from tests.support.fake_server import FakeServer, Request, modern, result_reply
from tests.support.graphs import OWNER, edge, node, workflow
from tests.support.hosts import KEYS
from tests.support.log_hosts import LogHost, log_host, log_host_process, path_of
from tests.support.pack import Pack, chain, log_of, pack_worker, settings_for
from workflows.client import mint_run_id, start_run

MB = 10**6
MIB = 1024**2
LIMIT = 60.0


class Gate:
    """A server that answers what it is asked when a test lets it."""

    def __init__(self, *, open_: bool = False) -> None:
        self.calls = asyncio.Semaphore(10**6 if open_ else 0)
        self.result = b'{"content":[], "structuredContent":{"n":1.10}}'

    def let(self, count: int = 1) -> None:
        for _ in range(count):
            self.calls.release()

    async def handler(self, request: Request) -> Any:
        await self.calls.acquire()
        return result_reply(request, self.result)


@contextlib.asynccontextmanager
async def setting(client: Client, gate: Gate) -> AsyncIterator[Pack]:
    async with (
        FakeServer(modern({"tools/call": gate.handler})) as server,
        pack_worker(client, settings_for(server.url, tools={"*": {"safety_tier": "read"}})) as pack,
    ):
        try:
            yield pack
        finally:
            gate.let(100)


def call(node_id: str) -> dict[str, Any]:
    return node(node_id, config={"serverId": "fake", "name": "echo"})


def sequence(count: int) -> dict[str, Any]:
    names = [f"n{index}" for index in range(count)]
    return workflow([call(name) for name in names], [edge(*pair) for pair in itertools.pairwise(names)])


async def recorded(client: Client, run_id: str) -> list[dict[str, Any]]:
    """The log that the run's histories project to."""
    return [json.loads(event.encode()) for event in log_of(await chain(client, run_id))]


async def polled(host: LogHost | httpx.AsyncClient, run_id: str, **query: int) -> dict[str, Any]:
    http = host.http if isinstance(host, LogHost) else host
    answer = await http.get(f"{path_of(run_id)}/events/poll", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.01)


class Frames:
    """Reads a stream as a client does, frame by frame."""

    def __init__(self, answer: httpx.Response) -> None:
        self._lines = answer.aiter_lines()
        self.seen: list[dict[str, Any]] = []

    async def next(self) -> dict[str, Any] | None:
        """The next frame's document; None at a clean end."""
        data: list[str] = []
        async for line in self._lines:
            if line.startswith("data: "):
                data.append(line.removeprefix("data: "))
            elif not line and data:
                self.seen.append(json.loads("\n".join(data)))
                return self.seen[-1]
        return None

    async def rest(self) -> list[dict[str, Any]]:
        while await self.next() is not None:
            pass
        return self.seen


@contextlib.asynccontextmanager
async def streaming(
    http: httpx.AsyncClient, run_id: str, mode: str = "debug", after: int | None = None
) -> AsyncIterator[Frames]:
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    url = f"{path_of(run_id)}/events"
    async with (
        asyncio.timeout(LIMIT),
        http.stream("GET", url, params={"streamMode": mode}, headers=headers) as answer,
    ):
        assert answer.status_code == 200
        yield Frames(answer)


# --- what is there ---


async def test_a_run_is_readable_at_once_though_no_worker_ever_takes_it(client: Client) -> None:
    text = json.dumps(sequence(1)).encode()
    start = RunStart(mint_run_id("acme"), text, OWNER, tags=("a",))
    async with log_host(client) as host, log_host(client) as other:
        await start_run(
            client, start, parse(text, source="test", node_types=REGISTRY), b"{}", task_queue=f"nobody-{uuid.uuid4()}"
        )
        for one in (host, other):
            snapshot = (await one.http.get(path_of(start.run_id))).json()
            assert (snapshot["status"], snapshot["tags"]) == ("pending", ["a"])
            found = await polled(one, start.run_id, timeout=1)
            assert (found["events"], found["lastSequence"], found["isTerminal"]) == ([], -1, False)


async def test_what_is_no_run_is_not_found(client: Client) -> None:
    other = f"acme/{uuid.uuid4().hex}"
    await client.start_workflow("Other", id=other, task_queue=f"nobody-{uuid.uuid4()}")
    async with log_host(client) as host:
        for run_id in (other, f"acme/{uuid.uuid4().hex}"):
            for path in ("", "/events", "/events/poll"):
                answer = await host.http.get(path_of(run_id) + path)
                assert (answer.status_code, answer.json()["error"]) == (404, "not_found")


async def test_a_poll_and_a_stream_give_the_log_byte_for_byte(client: Client) -> None:
    gate = Gate(open_=True)
    async with setting(client, gate) as pack, log_host(client) as host:
        handle = await pack.start(sequence(3), b'{"n": 1.10}')
        log, _ = await pack.end(handle)
        body = (await host.http.get(f"{path_of(handle.id)}/events/poll")).content
        assert body.startswith(b'{"runId":"%b","events":[' % handle.id.encode())
        assert b",".join(event.encode() for event in log) in body
        stream = (await host.http.get(f"{path_of(handle.id)}/events?streamMode=debug")).content
        assert list(re.findall(rb"data: (.*)\n\n", stream)) == [event.encode() for event in log]


# --- as it comes ---


@pytest.mark.parametrize("at_once", [1, 16])
async def test_a_live_stream_is_the_whole_log_and_ends_with_the_run(client: Client, at_once: int) -> None:
    gate = Gate()
    async with setting(client, gate) as pack, log_host(client) as host:
        handle = await pack.start(sequence(3))
        async with contextlib.AsyncExitStack() as stack:
            readers = [await stack.enter_async_context(streaming(host.http, handle.id)) for _ in range(at_once)]
            rest = [asyncio.create_task(reader.rest()) for reader in readers]
            gate.let(3)
            seen = await asyncio.gather(*rest)
        expected = await recorded(client, handle.id)
        assert all(one == expected for one in seen)
        assert expected[-1]["type"] == "run.completed"


async def test_a_run_that_is_continued_as_new_is_one_stream(short_client: Client) -> None:
    gate = Gate(open_=True)
    async with setting(short_client, gate) as pack, log_host(short_client) as host, log_host(short_client) as cold:
        handle = await pack.start(sequence(24))
        async with streaming(host.http, handle.id) as reader:
            seen = await reader.rest()
        assert len(await chain(short_client, handle.id)) > 2
        assert seen == await recorded(short_client, handle.id)
        assert (await polled(cold, handle.id))["events"] == seen


async def test_a_stream_ends_with_a_run_that_is_terminated(client: Client) -> None:
    async with setting(client, Gate()) as pack, log_host(client) as host:
        handle = await pack.start(sequence(2))
        async with streaming(host.http, handle.id) as reader:
            await reader.next()
            await handle.terminate("by hand")
            seen = await reader.rest()
        assert (seen[-1]["type"], seen[-1]["payload"]["reason"]) == ("run.cancelled", "terminated")
        assert (await host.http.get(path_of(handle.id))).json()["status"] == "cancelled"


async def test_a_run_that_is_being_cancelled_says_so_until_it_has_ended(client: Client) -> None:
    async with setting(client, Gate()) as pack, log_host(client) as host:
        handle = await pack.start(sequence(2))
        async with streaming(host.http, handle.id) as reader:
            await reader.next()
            await reader.next()
            await handle.cancel(reason="enough")
            assert (await host.http.get(path_of(handle.id))).json()["status"] in {"cancelling", "cancelled"}
            seen = await reader.rest()
        assert seen[-1]["type"] == "run.cancelled"
        assert (await host.http.get(path_of(handle.id))).json()["status"] == "cancelled"


async def test_a_run_that_is_reset_is_another_log_and_its_streams_are_cut(client: Client) -> None:
    gate = Gate()
    async with setting(client, gate) as pack, log_host(client) as host:
        handle = await pack.start(sequence(3))
        async with streaming(host.http, handle.id) as reader:
            gate.let(1)
            while (await reader.next() or {})["type"] != "node.completed":
                pass
            await reset(client, handle, last_before("activity_task_completed_event_attributes"))
            with pytest.raises(httpx.RemoteProtocolError):
                await reader.rest()
        assert "run.cancelled" not in [event["type"] for event in reader.seen]
        gate.let(100)
        async with streaming(host.http, handle.id) as reader:
            again = await reader.rest()
        assert again == await recorded(client, handle.id)
        assert again[-1]["type"] == "run.completed"
        old = {event["eventId"] for event in reader.seen}
        assert {event["eventId"].rpartition("-")[0] for event in again} - {
            one.rpartition("-")[0] for one in old
        } == set()


# --- who goes away ---


async def test_a_reader_that_goes_away_leaves_nothing_behind(client: Client) -> None:
    async with setting(client, Gate()) as pack, log_host(client) as host:
        handle = await pack.start(sequence(2))
        for _ in range(3):
            async with streaming(host.http, handle.id) as reader:
                await reader.next()
        poll = asyncio.create_task(polled(host, handle.id, afterSequence=100, timeout=60))
        log = host.logs._logs[handle.id]
        async with asyncio.timeout(LIMIT):
            await until(lambda: log._waiting == 1)
            assert log._follower is not None
            poll.cancel()
            await until(lambda: not log._waiting and log._follower is None)


async def test_streams_are_cut_and_polls_answered_at_once_when_a_host_stops(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is not told to end would have as long as a poll waits.
    monkeypatch.setattr(server, "GRACE", int(LIMIT))
    gate = Gate()
    async with setting(client, gate) as pack, log_host(client) as other:
        handle = await pack.start(sequence(3))
        async with log_host(client) as host, streaming(host.http, handle.id) as reader:
            await reader.next()
            poll = asyncio.create_task(polled(host, handle.id, afterSequence=100, timeout=60))
            async with asyncio.timeout(LIMIT / 2):
                await until(lambda: host.logs._logs[handle.id]._waiting == 2)
                host.stop()
                assert (await poll)["events"] == []
                with pytest.raises(httpx.RemoteProtocolError):
                    await reader.rest()
        gate.let(3)
        async with streaming(other.http, handle.id, after=reader.seen[-1]["sequence"]) as goes_on:
            rest = await goes_on.rest()
        assert reader.seen + rest == await recorded(client, handle.id)


async def test_a_stream_goes_on_at_another_host_when_its_own_is_killed(
    client: Client, temporal: EmbeddedTemporal, tmp_path: Path
) -> None:
    gate = Gate()
    async with (
        setting(client, gate) as pack,
        log_host(client) as other,
        log_host_process(temporal.address, str(tmp_path)) as (http, process),
    ):
        handle = await pack.start(sequence(4))
        async with streaming(http, handle.id) as reader:
            gate.let(1)
            while (await reader.next() or {})["type"] != "node.completed":
                pass
            process.kill()
            with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
                await reader.rest()
        gate.let(3)
        async with streaming(other.http, handle.id, after=reader.seen[-1]["sequence"]) as goes_on:
            rest = await goes_on.rest()
        assert reader.seen + rest == await recorded(client, handle.id)


# --- what it costs ---


@pytest.fixture
def asked(client: Client, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """History events that each page had which was asked for."""
    pages: list[int] = []
    ask = client.workflow_service.get_workflow_execution_history

    async def counted(*given: Any, **more: Any) -> Any:
        answer = await ask(*given, **more)
        pages.append(len(answer.history.events))
        return answer

    monkeypatch.setattr(client.workflow_service, "get_workflow_execution_history", counted)
    return pages


async def test_a_poll_of_a_run_with_ten_thousand_events_costs_what_is_new(client: Client, asked: list[int]) -> None:
    gate = Gate()
    nodes = [call("first"), *(node(f"n{index}", "core.noop") for index in range(5000)), call("last")]
    calls = [call(f"c{index}") for index in range(40)]
    async with setting(client, gate) as pack, log_host(client) as host:
        gate.let(len(calls) + 1)
        # Some after each call: all at once would take the worker longer than Temporal's SDK lets it where it is slow.
        groups = [edge(f"c{index % len(calls)}", f"n{index}") for index in range(5000)]
        handle = await pack.start(workflow([*nodes, *calls], [edge("first", "last"), *groups]))
        async with asyncio.timeout(LIMIT):
            last = -1
            # Beside the nodes between: the run's start, what came of negotiating, `first` and how `last` begins. Of a
            # call there are four events, the first two as it begins.
            while last + 1 < 10_000 + 4 * len(calls) + 8:
                last = (await polled(host, handle.id, afterSequence=last + 1, timeout=5))["lastSequence"]
        every = await polled(host, handle.id, timeout=1)
        assert len(every["events"]) == last + 1
        history = sum(len(one.events) for one in await chain(client, handle.id))
        assert history > 100
        asked.clear()
        found = await polled(host, handle.id, afterSequence=last - 1)
        assert [event["sequence"] for event in found["events"]] == [last]
        every = await polled(host, handle.id)
        assert [event["sequence"] for event in every["events"]] == list(range(last + 1))
        assert sum(asked) == 0
        gate.let()
        async with asyncio.timeout(LIMIT):
            while not found["isTerminal"]:
                found = await polled(host, handle.id, afterSequence=found["lastSequence"])
        new = sum(len(one.events) for one in await chain(client, handle.id)) - history
        # Those who wait and those who read may have fetched the same page at the same time.
        assert 0 < sum(asked) - history - new <= 2 * new


# --- whoever reads may do so for as long as the credential is good ---


async def test_a_stream_and_a_poll_end_with_the_token_that_opened_them(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    async with setting(client, gate) as pack, log_host(client) as host:
        handle = await pack.start(sequence(1))
        first = (await polled(host, handle.id, timeout=60))["lastSequence"]
        brief = dataclasses.replace(KEYS["acme-all"], expires_at=time.time() + 5)
        monkeypatch.setitem(KEYS, "acme-all", brief)
        async with asyncio.timeout(LIMIT / 2):
            held = asyncio.create_task(polled(host, handle.id, afterSequence=first + 100, timeout=60))
            async with streaming(host.http, handle.id) as reader:
                with pytest.raises(httpx.RemoteProtocolError):
                    await reader.rest()
            assert (await held)["events"] == []
        assert reader.seen[0]["type"] == "run.started"
        # With a new one it is taken up where it was cut.
        monkeypatch.setitem(KEYS, "acme-all", dataclasses.replace(brief, expires_at=math.inf))
        gate.let()
        async with streaming(host.http, handle.id, after=reader.seen[-1]["sequence"]) as again:
            await again.rest()
        assert reader.seen + again.seen == await recorded(client, handle.id)


# --- large values ---


@dataclasses.dataclass
class Peak:
    """How many bytes a process came to hold beyond what it had."""

    bytes: int = 0


@contextlib.asynccontextmanager
async def peak_of(pid: int) -> AsyncIterator[Peak]:
    own = psutil.Process(pid)
    before, peak = own.memory_info().rss, Peak()

    async def watch() -> None:
        while True:
            peak.bytes = max(peak.bytes, own.memory_info().rss - before)
            await asyncio.sleep(0.02)

    watching = asyncio.create_task(watch())
    try:
        yield peak
    finally:
        watching.cancel()


@contextlib.asynccontextmanager
async def with_large_values(
    client: Client, folder: Path, count: int, *, chained: bool, size: int = MB
) -> AsyncIterator[tuple[Client, Pack, dict[str, Any]]]:
    def answer(request: Request) -> Any:
        mark = uuid.uuid4().hex.encode()
        return result_reply(request, b'{"content":[{"type":"text","text":"%b"}]}' % (mark + b"x" * size))

    names = [f"n{index}" for index in range(count)]
    edges = [edge(*pair) for pair in itertools.pairwise(names)] if chained else []
    async with FakeServer(modern({"tools/call": answer})) as server:
        settings = settings_for(server.url, storage={"folder": str(folder)})
        config = client.config()
        config["data_converter"] = data_converter(settings)
        stored = Client(**config)
        async with pack_worker(stored, settings) as pack:
            yield stored, pack, workflow([call(name) for name in names], edges)


async def test_large_values_are_whole_wherever_a_reader_begins(client: Client, tmp_path: Path) -> None:
    async with (
        with_large_values(client, tmp_path, 6, chained=False) as (stored, pack, definition),
        log_host(stored, max_bytes=1) as host,
    ):
        handle = await pack.start(definition)
        log, _ = await pack.end(handle)
        for after in range(-1, len(log)):
            body = (
                await host.http.get(
                    f"{path_of(handle.id)}/events/poll", params={"afterSequence": after} if after >= 0 else {}
                )
            ).content
            assert b",".join(event.encode() for event in log[after + 1 :]) in body
        for mode in ("debug", "debug&bufferMs=100"):
            stream = (await host.http.get(f"{path_of(handle.id)}/events?streamMode={mode}")).content
            assert all(event.payload in stream for event in log)


async def test_a_value_that_is_lost_is_told_and_cuts_what_is_under_way(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "values"
    async with with_large_values(client, folder, 3, chained=True) as (stored, pack, definition):
        handle = await pack.start(definition)
        await pack.end(handle)
        async with log_host(stored, max_bytes=1) as warm, log_host(stored) as cold:
            # Held, it is not read from its beginning before the answer begins.
            log = await warm.logs.open(BoundId.parse(handle.id, name="runId"))
            assert log.view.is_terminal
            moved = {file: file.rename(tmp_path / file.name) for file in folder.rglob("*") if file.is_file()}
            lost = await cold.http.get(f"{path_of(handle.id)}/events/poll")
            assert (lost.status_code, lost.json()["error"]) == (410, "run_expired")
            assert lost.json()["details"]["size"] > MB
            assert str(tmp_path) not in lost.text
            for path in ("/events/poll", "/events?streamMode=debug"):
                with pytest.raises(httpx.RemoteProtocolError):
                    await warm.http.get(path_of(handle.id) + path)
            for file, elsewhere in moved.items():
                elsewhere.rename(file)
            assert (await polled(cold, handle.id))["events"] == (await polled(warm, handle.id))["events"]


async def test_a_host_without_the_storage_of_the_workers_says_so(client: Client, tmp_path: Path) -> None:
    async with (
        with_large_values(client, tmp_path, 1, chained=True) as (_, pack, definition),
        log_host(client) as without,
    ):
        handle = await pack.start(definition)
        await pack.end(handle)
        answer = await without.http.get(f"{path_of(handle.id)}/events/poll")
        assert (answer.status_code, answer.json()["error"]) == (503, "service_unavailable")
        assert "retry-after" in answer.headers


@pytest.mark.parametrize("chained", [True, False], ids=["one after the other", "all at once"])
async def test_many_readers_of_fifty_large_results_take_up_little_memory(
    client: Client, temporal: EmbeddedTemporal, tmp_path: Path, chained: bool
) -> None:
    async with (
        with_large_values(client, tmp_path, 50, chained=chained) as (_, pack, definition),
        log_host_process(temporal.address, str(tmp_path)) as (http, process),
    ):
        handle = await pack.start(definition)
        await pack.end(handle)

        async def read(path: str) -> int:
            size = 0
            async with http.stream("GET", path_of(handle.id) + path) as answer:
                async for piece in answer.aiter_bytes():
                    size += len(piece)
            return size

        await http.get("/runs/none")
        async with peak_of(process.pid) as peak:
            paths = ["/events/poll", "/events?streamMode=debug"] * 10
            sizes = await asyncio.gather(*map(read, paths))
        assert min(sizes) > 50 * MB
        # Each by itself would hold all of it. How much is held twice is for how far apart they read.
        assert peak.bytes < 600 * MIB


def lose_values(folder: Path) -> None:
    for file in folder.rglob("*"):
        if file.is_file():
            file.unlink()


async def test_the_ledger_of_fifty_large_results_needs_none_of_them(
    client: Client, temporal: EmbeddedTemporal, tmp_path: Path
) -> None:
    async with (
        with_large_values(client, tmp_path, 50, chained=False, size=2 * MB) as (_, pack, definition),
        log_host_process(temporal.address, str(tmp_path)) as (http, process),
    ):
        handle = await pack.start(definition)
        await pack.end(handle)
        path = f"{path_of(handle.id)}/effects"
        await http.get("/runs/none")
        async with peak_of(process.pid) as peak:
            answers = await asyncio.gather(*(http.get(path) for _ in range(4)))
        # A call that had to be tried again has a row for each attempt.
        nodes = [{effect["nodeId"] for effect in answer.json()["effects"]} for answer in answers]
        assert nodes == [{f"n{index}" for index in range(50)}] * len(answers)
        assert peak.bytes < 60 * MIB
        lose_values(tmp_path)
        assert (await http.get(path)).content == answers[0].content


async def test_what_was_sent_is_digested_beside_all_other_requests(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    class Watched(Ledger):
        def take(self, event: HistoryEvent) -> None:
            if event.HasField("activity_task_scheduled_event_attributes"):
                threads.append(threading.current_thread())
            super().take(event)

    async with (
        with_large_values(client, tmp_path, 2, chained=False) as (stored, pack, definition),
        log_host(stored) as host,
    ):
        handle = await pack.start(definition)
        await pack.end(handle)
        monkeypatch.setattr(workflows.client, "Ledger", Watched)
        assert len((await host.http.get(f"{path_of(handle.id)}/effects")).json()["effects"]) == 2
    assert len(threads) == 2
    assert threading.main_thread() not in threads


async def test_a_ledger_whose_large_arguments_are_lost_is_refused(client: Client, tmp_path: Path) -> None:
    async with (
        with_large_values(client, tmp_path, 1, chained=False) as (stored, pack, definition),
        log_host(stored) as host,
    ):
        definition["nodes"][0]["inputs"] = {"arguments": {"type": "static", "value": {"text": "x" * MB}}}
        handle = await pack.start(definition)
        await pack.end(handle)
        path = f"{path_of(handle.id)}/effects"
        [effect] = (await host.http.get(path)).json()["effects"]
        assert effect["state"] == "completed"
        lose_values(tmp_path)
        answer = await host.http.get(path)
        assert (answer.status_code, answer.json()["error"]) == (410, "run_expired")
