"""This pack with a key of the author's for each call: its effect is a workflow, shared by all who have the key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio import workflow

from benchmarks.variants import SERVER, WORKFLOW, Parts, carry_out

with workflow.unsafe.imports_passed_through():
    from openwop_mcp.ctx import mcp

__all__ = ("KeyedCalls", "parts")


@workflow.defn(name=WORKFLOW)
class KeyedCalls:
    """Calls `add` through `ctx.mcp`, each time with another key."""

    @workflow.run
    async def run(self, calls: int, together: bool) -> float:
        """Make the calls."""
        run = workflow.info().workflow_id

        async def call(number: int) -> float:
            arguments = {"a": number, "b": 1}
            result = await mcp.call_tool(SERVER, "add", arguments, idempotency_key=f"{run}-{number}")
            return float(result.structured_content["result"])

        return await carry_out(call, calls, together=together)


@asynccontextmanager
async def parts(url: str) -> AsyncIterator[Parts]:
    """As the pack's own variant, with the policy of an unknown tool."""
    from activities import McpPlugin
    from openwop_mcp.config import Server, Settings

    settings = Settings(servers={SERVER: Server(url=url, network="private")})
    yield Parts(KeyedCalls, plugins=[McpPlugin(settings)])
