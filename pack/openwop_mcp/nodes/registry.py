"""The node types, by id: what each is called, what it takes and gives, and how it runs.

Type ids stand in definitions and histories (an activity node's id names its activity): they are never renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from pydantic import BaseModel

from openwop_mcp.nodes import models

__all__ = ("REGISTRY", "NodeType")


@dataclass(frozen=True, slots=True)
class NodeType:
    """One node type.

    Attributes:
        type_id: Its id in definitions; also the name of its activity.
        title: What an editor shows.
        category: OpenWOP's category of the node.
        role: ``side-effect`` for everything that reaches out: a replay takes its outcome from the record.
        config: Shape of its config.
        inputs: Shape of its inputs.
        outputs: Shape of its outputs.
        run: Where it runs: in the machine, as a timer, as an activity, or with the people it waits for.
        ambient: Inputs that are taken from the run's inputs of the same name where the node does not set them.
        either: Inputs that may stand in the config instead; one of the two has to be there.
        changes: Whether it can change something outside.
        asks: Whether the server that it calls may ask for input before it answers.
    """

    type_id: str
    title: str
    category: Literal["chat", "control", "data", "canvas", "coordination", "integration"]
    role: Literal["pure", "side-effect"]
    config: type[BaseModel]
    inputs: type[BaseModel]
    outputs: type[BaseModel]
    run: Literal["pure", "timer", "activity", "gate"]
    ambient: tuple[str, ...] = ()
    either: tuple[str, ...] = ()
    changes: bool = False
    asks: bool = False

    @property
    def output_names(self) -> list[str]:
        """The names of its outputs."""
        return [field.alias or name for name, field in self.outputs.model_fields.items()]


_TYPES = (
    NodeType("core.noop", "Do nothing", "control", "pure", models.Empty, models.Empty, models.Empty, "pure"),
    NodeType(
        "core.identity",
        "Pass a value on",
        "data",
        "pure",
        models.Empty,
        models.IdentityInputs,
        models.IdentityOutputs,
        "pure",
    ),
    NodeType(
        "core.delay",
        "Wait",
        "control",
        "pure",
        models.DelayConfig,
        models.DelayInputs,
        models.Empty,
        "timer",
        either=("delayMs",),
    ),
    NodeType("core.fail", "Fail", "control", "pure", models.FailConfig, models.Empty, models.Empty, "pure"),
    NodeType(
        "core.approvalGate",
        "Wait for an approval",
        "coordination",
        "pure",
        models.ApprovalGateConfig,
        models.ApprovalGateInputs,
        models.ApprovalGateOutputs,
        "gate",
    ),
    NodeType(
        "core.clarificationGate",
        "Ask a person",
        "coordination",
        "pure",
        models.ClarificationGateConfig,
        models.Empty,
        models.ClarificationGateOutputs,
        "gate",
    ),
    NodeType(
        "core.interrupt",
        "Wait for a person or an event",
        "coordination",
        "pure",
        models.InterruptConfig,
        models.Empty,
        models.InterruptOutputs,
        "gate",
    ),
    NodeType(
        "core.conformance.mcp-client",
        "Make one MCP call (conformance)",
        "integration",
        "side-effect",
        models.AskingConfig,
        models.McpClientInputs,
        models.ResultOutputs,
        "activity",
        ambient=("method", "serverId", "name", "arguments", "cursor", "uri", "idempotencyKey"),
        changes=True,
        asks=True,
    ),
    NodeType(
        "community.mcp.call-tool",
        "Call an MCP tool",
        "integration",
        "side-effect",
        models.ToolConfig,
        models.CallToolInputs,
        models.ResultOutputs,
        "activity",
        either=("serverId", "name"),
        changes=True,
        asks=True,
    ),
    NodeType(
        "community.mcp.list-tools",
        "List an MCP server's tools",
        "integration",
        "side-effect",
        models.ServerConfig,
        models.ListToolsInputs,
        models.ResultOutputs,
        "activity",
        either=("serverId",),
    ),
    NodeType(
        "community.mcp.list-resources",
        "List an MCP server's resources",
        "integration",
        "side-effect",
        models.ServerConfig,
        models.ListResourcesInputs,
        models.ResultOutputs,
        "activity",
        either=("serverId",),
    ),
    NodeType(
        "community.mcp.list-resource-templates",
        "List an MCP server's resource templates",
        "integration",
        "side-effect",
        models.ServerConfig,
        models.ListResourceTemplatesInputs,
        models.ResultOutputs,
        "activity",
        either=("serverId",),
    ),
    NodeType(
        "community.mcp.read-resource",
        "Read an MCP resource",
        "integration",
        "side-effect",
        models.ResourceConfig,
        models.ReadResourceInputs,
        models.ResultOutputs,
        "activity",
        either=("serverId", "uri"),
        asks=True,
    ),
    NodeType(
        "community.mcp.list-prompts",
        "List an MCP server's prompts",
        "integration",
        "side-effect",
        models.ServerConfig,
        models.ListPromptsInputs,
        models.ResultOutputs,
        "activity",
        either=("serverId",),
    ),
    NodeType(
        "community.mcp.get-prompt",
        "Get an MCP prompt",
        "integration",
        "side-effect",
        models.PromptConfig,
        models.GetPromptInputs,
        models.ResultOutputs,
        "activity",
        either=("serverId", "name"),
        asks=True,
    ),
    NodeType(
        "community.mcp.complete",
        "Complete an argument of an MCP prompt or resource template",
        "integration",
        "side-effect",
        models.CompletionConfig,
        models.CompleteInputs,
        models.ResultOutputs,
        "activity",
        either=("serverId", "ref"),
    ),
    NodeType(
        "community.mcp.server-health",
        "Probe an MCP server",
        "integration",
        "side-effect",
        models.ServerConfig,
        models.ServerHealthInputs,
        models.HealthOutputs,
        "activity",
        either=("serverId",),
    ),
)

REGISTRY: Mapping[str, NodeType] = MappingProxyType({node_type.type_id: node_type for node_type in _TYPES})
"""Every node type of this version, by id."""
