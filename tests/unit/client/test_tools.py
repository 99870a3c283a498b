"""What a page of tools teaches, and what it may cost to read it."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest

from openwop_mcp.client import _tools
from openwop_mcp.client._tools import UNKNOWN, KnownTool, ToolBook, read_page

ANNOTATED = {"properties": {"a": {"type": "string", "x-mcp-header": "A"}}}


def page(*tools: dict[str, Any]) -> bytes:
    return json.dumps({"tools": tools}).encode()


def test_a_page_teaches_headers_and_schemas() -> None:
    book = ToolBook()
    told = page({"name": "t", "inputSchema": ANNOTATED, "outputSchema": {}}, {"name": 7}, {"title": "no name"})
    book.learn(read_page(told))
    known = book.get("t")
    assert [param.header for param in known.headers] == ["Mcp-Param-A"]
    assert known.output_schema == b"{}"
    assert book.get("x") is UNKNOWN


LONG = "x" * _tools.MAX_SCHEMA


def test_a_large_schema_is_searched_for_headers_and_not_kept() -> None:
    read = read_page(
        page({"name": "t", "inputSchema": {"description": LONG, **ANNOTATED}, "outputSchema": {"a": LONG}})
    )
    assert [param.header for param in read["t"].headers] == ["Mcp-Param-A"]
    assert (read["t"].input_schema, read["t"].output_schema) == (None, None)


INNER = {"type": "integer", "x-mcp-header": "I", "description": LONG}


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"properties": {"b\n": INNER, "c": {"type": "string", "x-mcp-header": "C"}}}}},
        {
            "properties": {
                "a": {"type": "string", "x-mcp-header": "A" * 300},
                "b": {"type": "object", "description": LONG},
            }
        },
        {"properties": {"a": {"type": "object", "x-mcp-header": "A"}}, "description": LONG},
        {"properties": {"a": {"type": ["string"], "x-mcp-header": "A"}}, "description": LONG},
        {"anyOf": [{}, [1, {"properties": {"a": INNER}}], "x"]},
        {"examples": [INNER], "default": {"x-mcp-header": 7}, **ANNOTATED, "enum": list(range(20_000))},
        {"x-mcp-header": "no property", "description": LONG},
        {"properties": {"a": INNER, "b": {"type": "string", "x-mcp-header": "i"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "\u00e9"}}, "description": LONG},
    ],
)
def test_a_large_schema_says_what_it_would_say_if_it_were_decoded_as_a_whole(
    schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = page({"name": "t", "inputSchema": schema})
    taken_apart = read_page(told)["t"]
    monkeypatch.setattr(_tools, "MAX_SCHEMA", 10 * len(told))
    whole = read_page(told)["t"]
    assert (taken_apart.headers, taken_apart.invalid) == (whole.headers, whole.invalid)
    assert taken_apart.headers or taken_apart.invalid


def test_a_tool_that_is_sought_is_read_however_many_come_before_it_and_however_large_it_is() -> None:
    large = {"description": "x" * _tools.MAX_ANNOTATED, **ANNOTATED}
    others = [{"name": f"t{number}", "inputSchema": {}} for number in range(_tools.MAX_TOOLS)]
    told = page({"name": "first", "inputSchema": large}, *others, {"name": "t", "inputSchema": large})
    assert "first" not in read_page(told)
    assert "t" not in read_page(told)
    assert [param.header for param in read_page(told, "t")["t"].headers] == ["Mcp-Param-A"]


TOO_MUCH = b'{"tools":[{"name":"t","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}},%b}}]}'


@pytest.mark.parametrize(
    "filling",
    [
        b'"x-mcp-header":0,' + b",".join(b'"p%d":{}' % number for number in range(200_000)),
        b'"anyOf":[{"x-mcp-header":0}' + b",[]" * 1_000_000 + b"]",
    ],
    ids=["members", "elements"],
)
def test_a_large_schema_that_takes_too_much_stays_unknown(filling: bytes) -> None:
    told = TOO_MUCH % filling
    tracemalloc.start()
    assert read_page(told, "t") == {"t": KnownTool()}
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 1024 * 1024  # bytes: decoded as a whole they took 300 MB


def test_a_large_schema_of_too_many_levels_stays_unknown() -> None:
    told = TOO_MUCH % (b'"a":{' * 20_000 + b'"x-mcp-header":0' + b"}" * 20_000)
    assert read_page(told, "t") == {"t": KnownTool()}


def test_a_page_of_many_annotated_schemas_is_read_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    wide: dict[str, Any] = {
        "properties": {f"p{i}": {} for i in range(4000)} | {"z": {"type": "string", "x-mcp-header": "Z"}}
    }
    monkeypatch.setattr(_tools, "MAX_ANNOTATED", 4 * len(json.dumps(wide)))
    tools = [{"name": f"t{i}", "inputSchema": wide} for i in range(100)]
    began = time.thread_time()
    learnt = read_page(page({"name": "plain", "inputSchema": {}}, *tools, {"name": "last", "inputSchema": {}}))
    assert time.thread_time() - began < 1
    assert list(learnt) == ["plain", "t0", "t1", "t2", "t3", "last"]
