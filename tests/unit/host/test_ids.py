"""Tenant-bound ids: their grammar, and the one segment of a path that they travel as."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.errors import HostError
from host.ids import BoundId, is_author_id, project, unproject

RUN_ID = "acme/0123456789abcdef"
SIGNS = "ABCXYZabcxyz0189._~-"

ODD = "aF0/~%.-_ \n\x00\u00e9\u2028\U0001f44d"
"""Signs that mean something in a path or nothing anywhere."""

bound_ids = st.builds(
    "{}/{}".format, st.text(SIGNS, min_size=1, max_size=128), st.text(SIGNS, min_size=16, max_size=128)
)


def refused(segment: str) -> HostError:
    with pytest.raises(HostError) as caught:
        BoundId.from_segment(segment, name="runId")
    assert caught.value.code == "validation_error"
    assert caught.value.details == {"field": "runId"}
    return caught.value


@given(bound_ids)
def test_an_id_comes_back_from_its_projection_and_from_percent_encoding(text: str) -> None:
    parsed = BoundId.parse(text, name="runId")
    assert str(parsed) == text
    assert BoundId.from_segment(parsed.segment, name="runId") == parsed
    # Every byte in percent escapes is the same path as none, so it is the same id.
    assert BoundId.from_segment("".join(f"%{byte:02x}" for byte in parsed.segment.encode()), name="runId") == parsed
    if "~" not in text:
        assert BoundId.from_segment(quote(text, safe=""), name="runId") == parsed


@given(st.text(ODD))
def test_any_text_survives_its_projection_which_is_one_segment(text: str) -> None:
    segment = project(text)
    assert set(segment) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-~")
    assert unproject(segment, name="runId") == text


@given(bound_ids)
def test_an_id_that_was_projected_twice_is_none(text: str) -> None:
    refused(project(project(text)))


@given(st.text(ODD + "\ud800").filter(lambda segment: "/" not in segment and "2F" not in segment.upper()))
def test_what_holds_no_tenant_is_refused_whatever_it_is_and_not_repeated(segment: str) -> None:
    told = refused(segment)
    assert len(segment) < 8 or segment not in told.message


def test_a_projection_escapes_with_capitals_and_the_bytes_of_utf_8() -> None:
    assert project("acme/r-1") == "acme~2Fr-1"
    assert project("anon:é~") == "anon~3A~C3~A9~7E"


@pytest.mark.parametrize(
    "segment",
    [
        "0123456789abcdef",
        "acme~2Fshort",
        "acme~2f0123456789abcdef",
        "acme~2",
        "acme~2G0123456789abcdef",
        "~",
        "acme%2",
        "acme%ZZ0123456789abcdef",
        "acme~FF0123456789abcdef",
        "acme%252F0123456789abcdef",
        "acme~2F0123456789abcdef~2F1",
        "acme~2F0123456789abcdef%0A",
        "ac\u00e9me~2F0123456789abcdef",
        "\ud800",
        "~2F0123456789abcdef",
        "",
    ],
)
def test_malformed_segments_and_the_opaque_part_alone_are_refused(segment: str) -> None:
    refused(segment)


def test_a_tenant_is_told_apart_before_anything_is_looked_up() -> None:
    parsed = BoundId.parse(RUN_ID, name="runId")
    assert parsed.belongs_to("acme")
    assert not parsed.belongs_to("acm")
    parsed.require_tenant("acme")
    with pytest.raises(HostError) as caught:
        parsed.require_tenant("globex")
    assert (caught.value.code, caught.value.status) == ("id_tenant_mismatch", 403)
    assert "acme" not in caught.value.envelope.decode()


def test_the_tenant_of_an_anonymous_surface_is_a_tenant() -> None:
    parsed = BoundId.from_segment("anon~3Aacme~2F0123456789abcdef", name="runId")
    assert parsed == BoundId("anon:acme", "0123456789abcdef")


def test_authors_choose_ids_of_their_own_grammar() -> None:
    assert is_author_id("conformance-noop")
    assert is_author_id("a:b~c.d_e")
    assert not is_author_id("")
    assert not is_author_id("a/b")
    assert not is_author_id("a\n")
    assert not is_author_id("x" * 129)
