"""The workflow of the recorded history `author-asked`: a plain workflow module, which changes only with its history."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from temporalio import workflow

from openwop_mcp import McpCallError, ctx

__all__ = ("Booking",)


@workflow.defn
class Booking:
    """Is asked by servers, by the settings and by itself; answered by people, by code, and by nobody."""

    @workflow.run
    async def run(self) -> list[str]:
        told = [
            await ctx.mcp.call_tool("asking", "book", b'{"n":1.10}', input_timeout=timedelta(hours=1)),
            await ctx.mcp.read_resource("asking", "asking://seats", on_input=self.answer),
            await ctx.interrupt("custom", {"customKind": "drawing"}, key="draw"),
        ]
        try:
            await ctx.mcp.get_prompt("asking", "late", input_timeout=timedelta(milliseconds=50))
        except McpCallError as error:
            return [*(one.raw.decode() for one in told), error.code]
        return []

    async def answer(self, asked: ctx.mcp.Asked) -> Mapping[str, Any]:
        """Decline, after a while."""
        await workflow.sleep(0.01)
        return {key: {"action": "decline"} for key in asked.requests}
