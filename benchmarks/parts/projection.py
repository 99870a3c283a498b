"""What it costs to compute a run's log from its history, by how long that is."""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from typing import Any

from temporalio.client import WorkflowHistory

from benchmarks.loads import bare_calls_graph
from benchmarks.parts import Data, Options, Part
from benchmarks.report import table
from benchmarks.stage import stage
from openwop_mcp.runs.projection import Projector
from workflows.client import histories

__all__ = ("PART",)

CALLS = {"1k": 190, "10k": 1_900, "50k": 9_000}
"""By about how many events a history gets, calls of its run. A definition has room for few more."""

QUICK = {"0.1k": 20}

LANES = 2
"""Chains in which the calls are made: the fewer, the more events there are for a call."""

TIMES = 3
"""How often each is computed; the least is told, as the others were disturbed."""


async def _measure(options: Options) -> Data:
    rows: list[dict[str, Any]] = []
    async with stage() as shared, shared.worker():
        for name, calls in (QUICK if options.quick else CALLS).items():
            print(f"a run of {calls} calls", file=sys.stderr, flush=True)
            run_id = await shared.run(bare_calls_graph(calls, LANES))
            found = [history async for history in histories(shared.client, run_id)]
            rows.append({"name": name, "calls": calls, **projected(run_id, found)})
    return {"rows": rows}


def projected(run_id: str, found: Sequence[WorkflowHistory]) -> dict[str, float]:
    """Compute the log of a run as a host does, which keeps no event of it: CPU, and memory in a run of its own."""
    length = sum(len(history.events) for history in found)
    times: list[float] = []
    events = 0
    for _ in range(TIMES):
        began = time.process_time()
        events = _project(run_id, found)
        times.append(time.process_time() - began)
    tracemalloc.start()
    try:
        _project(run_id, found)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    seconds = min(times)
    return {
        "parts": len(found),
        "historyEvents": length,
        "events": events,
        "cpuMs": seconds * 1000,
        "cpuUs": seconds * 1e6 / length,
        "peakMb": peak / 1e6,
    }


def _project(run_id: str, found: Sequence[WorkflowHistory]) -> int:
    projector = Projector(run_id)
    return sum(len(projector.take(event)) for history in found for event in history.events) + len(projector.project(()))


def _tables(data: Mapping[str, Any]) -> str:
    columns = {
        "name": ("history of", None),
        "calls": ("calls", 0),
        "parts": ("parts", 0),
        "historyEvents": ("events of Temporal's", 0),
        "events": ("events of the log", 0),
        "cpuMs": ("CPU ms", 0),
        "cpuUs": ("CPU µs/event of Temporal's", 1),
        "peakMb": ("MB at most", 1),
    }
    return table(data["rows"], columns)


PART = Part(
    "The log of a long run",
    "A run's log, computed from its history event by event as a host does it, without what it takes to read that from"
    " Temporal. Parts are histories that Temporal had the run go on in.",
    _measure,
    _tables,
)
