"""docs/host.md: what its commands print, and that it describes the codes and scopes that there are."""

from __future__ import annotations

import json
import re

import pytest

from host import codec
from host.errors import REGISTRY
from openwop_mcp.config import SCOPES
from tests.support.documents import play, read

DOC = read("docs/host.md")


@pytest.mark.timeout(400)
async def test_every_command_does_what_is_said_of_it(tmp_path):
    shown = (await play("docs/host.md", tmp_path)).text
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
    asked_for = set(re.findall(r"^\| `(\w+:\w+)` \|", DOC, re.MULTILINE))
    [others] = re.findall(r"OpenWOP's other scopes \((.*?)\)", DOC)
    unasked = set(re.findall(r"`(\w+:\w+)`", others))
    assert codec.SCOPE in asked_for
    assert not asked_for & unasked
    assert asked_for | unasked == set(SCOPES)
