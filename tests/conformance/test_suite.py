from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.conformance.report import Report
from tests.conformance.suite import Check, Run, Scenario, faults, run
from tests.support.tools import CONFORMANCE

COMPLETED = Report(completed=True)
REFUSED = Report(completed=False, cause="issuer_mismatch", message="iss is another one")

HOLDS = Run(
    scenario=Scenario("tools_call", "2026-07-28"),
    checks=[Check("called", "SUCCESS", ""), Check("prompts", "SKIPPED", "not asked for"), Check("sent", "INFO", "")],
    suite_status=0,
    client_status=0,
    report=COMPLETED,
    seconds=1.0,
)


@pytest.fixture
def suite() -> None:
    if reason := CONFORMANCE.missing():
        pytest.skip(reason)


def test_a_run_with_a_passed_check_and_a_client_that_completed_holds() -> None:
    assert faults(HOLDS, None) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"checks": []}, "checked nothing"),
        ({"checks": [Check("prompts", "SKIPPED", "")]}, "checked nothing"),
        ({"checks": [*HOLDS.checks, Check("timing", "WARNING", "late")]}, "timing: warning: late"),
        ({"checks": [*HOLDS.checks, Check("id", "FAILURE", "reused")]}, "id: failure: reused"),
        ({"suite_status": 1}, "exit status 1"),
        ({"report": None}, "did not say how it ended"),
        ({"client_status": 1}, "'completed' and ended with exit status 1"),
        ({"report": REFUSED}, "exit status 0"),
        ({"report": REFUSED, "client_status": 1}, "the client ended with: issuer_mismatch"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_run_does_not_hold_if(change: dict[str, object], says: str) -> None:
    (fault,) = faults(dataclasses.replace(HOLDS, **change), None)
    assert says in fault


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, "completed what it had to refuse"),
        ({"report": Report(False, "ConnectError", "no route"), "client_status": 1}, "not for 'issuer_mismatch'"),
        ({"report": None, "client_status": 1}, "did not say how it ended"),
    ],
    ids=["it completed", "its reason was another", "it said none"],
)
def test_a_client_that_had_to_refuse_is_at_fault_if(change: dict[str, object], says: str) -> None:
    (fault,) = faults(dataclasses.replace(HOLDS, **change), "issuer_mismatch")
    assert says in fault


def test_a_client_that_had_to_refuse_and_did_so_for_the_reason_that_was_given_is_right() -> None:
    assert faults(dataclasses.replace(HOLDS, report=REFUSED, client_status=1), "issuer_mismatch") == []


@pytest.mark.parametrize("output", ["", "ended", '{"report": 1}', '{"report": {"completed": true}}\nTraceback', "[]"])
def test_an_output_that_does_not_end_with_a_report_has_none(output: str) -> None:
    assert Report.last_of(output) is None


@pytest.mark.parametrize("report", [COMPLETED, REFUSED], ids=str)
def test_a_report_is_read_as_it_was_written(report: Report) -> None:
    assert Report.last_of(f"noise\n{report.line()}\n") == report


@pytest.mark.usefixtures("suite")
@pytest.mark.parametrize("client", ["true", "exit 3", "kill -KILL $$"], ids=["does nothing", "fails", "is killed"])
async def test_a_client_passes_nothing_if_it(client: str, tmp_path: Path) -> None:
    done = await run(Scenario("http-standard-headers", "2026-07-28"), ["sh", "-c", client], tmp_path)
    assert "the suite checked nothing" in faults(done, None)
    assert "the client did not say how it ended" in faults(done, None)


@pytest.mark.usefixtures("suite")
async def test_the_exit_status_of_the_client_is_its_own(tmp_path: Path) -> None:
    done = await run(Scenario("tools_call", "2025-11-25"), ["sh", "-c", "exit 3"], tmp_path)
    assert done.client_status == 3
