"""`make cluster`: two workers, two hosts, a thousand runs, and one of each killed in the middle.

    python -m tests.cluster [--runs N]

Ends with 0 only if every run completed, every effect happened once, and all hosts tell the same of it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from tests.cluster import cluster

RUNS = 1000

SHOWN = 20
"""Violations that are shown."""


def main(runs: int) -> int:
    # On the standard loop: uvloop runs Python in a forked process, where Temporal's threads are not.
    done = asyncio.run(cluster.run(runs))
    shown = [*cluster.table(done), *(f"  VIOLATION {what}" for what in done.violations[:SHOWN])]
    shown.append(f"{len(done.violations)} violations" if done.violations else "all held")
    sys.stdout.write("\n".join(shown) + "\n")
    sys.stdout.flush()
    return 1 if done.violations else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster",
        description="Kill a worker and a host in the middle of many runs; tell what came.",
    )
    parser.add_argument("--runs", type=int, default=RUNS, metavar="N", help=f"runs of three calls, default {RUNS}")
    status = main(parser.parse_args().runs)
    # Temporal's client sometimes does not survive an orderly exit of its process.
    os._exit(status)
