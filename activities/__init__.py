"""Temporal activities: what of the pack touches the network. Knows the library, and no workflow."""

from .mcp import mcp_activities
from .nodes import node_activities
from .perform import Calls
from .plugin import EAGER_CALLS, McpPlugin

__all__ = ("EAGER_CALLS", "Calls", "McpPlugin", "mcp_activities", "node_activities")
