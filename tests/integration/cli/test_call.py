"""`worker.py call`: what is sent, what is printed, and the exit status."""

from __future__ import annotations

import asyncio
import hashlib
import json

import pytest

import worker
from tests.integration.cli.conftest import FAILED, ODD

EXACT = r'{"n": 1.10, "big": 123456789012345678901234, "e": "\u00e9", "z":-0.0 , "x":1E400}'


async def test_a_call_prints_the_text_and_tells_what_was_recorded(dev):
    done = await dev.cli("call", "fake", "echo")
    assert (done.status, done.out) == (0, b"done\n")
    sent = b'{"content":[{"type":"text","text":"done"}]}'
    for fact in ("fake tools/call echo", "MCP 2026-07-28", f"{len(sent)} bytes", hashlib.sha256(sent).hexdigest()):
        assert fact in done.err
    assert "run acme/" in done.err


async def test_a_call_with_json_prints_the_result_as_the_server_sent_it_and_nothing_else(dev):
    value, prose = await asyncio.gather(dev.cli("call", "fake", "odd", "--json"), dev.cli("call", "fake", "odd"))
    assert (value.status, value.out, value.err) == (0, ODD + b"\n", "")
    # It has no text, so that people see it whole as well.
    assert (prose.status, prose.out) == (0, ODD + b"\n")


async def test_arguments_arrive_digit_for_digit_from_the_command_line_and_from_a_file(dev, tmp_path):
    (tmp_path / "arguments.json").write_text(EXACT, encoding="utf-8")
    before = len(dev.server.requests)
    given = (EXACT, "@arguments.json")
    done = await asyncio.gather(*(dev.cli("call", "fake", "echo", "--args", form, cwd=tmp_path) for form in given))
    assert [one.status for one in done] == [0, 0]
    assert [EXACT.encode() in request.body for request in dev.server.requests[before:]] == [True, True]


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
    assert error["details"]["error"]["code"] == -32602
    assert error["details"]["error"]["data"] == {"why": 1}


async def test_a_server_that_is_not_there_for_this_tenant_is_not_found(dev):
    names = ("nobody", "others")
    answers = await asyncio.gather(*(dev.cli("call", name, "echo", "--json") for name in names))
    for name, done in zip(names, answers, strict=True):
        assert done.status == 1
        assert done.json["error"]["code"] == "not_found"
        assert name in done.json["error"]["message"]


async def test_a_server_that_cannot_be_reached_is_told_in_a_sentence(dev):
    done = await dev.cli("call", "gone", "echo", OPENWOP_MCP__SERVERS__GONE__RETRY="{attempts = 1}")
    assert (done.status, done.out) == (1, b"")
    assert "no connection to the server" in done.err


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("given", ["[1]", "{'city': 1}", "{", "@missing.json", "@"])
def test_arguments_that_are_no_json_object_are_refused_before_anything_is_sent(capfd, given):
    assert worker.main(["call", "fake", "echo", "--args", given, "--json"]) == 2
    error = json.loads(capfd.readouterr().out)["error"]
    assert error["code"] == "validation_error"
    assert "--args" in error["message"]
