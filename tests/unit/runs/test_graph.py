"""A definition's graph, as a run sees it."""

from __future__ import annotations

import pytest

from openwop_mcp import jsontext
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import parse
from openwop_mcp.runs.graph import GraphNode, Status, graph
from tests.support.graphs import node, workflow


@pytest.fixture
def graph_node() -> GraphNode:
    definition = parse(jsontext.encode(workflow([node("a", "core.noop")])), source="test", node_types=REGISTRY)
    return graph(definition)[0]["a"]


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("waited", [0.0, 0.1 + 0.2, 1e-7, 1e22])
def test_a_node_is_encoded_as_any_other_json_is(graph_node, status, waited):
    graph_node.status, graph_node.attempt, graph_node.started, graph_node.waited = status, 3, 1_764_541_849_000, waited
    row = [status.value, graph_node.attempt, graph_node.started, waited]
    assert graph_node.encode().encode() == jsontext.encode(row)
