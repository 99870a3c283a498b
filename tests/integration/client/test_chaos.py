"""Calls to servers that drop, delay, truncate, reset and lie at random; ``make chaos`` makes as many and shows more."""

from __future__ import annotations

import re
import secrets

import pytest

from tests.support.cli import ROOT, python


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("calls", "seed"), [(10_000, "1"), (3_000, secrets.token_hex(4))], ids=["known", "any"])
async def test_every_call_ends_in_a_result_or_one_typed_error_and_nothing_is_left_of_it(
    monkeypatch: pytest.MonkeyPatch, calls: int, seed: str
) -> None:
    monkeypatch.setattr("tests.support.cli.LIMIT", 250.0)
    # In a process of its own, what is left tells of nothing else: here, servers of other tests may still be called.
    done = await python("-m", "tests.chaos", "wire", "--calls", str(calls), "--seed", seed, cwd=ROOT)
    assert done.status == 0, done.text + done.err
    assert done.text.endswith("all held\n")
    made = [calls, calls // 5, calls // 5]
    assert sum(map(int, re.findall(r"^ +(\d+) \S", done.text, re.MULTILINE))) == sum(made)
    results = [int(found) for found in re.findall(r"^ +(\d+) result$", done.text, re.MULTILINE)]
    # How many is the machine's business.
    assert len(results) == len(made)
    assert all(found > most / 20 for found, most in zip(results, made, strict=True))
