"""What an effect chaos asks for: calls, the runs that make them, and when. Pure, and the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.support.graphs import edge, node, workflow

__all__ = ("AFTER", "KEYED", "REPEATABLE", "SERVER", "TOOLS", "PlannedCall", "PlannedRun", "plan")

SERVER = "counting"

TOOLS: Mapping[str, Mapping[str, str]] = {
    "write": {},
    "write-idempotent": {"replay_policy": "idempotent"},
    "write-insisted": {"on_doubt": "resend"},
    "read": {"safety_tier": "read"},
}
"""Tools by name, with the policy that the settings hold for them."""

REPEATABLE = frozenset(TOOLS) - {"write"}
"""Tools whose policy lets an effect happen twice."""

WEIGHTS = {"write": 60, "write-idempotent": 12, "write-insisted": 14, "read": 14}
"""How often a call is of each tool: mostly of the one whose effects can be lost or doubled."""

KEYED = "keyed-"
"""How the ids of effects begin whose calls have a key."""

KEYED_SHARE = 0.3
"""Share of the calls that have an idempotency key."""

AFTER = 2.0
"""Moment of a run that begins when all others have ended; those before are shares of the storm."""

AT_ONCE, AGAIN = 0.5, 0.8
"""Up to these shares, the next call with a key comes at once, or again during the storm; above, when it is over."""


@dataclass(frozen=True)
class PlannedCall:
    """One call.

    Attributes:
        effect: Stands in its arguments; calls with one key share it, as they are one effect.
        tool: The tool.
        key: Its idempotency key.
    """

    effect: str
    tool: str
    key: str | None = None

    @property
    def arguments(self) -> dict[str, str]:
        return {"effect": self.effect}


@dataclass(frozen=True)
class PlannedRun:
    """Calls that one workflow makes.

    Attributes:
        number: Of the run, from 0 on.
        at: When it begins, as a share of the storm, or `AFTER`.
        graph: Whether it is a graph, or an author's workflow.
        parallel: Whether its calls are made at once, or one after the other.
        stops: Whether, one after the other, a failed call keeps the next from being made. Graphs only.
        calls: The calls.
    """

    number: int
    at: float
    graph: bool
    parallel: bool
    stops: bool
    calls: tuple[PlannedCall, ...]

    def definition(self) -> dict[str, Any]:
        """The graph that makes them; node `n<i>` makes the i-th."""
        nodes = [
            node(f"n{i}", config={"serverId": SERVER, "name": c.tool}, inputs=_inputs(c)) for i, c in self.numbered
        ]
        rule = None if self.stops else "all_complete"
        edges = [] if self.parallel else [edge(f"n{i - 1}", f"n{i}", rule) for i, _ in self.numbered[1:]]
        return workflow(nodes, edges)

    @property
    def numbered(self) -> list[tuple[int, PlannedCall]]:
        return list(enumerate(self.calls))


def _inputs(call: PlannedCall) -> dict[str, Any]:
    given: dict[str, Any] = {"arguments": call.arguments}
    if call.key is not None:
        given["idempotencyKey"] = call.key
    return {name: {"type": "static", "value": value} for name, value in given.items()}


def plan(calls: int, seed: str) -> list[PlannedRun]:
    """So many calls, in runs of one to four, the runs in the order in which they begin."""
    rng = random.Random(f"{seed} plan")
    moments = sorted(_calls(rng, calls), key=lambda planned: planned[0])
    runs: list[PlannedRun] = []
    while moments:
        at, _ = moments[0]
        mine: list[PlannedCall] = []
        size = rng.randint(1, 4)
        # Calls with one key are those of several runs; and what comes after the storm is no part of a run in it.
        while moments and len(mine) < size and moments[0][1] not in mine and (moments[0][0] == AFTER) == (at == AFTER):
            mine.append(moments.pop(0)[1])
        graph, parallel, stops = rng.random() < 0.6, rng.random() < 0.6, rng.random() < 0.3
        runs.append(PlannedRun(len(runs), at, graph, parallel, stops, tuple(mine)))
    return runs


def _calls(rng: random.Random, calls: int) -> Iterator[tuple[float, PlannedCall]]:
    """Each call and its moment."""
    made = 0
    while made < calls:
        tool = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        at = rng.random()
        if made >= calls * KEYED_SHARE:
            yield at, PlannedCall(f"call-{made}", tool)
            made += 1
            continue
        call = PlannedCall(f"{KEYED}{made}", tool, f"order {made}")
        for nth in range(min(rng.randint(2, 3), calls - made)):
            how = rng.random()
            if nth and how >= AT_ONCE:
                at = AFTER if how >= AGAIN else rng.uniform(at, 1) if at < 1 else at
            yield at, call
            made += 1
