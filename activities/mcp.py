"""The activities that ``ctx.mcp`` schedules, one per host method. They unpack a request and hand it on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import temporalio.api.common.v1
from temporalio import activity
from temporalio.common import RawValue

from openwop_mcp.calls import ACTIVITY_NAMES, NO_ARGUMENTS, CallRequest
from openwop_mcp.effects.shared import PERFORM

from .perform import Calls

__all__ = ("effect_activities", "mcp_activities")

Perform = Callable[[CallRequest, bytes | None], Awaitable[temporalio.api.common.v1.Payload]]


def mcp_activities(calls: Calls) -> Sequence[Callable[..., Any]]:
    """The ``mcp.*`` activities, bound to the calls of one worker."""
    return [_activity(name, calls.perform) for name in ACTIVITY_NAMES.values()]


def effect_activities(calls: Calls) -> Sequence[Callable[..., Any]]:
    """The activity of the workflows that carry out shared effects, bound to the calls of one worker."""
    return [_activity(PERFORM, partial(calls.perform, for_effect=True))]


def _activity(name: str, perform: Perform) -> Callable[..., Any]:
    # Both parameters are always given: with another number of payloads the SDK drops the type hints and decodes.
    @activity.defn(name=name)
    async def call(request: RawValue, arguments: RawValue) -> RawValue:
        given = arguments.payload.data
        return RawValue(
            await perform(CallRequest.decode(request.payload.data), None if given == NO_ARGUMENTS else given)
        )

    return call
