"""The effect ledger: what a history says of each attempt at each effect."""

from __future__ import annotations

import json
from typing import Any

import pytest
from temporalio.api.common.v1 import ActivityType, Payload
from temporalio.api.enums.v1 import TimeoutType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent

from openwop_mcp.calls import CallRequest, Input, record
from openwop_mcp.failures import json_payload
from openwop_mcp.nodes import NodeCall
from openwop_mcp.runs.ledger import EffectAttempt, effect_attempts
from tests.support.call_failures import call_failure
from tests.support.temporal_model import BEGINNING, event

WORKFLOW = "acme/flow"
PARTS = [f"00000000-0000-4000-8000-00000000000{number}" for number in range(3)]


class History:
    """The history of one part of a workflow, event by event."""

    def __init__(self, part: str = PARTS[0]) -> None:
        self.events: list[HistoryEvent] = []
        self.add("workflow_execution_started", original_execution_run_id=part)

    def add(self, name: str, **attributes: Any) -> int:
        number = len(self.events) + 1
        self.events.append(event(number, name, BEGINNING + number, **attributes))
        return number

    def scheduled(self, kind: str, activity_id: str, *inputs: bytes | Payload) -> int:
        return self.add(
            "activity_task_scheduled",
            activity_type=ActivityType(name=kind),
            activity_id=activity_id,
            input=list(inputs),
        )

    def called(self, activity_id: str = "1", arguments: bytes = b'{"x":1}', **members: Any) -> int:
        """An author's call."""
        request = CallRequest("callTool", "fake", **{"name": "write", **members})
        return self.scheduled("mcp.callTool", activity_id, request.encode(), arguments)

    def node(self, attempt: int = 1, inputs: bytes = b'{"arguments":{"x":1}}') -> int:
        """An attempt of a graph's node."""
        config = b'{"serverId":"fake","name":"write"}'
        call = NodeCall("a", "acme", attempt, config)
        return self.scheduled("community.mcp.call-tool", f"a:{attempt}", call.encode(), inputs)

    def completed(self, scheduled: int, **provenance: str) -> None:
        self.add("activity_task_completed", scheduled_event_id=scheduled, result=[record(b"{}", provenance)])

    def failed(self, scheduled: int, failure: Failure) -> None:
        self.add("activity_task_failed", scheduled_event_id=scheduled, failure=failure)

    def lost(self, scheduled: int, claim: dict[str, Any] | None = None) -> None:
        failure = Failure(message="activity Heartbeat timeout")
        failure.timeout_failure_info.timeout_type = TimeoutType.TIMEOUT_TYPE_HEARTBEAT
        if claim is not None:
            beat = json_payload(json.dumps({"retry": None, **claim}).encode())
            failure.timeout_failure_info.last_heartbeat_details.payloads.append(beat)
        self.add("activity_task_timed_out", scheduled_event_id=scheduled, failure=failure)


def attempts(*parts: History) -> list[EffectAttempt]:
    return effect_attempts([one.events for one in parts], workflow_id=WORKFLOW, tenant="acme")


def states(*parts: History) -> list[str | None]:
    return [one.state for one in attempts(*parts)]


def test_an_attempt_that_completed_is_told_with_its_effect_and_its_result() -> None:
    history = History()
    history.completed(history.called("7"), claim="recorded")
    (one,) = attempts(history)
    assert one.facts == {
        "effectId": one.effect.effect_id,
        "nodeId": "7",
        "attempt": 1,
        "keying": "activity-recipe",
        "providerKey": one.effect.provider_key,
        "state": "completed",
        "at": "2026-09-21T14:13:20.003Z",
    }
    assert one.result is not None
    assert one.result.data == b"{}"
    assert one.effect.effect_id.startswith("acme/")


@pytest.mark.parametrize(
    ("delivery", "state"),
    [("answered", "completed"), ("not_sent", "released"), ("not_processed", "released"), ("unknown", "escaped")],
)
def test_the_state_of_a_failed_attempt_follows_from_its_delivery(delivery: str, state: str) -> None:
    history = History()
    history.failed(history.called(), call_failure(delivery=delivery, repeat_safe=False))
    (one,) = attempts(history)
    assert one.state == state
    assert one.failure is not None


@pytest.mark.parametrize(
    ("claim", "state"),
    [
        (None, "released"),
        ({"delivery": "unknown", "repeatSafe": False}, "escaped"),
        ({"delivery": "not_sent", "repeatSafe": True}, "released"),
        ({"delivery": "not_sent", "repeatSafe": True, "waited": True}, "released"),
    ],
    ids=["unclaimed", "claimed", "withdrawn", "waited"],
)
def test_of_a_worker_that_was_lost_its_last_beat_tells(claim: dict[str, Any] | None, state: str) -> None:
    history = History()
    history.lost(history.called(), claim)
    assert states(history) == [state]


def test_an_attempt_without_a_claim_may_have_been_sent_where_none_is_needed() -> None:
    history = History()
    history.lost(history.called("1"))
    history.completed(history.called("2", attempt=2, node="1"), claim="waived")
    assert states(history) == ["escaped", "completed"]


