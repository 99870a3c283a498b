"""Cursors: only what was given out for a list comes back to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.cursors import Cursors
from host.errors import HostError

CURSORS = Cursors(b"s" * 32, "runs")
POSITION = "2026-11-30T09:00:00Z acme/0123456789abcdef"
MADE = CURSORS.seal(POSITION, tenant="acme", narrowed={"status": "failed"})

texts = st.text('aZ09,:"\\\n\x00\u00e9\u2028\U0001f44d')
filters = st.dictionaries(texts, texts, max_size=3)


def refused(cursors: Cursors, cursor: str, tenant: str = "acme", narrowed: dict[str, str] | None = None) -> None:
    with pytest.raises(HostError) as caught:
        cursors.open(cursor, tenant=tenant, narrowed={"status": "failed"} if narrowed is None else narrowed)
    assert caught.value.code == "validation_error"
    assert caught.value.details == {"field": "cursor"}


@given(texts, texts, filters)
def test_a_cursor_gives_back_its_position_and_fits_into_a_query(
    position: str, tenant: str, narrowed: dict[str, str]
) -> None:
    cursor = CURSORS.seal(position, tenant=tenant, narrowed=narrowed)
    assert cursor.replace("-", "").replace("_", "").isalnum()
    assert CURSORS.open(cursor, tenant=tenant, narrowed=dict(reversed(narrowed.items()))) == position


def test_another_tenants_list_filter_or_host_does_not_open_it() -> None:
    refused(CURSORS, MADE, tenant="globex")
    refused(CURSORS, MADE, narrowed={"status": "running"})
    refused(CURSORS, MADE, narrowed={})
    refused(Cursors(b"t" * 32, "runs"), MADE)
    refused(Cursors(b"s" * 32, "tools"), MADE)


@given(st.integers(0, len(MADE) - 1), st.sampled_from("ABab01-_+/= é"))
def test_one_changed_character_is_enough(index: int, sign: str) -> None:
    changed = MADE[:index] + sign + MADE[index + 1 :]
    if changed != MADE:
        refused(CURSORS, changed)


@given(st.text("abAB01-_=+/ \u00e9\ud800"))
def test_what_was_never_given_out_is_refused(cursor: str) -> None:
    refused(CURSORS, cursor)


def test_the_parts_that_it_is_bound_to_cannot_run_into_one_another() -> None:
    cursor = CURSORS.seal("x", tenant="ab", narrowed={"c": "d"})
    refused(CURSORS, cursor, tenant="a", narrowed={"bc": "d"})
