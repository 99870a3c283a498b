"""An author's own workflows, in a module that is called like the pack's."""

from datetime import timedelta

from temporalio import workflow

from openwop_mcp import ctx

with workflow.unsafe.imports_passed_through():
    from activities import shout


@workflow.defn
class Order:
    """Calls a tool of an MCP server, and then an activity of its author."""

    @workflow.run
    async def run(self, city: str) -> str:
        """Call both."""
        answer = await ctx.mcp.call_tool("fake", "echo", {"city": city})
        return await workflow.execute_activity(shout, answer.text, start_to_close_timeout=timedelta(seconds=10))
