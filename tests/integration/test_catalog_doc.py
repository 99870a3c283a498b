"""docs/catalog.md: every command that it shows, in the order in which it shows them, and the settings that it shows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import typer.main

import worker
from tests.integration.test_readme import blocks, free_port, shell
from tests.support.cli import ROOT, serving

DOC = (ROOT / "docs" / "catalog.md").read_text(encoding="utf-8")


@contextlib.asynccontextmanager
async def sample_server(port: str, file: Path = ROOT / "examples" / "sample_server.py") -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(file), "--port", port, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline()
        yield
    finally:
        process.terminate()
        await process.wait()


async def test_every_command_does_what_is_said_of_it(tmp_path):
    port = free_port()
    [settings] = blocks(DOC, "toml")
    config = tmp_path / "openwop-mcp.toml"
    config.write_text(settings.replace("7801", port), encoding="utf-8")
    (tmp_path / "worker.py").symlink_to(ROOT / "worker.py")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    look, classify, change, after = blocks(DOC, "sh")
    make, start = change.splitlines()
    assert start == "python changed_server.py --port 7801"
    async with contextlib.AsyncExitStack() as first, contextlib.AsyncExitStack() as others:
        await first.enter_async_context(sample_server(port))
        dev = await others.enter_async_context(serving("dev", "--config", str(config)))
        env = {
            # What `source .venv/bin/activate` does.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OPENWOP_MCP__TEMPORAL__ADDRESS": dev.facts["temporal"],
        }
        shown = await shell(f"{look}\n{classify}\n{make}", tmp_path, env)
        told = json.loads(await shell("python worker.py tools sample --json 2>/dev/null", tmp_path, env))
        await first.aclose()
        await others.enter_async_context(sample_server(port, tmp_path / "changed_server.py"))
        call = next(line for line in after.splitlines() if " call " in line)
        refused = call.replace("   #", " || test $? = 1   #")
        assert refused != call
        changed = await shell(after.replace(call, refused), tmp_path, env)
        # Workers take it up in a moment.
        await shell(f"until {call.split('#')[0]}; do :; done", tmp_path, env)
    assert "tool          mcp:sample.get_forecast" in shown
    assert "classified get_forecast" in shown
    assert "quarantined" in changed
    assert changed.count("forbidden") == 1
    assert "Keep what was sent" in changed
    assert "approved echo" in changed
    held = {one["name"]: (one["safetyTier"], one["replayPolicy"], one["approval"]) for one in told["tools"]}
    assert held["get_forecast"] == ("read", "idempotent", "write")
    assert held["add"] == ("pure", "deterministic", "never")
    assert held["echo"] == ("write", "non-deterministic", "never")


@pytest.mark.parametrize("name", ["list", "show", "diff", "classify", "approve"])
def test_every_command_and_option_of_tools_is_described(name):
    commands = typer.main.get_command(worker.tools).commands
    assert f"tools {name} " in DOC
    options = {option for parameter in commands[name].params for option in parameter.opts if option.startswith("--")}
    # What every command has is described where commands are.
    assert {option for option in options - {"--config", "--json"} if option not in DOC} == set()


def test_the_columns_that_are_described_are_those_that_there_are():
    described = DOC.split("| column |")[1].split("\n\n")[0]
    for column in worker.listing.COLUMNS[1:-1]:
        assert f"`{column}`" in described, column
