"""The report of the benchmarks: what is kept of earlier runs, and how numbers stand in its tables."""

from __future__ import annotations

import pytest

from benchmarks.parts import PARTS, load
from benchmarks.report import grid, machine, merged, table

FACTS = {"cores": 2, "versions": {"temporalio": "1.35.0"}}
BEFORE = {"machine": FACTS, "parts": {"growth": {"rows": [1]}, "host": {"rows": [2]}}}


def test_a_part_that_is_measured_alone_is_kept_beside_the_others_of_the_same_machine():
    found = merged(BEFORE, FACTS, {"host": {"rows": [3]}})
    assert found == {"machine": FACTS, "parts": {"host": {"rows": [3]}, "growth": {"rows": [1]}}}
    assert list(found["parts"]) == ["host", "growth"], "in the order of the report"


@pytest.mark.parametrize("facts", [{**FACTS, "cores": 4}, {**FACTS, "versions": {"temporalio": "1.36.0"}}])
def test_numbers_of_another_machine_or_of_other_versions_are_not_kept(facts):
    assert merged(BEFORE, facts, {"host": {"rows": [3]}}) == {"machine": facts, "parts": {"host": {"rows": [3]}}}


def test_the_first_results_are_kept_by_themselves():
    assert merged(None, FACTS, {"host": {}}) == {"machine": FACTS, "parts": {"host": {}}}


def test_a_table_has_a_heading_and_so_many_digits_for_each_column_and_a_hole_for_what_is_missing():
    rows = [{"name": "a", "count": 1234.5, "ms": 0.126}, {"name": "long", "ms": None}]
    columns = {"name": ("", None), "count": ("n", 0), "ms": ("CPU ms", 2)}
    assert table(rows, columns).splitlines() == [
        "|      |     n | CPU ms |",
        "| ---- | ----: | -----: |",
        "| a    | 1,234 |   0.13 |",
        "| long |       |        |",
    ]


def test_a_grid_is_as_wide_as_its_widest_cell():
    assert grid(["what", "n"], [["x", "100"]]) == "| what |   n |\n| ---- | --: |\n| x    | 100 |"


def test_the_facts_of_the_machine_name_the_versions_that_matter():
    assert {"temporalio", "openwop-mcp-pack", "mcp"} <= set(machine()["versions"])


def test_every_part_says_what_its_numbers_are():
    for name in PARTS:
        part = load(name)
        assert part.title
        assert part.about.endswith(".")
