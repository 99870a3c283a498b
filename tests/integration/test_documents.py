"""Every block of every page is run, or read by what would read it; what programs write is as they would write it."""

from __future__ import annotations

import importlib
import json
import re
import sys

import pytest

from openwop_mcp.config import load
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import parse
from tests.support.cli import ROOT
from tests.support.documents import PAGES, Block, of, play, read
from tests.support.reference_doc import PAGES as WRITTEN

OWN = {
    "README.md": "tests/integration/test_readme.py",
    "docs/audit.md": "tests/integration/test_audit_doc.py",
    "docs/catalog.md": "tests/integration/test_catalog_doc.py",
    "docs/deploy.md": "tests/integration/test_deploy_doc.py",
    "docs/encryption.md": "tests/integration/test_encryption_doc.py",
    "docs/host.md": "tests/integration/host/test_host_doc.py",
    "docs/interrupts.md": "tests/integration/test_interrupts_doc.py",
    "docs/python.md": "tests/integration/test_python_doc.py",
    "docs/upgrading.md": "tests/integration/test_upgrading_doc.py",
}
"""Pages whose commands a test of their own runs, which also looks at what they print. All others are played here."""

NOT_RUN = {
    "docs/telemetry.md": {"POST /runs": "tests/integration/telemetry/test_traces.py makes that very tree"},
    "docs/effects.md": {
        "python worker.py interrupts list\n": "tests/integration/cli/test_effects.py does, with names in it",
    },
}
"""Blocks that are neither commands to play nor something to read, by how they begin, and why no test runs them."""

BLOCKS = [block for page in PAGES for block in of(page)]
READ = {"toml", "json", "python"}


def those(language: str) -> list[Block]:
    return [block for block in BLOCKS if block.language == language]


def commanding() -> list[str]:
    return [page for page in dict.fromkeys(block.page for block in those("sh")) if page not in OWN]


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language not in READ | {"sh"}], ids=str)
def test_a_block_that_nothing_runs_or_reads_is_one_of_few(block):
    listed = [reason for begins, reason in NOT_RUN.get(block.page, {}).items() if block.text.startswith(begins)]
    assert listed or block.page in OWN, "make it a block of sh, toml, json or python, or say here why nothing runs it"


@pytest.mark.parametrize(("page", "test"), OWN.items())
def test_a_page_with_a_test_of_its_own_is_run_by_it(page, test):
    text = (ROOT / test).read_text(encoding="utf-8")
    # Either as a whole, or block by block where they are taken apart into as many names as there are.
    apart = rf'read\("{page}"\)(.|\n)*(\[\w+\]|\w+, \w+) = .*blocks\(DOC, "sh"\)'
    assert f'play("{page}"' in text or re.search(apart, text)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", commanding())
async def test_the_commands_of_a_page_do_what_it_says(page, tmp_path):
    await play(page, tmp_path)


@pytest.mark.parametrize("block", those("toml"), ids=str)
def test_settings_that_are_shown_load(block, tmp_path):
    file = tmp_path / "openwop-mcp.toml"
    file.write_text(block.text, encoding="utf-8")
    load(str(file), environ={}, secrets=False)


@pytest.mark.parametrize("block", those("json"), ids=str)
def test_json_that_is_shown_is_json_and_graphs_are_sound(block):
    if '"nodes"' in block.text:
        parse(block.text.encode(), source="shown", node_types=REGISTRY)
    else:
        json.loads(block.text)


@pytest.mark.parametrize("block", [block for block in those("python") if block.file is None], ids=str)
def test_python_that_is_shown_can_be_imported(tmp_path, monkeypatch, block):
    # In the wheel the activities are part of the library; a checkout has them beside it.
    (tmp_path / "shown.py").write_text(block.text.replace("openwop_mcp.activities", "activities"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shown", raising=False)
    assert importlib.import_module("shown")


@pytest.mark.parametrize("file", WRITTEN, ids=lambda file: file.stem)
def test_a_page_that_programs_write_is_as_they_would_write_it_now(file):
    assert file.read_text(encoding="utf-8") == WRITTEN[file](), "run `make reference`"


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page):
    for link in re.findall(
        r"\]\((?!https?:)([^)]+)\)", re.sub(r"^```.*?^```$", "", read(page), flags=re.MULTILINE | re.DOTALL)
    ):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), link


def anchors(text: str) -> set[str]:
    """What links to the headings of a page end with."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_every_page_is_named_by_the_index():
    index = read("docs/README.md")
    pages = {page.removeprefix("docs/") for page in PAGES if page.startswith("docs/")} - {"README.md"}
    assert {page for page in pages if f"({page}" not in index} == set()


def test_every_target_that_is_shown_is_in_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    told = {target for page in PAGES for target in re.findall(r"(?:^|`)make (\w+)", read(page), re.MULTILINE)}
    assert {"demo", "test", "check", "bench", "setup", "reference"} <= told
    assert {target for target in told if f"\n{target}:" not in makefile} == set()


def test_the_node_types_that_are_described_are_those_that_there_are():
    described = re.findall(r"^\| `((?:core|community)\.[^`]+)`", read("docs/authoring.md"), re.MULTILINE)
    assert set(described) == set(REGISTRY)
