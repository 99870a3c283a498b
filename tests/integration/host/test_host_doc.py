"""docs/host.md: its settings, and every command that it shows, in the order in which it shows them."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from host.errors import REGISTRY
from openwop_mcp.config import SCOPES
from tests.integration.test_readme import BLOCK, NAMED, free_port, shell
from tests.support.cli import ROOT, serving

DOC = (ROOT / "docs" / "host.md").read_text(encoding="utf-8")
KEY = "k" * 32
STARTS = "python worker.py dev"


@pytest.fixture(scope="module")
def commands() -> list[str]:
    return [found["text"] for found in BLOCK.finditer(DOC) if found["language"] == "sh"]


async def test_every_command_does_what_is_said_of_it(commands, tmp_path):
    port = free_port()
    [named] = NAMED.finditer(DOC)
    config = tmp_path / named["name"]
    config.write_text(named["text"].replace("8080", port), encoding="utf-8")
    first, *others = commands
    assert STARTS in first
    assert "OPENWOP_KEY" in first
    env = {"OPENWOP_KEY": KEY, "OPENWOP_MCP__HOST__BIND": f"127.0.0.1:{port}"}
    async with serving("dev", "--config", str(config), **env):
        script = "\n".join(others).replace("8080", port)
        # What `source .venv/bin/activate` does.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        shown = await shell(script, tmp_path, {**env, "PATH": path})
    # The definition of a workflow is shown as its file has it, over several lines.
    answers = [json.loads(line) for line in shown.splitlines() if line.startswith("{") and line.endswith("}")]
    created = [one for one in answers if "eventsUrl" in one]
    assert len({one["runId"] for one in created}) == 3
    assert created[2] == created[3]
    assert {one.get("status") for one in answers} >= {"pending", "running", "paused", "cancelling"}
    for event in ("run.started", "run.paused", "run.resumed", "run.completed"):
        assert f"event: {event}\n" in shown
    assert any("protocolVersions" in one for one in answers)
    assert any("openapi" in one for one in answers)
    assert any(one["effects"] == [] for one in answers if "effects" in one)
    [verdicts] = [one["results"] for one in answers if "results" in one]
    assert [verdict["ok"] for verdict in verdicts] == [False]
    all_tools, workflows = [json.loads(line) for line in shown.splitlines() if line.startswith("[") and line[-1] == "]"]
    assert {tool["source"] for tool in all_tools} == {"node-pack", "workflow"}
    assert {tool["source"] for tool in workflows} == {"workflow"}
    [compact] = [one["tools"] for one in answers if "tools" in one]
    assert {tool["source"] for tool in compact} == {"node-pack"}
    assert {member for tool in compact for member in tool["inputSchema"]} == {"type", "properties"}
    assert [one["title"] for one in answers if one.get("toolId") == "openwop:core.delay"] == ["Wait"]


def test_the_codes_that_are_described_are_registered_at_their_status():
    rows = re.findall(r"^\| ([0-9, ]+) \| (.*?) \|", DOC, re.MULTILINE)
    told = {code: statuses for statuses, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    assert len(told) > 15
    assert {code: str(REGISTRY[code].status) in statuses for code, statuses in told.items()} == dict.fromkeys(
        told, True
    )


def test_the_scopes_that_are_described_are_those_of_the_settings():
    assert set(re.findall(r"^\| `(\w+:\w+)` \|", DOC, re.MULTILINE)) <= set(SCOPES)
