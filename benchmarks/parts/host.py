"""What the host can do: polls and streams of logs, runs created and listed, and how soon an event is told."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

import aiohttp

from benchmarks.loads import calls_graph, chain
from benchmarks.measure import percentile
from benchmarks.parts import Data, Options, Part
from benchmarks.programs import Program
from benchmarks.report import table
from benchmarks.stage import Stage, at_once, stage

__all__ = ("PART",)

CALLS = 24
"""Of a run whose log has about a hundred events: four for each call."""

LANES = 6
"""They are made side by side, so that such a run takes no long time."""

CLIENTS = 10
"""Requests at once: more than two cores need, less than would wait for one another for long."""

NOTHING = chain("nothing", [("core.noop", {})])
"""What is created: no worker has to do much with it."""

STREAMED = "streamMode=debug"
"""Every event is told by itself."""


@dataclass(frozen=True)
class Size:
    """How much is asked for.

    Attributes:
        runs: Finished runs, each of which is cold once.
        polls: Of what is warm.
        streams: At once.
        created: Runs.
        lists: Pages.
        one: Milliseconds between the events of the run that all streams are of, at first for these to be opened in.
        each: The same where each stream is of a run of its own. They are so long that Temporal and the worker are not
            what is waited for.
    """

    runs: int = 40
    polls: int = 1000
    streams: int = 200
    created: int = 500
    lists: int = 200
    one: Sequence[int] = (6_000, *[250] * 10)
    each: Sequence[int] = (15_000, *[5_000] * 4)


QUICK = Size(runs=2, polls=10, streams=5, created=5, lists=5, one=(2_000, 100), each=(2_000, 100))


async def _measure(options: Options) -> Data:
    size = QUICK if options.quick else Size()
    async with stage(flows=(NOTHING,)) as shared:
        async with shared.worker():
            runs = await at_once([shared.run(calls_graph(CALLS, LANES)) for _ in range(size.runs)], CLIENTS)
            # A host of its own, that knows none of the runs above.
            async with shared.host() as (host, http):
                events = [
                    await _live(host, http, shared, size.one, streams=size.streams, runs=1),
                    await _live(host, http, shared, size.each, streams=size.streams, runs=size.streams),
                ]
        # Without a worker, which would take the cores for what was created.
        async with shared.host() as (host, http):
            requests = [row async for row in _requests(host, http, runs, size)]
    return {"requests": requests, "events": events}


async def _requests(host: Program, http: aiohttp.ClientSession, runs: Sequence[str], size: Size) -> Any:
    """Ask for everything in turn; each row says what, how often in a second, and what it costs."""
    paths = [f"/runs/{quote(run_id, safe='')}" for run_id in runs]

    async def get(path: str) -> None:
        async with http.get(path) as answer:
            await answer.read()

    async def create(_: int) -> None:
        async with http.post("/runs", json={"workflowId": "nothing"}) as answer:
            await answer.read()

    # The first requests of a host that has just started pay for much that no others do.
    async with http.get(f"{paths[-1]}/events/poll") as answer:
        last = (await answer.json())["lastSequence"]
    await get("/runs")
    one, cold, all_of_it = paths[0], paths[:-1], f"{last + 1} events"
    asked: Sequence[tuple[str, int, int, Callable[[int], Awaitable[None]]]] = (
        (f"poll of {all_of_it}, cold", len(cold), CLIENTS, lambda n: get(f"{cold[n]}/events/poll")),
        (f"poll of {all_of_it}, warm", size.polls, CLIENTS, lambda _: get(f"{one}/events/poll")),
        (
            "poll of the last event, warm",
            size.polls,
            CLIENTS,
            lambda _: get(f"{one}/events/poll?afterSequence={last - 1}"),
        ),
        (f"stream of {all_of_it}", size.streams, size.streams, lambda _: get(f"{one}/events?{STREAMED}")),
        ("run created", size.created, CLIENTS, create),
        ("page of 50 runs", size.lists, CLIENTS, lambda _: get("/runs?limit=50")),
    )
    for name, count, clients, ask in asked:
        yield {"name": name, **await _load(host, ask, count, clients)}


async def _load(host: Program, ask: Callable[[int], Awaitable[None]], count: int, clients: int) -> dict[str, float]:
    times: list[float] = []

    async def timed(number: int) -> None:
        began = time.perf_counter()
        await ask(number)
        times.append((time.perf_counter() - began) * 1000)

    before, began = host.cpu(), time.perf_counter()
    await at_once([timed(number) for number in range(count)], clients)
    seconds, cpu = time.perf_counter() - began, host.cpu() - before
    return {
        "count": count,
        "atOnce": clients,
        "rate": count / seconds,
        "cpuMs": cpu * 1000 / count,
        "p50Ms": percentile(times, 0.5),
        "p99Ms": percentile(times, 0.99),
    }


async def _live(
    host: Program, http: aiohttp.ClientSession, shared: Stage, delays: Sequence[int], *, streams: int, runs: int
) -> dict[str, Any]:
    """Follow runs while they go on, with so many streams in all: how soon each event is told, and what that costs."""
    live = chain("live", [("core.delay", {"delayMs": delay}) for delay in delays])
    handles = await at_once([shared.start(live) for _ in range(runs)])
    watches = [_Watch(http, handles[number % runs].id) for number in range(streams)]
    following = [asyncio.create_task(watch.follow()) for watch in watches]
    await asyncio.gather(*(watch.open.wait() for watch in watches))
    # What was told until now was told with the opening of a stream.
    for watch in watches:
        watch.times.clear()
    before = host.cpu()
    await asyncio.gather(*following)
    times = [one for watch in watches for one in watch.times]
    cpu_us = (host.cpu() - before) * 1e6
    if not times:
        raise RuntimeError("the streams were opened so slowly that the runs were over by then")
    return {
        "name": "one run" if runs == 1 else "a run for each",
        "streams": streams,
        "events": len(times),
        "cpuUs": cpu_us / len(times),
        "p50Ms": percentile(times, 0.5),
        "p99Ms": percentile(times, 0.99),
    }


class _Watch:
    """One stream of one run.

    Attributes:
        open: Set with the first event.
        times: Milliseconds from an event, by Temporal's clock, to its being here.
    """

    def __init__(self, http: aiohttp.ClientSession, run_id: str) -> None:
        self.open = asyncio.Event()
        self.times: list[float] = []
        self._http = http
        self._path = f"/runs/{quote(run_id, safe='')}/events?{STREAMED}"

    async def follow(self) -> None:
        """Take events until the stream ends."""
        async with self._http.get(self._path) as answer:
            async for line in answer.content:
                if line.startswith(b"data:"):
                    at = datetime.fromisoformat(json.loads(line[5:])["timestamp"])
                    self.times.append(max(0.0, time.time() - at.timestamp()) * 1000)
                    self.open.set()


def _tables(data: Mapping[str, Any]) -> str:
    asked = {
        "name": ("", None),
        "count": ("asked", 0),
        "atOnce": ("at once", 0),
        "rate": ("/s", 0),
        "cpuMs": ("CPU ms each", 2),
        "p50Ms": ("p50 ms", 1),
        "p99Ms": ("p99 ms", 1),
    }
    told = {
        "name": ("streams of", None),
        "streams": ("streams", 0),
        "events": ("events told", 0),
        "cpuUs": ("CPU µs/event", 0),
        "p50Ms": ("p50 ms to the event", 1),
        "p99Ms": ("p99 ms", 1),
    }
    requests, events = table(data["requests"], asked), table(data["events"], told)
    return f"### Requests\n\n{requests}\n\n### Events as they come\n\n{events}"


PART = Part(
    "The host",
    "CPU of `worker.py serve`; its clients and Temporal have the same cores. A poll is cold where the host has read"
    " nothing of the run before. An event's time begins when Temporal recorded it, and the run's worker has its share.",
    _measure,
    _tables,
)
