"""The commands on values that are kept outside history."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json

import pytest

from commands.connection import check_storage
from openwop_mcp.config import Settings
from tests.integration.cli.conftest import LARGE
from tests.support.cli import cli

DIGEST = hashlib.sha256(LARGE).hexdigest()


@pytest.fixture(scope="module")
async def called(dev) -> str:
    done = await dev.cli("call", "fake", "large", "--json")
    assert (done.status, done.out) == (0, LARGE + b"\n")
    return done.err.splitlines()[0].removeprefix("run ")


async def test_a_large_result_is_shown_with_size_and_digest_and_stands_in_the_log(dev, called):
    shown, log = await asyncio.gather(
        dev.cli("runs", "show", called, "--json"), dev.cli("runs", "events", called, "--json")
    )
    [told] = shown.json["calls"]
    assert (told["bytes"], told["sha256"], told["intact"]) == (len(LARGE), DIGEST, True)
    assert LARGE in log.out


async def test_an_export_holds_the_value_and_replays_where_there_is_no_storage(dev, called, tmp_path):
    file = tmp_path / "run.json"
    assert (await dev.cli("runs", "export", called, "--out", str(file))).status == 0
    text = json.loads(file.read_bytes())
    assert text["values"] == {DIGEST: base64.b64encode(LARGE).decode()}
    assert len(json.dumps(text["events"])) < 100_000
    elsewhere = {"XDG_STATE_HOME": str(tmp_path / "empty")}
    by_file, by_id = await asyncio.gather(cli("replay", str(file), "--json", **elsewhere), dev.cli("replay", called))
    [verdict] = by_file.json
    assert (verdict["results"], verdict["sound"]) == (1, True)
    assert by_id.status == 0


async def test_a_command_without_the_storage_says_what_is_missing_and_where(dev, called, tmp_path):
    (tmp_path / "openwop-mcp/blobs").mkdir(parents=True)
    gone, off = await asyncio.gather(
        dev.cli("runs", "show", called, XDG_STATE_HOME=str(tmp_path)),
        dev.cli("runs", "show", called, OPENWOP_MCP__STORAGE__DRIVER="none"),
    )
    assert (gone.status, off.status) == (1, 1)
    assert DIGEST in gone.err
    assert str(tmp_path) in gone.err
    assert "set storage.driver" in off.err
    assert "Traceback" not in gone.err + off.err


async def test_a_worker_that_could_not_keep_a_large_result_does_not_start_and_says_why(dev, tmp_path):
    occupied = tmp_path / "file"
    occupied.write_text("no folder", encoding="utf-8")
    done = await dev.cli("run", OPENWOP_MCP__STORAGE__FOLDER=str(occupied))
    assert done.status == 1
    assert str(occupied) in done.err
    assert "storage.folder" in done.err


@pytest.mark.parametrize(("address", "warns"), [("127.0.0.1:7233", False), ("temporal.example:7233", True)])
async def test_a_folder_that_other_machines_do_not_see_is_warned_of(client, caplog, tmp_path, address, warns):
    settings = Settings.model_validate({"temporal": {"address": address}})
    await check_storage(client, settings)
    assert ("set storage.folder" in caplog.text) is warns
    caplog.clear()
    shared = Settings.model_validate({"temporal": {"address": address}, "storage": {"folder": str(tmp_path)}})
    await check_storage(client, shared)
    assert caplog.text == ""


async def test_arguments_of_5_mb_from_a_file_reach_the_server_byte_for_byte(dev, tmp_path):
    file = tmp_path / "arguments.json"
    file.write_bytes(b'{ "n" : 1.10, "text" : "%b" }' % (b"y" * 5_000_000))
    done = await dev.cli("call", "fake", "one", "--args", f"@{file}")
    assert done.status == 0
    sent = next(one for one in reversed(dev.server.requests) if len(one.body) > 5_000_000)
    assert file.read_bytes() in sent.body
    # A replay sends it again, as far as Temporal's SDK can tell, and is to keep nothing.
    export = tmp_path / "run.json"
    run = done.err.splitlines()[0].removeprefix("run ")
    assert (await dev.cli("runs", "export", run, "--out", str(export))).status == 0
    state = tmp_path / "state"
    assert (await cli("replay", str(export), XDG_STATE_HOME=str(state))).status == 0
    assert not state.exists()
