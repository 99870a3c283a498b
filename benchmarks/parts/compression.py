"""What gzip between the worker and Temporal costs and saves: the same calls with it and without."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from temporalio.client import Client
from temporalio.service import GrpcCompression

from benchmarks.measure import Bench, Sample
from benchmarks.parts import Data, Options, Part
from benchmarks.parts.calls import NO_WARM_UP, QUICK, SHAPES, WARM_UP, medians
from benchmarks.programs import Process, program
from benchmarks.report import grid
from benchmarks.variants import VARIANTS
from commands.connection import COMPRESSIONS
from openwop_mcp.embedded import embedded_temporal

__all__ = ("PART",)

ROUNDS = 3

OURS = ("graph", "graph-claimed", "pack", "claimed")
"""Variants: what goes to Temporal differs with the workflow, and with the claim."""

PEER = "peer"
"""What they are held against, with the same compression."""

COMPARED = (*OURS, PEER)

HEADINGS = {
    "cpu_ms": "CPU ms/call",
    "temporal_ms": "Temporal CPU ms/call",
    "p50_ms": "p50 ms",
    "kilobytes": "kB/call",
}


async def _measure(options: Options) -> Data:
    shapes, warm_up, rounds = (QUICK, NO_WARM_UP, 1) if options.quick else (SHAPES, WARM_UP, options.rounds or ROUNDS)
    ways = [(variant, compression) for variant in COMPARED for compression in COMPRESSIONS]
    results: dict[str, list[tuple[dict[str, Sample], int]]] = {" ".join(way): [] for way in ways}
    async with embedded_temporal() as temporal, program("benchmarks.server") as (_, server):
        # What starts workflows and reads them does not compress, so that Temporal's CPU tells of the worker alone.
        client = await Client.connect(temporal.address, grpc_compression=GrpcCompression.NONE)
        shared = Bench(client, Process(temporal.process.pid), temporal.address, server["url"])
        for number in range(rounds):
            for variant, compression in ways if number % 2 == 0 else reversed(ways):
                print(f"round {number + 1} of {rounds}: {variant}, {compression}", file=sys.stderr, flush=True)
                one = await shared.round(variant, warm_up, shapes, compression)
                results[f"{variant} {compression}"].append(one)
    return {"medians": medians(results, shapes)}


def _tables(data: Mapping[str, Any]) -> str:
    parts: list[str] = []
    for shape, by_way in data["medians"].items():
        rows: list[list[str]] = []
        for variant in COMPARED:
            gzip, none = (by_way[f"{variant} {compression}"] for compression in ("gzip", "none"))
            for name, values in (("gzip", gzip), ("none", none)):
                rows.append([f"{VARIANTS[variant]}: {name}", *(f"{values[key]:.2f}" for key in HEADINGS)])
            rows.append(["ratio none/gzip", *(_ratio(none[key], gzip[key]) for key in HEADINGS)])
        rows += [
            [
                f"ratio {variant}/{PEER}: {compression}",
                *(
                    _ratio(by_way[f"{variant} {compression}"][key], by_way[f"{PEER} {compression}"][key])
                    for key in HEADINGS
                ),
            ]
            for compression in COMPRESSIONS
            for variant in OURS
        ]
        parts.append(f"### {shape}\n\n" + grid(["", *HEADINGS.values()], rows))
    return "\n\n".join(parts)


def _ratio(one: float, other: float) -> str:
    return f"{one / other:.2f}" if other else ""


PART = Part(
    "Compression between worker and Temporal",
    "Medians of interleaved rounds, as above. kB are what both sent, as it was on the wire.",
    _measure,
    _tables,
)
