"""docs/catalog.md: what its commands print, and that it describes all that there is."""

from __future__ import annotations

import json

import pytest

from openwop_mcp.catalog import listing
from tests.support.commands_doc import commands
from tests.support.documents import blocks, play, read

DOC = read("docs/catalog.md")
CLEAR = "python worker.py tools classify sample 'get_*' --clear"
CALL = """python worker.py call sample echo --args '{"value": 1}'"""


@pytest.mark.timeout(400)
async def test_every_command_does_what_is_said_of_it(tmp_path):
    [settings] = blocks(DOC, "toml")
    after = {
        CLEAR: "python worker.py tools sample --json 2>/dev/null",
        # Workers take it up in a moment.
        "python worker.py tools approve": f"until {CALL}; do :; done",
    }
    played = await play("docs/catalog.md", tmp_path, settings=settings, after=after)
    look, classify, _, changed = played.shown
    assert "tool          mcp:sample.get_forecast" in look
    assert "classified get_forecast" in classify
    assert "quarantined" in changed
    assert "forbidden" in changed
    assert "Keep what was sent" in changed
    assert "approved echo" in changed
    told = json.loads(next(line for line in classify.splitlines() if line.startswith('{"')))
    held = {one["name"]: (one["safetyTier"], one["replayPolicy"], one["approval"]) for one in told["tools"]}
    assert held["get_forecast"] == ("read", "idempotent", "write")
    assert held["add"] == ("pure", "deterministic", "never")
    assert held["echo"] == ("write", "non-deterministic", "never")


@pytest.mark.parametrize("name", ["list", "show", "diff", "classify", "approve"])
def test_every_command_and_option_of_tools_is_described(name):
    command = commands()[f"tools {name}"]
    assert f"tools {name} " in DOC
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    # What every command has is described where commands are.
    assert {option for option in options - {"--config", "--json"} if option not in DOC} == set()


def test_the_columns_that_are_described_are_those_that_there_are():
    described = DOC.split("| column |")[1].split("\n\n")[0]
    for column in listing.COLUMNS[1:-1]:
        assert f"`{column}`" in described, column
