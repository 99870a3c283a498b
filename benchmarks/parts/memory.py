"""What runs take up that wait: in the worker, in a host that has been asked for each, and in Temporal."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import aiohttp

from benchmarks.loads import chain
from benchmarks.parts import Data, Options, Part
from benchmarks.report import table
from benchmarks.stage import AT_ONCE, Stage, at_once, stage

__all__ = ("PART",)

RUNS = 1_000

WARM_UP = 50
"""Runs of each kind before: what a process needs for its first ones is no run's."""

QUICK = 5

WAITING = {
    "an approval": chain("approval", [("core.approvalGate", {"title": "Shall it go on?"})]),
    "a delay": chain("delay", [("core.delay", {"delayMs": 3_600_000})]),
}

BEGUN = 5
"""Events in the history of a run that waits: its start, one task of three, and what the task decided."""

LOOK = 0.05
"""Seconds between two looks at whether a run has come so far."""

SETTLED = 3.0
"""Seconds for processes to let go of what they had only while runs began."""


async def _measure(options: Options) -> Data:
    count, warm_up = (QUICK, 1) if options.quick else (RUNS, WARM_UP)
    async with stage() as shared, shared.worker() as worker, shared.host() as (host, http):
        processes = {"worker": worker, "host": host, "temporal": shared.temporal}
        rows: list[dict[str, Any]] = []

        async def tell(name: str, runs: int) -> None:
            await asyncio.sleep(SETTLED)
            rows.append({"name": name, "runs": runs, **{key: one.rss() / 1e6 for key, one in processes.items()}})

        for definition in WAITING.values():
            await _read(http, await _waiting(shared, definition, warm_up))
        await tell("at the beginning", 0)
        for what, definition in WAITING.items():
            runs = await _waiting(shared, definition, count)
            await tell(f"{count:,} more runs wait for {what}", count)
            await _read(http, runs)
            await tell("and each of them was read", count)
    return {"rows": rows}


async def _waiting(shared: Stage, definition: bytes, count: int) -> Sequence[str]:
    """Start so many runs, and see that they wait; gives their ids."""

    async def one() -> str:
        handle = await shared.start(definition)
        while (await handle.describe()).history_length < BEGUN:  # noqa: ASYNC110 - Temporal tells no event of it
            await asyncio.sleep(LOOK)
        return handle.id

    return await at_once([one() for _ in range(count)])


async def _read(http: aiohttp.ClientSession, runs: Sequence[str]) -> None:
    async def one(run_id: str) -> None:
        async with http.get(f"/runs/{quote(run_id, safe='')}/events/poll") as answer:
            await answer.read()

    await at_once([one(run_id) for run_id in runs], AT_ONCE)


def _tables(data: Mapping[str, Any]) -> str:
    before: Mapping[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for row in data["rows"]:
        more = {
            f"{key}More": (row[key] - before[key]) * 1000 / row["runs"]
            for key in ("worker", "host", "temporal")
            if before
        }
        rows.append({**row, **more})
        before = row
    columns = {
        "name": ("", None),
        "worker": ("worker MB", 0),
        "host": ("host MB", 0),
        "temporal": ("Temporal MB", 0),
        "workerMore": ("worker kB/run", 0),
        "hostMore": ("host kB/run", 0),
        "temporalMore": ("Temporal kB/run", 0),
    }
    return table(rows, columns)


PART = Part(
    "Memory of runs that wait",
    "Resident sets. A worker keeps a thousand runs at most, which is the SDK's default, and reads others anew; a host"
    " keeps 64 MB of logs. The embedded Temporal has all of its database in memory.",
    _measure,
    _tables,
)
