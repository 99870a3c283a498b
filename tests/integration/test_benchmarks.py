"""Every part of the benchmarks runs, and tells a number for each thing that it measures."""

from __future__ import annotations

import re

import pytest

from benchmarks.parts import PARTS, load
from tests.support.cli import ROOT, python

RESULTS = ROOT / "benchmarks" / "results"

ROWS = {
    "calls": 2 * 3 + 2,
    "compression": 3 * (5 * 3 + 4 * 2),
    "telemetry": 2 * 3,
    "host": 6 + 2,
    "catalog": 3,
    "projection": 1,
    "memory": 5,
    "growth": 6,
}
"""Rows of the tables of a quick look."""


@pytest.mark.timeout(240)
@pytest.mark.parametrize("part", PARTS)
async def test_a_quick_look_at_a_part_has_all_rows_of_its_tables_and_keeps_no_results(part, monkeypatch):
    before = {file.name: file.read_bytes() for file in RESULTS.iterdir()}
    monkeypatch.setattr("tests.support.cli.LIMIT", 200.0)
    variants = ["--variants", "graph,graph-claimed"] if part == "calls" else []
    done = await python("-m", "benchmarks", "--quick", "--only", part, *variants, cwd=ROOT)
    assert done.status == 0, done.err
    assert f"## {load(part).title}\n" in done.text
    rows = [line for line in done.text.splitlines() if line.startswith("| ") and not re.match(r"\| (-|  +\|)", line)]
    heads = sum(1 for line in done.text.splitlines() if line.startswith("| -"))
    named = sum(1 for line in done.text.splitlines() if re.match(r"\|  +\|", line))
    assert len(rows) - (heads - named) == ROWS[part], done.text
    assert {file.name: file.read_bytes() for file in RESULTS.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--only", "calls,nonsense"], "no such part: nonsense"),
        (["--variants", "nonsense"], "no such variant: nonsense"),
        (["--rounds", "0"], "--rounds must be at least 1"),
    ],
)
async def test_a_fault_in_the_command_line_is_told_before_anything_is_measured(arguments, complaint):
    done = await python("-m", "benchmarks", *arguments, cwd=ROOT)
    assert done.status == 2
    assert complaint in done.err
