"""A server on the SDK before its second version, with sessions: over stdio, or over HTTP if its argument is a port."""

from __future__ import annotations

import asyncio
import sys

from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel

server = FastMCP("legacy", port=int(sys.argv[1]) if len(sys.argv) > 1 else 0, log_level="WARNING")


class Name(BaseModel):
    name: str


@server.tool()
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def refuse(reason: str) -> str:
    """Fails, with the reason in its result."""
    raise ValueError(reason)


@server.tool()
async def steps(count: int, ctx: Context) -> str:
    """Tells its progress after every step."""
    for step in range(count):
        await ctx.report_progress(step + 1, count, f"step {step + 1}")
    return f"{count} steps"


@server.tool()
async def wait(ctx: Context) -> str:
    """Says that it has begun, and does not end."""
    await ctx.report_progress(1)
    await asyncio.Event().wait()
    return "never"


@server.tool()
async def greet(ctx: Context) -> str:
    """Asks whom to greet."""
    answer = await ctx.elicit("Who are you?", Name)
    return f"Hello, {answer.data.name}" if answer.action == "accept" else f"You said {answer.action}"


@server.resource("note://today")
def today() -> str:
    return "a note"


@server.resource("note://{day}")
def of(day: str) -> str:
    return f"a note of {day}"


@server.prompt()
def review(text: str) -> str:
    return f"Review this: {text}"


if __name__ == "__main__":
    server.run("streamable-http" if len(sys.argv) > 1 else "stdio")
