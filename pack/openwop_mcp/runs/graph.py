"""A definition's graph as a run sees it: how each node stands, what each edge says, what a trigger rule asks.

Knows nothing of commands, events and time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from openwop_mcp.calls import Input
from openwop_mcp.effects.decide import Parked
from openwop_mcp.effects.doubt import Answer
from openwop_mcp.failures import Escaped
from openwop_mcp.runs.definition import Connection, Definition, Edge, Node, Operand

__all__ = ("UNSETTLED", "GraphEdge", "GraphNode", "Says", "Status", "graph", "rule_holds")


class Status(StrEnum):
    """Where a node is. The letters stand in the state that a continue-as-new carries."""

    WAITING = "w"
    READY = "r"
    RUNNING = "u"
    SUSPENDED = "p"
    COMPLETED = "c"
    FAILED = "f"
    SKIPPED = "s"
    CANCELLED = "x"


UNSETTLED = (Status.WAITING, Status.READY, Status.RUNNING, Status.SUSPENDED)


class Says(StrEnum):
    """What an edge says of its source to the trigger rule of its target."""

    NOTHING = "-"
    SUCCESS = "s"
    FAILED = "f"
    SKIPPED = "k"


@dataclass(slots=True, eq=False)
class GraphEdge:
    """An edge, what it says once its source is settled, and why if its condition had nothing to look at."""

    spec: Edge
    target: GraphNode
    says: Says = Says.NOTHING
    because: str = ""


@dataclass(slots=True, eq=False)
class GraphNode:
    """A node, and how it stands.

    Attributes:
        spec: The node as defined.
        incoming: Edges that lead to it.
        outgoing: Edges that lead from it.
        reads: Nodes whose outputs its inputs and the conditions on its outgoing edges need.
        status: Where it is.
        unsettled_sources: Incoming edges that say nothing yet.
        unsettled_readers: Nodes that may still need its outputs.
        attempt: Attempts begun.
        cut: Attempts that a pause cut off; the next one begins the node afresh.
        before: Attempts before its server's last question, which do not count against what a policy allows.
        waited: Seconds waited between attempts.
        parked: How it has waited for room, since the attempts that do not count.
        started: When the first attempt began, in milliseconds since 1970.
        answer: What a person decided about its effect, for all attempts until it is carried out.
        escaped: Whether an attempt so far may have had its effect.
        input: What answers its server's last question, for all attempts from then on.
        approved: JSON text of what a person approved of its call, for all attempts from then on.
        tool: The id of the tool that it calls, as long as its session is open.
    """

    spec: Node
    incoming: list[GraphEdge] = field(default_factory=list)
    outgoing: list[GraphEdge] = field(default_factory=list)
    reads: tuple[GraphNode, ...] = ()
    status: Status = Status.WAITING
    unsettled_sources: int = 0
    unsettled_readers: int = 0
    attempt: int = 0
    cut: int = 0
    before: int = 0
    waited: float = 0.0
    parked: Parked = field(default_factory=Parked)
    started: int = 0
    answer: Answer | None = None
    escaped: Escaped = Escaped.NO
    input: Input | None = None
    approved: bytes | None = None
    tool: str | None = None

    def encode(self) -> str:
        """JSON text of how it stands, as a state has it."""
        # By hand, as a state has thousands of them: to encode lists takes six times as long.
        return f'["{self.status}",{self.attempt},{self.started},{self.waited!r}]'


def graph(definition: Definition) -> tuple[dict[str, GraphNode], list[GraphEdge]]:
    """Link a definition's nodes and edges, in the order in which they are written."""
    nodes = {spec.id: GraphNode(spec) for spec in definition.nodes}
    edges = []
    for spec in definition.edges:
        edge = GraphEdge(spec, nodes[spec.target])
        edges.append(edge)
        nodes[spec.source].outgoing.append(edge)
        edge.target.incoming.append(edge)
    for node in nodes.values():
        node.unsettled_sources = len(node.incoming)
        node.reads = tuple(nodes[node_id] for node_id in _read_by(node))
        for read in node.reads:
            read.unsettled_readers += 1
    return nodes, edges


def _read_by(node: GraphNode) -> Iterable[str]:
    operands: list[Operand | None] = [port for _, port in node.spec.inputs]
    for edge in node.outgoing:
        if edge.spec.condition is not None:
            operands += (edge.spec.condition.left, edge.spec.condition.right)
    read = {operand.node_id: None for operand in operands if isinstance(operand, Connection)}
    return [node_id for node_id in read if node_id != node.spec.id]


def rule_holds(rule: str, edges: Iterable[GraphEdge]) -> bool:
    """Tell whether a trigger rule holds among settled edges."""
    said = [edge.says for edge in edges]
    match rule:
        case "all_success":
            return all(says is Says.SUCCESS for says in said)
        case "any_success":
            return Says.SUCCESS in said
        case "none_failed":
            return Says.FAILED not in said
        case "any_failed":
            return Says.FAILED in said
        case _:
            return True
