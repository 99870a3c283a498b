"""docs/reference/nodes.md, from the registry of node types and the schemas that the pack publishes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from openwop_mcp.calls import METHODS
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.nodes.calls import METHOD_OF
from openwop_mcp.nodes.manifest import schema_of
from openwop_mcp.nodes.registry import NodeType
from tests.support.tables import cell, table

HEAD = """\
# All node types

Written by `make reference` from the code; [authoring.md](../authoring.md) says how to use them in a graph. A node's
*inputs* and *outputs* are its ports: edges say in which order nodes run, and an input of the type `connection` takes
the output of another node. Its *config* is literal. `pack/schemas/` has the JSON Schema of each part.

A `side-effect` reaches out: a replay takes its outcome from the record, and calls nobody.
"""
RUNS = {
    "pure": "in the workflow, at once",
    "timer": "as a durable timer",
    "activity": "as an activity of the pack's worker",
    "gate": "until a person, or an event from outside, has answered",
}
BOUNDS = {
    "minimum": "from {}",
    "maximum": "up to {}",
    "minLength": "not empty",
    "maxLength": "at most {} characters",
    "minItems": "not empty",
    "pattern": "matches `{}`",
}


def _kind(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    """What a member may be, in words."""
    if "$ref" in schema:
        return _kind(definitions[schema["$ref"].rsplit("/", 1)[1]], definitions)
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    kind = schema.get("type", "any JSON value")
    if kind == "array":
        kind = f"array, each {_kind(schema['items'], definitions)}"
    elif kind == "object" and (members := schema.get("properties")):
        needed = schema.get("required", [])
        kind = "object: " + ", ".join(f"`{name}`" + ("" if name in needed else " (optional)") for name in members)
    elif kind == "object" and isinstance(values := schema.get("additionalProperties"), dict):
        kind = f"object of {_kind(values, definitions)}s"
    bounds = [text.format(schema[bound]) for bound, text in BOUNDS.items() if bound in schema]
    return f"{kind}, {', '.join(bounds)}" if bounds else kind


def members(model: type[BaseModel]) -> Iterator[tuple[str, str, str, str]]:
    """Each member of a config, of inputs or of outputs: name, type, whether it has to be there, what it is."""
    schema = schema_of(model, "")
    for name, member in schema.get("properties", {}).items():
        needed = "yes" if name in schema.get("required", []) else ""
        yield f"`{name}`", cell(_kind(member, schema.get("$defs", {}))), needed, cell(member.get("description", ""))


def _facts(kind: NodeType) -> str:
    method = METHOD_OF.get(kind.type_id)
    lines = [
        f"role `{kind.role}`, category `{kind.category}`",
        f"runs {RUNS[kind.run]}",
        *([f"asks `{METHODS[method]}`"] if method else []),
        *(["can change something outside: see [effects.md](../effects.md)"] if kind.changes else []),
        *(["its server may ask a person first: see [interrupts.md](../interrupts.md)"] if kind.asks else []),
        *([f"has to stand in the inputs or in the config: {_names(kind.either)}"] if kind.either else []),
        *([f"what the node does not set comes from the run's inputs: {_names(kind.ambient)}"] if kind.ambient else []),
    ]
    return "".join(f"- {line}\n" for line in lines)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def page() -> str:
    """The page as it has to be."""
    parts = [HEAD]
    for kind in REGISTRY.values():
        parts.append(f"## `{kind.type_id}`\n\n{kind.title}.\n\n{_facts(kind)}")
        for part, model in (("config", kind.config), ("input", kind.inputs), ("output", kind.outputs)):
            if found := list(members(model)):
                parts.append(table((part, "type", "always" if part == "output" else "required", "what it is"), found))
    return "\n".join(parts)
