"""An author's workflow, for the tests that run it and replay it."""

from __future__ import annotations

from temporalio import workflow

from openwop_mcp import ctx


@workflow.defn
class Author:
    """Calls one tool."""

    @workflow.run
    async def run(self, task_queue: str) -> str:
        """Call it."""
        return (await ctx.mcp.call_tool("fake", "echo", {"n": 1}, task_queue=task_queue)).text


@workflow.defn(name="Author")
class Changed:
    """What the author made of it later: it calls another kind of activity."""

    @workflow.run
    async def run(self, task_queue: str) -> str:
        """Read where it called."""
        return (await ctx.mcp.list_tools("fake", task_queue=task_queue)).text


@workflow.defn
class Refused:
    """Calls a tool that the server refuses, and lets that end it."""

    @workflow.run
    async def run(self) -> str:
        """Call it."""
        return (await ctx.mcp.call_tool("fake", "refuses")).text
