"""What reaches a terminal: nothing that a server wrote can act on it, hide in it or reorder it."""

from __future__ import annotations

import asyncio
import os
import sys
import unicodedata

from tests.integration.cli.conftest import settings_text
from tests.support.cli import ROOT, WORKER, cli, on_terminal, serving

HISTORY = ROOT / "tests/replay/histories/0.1.0/failed.json"

COMMANDS = {
    "a result": ("call", "fake", "hostile"),
    "a result as JSON": ("call", "fake", "hostile", "--json"),
    "an error": ("call", "fake", "refuses"),
    "an error as JSON": ("call", "fake", "refuses", "--json"),
    "a page of tools": ("tools", "fake", "--cursor", "hostile"),
    "a page as JSON": ("tools", "fake", "--cursor", "hostile", "--json"),
}


def acting(shown: bytes) -> set[str]:
    """The characters of these bytes that are not there to be seen. The terminal itself makes CR LF of a line's end."""
    return {
        character
        for character in shown.replace(b"\r\n", b"\n").decode()
        if unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp"} and character not in "\n\t"
    }


async def test_no_character_of_a_server_acts_on_a_terminal(dev):
    shown = await asyncio.gather(
        *(on_terminal(*command, "--config", str(dev.settings)) for command in COMMANDS.values())
    )
    for what, (_, got) in zip(COMMANDS, shown, strict=True):
        assert b"owned" in got, what
        assert acting(got) == set(), what


async def test_what_a_run_recorded_is_shown_safely(dev):
    inputs = '{"method":"callTool","serverId":"fake","name":"hostile","arguments":{}}'
    started = await dev.cli("runs", "start", "conformance-mcp-client", "--inputs", inputs, "--wait")
    run = started.text.strip()
    looks = (on_terminal("runs", look, run, "--config", str(dev.settings)) for look in ("show", "events", "export"))
    for status, shown in await asyncio.gather(*looks):
        assert status == 0
        assert acting(shown) == set()


async def test_the_log_of_a_worker_is_escaped(server, tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text(settings_text(server), encoding="utf-8")
    async with serving("dev", "--config", str(config)) as dev:
        address = dev.facts["temporal"]
        await cli("call", "fake", "refuses", "--config", str(config), OPENWOP_MCP__TEMPORAL__ADDRESS=address)
        dev.process.terminate()
        _, err = await dev.process.communicate()
    assert b"owned" in err
    assert acting(err) == set()


async def test_a_command_whose_output_nobody_takes_does_not_end_as_if_it_had_been_taken():
    read, write = os.pipe()
    os.close(read)
    # So little that it is written when the process ends.
    process = await asyncio.create_subprocess_exec(
        sys.executable, WORKER, "replay", str(HISTORY), "--json", stdout=write, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": ""},
    )  # fmt: skip
    os.close(write)
    _, err = await process.communicate()
    assert (process.returncode, err) == (1, b"")
