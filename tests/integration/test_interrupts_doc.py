"""docs/interrupts.md: every command that it shows, what it shows of a terminal, its settings, graph and workflow."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cli import ROOT, Done, cli, on_terminal, python, serving
from tests.support.commands_doc import commands
from tests.support.documents import blocks, of, read, sample_server, shell
from tests.support.patience import PATIENCE
from tests.support.ports import free_port

DOC = read("docs/interrupts.md")
WAIT = 'until python worker.py interrupts show "$RUN" {node} >/dev/null 2>&1; do :; done\n'
"""What a reader does by looking again: a run asks a moment after it was started, or answered."""


@dataclass
class Shown:
    """What the document has a reader start, running, and where."""

    folder: Path
    ports: dict[str, str]
    env: dict[str, str]

    async def cli(self, *arguments: str) -> Done:
        return await cli(*arguments, cwd=self.folder, **self.env)

    def replaced(self, text: str) -> str:
        for port, free in self.ports.items():
            text = text.replace(port, free)
        return text


@pytest.fixture(scope="module")
async def shown(tmp_path_factory) -> AsyncIterator[Shown]:
    folder = tmp_path_factory.mktemp("interrupts")
    here = Shown(folder, {port: str(free_port()) for port in ("7233", "7801", "8080")}, {"OPENWOP_KEY": "k" * 32})
    files = {block.file: here.replaced(block.text) for block in of("docs/interrupts.md") if block.file is not None}
    assert set(files) == {"openwop-mcp.toml", "table.json", "dinner.py"}
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "worker.py").symlink_to(ROOT / "worker.py")
    bind = {"OPENWOP_MCP__HOST__BIND": f"127.0.0.1:{here.ports['8080']}"}
    config = str(folder / "openwop-mcp.toml")
    dev = ("dev", "--config", config, "--port", here.ports["7233"])
    async with sample_server(here.ports["7801"]), serving(*dev, **here.env, **bind):
        here.env |= {
            # What `source .venv/bin/activate` does.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OPENWOP_MCP__TEMPORAL__ADDRESS": f"127.0.0.1:{here.ports['7233']}",
        }
        yield here


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a command that waits for answers as long as those need who look for its questions."""
    monkeypatch.setattr("tests.support.cli.LIMIT", 4 * PATIENCE)


