"""What the README and the documents show is what happens: every command is run, every snippet is used."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import signal
import socket
import sys
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from openwop_mcp.config import Settings
from openwop_mcp.errors import McpError
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import parse
from tests.support import effects_doc, settings_doc
from tests.support.cli import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [README, *(file.read_text(encoding="utf-8") for file in sorted((ROOT / "docs").glob("*.md")))]

BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"[Ww]rite this\s+to `(?P<name>[^`]+)`:\n\n```\w+\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
SERVING = ("python examples/sample_server.py", "python worker.py dev")
PORTS = ("7801", "7233", "8080")
"""The ports that the README names. Here each is replaced by a free one."""

KEY = "k" * 24

LIMIT = 60.0


def blocks(text: str, language: str) -> list[str]:
    return [found["text"] for found in BLOCK.finditer(text) if found["language"] == language]


def commands() -> list[str]:
    """The README's commands, without their comments."""
    lines = [line for block in blocks(README, "sh") for line in block.splitlines()]
    return [re.sub(r"\s+# .*$", "", line) for line in lines]


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


@pytest.fixture(scope="module")
async def checkout(tmp_path_factory) -> AsyncIterator[tuple[Path, dict[str, str], dict[str, str]]]:
    """A folder that looks like a checkout, with the README's files in it and what it says to start running."""
    folder = tmp_path_factory.mktemp("readme")
    for name in ("worker.py", "examples"):
        (folder / name).symlink_to(ROOT / name)
    ports = {port: free_port() for port in PORTS}
    for found in NAMED.finditer(README):
        file = folder / found["name"]
        file.parent.mkdir(exist_ok=True)
        file.write_text(replaced(found["text"], ports), encoding="utf-8")
    env = {
        **os.environ,
        # What `source .venv/bin/activate` does.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        # The default address, which the README has no need to name.
        "OPENWOP_MCP__TEMPORAL__ADDRESS": f"127.0.0.1:{ports['7233']}",
        "OPENWOP_MCP__HOST__BIND": f"127.0.0.1:{ports['8080']}",
        # What `dev` would otherwise make and print.
        "KEY": KEY,
        "OPENWOP_MCP__KEYS": '[{"id":"dev","secret":{"env":"KEY"},"tenant":"default","subject":"dev","scopes":["*"]}]',
    }
    served = [replaced(command, ports) for command in commands() if command.startswith(SERVING)]
    processes = []
    try:
        for command in served:
            process = await asyncio.create_subprocess_exec(
                *command.split(), cwd=folder, env=env, stdout=asyncio.subprocess.PIPE
            )
            processes.append(process)
            assert process.stdout is not None
            async with asyncio.timeout(LIMIT):
                assert json.loads(await process.stdout.readline())
        assert len(processes) == len(SERVING)
        yield folder, env, ports
    finally:
        for process in reversed(processes):
            process.terminate()
            await process.wait()


def replaced(text: str, ports: dict[str, str]) -> str:
    for shown, used in ports.items():
        text = text.replace(shown, used)
    return text


