"""Recorded histories: the current code replays each, its bytes are those that arrived, its log is the one it had."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory

import workflows
from examples.two_calls import TwoCalls
from openwop_mcp import jsontext
from openwop_mcp.runs.records import made_calls, records
from tests.replay.author import Booking
from tests.replay.record import HISTORIES, LOGS, VERSION
from tests.support import exact
from tests.support.author_flows import Author
from tests.support.cli import ROOT
from tests.support.pack import activity_results, log_of, types
from tests.support.patience import PATIENCE
from tests.support.tool_sessions import BRACKETS, check_sessions
from workflows import catalog, effect, run
from workflows.replay import HistoryFileError, read_file, replay

FILES = sorted(HISTORIES.glob("*/*.json"))
GRAPHS = sorted(HISTORIES / file.parent.name / file.name.replace(".events", "") for file in LOGS.glob("*/*.json"))
RELEASED = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
KINDS = {"RunWorkflow", "EffectWorkflow", "CatalogWorkflow"}
AT_RELEASE = "python -m tests.replay.record"


OF_THE_FIRST = {
    *("four-methods", "retried", "failed", "handled", "cancelled", "continued", "negotiated", "asked", "paused"),
    *("timed-out", "keyed", "killed"),
}
"""Runs of 0.1.0 that the first version of the engine drove."""

OF_THE_THIRD = {"escaped"}
"""Those that the third drove. The second did all others."""


def name_of(file: Path) -> str:
    return f"{file.parent.name} {file.stem}"


def read(name: str, version: str = VERSION) -> list[WorkflowHistory]:
    return read_file(HISTORIES / version / f"{name}.json")


def kind_of(history: WorkflowHistory) -> str:
    return history.events[0].workflow_execution_started_event_attributes.workflow_type.name


def test_every_workflow_of_the_pack_is_among_those_that_have_to_be_recorded() -> None:
    assert set(workflows.__all__) == KINDS


def test_every_version_that_was_released_has_recorded_histories_and_so_has_this_one() -> None:
    assert {file.name for file in HISTORIES.iterdir()} == {*RELEASED, VERSION}, AT_RELEASE


@pytest.mark.parametrize("version", RELEASED)
def test_every_workflow_type_has_a_history_of_every_version_that_was_released(version):
    kinds = {kind_of(read_file(file)[0]) for file in (HISTORIES / version).glob("*.json")}
    assert kinds >= KINDS, AT_RELEASE


async def slept(*_: object) -> None:
    await workflow.sleep(1)


@pytest.mark.parametrize(
    ("name", "patched", "function"),
    [
        ("four-methods", run.RunWorkflow, "_schedule"),
        ("effect", effect, "attempted"),
        ("catalog", catalog.CatalogWorkflow, "_refresh"),
    ],
)
async def test_code_that_does_the_same_in_another_order_does_not_replay_what_was_recorded(
    name, patched, function, monkeypatch
):
    does = getattr(patched, function)

    def begun(*given: Any) -> Any:
        # A timer before what was always first.
        timer = asyncio.ensure_future(slept())

        async def late() -> Any:
            await timer
            return await does(*given)

        return asyncio.ensure_future(late())

    history = read(name)[:1]
    [sound] = await replay(history, [])
    assert sound.divergence is None
    monkeypatch.setattr(patched, function, begun)
    [broken] = await replay(history, [])
    assert broken.divergence is not None
    assert "timer" in broken.divergence.lower()


@pytest.mark.parametrize("file", FILES, ids=name_of)
async def test_the_current_code_replays_a_recorded_history_and_finds_its_bytes_unchanged(file):
    verdicts = await replay(read_file(file), [TwoCalls, Booking, Author])
    assert verdicts
    for verdict in verdicts:
        assert verdict.sound, verdict.prose()


@pytest.mark.parametrize("file", GRAPHS, ids=name_of)
def test_the_log_of_a_recorded_history_is_the_one_that_was_recorded(file):
    recorded = (LOGS / file.parent.name / f"{file.stem}.events.json").read_text(encoding="utf-8")
    events = [event.encode().decode() for event in log_of(read_file(file))]
    assert "[\n" + ",\n".join(events) + "\n]\n" == recorded


def test_every_graph_has_its_log_and_no_log_is_left_over() -> None:
    assert [file for file in FILES if kind_of(read_file(file)[0]) == "RunWorkflow"] == GRAPHS


@pytest.mark.parametrize(
    ("name", "happens"),
    [
        ("four-methods", ["run.completed"]),
        ("retried", ["node.retried a", "node.completed b", "run.completed"]),
        ("failed", ["node.failed bad", "node.skipped never", "node.completed next", "run.failed"]),
        ("handled", ["node.failed bad", "node.skipped well", "node.completed end", "run.completed"]),
        ("cancelled", ["node.cancelled write-stalls", "node.completed quick", "run.cancelled"]),
        ("continued", ["node.completed aside", "run.completed"]),
        ("negotiated", ["negotiation.decided fake-0", "negotiation.decided older-2", "node.failed bad", "run.failed"]),
        ("asked", ["node.suspended a", "interrupt.resolved a", "node.completed a", "run.completed"]),
        (
            "gates",
            ["node.completed approve", "node.completed ask", "node.completed paid", "node.failed late", "run.failed"],
        ),
        (
            "questions",
            ["node.suspended a", "node.failed late", "node.completed b", "node.completed a", "run.failed"],
        ),
        ("paused", ["run.paused", "run.resumed", "node.failed write", "node.completed after", "run.failed"]),
        ("timed-out", ["cap.breached", "node.completed a", "node.cancelled wait", "run.failed"]),
        ("keyed", ["node.completed a", "run.completed"]),
        ("classes", ["node.completed own", "node.completed apart", "node.completed keyed", "run.completed"]),
        (
            "sessions",
            ["node.retried n0", "node.failed n1", "run.paused", "interrupt.resolved a", "node.completed slow"],
        ),
        ("postponed", ["node.retried b", "node.completed b", "run.completed"]),
        ("escaped", ["node.retried a", "node.failed a", "run.failed"]),
        ("killed", ["node.retried read-stalls", "node.failed write-stalls", "node.completed after", "run.failed"]),
    ],
)
def test_each_history_is_of_what_it_is_named_for(name, happens):
    assert set(happens) <= set(types(log_of(read(name))))


def test_the_recorded_results_are_those_that_were_sent() -> None:
    health = b'{"state":"reachable","discover":' + exact.DISCOVERED + b"}"
    told = sorted(payload.data for payload in activity_results(read("four-methods")))
    assert told == sorted([exact.RESULT, exact.RESULT, exact.PAGE, exact.RESOURCE, health])
    assert len(records(read("two-calls")[0].events)) == 2
    assert len(read("continued")) > 1
    assert len(read("catalog")) > 1


def test_the_calls_of_a_class_were_made_on_its_queue() -> None:
    found = [record for name in ("classes", "effect-in-class") for record in activities(read(name))]
    assert [(one.activity_type.name, one.task_queue.name) for one in found] == [
        ("community.mcp.call-tool", "openwop-mcp"),
        *[("community.mcp.call-tool", "openwop-mcp-class-slow")] * 2,
        ("effect.callTool", "openwop-mcp-class-slow"),
    ]


@pytest.mark.parametrize("name", ["postponed", "author-postponed"])
def test_calls_waited_for_room_before_they_were_made_that_of_a_run_over_more_than_one_history(name):
    found = read(name)
    waited = [one for one in made_calls([history.events for history in found]) if one.postponed]
    assert waited
    for one in waited:
        assert (one.outcome, one.waited, one.attempts) == ("ok", 0, 1 + one.postponed)
    started = [history.events[0].workflow_execution_started_event_attributes.input for history in found]
    assert any(b'"parked"' in payload.data for input_ in started for payload in input_.payloads) is (len(found) > 1)


@pytest.mark.parametrize(("name", "calls"), [("author-cancel-unheard", 2), ("author-cancelled", 1)])
def test_a_workflow_that_was_cancelled_in_a_call_with_a_result_made_so_many_calls(name, calls):
    [history] = found = read(name)
    assert len(activities(found)) == len(activity_results(history)) == calls
    assert any(event.HasField("workflow_execution_cancel_requested_event_attributes") for event in history.events)
    assert history.events[-1].HasField("workflow_execution_canceled_event_attributes") is (calls == 1)


@pytest.mark.parametrize("name", ["escaped", "author-escaped"])
def test_a_call_is_told_in_the_light_of_an_attempt_that_may_have_had_its_effect(name):
    (made,) = made_calls([history.events for history in read(name)])
    assert made.failure is not None
    assert (made.failure.code, made.failure.happened.delivery) == ("rate_limited", "unknown")


def test_whoever_insisted_while_the_first_list_was_under_way_had_another_one():
    assert len(activity_results(read("catalog-insisted"))) == 2


def activities(histories: list[WorkflowHistory]) -> list[Any]:
    return [
        event.activity_task_scheduled_event_attributes
        for history in histories
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    ]


@pytest.mark.parametrize("file", GRAPHS, ids=name_of)
def test_a_log_is_told_as_the_engine_told_it_that_its_run_was_started_with(file):
    log = log_of(read_file(file))
    [engine] = {event.engine_version for event in log}
    assert jsontext.decode(log[0].payload)["engineVersion"] == engine
    if file.parent.name == "0.1.0":
        assert engine == (1 if file.stem in OF_THE_FIRST else 3 if file.stem in OF_THE_THIRD else 2)
    check_sessions(log)
    # Gates call no tool.
    assert ({event.type for event in log} >= BRACKETS) is (engine > 1 and file.stem != "gates")


async def test_a_byte_that_was_changed_is_found_by_its_digest(tmp_path):
    value = json.loads((HISTORIES / VERSION / "failed.json").read_text(encoding="utf-8"))
    (done,) = [event for event in value["events"] if "activityTaskCompletedEventAttributes" in event]
    payload: dict[str, Any] = done["activityTaskCompletedEventAttributes"]["result"]["payloads"][0]
    payload["data"] = "e30="
    file = tmp_path / "changed.json"
    file.write_text(json.dumps(value), encoding="utf-8")
    (verdict,) = await replay(read_file(file), [])
    assert not verdict.sound
    assert len(verdict.changed) == 1
    assert verdict.divergence is None


async def test_a_digest_that_was_taken_out_counts_as_a_change(tmp_path):
    value = json.loads((HISTORIES / VERSION / "failed.json").read_text(encoding="utf-8"))
    (done,) = [event for event in value["events"] if "activityTaskCompletedEventAttributes" in event]
    del done["activityTaskCompletedEventAttributes"]["result"]["payloads"][0]["metadata"]["openwop-mcp.sha256"]
    file = tmp_path / "without.json"
    file.write_text(json.dumps(value), encoding="utf-8")
    (verdict,) = await replay(read_file(file), [])
    assert len(verdict.changed) == 1


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda events: events.pop(4), "event 5 is missing"),
        (lambda events: events.insert(2, events.pop(3)), "event 3 is missing"),
        (lambda events: events[0]["workflowExecutionStartedEventAttributes"].pop("workflowType"), "a workflow type"),
        (lambda events: events[0]["workflowExecutionStartedEventAttributes"].pop("taskQueue"), "a task queue"),
        (lambda events: events[3].update(eventType="EVENT_TYPE_TIMER_FIRED"), "how the workflow task of event 3 ended"),
    ],
)
def test_a_history_that_no_replay_would_come_back_from_is_refused(tmp_path, damage, told):
    value = json.loads((HISTORIES / VERSION / "failed.json").read_text(encoding="utf-8"))
    damage(value["events"])
    file = tmp_path / "damaged.json"
    file.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(HistoryFileError, match=told):
        read_file(file)


async def test_a_history_that_no_worker_has_seen_yet_is_sound(tmp_path):
    value = json.loads((HISTORIES / VERSION / "failed.json").read_text(encoding="utf-8"))
    del value["events"][1:]
    file = tmp_path / "begun.json"
    file.write_text(json.dumps(value), encoding="utf-8")
    (verdict,) = await asyncio.wait_for(replay(read_file(file), []), PATIENCE)
    assert verdict.sound


@pytest.mark.parametrize("file", [*FILES, *sorted(LOGS.glob("*/*.json"))], ids=lambda file: file.name)
def test_a_recorded_file_is_small_and_tells_nothing_of_a_machine(file):
    text = file.read_text(encoding="utf-8")
    assert len(text) < 200_000
    assert "stackTrace" not in text
    assert "site-packages" not in text
