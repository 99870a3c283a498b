"""Faults in the settings and on the command line: status 2, what to write instead, and nothing started."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from commands.app import main
from tests.support.cli import ROOT, cli

HISTORY = ROOT / "tests/replay/histories/0.1.0/two-calls.json"

SECRET = "tok-3f9a-inline-secret"

FAULTS = {
    "an unknown key": ("[worker]\ntennant = 'acme'\n", "worker.tennant", "tenant"),
    "a wrong type": ("[servers.a]\nurl = 5\n", "servers.a.url", "url ="),
    "two servers of one id": (
        "[servers.a]\nurl = 'http://a/mcp'\n[servers.a]\nurl = 'http://b/mcp'\n",
        "servers.a",
        "a",
    ),
    "a credential inline": (
        f"[servers.a]\nurl = 'http://a/mcp'\ncredential = {{ bearer = '{SECRET}' }}\n",
        "servers.a.credential.bearer",
        "{ env =",
    ),
    "a server called like a command": ("[servers.list]\nurl = 'http://a/mcp'\n", "servers.list", "another id"),
}


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(("text", "key", "advice"), FAULTS.values(), ids=FAULTS)
def test_a_fault_names_file_and_key_and_what_to_write(tmp_path, capfd, text, key, advice):
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    assert main(["dev", "--config", str(file)]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert str(file) in err
    assert key in err
    assert advice in err
    assert SECRET not in err
    assert err.count("\n") == 1


async def test_a_fault_is_one_json_value_where_json_was_asked_for(tmp_path):
    (tmp_path / "openwop-mcp.toml").write_text("[worker]\ntennant = 'acme'\n", encoding="utf-8")
    done = await cli("tools", "list", "a", "--json", cwd=tmp_path)
    assert done.status == 2
    assert done.json["error"]["code"] == "validation_error"
    assert "openwop-mcp.toml: worker.tennant" in done.json["error"]["message"]


async def test_a_file_that_is_not_there_is_named():
    done = await cli("call", "a", "b", "--config", "/nowhere/at/all.toml")
    assert (done.status, done.out) == (2, b"")
    assert "/nowhere/at/all.toml" in done.err


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("bogus",), "bogus"),
        (("call", "fake"), "tool"),
        (("runs", "show"), "run"),
        (("call", "a", "b", "--bogus"), "--bogus"),
        (("tools", "list", "--cursor", "x"), "server"),
        (("tools", "classify", "a", "b"), "--tier"),
        (("tools", "classify", "a", "b", "--clear", "--tier", "read"), "--clear"),
        (("tools", "sho", "a", "b"), "did you mean 'show'?"),
        (("tools", "classify", "a", "b", "--tier", "harmless"), "--tier"),
        (("tools", "approve", "a"), "--all"),
        (("tools", "approve", "a", "b", "--all"), "--all"),
        (("tools", "approve", "a", "b", "--fingerprint", "abc"), "--fingerprint"),
        (("replay", "x", "--workflow", "no_such_module:Flow"), "no_such_module"),
        (("replay", "x", "--workflow", "json:dumps"), "json:dumps"),
    ],
)
def test_a_fault_of_usage_has_status_2_and_says_which(capfd, arguments, told):
    assert main([*arguments]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert told in err.lower()
    assert main([*arguments, "--json"]) == 2
    out, err = capfd.readouterr()
    assert err == ""
    assert json.loads(out)["error"]["code"] == "validation_error"


async def test_who_looks_for_a_list_of_runs_is_told_who_has_it():
    refused, told = await asyncio.gather(cli("runs", "list"), cli("runs", "--help"))
    assert (refused.status, told.status) == (2, 0)
    assert "see 'worker.py runs --help'" in refused.err
    assert "GET /runs" in told.text


async def test_without_a_command_the_commands_are_listed():
    done = await cli()
    assert done.status == 2
    for command in ("run", "dev", "serve", "call", "health", "tools", "runs", "replay", "demo"):
        assert command in done.text


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("text", ["raise RuntimeError('no luck')", "exit(3)", "1 +"])
def test_an_authors_module_that_cannot_be_imported_is_told_as_that_modules_fault(tmp_path, monkeypatch, capfd, text):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    name = f"broken_{abs(hash(text))}"
    (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    assert main(["replay", "x", "--workflow", f"{name}:Flow"]) == 2
    err = capfd.readouterr().err
    assert f"importing {name} raised" in err
    assert "Traceback" not in err


SANDBOXED = """
from temporalio import workflow

if workflow.unsafe.in_sandbox():
    raise OSError("not in here")

@workflow.defn
class Flow:
    @workflow.run
    async def run(self) -> None: ...
"""


@pytest.mark.parametrize(("text", "why"), [("class Flow: pass", "@workflow.defn"), (SANDBOXED, "not in here")])
async def test_an_authors_class_that_no_worker_could_run_is_told_as_such(tmp_path, text, why):
    (tmp_path / "unfit.py").write_text(text, encoding="utf-8")
    done = await cli("replay", str(HISTORY), "--workflow", "unfit:Flow", cwd=tmp_path)
    assert (done.status, done.out) == (2, b"")
    assert why in done.err
