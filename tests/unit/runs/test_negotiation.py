"""The event that tells on what terms servers answered: when it is told, what it says, and that no run depends on it."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from openwop_mcp import calls, failures
from openwop_mcp.runs import negotiation
from openwop_mcp.runs.events import timestamp
from openwop_mcp.runs.projection import Projector
from tests.support.call_failures import call_failure
from tests.support.graphs import RUN_ID, edge, node, start, workflow
from tests.support.temporal_model import TemporalModel

ONE = "1" * 64
OTHER = "2" * 64
MODERN = {"peer": ONE, "floor": "2025-06-18", "revision": "2026-07-28"}
LEGACY = {**MODERN, "revision": "2025-11-25"}
NO_COMMON = {
    "code": "interop_version_unsupported",
    "retryable": False,
    "peer": ONE,
    "floor": "2026-07-28",
    "requested": "2026-07-28",
    "reason": "below-floor",
}


def chain(count: int) -> TemporalModel:
    names = [f"n{index}" for index in range(count)]
    edges = [edge(one, other, "all_complete") for one, other in itertools.pairwise(names)]
    return TemporalModel(start(workflow([node(name) for name in names], edges)))


def decided(run: TemporalModel) -> list[tuple[str | None, dict[str, Any]]]:
    """The events of this kind in the live log, which is the projected one: node and payload."""
    projector = Projector(RUN_ID)
    projected = [event for history in run.histories for event in projector.project(history)]
    assert [(event.sequence, event.type, event.node_id, event.payload) for event in projected] == [
        told[:4] for told in run.log
    ]
    assert [event.sequence for event in projected] == list(range(len(projected)))
    return [(event.node_id, json.loads(event.payload)) for event in projected if event.type == negotiation.EVENT]


def succeed(run: TemporalModel, suggest: bool = False, **provenance: str) -> None:
    run.succeed(next(iter(run.under_way)), **provenance)
    run.task(suggest=suggest)


def fail(run: TemporalModel, **facts: Any) -> None:
    run.fail(next(iter(run.under_way)), call_failure(**facts))
    run.task()


def test_the_first_answer_of_a_server_is_told_with_its_terms_before_the_node_ends() -> None:
    run = chain(1)
    run.now += 1500
    succeed(run, **MODERN)
    assert run.types == [
        "run.started",
        "node.started n0",
        "negotiation.decided n0",
        "node.completed n0",
        "run.completed",
    ]
    assert decided(run) == [
        (
            "n0",
            {
                "protocol": "mcp",
                "outcome": "accepted",
                "version": "2026-07-28",
                "floor": "2025-06-18",
                "peerDigest": ONE,
                "reason": "ok",
                "at": timestamp(run.now),
            },
        )
    ]


def test_it_is_told_once_for_each_server_and_again_when_something_else_comes_of_it() -> None:
    run = chain(6)
    for provenance in (MODERN, MODERN, {**MODERN, "peer": OTHER}, LEGACY, LEGACY, MODERN):
        succeed(run, **provenance)
    told = [(where, said["peerDigest"][0], said["version"]) for where, said in decided(run)]
    assert told == [
        ("n0", "1", "2026-07-28"),
        ("n2", "2", "2026-07-28"),
        ("n3", "1", "2025-11-25"),
        ("n5", "1", "2026-07-28"),
    ]


def test_a_server_with_no_common_revision_is_told_as_refused() -> None:
    run = chain(2)
    fail(run, **NO_COMMON)
    fail(run, **NO_COMMON)
    [(where, said)] = decided(run)
    assert where == "n0"
    del said["at"]
    assert said == {
        "protocol": "mcp",
        "outcome": "refused",
        "floor": "2026-07-28",
        "peerDigest": ONE,
        "requested": "2026-07-28",
        "reason": "below-floor",
    }
    assert run.types[2:4] == ["negotiation.decided n0", "node.failed n0"]


def test_it_is_told_before_an_attempt_that_is_tried_again_and_not_once_more_after_it() -> None:
    run = chain(1)
    fail(run, code="mcp_error", retry_after=0, rpc_error=b'{"code":-1,"message":"m"}', **MODERN)
    succeed(run, **MODERN)
    assert run.types[2:] == ["negotiation.decided n0", "node.retried n0", "node.completed n0", "run.completed"]
    assert [said["outcome"] for _, said in decided(run)] == ["accepted"]


@pytest.mark.parametrize("why", [{"httpStatus": 401}, {"authorization": "token_refused"}])
def test_a_server_that_talks_to_nobody_without_credentials_is_told_as_refusing(why: dict[str, Any]) -> None:
    run = chain(1)
    fail(run, retryable=False, peer=ONE, floor="2026-07-28", **why)
    [(_, said)] = decided(run)
    assert (said["outcome"], said["reason"]) == ("refused", "unauthenticated")
    assert {"version", "requested"}.isdisjoint(said)


def test_a_health_without_a_common_revision_is_a_refusal_though_the_server_answered() -> None:
    run = chain(1)
    succeed(run, **MODERN, refused="unsupported", requested="2026-07-28")
    [(_, said)] = decided(run)
    assert (said["outcome"], said["reason"], said["requested"]) == ("refused", "unsupported", "2026-07-28")
    assert "version" not in said


@pytest.mark.parametrize(
    "facts",
    [
        {"peer": ONE, "floor": "2026-07-28"},
        {"peer": ONE, "httpStatus": 503},
        {"revision": "2026-07-28"},
        {"peer": 7, "revision": "2026-07-28"},
        {"code": "interop_version_unsupported", "requested": "2026-07-28", "reason": "unsupported"},
    ],
)
def test_a_failure_that_says_nothing_of_terms_tells_nothing(facts: dict[str, Any]) -> None:
    run = chain(1)
    fail(run, **{"retryable": False, **facts})
    assert decided(run) == []


@pytest.mark.parametrize("provenance", [{}, {"revision": "2026-07-28"}, {"peer": ONE, "floor": "2026-07-28"}])
def test_an_answer_that_does_not_say_who_gave_it_on_what_terms_tells_nothing(provenance: dict[str, str]) -> None:
    run = chain(1)
    succeed(run, **provenance)
    assert decided(run) == []


def test_a_reason_that_the_record_had_no_room_for_is_left_out() -> None:
    found = negotiation.of_failure(failures.read(call_failure(**{**NO_COMMON, "reason": "x"})))
    assert found is not None
    assert found.verdict == ("refused", None, None)
    assert "reason" not in json.loads(found.encode("2026-01-01T00:00:00.000Z"))


def test_a_failure_that_no_call_wrote_tells_nothing() -> None:
    failure = call_failure()
    failure.application_failure_info.ClearField("details")
    assert negotiation.of_failure(failures.read(failure)) is None


def test_what_was_told_before_a_continue_as_new_is_not_told_again_after_it() -> None:
    run = chain(3)
    succeed(run, suggest=True, **MODERN)
    assert len(run.histories) == 2
    succeed(run, suggest=True, **MODERN)
    succeed(run, **LEGACY)
    assert len(run.histories) == 3
    assert [where for where, _ in decided(run)] == ["n0", "n2"]


def test_a_run_is_handed_over_alike_whatever_its_records_say_of_terms() -> None:
    states = []
    for provenance in ({}, MODERN):
        run = chain(2)
        succeed(run, suggest=True, **provenance)
        states.append(run.start.state)
    assert states[0] is not None
    assert states[0] == states[1]


def test_words_that_are_no_text_do_not_stop_a_log() -> None:
    payload = calls.record(b"{}", {"peer": ONE})
    payload.metadata["openwop-mcp.revision"] = b"\xff"
    found = negotiation.of_answer(payload.metadata)
    assert found is not None
    assert found.version == "\ufffd"
