"""Reading a page of tools."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp import jsontext
from openwop_mcp.calls import MAX_NAME
from openwop_mcp.catalog.fingerprint import fingerprint
from openwop_mcp.catalog.pages import definitions, page_digest, read_page
from tests.support.catalog_pages import TOOLS, VALUES, page, tool


@given(st.lists(TOOLS | VALUES, max_size=4), st.booleans())
def test_each_element_is_one_tool_with_its_own_bytes(tools: list[Any], http: bool) -> None:
    text = page(*tools)
    read = read_page(text, http=http)
    assert [jsontext.encode(one) for one in tools] == definitions(text)
    assert [one.fingerprint for one in read] == [fingerprint(one) for one in definitions(text)]
    for one, found in zip(tools, read, strict=True):
        named = isinstance(one, dict) and isinstance(one.get("name"), str) and one["name"] != ""
        assert found.name == (one["name"] if named else None)
        assert named or found.unusable is not None


@given(VALUES)
def test_a_page_without_an_array_of_tools_has_none(value: Any) -> None:
    for text in (jsontext.encode(value), jsontext.encode({"tools": value if isinstance(value, dict) else {}})):
        assert read_page(text, http=True) == ()


ANNOTATED = {"type": "object", "properties": {"n": {"type": "array", "x-mcp-header": "N"}}}


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ([], "its definition is no object"),
        ({"inputSchema": {}}, "it has no name"),
        ({"name": 1, "inputSchema": {}}, "its name is no string"),
        (tool(""), "its name is empty"),
        (tool("x" * (MAX_NAME + 1)), "its name has more than 1024 characters"),
        ({"name": "bad"}, "it has no inputSchema"),
        ({"name": "bad", "inputSchema": []}, "its inputSchema is no object"),
        ({"name": "bad", "inputSchema": {"type": "string"}}, "its inputSchema takes something other than an object"),
        ({"name": "bad", "inputSchema": {"type": ["object"]}}, "its inputSchema takes something other than an object"),
        (
            {"name": "bad", "inputSchema": ANNOTATED},
            "an x-mcp-header in its inputSchema is on a property whose type is not integer, string or boolean",
        ),
    ],
)
def test_one_bad_definition_is_unusable_with_a_reason_and_spoils_no_other(definition: Any, reason: str) -> None:
    bad, ok = read_page(page(definition, tool("ok")), http=True)
    assert bad.unusable == reason
    assert bad.name in {None, "bad"}
    assert (ok.name, ok.unusable) == ("ok", None)


def test_headers_matter_over_http_alone() -> None:
    text = page({"name": "annotated", "inputSchema": ANNOTATED})
    assert read_page(text, http=False)[0].unusable is None
    assert read_page(text, http=True)[0].unusable is not None


def test_an_annotation_that_is_spelled_with_escapes_is_seen() -> None:
    text = page({"name": "a", "inputSchema": ANNOTATED}).replace(b"x-mcp", b"\\u0078-mcp")
    assert read_page(text, http=True)[0].unusable is not None


def test_a_reason_quotes_nothing_that_the_server_sent() -> None:
    schema = {"type": "object", "properties": {"evil\u202e": {"type": "evil", "x-mcp-header": "evil\n"}}}
    [read] = read_page(page({"name": "evil", "inputSchema": schema}), http=True)
    assert read.unusable is not None
    assert "evil" not in read.unusable


def test_a_schema_that_does_not_say_its_type_takes_an_object() -> None:
    assert read_page(page({"name": "a", "inputSchema": {}}), http=True)[0].unusable is None


def test_a_page_is_told_by_its_bytes_and_by_how_it_is_read() -> None:
    told = [page_digest(b"{}", http=True), page_digest(b"{ }", http=True), page_digest(b"{}", http=False)]
    assert len(set(told)) == len(told)
