"""This pack as a graph: `RunWorkflow` with a node for each call, a tool that the operator has classified as read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.variants import SERVER, Parts

__all__ = ("parts",)


@asynccontextmanager
async def parts(url: str) -> AsyncIterator[Parts]:
    """The pack's own workflow beside its activities."""
    from activities import McpPlugin
    from openwop_mcp.config import Server, Settings, ToolPolicy
    from workflows import RunWorkflow

    tools = {"add": ToolPolicy(safety_tier="read")}
    settings = Settings(servers={SERVER: Server(url=url, network="private", tools=tools)})
    yield Parts(RunWorkflow, plugins=[McpPlugin(settings)])
