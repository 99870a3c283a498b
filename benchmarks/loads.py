"""What is run: graphs, and the workflow of a variant, started, and added up. Measures nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle

from benchmarks.variants import GRAPHS, SERVER, WORKFLOW
from openwop_mcp import jsontext
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import parse
from openwop_mcp.runs.records import records
from openwop_mcp.runs.start import Owner, RunStart
from workflows.client import mint_run_id, start_run

__all__ = ("OWNER", "TENANT", "Handle", "Load", "bare_calls_graph", "calls_graph", "chain", "give_graph", "load_of")

TENANT = "bench"

OWNER = Owner(
    TENANT,
    {"issuer": "urn:bench", "subjectId": "bench", "tenant": TENANT, "lane": "workload", "kind": "workload"},
)

RUN_WITHIN = timedelta(minutes=5)
"""A workflow that takes longer has lost its worker: the benchmark is to fail, not to hang."""

CALL_TOOL = "community.mcp.call-tool"

Handle = WorkflowHandle[Any, Any]


@dataclass(frozen=True)
class Load:
    """How a variant's workflow is run, which is timed, and how its calls are added up afterwards, which is not.

    Attributes:
        run: Takes a client, a task queue, the number of calls, and whether they are made at once.
        total: The sum of what the calls of a finished workflow answered.
    """

    run: Callable[[Client, str, int, bool], Awaitable[Handle]]
    total: Callable[[Handle], Awaitable[float]]


def load_of(variant: str) -> Load:
    """The load of a variant."""
    return Load(_run_graph, _graph_total) if variant in GRAPHS else Load(_run_code, _code_total)


async def _run_code(client: Client, queue: str, calls: int, together: bool) -> Handle:
    handle: Handle = await client.start_workflow(
        WORKFLOW,
        args=[calls, together],
        id=f"{queue}-{uuid4().hex}",
        task_queue=queue,
        execution_timeout=RUN_WITHIN,
    )
    await handle.result()
    return handle


async def _code_total(handle: Handle) -> float:
    return float(await handle.result())


async def _run_graph(client: Client, queue: str, calls: int, together: bool) -> Handle:
    definition = parse(calls_graph(calls, calls if together else 1), source="bench", node_types=REGISTRY)
    start = RunStart(run_id=mint_run_id(TENANT), definition=definition.raw, owner=OWNER)
    handle: Handle = await start_run(client, start, definition, b"{}", task_queue=queue)
    await handle.result()
    return handle


async def _graph_total(handle: Handle) -> float:
    answers = records((await handle.fetch_history()).events)
    return sum(float(answer.result.structured_content["result"]) for answer in answers)


def calls_graph(calls: int, lanes: int) -> bytes:
    """A graph of so many calls of `add`, in so many chains that go on side by side."""
    nodes = [
        _node(number, CALL_TOOL, {"serverId": SERVER, "name": "add"}, {"a": number, "b": 1}) for number in range(calls)
    ]
    return _graph("calls", nodes, lanes)


def give_graph(size: int) -> bytes:
    """A graph of one call, whose result is as long as that."""
    return _graph("give", [_node(0, CALL_TOOL, {"serverId": SERVER, "name": "give"}, {"bytes": size})])


def bare_calls_graph(calls: int, lanes: int) -> bytes:
    """The same without arguments: of those, twice as many fit into a definition."""
    nodes = [_node(number, CALL_TOOL, {"serverId": SERVER, "name": "add"}) for number in range(calls)]
    return _graph("bare-calls", nodes, lanes)


def chain(name: str, nodes: Sequence[tuple[str, Mapping[str, Any]]]) -> bytes:
    """A graph of nodes in sequence, each a type and its config."""
    return _graph(name, [_node(number, type_id, config) for number, (type_id, config) in enumerate(nodes)])


def _node(
    number: int, type_id: str, config: Mapping[str, Any], arguments: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    inputs = {} if arguments is None else {"arguments": {"type": "static", "value": arguments}}
    node_id = f"n{number}"
    return {
        "id": node_id,
        "typeId": type_id,
        "name": node_id,
        "position": {"x": number, "y": 0},
        "config": config,
        "inputs": inputs,
    }


def _graph(name: str, nodes: Sequence[Mapping[str, Any]], lanes: int = 1) -> bytes:
    """A graph in which a node follows the one that is as many before it as there are lanes."""
    edges = [
        {"id": f"e{number}", "sourceNodeId": nodes[number - lanes]["id"], "targetNodeId": nodes[number]["id"]}
        for number in range(lanes, len(nodes))
    ]
    return jsontext.encode(
        {
            "id": name,
            "name": name,
            "version": "1",
            "nodes": nodes,
            "edges": edges,
            "triggers": [{"id": "manual", "type": "manual", "enabled": True}],
            "variables": [],
            "metadata": {},
            "settings": {},
        }
    )
