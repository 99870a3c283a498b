"""temporalio-mcp, set up as its documentation says: a pooled `mcp.Client` behind `MCPPlugin`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio import workflow
from temporalio.mcp import TemporalMCPClient

from benchmarks.variants import SERVER, WORKFLOW, Parts, carry_out

__all__ = ("PeerCalls", "parts")


@workflow.defn(name=WORKFLOW)
class PeerCalls:
    """Calls `add` through the durable proxy."""

    @workflow.run
    async def run(self, calls: int, together: bool) -> float:
        """Make the calls."""
        mcp = TemporalMCPClient(SERVER)

        async def call(number: int) -> float:
            result = await mcp.call_tool("add", {"a": number, "b": 1})
            assert isinstance(result.structured_content, dict)
            return float(result.structured_content["result"])

        return await carry_out(call, calls, together=together)


@asynccontextmanager
async def parts(url: str) -> AsyncIterator[Parts]:
    """The plugin brings the activities."""
    from mcp import Client
    from temporalio.mcp import MCPPlugin

    yield Parts(PeerCalls, plugins=[MCPPlugin({SERVER: lambda: Client(url)})])
