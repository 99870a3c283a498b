"""MCP with I/O: wires, sessions, authorization and the client. Knows the protocol and nothing of Temporal."""

from openwop_mcp.client._client import McpClient
from openwop_mcp.client._clients import Clients, log_in
from openwop_mcp.client._conversation import CallOptions, Exchange, OnInput
from openwop_mcp.client._health import health, probe
from openwop_mcp.client._network import Network
from openwop_mcp.client._network import verdict as denied
from openwop_mcp.client._notices import Notice, Progress
from openwop_mcp.client._pool import HttpPool
from openwop_mcp.client._room import Room

__all__ = (
    "CallOptions",
    "Clients",
    "Exchange",
    "HttpPool",
    "McpClient",
    "Network",
    "Notice",
    "OnInput",
    "Progress",
    "Room",
    "denied",
    "health",
    "log_in",
    "probe",
)
