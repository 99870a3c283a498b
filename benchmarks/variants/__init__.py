"""What is compared. A variant is a module with a workflow named `Calls` and `parts(url)`, what its worker is made of.

The sandbox imports a workflow's module anew for every workflow, so these modules import what activities need only
inside `parts`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, cast

from temporalio.worker import Plugin

__all__ = ("GRAPHS", "SERVER", "TIMEOUT", "VARIANTS", "WORKFLOW", "Parts", "carry_out", "load")

VARIANTS = {
    "graph": "this pack, as a graph",
    "graph-claimed": "as a graph, a tool that must not be repeated",
    "pack": "this pack, from an author's workflow",
    "claimed": "from an author's workflow, a tool that must not be repeated",
    "keyed": "the same, each call with a key of its own",
    "peer": "temporalio-mcp with the mcp SDK",
    "bare": "a bare activity with httpx",
}
"""Module name, with dashes, and what it is called in the report. Peer and bare repeat any tool without asking."""

GRAPHS = frozenset({"graph", "graph-claimed"})
"""Those whose workflow is the pack's own."""

WORKFLOW = "Calls"
SERVER = "bench"

TIMEOUT = 60
"""Seconds for one call where a variant asks for a limit: the default of temporalio-mcp."""


@dataclass(frozen=True)
class Parts:
    """What a variant's worker is made of."""

    workflow: type
    activities: Sequence[Callable[..., Any]] = ()
    plugins: Sequence[Plugin] = field(default_factory=list)


def load(name: str) -> Callable[[str], AbstractAsyncContextManager[Parts]]:
    """Find a variant's `parts`."""
    module = import_module(f"benchmarks.variants.{name.replace('-', '_')}")
    return cast("Callable[[str], AbstractAsyncContextManager[Parts]]", module.parts)


async def carry_out(call: Callable[[int], Awaitable[float]], calls: int, *, together: bool) -> float:
    """Make `calls` calls, all at once or one after the other, and add up what they answer. Runs in workflows."""
    if together:
        return sum(await asyncio.gather(*(call(number) for number in range(calls))))
    total = 0.0
    for number in range(calls):
        total += await call(number)
    return total
