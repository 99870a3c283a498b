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
    """Waits so long for a call, and goes on without it."""

    @workflow.run
    async def run(self, queue: str) -> str:
        try:
            async with asyncio.timeout(0.05):
                await call("slow-quote", queue)
        except TimeoutError:
            await call("instead", queue)
            return "too late"
        return "in time"


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
