"""The least that a user would write: one activity, one POST, decoded JSON as its result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow

from benchmarks.variants import TIMEOUT, WORKFLOW, Parts, carry_out

__all__ = ("BareCalls", "parts")

ACTIVITY = "bare.call"


@workflow.defn(name=WORKFLOW)
class BareCalls:
    """Calls `add` through the activity."""

    @workflow.run
    async def run(self, calls: int, together: bool) -> float:
        """Make the calls."""

        async def call(number: int) -> float:
            result = await workflow.execute_activity(
                ACTIVITY,
                args=["add", {"a": number, "b": 1}],
                start_to_close_timeout=timedelta(seconds=TIMEOUT),
                result_type=dict[str, Any],
            )
            return float(result["structuredContent"]["result"])

        return await carry_out(call, calls, together=together)


@asynccontextmanager
async def parts(url: str) -> AsyncIterator[Parts]:
    """One client for the whole worker."""
    import httpx
    from httpx_aiohttp import AiohttpTransport

    @activity.defn(name=ACTIVITY)
    async def call_tool(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": name,
                "arguments": arguments,
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientInfo": {"name": "bare", "version": "1"},
                    "io.modelcontextprotocol/clientCapabilities": {},
                },
            },
        }
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/call",
            "Mcp-Name": name,
        }
        response = await client.post(url, json=body, headers=headers)
        response.raise_for_status()
        result: dict[str, Any] = response.json()["result"]
        return result

    async with httpx.AsyncClient(transport=AiohttpTransport(limits=httpx.Limits()), timeout=TIMEOUT) as client:
        yield Parts(BareCalls, activities=[call_tool])
