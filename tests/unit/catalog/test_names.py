"""The ids of tools: unique, and read back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp.catalog.names import catalog_id, node_tool_id, read_tool_id, tool_id, workflow_tool_id
from tests.support.catalog_pages import TEXTS

NAMES = TEXTS | st.text("ab.~2E:", max_size=6)


@given(NAMES, NAMES)
def test_an_id_gives_its_server_and_tool_back(server_id: str, tool: str) -> None:
    identity = tool_id(server_id, tool)
    assert read_tool_id(identity) == (server_id, tool)
    assert identity.isascii()


@given(st.text("amcp:.~2E0é", max_size=12) | TEXTS)
def test_a_text_that_is_read_as_an_id_is_that_id(text: str) -> None:
    for candidate in (text, f"mcp:{text}", f"mcp:a.{text}"):
        read = read_tool_id(candidate)
        assert read is None or tool_id(*read) == candidate


def test_names_that_would_be_one_where_signs_are_replaced_or_cut_stay_apart() -> None:
    long = "x" * 64
    names = ["a.b", "a_b", "a-b", "a b", "a/b", "A.b", f"{long}{'y' * 16}", f"{long}{'z' * 16}"]
    assert len({tool_id("s", name) for name in names}) == len(names)
    assert tool_id("a.b", "c") != tool_id("a", "b.c")


@pytest.mark.parametrize(
    ("server_id", "tool", "identity"),
    [
        ("weather", "get_forecast", "mcp:weather.get_forecast"),
        ("my.server", "a.b", "mcp:my~2Eserver.a.b"),
        ("s", "größe ~", "mcp:s.gr~C3~B6~C3~9Fe~20~7E"),
        ("s", "\ud800", "mcp:s.~ED~A0~80"),
    ],
)
def test_what_an_id_looks_like(server_id: str, tool: str, identity: str) -> None:
    assert tool_id(server_id, tool) == identity


@pytest.mark.parametrize(
    "text", ["", "mcp:s", "mcp:s.a~2e", "mcp:s.a~41", "mcp:s.a~", "mcp:s.~FF", "s.a", "openwop:s.a", "mcp:s.é"]
)
def test_a_text_that_no_tool_has_as_its_id_is_refused(text: str) -> None:
    assert read_tool_id(text) is None


def test_other_ids_have_other_beginnings() -> None:
    assert node_tool_id("core.noop") == "openwop:core.noop"
    assert workflow_tool_id("a:b") == "workflow:a~3Ab"
    assert catalog_id("acme", "weather") == "catalog:acme/weather"
