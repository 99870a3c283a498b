"""What the machine keeps within the limits of Temporal, beyond which a run would never end."""

from __future__ import annotations

import json
from typing import Any

import pytest

from openwop_mcp.runs.machine import (
    BUDGET,
    MAX_INPUT,
    MAX_RESULT,
    ContinueAsNew,
    FailRun,
    RunMachine,
    ScheduleNode,
)
from openwop_mcp.runs.projection import Projector
from openwop_mcp.runs.start import Options
from tests.support.call_failures import call_failure
from tests.support.graphs import RUN_ID, edge, node, start, workflow
from tests.support.temporal_model import TemporalModel

INLINE = 256 * 1024


def model(definition: dict[str, Any], inputs: bytes = b"{}") -> TemporalModel:
    return TemporalModel(start(definition), inputs)


def outside(definition: dict[str, Any], inputs: bytes = b"{}", *, call_bytes: int = 16_000_000) -> TemporalModel:
    """A run whose large values are kept outside its history."""
    return TemporalModel(start(definition, options=Options(inline_bytes=INLINE, call_bytes=call_bytes)), inputs)


def carried(run: TemporalModel) -> list[bytes]:
    """The large values that the run's latest history begins with."""
    begun = run.histories[-1][0].workflow_execution_started_event_attributes
    return [payload.data for payload in begun.input.payloads[2:]]


def under_way(run: TemporalModel) -> list[str]:
    return [command.node_id for command in run.under_way.values() if isinstance(command, ScheduleNode)]


def sized(size: int) -> bytes:
    return b'{"text":"%b"}' % (b"x" * (size - 11))


def reads(node_id: str) -> dict[str, Any]:
    return {"arguments": {"type": "connection", "nodeId": node_id, "outputKey": "result"}}


def bytes_of(history: list[Any]) -> int:
    """What a modelled history takes up. The model leaves inputs of activities out, so they are counted by the tests."""
    return sum(event.ByteSize() for event in history)


def finish(run: TemporalModel, result: bytes, *, suggest: bool = False) -> int:
    """Let every call give this result, one by one, and compare the logs; the most that were under way at once."""
    most = 0
    while not run.over:
        most = max(most, len(under_way(run)))
        run.succeed(next(iter(run.under_way)), result)
        run.task(suggest=suggest)
    projector = Projector(RUN_ID)
    projected = [told for history in run.histories for told in projector.project(history)]
    assert [(told.sequence, told.type, told.payload) for told in projected] == [
        (sequence, event_type, payload) for sequence, event_type, _, payload, _ in run.log
    ]
    return most


# --- what a history takes up ---


def test_a_wide_graph_of_small_results_has_all_its_calls_under_way_after_the_first() -> None:
    run = model(workflow([node(f"n{index}") for index in range(100)]))
    assert 20 <= len(under_way(run)) <= BUDGET // MAX_RESULT
    run.succeed(run.ordinal("n0"))
    run.task()
    assert len(under_way(run)) == 99


def test_however_wide_the_graph_fewer_calls_are_under_way_than_temporal_holds() -> None:
    run = model(workflow([node(f"n{index}") for index in range(2_500)]))
    assert 500 < finish(run, b"{}") < 2_000
    assert run.types[-1] == "run.completed"


def test_forty_large_results_at_once_are_spread_over_histories_that_temporal_takes() -> None:
    run = model(workflow([node(f"n{index}") for index in range(40)]))
    finish(run, sized(1_500_000))
    assert run.types[-1] == "run.completed"
    assert [told for told in run.types if told.startswith("node.completed")] == [
        f"node.completed n{index}" for index in range(40)
    ]
    assert len(run.histories) == 2
    assert max(map(bytes_of, run.histories)) < BUDGET


@pytest.mark.parametrize("suggest", [True, False])
def test_a_chain_that_passes_a_large_result_on_is_handed_over_and_completes(suggest: bool) -> None:
    nodes = [node("n0"), *(node(f"n{index}", inputs=reads(f"n{index - 1}")) for index in range(1, 40))]
    run = model(workflow(nodes, [edge(f"n{index}", f"n{index + 1}") for index in range(39)]))
    finish(run, sized(1_500_000), suggest=suggest)
    assert run.types[-1] == "run.completed"
    assert len(run.histories) == (40 if suggest else 4)
    assert max(2 * bytes_of(history) for history in run.histories) < BUDGET + 4_000_000


def test_failures_take_up_room_as_well() -> None:
    nodes = [node("n0"), *(node(f"n{index}") for index in range(1, 1_200))]
    run = model(workflow(nodes, [edge(f"n{index}", f"n{index + 1}", "any_failed") for index in range(1_199)]))
    failure = call_failure(retryable=False, rpc_error=sized(60_000))
    while not run.over and len(run.histories) == 1:
        run.fail(next(iter(run.under_way)), failure)
        run.task()
    assert len(run.histories) == 2
    assert bytes_of(run.histories[0]) < BUDGET