def test_who_only_waits_for_an_effect_has_sent_nothing_however_it_was_lost() -> None:
    history = History()
    keyed: dict[str, Any] = {"idempotency_key": "order-1", "node": "1"}
    history.failed(history.called("1", **keyed), call_failure(waited=True))
    history.lost(history.called("2", attempt=2, **keyed))
    history.completed(history.called("3", attempt=3, **keyed), claim="recorded")
    found = attempts(history)
    assert [one.state for one in found] == ["released", "released", "completed"]
    assert {one.effect.keying for one in found} == {"business-identity"}
    assert all(one.waits for one in found)


@pytest.mark.parametrize(("started", "state"), [(0, "released"), (3, "escaped")])
def test_a_cancelled_activity_has_escaped_if_a_worker_had_taken_it(started: int, state: str) -> None:
    history = History()
    number = history.called()
    history.add("activity_task_canceled", scheduled_event_id=number, started_event_id=started)
    assert states(history) == [state]


@pytest.mark.parametrize("how", ["completed", "failed", "timed_out", "canceled", "terminated", "continued_as_new"])
def test_what_is_under_way_when_its_workflow_ends_has_escaped(how: str) -> None:
    history = History()
    history.completed(history.called("1"))
    history.called("2")
    assert states(history) == ["completed", None]
    history.add(f"workflow_execution_{how}")
    assert states(history) == ["completed", "escaped"]


def test_the_attempts_of_a_call_are_one_effect_and_other_calls_are_others() -> None:
    history = History()
    history.failed(history.called("1"), call_failure(repeat_safe=False))
    history.completed(history.called("2", attempt=2, node="1"))
    history.completed(history.called("3"))
    history.completed(history.called("4", arguments=b'{"x":2}', node="1"))
    first, second, third, fourth = attempts(history)
    assert first.effect == second.effect
    assert [one.node for one in (first, second, third)] == ["1", "1", "3"]
    assert len({one.effect.effect_id for one in (first, third, fourth)}) == 3


def test_a_node_is_one_effect_in_all_parts_of_its_run_and_an_author_s_call_is_not() -> None:
    parts = [History(part) for part in PARTS[:2]]
    for number, part in enumerate(parts, start=1):
        part.completed(part.node(number))
        part.completed(part.called("1"))
    node_1, call_1, node_2, call_2 = attempts(*parts)
    assert node_1.effect == node_2.effect
    assert node_1.node == node_2.node == "a"
    assert call_1.effect != call_2.effect


def test_the_run_that_a_reset_began_from_names_the_part() -> None:
    before, after = History(PARTS[0]), History(PARTS[0])
    before.called("1")
    after.called("1", origin=PARTS[0], reset=True)
    (one,), (other,) = attempts(before), attempts(after)
    assert one.effect == other.effect


def test_what_the_worker_said_of_the_effect_goes_before_what_is_computed() -> None:
    history = History()
    history.completed(history.called("1"), **{"effect-id": "umbrella/told"})
    history.failed(history.called("2"), call_failure(effectId="umbrella/failed"))
    assert [one.effect.effect_id for one in attempts(history)] == ["umbrella/told", "umbrella/failed"]


def test_only_calls_of_tools_are_effects_and_what_cannot_be_read_is_none() -> None:
    history = History()
    for kind, inputs in [
        ("mcp.listTools", [CallRequest("listTools", "fake").encode(), b"null"]),
        ("mcp.callTool", [CallRequest("listTools", "fake").encode(), b"null"]),
        ("mcp.callTool", [CallRequest("callTool", "fake").encode(), b"null"]),
        ("mcp.callTool", [CallRequest("callTool", "fake", name="write").encode(), b"{"]),
        ("mcp.callTool", [CallRequest("callTool", "fake", name="write").encode()]),
        ("mcp.callTool", [b"\x00\x01encrypted", b"\x00"]),
        ("community.mcp.call-tool", [b"{}", b"{}"]),
        ("community.mcp.call-tool", [NodeCall("a", "acme", 1, b"{}").encode(), b"{}"]),
        ("community.mcp.list-tools", [NodeCall("a", "acme", 1, b'{"serverId":"fake"}').encode(), b"{}"]),
        ("authors.own", [b"{}"]),
    ]:
        history.completed(history.scheduled(kind, kind, *inputs))
    assert attempts(history) == []


def test_absent_arguments_and_empty_ones_are_one_effect() -> None:
    one, other = History(), History()
    one.called(arguments=b"null")
    other.called(arguments=b"{ }")
    assert attempts(one)[0].effect == attempts(other)[0].effect


def test_what_only_asked_released_its_claim_and_tells_how_often_the_server_had_asked_by_then() -> None:
    history = History()
    history.completed(history.called(), interim="approval")
    history.completed(history.called("2", node="1", attempt=2, suspends=True), interim="input", round="1")
    answered = {"node": "1", "attempt": 3, "input": Input(1, b'{"q":{}}', b'"s"')}
    history.completed(history.called("3", **answered), interim="input", round="4")
    history.completed(history.called("4", node="1", attempt=4, input=Input(4)))
    told = [(one.state, one.interim, one.round, one.asked) for one in attempts(history)]
    assert told == [
        ("released", "approval", 0, 0),
        ("released", "input", 0, 1),
        ("released", "input", 1, 4),
        ("completed", None, 4, 4),
    ]
    assert len({one.effect.effect_id for one in attempts(history)}) == 1
