"""The tables of docs/operating.md that tell what calls cost, from the last results of `make bench`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tests.support.tables import table

ROOT = Path(__file__).parents[2]
DOC = ROOT / "docs" / "operating.md"
RESULTS = ROOT / "benchmarks" / "results" / "latest.json"
Medians = Mapping[str, Mapping[str, Mapping[str, float]]]

BEGIN = "<!-- table of {}: written by tests/support/operating_doc.py -->"
END = "<!-- end of table -->"
VARIANTS = {
    "graph": "in a graph",
    "graph-claimed": "in a graph, must not be repeated",
    "pack": "from a workflow in Python",
    "claimed": "the same, must not be repeated",
    "keyed": "the same, with a key of yours",
}
COMPRESSED = {name: VARIANTS[name] for name in ("graph", "graph-claimed", "pack", "claimed")}


def renewed(text: str) -> str:
    """The document with the tables of the last results."""
    parts = json.loads(RESULTS.read_text(encoding="utf-8"))["parts"]
    for name, made in (("calls", _calls), ("compression", _compression)):
        begin = BEGIN.format(name)
        before, rest = text.split(begin)
        # Only up to the first end: further tables follow.
        text = f"{before}{begin}\n\n{made(parts[name]['medians'])}\n{END}{rest.split(END, 1)[1]}"
    return text


def _calls(medians: Medians) -> str:
    rows = [
        (shape, *(f"{by[name]['cpu_ms']:.1f} ms, {by[name]['rate']:.0f}/s" for name in VARIANTS))
        for shape, by in medians.items()
    ]
    return table(("calls", *VARIANTS.values()), rows)


def _compression(medians: Medians) -> str:
    """Ratios of none to gzip."""

    def cell(by: Mapping[str, Mapping[str, float]], name: str) -> str:
        none, gzip = by[f"{name} none"], by[f"{name} gzip"]
        return f"CPU {none['cpu_ms'] / gzip['cpu_ms']:.2f}, bytes {none['kilobytes'] / gzip['kilobytes']:.1f}"

    rows = [(shape, *(cell(by, name) for name in COMPRESSED)) for shape, by in medians.items()]
    return table(("calls", *COMPRESSED.values()), rows)
