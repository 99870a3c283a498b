"""Drives one worker through the shapes and measures: CPU, wall time, requests at the server, latencies from history."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import uuid4

import httpx
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

from benchmarks.loads import Handle, Load, load_of
from benchmarks.programs import Process, Program, program

__all__ = ("Bench", "Sample", "Shape", "latencies", "percentile")


@dataclass(frozen=True)
class Shape:
    """A load.

    Attributes:
        workflows: How many workflows.
        calls: Calls in each.
        fan_out: Whether a workflow makes its calls at once or one after the other.
        together: Whether the workflows run at once or one after the other.
    """

    name: str
    workflows: int
    calls: int
    fan_out: bool
    together: bool = False

    @property
    def total(self) -> int:
        """Calls in all."""
        return self.workflows * self.calls


@dataclass(frozen=True)
class Sample:
    """What one round of one shape measured.

    Attributes:
        cpu_ms: User and system CPU of the worker process, milliseconds per call.
        rate: Calls per second.
        p50_ms: Median time from a call's activity being scheduled to its completion, by the history.
        p99_ms: The 99th percentile of the same.
        requests: HTTP requests per call, counted at the MCP server.
        temporal_ms: CPU of the Temporal server, milliseconds per call.
        kilobytes: What the worker and Temporal exchanged, kB per call; 0 where the system does not tell.
    """

    cpu_ms: float
    rate: float
    p50_ms: float
    p99_ms: float
    requests: float
    temporal_ms: float
    kilobytes: float


class Bench:
    """What all variants share: the Temporal server and the MCP server.

    Args:
        client: What starts workflows.
        temporal: The server's process.
        address: Where the server is.
        url: The MCP server.
    """

    def __init__(self, client: Client, temporal: Process, address: str, url: str) -> None:
        self._client = client
        self._temporal = temporal
        self._address = address
        self._url = url

    async def round(
        self, variant: str, warm_up: Shape, shapes: Iterable[Shape], compression: str | None = None
    ) -> tuple[dict[str, Sample], int]:
        """Run a fresh worker of a variant through the shapes; gives samples by shape, and its peak memory in bytes.

        Without a compression it has the one that its users get.
        """
        queue = f"bench-{variant}-{uuid4().hex[:8]}"
        arguments = ("--variant", variant, "--address", self._address, "--url", self._url, "--task-queue", queue)
        compressed = () if compression is None else ("--compression", compression)
        async with program("benchmarks.worker", *arguments, *compressed) as (worker, _):
            load = load_of(variant)
            await self._run(load, queue, warm_up)
            samples = {shape.name: await self._measure(worker, load, queue, shape) for shape in shapes}
            return samples, int((await worker.ask())["peakRss"])

    async def _measure(self, worker: Program, load: Load, queue: str, shape: Shape) -> Sample:
        posts_before, before, temporal_before = await self._posts(), await worker.ask(), self._temporal.cpu()
        begin = time.perf_counter()
        handles = await self._run(load, queue, shape)
        seconds = time.perf_counter() - begin
        temporal_after, after, posts_after = self._temporal.cpu(), await worker.ask(), await self._posts()
        times: list[float] = []
        expected = shape.calls * (shape.calls + 1) / 2
        for handle in handles:
            if (total := await load.total(handle)) != expected:
                raise RuntimeError(f"{shape.name}: the calls add up to {total}, not {expected}")
            times.extend(latencies((await handle.fetch_history()).events))
        return Sample(
            cpu_ms=(after["cpu"] - before["cpu"]) * 1000 / shape.total,
            rate=shape.total / seconds,
            p50_ms=percentile(times, 0.5),
            p99_ms=percentile(times, 0.99),
            requests=(posts_after - posts_before) / shape.total,
            temporal_ms=(temporal_after - temporal_before) * 1000 / shape.total,
            kilobytes=((after["bytes"] or 0) - (before["bytes"] or 0)) / 1000 / shape.total,
        )

    async def _run(self, load: Load, queue: str, shape: Shape) -> list[Handle]:
        """Run the shape's workflows to their end."""

        async def one() -> Handle:
            return await load.run(self._client, queue, shape.calls, shape.fan_out)

        if shape.together:
            return list(await asyncio.gather(*(one() for _ in range(shape.workflows))))
        return [await one() for _ in range(shape.workflows)]

    async def _posts(self) -> int:
        async with httpx.AsyncClient() as client:
            response = await client.get(self._url.removesuffix("/mcp") + "/count")
        return int(response.json()["posts"])


def latencies(events: Iterable[HistoryEvent]) -> list[float]:
    """Milliseconds from each activity's scheduling to its completion."""
    scheduled: dict[int, float] = {}
    times: list[float] = []
    for event in events:
        at = event.event_time.ToNanoseconds() / 1e6
        if event.HasField("activity_task_scheduled_event_attributes"):
            scheduled[event.event_id] = at
        elif event.HasField("activity_task_completed_event_attributes"):
            times.append(at - scheduled[event.activity_task_completed_event_attributes.scheduled_event_id])
    return times


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
