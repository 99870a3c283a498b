"""What workflow code calls. Schedules activities by name and never touches a socket."""

from openwop_mcp.ctx import mcp

__all__ = ("mcp",)
