"""Validators and the header that asks by them."""

from __future__ import annotations

import pytest

from host import etags

ETAG = etags.strong("run-3.completed")


def test_equal_bytes_have_one_validator_and_others_another() -> None:
    assert etags.of_bytes(b"{}") == etags.of_bytes(b"{}")
    assert etags.of_bytes(b"{}") != etags.of_bytes(b"{} ")
    assert etags.of_bytes(b"{}").startswith('"')


@pytest.mark.parametrize("header", [ETAG, f"W/{ETAG}", f'"other", {ETAG}', f'"other",W/{ETAG} ', "*", " * "])
def test_a_client_that_has_it_is_recognized(header: str) -> None:
    assert etags.matches(header, ETAG)


@pytest.mark.parametrize("header", [None, "", '"other"', "run-3.completed", f"w/{ETAG}", f"{ETAG}x", '"run-3', "**"])
def test_one_that_does_not_or_says_something_else_is_not(header: str | None) -> None:
    assert not etags.matches(header, ETAG)
