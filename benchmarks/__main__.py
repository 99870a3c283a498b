"""The command: starts Temporal and the MCP server, runs the variants in turn, prints and keeps the results."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from temporalio.client import Client

from benchmarks.measure import Bench, Sample, Shape, program
from benchmarks.report import machine, summary, table
from benchmarks.variants import VARIANTS
from openwop_mcp.embedded import embedded_temporal

RESULTS = Path(__file__).resolve().parent / "results"

SHAPES = (
    Shape("Fan-out of 100 calls in one workflow", workflows=6, calls=100, fan_out=True),
    Shape("100 calls in sequence in one workflow", workflows=2, calls=100, fan_out=False),
    Shape("50 workflows of ten calls in sequence", workflows=50, calls=10, fan_out=False, together=True),
)
"""Few workflows with many calls: a workflow of one call costs the Temporal server so much that nothing else shows."""

QUICK = (
    Shape("Fan-out of 100 calls in one workflow", workflows=1, calls=100, fan_out=True),
    Shape("20 calls in sequence in one workflow", workflows=1, calls=20, fan_out=False),
    Shape("10 workflows of five calls in sequence", workflows=10, calls=5, fan_out=False, together=True),
)
"""Enough to see that everything runs; too little to quote."""

WARM_UP = Shape("warm-up", workflows=2, calls=50, fan_out=True, together=True)


async def bench(
    variants: Sequence[str], shapes: Sequence[Shape], rounds: int
) -> dict[str, list[tuple[dict[str, Sample], int]]]:
    """Run every round with every variant; each round begins with another one, so that none is always first."""
    results: dict[str, list[tuple[dict[str, Sample], int]]] = {variant: [] for variant in variants}
    async with embedded_temporal() as temporal, program("benchmarks.server") as (_, server):
        shared = Bench(await Client.connect(temporal.address), temporal.address, server["url"])
        for number in range(rounds):
            turn = number % len(variants)
            for variant in (*variants[turn:], *variants[:turn]):
                print(f"round {number + 1} of {rounds}: {VARIANTS[variant]}", file=sys.stderr, flush=True)
                results[variant].append(await shared.round(variant, WARM_UP, shapes))
    return results


def main() -> None:
    """Read the command line, run, report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one small round, to see that it runs; keeps no results")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="which to run, with commas between")
    options = parser.parse_args()
    variants = options.variants.split(",")
    if unknown := [name for name in variants if name not in VARIANTS]:
        parser.error(f"no such variant: {', '.join(unknown)} (there are {', '.join(VARIANTS)})")
    shapes, rounds = (QUICK, 1) if options.quick else (SHAPES, options.rounds)
    if rounds < 1:
        parser.error("--rounds must be at least 1")
    results = asyncio.run(bench(variants, shapes, rounds))
    facts, data = machine(), summary(results, shapes)
    text = table(data, facts, rounds)
    print(text)
    if not options.quick:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "latest.json").write_text(json.dumps({"machine": facts, **data}, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "latest.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
