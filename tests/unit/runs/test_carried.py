"""What a log takes over from the run that a run continues."""

from __future__ import annotations

import dataclasses

from openwop_mcp.runs import definition as definitions
from openwop_mcp.runs.machine import RunMachine
from tests.support.graphs import node, start, workflow


def made(given, carried=None) -> RunMachine:
    return RunMachine(given, b"{}", emit=lambda *_: None, carried=carried)


def test_a_run_that_goes_on_in_another_history_has_its_definition_read_once(monkeypatch):
    given = start(workflow([node("a", "core.noop")]))
    first = made(given)

    def read_again(*_, **__):
        raise AssertionError("the definition is read again")

    monkeypatch.setattr(definitions, "parse", read_again)
    # A history of its own, with bytes of its own.
    again = dataclasses.replace(given, definition=bytes(bytearray(given.definition)))
    assert made(again, first.carried).carried.definition is first.carried.definition


def test_another_definition_is_read():
    first = made(start(workflow([node("a", "core.noop")])))
    second = made(start(workflow([node("b", "core.noop")])), first.carried)
    assert second.carried.definition is not None
    assert [one.id for one in second.carried.definition.nodes] == ["b"]
    assert first.carried.definition is not second.carried.definition


def test_a_definition_that_cannot_be_run_is_refused_in_each_history_of_its_run():
    broken = start(b'{"nodes": []}')
    first = made(broken)
    second = made(broken, first.carried)
    assert first.carried.definition is second.carried.definition is None
    assert second._refusal == first._refusal is not None
