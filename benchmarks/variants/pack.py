"""This pack, embedded in the author's worker by its plugin, with a tool that the operator has classified as read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio import workflow

from benchmarks.variants import SERVER, WORKFLOW, Parts, carry_out

with workflow.unsafe.imports_passed_through():
    from openwop_mcp.ctx import mcp

__all__ = ("PackCalls", "parts")


@workflow.defn(name=WORKFLOW)
class PackCalls:
    """Calls `add` through `ctx.mcp`."""

    @workflow.run
    async def run(self, calls: int, together: bool) -> float:
        """Make the calls."""

        async def call(number: int) -> float:
            result = await mcp.call_tool(SERVER, "add", {"a": number, "b": 1})
            return float(result.structured_content["result"])

        return await carry_out(call, calls, together=together)


@asynccontextmanager
async def parts(url: str) -> AsyncIterator[Parts]:
    """The plugin brings the activities and what they share."""
    from activities import McpPlugin
    from openwop_mcp.config import Server, Settings, ToolPolicy

    tools = {"add": ToolPolicy(safety_tier="read")}
    settings = Settings(servers={SERVER: Server(url=url, network="private", tools=tools)})
    yield Parts(PackCalls, plugins=[McpPlugin(settings)])
