"""What an operator is told of a tool that can be called."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from openwop_mcp import jsontext
from openwop_mcp.catalog.remarks import remarks
from tests.support.catalog_pages import tool

HIDDEN = "holds characters that do not show, or that reorder or hide text"


@pytest.mark.parametrize(
    "sign", ["\U000e0041\U000e0042", "\u202e", "\u200b", "\u2066", "\U000e0101", "\x1b[2J", "\ud800"]
)
@pytest.mark.parametrize(
    ("field", "members"),
    [
        ("title", {"title": "aSIGN"}),
        ("description", {"description": "aSIGN"}),
        ("annotations.title", {"annotations": {"title": "aSIGN"}}),
        ("inputSchema", {"inputSchema": {"type": "object", "properties": {"a": {"description": "aSIGN"}}}}),
        ("inputSchema", {"inputSchema": {"type": "object", "properties": {"aSIGN": {}}}}),
        ("outputSchema", {"outputSchema": {"type": "object", "properties": {"a": {"enum": [["aSIGN"]]}}}}),
    ],
)
def test_hidden_text_is_told_with_its_field(field: str, members: dict[str, Any], sign: str) -> None:
    definition = jsontext.encode(tool("a", **members)).replace(b"SIGN", jsontext.encode(sign)[1:-1])
    assert remarks(definition) == (f"{field} {HIDDEN}",)


def test_hidden_text_is_seen_however_it_is_spelled() -> None:
    assert remarks(b'{"name":"a\\u202e","inputSchema":{}}') == (f"name {HIDDEN}",)


def test_ordinary_text_of_any_language_is_not_remarked_upon() -> None:
    assert remarks(jsontext.encode(tool("a", description="Wetter für München ☀️\n\t天気を調べる"))) == ()


def test_a_schema_nobody_can_compile_is_told() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}}}
    [remark] = remarks(jsontext.encode(tool("a", inputSchema=schema)))
    assert remark.startswith("inputSchema cannot be checked by: the schema is not valid at '/properties/n/exclusive")


def test_a_reference_to_the_network_is_told_and_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", None)
    monkeypatch.setattr(socket, "create_connection", None)
    definition = jsontext.encode(tool("a", outputSchema={"$ref": "http://127.0.0.1:9/s.json?key=secret"}))
    [remark] = remarks(definition)
    assert remark.endswith("the schema refers to another document, which is not in it and is not fetched")


def test_a_schema_that_is_no_object_is_told() -> None:
    assert remarks(jsontext.encode(tool("a", outputSchema=True))) == ("outputSchema is no object",)


def test_of_what_is_no_tool_nothing_is_said() -> None:
    assert remarks(b"[]") == ()
