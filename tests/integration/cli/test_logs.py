"""What a process logs: JSON where something serves for good, text for people, with the facts of each call."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from openwop_mcp.embedded import EmbeddedTemporal
from tests.support.cli import Done, cli, serving

STDIO = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    sys.stderr.write("two\\nlines and \\x1b[31m\\n")
    sys.stderr.flush()
    result = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
              "content": [], "tools": []}
    failed = asked["params"].get("name") == "bad"
    answer = {"error": {"code": 1, "message": "no\\nway"}} if failed else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


def _settings(temporal: EmbeddedTemporal, folder: Path, logs: str = "") -> Path:
    (folder / "box.py").write_text(STDIO, encoding="utf-8")
    file = folder / "openwop-mcp.toml"
    file.write_text(
        f'[temporal]\naddress = "{temporal.address}"\n[worker]\ntask_queue = "{folder.name}"\ntenant = "acme"\n'
        f'[storage]\nfolder = "{folder / "blobs"}"\n{logs}\n'
        f'[servers.box]\ncommand = ["{sys.executable}", "{folder / "box.py"}"]\n',
        encoding="utf-8",
    )
    return file


async def _of_a_call(
    temporal: EmbeddedTemporal, folder: Path, logs: str = "", *, tool: str = "t", **env: str
) -> tuple[str, Done]:
    """A run of one call, and what the worker logged meanwhile."""
    config = str(_settings(temporal, folder, logs))
    async with serving("run", "--config", config, **env) as worker:
        called = await cli("call", "box", tool, "--json", "--config", config)
        assert called.status == (1 if tool == "bad" else 0), called.err
        run_id = re.search(r"^run (\S+)$", called.err, re.MULTILINE)
        assert run_id is not None
        return run_id[1], await worker.end(signal.SIGTERM)


def _lines(done: Done) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.err.splitlines()]


async def test_a_worker_logs_json_from_info_on_its_end_included(temporal: EmbeddedTemporal, tmp_path: Path) -> None:
    _, done = await _of_a_call(temporal, tmp_path)
    lines = _lines(done)
    assert {"time", "level", "logger", "message"} <= set.intersection(*map(set, lines))
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"]) for line in lines)
    assert {line["level"] for line in lines} <= {"info", "warning"}
    said = [line["message"] for line in lines if line["logger"] == "openwop_mcp.server.box"]
    assert said[:2] == ["two", "lines and \\x1b[31m"]
    assert any(line["message"] == "stopping" for line in lines)


async def test_what_is_logged_of_a_call_says_of_which(temporal: EmbeddedTemporal, tmp_path: Path) -> None:
    run_id, done = await _of_a_call(temporal, tmp_path, tool="bad")
    lines = _lines(done)
    # Once, and not by the attempt's own line as well.
    (failed,) = [line for line in lines if line.get("run") == run_id and line["level"] == "warning"]
    assert failed["logger"] == "openwop_mcp.runs"
    assert {name: failed[name] for name in ("node", "server", "attempt", "tenant")} == {
        "node": "call",
        "server": "box",
        "attempt": 1,
        "tenant": "acme",
    }
    assert failed["effect"].startswith("acme/")
    assert "exception" not in failed
    assert {line["server"] for line in lines if line["logger"] == "openwop_mcp.server.box"} == {"box"}


async def test_text_has_the_same_facts_and_a_level_may_be_given_for_once(
    temporal: EmbeddedTemporal, tmp_path: Path
) -> None:
    run_id, done = await _of_a_call(
        temporal, tmp_path, '[logs]\nformat = "text"', tool="bad", OPENWOP_MCP__LOGS__LEVEL="debug"
    )
    lines = done.err.splitlines()
    assert all(re.match(r"(\d{4}-\d\d-\d\dT\S+Z (DEBUG|INFO|WARNING) \S+ |    )", line) for line in lines)
    assert any(line.endswith(" openwop_mcp.server.box two server=box") for line in lines)
    assert any(f" run={run_id} node=call server=box effect=acme/" in line for line in lines)
    assert "\x1b" not in done.err


async def test_a_command_that_asks_only_logs_nothing_of_it(temporal: EmbeddedTemporal, tmp_path: Path) -> None:
    done = await cli("health", "box", "--config", str(_settings(temporal, tmp_path)))
    assert (done.status, done.err) == (0, "")


@pytest.mark.parametrize(
    ("logs", "told"),
    [
        ('[logs]\nlevel = "loud"', "logs.level"),
        ('[logs]\nformat = "xml"', "logs.format"),
        ('[logs]\nlevels = { "a.b" = "trace" }', "logs.levels"),
        ('[logs]\nlevels = { "a b" = "debug" }', "logs.levels"),
    ],
)
async def test_what_no_log_can_be_is_a_fault_of_the_settings(
    temporal: EmbeddedTemporal, tmp_path: Path, logs: str, told: str
) -> None:
    done = await cli("run", "--config", str(_settings(temporal, tmp_path, logs)))
    assert done.status == 2
    assert told in done.err
