"""The activities that ``ctx.mcp`` schedules, one per host method. They unpack a request and hand it on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from temporalio import activity
from temporalio.common import RawValue

from openwop_mcp.calls import ACTIVITY_NAMES, NO_ARGUMENTS, CallRequest

from .perform import Calls

__all__ = ("mcp_activities",)


def mcp_activities(calls: Calls) -> Sequence[Callable[..., Any]]:
    """The ``mcp.*`` activities, bound to the calls of one worker."""

    def named(name: str) -> Callable[..., Any]:
        # Both parameters are always given: with another number of payloads the SDK drops the type hints and decodes.
        @activity.defn(name=name)
        async def perform(request: RawValue, arguments: RawValue) -> RawValue:
            given = arguments.payload.data
            return RawValue(
                await calls.perform(CallRequest.decode(request.payload.data), None if given == NO_ARGUMENTS else given)
            )

        return perform

    return [named(name) for name in ACTIVITY_NAMES.values()]