async def shell(script: str, folder: Path, env: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-eu", "-c", script, cwd=folder, env=env, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    try:
        async with asyncio.timeout(LIMIT):
            out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, out.decode()
    return out.decode()


async def test_the_commands_do_what_the_readme_says(checkout):
    folder, env, ports = checkout
    run = [line for line in commands() if not line.startswith((*SERVING, "make ", "source "))]
    shown = await shell(replaced("\n".join(run), ports), folder, env)
    assert "sample is reachable" in shown
    assert "get_forecast" in shown
    assert shown.count("sample tools/call get_forecast, MCP 2026-07-28") == 3
    assert "run.completed" in shown
    assert "1 result is byte for byte what arrived" in shown
    assert '"eventsUrl":"/runs/default~2F' in shown
    assert '"workflowId":"forecast"' in shown
    # The workflow in Python printed the forecast, and not its failure.
    assert "no forecast" not in shown
    assert (folder / "run.json").exists()


async def test_the_test_that_is_shown_passes(checkout):
    folder, env, _ = checkout
    shown = await shell("python -m pytest -p no:cacheprovider test_trip.py", folder, env)
    assert "1 passed" in shown


async def test_the_worker_that_is_shown_embeds_the_pack(checkout):
    folder, env, ports = checkout
    # In the wheel the activities are part of the library; a checkout has them beside it.
    embedded = (folder / "embedded.py").read_text(encoding="utf-8").replace("openwop_mcp.activities", "activities")
    (folder / "embedded.py").write_text(embedded, encoding="utf-8")
    (folder / "use_it.py").write_text(
        "import asyncio, os\nfrom temporalio.client import Client\nfrom embedded import worker\n"
        "async def main():\n"
        f"    client = await Client.connect('127.0.0.1:{ports['7233']}')\n"
        "    async with worker(client):\n"
        "        print(await client.execute_workflow('Trip', 'Bern', id='trip-2', task_queue='trips'), flush=True)\n"
        "asyncio.run(main())\nos._exit(0)\n",
        encoding="utf-8",
    )
    shown = await shell("python use_it.py", folder, {**env, "PYTHONPATH": str(ROOT)})
    assert "Bern" in shown


def test_every_target_that_is_shown_is_in_the_makefile():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"make (\w+)", "".join(DOCUMENTS)))
    assert {"demo", "test", "check", "bench", "setup"} <= targets
    assert all(f"\n{target}:" in makefile for target in targets)


async def test_the_demo_ends_as_it_should(checkout):
    folder, env, _ = checkout
    assert "\n\t$(BIN)/python worker.py demo\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    shown = await shell("python worker.py demo", folder, env)
    assert shown.count("recorded bytes equal what the server says it sent") == 3
    assert "SIGKILL" in shown


@pytest.mark.parametrize("text", [text for document in DOCUMENTS for text in blocks(document, "toml")])
def test_settings_that_are_shown_load(text):
    Settings.model_validate(tomllib.loads(text))


@pytest.mark.parametrize(
    "text", [text for document in DOCUMENTS for text in blocks(document, "json") if '"nodes"' in text]
)
def test_graphs_that_are_shown_are_sound(text):
    parse(text.encode(), source="shown", node_types=REGISTRY)


@pytest.mark.parametrize("text", [text for document in DOCUMENTS[1:] for text in blocks(document, "python")])
def test_python_that_is_shown_beside_the_readme_can_be_imported(tmp_path, monkeypatch, text):
    (tmp_path / "shown.py").write_text(text.replace("openwop_mcp.activities", "activities"), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shown", raising=False)
    assert importlib.import_module("shown")


def test_the_node_types_that_are_described_are_those_that_there_are():
    authoring = (ROOT / "docs" / "authoring.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `((?:core|community)\.[^`]+)`", authoring, re.MULTILINE)) == set(REGISTRY)


def test_the_settings_that_are_described_are_those_that_there_are():
    text = settings_doc.DOC.read_text(encoding="utf-8")
    assert settings_doc.renewed(text) == text, "run `python -m tests.support.settings_doc`"


def test_the_codes_that_are_described_are_those_that_calls_fail_with():
    [paragraph] = [text for text in README.split("\n\n") if text.startswith("Codes: ")]
    kinds = [McpError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    codes = {kind.code for kind in kinds} | {"approval_rejected", "interrupt_expired"}
    assert set(re.findall(r"`(\w+)`", paragraph)) == codes


def test_every_link_between_the_documents_leads_somewhere():
    for file in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for link in re.findall(r"\]\((?!https?:)([^)]+)\)", file.read_text(encoding="utf-8")):
            path, _, anchor = link.partition("#")
            target = file.parent / path if path else file
            assert target.exists(), (file.name, link)
            assert not anchor or anchor in anchors(target), (file.name, link)


def anchors(file: Path) -> set[str]:
    """What links to the headings of a document end with."""
    headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


def test_the_retry_table_that_is_described_is_the_one_that_decides():
    text = effects_doc.DOC.read_text(encoding="utf-8")
    assert effects_doc.renewed(text) == text, "run `python -m tests.support.effects_doc`"
