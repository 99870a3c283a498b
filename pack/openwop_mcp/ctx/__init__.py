"""What workflow code calls. Schedules activities by name and never touches a socket."""

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from openwop_mcp.ctx import mcp
    from openwop_mcp.ctx.own import InterruptError, InterruptExpiredError, InterruptRejectedError, interrupt

__all__ = ("InterruptError", "InterruptExpiredError", "InterruptRejectedError", "interrupt", "mcp")
