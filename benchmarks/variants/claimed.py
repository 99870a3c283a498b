"""This pack with a tool that nobody has classified: each call is claimed in Temporal before it is sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.variants import SERVER, Parts
from benchmarks.variants.pack import PackCalls

__all__ = ("parts",)


@asynccontextmanager
async def parts(url: str) -> AsyncIterator[Parts]:
    """As the pack's own variant, with the policy of an unknown tool."""
    from activities import McpPlugin
    from openwop_mcp.config import Server, Settings

    settings = Settings(servers={SERVER: Server(url=url, network="private")})
    yield Parts(PackCalls, plugins=[McpPlugin(settings)])
