"""What the machine keeps within the limits of Temporal, beyond which a run would never end."""

from __future__ import annotations

import json
from typing import Any

from openwop_mcp.runs.machine import MAX_CALLS, MAX_STATE, ContinueAsNew, FailRun, ScheduleNode
from tests.support.graphs import edge, node, start, workflow
from tests.support.temporal_model import TemporalModel


def model(definition: dict[str, Any], inputs: bytes = b"{}") -> TemporalModel:
    return TemporalModel(start(definition), inputs)


def under_way(run: TemporalModel) -> list[str]:
    return [command.node_id for command in run.under_way.values() if isinstance(command, ScheduleNode)]


def test_no_more_calls_are_under_way_than_temporal_holds() -> None:
    run = model(workflow([node(f"n{index}") for index in range(MAX_CALLS + 2)]))
    assert len(under_way(run)) == MAX_CALLS
    run.succeed(run.ordinal("n0"))
    run.task()
    assert under_way(run)[-1] == f"n{MAX_CALLS}"
    assert len(under_way(run)) == MAX_CALLS


def test_what_one_task_schedules_fits_into_one_message() -> None:
    variable = {"arguments": {"type": "variable", "variableName": "v"}}
    definition = workflow(
        [node(f"n{index}", inputs=variable) for index in range(10)], variables=[{"name": "v", "type": "object"}]
    )
    run = model(definition, json.dumps({"v": {"text": "x" * 900_000}}).encode())
    assert under_way(run) == ["n0", "n1", "n2"]
    for index in range(10):
        run.succeed(run.ordinal(f"n{index}"))
        run.task()
        scheduled = [command for command in run.commands if isinstance(command, ScheduleNode)]
        assert sum(len(command.inputs) for command in scheduled) < 4_000_000
    assert run.types[-1] == "run.completed"


def test_a_call_that_temporal_cannot_carry_fails_its_node_and_schedules_nothing() -> None:
    twice = {"type": "variable", "variableName": "v"}
    definition = workflow(
        [node("a", inputs={"arguments": twice, "idempotencyKey": twice})], variables=[{"name": "v", "type": "object"}]
    )
    run = model(definition, json.dumps({"v": {"text": "x" * 1_100_000}}).encode())
    (end,) = run.commands
    assert isinstance(end, FailRun)
    assert end.code == "storage_limit_exceeded"
    assert json.loads(end.details)["delivery"] == "not_sent"


def test_a_run_whose_definition_leaves_no_room_for_its_state_does_not_hand_over() -> None:
    big = {"type": "static", "value": {"text": "x" * 1_200_000}}
    reads = {"arguments": {"type": "connection", "nodeId": "a", "outputKey": "result"}}
    definition = workflow([node("a", inputs={"arguments": big}), node("b", inputs=reads)], [edge("a", "b")])
    run = model(definition)
    result = json.dumps({"text": "y" * (MAX_STATE - 10_000)}).encode()
    run.succeed(run.ordinal("a"), result)
    run.task(suggest=True)
    assert not any(isinstance(command, ContinueAsNew) for command in run.commands)
    assert under_way(run) == ["b"]