def test_a_run_that_can_neither_stay_nor_be_carried_fails_and_says_why() -> None:
    # Two results that the last nodes need, and a chain beside them that fills the history.
    count = 30
    nodes = [node("a"), node("b"), *(node(f"n{index}") for index in range(count))]
    nodes += [node("end", inputs=reads("a")), node("both", inputs=reads("b"))]
    edges = [edge(f"n{index}", f"n{index + 1}") for index in range(count - 1)]
    edges += [edge("a", "end"), edge("b", "both"), edge(f"n{count - 1}", "end"), edge(f"n{count - 1}", "both")]
    run = model(workflow(nodes, edges))
    finish(run, sized(1_500_000), suggest=True)
    assert run.types[-1] == "run.failed"
    failure = run.commands[-1]
    assert isinstance(failure, FailRun)
    assert (failure.code, failure.node_id) == ("storage_limit_exceeded", None)
    assert f"over the {MAX_INPUT} that Temporal carries" in failure.message
    details = json.loads(failure.details)
    assert details["limit"] == MAX_INPUT < details["size"]
    assert len(run.histories) == 1
    assert bytes_of(run.histories[0]) < BUDGET


def test_a_run_that_cannot_be_carried_yet_is_handed_over_once_it_can() -> None:
    nodes = [node("a"), node("b"), node("c", inputs=reads("a")), node("d", inputs=reads("b")), node("e"), node("f")]
    edges = [edge("a", "c"), edge("b", "c"), edge("c", "d"), edge("d", "e"), edge("e", "f"), edge("b", "d")]
    run = model(workflow(nodes, edges))
    run.succeed(run.ordinal("a"), sized(1_100_000))
    run.succeed(run.ordinal("b"), sized(1_100_000))
    run.task(suggest=True)
    assert under_way(run) == ["c"]
    assert len(run.histories) == 1
    run.succeed(run.ordinal("c"), b"{}")
    run.task(suggest=True)
    assert under_way(run) == ["d"]
    run.succeed(run.ordinal("d"), b"{}")
    run.task(suggest=True)
    assert under_way(run) == ["e"]
    assert len(run.histories) == 2


def test_what_cannot_be_carried_is_not_drained() -> None:
    # While two large results wait for their readers, the chains beside them go on side by side.
    nodes = [node("a"), node("b"), *(node(f"{side}{index}") for side in "xy" for index in range(3))]
    late = node("late", inputs=reads("a"))
    later = node("later", inputs=reads("b"))
    edges = [edge(f"{side}{index}", f"{side}{index + 1}") for side in "xy" for index in range(2)]
    edges += [edge("a", "late"), edge("b", "later"), edge("x2", "late"), edge("x2", "later")]
    run = model(workflow([*nodes, late, later], edges))
    for node_id in "ab":
        run.succeed(run.ordinal(node_id), sized(1_100_000))
    run.task()
    run.succeed(run.ordinal("x0"), b"{}")
    run.task(suggest=True)
    assert sorted(under_way(run)) == ["x1", "y0"]
    run.succeed(run.ordinal("y0"), b"{}")
    run.task(suggest=True)
    assert sorted(under_way(run)) == ["x1", "y1"]


def test_core_nodes_do_not_wait_for_room_behind_calls() -> None:
    run = model(workflow([*(node(f"n{index}") for index in range(100)), node("aside", "core.noop")]))
    assert "node.completed aside" in run.types
    assert len(under_way(run)) < 100


def test_what_is_held_back_does_not_start_after_a_cancel() -> None:
    run = model(workflow([node(f"n{index}") for index in range(100)]))
    started = len(under_way(run))
    run.request_cancel()
    run.task()
    for ordinal in list(run.under_way):
        if isinstance(run.under_way[ordinal], ScheduleNode):
            run.succeed(ordinal)
    run.task()
    assert run.over
    assert sum(told.startswith("node.started") for told in run.types) == started


# --- what a message holds ---


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
    definition = workflow([node("a", inputs={"arguments": big}), node("b", inputs=reads("a"))], [edge("a", "b")])
    run = model(definition)
    run.succeed(run.ordinal("a"), sized(MAX_INPUT - 1_200_000))
    run.task(suggest=True)
    assert not any(isinstance(command, ContinueAsNew) for command in run.commands)
    assert under_way(run) == ["b"]


def test_a_run_that_hands_over_puts_its_state_together_to_see_whether_it_may_and_to_go_on(monkeypatch) -> None:
    run = model(workflow([node("a"), node("b")], [edge("a", "b")]))
    made: list[bytes] = []
    put_together = RunMachine._state

    def counted(machine: RunMachine) -> tuple[bytes, object]:
        state, large = put_together(machine)
        if machine is run.machine:
            made.append(state)
        return state, large

    run.succeed(run.ordinal("a"), b"{}")
    monkeypatch.setattr(RunMachine, "_state", counted)
    handing_over = run.machine
    run.task(suggest=True)
    assert run.machine is not handing_over
    assert len(made) == 2
    assert made[-1] == run.start.state


