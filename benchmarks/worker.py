"""The worker program, the same for every variant.

For each line on standard input it tells its CPU time, its peak memory and what it has exchanged with Temporal. The end
of standard input ends it, so a worker never outlives the benchmark that started it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import resource
import socket
import struct
import sys
import time
from pathlib import Path

from temporalio.client import Client
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import GrpcCompression
from temporalio.worker import Worker

from benchmarks.variants import GRAPHS, VARIANTS, load
from commands.connection import COMPRESSIONS, compression
from openwop_mcp.config import Temporal

__all__ = ("main",)

TRANSFERRED = struct.Struct("=120xQQ")
"""Bytes that the other side has acknowledged and that were received, in Linux's `struct tcp_info`."""

MAX_ACTIVITIES = 200
"""Room for the widest fan-out, so that no variant waits for a slot."""


def peak_rss() -> int:
    """Bytes of the largest resident set so far."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss would count what the parent held when it forked
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def transferred(address: str) -> int | None:
    """Bytes that this process has exchanged with an address over the connections that are open; None if unknown.

    The SDK's core has them and does not tell, so that the kernel is asked about each socket there is.
    """
    if not sys.platform.startswith("linux"):
        return None
    host, _, port = address.rpartition(":")
    total = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            copy = os.dup(int(entry.name))
        except OSError:  # what listed the folder is closed again
            continue
        try:
            found = socket.socket(fileno=copy)
        except OSError:  # no socket
            os.close(copy)
            continue
        with found:
            try:
                if found.getpeername() != (host, int(port)):
                    continue
            except OSError:  # not connected
                continue
            told = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TRANSFERRED.size)
            total += sum(TRANSFERRED.unpack(told))
    return total


def usual(variant: str, address: str) -> str:
    """What a variant's worker does to what goes to Temporal: a graph's is `worker.py`, others are made by authors."""
    return compression(Temporal(address=address)) if variant in GRAPHS else "gzip"


async def serve(variant: str, address: str, url: str, task_queue: str, compressed: GrpcCompression) -> None:
    """Run the worker until standard input ends."""
    # Standard output carries JSON lines; the SDK's core would log to it.
    logs = LogForwardingConfig(logger=logging.getLogger("temporalio.core"))
    levels = TelemetryFilter(core_level="WARN", other_level="ERROR")
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter=levels, forwarding=logs))))
    client = await Client.connect(address, grpc_compression=compressed)
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
                facts = {"cpu": time.process_time(), "peakRss": peak_rss(), "bytes": transferred(address)}
                print(json.dumps(facts), flush=True)


def main() -> None:
    """Read the command line and serve, on uvloop where it is installed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--variant", required=True, choices=VARIANTS)
    parser.add_argument("--address", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--task-queue", required=True)
    parser.add_argument("--compression", choices=COMPRESSIONS)
    options = parser.parse_args()
    compressed = COMPRESSIONS[options.compression or usual(options.variant, options.address)]
    work = serve(options.variant, options.address, options.url, options.task_queue, compressed)
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


if __name__ == "__main__":
    main()
