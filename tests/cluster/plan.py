"""What a cluster is asked for: runs of three calls each, and the workflows that make them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tests.support.graphs import edge, node, workflow

__all__ = ("KEYED", "SERVER", "TENANT", "TOOLS", "WRITES", "PlannedRun", "plan", "workflows")

SERVER = "counting"

TENANT = "acme"
"""Of all runs, since a key is one within a tenant."""

TOOLS = ("post", "order", "look")
"""The tools, which the nodes that call them are named like: one that acts, one that acts under a key of the author's,
and one that reads."""

WRITES = frozenset({"post", "order"})
"""Tools whose effects count."""

KEYED = "order"
"""The tool whose calls have a key of the author's."""

SHARED_EVERY = 10
"""Every so many runs, one has the key of the run before it: both are created at once, at different hosts; the effect is
one."""


@dataclass(frozen=True)
class PlannedRun:
    """A run.

    Attributes:
        number: Its place, from 0 on.
        flow: The workflow.
        effects: What each of its calls is to do, by tool. It stands in the call's arguments, and of a call with a key
            it is the key.
    """

    number: int
    flow: str
    effects: Mapping[str, str]

    @property
    def create(self) -> dict[str, Any]:
        """The body that creates it."""
        return {"workflowId": self.flow, "inputs": dict(self.effects)}


def plan(runs: int) -> list[PlannedRun]:
    """So many runs, in the order of their creation."""
    return [_run(number) for number in range(runs)]


def _run(number: int) -> PlannedRun:
    shares = number % SHARED_EVERY == SHARED_EVERY - 1
    effects = {tool: f"{tool}-{number - 1 if shares and tool == KEYED else number}" for tool in TOOLS}
    # A run and the one that shares its key are of different workflows.
    return PlannedRun(number, "in-turn" if number % 2 else "at-once", effects)


def workflows() -> dict[str, dict[str, Any]]:
    """The definitions: the three calls one after the other, and all at once."""
    nodes = [
        node(
            tool,
            config={"serverId": SERVER, "name": tool},
            inputs={
                "arguments.effect": {"type": "variable", "variableName": tool},
                **({"idempotencyKey": {"type": "variable", "variableName": tool}} if tool == KEYED else {}),
            },
        )
        for tool in TOOLS
    ]
    variables = [{"name": tool, "type": "string", "required": True} for tool in TOOLS]
    in_turn = [edge(before, after) for before, after in pairwise(TOOLS)]
    return {
        name: {**workflow(nodes, edges, variables), "id": name}
        for name, edges in (("in-turn", in_turn), ("at-once", []))
    }
