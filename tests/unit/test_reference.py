"""What the pages of reference are written from has to say something of everything."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import get_args

import pytest

from host.errors import REGISTRY
from openwop_mcp import errors
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.effects.identity import Keying
from openwop_mcp.nodes import REGISTRY as NODE_TYPES
from tests.support.cli import ROOT
from tests.support.commands_doc import commands
from tests.support.errors_doc import RUNS, kinds, sections
from tests.support.nodes_doc import members
from tests.support.settings_doc import sections as tables

CODE = [file for folder in ("pack", "activities") for file in sorted((ROOT / folder).rglob("*.py"))]


def deliveries(node: ast.AST) -> set[str]:
    """The words of delivery that are named in a piece of code."""
    return {
        Delivery[one.attr].value
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == "Delivery"
    }


def made() -> Iterator[tuple[str, set[str]]]:
    """Where errors are made, or their classes say it themselves: the class, and the deliveries that are named."""
    for file in CODE:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and hasattr(errors, node.name):
                yield node.name, deliveries(node)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and hasattr(errors, node.func.id):
                yield node.func.id, deliveries(node)


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_an_error_says_what_is_known_of_the_request_and_what_to_do(kind):
    told = sections(kind)
    assert told.keys() == {"Delivery", "Again", "To do"}
    assert all(text[-1] in ".?" for text in told.values())


def test_an_error_names_every_delivery_that_it_is_made_with():
    named = {kind.__name__: set(sections(kind)["Delivery"].rstrip(".").split(", ")) for kind in kinds()}
    assert {word for words in named.values() for word in words} == set(Delivery)
    found = [(name, words) for name, words in made() if name in named and words]
    assert len(found) > len(named)
    assert [(name, words) for name, words in found if not words <= named[name]] == []


def test_every_setting_says_what_it_is():
    assert [row.key for _, rows in tables() for row in rows if not (row.write and row.means)] == []


def test_every_command_and_all_that_it_takes_has_help():
    found = commands()
    assert len(found) > 15
    assert [name for name, command in found.items() if not command.help] == []
    assert [(name, one.name) for name, command in found.items() for one in command.params if not one.help] == []


def test_every_member_of_a_node_says_what_it_is():
    models = [model for kind in NODE_TYPES.values() for model in (kind.config, kind.inputs, kind.outputs)]
    rows = [row for model in models for row in members(model)]
    assert len(rows) > 30
    assert [name for name, *_, what in rows if not what] == []


def test_what_ends_a_run_otherwise_is_registered():
    assert set(RUNS) - set(REGISTRY) == {"run_cancelled"}


@pytest.mark.parametrize("keying", get_args(Keying))
def test_what_a_ledger_says_of_keying_is_in_the_pages_that_explain_it(keying: str) -> None:
    for page in ("words.md", "effects.md"):
        assert f"`{keying}`" in (ROOT / "docs" / page).read_text(encoding="utf-8")
