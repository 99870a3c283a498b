"""The command: measures the parts in turn, prints the report, and keeps it beside what was measured."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.parts import PARTS, Data, Options, load
from benchmarks.report import document, machine, merged
from benchmarks.variants import VARIANTS

__all__ = ("main",)

RESULTS = Path(__file__).resolve().parent / "results"


def names(parser: argparse.ArgumentParser, given: str, known: Sequence[str], what: str) -> tuple[str, ...]:
    """The names of a list, or an end where there is no such thing."""
    found = tuple(given.split(","))
    if unknown := [name for name in found if name not in known]:
        parser.error(f"no such {what}: {', '.join(unknown)} (there are {', '.join(known)})")
    return found


def kept() -> dict[str, Any] | None:
    """What is kept of before."""
    file = RESULTS / "latest.json"
    found: dict[str, Any] | None = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
    return found if found is not None and "parts" in found else None


def main() -> None:
    """Read the command line, measure, report."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--only", metavar="PART[,PART]", default=",".join(PARTS), help=f"of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, help="of the parts that have interleaved rounds")
    parser.add_argument("--quick", action="store_true", help="as little as shows that it runs; keeps no results")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="which calls to compare, with commas between")
    options = parser.parse_args()
    parts = names(parser, options.only, PARTS, "part")
    variants = names(parser, options.variants, tuple(VARIANTS), "variant")
    if options.rounds is not None and options.rounds < 1:
        parser.error("--rounds must be at least 1")
    measured: dict[str, Data] = {}
    for name in parts:
        print(f"{name}…", file=sys.stderr, flush=True)
        began = time.monotonic()
        measured[name] = asyncio.run(load(name).measure(Options(options.quick, options.rounds, variants)))
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    facts = machine()
    print(document({"machine": facts, "parts": measured}))
    if not options.quick:
        results = merged(kept(), facts, measured)
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "latest.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (RESULTS / "latest.md").write_text(document(results), encoding="utf-8")


if __name__ == "__main__":
    main()
