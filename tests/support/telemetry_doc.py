"""The tables of docs/telemetry.md, from the instruments and attributes; `make reference` renews them."""

from __future__ import annotations

from pathlib import Path

from openwop_mcp.telemetry.attributes import MEANINGS
from openwop_mcp.telemetry.instruments import INSTRUMENTS
from tests.support.tables import table

DOC = Path(__file__).parents[2] / "docs" / "telemetry.md"


def renewed(text: str) -> str:
    """The document with today's tables."""
    metrics = [
        (f"`{one.name}`", one.kind, f"`{one.unit}`", one.description, ", ".join(f"`{name}`" for name in one.attributes))
        for one in INSTRUMENTS
    ]
    meanings = [(f"`{name}`", meaning) for name, meaning in MEANINGS.items()]
    text = _filled(text, "metrics", table(("metric", "kind", "unit", "tells", "by"), metrics))
    return _filled(text, "attributes", table(("attribute", "says"), meanings))


def _filled(text: str, name: str, rows: str) -> str:
    begin, end = f"<!-- {name}: written by tests/support/telemetry_doc.py -->", f"<!-- end of {name} -->"
    before, rest = text.split(begin)
    return f"{before}{begin}\n\n{rows}\n{end}{rest.split(end)[1]}"
