"""How many calls go to a server at once, how often, and whether they go at all: decisions, without a clock and I/O."""

from __future__ import annotations

from openwop_mcp.traffic.circuit import Circuit, CircuitState
from openwop_mcp.traffic.control import Ending, Full, Pass, ServerLimits, ServerTraffic, Traffic
from openwop_mcp.traffic.pace import Pace

__all__ = ("Circuit", "CircuitState", "Ending", "Full", "Pace", "Pass", "ServerLimits", "ServerTraffic", "Traffic")
