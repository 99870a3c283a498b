"""docs/encryption.md: its commands do what it says, and its table names what there is to read."""

from __future__ import annotations

import base64
import json
import re
import stat
import subprocess

import pytest

from tests.support.cli import ROOT
from tests.support.documents import PAGES, Played, of, play, read

DOC = read("docs/encryption.md")


@pytest.fixture(scope="module")
async def played(tmp_path_factory) -> Played:
    return await play("docs/encryption.md", tmp_path_factory.mktemp("encryption"))


def said(text: str) -> bytes:
    """All that a history says, with what stands in it as base64."""
    parts = [text.encode()]

    def walk(value: object) -> None:
        match value:
            case str():
                try:
                    parts.append(base64.b64decode(value, validate=True))
                except ValueError:
                    return
            case dict():
                for one in value.values():
                    walk(one)
            case list():
                for one in value:
                    walk(one)

    walk(json.loads(text))
    return b"\n".join(parts)


@pytest.mark.timeout(400)
async def test_the_commands_do_what_the_page_says(played):
    def shown(name: str) -> bytes:
        return said((played.folder / name).read_text(encoding="utf-8"))

    assert "sample tools/call get_forecast" in played.text
    assert b"Bern" not in shown("sealed.json") + shown("sealed-run.json")
    assert b"Bern" in shown("opened.json")
    assert b"Bern" in shown("open-run.json")
    encrypted, opened = re.findall(r"^\d+$", played.text, re.MULTILINE)
    assert int(encrypted) > 0
    assert int(opened) == 0
    assert stat.S_IMODE((played.folder / "encryption.key").stat().st_mode) == 0o600
    assert played.text.count("1 result is byte for byte what arrived") == 2


def test_what_the_pages_have_people_write_into_a_checkout_is_ignored_by_git():
    written = ["encryption.key", "run.json", "run-2.json", "table.py"]
    written += sorted({block.file for page in PAGES for block in of(page) if block.file is not None})
    told = subprocess.run(["git", "check-ignore", *written], cwd=ROOT, capture_output=True, text=True, check=False)
    assert told.stdout.split() == written
    kept = subprocess.run(
        ["git", "check-ignore", "worker.py", "deploy/openwop-mcp.toml", "deploy/flows/forecast.json", "examples/flows"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert kept.stdout == ""


def test_what_history_holds_that_is_not_encrypted_is_in_the_table():
    readable = " ".join(line for line in DOC.splitlines() if line.startswith("|") and "**yes**" in line)
    for word in (
        "ids of runs",
        "types of workflows and activities",
        "task queues",
        "ids of keys",
        "identities of workers",
    ):
        assert word in readable
