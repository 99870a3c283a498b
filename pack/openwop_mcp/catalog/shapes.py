"""The JSON Schemas of both views of a tool, which the pack publishes: members, values, and what follows from what.

Derived from the table of hints, so that schema and descriptors cannot differ. Writes no file itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

from openwop_mcp.catalog.annotations import HINTS
from openwop_mcp.config import ToolPolicy

__all__ = ("COMPACT_DESCRIPTOR", "DESCRIPTOR", "files")

DIALECT = "https://json-schema.org/draft/2020-12/schema"

SOURCES = ["node-pack", "workflow", "mcp", "connector", "host-extension"]
TIERS = ["pure", "read", "write", "exec"]
"""``exec`` is for a host's own tools alone: none of ours has it."""

ABSENT_IS_TRUE = frozenset({"egress"})
"""Fields whose hint is true where they are absent: a tool that does not say where it reaches may go anywhere."""

_WIRE = {"safety_tier": "safetyTier", "replay_policy": "replayPolicy", "egress": "egress"}


def _values(field: str) -> list[str]:
    return TIERS if field == "safety_tier" else list(get_args(ToolPolicy.model_fields[field].annotation))


def _follows(condition: dict[str, Any], conclusion: dict[str, Any]) -> dict[str, Any]:
    return {"if": condition, "then": conclusion}


def _is_one_of(member: str, values: list[str]) -> dict[str, Any]:
    return {"properties": {member: {"enum": values}}, "required": [member]}


def _hint_is(hint: str, *, value: bool) -> dict[str, Any]:
    return {"properties": {"annotations": {"properties": {hint: {"const": value}}}}}


def _hint_rules() -> Iterator[dict[str, Any]]:
    """Of each hint two: what it is where its field has certain values, and that it is the opposite elsewhere."""
    for hint, (field, true) in HINTS.items():
        elsewhere = field in ABSENT_IS_TRUE
        certain = _is_one_of(_WIRE[field], [value for value in _values(field) if (value in true) != elsewhere])
        yield _follows(certain, _hint_is(hint, value=not elsewhere))
        yield _follows({"not": certain}, _hint_is(hint, value=elsewhere))


_OBJECT = {"type": "object", "additionalProperties": True}
_LEVEL = {"enum": ["low", "medium", "high"]}
_EXEC_RULE = _follows(_is_one_of("safetyTier", ["exec"]), _is_one_of("source", ["host-extension"]))
_COMMON: dict[str, Any] = {
    "toolId": {"type": "string", "minLength": 1},
    "source": {"enum": SOURCES},
    "title": {"type": "string"},
    "description": {"type": "string"},
    "safetyTier": {"enum": TIERS},
}

DESCRIPTOR: dict[str, Any] = {
    "$schema": DIALECT,
    "title": "ToolDescriptor",
    "type": "object",
    "additionalProperties": False,
    "required": ["toolId", "source", "safetyTier"],
    "properties": {
        **_COMMON,
        "inputSchema": _OBJECT,
        "outputSchema": _OBJECT,
        "annotations": {
            "type": "object",
            "additionalProperties": False,
            "required": list(HINTS),
            "properties": {hint: {"type": "boolean"} for hint in HINTS},
        },
        "auth": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "scopes": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
                "credentialRef": {"type": "boolean"},
            },
        },
        "egress": {"enum": _values("egress")},
        "approval": {"enum": ["never", "conditional", "always"]},
        "replayPolicy": {"enum": _values("replay_policy")},
        "costHint": _LEVEL,
        "latencyHint": _LEVEL,
    },
    "allOf": [_EXEC_RULE, *_hint_rules()],
}
"""The standard view (OpenWOP v2, tool catalog)."""

COMPACT_DESCRIPTOR: dict[str, Any] = {
    "$schema": DIALECT,
    "title": "CompactToolDescriptor",
    "type": "object",
    "additionalProperties": False,
    "required": ["toolId", "source", "safetyTier"],
    "properties": {
        **_COMMON,
        "inputSchema": {
            "type": "object",
            "additionalProperties": False,
            "required": ["type", "properties"],
            "properties": {"type": {"const": "object"}, "properties": _OBJECT},
        },
    },
    "allOf": [_EXEC_RULE],
}
"""The compact view. Which keywords no input schema has at any depth is more than a schema can say."""


def files() -> dict[str, bytes]:
    """Both schemas, by their path inside the pack."""
    schemas = {"tool-descriptor": DESCRIPTOR, "compact-tool-descriptor": COMPACT_DESCRIPTOR}
    return {
        f"schemas/{name}.schema.json": json.dumps(schema, indent=2).encode() + b"\n" for name, schema in schemas.items()
    }
