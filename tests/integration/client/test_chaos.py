"""Calls to servers that drop, delay, truncate, reset and lie at random; ``make chaos`` makes as many and shows more."""

from __future__ import annotations

import re
import secrets

import pytest

from tests.chaos.storm import SECTIONS, run
from tests.support.cli import ROOT, python

CALLS = {"modern": 10_000, "legacy": 2_000, "stdio": 2_000}
"""What the wire part of ``make chaos`` makes of 10,000."""


@pytest.mark.timeout(300)
async def test_every_call_ends_in_a_result_or_one_typed_error_and_nothing_is_left_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.support.cli.LIMIT", 250.0)
    # In a process of its own, the memory of which tells of nothing else.
    done = await python("-m", "tests.chaos", "wire", "--calls", str(CALLS["modern"]), "--seed", "1", cwd=ROOT)
    assert done.status == 0, done.text
    assert done.text.endswith("all held\n")
    assert sum(map(int, re.findall(r"^ +(\d+) \S", done.text, re.MULTILINE))) == sum(CALLS.values())
    results = [int(found) for found in re.findall(r"^ +(\d+) result$", done.text, re.MULTILINE)]
    # How many is the machine's business.
    assert len(results) == len(CALLS)
    assert all(found > made / 20 for found, made in zip(results, CALLS.values(), strict=True))


@pytest.mark.parametrize("section", SECTIONS)
async def test_so_it_is_with_any_seed(section: str) -> None:
    seed = secrets.token_hex(4)
    storm = await run(section, 600, seed)
    assert storm.violations == [], f"seed {seed}"
