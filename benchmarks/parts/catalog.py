"""What it costs to list a server's tools anew, by how many they are and how many of them have changed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from benchmarks.loads import TENANT
from benchmarks.parts import Data, Options, Part
from benchmarks.programs import Program
from benchmarks.report import table
from benchmarks.stage import Stage, stage
from benchmarks.variants import SERVER
from openwop_mcp.catalogs import Catalogs

__all__ = ("PART", "refreshed")

TOOLS = {10: 60, 100: 40, 1000: 15}
"""By how many tools there are, how often they are listed for one row: CPU is told in steps of 10 ms."""

QUICK = {10: 2}

PATIENCE = 60.0
"""Seconds for one refresh."""


async def _measure(options: Options) -> Data:
    rows: list[dict[str, Any]] = []
    async with stage() as shared, shared.worker() as worker:
        catalogs = shared.catalogs()
        for tools, times in (QUICK if options.quick else TOOLS).items():
            await shared.offer(tools=tools)
            await _listed(catalogs, tools)
            for name, changed in (("nothing", 0), ("one tool", 1), ("all", tools)):
                facts = await refreshed(shared, worker, catalogs, changed=changed, times=times)
                rows.append({"name": f"{tools} tools, {name} changed", "tools": tools, "changed": changed, **facts})
    return {"rows": rows}


async def refreshed(
    shared: Stage, worker: Program, catalogs: Catalogs, *, changed: int, times: int
) -> dict[str, float]:
    """Have the tools listed so often, with as many changed each time; milliseconds for one of them."""
    wall = cpu = reading = 0.0
    for _ in range(times):
        await shared.offer(changed=changed)
        before, began = worker.cpu(), time.perf_counter()
        if not await catalogs.refresh(TENANT, SERVER, within=PATIENCE, force=True):
            raise RuntimeError("the tools were not listed")
        wall += time.perf_counter() - began
        cpu += worker.cpu() - before
        before_reading = time.process_time()
        await catalogs.read(TENANT, SERVER)
        reading += time.process_time() - before_reading
    return {
        "times": times,
        "cpuMs": cpu * 1000 / times,
        "wallMs": wall * 1000 / times,
        "readMs": reading * 1000 / times,
    }


async def _listed(catalogs: Catalogs, tools: int) -> None:
    """Have so many tools listed, and see that they are."""
    await catalogs.refresh(TENANT, SERVER, within=PATIENCE, force=True)
    catalog = await catalogs.read(TENANT, SERVER)
    found = 0 if catalog is None else len(list(catalog.names()))
    if found != tools:
        raise RuntimeError(f"{found} tools are listed, not {tools}")


def _tables(data: Mapping[str, Any]) -> str:
    columns = {
        "name": ("", None),
        "times": ("listed", 0),
        "cpuMs": ("worker CPU ms", 2),
        "wallMs": ("ms", 1),
        "readMs": ("CPU ms of who reads it", 2),
    }
    return table(data["rows"], columns)


PART = Part(
    "The catalog",
    "A refresh of a server's tools, a kilobyte each, a hundred on a page; and the CPU with which a host learns of it.",
    _measure,
    _tables,
)
