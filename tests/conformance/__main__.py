"""`make conformance`: every required client scenario of both revisions, the extensions we claim, and a table.

    python -m tests.conformance [SCENARIO ...]

Ends with 0 only if all of them hold. With names, it runs those alone.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.suite import Run, Scenario, SuiteError, faults, required, run

REQUIRED = {"2026-07-28": 32, "2025-11-25": 18}
"""Client scenarios that each revision requires: a suite that lists fewer must not look like a client that passes."""

EXTENSIONS = (
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "auth/wif-jwt-bearer",
    "json-schema-2020-12-preservation",
)
"""What the suite runs without requiring it, and this pack claims; at the wire of both revisions."""

REFUSED = {
    "auth/iss-supported-missing": "issuer_mismatch",
    "auth/iss-wrong-issuer": "issuer_mismatch",
    "auth/iss-unexpected": "issuer_mismatch",
    "auth/iss-normalized": "issuer_mismatch",
    "auth/metadata-issuer-mismatch": "issuer_mismatch",
    "auth/resource-mismatch": "resource_mismatch",
    "auth/scope-retry-limit": "insufficient_scope",
}
"""Scenarios with a server that is not to be trusted, and the cause for which the client must refuse it: one that
completes them is at fault, and so is one that gives up for another reason."""

ALONE = frozenset({"sse-retry"})
"""Judged by a delay of half a second with 0.2 to spare, which a process starting at that moment can use up."""

AT_ONCE = 2
"""Scenarios that run at once: each is a Node.js and a Python process."""

CLIENT = (sys.executable, "-m", "tests.conformance.client")


async def main(names: Sequence[str]) -> int:
    """Exit status: 0 if all hold, 1 if not, 2 if the suite cannot be run."""
    try:
        scenarios = await _wanted(names)
    except SuiteError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    folder = Path(tempfile.mkdtemp(prefix="conformance-"))
    failed = _tell(await _run(scenarios, folder))
    if not failed:
        shutil.rmtree(folder)
        return 0
    sys.stdout.write(f"\nWhat was sent and said is in {folder}\n")
    return 1


async def _wanted(names: Sequence[str]) -> list[Scenario]:
    scenarios = []
    for revision, count in REQUIRED.items():
        listed = await required(revision)
        if len(set(listed.scenarios)) != count:
            raise SuiteError(
                f"the suite lists {len(listed.scenarios)} client scenarios for {revision}, and not {count}"
            )
        if unknown := set(EXTENSIONS) - set(listed.unscored):
            raise SuiteError(f"the suite has no scenario {', '.join(sorted(unknown))} for {revision}")
        scenarios += [Scenario(name, revision) for name in listed.scenarios]
    scenarios += [Scenario(name, revision, extension=True) for name in EXTENSIONS for revision in REQUIRED]
    if unknown := set(names) - {scenario.name for scenario in scenarios}:
        raise SuiteError(f"there is no scenario {', '.join(sorted(unknown))}")
    return [scenario for scenario in scenarios if not names or scenario.name in names]


async def _run(scenarios: Sequence[Scenario], folder: Path) -> list[Run]:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(scenario: Scenario) -> Run:
        async with slots:
            done = await run(scenario, CLIENT, folder / scenario.revision / scenario.name)
            sys.stderr.write("." if not _faults(done) else "F")
            sys.stderr.flush()
            return done

    together = [scenario for scenario in scenarios if scenario.name not in ALONE]
    done = dict(zip(together, await asyncio.gather(*map(one, together)), strict=True))
    for scenario in scenarios:
        if scenario not in done:
            done[scenario] = await one(scenario)
    sys.stderr.write("\n")
    return [done[scenario] for scenario in scenarios]


def _faults(done: Run) -> list[str]:
    return faults(done, REFUSED.get(done.scenario.name))


def _tell(runs: Sequence[Run]) -> int:
    """Prints the table and the totals; says how many runs failed."""
    rows = [("scenario", "revision", "checks", "client", "verdict", "seconds")]
    for done in runs:
        failed = len(done.failed)
        rows.append(
            (
                done.scenario.name,
                done.scenario.revision,
                f"{done.passed} passed" + (f", {failed} failed" if failed else ""),
                _client(done),
                "FAILED" if _faults(done) else "ok",
                f"{done.seconds:.1f}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        _line("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    for done in runs:
        for fault in _faults(done):
            _line(f"\n{done.scenario.name} at {done.scenario.revision}: {fault}")
    _line("")
    for what, group in _groups(runs):
        held = sum(not _faults(done) for done in group)
        checks = sum(done.passed for done in group)
        _line(f"{what}: {held} of {len(group)} scenarios hold, {checks} checks passed")
    failed = sum(bool(_faults(done)) for done in runs)
    _line(f"{len(runs) - failed} passed, {failed} failed")
    return failed


def _client(done: Run) -> str:
    status = f"exit {done.client_status}"
    if done.scenario.name not in REFUSED:
        return status
    refused = done.report is not None and not done.report.completed
    return status + (", refused as it must" if refused else ", had to refuse")


def _groups(runs: Sequence[Run]) -> list[tuple[str, list[Run]]]:
    groups = [
        (f"required at {revision}", [r for r in runs if r.scenario.revision == revision and not r.scenario.extension])
        for revision in REQUIRED
    ]
    groups.append(("extensions", [r for r in runs if r.scenario.extension]))
    return [(what, group) for what, group in groups if group]


def _line(text: str) -> None:
    sys.stdout.write(text.rstrip() + "\n")


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
