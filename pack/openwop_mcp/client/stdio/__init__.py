"""One MCP server as a process of this machine, over its standard input and output.

Judges no answer, knows no era, and reads of a message only what says whose it is.
"""

from openwop_mcp.client.stdio._wire import StdioWire

__all__ = ("StdioWire",)
