"""docs/audit.md: its commands show what it says, and its own reader of histories takes whatever is exported."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import cli
from tests.support.documents import Played, play, read


@pytest.fixture(scope="module")
async def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return await play("docs/audit.md", tmp_path_factory.mktemp("audit"))


def look(folder: Path, file: str) -> subprocess.CompletedProcess[str]:
    """What the page's `look.py` says of a file."""
    return subprocess.run([sys.executable, "look.py", file], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.timeout(400)
async def test_every_command_does_what_the_page_says(played: Played) -> None:
    *_, decided, checked = played.shown
    assert "looked at the code" in decided
    assert '"safetyTier":"read"' in decided.replace(" ", "")
    intact, changed, replayed, shown = (checked.find(word) for word in ("intact", "changed", "found", "CHANGED"))
    assert -1 < intact < changed < replayed < shown


@pytest.mark.timeout(400)
async def test_its_reader_passes_over_what_is_no_answer_and_says_what_it_cannot_read(played: Played) -> None:
    catalog = look(played.folder, "catalog.json")
    assert (catalog.returncode, catalog.stderr) == (0, "")
    run = json.loads((played.folder / "run.json").read_text(encoding="utf-8"))
    [answered] = [
        event["activityTaskCompletedEventAttributes"]["result"]["payloads"][0]
        for event in run["events"]
        if "activityTaskCompletedEventAttributes" in event
    ]
    answered["metadata"] = {"encoding": base64.b64encode(b"binary/encrypted").decode()}
    (played.folder / "sealed.json").write_text(json.dumps(run), encoding="utf-8")
    sealed = look(played.folder, "sealed.json")
    assert (sealed.returncode, "--decode" in sealed.stderr) == (1, True)


@pytest.mark.timeout(400)
async def test_arguments_that_were_changed_pass_as_the_page_says(played: Played) -> None:
    """A gap that the page has to name for as long as it is there."""
    run = json.loads((played.folder / "run.json").read_text(encoding="utf-8"))
    inputs = [
        payload
        for event in run["events"]
        if "activityTaskScheduledEventAttributes" in event
        for payload in event["activityTaskScheduledEventAttributes"]["input"]["payloads"]
    ]
    changed = 0
    for payload in inputs:
        data = base64.b64decode(payload["data"])
        changed += data.count(b"Bern")
        payload["data"] = base64.b64encode(data.replace(b"Bern", b"Rome")).decode()
    assert changed > 0
    other = played.folder / "other-arguments.json"
    other.write_text(json.dumps(run), encoding="utf-8")
    replayed = await cli("replay", str(other), "--json")
    assert [verdict["sound"] for verdict in replayed.json] == [True]
    [row] = [line for line in read("docs/audit.md").splitlines() if line.startswith("| What was asked")]
    assert "not hashed, and `replay` does not compare them" in row
