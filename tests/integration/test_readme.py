"""What the README shows is what happens: every command is run, every snippet is used."""

from __future__ import annotations

import pytest

from tests.support.cli import ROOT
from tests.support.documents import Played, play, shell


@pytest.fixture(scope="module")
async def played(tmp_path_factory) -> Played:
    return await play("README.md", tmp_path_factory.mktemp("readme"))


@pytest.mark.timeout(400)
async def test_the_commands_do_what_the_readme_says(played):
    shown = played.text
    assert "sample is reachable" in shown
    assert "get_forecast" in shown
    assert shown.count("sample tools/call get_forecast, MCP 2026-07-28") == 3
    assert "run.completed" in shown
    assert "1 result is byte for byte what arrived" in shown
    assert '"eventsUrl":"/runs/default~2F' in shown
    assert '"workflowId":"forecast"' in shown
    # The workflow in Python printed the forecast, and not its failure.
    assert "no forecast" not in shown
    assert (played.folder / "run.json").exists()


@pytest.mark.timeout(400)
async def test_the_demo_ends_as_it_should(played):
    assert "\n\t$(BIN)/python worker.py demo\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = await shell("python worker.py demo", played.folder, played.env)
    assert shown.count("recorded bytes equal what the server says it sent") == 3
    assert "SIGKILL" in shown
    # What its workers log is not in the middle of it.
    assert '"logger"' not in shown
