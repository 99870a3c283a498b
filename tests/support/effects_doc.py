"""The retry table of docs/effects.md, from the code; `python -m tests.support.effects_doc` renews it."""

from __future__ import annotations

from pathlib import Path

from openwop_mcp.effects.decide import TABLE

DOC = Path(__file__).parents[2] / "docs" / "effects.md"
BEGIN = "<!-- table: written by tests/support/effects_doc.py -->"
END = "<!-- end of table -->"


def renewed(text: str) -> str:
    """The document with today's table."""
    before, rest = text.split(BEGIN)
    rows = ["| what came of the attempt | what follows |", "| --- | --- |"]
    rows += [f"| {rule.when} | {rule.then} |" for rule in TABLE]
    table = "\n".join(rows)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    DOC.write_text(renewed(DOC.read_text(encoding="utf-8")), encoding="utf-8")
