"""MCP with I/O: the HTTP transport and the client. Knows the protocol and nothing of Temporal."""

from openwop_mcp.client._client import Exchange, McpClient
from openwop_mcp.client._health import health, probe
from openwop_mcp.client._http import HttpTransport

__all__ = ("Exchange", "HttpTransport", "McpClient", "health", "probe")
