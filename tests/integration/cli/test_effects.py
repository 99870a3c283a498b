"""`worker.py effects` and `worker.py interrupts`: the ledger of a run, and what a person is asked about a doubt."""

from __future__ import annotations

import asyncio
import json
import re
import shlex

from tests.support.cli import ROOT
from tests.support.patience import PATIENCE

COMMANDS = re.findall(
    r"^python worker\.py (.*)$", (ROOT / "docs" / "effects.md").read_text(encoding="utf-8"), re.MULTILINE
)
"""The commands that the document shows, with RUN and INTERRUPT in them."""


def shown(beginning: str, **names: str) -> list[str]:
    """A command as the document shows it, with names filled in."""
    (command,) = (command for command in COMMANDS if command.startswith(beginning))
    return [names.get(word.removeprefix("$"), word) for word in shlex.split(command)]


async def open_questions(dev, run: str) -> list[dict]:
    while True:
        done = await dev.cli(*shown("interrupts list RUN", RUN=run), "--json")
        assert done.status == 0
        if done.json:
            return done.json


async def start(dev, tmp_path) -> str:
    """A run of one call that ends in doubt."""
    call = {
        "id": "a", "typeId": "community.mcp.call-tool", "name": "A", "position": {"x": 0, "y": 0},
        "config": {"serverId": "fake", "name": "doubtful"}, "inputs": {},
    }  # fmt: skip
    definition = {
        "id": "doubtful", "name": "Doubtful", "version": "1", "nodes": [call], "edges": [], "variables": [],
        "triggers": [{"id": "manual", "type": "manual", "enabled": True}], "metadata": {}, "settings": {},
    }  # fmt: skip
    (tmp_path / "doubtful.json").write_text(json.dumps(definition), encoding="utf-8")
    done = await dev.cli("runs", "start", str(tmp_path / "doubtful.json"))
    assert done.status == 0, done.err
    return done.text.strip()


async def test_a_doubt_is_shown_answered_and_told_in_the_ledger(dev, tmp_path):
    run = await start(dev, tmp_path)
    (asked,) = await open_questions(dev, run)
    assert asked["nodeId"] == "a"
    assert asked["interrupt"]["kind"] == "approval"
    assert "the effect may have happened" in asked["interrupt"]["data"]["description"]
    assert asked["runId"] == run
    prose = await dev.cli("interrupts", "list", run)
    assert asked["interruptId"] in prose.text
    async with asyncio.timeout(PATIENCE):
        # Lists lag.
        while run not in (await dev.cli("interrupts", "list")).text:
            pass
    status = await dev.cli("runs", "show", run, "--json")
    assert status.json["status"] == "waiting-approval"
    assert [call["outcome"] for call in status.json["calls"]] == ["suspended"]

    ledger = await dev.cli(*shown("effects", RUN=run), "--json")
    assert ledger.json["runId"] == run
    (row,) = ledger.json["effects"]
    assert re.fullmatch(r"acme/[A-Za-z0-9_-]{43}", row["effectId"])
    assert row["providerKey"] == row["effectId"].removeprefix("acme/")
    facts = {key: row[key] for key in ("nodeId", "attempt", "keying", "state")}
    assert facts == {"nodeId": "a", "attempt": 1, "keying": "activity-recipe", "state": "escaped"}
    assert row["effectId"] in (await dev.cli("effects", run)).text

    wrong = await dev.cli("interrupts", "answer", run, asked["interruptId"], '{"action": "maybe"}')
    unknown = await dev.cli("interrupts", "answer", run, "acme/none", '{"action": "reject"}', "--json")
    assert (wrong.status, unknown.status) == (1, 1)
    assert "accept, edit-accept, reject" in wrong.err
    assert unknown.json["error"]["code"] == "not_found"

    done = '{"action": "edit-accept", "editedArtifactData": {"content": [], "n": 1.10}}'
    answered = await dev.cli("interrupts", "answer", run, asked["interruptId"], done)
    assert answered.status == 0, answered.err
    log = await dev.cli("runs", "events", run, "--json")
    while log.json[-1]["type"] != "run.completed":
        log = await dev.cli("runs", "events", run, "--json")
    assert b'"outputs":{"a":{"result":{"content": [], "n": 1.10}}}' in log.out
    ledger = await dev.cli("effects", run, "--json")
    assert [row["state"] for row in ledger.json["effects"]] == ["escaped", "completed"]
    again = await dev.cli("interrupts", "answer", run, asked["interruptId"], done, "--json")
    assert again.status == 1


async def test_an_answer_as_the_document_shows_it_sends_again(dev, tmp_path):
    run = await start(dev, tmp_path)
    (asked,) = await open_questions(dev, run)
    answered = await dev.cli(*shown("interrupts answer", RUN=run, INTERRUPT=asked["interruptId"]))
    assert answered.status == 0, answered.err
    # The server says the same again, so that the question comes again, as another one.
    while (now := await open_questions(dev, run))[0]["interruptId"] == asked["interruptId"]:
        pass
    await dev.cli("interrupts", "answer", run, now[0]["interruptId"], '{"action": "reject"}')
    ledger = await dev.cli("effects", run, "--json")
    assert [row["state"] for row in ledger.json["effects"]][:2] == ["escaped", "escaped"]
