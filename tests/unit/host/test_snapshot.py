"""Snapshots: the fold of a log, event by event."""

from __future__ import annotations

import json
from typing import Any

import pytest

from host.snapshot import RunView, Waiting
from openwop_mcp.runs.engines import ENGINE_VERSION
from openwop_mcp.runs.events import RunEvent, timestamp
from tests.support.call_failures import call_failure, in_doubt
from tests.support.exact import ARGUMENTS
from tests.support.graphs import OWNER, RUN_ID, node, start, workflow
from tests.support.temporal_model import TemporalModel


def model(*node_ids: str, inputs: bytes = b"{}", **members: Any) -> TemporalModel:
    return TemporalModel(start(workflow([node(node_id) for node_id in node_ids]), **members), inputs)


def log(run: TemporalModel) -> list[RunEvent]:
    return [
        RunEvent(f"generation-{sequence}", RUN_ID, event_type, payload, timestamp(at), sequence, node_id)
        for sequence, event_type, node_id, payload, at in run.log
    ]


def view(run: TemporalModel, *more: RunEvent) -> RunView:
    made = RunView(run.start)
    made.take([*log(run), *more])
    return made


def shown(run: RunView, *, cancelling: bool = False) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(run.encode(cancelling=cancelling))
    return decoded


def asked(sequence: int, interrupt_id: str, kind: str, node_id: str) -> RunEvent:
    payload = json.dumps({"nodeId": node_id, "interruptId": interrupt_id, "kind": kind}).encode()
    return RunEvent(f"generation-{sequence}", RUN_ID, "node.suspended", payload, timestamp(0), sequence, node_id)


def told(sequence: int, event_type: str, payload: bytes = b"{}", node_id: str | None = None) -> RunEvent:
    return RunEvent(f"generation-{sequence}", RUN_ID, event_type, payload, timestamp(0), sequence, node_id)


def test_a_run_whose_log_has_not_begun_is_pending_and_shows_what_it_was_started_with() -> None:
    pending = RunView(start(workflow([node("a")]), tags=("x",), metadata=b'{"n":1.10}'))
    assert shown(pending) == {
        "runId": RUN_ID,
        "workflowId": "flow",
        "status": "pending",
        "owner": {"tenant": "acme", "subject": OWNER.subject},
        "eventLogSchemaVersion": 3,
        "engineVersion": ENGINE_VERSION,
        "tags": ["x"],
        "metadata": {"n": 1.1},
    }
    assert pending.last_sequence == -1
    assert not pending.is_terminal


def test_a_run_under_way_is_running_and_one_that_is_over_says_when() -> None:
    run = model("a")
    assert (shown(view(run))["status"], shown(view(run)).get("completedAt")) == ("running", None)
    run.now += 1500
    run.succeed(run.ordinal("a"))
    run.task()
    done = view(run)
    assert done.is_terminal
    assert done.last_sequence == len(run.log) - 1
    assert shown(done)["status"] == "completed"
    assert (shown(done)["startedAt"], shown(done)["completedAt"]) == (log(run)[0].timestamp, log(run)[-1].timestamp)
    assert "error" not in shown(done)


def test_inputs_metadata_and_configurable_are_the_bytes_that_were_posted() -> None:
    run = model("a", inputs=ARGUMENTS, metadata=ARGUMENTS, configurable=b'{ "version":1 }')
    made = RunView(run.start)
    made.take(log(run))
    assert b'"inputs":' + ARGUMENTS in made.encode()
    assert b'"metadata":' + ARGUMENTS in made.encode()
    assert b'"configurable":{ "version":1 }' in made.encode()


def test_what_is_large_in_a_snapshot_is_the_same_bytes_for_all_who_read_it() -> None:
    run = model("a", inputs=b'{"a":"%b"}' % (b"x" * 100_000))
    made = RunView(run.start)
    made.take(log(run))
    one, other = ([part for part in made.parts() if len(part) > 50_000] for _ in range(2))
    assert len(one) == 1
    assert one[0] is other[0]


def test_inputs_that_the_log_masks_are_masked() -> None:
    masked = RunView(start(workflow([node("a")])))
    masked.take([told(0, "run.started", b'{"workflowId":"flow","inputs":{"key":"[masked]"},"tags":[],"metadata":{}}')])
    assert shown(masked)["inputs"] == {"key": "[masked]"}


def test_a_failed_run_says_why_in_the_closed_shape() -> None:
    run = model("a")
    run.fail(run.ordinal("a"), call_failure(retryable=False))
    run.task()
    failed = shown(view(run))
    event = json.loads(run.log[-1][3])["error"]
    assert failed["status"] == "failed"
    assert failed["error"] == {name: event[name] for name in ("code", "message", "details")}
    retryable = told(1, "run.failed", b'{"error":{"code":"mcp_error","message":"no","retryable":true}}')
    assert shown(view(model("a"), retryable))["error"] == {"code": "mcp_error", "message": "no"}


def test_details_of_a_failure_are_exact() -> None:
    failed = view(
        model("a"), told(2, "run.failed", b'{"error":{"code":"x","message":"m","details":' + ARGUMENTS + b"}}")
    )
    assert b'"details":' + ARGUMENTS in failed.encode()


