"""Workflow definitions and run starts for tests, in few words."""

from __future__ import annotations

import json
from typing import Any

from openwop_mcp.runs.start import Owner, RunStart

CALL_CONFIG = {"serverId": "weather", "name": "get"}
RUN_ID = "acme/run-000000000000001"
OWNER = Owner(
    "acme",
    {"issuer": "urn:test:api-key", "subjectId": "dev", "tenant": "acme", "lane": "api-key", "kind": "user"},
)


def node(node_id: str, type_id: str = "community.mcp.call-tool", **members: Any) -> dict[str, Any]:
    """A node; one that calls a tool unless told otherwise."""
    config = CALL_CONFIG if type_id == "community.mcp.call-tool" else {}
    return {
        "id": node_id,
        "typeId": type_id,
        "name": node_id,
        "position": {"x": 0, "y": 0},
        "config": config,
        "inputs": {},
        **members,
    }


def edge(source: str, target: str, rule: str | None = None, **members: Any) -> dict[str, Any]:
    """An edge named by its ends."""
    ends = {"id": f"{source}>{target}", "sourceNodeId": source, "targetNodeId": target}
    return {**ends, **({} if rule is None else {"triggerRule": rule}), **members}


def workflow(
    nodes: list[dict[str, Any]],
    edges: list[dict[str, Any]] | None = None,
    variables: list[dict[str, Any]] | None = None,
    **members: Any,
) -> dict[str, Any]:
    """A definition with everything that is required in it."""
    return {
        "id": "flow",
        "name": "Flow",
        "version": "1",
        "nodes": nodes,
        "edges": edges or [],
        "triggers": [],
        "variables": variables or [],
        "metadata": {},
        "settings": {},
        **members,
    }


def start(definition: dict[str, Any] | bytes, **members: Any) -> RunStart:
    """The start of a run of it."""
    text = definition if isinstance(definition, bytes) else json.dumps(definition).encode()
    return RunStart(RUN_ID, text, OWNER, **members)
