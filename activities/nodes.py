"""One activity per node type that calls a server. They read a node's inputs and hand the call on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from temporalio import activity
from temporalio.common import RawValue

from openwop_mcp import failures
from openwop_mcp.calls import CallRequest
from openwop_mcp.effects.decide import RetryPolicy
from openwop_mcp.errors import McpError
from openwop_mcp.nodes import REGISTRY, NodeCall, NodeType

from .perform import LONG, Calls

__all__ = ("node_activities",)


def node_activities(calls: Calls) -> Sequence[Callable[..., Any]]:
    """The activities of all registered node types that have one, bound to the calls of one worker."""

    def of_type(node_type: NodeType) -> Callable[..., Any]:
        @activity.defn(name=node_type.type_id)
        async def perform(node: RawValue, inputs: RawValue) -> RawValue:
            call = NodeCall.decode(node.payload.data)
            try:
                request, arguments = await _request(call, node_type, inputs.payload.data)
            except McpError as error:
                raise failures.write(error, repeat_safe=True, policy=RetryPolicy(), nodeId=call.node_id) from None
            return RawValue(await calls.perform(request, arguments))

        return perform

    return [of_type(node_type) for node_type in REGISTRY.values() if node_type.run == "activity"]


async def _request(call: NodeCall, node_type: NodeType, inputs: bytes) -> tuple[CallRequest, bytes | None]:
    if len(inputs) < LONG:
        return call.request(node_type, inputs)
    # What has to be decoded may take a while, in which no other call of this worker would go on.
    return await asyncio.to_thread(call.request, node_type, inputs)
