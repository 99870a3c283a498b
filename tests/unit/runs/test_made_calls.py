"""What a history says of its calls, whatever became of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.api.common.v1 import ActivityType, Payload
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.update.v1 import Request

from openwop_mcp.calls import CallRequest, record
from openwop_mcp.failures import json_payload
from openwop_mcp.nodes import NodeCall
from openwop_mcp.questions.question import interrupt_id
from openwop_mcp.runs.interrupts import RESOLVE, Resolution
from openwop_mcp.runs.records import made_calls, run_failure
from tests.support.call_failures import call_failure
from tests.support.temporal_model import BEGINNING, event

CALL_TOOL = "community.mcp.call-tool"


class History:
    """A history that is written down event by event."""

    def __init__(self) -> None:
        self.events: list[HistoryEvent] = []

    def add(self, name: str, **attributes: Any) -> int:
        self.events.append(event(len(self.events) + 1, name, BEGINNING, **attributes))
        return len(self.events)

    def schedule(self, activity_id: str, kind: str, *payloads: bytes) -> int:
        return self.add(
            "activity_task_scheduled",
            activity_id=activity_id,
            activity_type=ActivityType(name=kind),
            task_queue=TaskQueue(name="q"),
            input=list(payloads),
        )

    def node(self, attempt: int = 1, name: str = "a") -> int:
        config = b'{"serverId":"s","name":"t"}'
        return self.schedule(f"{name}:{attempt}", CALL_TOOL, NodeCall(name, "acme", attempt, config).encode(), b"{}")

    def author(self, activity_id: str = "1", attempt: int = 1) -> int:
        request = CallRequest("callTool", "s", name="t", attempt=attempt)
        return self.schedule(activity_id, "mcp.callTool", request.encode(), b"null")

    def fail(self, scheduled: int, failure: Failure) -> None:
        self.add("activity_task_failed", scheduled_event_id=scheduled, failure=failure)

    def complete(self, scheduled: int, result: bytes | Payload) -> None:
        self.add("activity_task_completed", scheduled_event_id=scheduled, result=[result])


@pytest.fixture
def history() -> History:
    return History()


def outcomes(*parts: History) -> list[tuple[str, str, int]]:
    return [(call.name, call.outcome, call.attempts) for call in made_calls(part.events for part in parts)]


def test_a_call_says_what_was_asked_of_whom_and_where_it_waits(history: History) -> None:
    history.node()
    [call] = made_calls([history.events])
    assert (call.server_id, call.method, call.subject, call.task_queue) == ("s", "tools/call", "t", "q")
    assert (call.outcome, call.record, call.failure) == ("running", None, None)


def test_the_attempts_of_a_node_are_one_call_that_ends_as_the_last_one_did(history: History) -> None:
    history.fail(history.node(1), call_failure())
    assert outcomes(history) == [("a", "retrying", 1)]
    history.complete(history.node(2), b'{"content":[]}')
    assert outcomes(history) == [("a", "ok", 2)]


def test_each_attempt_of_an_authors_call_stands_by_itself(history: History) -> None:
    history.fail(history.author("1"), call_failure())
    history.complete(history.author("2", attempt=2), b'{"content":[],"isError":true}')
    history.add("workflow_execution_completed")
    assert outcomes(history) == [("1", "failed", 1), ("2", "isError", 2)]


def test_a_call_that_used_up_its_attempts_failed_and_says_which_setting_ended_it(history: History) -> None:
    for attempt in (1, 2):
        history.fail(history.node(attempt), call_failure(attempts=2))
    [call] = made_calls([history.events])
    assert (call.outcome, call.attempts) == ("failed", 2)
    assert call.failure is not None
    assert call.failure.code == "upstream_unavailable"
    assert "retry.attempts" in call.failure.message


def test_a_call_whose_last_attempt_was_not_sent_may_have_happened_by_one_before(history: History) -> None:
    history.fail(history.node(1), call_failure(attempts=2, delivery="unknown", effectId="acme/a"))
    history.fail(history.node(2), call_failure(attempts=2))
    [call] = made_calls([history.events])
    assert (call.outcome, call.attempts) == ("failed", 2)
    assert call.failure is not None
    assert call.failure.happened.delivery == "unknown"
    assert "the effect may have happened" in call.failure.message


def test_an_unknown_outcome_that_must_not_be_repeated_is_in_doubt(history: History) -> None:
    history.fail(history.node(), call_failure(delivery="unknown", repeat_safe=False))
    [call] = made_calls([history.events])
    assert call.outcome == "inDoubt"
    assert call.failure is not None
    assert "the effect may have happened" in call.failure.message


def test_a_worker_that_was_lost_is_told_as_such(history: History) -> None:
    failure = Failure(message="activity Heartbeat timeout")
    failure.timeout_failure_info.timeout_type = 4
    claim = {"delivery": "unknown", "repeatSafe": False, "retry": {"attempts": 1, "maxWait": 1, "total": 1}}
    failure.timeout_failure_info.last_heartbeat_details.payloads.append(json_payload(json.dumps(claim).encode()))
    history.add("activity_task_timed_out", scheduled_event_id=history.node(), failure=failure)
    assert outcomes(history) == [("a", "inDoubt", 1)]


def test_a_worker_that_was_lost_leaves_how_far_the_call_was(history: History) -> None:
    failure = Failure(message="activity Heartbeat timeout")
    failure.timeout_failure_info.timeout_type = 4
    beat = {"delivery": "unknown", "repeatSafe": False, "progress": {"progress": 3, "total": 10, "message": "page 3"}}
    failure.timeout_failure_info.last_heartbeat_details.payloads.append(json_payload(json.dumps(beat).encode()))
    history.add("activity_task_timed_out", scheduled_event_id=history.node(), failure=failure)
    [call] = made_calls([history.events])
    assert call.failure is not None
    assert json.loads(call.failure.details)["progress"] == beat["progress"]


@pytest.mark.parametrize(("started", "delivery"), [(0, "not_sent"), (7, "unknown")])
def test_a_cancelled_call_was_not_sent_where_no_worker_had_taken_it(
    history: History, started: int, delivery: str
) -> None:
    history.add("activity_task_canceled", scheduled_event_id=history.node(), started_event_id=started)
    [call] = made_calls([history.events])
    assert call.failure is not None
    assert (call.outcome, call.failure.happened.delivery.value) == ("cancelled", delivery)


@pytest.mark.parametrize(("failed", "outcome"), [(False, "cancelled"), (True, "failed")])
def test_nothing_goes_on_after_the_end_of_its_run(history: History, failed: bool, outcome: str) -> None:
    scheduled = history.node()
    if failed:
        history.fail(scheduled, call_failure())
    history.add("workflow_execution_terminated")
    assert outcomes(history) == [("a", outcome, 1)]


def test_a_call_goes_on_through_a_continue_as_new_and_activity_ids_begin_anew() -> None:
    first, second = History(), History()
    first.author("1")
    first.fail(first.node(1), call_failure())
    first.add("workflow_execution_continued_as_new")
    second.author("1")
    second.complete(second.node(2), b"{}")
    assert outcomes(first, second) == [("1", "running", 1), ("a", "ok", 2), ("1", "running", 1)]


def test_what_a_codec_has_made_unreadable_is_listed_without_what_was_asked(history: History) -> None:
    history.complete(history.schedule("1", "mcp.listTools", b"\x00", b"\x00"), b"{}")
    [call] = made_calls([history.events])
    assert (call.method, call.server_id, call.outcome) == ("tools/list", "", "ok")
    assert call.record is not None
    assert not call.record.intact


def test_activities_of_others_are_no_calls(history: History) -> None:
    history.complete(history.schedule("1", "charge_card", b"{}"), b"{}")
    assert outcomes(history) == []


def test_an_authors_workflow_that_let_a_call_fail_has_the_calls_code_and_any_other_its_errors_name(
    history: History,
) -> None:
    history.add("workflow_execution_failed", failure=call_failure(code="mcp_error", message="no such city"))
    told = run_failure(history.events[-1])
    assert told is not None
    assert told[:2] == ("mcp_error", "no such city")
    other = Failure(message="bad")
    other.application_failure_info.type = "ValueError"
    history.add("workflow_execution_failed", failure=other)
    assert run_failure(history.events[-1]) == ("internal_error", "ValueError: bad", b"{}")
    history.add("workflow_execution_timed_out")
    told = run_failure(history.events[-1])
    assert told is not None
    assert told[0] == "run_timeout"
    history.add("workflow_execution_completed")
    assert run_failure(history.events[-1]) is None


ASKED = b'{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create"}},"requestState":"s"}'


def test_each_round_counts_its_own_attempts(history: History) -> None:
    history.fail(history.node(1), call_failure(attempts=2))
    history.complete(history.node(2), record(ASKED, {"interim": "input", "round": "1"}))
    assert outcomes(history) == [("a", "suspended", 2)]
    history.fail(history.node(3), call_failure(attempts=2))
    assert outcomes(history) == [("a", "retrying", 3)]
    history.fail(history.node(4), call_failure(attempts=2))
    assert outcomes(history) == [("a", "failed", 4)]


@pytest.mark.parametrize("word", ["input", "approval"])
def test_what_waits_for_a_person_is_suspended_and_ends_with_its_run(history: History, word: str) -> None:
    asks = record(ASKED if word == "input" else b'{"safetyTier":"write"}', {"interim": word})
    history.complete(history.node(1), asks)
    [call] = made_calls([history.events])
    assert (call.outcome, call.record, call.asks and call.asks.raw) == ("suspended", None, asks.data)
    history.add("workflow_execution_canceled")
    assert outcomes(history) == [("a", "cancelled", 1)]


@pytest.mark.parametrize(
    ("word", "ended"),
    [
        ("approval", ("failed", "approval_rejected", "not_sent")),
        ("input", ("failed", "interrupt_expired", "answered")),
    ],
)
def test_what_nobody_gave_before_its_workflow_went_on_to_its_end_failed_with_that(
    history: History, word: str, ended: tuple[str, str, str]
) -> None:
    history.complete(history.author(), record(ASKED, {"interim": word}))
    history.add("workflow_execution_completed")
    [call] = made_calls([history.events])
    assert call.failure is not None
    assert (call.outcome, call.failure.code, call.failure.happened.delivery.value) == ended


def test_a_call_that_waited_for_its_approval_when_its_run_was_cancelled_was_not_sent(history: History) -> None:
    history.complete(history.node(1), record(b"{}", {"interim": "approval"}))
    history.add("workflow_execution_canceled")
    [call] = made_calls([history.events])
    assert call.failure is not None
    assert (call.failure.code, call.failure.happened.delivery.value) == ("run_cancelled", "not_sent")


def test_an_authors_call_is_rejected_by_the_answer_to_its_own_approval_and_by_no_other(history: History) -> None:
    history.add("workflow_execution_started", workflow_id="w", original_execution_run_id="r")
    history.complete(history.author("7"), record(b'{"effectId":"acme/e"}', {"interim": "approval"}))

    def answer(key: str, action: str) -> None:
        identity = interrupt_id("acme", "w\nr", key)
        resolution = Resolution(identity, json.dumps({"action": action}).encode(), b"{}")
        request = Request()
        request.input.name = RESOLVE
        request.input.args.payloads.append(json_payload(resolution.encode()))
        history.add("workflow_execution_update_accepted", accepted_request=request)

    answer("approval:8:1", "reject")
    answer("approval:7:1", "accept")
    assert outcomes(history) == [("7", "suspended", 1)]
    answer("approval:7:1", "reject")
    [call] = made_calls([history.events])
    assert call.failure is not None
    assert (call.outcome, call.failure.code) == ("failed", "approval_rejected")


def test_what_was_asked_first_is_no_attempt_and_is_told_apart(history: History) -> None:
    for attempt, word in enumerate(("approval", "input"), 1):
        history.complete(history.node(attempt), record(ASKED, {"interim": word}))
        [call] = made_calls([history.events])
        assert (call.tries, len(call.rounds)) == (1, attempt - 1)
    history.fail(history.node(3), call_failure())
    history.complete(
        history.node(4), record(b'{"resultType":"input_required","requestState":"s"}', {"interim": "input"})
    )
    history.complete(history.node(5), b"{}")
    [call] = made_calls([history.events])
    assert (call.attempts, call.tries, call.rounds) == (5, 2, ("approval", "input", "again"))


def test_a_server_that_only_wants_to_be_called_again_waits_for_nobody(history: History) -> None:
    state_only = b'{"resultType":"input_required","requestState":"s"}'
    history.complete(history.node(1), record(state_only, {"interim": "input"}))
    assert outcomes(history) == [("a", "retrying", 1)]
