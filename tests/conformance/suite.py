"""The official conformance suite, run one scenario at a time, and what counts as passing it.

Stricter than the suite, whose exit status calls a scenario passed that checked nothing, or whose client was killed.
Knows the suite's command line and the report that our client ends with; nothing of what a scenario asks for.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.report import Report
from tests.support.tools import CONFORMANCE, REPOSITORY, node

__all__ = ("Check", "Required", "Run", "Scenario", "SuiteError", "faults", "required", "run")

TIME_LIMIT_MS = 60_000
"""For the client in one scenario. Most take under two seconds; a machine that does other work as well is slower."""

BAD = frozenset({"FAILURE", "WARNING"})

_CLIENT_STATUS = re.compile(r"^Client exited with code (-?\d+)$", re.MULTILINE)
_LISTED = re.compile(r"^ +- (\S+)(?: \[(client|server)\])?$")


class SuiteError(Exception):
    """The suite does not do what this runner relies on."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario at the wire of one revision."""

    name: str
    revision: str
    extension: bool = False


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: str
    message: str


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one scenario: the suite's checks and exit status, and what is known of the client."""

    scenario: Scenario
    checks: Sequence[Check]
    suite_status: int
    client_status: int
    report: Report | None
    seconds: float
    output: str = ""

    @property
    def passed(self) -> int:
        return sum(check.status == "SUCCESS" for check in self.checks)

    @property
    def failed(self) -> Sequence[Check]:
        """Failures and warnings: a warning is a requirement of the specification that was not met either."""
        return [check for check in self.checks if check.status in BAD]


@dataclass(frozen=True, slots=True)
class Required:
    """What the suite lists for clients of a revision."""

    scenarios: Sequence[str]
    unscored: Sequence[str]


def faults(run: Run, refusal: str | None) -> list[str]:
    """What is wrong with a run; nothing, if it holds.

    Args:
        run: The run.
        refusal: Where the server is not to be trusted: the cause for which the client must refuse. Else None.
    """
    found = [f"{check.name}: {check.status.lower()}: {check.message}" for check in run.failed]
    if not run.passed:
        found.append("the suite checked nothing")
    if run.suite_status != 0:
        found.append(f"the suite ended with exit status {run.suite_status}")
    return found + _ending(run, refusal)


def _ending(run: Run, refusal: str | None) -> list[str]:
    if run.report is None:
        return ["the client did not say how it ended"]
    if run.report.completed != (run.client_status == 0):
        return [f"the client says '{run.report}' and ended with exit status {run.client_status}"]
    if refusal is None:
        return [] if run.report.completed else [f"the client ended with: {run.report}"]
    if run.report.completed:
        return ["the client completed what it had to refuse"]
    if run.report.cause != refusal:
        return [f"the client refused, and not for '{refusal}': {run.report}"]
    return []


async def required(revision: str) -> Required:
    """The client scenarios that a revision requires, and those the suite runs without scoring them."""
    status, output = await _suite("list", "--client", "--requirements", revision)
    if status != 0:
        raise SuiteError(f"the suite lists nothing for {revision}: {output.strip()}")
    listed: list[str] = []
    unscored: list[str] = []
    heading = ""
    for line in output.splitlines():
        entry = _LISTED.match(line)
        if entry is None:
            heading = line or heading
        elif heading.startswith("Client scenarios"):
            listed.append(entry[1])
        elif entry[2] == "client":
            unscored.append(entry[1])
    return Required(listed, unscored)


async def run(scenario: Scenario, client: Sequence[str], folder: Path) -> Run:
    """Runs one scenario with a client, which gets the server's address as its last argument.

    The results go into the folder, which must be this run's own.
    """
    started = time.monotonic()
    # Extensions stand outside the revisions, so the suite has to be told to run them at one.
    flags = ["--force"] if scenario.extension else []
    status, output = await _suite(
        *("client", "--command", shlex.join(client), "--scenario", scenario.name, "--spec-version", scenario.revision),
        *("--timeout", str(TIME_LIMIT_MS), "--output-dir", str(folder), *flags),
    )
    seconds = time.monotonic() - started
    client_status = _CLIENT_STATUS.search(output)
    return Run(
        scenario=scenario,
        checks=_checks(folder),
        suite_status=status,
        client_status=int(client_status[1]) if client_status else 0,
        report=Report.last_of(_result(folder, "stdout.txt")),
        seconds=seconds,
        output=output,
    )


def _checks(folder: Path) -> Sequence[Check]:
    text = _result(folder, "checks.json")
    return [
        Check(check["name"], check["status"], check.get("errorMessage") or check.get("description") or "")
        for check in (json.loads(text) if text else [])
    ]


def _result(folder: Path, name: str) -> str:
    return "".join(path.read_text() for path in folder.rglob(name))


async def _suite(*arguments: str) -> tuple[int, str]:
    """Exit status, and everything it said."""
    if reason := CONFORMANCE.missing():
        raise SuiteError(reason)
    program = CONFORMANCE.folder / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    process = await asyncio.create_subprocess_exec(
        *(str(node()), str(program), *arguments),
        cwd=REPOSITORY,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace")
