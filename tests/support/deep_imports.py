"""A workflow that imports names of the pack from the modules that define them, as an editor writes imports."""

from __future__ import annotations

from temporalio import workflow

from openwop_mcp import ctx
from openwop_mcp.ctx.asking import Asked
from openwop_mcp.ctx.own import InterruptError
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.failures import McpCallError
from openwop_mcp.jsontext import decode, encode
from openwop_mcp.verbatim import Verbatim


@workflow.defn
class DeepImports:
    """Passes decoded numbers on, and catches the failure of a call and of a question."""

    @workflow.run
    async def run(self, arguments: str, queue: str) -> list[str]:
        given = decode(arguments.encode())
        answer = await ctx.mcp.call_tool("fake", "echo", given, task_queue=queue)
        told = [encode(given).decode(), str(isinstance(answer, Verbatim))]
        try:
            await ctx.mcp.call_tool("nowhere", "echo", task_queue=queue)
        except McpCallError as error:
            told += [error.code, str(error.delivery is Delivery.NOT_SENT)]
        try:
            await ctx.interrupt("custom", {}, key="q")
        except InterruptError as error:
            told += [error.code, str(Asked is ctx.mcp.Asked)]
        return told
