"""The worker program, the same for every variant. Tells its CPU time and peak memory for each line on standard input.

The end of standard input ends it, so a worker never outlives the benchmark that started it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import resource
import sys
import time
from pathlib import Path

from temporalio.client import Client
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.worker import Worker

from benchmarks.variants import VARIANTS, load

__all__ = ("main",)

MAX_ACTIVITIES = 200
"""Room for the widest fan-out, so that no variant waits for a slot."""


def peak_rss() -> int:
    """Bytes of the largest resident set so far."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would count what the parent held when it forked
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def serve(variant: str, address: str, url: str, task_queue: str) -> None:
    """Run the worker until standard input ends."""
    # Standard output carries JSON lines; the SDK's core would log to it.
    logs = LogForwardingConfig(logger=logging.getLogger("temporalio.core"))
    levels = TelemetryFilter(core_level="WARN", other_level="ERROR")
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=levels, forwarding=logs))))
    client = await Client.connect(address)
    async with load(variant)(url) as parts:
        worker = Worker(
            client,
            task_queue=task_queue,
            workflows=[parts.workflow],
            activities=parts.activities,
            plugins=parts.plugins,
            max_concurrent_activities=MAX_ACTIVITIES,
        )
        async with worker:
            print(json.dumps({"ready": True}), flush=True)
            while await asyncio.to_thread(sys.stdin.readline):
                print(json.dumps({"cpu": time.process_time(), "peakRss": peak_rss()}), flush=True)


def main() -> None:
    """Read the command line and serve, on uvloop where it is installed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", required=True, choices=VARIANTS)
    parser.add_argument("--address", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--task-queue", required=True)
    options = parser.parse_args()
    work = serve(options.variant, options.address, options.url, options.task_queue)
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


if __name__ == "__main__":
    main()
