"""How long a run may take and how many nodes it may start: where the limits come from, and what happens at them."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import Definition, parse
from openwop_mcp.runs.limits import LONGEST, limited
from openwop_mcp.runs.machine import CancelNode, FailRun, ScheduleNode, StartTimer
from openwop_mcp.runs.projection import Projector
from openwop_mcp.runs.start import Options
from tests.support.call_failures import call_failure, in_doubt
from tests.support.graphs import RUN_ID, edge, node, start, workflow
from tests.support.temporal_model import TemporalModel

DEADLINE = 0
"""Ordinal of the timer that a run with a timeout starts first."""


def model(
    nodes: list[Any], edges: list[Any] | None = None, *, timeout_ms: int | None = None, most: int | None = None
) -> TemporalModel:
    options = Options(run_timeout_ms=timeout_ms, max_node_executions=most)
    return TemporalModel(start(workflow(nodes, edges), options=options))


def succeed(run: TemporalModel, *node_ids: str, suggest: bool = False) -> None:
    for node_id in node_ids:
        run.succeed(run.ordinal(node_id))
    run.task(suggest=suggest)


def run_out(run: TemporalModel, ordinal: int = DEADLINE) -> None:
    run.now += 1000
    run.fire(ordinal)
    run.task()


def payload(run: TemporalModel, event_type: str) -> dict[str, Any]:
    (found,) = [told[3] for told in run.log if told[1] == event_type]
    decoded: dict[str, Any] = json.loads(found)
    return decoded


def agree(run: TemporalModel) -> None:
    """The projected log is the one that was told live."""
    projector = Projector(RUN_ID)
    projected = [event for history in run.histories for event in projector.project(history)]
    assert [(one.sequence, one.type, one.payload) for one in projected] == [
        (sequence, event_type, payload) for sequence, event_type, _, payload, _ in run.log
    ]


# --- where they come from ---


def definition(timeout: int | None = None) -> Definition:
    settings = {} if timeout is None else {"timeout": timeout}
    text = json.dumps(workflow([node("a")], settings=settings)).encode()
    return parse(text, source="test", node_types=REGISTRY)


def configurable(**run: int) -> bytes:
    return json.dumps({"version": 1, "run": run}).encode()


@pytest.mark.parametrize(
    ("host", "settings", "asked", "timeout"),
    [
        (None, None, None, None),
        (None, None, b'{"version":1}', None),
        (None, 5_000, None, 5_000),
        (None, 0, None, None),
        (None, 5_000, configurable(runTimeoutMs=1_000), 1_000),
        (None, 5_000, configurable(runTimeoutMs=9_000), 5_000),
        (2_000, 5_000, configurable(runTimeoutMs=9_000), 2_000),
        (None, None, configurable(runTimeoutMs=10**30), LONGEST),
    ],
)
def test_a_run_may_take_the_least_of_what_host_workflow_and_caller_allow(
    host: int | None, settings: int | None, asked: bytes | None, timeout: int | None
) -> None:
    options = limited(Options(2.5, 100, 200, run_timeout_ms=host), definition(settings), asked)
    assert options == Options(2.5, 100, 200, run_timeout_ms=timeout)


@pytest.mark.parametrize(
    ("host", "asked", "most"),
    [
        (None, None, None),
        (None, configurable(recursionLimit=3), 3),
        (2, configurable(recursionLimit=3), 2),
        (9, configurable(recursionLimit=3), 3),
        (9, configurable(runTimeoutMs=5), 9),
    ],
)
def test_a_run_may_start_the_least_of_what_host_and_caller_allow(
    host: int | None, asked: bytes | None, most: int | None
) -> None:
    assert limited(Options(max_node_executions=host), definition(), asked).max_node_executions == most


def test_limits_travel_with_the_start_of_a_run_and_one_without_says_nothing_of_them() -> None:
    options = Options(run_timeout_ms=1_000, max_node_executions=3)
    assert Options.decode(options.encode()) == options
    assert Options().encode() == b'{"heartbeatTimeout":10.0}'


# --- time ---


def test_a_run_that_takes_too_long_is_cut_and_fails() -> None:
    run = model([node("a"), node("b"), node("wait", "core.delay", config={"delayMs": 60_000})], timeout_ms=1_000)
    assert run.commands[0] == StartTimer(DEADLINE, 1.0, "run-timeout", None)
    run_out(run)
    cut = [command.ordinal for command in run.commands if isinstance(command, CancelNode)]
    assert cut == [run.ordinal("a"), run.ordinal("b"), 3]
    assert not run.over
    assert payload(run, "cap.breached") == {"kind": "run-duration", "limit": 1_000, "observed": 1_001}
    run.succeed(run.ordinal("a"))
    run.cancelled(run.ordinal("b"))
    run.task()
    assert run.types[-5:] == [
        "cap.breached",
        "node.cancelled wait",
        "node.completed a",
        "node.cancelled b",
        "run.failed",
    ]
    (end,) = run.commands
    assert isinstance(end, FailRun)
    assert (end.code, end.node_id, json.loads(end.details)) == ("run_timeout", None, {"limit": 1_000})
    assert payload(run, "run.failed")["error"]["code"] == "run_timeout"
    agree(run)


def test_a_run_that_takes_too_long_does_not_wait_for_ever_for_what_was_cut() -> None:
    run = model([node("a")], timeout_ms=1_000)
    run_out(run)
    (grace,) = [ordinal for ordinal, one in run.under_way.items() if isinstance(one, StartTimer)]
    run_out(run, grace)
    assert run.types[-2:] == ["node.cancelled a", "run.failed"]
    agree(run)


def test_the_last_result_in_time_completes_the_run() -> None:
    run = model([node("a")], timeout_ms=1_000)
    run.fire(DEADLINE)
    run.succeed(run.ordinal("a"))
    run.task()
    assert run.types[-1] == "run.completed"


def test_nothing_starts_in_the_task_that_brings_the_timeout() -> None:
    run = model([node("a"), node("b")], [edge("a", "b")], timeout_ms=1_000)
    run.fire(DEADLINE)
    run.succeed(run.ordinal("a"))
    run.task()
    assert run.types[-3:] == ["node.completed a", "cap.breached", "run.failed"]
    agree(run)


def test_time_counts_while_a_run_waits_for_a_person() -> None:
    run = model([node("a")], timeout_ms=1_000)
    run.fail(run.ordinal("a"), in_doubt(effectId="acme/a"))
    run.task()
    run_out(run)
    assert run.types[-3:] == ["cap.breached", "node.cancelled a", "run.failed"]
    agree(run)


def test_time_counts_while_a_run_is_paused() -> None:
    run = model([node("a"), node("b"), node("c")], [edge("a", "b")], timeout_ms=1_000)
    run.pause("immediate")
    run.task()
    succeed(run, "a")
    run.fail(run.ordinal("c"), call_failure(retryable=False, cancelled=True))
    run.task()
    run_out(run)
    assert run.types[-5:] == ["run.paused", "cap.breached", "node.completed a", "node.cancelled c", "run.failed"]
    agree(run)


def test_what_is_left_of_the_time_goes_along_into_the_next_history() -> None:
    run = model([node("a"), node("b")], [edge("a", "b")], timeout_ms=10_000)
    run.now += 4_000
    succeed(run, "a", suggest=True)
    assert len(run.histories) == 2
    timer = run.commands[0]
    assert isinstance(timer, StartTimer)
    assert (timer.purpose, timer.seconds) == ("run-timeout", 6.0)
    run.now += 6_000
    run.fire(timer.ordinal)
    run.task()
    assert payload(run, "cap.breached")["observed"] == 10_001
    agree(run)


def test_a_run_whose_time_was_over_when_it_was_handed_over_starts_nothing_more() -> None:
    run = model([node("a"), node("b")], [edge("a", "b")], timeout_ms=1_000)
    run.now += 1_000
    succeed(run, "a", suggest=True)
    assert len(run.histories) == 2
    assert run.types[-2:] == ["cap.breached", "run.failed"]
    assert not any(isinstance(command, ScheduleNode) for command in run.commands)
    agree(run)


def test_a_cancel_that_came_first_is_how_the_run_ends() -> None:
    run = model([node("a")], timeout_ms=1_000)
    run.request_cancel()
    run.task()
    run_out(run)
    run.cancelled(run.ordinal("a"))
    run.task()
    assert run.types[-1] == "run.cancelled"
    assert "cap.breached" not in run.types
    agree(run)


def test_a_cancel_changes_nothing_about_a_run_that_ran_out_of_time() -> None:
    run = model([node("a")], timeout_ms=1_000)
    run_out(run)
    run.request_cancel()
    run.task()
    run.cancelled(run.ordinal("a"))
    run.task()
    assert run.types[-1] == "run.failed"
    agree(run)


# --- nodes ---


def test_the_node_start_beyond_the_limit_fails_the_run() -> None:
    names = [f"n{index}" for index in range(1, 7)]
    run = model([node(n, "core.noop") for n in names], [edge(a, b) for a, b in itertools.pairwise(names)], most=3)
    assert run.types[-3:] == ["node.completed n3", "cap.breached", "run.failed"]
    assert payload(run, "cap.breached") == {"kind": "node-executions", "limit": 3, "observed": 4}
    assert payload(run, "run.failed")["error"]["code"] == "recursion_limit_exceeded"
    (end,) = run.commands
    assert isinstance(end, FailRun)
    assert end.code == "recursion_limit_exceeded"
    agree(run)


def test_a_run_that_starts_as_many_nodes_as_it_may_completes() -> None:
    run = model([node("a", "core.noop"), node("b", "core.noop")], most=2)
    assert run.types[-1] == "run.completed"


def test_calls_that_were_scheduled_before_the_limit_was_met_are_cut() -> None:
    run = model([node("a"), node("b"), node("c"), node("d")], [edge("a", "c"), edge("a", "d")], most=3)
    succeed(run, "a")
    assert run.types[-3:] == ["node.started c", "cap.breached", "node.cancelled c"]
    assert [command.node_id for command in run.under_way.values()] == ["b", None]
    succeed(run, "b")
    assert run.types[-2:] == ["node.completed b", "run.failed"]
    agree(run)


def test_neither_attempts_nor_what_begins_afresh_count_as_nodes_and_a_handover_forgets_none() -> None:
    run = model([node("a"), node("b")], [edge("a", "b")], most=1)
    run.fail(run.ordinal("a"), call_failure(retry_after=0))
    run.task()
    run.pause("immediate")
    run.task()
    run.cancelled(run.ordinal("a"))
    run.task()
    run.resume()
    run.task()
    assert "cap.breached" not in run.types
    succeed(run, "a", suggest=True)
    assert len(run.histories) == 2
    assert run.types[-2:] == ["cap.breached", "run.failed"]
    agree(run)
