"""Metrics tell so many tools of a server apart, however many names callers make up."""

from __future__ import annotations

from openwop_mcp.telemetry._tools import MOST, ToolNames


def test_the_first_names_of_each_server_are_told_apart_and_all_others_are_one() -> None:
    names = ToolNames()
    first = [names.bounded("a", f"tool-{number}") for number in range(MOST)]
    assert len(set(first)) == MOST
    assert names.bounded("a", "one-more") == "_OTHER"
    assert names.bounded("a", "tool-0") == "tool-0"
    assert names.bounded("b", "one-more") == "one-more"
