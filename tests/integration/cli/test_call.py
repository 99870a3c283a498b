"""`worker.py call`: what is sent, what is printed, and the exit status."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import signal

import pytest

from commands.app import main
from openwop_mcp.ceilings import MAX_CALL_BYTES
from tests.integration.cli.conftest import FAILED, ODD, STEPS
from tests.support.cli import ROOT, Serving, cli, serving, until
from tests.support.patience import PATIENCE

EXACT = r'{"n": 1.10, "big": 123456789012345678901234, "e": "\u00e9", "z":-0.0 , "x":1E400}'


def said(err: str) -> list[str]:
    """The lines of standard error but those that tell what a call waits for, as it does on a busy machine."""
    return [line for line in err.splitlines() if not line.startswith(("call: waiting ", "    "))]


async def line_of(calling: Serving, begins: str) -> str:
    """The next line of standard error that begins so; what else a call waits for is passed over."""
    assert calling.process.stderr is not None
    async with asyncio.timeout(PATIENCE):
        while not (line := (await calling.process.stderr.readline()).decode()).startswith(begins):
            assert line.startswith(("call: waiting ", "    ")), line
    return line


async def test_a_call_prints_the_text_and_tells_what_was_recorded(dev):
    done = await dev.cli("call", "fake", "echo")
    assert (done.status, done.out) == (0, b"done\n")
    sent = b'{"content":[{"type":"text","text":"done"}]}'
    for fact in ("fake tools/call echo", "MCP 2026-07-28", f"{len(sent)} bytes", hashlib.sha256(sent).hexdigest()):
        assert fact in done.err
    assert "run acme/" in done.err


async def test_a_call_with_json_prints_the_result_as_the_server_sent_it_and_nothing_else(dev):
    value, prose = await asyncio.gather(dev.cli("call", "fake", "odd", "--json"), dev.cli("call", "fake", "odd"))
    assert (value.status, value.out) == (0, ODD + b"\n")
    # Which run it is, is known before there is a result.
    [run] = said(value.err)
    assert re.fullmatch(r"run acme/[0-9a-f]+", run)
    # It has no text, so that people see it whole as well.
    assert (prose.status, prose.out) == (0, ODD + b"\n")


async def test_an_empty_answer_is_told_from_one_that_has_not_come(dev):
    prose, told = await asyncio.gather(dev.cli("call", "fake", "empty"), dev.cli("call", "fake", "echo"))
    assert (prose.status, prose.out) == (0, b'{"resultType":"complete","content":[]}\n')
    assert "no content" in prose.err
    assert "no content" not in told.err
    shown = await dev.cli("runs", "show", prose.err.split()[1])
    assert (shown.status, "completed" in shown.text, "no content" in shown.text) == (0, True, True)


async def test_arguments_arrive_digit_for_digit_from_the_command_line_and_from_a_file(dev, tmp_path):
    (tmp_path / "arguments.json").write_text(EXACT, encoding="utf-8")
    before = len(dev.server.calls("echo"))
    given = (EXACT, "@arguments.json")
    done = await asyncio.gather(*(dev.cli("call", "fake", "echo", "--args", form, cwd=tmp_path) for form in given))
    assert [one.status for one in done] == [0, 0]
    assert [EXACT.encode() in request.body for request in dev.server.calls("echo")[before:]] == [True, True]


async def test_a_key_of_ones_own_is_accepted(dev):
    assert (await dev.cli("call", "fake", "echo", "--key", "order-1")).status == 0


async def test_a_result_that_is_an_error_is_printed_and_is_not_0(dev):
    prose, value = await asyncio.gather(dev.cli("call", "fake", "fails"), dev.cli("call", "fake", "fails", "--json"))
    assert (prose.status, prose.out) == (1, b"no such city\n")
    assert (value.status, value.out) == (1, FAILED + b"\n")


async def test_a_json_rpc_error_is_told_with_its_code_and_unaltered(dev):
    done = await dev.cli("call", "fake", "refuses", "--json")
    assert done.status == 1
    error = done.json["error"]
    assert error["code"] == "mcp_error"
    assert said(done.err) == [f"run {done.json['runId']}"]
    assert error["details"]["error"]["code"] == -32602
    assert error["details"]["error"]["data"] == {"why": 1}


async def test_a_server_that_is_not_there_for_this_tenant_is_not_found(dev):
    names = ("nobody", "others")
    answers = await asyncio.gather(*(dev.cli("call", name, "echo", "--json") for name in names))
    for name, done in zip(names, answers, strict=True):
        assert done.status == 1
        assert done.json["error"]["code"] == "not_found"
        assert name in done.json["error"]["message"]
        assert done.json["error"]["details"]["delivery"] == "not_sent"


async def test_a_server_that_cannot_be_reached_is_told_in_a_sentence(dev):
    done = await dev.cli("call", "gone", "echo")
    assert (done.status, done.out) == (1, b"")
    # The two words that the documents' tables go by come first, as in `runs show`.
    run, why = said(done.err)
    assert why.startswith("upstream_unavailable, delivery not_sent: no connection to the server")
    assert why in (await dev.cli("runs", "show", run.removeprefix("run "))).text


async def test_a_call_that_is_given_up_goes_on_and_says_how_to_look_at_it(dev):
    before = len(dev.server.calls("stalls"))
    async with serving("call", "fake", "stalls", "--config", str(dev.settings), ready=False) as calling:
        await until(lambda: len(dev.server.calls("stalls")) > before)
        done = await calling.end(signal.SIGINT)
    assert (done.status, done.out) == (130, b"")
    first, last = said(done.err)
    run = first.removeprefix("run ")
    assert f"runs show {run}" in last
    shown = await dev.cli("runs", "show", run)
    assert "call: running, fake tools/call stalls, attempts 1" in shown.text


async def test_a_call_that_lasts_tells_how_far_it_is_on_standard_error_and_so_does_show(dev):
    async with serving("call", "fake", "steps", "--config", str(dev.settings), ready=False) as calling:
        assert calling.process.stderr is not None
        run = (await line_of(calling, "run ")).removeprefix("run ").strip()
        first = await line_of(calling, "progress 3/10: page 3\\u{a}a\\u{1b}]0;owned")
        prose, value = await asyncio.gather(dev.cli("runs", "show", run), dev.cli("runs", "show", run, "--json"))
        STEPS[0].set()
        async with asyncio.timeout(PATIENCE):
            # Between the two nothing was told twice.
            second = (await calling.process.stderr.readline()).decode()
        assert second.startswith("progress 7/10: page 7")
        STEPS[1].set()
        async with asyncio.timeout(PATIENCE):
            out, err = await calling.process.communicate()
    assert (calling.process.returncode, out) == (0, b"read\n")
    assert err.startswith(b"fake tools/call steps, ")
    for shown in (first, second, prose.text):
        assert not {"\x1b", "\x07", "\u202e", "\x00", "\r"} & set(shown)
    assert prose.text.splitlines()[1:] == ["call: running, fake tools/call steps, attempts 1", f"    {first.strip()}"]
    [call] = value.json["calls"]
    assert call["outcome"] == "running"
    assert (call["progress"]["progress"], call["progress"]["total"]) == (3, 10)
    assert call["progress"]["message"] in first
    # A call that has ended is as far as it goes.
    assert "progress" not in (await dev.cli("runs", "show", run, "--json")).json["calls"][0]


async def test_a_call_that_waits_for_room_says_so_once_and_goes_on_when_there_is_some(dev):
    before = len(dev.server.calls("stalls"))
    async with serving("call", "narrow", "stalls", "--config", str(dev.settings), ready=False) as first:
        await until(lambda: len(dev.server.calls("stalls")) > before)
        async with serving("call", "narrow", "echo", "--config", str(dev.settings), ready=False) as second:
            assert second.process.stderr is not None
            run = (await line_of(second, "run ")).removeprefix("run ").strip()
            waits = await line_of(second, "call: waiting for room, ")
            assert waits == "call: waiting for room, narrow tools/call echo, attempts 0\n"
            why = "    rate_limited, delivery not_sent: nothing was sent: server 'narrow' has 1 under"
            assert (await second.process.stderr.readline()).decode().startswith(why)
            async with asyncio.timeout(PATIENCE):
                # It is tried again now and then, which takes no time that a test could count on.
                while waits.strip() not in (await dev.cli("runs", "show", run)).text:
                    pass
            stalled = (await first.end(signal.SIGINT)).err.split()[1]
            assert (await dev.cli("runs", "cancel", stalled)).status == 0
            async with asyncio.timeout(PATIENCE):
                out, err = await second.process.communicate()
    assert (second.process.returncode, out) == (0, b"done\n")
    assert b"waiting for room" not in err
    assert said(err.decode())[0].startswith("narrow tools/call echo, ")


async def test_a_call_that_no_worker_takes_names_the_task_queue_that_it_waits_on(dev):
    # Of this class the process that calls knows, and the one that serves does not.
    unserved = {
        "OPENWOP_MCP__WORKER__CLASSES__UNSERVED__MAX_ACTIVITIES": "1",
        "OPENWOP_MCP__SERVERS__FAKE__CLASS": "unserved",
    }
    settings = str(dev.settings)
    async with serving("call", "fake", "echo", "--config", settings, ready=False, **unserved) as calling:
        assert calling.process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            await calling.process.stderr.readline()
            told = (await calling.process.stderr.readline()).decode()
        waits = "call: waiting for a worker on task queue 'openwop-mcp-class-unserved'"
        assert told == f"{waits}, fake tools/call echo, attempts 1\n"
        await calling.end(signal.SIGINT)


async def test_a_credential_that_is_not_set_here_is_no_matter_to_who_asks_a_worker(dev, tmp_path):
    file = tmp_path / "settings.toml"
    secret = 'credential = { bearer = { env = "NOT_SET_HERE" } }'
    file.write_text(dev.settings.read_text(encoding="utf-8") + secret, encoding="utf-8")
    called, asked = await asyncio.gather(
        cli("call", "fake", "echo", "--config", str(file)), cli("health", "fake", "--config", str(file))
    )
    assert (called.status, called.out) == (0, b"done\n")
    assert asked.status == 2
    assert "NOT_SET_HERE" in asked.err


@pytest.mark.usefixtures("nothing_starts")
def test_what_servers_say_is_logged_whatever_else_is(monkeypatch):
    # It comes only where it was asked for.
    said = logging.getLogger("openwop_mcp.messages")
    monkeypatch.setattr(said, "level", logging.NOTSET)
    assert main(["call", "fake", "echo", "--args", "["]) == 2
    assert said.isEnabledFor(logging.DEBUG)
    assert not logging.getLogger("openwop_mcp").isEnabledFor(logging.INFO)


@pytest.mark.usefixtures("nothing_starts")
def test_arguments_that_temporal_does_not_carry_are_refused_with_their_size_and_the_limit(capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENWOP_MCP__STORAGE__DRIVER", "none")
    file = tmp_path / "large.json"
    file.write_text('{"a":"' + "x" * MAX_CALL_BYTES + '"}', encoding="utf-8")
    for command in (["call", "fake", "echo", "--args"], ["runs", "start", "conformance-identity.json", "--inputs"]):
        path = command[2] if command[0] == "call" else str(ROOT / "examples/fixtures/conformance-identity.json")
        assert main([*command[:2], path, command[3], f"@{file}"]) == 2
        err = capfd.readouterr().err
        for told in (command[3], str(MAX_CALL_BYTES), str(file.stat().st_size)):
            assert told in err


@pytest.mark.usefixtures("nothing_starts")
def test_arguments_over_the_ceiling_of_a_worker_with_storage_are_refused_by_its_setting(capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENWOP_MCP__LIMITS__CALL_BYTES", "4096")
    file = tmp_path / "large.json"
    file.write_text('{"a":"' + "x" * 4096 + '"}', encoding="utf-8")
    assert main(["call", "fake", "echo", "--args", f"@{file}"]) == 2
    assert "over the 4096 bytes that limits.call_bytes lets pass" in capfd.readouterr().err


@pytest.mark.usefixtures("nothing_starts")
def test_a_tool_name_that_is_not_utf_8_is_told_as_such(capfd):
    assert main(["call", "fake", "\udcff"]) == 2
    assert capfd.readouterr().err.startswith("Invalid value for 'TOOL': is not valid UTF-8")


@pytest.mark.usefixtures("nothing_starts")
def test_a_fault_in_a_file_of_arguments_is_placed_by_line_and_column(capfd, tmp_path):
    file = tmp_path / "arguments.json"
    file.write_text('{\n  "a": nope\n}', encoding="utf-8")
    assert main(["call", "fake", "echo", "--args", f"@{file}"]) == 2
    assert "line 2, column " in capfd.readouterr().err


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("given", ["[1]", "{'city': 1}", "{", "@missing.json", "@"])
def test_arguments_that_are_no_json_object_are_refused_before_anything_is_sent(capfd, given):
    assert main(["call", "fake", "echo", "--args", given, "--json"]) == 2
    error = json.loads(capfd.readouterr().out)["error"]
    assert error["code"] == "validation_error"
    assert "--args" in error["message"]


@pytest.mark.usefixtures("nothing_starts")
def test_arguments_that_nest_too_deep_are_refused_before_they_are_read(capfd, tmp_path):
    file = tmp_path / "deep.json"
    file.write_bytes(b'{"a":' * 1_000_000)
    assert main(["call", "fake", "echo", "--args", f"@{file}"]) == 2
    assert "nested deeper than 512 levels" in capfd.readouterr().err
