"""Tools as OpenWOP describes them: a server's, a node type's, a workflow's, each under what the host says of it.

Pure. A server's schemas are cut out byte for byte; its words are escaped where a reader could not see them; nothing
that it claims about its tools counts, and nothing of its credential is told but that there is one.
"""

from __future__ import annotations

import functools
from typing import Any

from openwop_mcp import jsontext
from openwop_mcp.catalog.annotations import hints
from openwop_mcp.catalog.compact import compact_schema
from openwop_mcp.catalog.names import node_tool_id, tool_id, workflow_tool_id
from openwop_mcp.config import EffectivePolicy, Server
from openwop_mcp.nodes.manifest import schema_of
from openwop_mcp.nodes.registry import NodeType
from openwop_mcp.runs.definition import Definition, Variable
from openwop_mcp.terminal import escape

__all__ = ("compact_descriptor", "mcp_descriptor", "node_descriptor", "workflow_descriptor")

PURE = EffectivePolicy(safety_tier="pure", replay_policy="deterministic", egress="none")
READS = EffectivePolicy(safety_tier="read", replay_policy="idempotent", egress="host-mediated")
WRITES = EffectivePolicy(safety_tier="write", replay_policy="non-deterministic", egress="host-mediated")

COMPACT = ("toolId", "source", "safetyTier", "title", "description")
"""What the compact view shows of a descriptor as it stands; it closes with the compact input schema."""

_Members = list[tuple[str, bytes]]


def mcp_descriptor(server_id: str, server: Server, definition: bytes, policy: EffectivePolicy) -> bytes:
    """Describe a server's tool.

    Args:
        server_id: The server, by its id in the settings.
        server: Its settings.
        definition: JSON text of the tool as the server lists it: an object with a name.
        policy: What holds for the tool.

    Returns:
        JSON text of a ``ToolDescriptor``.
    """
    told = dict(jsontext.members(definition))
    name = jsontext.decode(told["name"])
    annotations = told.get("annotations", b"null")
    claimed = jsontext.member(annotations, "title") if jsontext.kind(annotations) == "object" else None
    title = _text(told.get("title")) or _text(claimed) or name
    schemas = [(part, told[part]) for part in ("inputSchema", "outputSchema") if _is_object(told.get(part))]
    secret = server.credential is not None or bool(server.environment)
    return _descriptor(
        tool_id(server_id, name),
        "mcp",
        policy,
        [*_words(title, told.get("description")), *schemas],
        [("auth", b'{"credentialRef":true}')] if secret else [],
    )


def node_descriptor(node_type: NodeType) -> bytes:
    """Describe a node type. What it reaches, it reaches through the host.

    Returns:
        JSON text of a ``ToolDescriptor``.
    """
    policy = PURE if node_type.role == "pure" else WRITES if node_type.changes else READS
    members = [("title", jsontext.encode(node_type.title)), ("inputSchema", _node_schema(node_type))]
    return _descriptor(node_tool_id(node_type.type_id), "node-pack", policy, members)


def workflow_descriptor(definition: Definition) -> bytes:
    """Describe a workflow: what it does is up to its nodes, so that it counts as one that writes.

    Returns:
        JSON text of a ``ToolDescriptor``.
    """
    schema = jsontext.build(
        [
            ("type", b'"object"'),
            ("properties", jsontext.build((one.name, _variable_schema(one)) for one in definition.variables)),
            ("required", jsontext.encode([one.name for one in definition.variables if _is_required(one)])),
        ]
    )
    words = _words(definition.name, jsontext.member(definition.raw, "description"))
    return _descriptor(workflow_tool_id(definition.id), "workflow", WRITES, [*words, ("inputSchema", schema)])


def compact_descriptor(descriptor: bytes) -> bytes:
    """The compact view of a descriptor.

    Returns:
        JSON text of a ``CompactToolDescriptor``.
    """
    told = dict(jsontext.members(descriptor))
    members = [(name, told[name]) for name in COMPACT if name in told]
    if "inputSchema" in told:
        members.append(("inputSchema", compact_schema(told["inputSchema"])))
    return jsontext.build(members)


def _descriptor(
    identity: str, source: str, policy: EffectivePolicy, members: _Members, access: _Members | None = None
) -> bytes:
    return jsontext.build(
        [
            ("toolId", jsontext.encode(identity)),
            ("source", jsontext.encode(source)),
            *members,
            ("annotations", jsontext.encode(hints(policy))),
            *(access or ()),
            ("egress", jsontext.encode(policy.egress)),
            ("approval", jsontext.encode(_approval(policy))),
            ("replayPolicy", jsontext.encode(policy.replay_policy)),
            ("safetyTier", jsontext.encode(policy.safety_tier)),
        ]
    )


def _approval(policy: EffectivePolicy) -> str:
    if policy.approval == "write":
        return "always" if policy.safety_tier == "write" else "never"
    return policy.approval


def _text(member: bytes | None) -> str | None:
    """A member that is a string and says something."""
    text: Any = jsontext.decode(member) if member is not None and jsontext.kind(member) == "string" else None
    return text or None


def _words(title: str, description: bytes | None) -> _Members:
    """What people and models read, with an escape in the place of what they would not see."""
    said = _text(description)
    words = {"title": title} if said is None else {"title": title, "description": said}
    return [(name, jsontext.encode(escape(text, multiline=True))) for name, text in words.items()]


def _is_object(member: bytes | None) -> bool:
    return member is not None and jsontext.kind(member) == "object"


@functools.cache
def _node_schema(node_type: NodeType) -> bytes:
    return jsontext.encode(schema_of(node_type.inputs, f"{node_type.type_id}: inputs"))


def _is_required(variable: Variable) -> bool:
    return variable.required and variable.default is None


def _variable_schema(variable: Variable) -> bytes:
    members = [("type", jsontext.encode(variable.type))]
    if variable.default is not None and not variable.sensitive:
        members.append(("default", variable.default))
    return jsontext.build(members)
