"""`make chaos`: everything fails at random, and a table of what came out.

    python -m tests.chaos [wire | effects] [--calls N] [--kills K] [--seed S]

`wire` makes N calls over HTTP, and a fifth as many each to servers with sessions and to local processes, that drop,
delay, truncate, reset and lie. `effects` makes N calls from workflows while K workers are killed and Temporal is
restarted. Without one of these words it is both. Ends with 0 only if every call ended as it must and nothing is left.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import secrets
import sys

import uvloop

from tests.chaos import effects, storm

PARTS = ("wire", "effects")

CALLS = {"wire": 10_000, "effects": 500}

KILLS = 30

SHOWN = 20
"""Violations that are shown of each section."""


def main(parts: list[str], calls: int | None, kills: int, seed: str) -> int:
    sys.stdout.write(f"seed {seed}\n")
    bad = 0
    if "wire" in parts:
        bad += uvloop.run(wire(calls or CALLS["wire"], seed))
    if "effects" in parts:
        # On the standard loop: uvloop runs Python in a forked process, where Temporal's threads are not.
        done = asyncio.run(effects.run(calls or CALLS["effects"], kills, seed))
        bad += show(effects_table(done), done.violations)
    sys.stdout.write("all held\n" if not bad else f"{bad} violations; again with --seed {seed}\n")
    sys.stdout.flush()
    return 1 if bad else 0


async def wire(calls: int, seed: str) -> int:
    bad = 0
    for name in storm.SECTIONS:
        done = await storm.run(name, calls if name == "modern" else calls // 5, seed)
        bad += show(wire_table(done), done.violations)
    return bad


def show(rows: list[str], violations: list[str]) -> int:
    sys.stdout.write("\n".join([*rows, *(f"  VIOLATION {what}" for what in violations[:SHOWN])]) + "\n")
    sys.stdout.flush()
    return len(violations)


def wire_table(done: storm.Storm) -> list[str]:
    mega = 1024**2
    return [
        f"\n{done.name}: {done.calls} calls in {done.seconds:.1f} s, {done.calls / done.seconds:.0f} calls/s",
        f"  memory after the warm-up and at the end   {done.memory[0] / mega:.1f} MB, {done.memory[1] / mega:.1f} MB",
        f"  objects after the warm-up and at the end  {done.objects[0]}, {done.objects[1]}",
        f"  descriptors before and at the end         {done.descriptors[0]}, {done.descriptors[1]}",
        f"  worst overrun of a limit                  {done.overrun:.3f} s (longest stall {done.stall:.3f} s)",
        *([f"  sessions opened                           {done.sessions}"] if done.sessions else []),
        *(f"  {count:6d} {kind}" for kind, count in done.ends.most_common()),
    ]


def effects_table(done: effects.Effects) -> list[str]:
    verdict = done.verdict
    causes = ", ".join(f"{count} {cause}" for cause, count in verdict.doubts.most_common())
    return [
        f"\neffects: {done.calls} calls of {done.runs} runs in {done.seconds:.1f} s, seed {done.seed}",
        f"  workers killed                            {done.kills}",
        f"  Temporal restarted                        {len(done.restarts)} ({', '.join(done.restarts)})",
        f"  effects at the server, by key             {verdict.effects}, which happened {verdict.executions} times",
        f"  duplicates, allowed by policy             {verdict.repeats}",
        f"  duplicates, not allowed                   {verdict.duplicates}",
        f"  calls lost                                {verdict.ends['lost']}",
        f"  in doubt, with cause                      {verdict.doubts.total()}{f' ({causes})' if causes else ''}",
        f"  in doubt, without                         {verdict.false_doubts}",
        f"  longest from an answer to its record      {verdict.telling:.3f} s",
        *(f"  {count:6d} {kind}" for kind, count in verdict.ends.most_common()),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tests.chaos", description="Let everything fail at random, and tell what came of every call."
    )
    parser.add_argument("part", nargs="?", choices=PARTS, help="one of the two; default both")
    parser.add_argument(
        "--calls",
        type=int,
        metavar="N",
        help=f"calls of each part, default {CALLS['wire']} (and two fifths on top of it) and {CALLS['effects']}",
    )
    parser.add_argument("--kills", type=int, default=KILLS, metavar="K", help=f"workers to kill, default {KILLS}")
    parser.add_argument(
        "--seed",
        default=secrets.token_hex(4),
        metavar="S",
        help="decides what fails, and how; default a new one, which is printed, so that a run can be repeated",
    )
    given = parser.parse_args()
    status = main([given.part] if given.part else list(PARTS), given.calls, given.kills, given.seed)
    # Temporal's client sometimes does not survive an orderly exit of its process.
    os._exit(status)
