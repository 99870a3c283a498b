"""This pack as a graph with a tool that nobody has classified: each call is claimed in Temporal before it is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.variants import SERVER, Parts

__all__ = ("parts",)


@asynccontextmanager
async def parts(url: str) -> AsyncIterator[Parts]:
    """As the graph's own variant, with the policy of an unknown tool."""
    from activities import McpPlugin
    from openwop_mcp.config import Server, Settings
    from workflows import RunWorkflow

    settings = Settings(servers={SERVER: Server(url=url, network="private")})
    yield Parts(RunWorkflow, plugins=[McpPlugin(settings)])
