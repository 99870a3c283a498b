"""``OpenWOP-Dedup``: what the header may say, and what a scope is called."""

from __future__ import annotations

import re

import pytest

from host.errors import HostError
from host.scopes import _name, asked


def test_a_run_is_the_only_one_of_its_scope_where_that_is_asked_for() -> None:
    assert asked("enforce", "nightly")
    assert not asked(None, "nightly")
    assert not asked(None, None)


@pytest.mark.parametrize(
    ("header", "scope_id", "field"),
    [
        ("enforce", None, "scopeId"),
        ("Enforce", "x", "OpenWOP-Dedup"),
        ("", "x", "OpenWOP-Dedup"),
        ("true", None, "OpenWOP-Dedup"),
    ],
)
def test_what_cannot_be_enforced_is_refused(header: str, scope_id: str | None, field: str) -> None:
    with pytest.raises(HostError) as caught:
        asked(header, scope_id)
    assert (caught.value.code, caught.value.details) == ("validation_error", {"field": field})


def test_scopes_of_two_tenants_differ_and_none_shows_what_it_is_called() -> None:
    names = {_name(tenant, scope_id) for tenant, scope_id in (("a", "x"), ("b", "x"), ("a", "y"), ("a", 'x"'))}
    assert len(names) == 4
    assert all(re.fullmatch(r"scope:[ab]/[A-Za-z0-9_-]{43}", name) for name in names)
