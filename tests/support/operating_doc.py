"""The table of docs/operating.md that tells what calls cost, from the last results of `make bench`."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.tables import table

ROOT = Path(__file__).parents[2]
DOC = ROOT / "docs" / "operating.md"
RESULTS = ROOT / "benchmarks" / "results" / "latest.json"
BEGIN = "<!-- table: written by tests/support/operating_doc.py -->"
END = "<!-- end of table -->"
VARIANTS = {
    "graph": "in a graph",
    "pack": "from a workflow in Python",
    "claimed": "the same, must not be repeated",
    "keyed": "the same, with a key of yours",
}


def renewed(text: str) -> str:
    """The document with the table of the last results."""
    before, rest = text.split(BEGIN)
    medians = json.loads(RESULTS.read_text(encoding="utf-8"))["medians"]
    rows = [
        (shape, *(f"{by[name]['cpu_ms']:.1f} ms, {by[name]['rate']:.0f}/s" for name in VARIANTS))
        for shape, by in medians.items()
    ]
    return f"{before}{BEGIN}\n\n{table(('calls', *VARIANTS.values()), rows)}\n{END}{rest.split(END)[1]}"
