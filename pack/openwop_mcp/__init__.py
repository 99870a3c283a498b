"""MCP servers as durable workflow nodes on Temporal, recorded byte for byte.

What an author of workflows needs: ``openwop_mcp.ctx`` to call servers from workflow code, :class:`Verbatim` for what
they answered, :class:`McpCallError` for why there is no answer. All that this needs is passed through a workflow's
sandbox, so that importing it costs nothing per workflow.
"""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from openwop_mcp.effects.decide import RetryPolicy
    from openwop_mcp.effects.delivery import Delivery
    from openwop_mcp.failures import McpCallError
    from openwop_mcp.verbatim import Verbatim

__all__ = ("Delivery", "McpCallError", "RetryPolicy", "Verbatim")
