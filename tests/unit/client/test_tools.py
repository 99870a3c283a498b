"""What a page of tools teaches, and what it may cost to read it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from openwop_mcp.client import _tools
from openwop_mcp.client._tools import UNKNOWN, KnownTool, ToolBook

ANNOTATED = {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}


def page(*tools: dict[str, Any]) -> bytes:
    return json.dumps({"tools": tools}).encode()


def test_a_page_teaches_headers_and_schemas() -> None:
    book = ToolBook()
    book.learn(page({"name": "t", "inputSchema": ANNOTATED, "outputSchema": {}}, {"name": 7}, {"title": "no name"}))
    known = book.get("t")
    assert [param.header for param in known.headers] == ["Mcp-Param-A"]
    assert known.output_schema == b"{}"
    assert book.get("x") is UNKNOWN


def test_a_schema_that_is_too_large_is_neither_kept_nor_searched() -> None:
    invalid = {"x-mcp-header": "no property", "description": "x" * _tools.MAX_SCHEMA}
    book = ToolBook()
    book.learn(page({"name": "t", "inputSchema": invalid}))
    assert book.get("t") == KnownTool()


def test_a_page_of_many_annotated_schemas_is_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    wide: dict[str, Any] = {
        "properties": {f"p{i}": {} for i in range(4000)} | {"z": {"type": "string", "x-mcp-header": "Z"}}
    }
    monkeypatch.setattr(_tools, "MAX_ANNOTATED", 4 * len(json.dumps(wide)))
    tools = [{"name": f"t{i}", "inputSchema": wide} for i in range(100)]
    began = time.thread_time()
    learnt = ToolBook().learn(page({"name": "plain", "inputSchema": {}}, *tools))
    assert time.thread_time() - began < 1
    assert list(learnt) == ["plain", "t0", "t1", "t2", "t3"]
