"""Lists: what a page is asked for with, and what Temporal is asked for it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from host.errors import HostError
from host.listing import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, STRETCH_ROWS, Asked, RunList

_STARTED = re.compile(r"StartTime (<=|>) '([^']+)'")


class Listing:
    """A Temporal that lists workflows which began so many seconds ago.

    Attributes:
        counts: How often it counted.
        lists: How many rows each list had.
    """

    def __init__(self, ages: Sequence[float]) -> None:
        now = datetime.now(UTC)
        self.rows = [
            SimpleNamespace(id=f"acme/{index:08}", run_id="r", start_time=now - timedelta(seconds=age), status=None)
            for index, age in enumerate(ages)
        ]
        self.counts = 0
        self.lists: list[int] = []

    async def count_workflows(self, query: str) -> Any:
        self.counts += 1
        return SimpleNamespace(count=len(self._found(query)))

    async def list_workflows(self, query: str, **_: object) -> AsyncIterator[Any]:
        found = self._found(query)
        self.lists.append(len(found))
        for row in found:
            yield row

    def _found(self, query: str) -> list[Any]:
        found = list(self.rows)
        for sign, text in _STARTED.findall(query):
            moment = datetime.fromisoformat(text)
            found = [row for row in found if (row.start_time > moment) is (sign == ">")]
        return found


async def rows(temporal: Listing, asked: Asked, *, wanted: int) -> list[str]:
    """The ids of the newest runs, as far as they are wanted, and those that came with them."""
    runs = RunList(cast("Any", temporal), cast("Any", None))
    found: list[str] = []
    async for stretch in runs._rows("acme", None, asked):
        found += [row.run_id for row in stretch]
        if len(found) >= wanted:
            break
    return found


LIVES = {
    "just now": [number / 100 for number in range(600)],
    "within a minute": [number * 60 / 600 for number in range(600)],
    "an hour ago, all at once": [3600 + number / 100 for number in range(600)],
    "over a year": [number * 50_000 for number in range(600)],
    "in two bursts": [*(number / 100 for number in range(300)), *(86_400 + number / 100 for number in range(300))],
}


@pytest.mark.parametrize("ages", LIVES.values(), ids=LIVES)
async def test_a_page_of_many_runs_reads_about_as_many_rows_as_it_shows(ages: list[float]) -> None:
    temporal, asked = Listing(ages), Asked(size=50)
    newest = [row.id for row in sorted(temporal.rows, key=lambda row: row.start_time, reverse=True)]
    found = await rows(temporal, asked, wanted=51)
    assert found == newest[: len(found)]
    assert 51 <= len(found) == sum(temporal.lists) <= 102
    assert len(temporal.lists) == 1
    assert temporal.counts < 20
    assert await rows(temporal, asked, wanted=len(ages) + 1) == newest


async def test_where_there_are_few_runs_they_are_listed_once() -> None:
    temporal = Listing([number * 3600 for number in range(100)])
    assert len(await rows(temporal, Asked(size=50), wanted=101)) == 100
    assert (temporal.counts, temporal.lists) == (1, [100])


async def test_runs_that_began_together_are_taken_together_however_many_they_are() -> None:
    temporal = Listing([60.0] * 300)
    assert sorted(await rows(temporal, Asked(size=10), wanted=301)) == [row.id for row in temporal.rows]


async def test_what_temporal_lists_already_is_not_asked_for_though_it_was_created_a_moment_ago() -> None:
    temporal = Listing([number / 100 for number in range(20)])
    # It can count and list, and any other question fails.
    runs = RunList(cast("Any", temporal), cast("Any", None))
    for row in temporal.rows:
        runs.created(row.id)
    [found] = [stretch async for stretch in runs._rows("acme", None, Asked())]
    assert [row.run_id for row in found] == [row.id for row in temporal.rows]


async def test_with_a_filter_more_is_read_at_once() -> None:
    temporal = Listing([number / 100 for number in range(STRETCH_ROWS)])
    await rows(temporal, Asked(size=1, status="failed"), wanted=2)
    assert temporal.lists == [STRETCH_ROWS]


def test_a_list_that_says_nothing_begins_at_the_newest() -> None:
    assert Asked.read({}) == Asked(DEFAULT_PAGE_SIZE, None, None, None)


def test_a_page_is_asked_for_by_size_cursor_workflow_and_status() -> None:
    query = {"limit": "7", "cursor": "c", "workflowId": "w", "status": "waiting-input", "tag": "x"}
    asked = Asked.read(query)
    assert asked == Asked(7, "c", "w", "waiting-input")
    assert asked.narrowed == {"workflowId": "w", "status": "waiting-input"}


def test_a_page_is_never_larger_than_the_host_allows() -> None:
    assert Asked.read({"limit": str(MAX_PAGE_SIZE + 1)}).size == MAX_PAGE_SIZE


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "-1"}, {"limit": "1.5"}, {"limit": ""}, {"status": "done"}]
)
def test_what_cannot_be_asked_for_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(HostError) as caught:
        Asked.read(query)
    assert (caught.value.code, caught.value.details) == ("validation_error", {"field": next(iter(query))})
