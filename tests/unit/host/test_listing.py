"""Lists: what a page is asked for with."""

from __future__ import annotations

import pytest

from host.errors import HostError
from host.listing import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE, Asked


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
