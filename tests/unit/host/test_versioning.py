"""The contract that a request asks for, and the one that answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.errors import HostError
from host.versioning import PROTOCOL_VERSIONS, VERSION, client_version, negotiate


@pytest.mark.parametrize("asked", [None, "2", "2.0", " 2.0 ", "2.7"])
def test_no_wish_and_any_minor_of_our_major_are_served(asked: str | None) -> None:
    assert negotiate(asked) == VERSION == "2.0"


@pytest.mark.parametrize(
    "asked", ["1", "1.0", "3.0", "20", "02", "2.", ".0", "2.0.0", "latest", "", "2,3", "2.00", "٢"]
)
def test_another_major_and_what_is_no_version_are_refused_with_what_is_served(asked: str) -> None:
    with pytest.raises(HostError) as caught:
        negotiate(asked)
    assert (caught.value.code, caught.value.status) == ("protocol_version_unsupported", 406)
    assert caught.value.details == {"protocolVersions": list(PROTOCOL_VERSIONS)}


@given(st.text("0123.v, \n\u00e9\u0662\ud800", min_size=1).filter(lambda asked: not asked.strip().startswith("2")))
def test_a_refusal_repeats_nothing_of_the_header(asked: str) -> None:
    with pytest.raises(HostError) as caught:
        negotiate(asked)
    assert caught.value.message == "OpenWOP-Version: this host speaks 2.0: ask for that, or leave the header out"


@pytest.mark.parametrize(
    ("header", "version"),
    [
        ("2.46.32", (2, 46)),
        ("2.0", (2, 0)),
        ("2.1.0-rc.58", (2, 1)),
        (None, None),
        ("2", None),
        ("02.1", None),
        ("two", None),
        ("2.1\n", None),
        ("9" * 5000 + ".0", None),
    ],
)
def test_a_client_says_what_it_implements_and_nothing_else_counts(
    header: str | None, version: tuple[int, int] | None
) -> None:
    assert client_version(header) == version
