"""What traces and metrics cost a worker: cut out of it, there and off, and sent to a collector."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.loads import calls_graph
from benchmarks.parts import Data, Options, Part
from benchmarks.report import table
from benchmarks.stage import Stage, stage

__all__ = ("PART",)

ROUNDS = 8
"""Twice as many as of others: what is looked for is small."""

CALLS = 100
"""Of one run."""

RUNS = {"calls at once": (8, CALLS), "calls in sequence": (5, 1)}
"""By how a run makes them: how many runs, and in how many chains each."""


@dataclass(frozen=True)
class Way:
    """A worker.

    Attributes:
        name: What it is called in the report.
        module: What is run.
        told: Whether it sends to a collector.
    """

    name: str
    module: str
    told: bool = False


WAYS = (
    Way("without the code for it", "benchmarks.untold"),
    Way("no exporter", "worker"),
    Way("traces and metrics to a collector", "worker", told=True),
)


async def _measure(options: Options) -> Data:
    rounds = 1 if options.quick else options.rounds or ROUNDS
    results: dict[str, dict[str, list[float]]] = {how: {way.name: [] for way in WAYS} for how in RUNS}
    async with stage() as shared:
        for number in range(rounds):
            turn = number % len(WAYS)
            for way in (*WAYS[turn:], *WAYS[:turn]):
                print(f"round {number + 1} of {rounds}: {way.name}", file=sys.stderr, flush=True)
                for how, cpu_ms in (await _round(shared, way, quick=options.quick)).items():
                    results[how][way.name].append(cpu_ms)
    return {"cpuMs": results}


async def _round(shared: Stage, way: Way, *, quick: bool) -> dict[str, float]:
    """Milliseconds of the worker's CPU for a call, by how they are made."""
    collector = {"OTEL_EXPORTER_OTLP_ENDPOINT": shared.url.removesuffix("/mcp")} if way.told else {}
    calls = 10 if quick else CALLS
    found: dict[str, float] = {}
    taken = await shared.taken()
    async with shared.worker(way.module, collector) as worker:
        await shared.run(calls_graph(calls, calls))
        for how, (runs, lanes) in RUNS.items():
            definition = calls_graph(calls, min(lanes, calls))
            before = worker.cpu()
            for _ in range(1 if quick else runs):
                await shared.run(definition)
            found[how] = (worker.cpu() - before) * 1000 / (calls * (1 if quick else runs))
    if (await shared.taken() > taken) is not way.told:
        raise RuntimeError(f"the collector was sent {'nothing' if way.told else 'something'} by a worker: {way.name}")
    return found


def _tables(data: Mapping[str, Any]) -> str:
    parts: list[str] = []
    columns = {
        "name": ("", None),
        "median": ("CPU ms/call", 2),
        "ratio": ("ratio", 3),
        "least": ("least", 2),
        "most": ("most", 2),
    }
    for how, by_way in data["cpuMs"].items():
        against = statistics.median(by_way[WAYS[0].name])
        rows = [
            {
                "name": name,
                "median": statistics.median(found),
                "ratio": statistics.median(found) / against if against else None,
                "least": min(found),
                "most": max(found),
            }
            for name, found in by_way.items()
        ]
        parts.append(f"### {CALLS} {how}\n\n" + table(rows, columns))
    return "\n\n".join(parts)


PART = Part(
    "Telemetry",
    "CPU of `worker.py run` for a call of a graph, medians of interleaved rounds with the least and the most of them: a"
    " ratio within these is none.",
    _measure,
    _tables,
)
