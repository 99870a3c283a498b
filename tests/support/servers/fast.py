"""A server on fastmcp, which speaks every revision: over stdio, or over HTTP if its argument is a port."""

from __future__ import annotations

import asyncio
import sys

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError

server = FastMCP("fast", version="1.0")


@server.tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool
def refuse(reason: str) -> str:
    """Fails, with the reason in its result."""
    raise ToolError(reason)


@server.tool
async def steps(count: int, ctx: Context) -> str:
    """Tells its progress after every step."""
    for step in range(count):
        await ctx.report_progress(step + 1, count, f"step {step + 1}")
    return f"{count} steps"


@server.tool
async def wait(ctx: Context) -> str:
    """Says that it has begun, and does not end."""
    await ctx.report_progress(1)
    await asyncio.Event().wait()
    return "never"


@server.resource("note://today")
def today() -> str:
    return "a note"


@server.resource("note://{day}")
def of(day: str) -> str:
    return f"a note of {day}"


@server.prompt
def review(text: str) -> str:
    return f"Review this: {text}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False, log_level="warning")
    else:
        server.run(show_banner=False, log_level="warning")
