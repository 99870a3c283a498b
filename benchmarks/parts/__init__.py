"""What is measured, one module for each part, which has its `PART`. What one of them is, is said here."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

__all__ = ("PARTS", "Data", "Options", "Part", "load")

PARTS = ("calls", "compression", "telemetry", "host", "catalog", "projection", "memory", "growth")
"""Their names, in the order of the report."""

Data = Mapping[str, Any]
"""What was measured, as JSON."""


@dataclass(frozen=True)
class Options:
    """How much is measured.

    Attributes:
        quick: As little as shows that everything runs.
        rounds: How often, where a part has interleaved rounds; None for its own number.
        variants: Those that the part of the calls compares; all if there are none.
    """

    quick: bool = False
    rounds: int | None = None
    variants: tuple[str, ...] = ()


@dataclass(frozen=True)
class Part:
    """A part.

    Attributes:
        title: Its heading in the report.
        about: What its numbers are.
        measure: Measures it.
        tables: Makes Markdown of what was measured.
    """

    title: str
    about: str
    measure: Callable[[Options], Coroutine[Any, Any, Data]]
    tables: Callable[[Data], str]


def load(name: str) -> Part:
    """Find a part. None imports what another one needs."""
    part: Part = import_module(f"benchmarks.parts.{name}").PART
    return part
