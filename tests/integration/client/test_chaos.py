"""Calls to servers that drop, delay, truncate, reset and lie at random; ``make chaos`` makes as many and shows more."""

from __future__ import annotations

import secrets

import pytest

from tests.chaos.storm import SECTIONS, run

CALLS = {"modern": 10_000, "legacy": 2_000, "stdio": 2_000}


@pytest.mark.parametrize("section", SECTIONS)
async def test_every_call_ends_in_a_result_or_one_typed_error_and_nothing_is_left_of_it(section: str) -> None:
    storm = await run(section, CALLS[section], "1")
    assert storm.violations == []
    assert sum(storm.ends.values()) == CALLS[section]
    # How many is the machine's business.
    assert storm.ends["result"] > CALLS[section] / 20


@pytest.mark.parametrize("section", SECTIONS)
async def test_so_it_is_with_any_seed(section: str) -> None:
    seed = secrets.token_hex(4)
    storm = await run(section, 600, seed)
    assert storm.violations == [], f"seed {seed}"
