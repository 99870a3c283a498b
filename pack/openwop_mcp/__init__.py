"""MCP servers as durable workflow nodes on Temporal, recorded byte for byte.

What an author of workflows needs: ``openwop_mcp.ctx`` to call servers from workflow code, :class:`Verbatim` for what
they answered, :class:`McpCallError` for why there is no answer. All that this needs is passed through a workflow's
sandbox, so that importing it costs nothing per workflow.
"""

import sys

from temporalio import workflow

if workflow.unsafe.in_sandbox():
    # A sandbox executes what a workflow imports anew for each workflow, which took 4 ms. Nothing here is the state of a
    # workflow, so that this module takes all it has from the process's own and looks nothing up.
    _here = sys.modules.pop(__name__)
    with workflow.unsafe.imports_passed_through():
        import openwop_mcp as _whole
    sys.modules[__name__] = _here
    globals().update({name: value for name, value in vars(_whole).items() if not name.startswith("_")})
    sys.modules[f"{__name__}.ctx"] = _whole.ctx
    for _name in ("asking", "mcp", "own"):
        sys.modules[f"{__name__}.ctx.{_name}"] = vars(_whole.ctx)[_name]
    # And the modules that its names are defined in: an author's editor may import them from there, and a second
    # McpCallError would catch nothing, a second Number lose its spelling.
    for _name in ("effects", "errors", "failures", "jsontext", "verbatim"):
        sys.modules[f"{__name__}.{_name}"] = vars(_whole)[_name]
    for _name in ("decide", "delivery"):
        sys.modules[f"{__name__}.effects.{_name}"] = vars(vars(_whole)["effects"])[_name]
else:
    from openwop_mcp import ctx
    from openwop_mcp.effects.decide import RetryPolicy
    from openwop_mcp.effects.delivery import Delivery
    from openwop_mcp.failures import McpCallError
    from openwop_mcp.verbatim import Verbatim

__all__ = ("Delivery", "McpCallError", "RetryPolicy", "Verbatim", "ctx")
