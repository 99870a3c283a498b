"""docs/upgrading.md: every command that it shows, in its order, against a Temporal and workers as it describes them."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from openwop_mcp.embedded import embedded_temporal
from openwop_mcp.runs.engines import ENGINES
from tests.support.cli import ROOT
from tests.support.documents import blocks, lines, read, shell
from tests.support.graphs import edge, node, workflow

DOC = read("docs/upgrading.md")
PAID = {"kind": "external-event", "data": {"eventType": "paid", "correlation": {"order": 7}}}
WAITS = workflow([node("gate", "core.interrupt", config=PAID), node("end", "core.noop")], [edge("gate", "end")])
OLD, NEW = "0.1.0-4f2a9c1", "0.1.1-77d0e21"
SETTINGS = '[host]\nworkflows = ["flows"]\n'
STARTS = "python worker.py run"

ONE_SHELL = """\
started=0
serve() {
  started=$((started + 1)); out=.ready-$started
  env "$@" >"$out" 2>".log-$started" &
  pids="${pids:-} $!"
  until [ -s "$out" ]; do kill -0 $! || { cat ".log-$started"; exit 1; }; sleep 0.1; done
}
ended() { status=$?; kill $pids 2>/dev/null || true; wait; exit $status; }
trap ended EXIT
polling() {
  set -- --deployment-name openwop-mcp --build-id "$1"
  until [ "$(temporal worker deployment describe-version "$@" 2>/dev/null | grep -cE '(workflow|activity)$')" = 6 ]; do
    sleep 0.1
  done
}
builds() { temporal workflow describe --workflow-id "$1" | sed -n 's/^ *BuildId *//p'; }
"""


def script(text: str) -> str:
    """A block as it is run: workers go on while the next command is given, which comes once they all poll."""

    def run(line: str) -> str:
        if not line.endswith(STARTS):
            return line
        build = re.search(r"BUILD_ID=(\S+)", line)
        return f"serve {line}" + ("" if build is None else f"; polling {build[1]}")

    return "\n".join(map(run, lines(text)))


@pytest.mark.timeout(300)
async def test_every_command_does_what_is_said_of_it(tmp_path: Path) -> None:
    where, before, without, taken_out, first, upgrade, drained, back, leave = map(script, blocks(DOC, "sh"))
    [versioned] = blocks(DOC, "toml")
    (tmp_path / "worker.py").symlink_to(ROOT / "worker.py")
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "waits.json").write_text(json.dumps(WAITS), encoding="utf-8")
    (tmp_path / "openwop-mcp.toml").write_text(SETTINGS, encoding="utf-8")
    (tmp_path / "versioned.toml").write_text(SETTINGS + versioned, encoding="utf-8")
    starts = "python worker.py runs start flow"
    async with embedded_temporal() as temporal:
        env = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OPENWOP_MCP__TEMPORAL__ADDRESS": temporal.address,
            "XDG_STATE_HOME": str(tmp_path),
        }
        parts = [
            ONE_SHELL,
            where.replace("127.0.0.1:7233", temporal.address),
            # The workers that are there already.
            f"serve {STARTS}",
            f"RUN=$({starts})",
            before,
            without,
            taken_out,
            f"OPEN=$({starts}); cp versioned.toml openwop-mcp.toml",
            first,
            # Whatever was open is the new version's, once there is something to do.
            f'python worker.py runs cancel $OPEN; until [ "$(builds $OPEN)" = {OLD} ]; do :; done',
            f'until RUN=$({starts}) && sleep 1 && [ "$(builds $RUN)" = {OLD} ]; do :; done',
            upgrade,
            f'until LATER=$({starts}) && sleep 1 && [ "$(builds $LATER)" = {NEW} ]; do :; done',
            'echo "--- drains"',
            drained,
            f'test "$(builds $RUN)" = {OLD}',
            'echo "--- back"; EARLIER=$RUN; RUN=$LATER',
            back,
            "python worker.py runs cancel $RUN",
            f"temporal workflow describe --workflow-id $RUN | grep -q {OLD}",
            leave,
        ]
        shown = await shell("\n".join(parts), tmp_path, env)
    assert "replayed, 0 results are byte for byte what arrived" in shown
    drains, after = shown.split("--- drains")[1].split("--- back")
    assert re.search(r"DrainageStatus +draining", drains)
    assert "RunWorkflow" in drains
    assert "openwop-mcp-effects" in shown
    assert "openwop-mcp-catalog" in shown
    assert after.count("Successfully set the current worker deployment version") == 2
    # Those that waited for the switch said so.
    for number, build in ((3, OLD), (4, NEW)):
        assert f"--build-id {build}" in (tmp_path / f".log-{number}").read_text(encoding="utf-8")


def test_the_engine_versions_are_all_still_there_as_is_promised() -> None:
    assert sorted(ENGINES) == list(range(1, max(ENGINES) + 1))