def test_a_cancelled_run_has_no_error_and_is_cancelling_until_then() -> None:
    run = model("a")
    assert shown(view(run), cancelling=True)["status"] == "cancelling"
    run.request_cancel()
    run.task()
    run.cancelled(run.ordinal("a"))
    run.task()
    over = shown(view(run), cancelling=True)
    assert over["status"] == "cancelled"
    assert "error" not in over


def test_a_run_that_asks_waits_with_its_node_until_it_is_answered() -> None:
    run = model("a")
    run.fail(run.ordinal("a"), in_doubt(effectId="acme/a", attempt=1))
    run.task()
    waiting = view(run)
    assert (waiting.status(), shown(waiting)["currentNodeId"]) == ("waiting-approval", "a")
    run.answer("a", b'{"action":"accept"}')
    run.task()
    answered = view(run)
    assert answered.status() == "running"
    assert "currentNodeId" not in shown(answered)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("approval", "waiting-approval"),
        ("clarification", "waiting-input"),
        ("custom", "waiting-input"),
        ("external-event", "waiting-external"),
    ],
)
def test_the_kind_of_a_question_tells_what_a_run_waits_for(kind: str, status: str) -> None:
    assert view(model("a"), asked(2, "acme/i", kind, "a")).status() == status


def test_of_two_questions_the_older_one_is_shown_and_then_the_other() -> None:
    waiting = view(model("a", "b"), asked(3, "acme/i", "approval", "a"), asked(4, "acme/j", "clarification", "b"))
    assert (waiting.status(), shown(waiting)["currentNodeId"]) == ("waiting-approval", "a")
    waiting.take([told(5, "interrupt.resolved", b'{"interruptId":"acme/i"}', "a")])
    assert (waiting.status(), shown(waiting)["currentNodeId"]) == ("waiting-input", "b")


def test_what_waits_is_found_by_its_node_and_by_its_interrupt() -> None:
    question = RunEvent("generation-2", RUN_ID, "interrupt.requested", b"{}", timestamp(0), 2, "a")
    waiting = view(model("a", "b"), question, asked(3, "acme/i", "approval", "a"))
    found = waiting.waiting_at("a")
    assert found == Waiting("acme/i", "a", "waiting-approval", 2)
    assert waiting.waiting_with("acme/i") == found
    assert waiting.waiting_at("b") is waiting.waiting_with("acme/j") is None
    assert (waiting.has_asked("a"), waiting.has_asked("b")) == (True, False)
    waiting.take([told(4, "node.cancelled", b"{}", "b"), told(5, "node.cancelled", b"{}", "a")])
    assert waiting.waiting_at("a") is waiting.waiting_with("acme/i") is None
    assert (waiting.has_asked("a"), waiting.status()) == (True, "running")


def test_nodes_that_wait_with_one_interrupt_are_answered_one_by_one() -> None:
    waiting = view(model("a", "b"), asked(2, "acme/i", "approval", "a"), asked(3, "acme/i", "approval", "b"))
    waiting.take([told(4, "interrupt.resolved", b'{"interruptId":"acme/i"}', "a")])
    assert waiting.waiting_at("a") is None
    assert waiting.waiting_at("b") == waiting.waiting_with("acme/i")


def test_a_run_that_has_ended_waits_with_nothing() -> None:
    over = view(model("a"), asked(2, "acme/i", "approval", "a"), told(3, "run.cancelled"))
    assert over.waiting_at("a") is over.waiting_with("acme/i") is None
    assert over.has_asked("a")


def test_a_paused_run_is_paused_though_it_asks_and_asks_again_once_it_goes_on() -> None:
    paused = view(model("a"), asked(2, "acme/i", "approval", "a"), told(3, "run.paused"))
    assert paused.status() == "paused"
    assert "currentNodeId" not in shown(paused)
    assert paused.status(cancelling=True) == "cancelling"
    paused.take([told(4, "run.resumed")])
    assert paused.status() == "waiting-approval"


def test_taking_a_log_in_parts_is_taking_it_whole() -> None:
    run = model("a", "b", inputs=ARGUMENTS)
    run.fail(run.ordinal("a"), in_doubt(effectId="acme/a", attempt=1))
    run.task()
    run.answer("a", b'{"action":"reject"}')
    run.succeed(run.ordinal("b"))
    run.task()
    parts = RunView(run.start)
    for event in log(run):
        parts.take([event])
    assert parts.encode() == view(run).encode()
    assert parts.etag() == view(run).etag()


def test_a_tag_changes_with_every_event_with_a_cancel_and_with_a_reset() -> None:
    run = model("a")
    run.succeed(run.ordinal("a"))
    run.task()
    tags = [RunView(run.start).etag()]
    growing = RunView(run.start)
    for event in log(run):
        growing.take([event])
        tags.append(growing.etag())
    assert len(set(tags)) == len(run.log) + 1
    assert all(tag.startswith('"') and tag.endswith('"') for tag in tags)
    begun = view(model("a"))
    assert begun.etag(cancelling=True) != begun.etag() == view(model("a")).etag()
    reset = RunView(run.start)
    reset.take([RunEvent("other-0", RUN_ID, "run.started", log(run)[0].payload, timestamp(0), 0)])
    first = RunView(run.start)
    first.take(log(run)[:1])
    assert reset.etag() != first.etag()
