"""How cost grows with what there is: ten times as much, and a hundred times."""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.loads import TENANT, calls_graph, give_graph
from benchmarks.parts import Data, Options, Part
from benchmarks.parts.catalog import refreshed
from benchmarks.programs import Program
from benchmarks.report import table
from benchmarks.stage import Stage, at_once, stage
from benchmarks.variants import SERVER
from openwop_mcp.runs.projection import Projector
from workflows.client import histories

__all__ = ("PART",)

FACTORS = (1, 10, 100)

LANES = 10
"""Chains of calls in one run."""

LEAST = 0.5
"""Seconds of CPU that one number comes from at least, as it is told in steps of 10 ms."""

MOST_TIMES = 200
"""How often something small is done for that at most."""

PATIENCE = 60.0
"""Seconds for one refresh of a catalog."""

SIZES = {"1 kB": 1_000, "10 kB": 10_000, "100 kB": 100_000, "600 kB": 600_000}
"""Results, of which one is ten and one a hundred times as long; the longest is just below what is taken, 64 MiB."""


@dataclass(frozen=True)
class _Setting:
    """What costs are found with."""

    shared: Stage
    worker: Program
    quick: bool

    async def worker_ms(self, once: Callable[[], Awaitable[object]]) -> float:
        """Milliseconds of the worker's CPU for something that is done as often as it takes to tell them."""
        # What is done first pays for what is only there afterwards.
        await once()
        before, times = self.worker.cpu(), 0
        while not times or (not self.quick and self.worker.cpu() - before < LEAST and times < MOST_TIMES):
            await once()
            times += 1
        return (self.worker.cpu() - before) * 1000 / times


Cost = Callable[[_Setting, int], Awaitable[Mapping[str, float]]]
"""Finds what so many, or so much, cost: by what it is for."""


async def _runs(setting: _Setting, count: int) -> Mapping[str, float]:
    definition = calls_graph(1, 1)

    async def once() -> None:
        await at_once([setting.shared.run(definition) for _ in range(count)])

    return {"worker": await setting.worker_ms(once)}


async def _calls(setting: _Setting, count: int) -> Mapping[str, float]:
    ran: list[str] = []

    async def once() -> None:
        ran.append(await setting.shared.run(calls_graph(count, LANES)))

    worker = await setting.worker_ms(once)
    found = [history async for history in histories(setting.shared.client, ran[-1])]
    began = time.process_time()
    projector = Projector(ran[-1])
    for history in found:
        projector.project(history.events)
    return {"worker": worker, "its log computed": (time.process_time() - began) * 1000}


async def _tools(setting: _Setting, count: int) -> Mapping[str, float]:
    shared, catalogs = setting.shared, setting.shared.catalogs()
    await shared.offer(tools=count)
    await catalogs.refresh(TENANT, SERVER, within=PATIENCE, force=True)
    times = 1 if setting.quick else max(5, MOST_TIMES // 4 // count)
    facts = await refreshed(shared, setting.worker, catalogs, changed=count, times=times)
    return {"worker": facts["cpuMs"], "who reads them": facts["readMs"]}


async def _result(setting: _Setting, size: int) -> Mapping[str, float]:
    definition = give_graph(size)

    async def once() -> None:
        await setting.shared.run(definition)

    return {"worker": await setting.worker_ms(once)}


@dataclass(frozen=True)
class Growth:
    """Something that grows.

    Attributes:
        name: What it is, with the size that it has at first.
        first: That size.
        cost: Finds its cost.
        slow: Whether it is left out of a quick look.
    """

    name: str
    first: int
    cost: Cost
    slow: bool = False


GROWTHS: Sequence[Growth] = (
    Growth("10 runs of one call", 10, _runs),
    Growth("a run of 10 calls", 10, _calls),
    Growth("10 tools listed, all changed", 10, _tools),
    *(Growth(f"a result of {name}", size, _result, slow=size > SIZES["1 kB"]) for name, size in SIZES.items()),
)


async def _measure(options: Options) -> Data:
    rows: list[dict[str, Any]] = []
    known: dict[tuple[Cost, int], Mapping[str, float]] = {}
    async with stage() as shared, shared.worker() as worker:
        setting = _Setting(shared, worker, options.quick)
        for growth in GROWTHS:
            if options.quick and growth.slow:
                continue
            print(growth.name, file=sys.stderr, flush=True)
            sizes = [growth.first * factor for factor in (FACTORS[:2] if options.quick else FACTORS)]
            for size in sizes:
                if (growth.cost, size) not in known:
                    known[growth.cost, size] = await growth.cost(setting, size)
            of = [known[growth.cost, size] for size in sizes]
            rows += [
                {"name": f"{growth.name}: {whose}", "sizes": sizes, "ms": [one[whose] for one in of]} for whose in of[0]
            ]
    return {"rows": rows}


def _tables(data: Mapping[str, Any]) -> str:
    def factor(row: Mapping[str, Any], index: int) -> float | None:
        return row["ms"][index] / row["ms"][0] if len(row["ms"]) > index and row["ms"][0] else None

    rows = [
        {
            "name": row["name"],
            "first": row["ms"][0],
            "ten": factor(row, 1),
            "hundred": factor(row, 2),
            "last": _last(row["ms"]),
        }
        for row in data["rows"]
    ]
    columns = {
        "name": ("", None),
        "first": ("CPU ms", 2),
        "ten": ("10 times: by", 1),
        "hundred": ("100 times: by", 1),
        "last": ("10 to 100 times: by", 1),
    }
    return table(rows, columns)


def _last(costs: Sequence[float]) -> float | None:
    """By what the last tenfold multiplied the cost: over ten is more than linear, whatever was fixed before."""
    return costs[-1] / costs[-2] if len(costs) > 1 and costs[-2] else None


PART = Part(
    "Growth",
    "CPU at the size that is named, and by what it is multiplied where there is ten and a hundred times as much: more"
    " than 10 or 100 would be more than linear.",
    _measure,
    _tables,
)
