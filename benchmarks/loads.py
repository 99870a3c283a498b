"""Starts one workflow of a load and adds up what its calls answered. A graph for the pack's own workflow, else code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio.client import Client, WorkflowHandle

from benchmarks.variants import SERVER, WORKFLOW
from openwop_mcp import jsontext
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import parse
from openwop_mcp.runs.records import records
from openwop_mcp.runs.start import Owner, RunStart
from workflows.client import mint_run_id, start_run

__all__ = ("Handle", "Load", "load_of")

RUN_WITHIN = timedelta(minutes=5)
"""A workflow that takes longer has lost its worker: the benchmark is to fail, not to hang."""

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
    return Load(_run_graph, _graph_total) if variant == "graph" else Load(_run_code, _code_total)


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
    owner = Owner(
        "bench",
        {"issuer": "urn:bench", "subjectId": "bench", "tenant": "bench", "lane": "workload", "kind": "workload"},
    )
    definition = parse(_definition(calls, together), source="bench", node_types=REGISTRY)
    start = RunStart(run_id=mint_run_id("bench"), definition=definition.raw, owner=owner)
    handle: Handle = await start_run(client, start, definition, b"{}", task_queue=queue)
    await handle.result()
    return handle


async def _graph_total(handle: Handle) -> float:
    answers = records((await handle.fetch_history()).events)
    return sum(float(answer.result.structured_content["result"]) for answer in answers)


def _definition(calls: int, together: bool) -> bytes:
    """A node for each call; in sequence they are chained."""
    nodes = [
        {
            "id": f"n{number}",
            "typeId": "community.mcp.call-tool",
            "name": f"add {number}",
            "position": {"x": number, "y": 0},
            "config": {"serverId": SERVER, "name": "add"},
            "inputs": {"arguments": {"type": "static", "value": {"a": number, "b": 1}}},
        }
        for number in range(calls)
    ]
    edges = [
        {"id": f"e{number}", "sourceNodeId": f"n{number - 1}", "targetNodeId": f"n{number}"}
        for number in range(1, 1 if together else calls)
    ]
    return jsontext.encode(
        {
            "id": "bench",
            "name": "bench",
            "version": "1",
            "nodes": nodes,
            "edges": edges,
            "triggers": [],
            "variables": [],
            "metadata": {},
            "settings": {},
        }
    )