# --- large values outside ---


def test_values_that_are_kept_outside_fill_no_history() -> None:
    run = outside(workflow([node(f"n{index}") for index in range(100)]))
    assert len(under_way(run)) == 100
    finish(run, sized(1_500_000))
    assert run.types[-1] == "run.completed"
    assert len(run.histories) == 1


def test_calls_whose_results_may_just_stay_inside_history_still_wait_for_room() -> None:
    run = outside(workflow([node(f"n{index}") for index in range(400)]))
    finish(run, sized(INLINE - 1_000))
    assert run.types[-1] == "run.completed"
    assert max(map(bytes_of, run.histories)) < BUDGET + 4_000_000
    assert len(run.histories) > 1


def test_after_a_large_result_the_others_are_taken_to_stay_just_inside_history() -> None:
    nodes = [node("first"), *(node(f"n{index}") for index in range(400))]
    run = outside(workflow(nodes, [edge("first", f"n{index}") for index in range(400)]))
    run.succeed(run.ordinal("first"), sized(5_000_000))
    run.task()
    assert 100 < len(under_way(run)) <= BUDGET // INLINE


def test_a_large_value_is_carried_on_by_itself_and_the_state_stays_small() -> None:
    large = sized(5_000_000)
    nodes = [node("a"), node("b"), node("end", inputs=reads("a"))]
    run = outside(workflow(nodes, [edge("a", "b"), edge("b", "end"), edge("a", "end")]))
    run.succeed(run.ordinal("a"), large)
    run.task(suggest=True)
    assert carried(run) == [large]
    assert len(run.start.state or b"") < 2_000
    run.succeed(run.ordinal("b"), b"{}")
    run.task(suggest=True)
    assert carried(run) == [large]
    sent = run.under_way[run.ordinal("end")]
    assert isinstance(sent, ScheduleNode)
    assert sent.inputs == b'{"arguments":' + large + b"}"
    finish(run, b"{}")
    assert run.types[-1] == "run.completed"
    assert len(run.histories) == 3


def test_a_large_value_that_the_state_names_must_come_with_it() -> None:
    run = outside(workflow([node("a"), node("b", inputs=reads("a"))], [edge("a", "b")]))
    run.succeed(run.ordinal("a"), sized(5_000_000))
    run.task(suggest=True)
    assert len(carried(run)) == 1
    with pytest.raises(ValueError, match="zip"):
        RunMachine(run.start, b"{}", ())


def test_a_call_over_the_ceiling_of_the_run_names_its_setting() -> None:
    variable = {"arguments": {"type": "variable", "variableName": "v"}}
    definition = workflow([node("a", inputs=variable)], variables=[{"name": "v", "type": "object"}])
    given = json.dumps({"v": {"text": "x" * 3_000_000}}).encode()
    assert under_way(outside(definition, given)) == ["a"]
    (end,) = outside(definition, given, call_bytes=2_500_000).commands
    assert isinstance(end, FailRun)
    assert "limits.call_bytes" in end.message
    assert json.loads(end.details)["limit"] == 2_500_000


def test_many_small_values_that_make_a_state_too_large_to_read_are_not_carried() -> None:
    count = 90
    nodes = [*(node(f"n{index}") for index in range(count)), node("x"), node("y", inputs=reads("n0"))]
    nodes[-1]["inputs"] = {
        f"arguments.a{index}": {"type": "connection", "nodeId": f"n{index}", "outputKey": "/result"}
        for index in range(count)
    }
    edges = [*(edge(f"n{index}", "y") for index in range(count)), edge("x", "y")]
    run = outside(workflow(nodes, edges), call_bytes=1_000_000)
    for index in range(count):
        run.succeed(run.ordinal(f"n{index}"), sized(100_000))
    run.task(suggest=True)
    assert not any(isinstance(command, ContinueAsNew) for command in run.commands)


def test_a_value_that_is_too_large_to_compare_skips_its_edge_and_says_so() -> None:
    condition = {
        "type": "equals",
        "left": "/result/text",
        "right": "x",
    }
    truthy = {"type": "truthy", "left": "/result/text"}
    nodes = [node("a"), node("compared"), node("seen")]
    edges = [edge("a", "compared", condition=condition), edge("a", "seen", condition=truthy)]
    run = outside(workflow(nodes, edges))
    run.succeed(run.ordinal("a"), sized(5_000_000))
    run.task()
    assert "node.skipped compared" in run.types
    assert under_way(run) == ["seen"]
    (reason,) = [payload for _, event_type, _, payload, _ in run.log if event_type == "node.skipped"]
    assert b"is not compared" in reason


def test_a_start_without_storage_says_nothing_of_it() -> None:
    assert b"inlineBytes" not in start(workflow([node("a")])).encode()
    options = Options(2.5, INLINE, 1_000)
    assert Options.decode(options.encode()) == options
    assert Options.decode(b'{"heartbeatTimeout":2.5}') == Options(2.5)
