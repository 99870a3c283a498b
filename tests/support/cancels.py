"""Workflows as an author would write them that are cancelled, or cancel a call themselves, while it is under way."""

from __future__ import annotations

import asyncio

from temporalio import workflow

from openwop_mcp import Verbatim, ctx

__all__ = ("Compensates", "GivesItTime", "Keeps", "Together")


async def call(tool: str, queue: str) -> Verbatim:
    return await ctx.mcp.call_tool("fake", tool, task_queue=queue)


@workflow.defn
class Compensates:
    """Takes back what it may have reserved when it is cancelled."""

    @workflow.run
    async def run(self, queue: str) -> None:
        try:
            await call("slow-reserve", queue)
            await call("charge", queue)
        except asyncio.CancelledError:
            await call("take-back", queue)
            raise


@workflow.defn
class Keeps:
    """Wants the result of its call also when it is cancelled meanwhile."""

    @workflow.run
    async def run(self, queue: str) -> str:
        reserving = asyncio.create_task(call("slow-reserve", queue))
        try:
            await asyncio.shield(reserving)
        except asyncio.CancelledError:
            return (await reserving).raw.decode()
        return "not cancelled"


@workflow.defn
class GivesItTime:
    """Waits a moment for a call, from when it is told that it is under way, and goes on without it."""

    def __init__(self) -> None:
        self._limit: asyncio.Timeout | None = None

    @workflow.run
    async def run(self, queue: str) -> str:
        try:
            async with asyncio.timeout(None) as self._limit:
                await call("slow-quote", queue)
        except TimeoutError:
            await call("instead", queue)
            return "too late"
        return "in time"

    @workflow.signal
    def asked(self) -> None:
        """Begin to count."""
        assert self._limit is not None
        self._limit.reschedule(asyncio.get_running_loop().time() + 0.05)


@workflow.defn
class Together:
    """Makes two calls at once, as a group or gathered."""

    @workflow.run
    async def run(self, queue: str, grouped: bool) -> None:
        if grouped:
            async with asyncio.TaskGroup() as group:
                for tool in ("slow-one", "slow-other"):
                    group.create_task(call(tool, queue))
        else:
            await asyncio.gather(call("slow-one", queue), call("slow-other", queue))
        await call("after", queue)