async def waiting(shown: Shown, run: str, kind: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            found = (await shown.cli("interrupts", "list", run, "--json")).json
            # A workflow that is only being started is answered with an error.
            if isinstance(found, list) and any(one["interrupt"]["kind"] == kind for one in found):
                return


def started(block: str) -> str:
    """A block that starts a run, with the look that somebody takes before they go on."""
    first, rest = block.split("\n", 1)
    assert first.startswith("RUN=$(python worker.py runs start table.json)")
    return f"{first}\n{WAIT.format(node='book')}{rest}"


@pytest.mark.timeout(400)
async def test_every_command_does_what_is_said_of_it(shown):
    start, answer, by_key, by_link, cancel = blocks(DOC, "sh")
    script = [
        started(start),
        started(answer),
        WAIT.format(node="fine") + by_key,
        'while python worker.py runs show "$RUN" | grep -q waiting-; do :; done; python worker.py runs show "$RUN"\n',
        'python worker.py runs events "$RUN"\n',
        started(by_link),
        WAIT.format(node="fine") + cancel,
        'while python worker.py runs show "$RUN" | grep -q waiting-; do :; done; python worker.py runs show "$RUN"\n',
    ]
    told = await shell(shown.replaced("\n".join(script)), shown.folder, shown.env)
    assert "clarification, asked " in told
    assert "expires in 23 h" in told
    assert "| When do you want a table at Kronenhalle?" in told
    assert "attempts 1, answered 1 question" in told
    assert "approval accept by dev" in told
    assert f"clarification by {getpass.getuser()}" in told
    lines = told.splitlines()
    answers = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    answered, listed, by_rest, asked, by_token = answers
    assert set(answered) == {"runId", "interruptId"}
    assert {one["currentNodeId"] for one in listed["runs"]} == {"fine"}
    assert by_rest["nodeId"] == "fine"
    assert asked["kind"] == "clarification"
    assert by_token["nodeId"] == "book"
    assert [line.split(": ")[1] for line in lines if re.match(r"acme/\w+: c", line)] == ["completed", "cancelled"]


async def test_a_terminal_shows_what_is_shown_of_it(shown):
    run = (await shown.cli("runs", "start", "table.json")).text.strip()
    await waiting(shown, run, "clarification")
    [transcript] = blocks(DOC, "text")
    said, lines = [], []
    for line in transcript.rstrip("\n").replace("acme/…", run).split("\n"):
        typed = re.fullmatch(r"(accept, decline or cancel\? |send it.*\? |  \w+(?: \[\w+\])?: )(\S+)", line)
        if typed:
            # With the line before it, as the description of a value begins like the prompt that asks for it.
            said.append((f"{lines[-1]}\r\n{typed[1]}", f"{typed[2]}\n"))
        lines.append(line)
    assert len(said) == 5
    status, seen = await on_terminal("interrupts", "answer", run, said=said, cwd=shown.folder, **shown.env)
    assert status == 0, seen
    assert "\n".join(lines) in seen.decode().replace("\r\n", "\n")
    await waiting(shown, run, "approval")


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("patient")
async def test_the_workflow_that_is_shown_asks_and_is_answered(shown):
    shown_commands = re.findall(r"^python (.*dinner.*)$", DOC, re.MULTILINE)
    assert shown_commands == ["dinner.py", *["worker.py interrupts answer dinner-1"] * 2]
    dinner = asyncio.create_task(python("dinner.py", cwd=shown.folder, **shown.env))
    await waiting(shown, "dinner-1", "clarification")
    given = '{"__main__:ask_for_booking": {"action": "accept", "content": {"day": "2026-12-31"}}}'
    assert (await shown.cli("interrupts", "answer", "dinner-1", given)).status == 0
    await waiting(shown, "dinner-1", "approval")
    assert (await shown.cli("interrupts", "answer", "dinner-1", '{"action": "reject"}')).status == 0
    done = await dinner
    assert done.text == "declined\n", done.err


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("patient")
async def test_the_workflow_beside_it_is_started_likewise(shown):
    [table] = [text for text in blocks(read("docs/python.md"), "python") if "class Table" in text]
    head, main = (shown.folder / "dinner.py").read_text(encoding="utf-8").split("async def main")
    imports = "\n".join(line for line in head.splitlines() if re.match("(import|from) ", line))
    main = main.replace("Dinner", "Table").replace("dinners", "tables").replace("dinner-1", "table-1")
    (shown.folder / "table.py").write_text(f"{table}\n\n{imports}\n\n\nasync def main{main}", encoding="utf-8")
    ended = asyncio.create_task(python("table.py", cwd=shown.folder, **shown.env))
    await waiting(shown, "table-1", "clarification")
    assert (await shown.cli("interrupts", "answer", "table-1", '{"answers": {"guests": "Ada"}}')).status == 0
    done = await ended
    assert done.text.endswith(" Ada\n"), done.err


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("patient")
async def test_a_call_that_needs_approval_is_sent_once_it_has_it(shown):
    call = asyncio.create_task(shown.cli("call", "sample", "echo", "--args", '{"value": 1.10}', "--json"))
    async with asyncio.timeout(PATIENCE):
        while not (found := (await shown.cli("interrupts", "list", "--json")).json) or not (
            asked := [one for one in found if "sample echo" in one["interrupt"]["data"].get("title", "")]
        ):
            pass
    [one] = asked
    assert one["interrupt"]["data"]["artifactData"]["arguments"] == {"value": 1.1}
    answered = await shown.cli("interrupts", "answer", one["runId"], '{"action": "accept"}')
    assert answered.status == 0, answered.err
    done = await call
    assert done.status == 0, done.err
    assert b"1.1" in done.out


@pytest.mark.parametrize("name", ["list", "show", "answer"])
def test_every_command_and_option_of_interrupts_is_described(name):
    command = commands()[f"interrupts {name}"]
    assert f"interrupts {name} " in DOC
    options = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    assert {option for option in options - {"--config"} if option not in DOC} <= {"--json"}


def test_the_types_that_ask_are_described():
    from openwop_mcp.questions.gates import GATES

    assert {name for name in GATES if f"`{name}`" not in DOC} == set()
