"""`make chaos`: calls to servers that drop, delay, truncate, reset and lie at random, and a table of what came out.

    python -m tests.chaos [--calls N] [--seed S]

N calls over HTTP, and a fifth as many each to servers with sessions and to local processes. Ends with 0 only if every
call ended as it must and nothing is left of them.
"""

from __future__ import annotations

import argparse
import secrets
import sys

import uvloop

from tests.chaos.storm import SECTIONS, Storm, run

SHOWN = 20
"""Violations that are shown of each section."""


async def main(calls: int, seed: str) -> int:
    sys.stdout.write(f"seed {seed}\n")
    bad = 0
    for name in SECTIONS:
        storm = await run(name, calls if name == "modern" else calls // 5, seed)
        sys.stdout.write(table(storm))
        sys.stdout.flush()
        bad += len(storm.violations)
    sys.stdout.write("all held\n" if not bad else f"{bad} violations; again with --calls {calls} --seed {seed}\n")
    return 1 if bad else 0


def table(storm: Storm) -> str:
    mega = 1024**2
    rows = [
        f"\n{storm.name}: {storm.calls} calls in {storm.seconds:.1f} s, {storm.calls / storm.seconds:.0f} calls/s",
        f"  memory after the warm-up and at the end   {storm.memory[0] / mega:.1f} MB, {storm.memory[1] / mega:.1f} MB",
        f"  objects after the warm-up and at the end  {storm.objects[0]}, {storm.objects[1]}",
        f"  descriptors before and at the end         {storm.descriptors[0]}, {storm.descriptors[1]}",
        f"  worst overrun of a limit                  {storm.overrun:.3f} s (longest stall {storm.stall:.3f} s)",
        *([f"  sessions opened                           {storm.sessions}"] if storm.sessions else []),
        *(f"  {count:6d} {kind}" for kind, count in storm.ends.most_common()),
        *(f"  VIOLATION {what}" for what in storm.violations[:SHOWN]),
    ]
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description="Call servers that fail at random, and tell what came of every call."
    )
    parser.add_argument(
        "--calls",
        type=int,
        default=10_000,
        metavar="N",
        help="calls over HTTP, default 10000; a fifth as many each to servers with sessions and to local processes",
    )
    parser.add_argument(
        "--seed",
        default=secrets.token_hex(4),
        metavar="S",
        help="decides what fails, and how; default a new one, which is printed, so that a run can be repeated",
    )
    given = parser.parse_args()
    sys.exit(uvloop.run(main(given.calls, given.seed)))
