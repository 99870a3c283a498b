"""Temporal activities: what of the pack touches the network. Knows the library, and no workflow."""

from .catalog import catalog_activities, catalog_worker
from .classes import class_worker
from .contexts import context_free
from .listen import LISTEN, ListenRequest, listen_activities
from .mcp import mcp_activities
from .nodes import node_activities
from .notify import notify_activities
from .perform import Calls
from .plugin import EAGER_CALLS, McpPlugin, effect_worker

__all__ = (
    "EAGER_CALLS",
    "LISTEN",
    "Calls",
    "ListenRequest",
    "McpPlugin",
    "catalog_activities",
    "catalog_worker",
    "class_worker",
    "context_free",
    "effect_worker",
    "listen_activities",
    "mcp_activities",
    "node_activities",
    "notify_activities",
)
