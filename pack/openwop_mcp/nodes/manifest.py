"""The pack's manifest and JSON Schemas, derived from the registry (OpenWOP v2, node packs). Writes no file itself."""

from __future__ import annotations

import importlib.metadata
import json
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema

from openwop_mcp.nodes.registry import REGISTRY, NodeType

__all__ = ("files", "schema_of")

PACK_NAME = "community.mcp.openwop-mcp-pack"
"""Reverse-DNS name in the scope that OpenWOP leaves to individuals."""

ENGINES = ">=2.0.0 <3.0.0"
"""Versions of OpenWOP that the nodes are written against; the upper bound is required."""


class _Schemas(GenerateJsonSchema):
    """Without titles that repeat the members' names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False


def files() -> dict[str, bytes]:
    """Derive the manifest and the schemas, by their path inside the pack."""
    derived = {"pack.json": _text(_manifest())}
    for node_type in REGISTRY.values():
        for part, model in (
            ("config", node_type.config),
            ("inputs", node_type.inputs),
            ("outputs", node_type.outputs),
        ):
            derived[_schema_path(node_type, part)] = _text(schema_of(model, f"{node_type.type_id}: {part}"))
    return derived


def _manifest() -> dict[str, Any]:
    return {
        "kind": "node",
        "name": PACK_NAME,
        "version": _version(),
        "description": "MCP servers as durable workflow nodes on Temporal, recorded byte for byte.",
        "license": "Apache-2.0",
        "keywords": ["mcp", "temporal", "durable-execution"],
        "engines": {"openwop": ENGINES},
        "peerDependencies": {"mcp": ENGINES},
        "peerDependenciesMeta": {"mcp": {"facets": ["client"]}},
        "runtime": {
            "language": "python",
            "entry": "openwop_mcp",
            "minRuntimeVersion": "python>=3.11",
            "requires": ["net.dns", "net.outbound", "env.read", "fs.read"],
        },
        "nodes": [_node(node_type) for node_type in REGISTRY.values()],
    }


def _node(node_type: NodeType) -> dict[str, Any]:
    return {
        "typeId": node_type.type_id,
        "version": _version(),
        "label": node_type.title,
        "category": node_type.category,
        "role": node_type.role,
        "capabilities": ["side-effectful"] if node_type.changes else [],
        "configSchemaRef": _schema_path(node_type, "config"),
        "inputSchemaRef": _schema_path(node_type, "inputs"),
        "outputSchemaRef": _schema_path(node_type, "outputs"),
    }


def _version() -> str:
    return importlib.metadata.version("openwop-mcp-pack")


def _schema_path(node_type: NodeType, part: str) -> str:
    return f"schemas/{node_type.type_id}.{part}.schema.json"


def schema_of(model: type[BaseModel], title: str) -> dict[str, Any]:
    """The JSON Schema of a node's config, inputs or outputs, with the members' names as graphs write them."""
    schema = model.model_json_schema(by_alias=True, schema_generator=_Schemas)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": title}


def _text(value: dict[str, Any]) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"
