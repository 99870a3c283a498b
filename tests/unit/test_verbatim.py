"""Exact bytes with views on demand."""

from __future__ import annotations

import copy
import hashlib
import pickle

import pytest

from openwop_mcp import jsontext
from openwop_mcp.verbatim import Verbatim

RESULT = (
    b'{"resultType":"complete", "content":[{"type":"text","text":"a"},{"type":"image","data":"x"},'
    b'{"type":"text","text":"b\\u00e9"}],"structuredContent":{"n":1.10},"isError":true,"_meta":{"k":1}}'
)


def test_a_result_reads_as_its_members() -> None:
    result = Verbatim(RESULT)
    assert result.raw == RESULT
    assert result.sha256 == hashlib.sha256(RESULT).hexdigest()
    assert len(result.content) == 3
    assert result.text == "a\nbé"
    assert result.structured_content == {"n": 1.1}
    assert result.has_structured_content
    assert result.is_error
    assert result.meta == {"k": 1}
    assert result.get("resultType") == "complete"
    assert result.get("absent") is None
    assert len(result) == len(RESULT)
    assert result.value["isError"] is True
    assert result.value is result.value


@pytest.mark.parametrize("raw", [b"{}", b'{"content":1,"isError":1,"_meta":[]}', b"[]", b"null", b"1"])
def test_missing_members_read_as_absent(raw: bytes) -> None:
    result = Verbatim(raw)
    assert result.content == []
    assert result.text == ""
    assert result.structured_content is None
    assert not result.has_structured_content
    assert not result.is_error
    assert result.meta == {}


def test_a_null_that_was_sent_is_told_from_absence() -> None:
    result = Verbatim(b'{"structuredContent":null}')
    assert result.structured_content is None
    assert result.has_structured_content


def test_blocks_of_a_wrong_shape_have_no_text() -> None:
    assert Verbatim(b'{"content":[1,{"type":"text"},{"type":"text","text":2},{"text":"x"}]}').text == ""


def test_a_span_is_the_exact_bytes() -> None:
    result = Verbatim(RESULT)
    span = result.span("structuredContent", "n")
    assert span is not None
    assert span.raw == b"1.10"
    assert result.span("content", 2, "text") == Verbatim(b'"b\\u00e9"')
    assert result.span("content", 9) is None


def test_equality_is_by_bytes_alone() -> None:
    assert Verbatim(b"1", {"server-id": "a"}) == Verbatim(b"1")
    assert Verbatim(b"1") != Verbatim(b"1.0")
    assert Verbatim(b"1") != b"1"
    assert len({Verbatim(b"1", {"server-id": "a"}), Verbatim(b"1")}) == 1


def test_making_one_parses_nothing() -> None:
    broken = Verbatim(b"{oops")
    assert broken.raw == b"{oops"
    with pytest.raises(jsontext.JsonTextError):
        _ = broken.value
    with pytest.raises(jsontext.JsonTextError):
        _ = broken.content


def test_its_repr_shows_no_content() -> None:
    shown = repr(Verbatim(RESULT, {"server-id": "weather"}))
    assert shown == f"<Verbatim: {len(RESULT)} bytes from 'weather', sha256 {hashlib.sha256(RESULT).hexdigest()[:12]}>"
    assert "from" not in repr(Verbatim(RESULT))


def test_it_cannot_be_changed() -> None:
    result = Verbatim(RESULT, {"server-id": "weather"})
    with pytest.raises(AttributeError):
        result.raw = b""  # type: ignore[misc]
    with pytest.raises(TypeError):
        result.provenance["server-id"] = "other"  # type: ignore[index]


def test_copies_keep_bytes_and_provenance() -> None:
    result = Verbatim(RESULT, {"server-id": "weather"})
    for twin in (copy.deepcopy(result), pickle.loads(pickle.dumps(result))):
        assert twin == result
        assert twin.provenance == {"server-id": "weather"}


def test_a_value_is_encoded_and_spliced() -> None:
    result = Verbatim.of({"a": Verbatim(b"[ 1.0 ]")})
    assert result.raw == b'{"a":[ 1.0 ]}'
    assert Verbatim.of(None).value is None
