"""Recorded histories: the current code replays each, its bytes are those that arrived, its log is the one it had."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import WorkflowHistory

from examples.two_calls import TwoCalls
from openwop_mcp import jsontext
from openwop_mcp.runs.records import records
from tests.replay.author import Booking
from tests.replay.record import HISTORIES, LOGS
from tests.support import exact
from tests.support.author_flows import Author
from tests.support.pack import activity_results, log_of, types
from tests.support.tool_sessions import BRACKETS, check_sessions
from workflows.replay import HistoryFileError, read_file, replay

FILES = sorted(HISTORIES.glob("*.json"))
GRAPHS = [file for file in FILES if file.stem not in {"two-calls", "effect", "author-asked", "author-doubts"}]


OF_THE_SECOND = {"gates", "questions", "sessions"}
"""Runs that the second version of the engine drove; the first did all others."""


def name_of(file: Path) -> str:
    return file.stem


def read(name: str) -> list[WorkflowHistory]:
    return read_file(HISTORIES / f"{name}.json")


@pytest.mark.parametrize("file", FILES, ids=name_of)
async def test_the_current_code_replays_a_recorded_history_and_finds_its_bytes_unchanged(file):
    verdicts = await replay(read_file(file), [TwoCalls, Booking, Author])
    assert verdicts
    for verdict in verdicts:
        assert verdict.sound, verdict.prose()


@pytest.mark.parametrize("file", GRAPHS, ids=name_of)
def test_the_log_of_a_recorded_history_is_the_one_that_was_recorded(file):
    recorded = (LOGS / f"{file.stem}.events.json").read_text(encoding="utf-8")
    events = [event.encode().decode() for event in log_of(read_file(file))]
    assert "[\n" + ",\n".join(events) + "\n]\n" == recorded


def test_every_graph_has_its_log_and_no_log_is_left_over() -> None:
    assert {file.name.removesuffix(".events.json") for file in LOGS.iterdir()} == {file.stem for file in GRAPHS}


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
        (
            "sessions",
            ["node.retried n0", "node.failed n1", "run.paused", "interrupt.resolved a", "node.completed slow"],
        ),
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


@pytest.mark.parametrize("file", GRAPHS, ids=name_of)
def test_a_log_is_told_as_the_engine_told_it_that_its_run_was_started_with(file):
    log = log_of(read_file(file))
    [engine] = {event.engine_version for event in log}
    assert jsontext.decode(log[0].payload)["engineVersion"] == engine == (2 if file.stem in OF_THE_SECOND else 1)
    check_sessions(log)
    # Gates call no tool.
    assert ({event.type for event in log} >= BRACKETS) is (engine > 1 and file.stem != "gates")


async def test_a_byte_that_was_changed_is_found_by_its_digest(tmp_path):
    value = json.loads((HISTORIES / "failed.json").read_text(encoding="utf-8"))
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
    value = json.loads((HISTORIES / "failed.json").read_text(encoding="utf-8"))
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
    value = json.loads((HISTORIES / "failed.json").read_text(encoding="utf-8"))
    damage(value["events"])
    file = tmp_path / "damaged.json"
    file.write_text(json.dumps(value), encoding="utf-8")
    with pytest.raises(HistoryFileError, match=told):
        read_file(file)


async def test_a_history_that_no_worker_has_seen_yet_is_sound(tmp_path):
    value = json.loads((HISTORIES / "failed.json").read_text(encoding="utf-8"))
    del value["events"][1:]
    file = tmp_path / "begun.json"
    file.write_text(json.dumps(value), encoding="utf-8")
    (verdict,) = await asyncio.wait_for(replay(read_file(file), []), 10)
    assert verdict.sound


@pytest.mark.parametrize("file", [*FILES, *sorted(LOGS.iterdir())], ids=lambda file: file.name)
def test_a_recorded_file_is_small_and_tells_nothing_of_a_machine(file):
    text = file.read_text(encoding="utf-8")
    assert len(text) < 200_000
    assert "stackTrace" not in text
    assert "site-packages" not in text
