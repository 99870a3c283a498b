"""Node types that a workflow graph may use: their ids, shapes and manifest. Knows no I/O and no Temporal."""

from __future__ import annotations

from openwop_mcp.nodes.calls import NodeCall
from openwop_mcp.nodes.pure import NodeError, delay_ms, evaluate
from openwop_mcp.nodes.registry import REGISTRY, NodeType

__all__ = ("REGISTRY", "NodeCall", "NodeError", "NodeType", "delay_ms", "evaluate")
