"""Tables of Markdown, for the pages that are written by programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Prose of a docstring as it stands in a cell: on one line, with Markdown's marks."""
    return " ".join(text.replace("``", "`").split()).replace("|", r"\|")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, with a line end after it."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines).replace("|  |", "| |").replace("|  |", "| |")
