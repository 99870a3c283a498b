"""A Temporal workflow in Python that calls two tools of the sample server: the second one is slow."""

from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow

from openwop_mcp import ctx


@dataclass
class TwoCallsInput:
    """What the workflow is started with."""

    city: str
    seconds: float


@dataclass
class TwoCallsOutput:
    """What came of it."""

    forecast: str
    slow: str


@workflow.defn
class TwoCalls:
    """Asks for a forecast, then waits for a slow tool."""

    @workflow.run
    async def run(self, asked: TwoCallsInput) -> TwoCallsOutput:
        """Call both tools, one after the other."""
        forecast = await ctx.mcp.call_tool("sample", "get_forecast", {"city": asked.city})
        slow = await ctx.mcp.call_tool(
            "sample",
            "slow",
            {"seconds": asked.seconds, "label": asked.city},
            # A worker that is killed is noticed after this long.
            heartbeat_timeout=timedelta(seconds=3),
        )
        return TwoCallsOutput(forecast=forecast.text, slow=slow.text)
