"""What a call costs: the variants side by side, in shapes that workflows have."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from temporalio.client import Client

from benchmarks.measure import Bench, Sample, Shape
from benchmarks.parts import Data, Options, Part
from benchmarks.programs import Process, program
from benchmarks.report import grid
from benchmarks.variants import VARIANTS
from openwop_mcp.embedded import embedded_temporal

__all__ = ("NO_WARM_UP", "PART", "QUICK", "SHAPES", "WARM_UP", "Results", "medians")

SHAPES = (
    Shape("Fan-out of 100 calls in one workflow", workflows=6, calls=100, fan_out=True),
    Shape("100 calls in sequence in one workflow", workflows=2, calls=100, fan_out=False),
    Shape("50 workflows of ten calls in sequence", workflows=50, calls=10, fan_out=False, together=True),
)
"""Few workflows with many calls: a workflow of one call costs the Temporal server so much that nothing else shows."""

QUICK = (
    Shape("Fan-out of ten calls in one workflow", workflows=1, calls=10, fan_out=True),
    Shape("Five calls in sequence in one workflow", workflows=1, calls=5, fan_out=False),
    Shape("Three workflows of two calls in sequence", workflows=3, calls=2, fan_out=False, together=True),
)
"""Enough to see that everything runs; too little to quote."""

WARM_UP = Shape("warm-up", workflows=2, calls=50, fan_out=True, together=True)

NO_WARM_UP = Shape("warm-up", workflows=1, calls=1, fan_out=True)

ROUNDS = 4

OTHERS = ("peer", "bare")
"""What the pack is held against."""

HEADINGS = {
    "cpu_ms": "CPU ms/call",
    "temporal_ms": "Temporal CPU ms/call",
    "rate": "calls/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "kilobytes": "kB/call",
    "requests": "HTTP/call",
}

Results = Mapping[str, Sequence[tuple[Mapping[str, Sample], int]]]
"""By variant, one entry for each round: samples by shape, and the worker's peak memory in bytes."""

Medians = dict[str, dict[str, dict[str, float]]]
"""By shape, variant and field of a sample."""


async def _measure(options: Options) -> Data:
    """Run every round with every variant; each round begins with another one, so that none is always first."""
    shapes, warm_up, rounds = (QUICK, NO_WARM_UP, 1) if options.quick else (SHAPES, WARM_UP, options.rounds or ROUNDS)
    variants = options.variants or tuple(VARIANTS)
    results: dict[str, list[tuple[dict[str, Sample], int]]] = {variant: [] for variant in variants}
    async with embedded_temporal() as temporal, program("benchmarks.server") as (_, server):
        client = await Client.connect(temporal.address)
        shared = Bench(client, Process(temporal.process.pid), temporal.address, server["url"])
        for number in range(rounds):
            turn = number % len(variants)
            for variant in (*variants[turn:], *variants[:turn]):
                print(f"round {number + 1} of {rounds}: {VARIANTS[variant]}", file=sys.stderr, flush=True)
                results[variant].append(await shared.round(variant, warm_up, shapes))
    return _summary(results, shapes)


def medians(results: Results, shapes: Sequence[Shape]) -> Medians:
    """The medians of the rounds."""
    return {
        shape.name: {
            variant: {
                field.name: statistics.median(getattr(samples[shape.name], field.name) for samples, _ in rounds)
                for field in fields(Sample)
            }
            for variant, rounds in results.items()
        }
        for shape in shapes
    }


def _summary(results: Results, shapes: Sequence[Shape]) -> Data:
    """Medians of the rounds, the ratios of the pack to the others, and every sample."""
    middle = medians(results, shapes)
    rss = {variant: statistics.median(peak for _, peak in rounds) for variant, rounds in results.items()}
    return {
        "shapes": {shape.name: asdict(shape) for shape in shapes},
        "medians": middle,
        "peakRssBytes": rss,
        "ratios": _ratios(middle, rss),
        "rounds": {
            variant: [
                {"samples": {name: asdict(sample) for name, sample in samples.items()}, "peakRssBytes": peak}
                for samples, peak in rounds
            ]
            for variant, rounds in results.items()
        },
    }


def _ratios(
    middle: Mapping[str, Mapping[str, Mapping[str, float]]], rss: Mapping[str, float]
) -> dict[str, dict[str, dict[str, float]]]:
    """The medians of each form of the pack divided by those of what a user would pick instead."""
    return {
        f"{ours}/{other}": {
            **{
                shape: {key: _ratio(variants[ours][key], variants[other][key]) for key in HEADINGS}
                for shape, variants in middle.items()
            },
            "memory": {"peakRss": rss[ours] / rss[other]},
        }
        for other in OTHERS
        for ours in rss
        if other in rss and ours not in OTHERS
    }


def _ratio(ours: float, other: float) -> float:
    # Where the system does not tell, both are 0, and so is a small amount of the server's CPU.
    return ours / other if other else 0.0


def _tables(data: Mapping[str, Any]) -> str:
    parts: list[str] = []
    for shape, variants in data["medians"].items():
        rows = [
            [VARIANTS[variant], *(f"{values[key]:.2f}" if key != "rate" else f"{values[key]:.0f}" for key in HEADINGS)]
            for variant, values in variants.items()
        ]
        rows += [
            [f"ratio {name}", *(f"{by_shape[shape][key]:.2f}" for key in HEADINGS)]
            for name, by_shape in data["ratios"].items()
        ]
        parts.append(f"### {shape}\n\n" + grid(["", *HEADINGS.values()], rows))
    rows = [[VARIANTS[variant], f"{peak / 1e6:.0f}"] for variant, peak in data["peakRssBytes"].items()]
    rows += [[f"ratio {name}", f"{by_shape['memory']['peakRss']:.2f}"] for name, by_shape in data["ratios"].items()]
    parts.append("### Peak memory of the worker\n\n" + grid(["", "MB"], rows))
    return "\n\n".join(parts)


PART = Part(
    "A call",
    "Medians of interleaved rounds, each with a fresh worker process. CPU is the worker's, user and system. Latency"
    " runs from a call's scheduling to its completion. kB are what worker and Temporal exchanged. A graph's worker"
    " does not compress it, as `worker.py` does not to a Temporal of its own machine; the others are authors' workers,"
    " with gzip, as the SDK has it. The next part has all of them with both.",
    _measure,
    _tables,
)
