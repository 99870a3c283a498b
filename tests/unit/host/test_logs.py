"""Logs of runs: read once, from then on by what is new, and told again where they were forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import weakref
from collections.abc import AsyncIterator, Iterable
from typing import Any

import pytest
from temporalio.service import RPCError, RPCStatusCode

from host import generations
from host.errors import HostError
from host.ids import BoundId
from host.logs import RunLog, RunLogs
from openwop_mcp.runs.events import RunEvent
from tests.support.graphs import RUN_ID, edge, node, start, workflow
from tests.support.patience import PATIENCE
from tests.support.recorded_temporal import RecordedTemporal, until
from tests.support.temporal_model import TemporalModel, event

RUN = BoundId.parse(RUN_ID, name="runId")
RESULT = b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * 300)


def model(count: int = 6) -> TemporalModel:
    """A run of nodes one after the other, the first of which is under way."""
    names = [f"n{index}" for index in range(count)]
    return TemporalModel(
        start(workflow([node(name) for name in names], [edge(*pair) for pair in itertools.pairwise(names)]))
    )


def go_on(run: TemporalModel, times: int = 1, **task: Any) -> None:
    """The node under way succeeds, so many times."""
    for _ in range(times):
        run.now += 10
        run.succeed(next(iter(run.under_way)), RESULT)
        run.task(**task)


async def told(log: RunLog, after: int = -1) -> list[RunEvent]:
    return [event async for event in log.events(after)]


def projected(run: TemporalModel, after: int = -1) -> list[tuple[int, str, str | None, bytes]]:
    return [one[:4] for one in run.log if one[0] > after]


def facts(events: Iterable[RunEvent]) -> list[tuple[int, str, str | None, bytes]]:
    return [(one.sequence, one.type, one.node_id, one.payload) for one in events]


@contextlib.asynccontextmanager
async def waiting(log: RunLog, count: int = 1, after: int | None = None) -> AsyncIterator[list[asyncio.Task[None]]]:
    """So many who wait for the next event, once they do."""
    cursor = log.view.last_sequence if after is None else after
    tasks = [asyncio.create_task(log.wait(cursor, 60)) for _ in range(count)]
    await settled()
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def settled() -> None:
    """All that can happen without news has happened."""
    for _ in range(50):
        await asyncio.sleep(0)


# --- reading ---


async def test_a_run_that_no_worker_has_taken_is_there_and_pending() -> None:
    pending = TemporalModel(start(workflow([node("a")]), tags=("x",)))
    temporal = RecordedTemporal(None)
    temporal.parts = {"0": pending.histories[0][:1]}
    log = await RunLogs(temporal.client).open(RUN)
    assert (log.view.status(), log.view.last_sequence, await told(log)) == ("pending", -1, [])


@pytest.mark.parametrize("page", [1, 2, 3, 7, 1000])
async def test_a_log_that_is_read_bit_by_bit_is_the_log_of_the_run(page: int) -> None:
    run = model()
    temporal = RecordedTemporal(run, page=page)
    logs = RunLogs(temporal.client)
    log = await logs.open(RUN)
    while not run.over:
        go_on(run)
        await log.refresh()
        assert facts(await told(log)) == projected(run)
    assert log.view.status() == "completed"
    assert facts(await told(await RunLogs(temporal.client).open(RUN))) == projected(run)


async def test_a_log_that_is_known_costs_what_is_new() -> None:
    run = model(200)
    go_on(run, 150)
    temporal = RecordedTemporal(run, page=1000)
    logs = RunLogs(temporal.client)
    log = await logs.open(RUN)
    temporal.sent = temporal.described = 0
    assert await logs.open(RUN) is log
    assert (temporal.sent, temporal.described) == (0, 1)
    known = len(run.histories[0])
    go_on(run)
    await logs.open(RUN)
    assert temporal.sent == len(run.histories[0]) - known
    go_on(run, 49)
    await logs.open(RUN)
    assert log.view.is_terminal
    temporal.sent = temporal.described = 0
    await logs.open(RUN)
    assert (temporal.sent, temporal.described) == (0, 1)


async def test_many_who_ask_at_once_are_served_by_one_reading_that_begins_after_they_asked() -> None:
    run = model()
    temporal = RecordedTemporal(run)
    log = await RunLogs(temporal.client).open(RUN)
    temporal.described = 0
    temporal.gate.clear()
    first = asyncio.create_task(log.refresh())
    await until(lambda: temporal.described == 1)
    # What the first one sees was decided before this.
    go_on(run)
    rest = [asyncio.create_task(log.refresh()) for _ in range(50)]
    await settled()
    temporal.gate.set()
    await first
    await rest[0]
    assert log.view.last_sequence == run.log[-1][0]
    await asyncio.gather(*rest)
    assert temporal.described == 2


async def test_many_who_ask_at_once_are_refused_together_where_temporal_does_not_answer() -> None:
    temporal = RecordedTemporal(model())
    logs = RunLogs(temporal.client)
    log = await logs.open(RUN)
    temporal.described = 0
    temporal.fault = RPCError("gone", RPCStatusCode.UNAVAILABLE, b"")
    temporal.gate.clear()
    asking = [asyncio.create_task(log.refresh()) for _ in range(50)]
    await settled()
    temporal.gate.set()
    refused = await asyncio.gather(*asking, return_exceptions=True)
    assert all(isinstance(one, RPCError) for one in refused)
    assert temporal.described <= 2
    temporal.fault = None
    await log.refresh()


async def test_two_who_open_a_log_at_once_have_the_same_one() -> None:
    temporal = RecordedTemporal(model())
    logs = RunLogs(temporal.client)
    one, other = await asyncio.gather(logs.open(RUN), logs.open(RUN))
    assert one is other


@pytest.mark.parametrize("steps", range(1, 12))
async def test_a_reading_that_is_broken_off_loses_nothing(steps: int) -> None:
    run = model()
    temporal = RecordedTemporal(run, page=2)
    log = await RunLogs(temporal.client).open(RUN)
    go_on(run, 3)
    reading = asyncio.create_task(log.refresh())
    for _ in range(steps):
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    await log.refresh()
    assert facts(await told(log)) == projected(run)


async def test_who_waits_is_told_of_what_a_broken_off_reading_had_read() -> None:
    run = model()
    temporal = RecordedTemporal(run, page=1)
    log = await RunLogs(temporal.client).open(RUN)
    before = log.view.last_sequence
    async with waiting(log) as [waiter]:
        go_on(run)
        reading = asyncio.create_task(log.refresh())
        await until(lambda: log.view.last_sequence > before)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await log.refresh()
        await asyncio.wait_for(waiter, PATIENCE / 2)


# --- what there is not ---


async def test_there_is_no_run_where_temporal_knows_none() -> None:
    temporal = RecordedTemporal(model())
    temporal.fault = RPCError("workflow not found", RPCStatusCode.NOT_FOUND, b"")
    with pytest.raises(HostError) as refused:
        await RunLogs(temporal.client).open(RUN)
    assert refused.value.code == "not_found"


async def test_a_workflow_of_another_type_is_no_run() -> None:
    with pytest.raises(HostError) as refused:
        await RunLogs(RecordedTemporal(model(), workflow_type="EffectWorkflow").client).open(RUN)
    assert refused.value.code == "not_found"


async def test_a_run_whose_beginning_is_gone_is_not_shown_without_it() -> None:
    run = model()
    go_on(run, 2, suggest=True)
    temporal = RecordedTemporal(None)
    parts = RecordedTemporal(run)._parts()
    temporal.parts = {"1": parts["1"]}
    with pytest.raises(HostError) as refused:
        await RunLogs(temporal.client).open(RUN)
    assert refused.value.code == "run_expired"


async def test_a_history_that_is_none_of_a_run_is_refused_every_time() -> None:
    run = model()
    run.histories[0].append(event(99, "activity_task_scheduled", run.now, activity_id="other"))
    logs = RunLogs(RecordedTemporal(run).client)
    for _ in range(2):
        with pytest.raises(HostError) as refused:
            await logs.open(RUN)
        assert refused.value.code == "payload_unprojectable"


async def test_a_log_whose_history_goes_wrong_stays_refused() -> None:
    run = model()
    logs = RunLogs(RecordedTemporal(run).client)
    log = await logs.open(RUN)
    run.histories[0].append(event(99, "activity_task_scheduled", run.now, activity_id="other"))
    for _ in range(2):
        with pytest.raises(HostError) as refused:
            await log.refresh()
        assert refused.value.code == "payload_unprojectable"


# --- a chain ---


@pytest.mark.parametrize("page", [1, 1000])
async def test_a_run_that_is_continued_as_new_is_one_log(page: int) -> None:
    run = model(8)
    temporal = RecordedTemporal(run, page=page)
    log = await RunLogs(temporal.client).open(RUN)
    generation = log.generation
    for step in range(8):
        go_on(run, suggest=step in {1, 4})
        await log.refresh()
        assert facts(await told(log)) == projected(run)
    assert len(run.histories) == 3
    assert log.generation is generation
    assert facts(await told(await RunLogs(temporal.client).open(RUN))) == projected(run)


async def test_two_continuations_between_two_looks_are_followed() -> None:
    run = model(8)
    temporal = RecordedTemporal(run)
    log = await RunLogs(temporal.client).open(RUN)
    generation = log.generation
    go_on(run, 3, suggest=True)
    assert len(run.histories) > 2
    await log.refresh()
    assert log.generation is generation
    assert facts(await told(log)) == projected(run)


async def test_a_continuation_costs_the_same_however_often_the_run_was_continued() -> None:
    run = model(8)
    temporal = RecordedTemporal(run)
    log = await RunLogs(temporal.client).open(RUN)
    costs = []
    for _ in range(6):
        temporal.asked = 0
        go_on(run, suggest=True)
        await log.refresh()
        costs.append(temporal.asked)
    assert len(run.histories) == 7
    assert len(set(costs)) == 1


# --- a reset ---


def reset(run: TemporalModel, temporal: RecordedTemporal, upto: int) -> None:
    """The run is reset: what ran is ended, and its history goes on in another run from an event on."""
    before = list(run.histories[-1])
    if not run.over:
        run.histories[-1].append(event(len(before) + 1, "workflow_execution_terminated", run.now))
    temporal.parts["again"] = [
        *before[:upto],
        event(upto + 1, "workflow_task_failed", run.now, cause=29, new_run_id="again"),
    ]


async def test_a_reset_begins_another_log() -> None:
    run = model()
    go_on(run, 3)
    temporal = RecordedTemporal(run)
    log = await RunLogs(temporal.client).open(RUN)
    old, was = log.generation, await told(log)
    began_before = log.events(-1)
    first = await anext(began_before)
    reset(run, temporal, 8)
    await log.refresh()
    assert log.generation is not old
    now = await told(log)
    assert 0 < len(now) < len(was)
    assert now == was[: len(now)]
    assert log.view.status() == "running"
    assert [first, *[one async for one in began_before]] == was


async def test_a_reset_of_a_complete_run_begins_another_log() -> None:
    run = model(2)
    go_on(run, 2)
    temporal = RecordedTemporal(run)
    logs = RunLogs(temporal.client)
    log = await logs.open(RUN)
    assert log.view.is_terminal
    reset(run, temporal, 8)
    await logs.open(RUN)
    assert log.view.status() == "running"


async def test_who_waits_while_a_run_is_reset_is_told_and_never_sees_it_end() -> None:
    run = model()
    go_on(run, 3)
    temporal = RecordedTemporal(run)
    log = await RunLogs(temporal.client).open(RUN)
    old = log.generation
    async with waiting(log) as [waiter]:
        reset(run, temporal, 8)
        await temporal.tell()
        await asyncio.wait_for(waiter, PATIENCE / 2)
    assert log.generation is not old
    assert not old.view.is_terminal


# --- waiting ---


async def test_all_who_wait_share_one_poll_of_temporal_that_ends_with_the_last_of_them() -> None:
    run = model()
    temporal = RecordedTemporal(run)
    log = await RunLogs(temporal.client).open(RUN)
    assert temporal.polls == 0
    async with waiting(log, 16) as waiters:
        assert temporal.polls == 1
        for waiter in waiters[1:]:
            waiter.cancel()
        await settled()
        assert temporal.polls == 1
        waiters[0].cancel()
        await settled()
        assert temporal.polls == 0
    async with waiting(log, 16) as waiters:
        temporal.described = 0
        go_on(run)
        await temporal.tell()
        await asyncio.wait_for(asyncio.gather(*waiters), PATIENCE / 2)
        assert temporal.described == 1
    assert facts(await told(log)) == projected(run)


async def test_a_page_that_two_have_fetched_is_taken_once() -> None:
    run = model()
    temporal = RecordedTemporal(run)
    log = await RunLogs(temporal.client).open(RUN)
    async with waiting(log) as [waiter]:
        go_on(run)
        await asyncio.gather(temporal.tell(), log.refresh(), log.refresh())
        await settled()
        await asyncio.wait_for(waiter, PATIENCE / 2)
    go_on(run)
    await log.refresh()
    assert facts(await told(log)) == projected(run)


async def test_what_came_while_the_log_was_read_is_not_waited_for() -> None:
    run = model()
    temporal = RecordedTemporal(run, page=1000)
    log = await RunLogs(temporal.client).open(RUN)
    go_on(run)
    temporal.described = 0
    temporal.gate.clear()
    reading = asyncio.create_task(log.refresh())
    await until(lambda: temporal.described == 1)
    go_on(run)
    temporal.gate.set()
    await reading
    assert log.view.last_sequence < run.log[-1][0]
    await asyncio.wait_for(log.wait(log.view.last_sequence, 60), PATIENCE / 2)
    assert facts(await told(log)) == projected(run)


async def test_who_waits_through_a_continuation_and_the_end_is_told_of_both() -> None:
    run = model(3)
    temporal = RecordedTemporal(run)
    log = await RunLogs(temporal.client).open(RUN)
    async with waiting(log, after=run.log[-1][0] + 1) as [waiter]:
        go_on(run, suggest=True)
        await temporal.tell()
        await asyncio.wait_for(waiter, PATIENCE / 2)
    async with waiting(log, after=1000) as [waiter]:
        while not run.over:
            go_on(run)
            await temporal.tell()
            await settled()
        await asyncio.wait_for(waiter, PATIENCE / 2)
    assert log.view.is_terminal
    assert temporal.polls == 0


async def test_nobody_waits_longer_than_they_want() -> None:
    temporal = RecordedTemporal(model())
    log = await RunLogs(temporal.client).open(RUN)
    await asyncio.wait_for(log.wait(1000, 0.01), PATIENCE / 2)
    await settled()
    assert temporal.polls == 0


async def test_nobody_waits_for_what_is_there_or_never_will_be() -> None:
    run = model(1)
    temporal = RecordedTemporal(run)
    log = await RunLogs(temporal.client).open(RUN)
    await asyncio.wait_for(log.wait(-1, 60), PATIENCE / 2)
    go_on(run)
    await log.refresh()
    await asyncio.wait_for(log.wait(1000, 60), PATIENCE / 2)
    assert temporal.polls == 0


async def test_nobody_waits_for_a_host_that_stops() -> None:
    logs = RunLogs(RecordedTemporal(model()).client)
    log = await logs.open(RUN)
    async with waiting(log, 3) as waiters:
        await logs.close()
        await asyncio.wait_for(asyncio.gather(*waiters), PATIENCE / 2)
    assert log.is_stopping


async def test_what_goes_wrong_is_told_to_all_who_wait_and_the_next_one_tries_again() -> None:
    run = model()
    temporal = RecordedTemporal(run)
    log = await RunLogs(temporal.client).open(RUN)
    async with waiting(log, 2) as waiters:
        temporal.fault = RPCError("gone", RPCStatusCode.UNAVAILABLE, b"")
        await temporal.tell()
        for waiter in waiters:
            with pytest.raises(RPCError):
                await asyncio.wait_for(waiter, PATIENCE / 2)
    temporal.fault = None
    async with waiting(log) as [waiter]:
        go_on(run)
        await temporal.tell()
        await asyncio.wait_for(waiter, PATIENCE / 2)


# --- what is kept ---


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generations, "BLOCK_BYTES", 2000)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("max_bytes", [1, 10_000, 10_000_000])
@pytest.mark.parametrize("suggest", [False, True])
async def test_every_part_of_a_log_can_be_read_whatever_is_kept_of_it(max_bytes: int, suggest: bool) -> None:
    run = model(12)
    temporal = RecordedTemporal(run)
    logs = RunLogs(temporal.client, max_bytes=max_bytes)
    log = await logs.open(RUN)
    while not run.over:
        go_on(run, suggest=suggest and len(run.log) % 5 == 0)
        await log.refresh()
        for after in range(-1, len(run.log) + 2, 3):
            assert facts(await told(log, after)) == projected(run, after)


@pytest.mark.usefixtures("small_blocks")
async def test_those_who_read_an_old_log_at_one_pace_cost_what_one_does() -> None:
    run = model(40)
    go_on(run, 40)
    temporal = RecordedTemporal(run)
    log = await RunLogs(temporal.client, max_bytes=200_000).open(RUN)
    for key in list(log._logs.memory.kept._things):
        log._logs.memory.kept.pop(key)
    temporal.sent = 0
    readers = [told(log) for _ in range(20)]
    logs = await asyncio.gather(*readers)
    assert all(facts(one) == projected(run) for one in logs)
    assert temporal.sent == len(run.histories[0])


@pytest.mark.usefixtures("small_blocks")
async def test_a_reader_far_behind_does_not_set_one_far_ahead_back() -> None:
    run = model(60)
    go_on(run, 60)
    temporal = RecordedTemporal(run)
    logs = RunLogs(temporal.client, max_bytes=300_000)
    log = await logs.open(RUN)
    ahead, behind = log.events(60), log.events(-1)
    log._logs.memory.kept._max_bytes = 0
    log._logs.memory.kept.put("nothing", None, 0)
    log._logs.memory.kept._max_bytes = 300_000
    temporal.sent = 0
    pairs = [(await anext(ahead), await anext(behind)) for _ in range(50)]
    assert [one.sequence for one, _ in pairs] == list(range(61, 111))
    assert [one.sequence for _, one in pairs] == list(range(50))
    assert temporal.sent <= 2 * len(run.histories[0])


@pytest.mark.usefixtures("small_blocks")
async def test_a_reader_sees_the_log_as_it_was_when_they_began() -> None:
    run = model(12)
    go_on(run, 6)
    temporal = RecordedTemporal(run)
    log = await RunLogs(temporal.client, max_bytes=1).open(RUN)
    expected = projected(run)
    reader = log.events(-1)
    seen = [await anext(reader)]
    go_on(run, 6)
    await log.refresh()
    seen += [one async for one in reader]
    assert facts(seen) == expected


async def test_a_log_that_is_in_use_is_not_read_a_second_time_though_it_be_forgotten() -> None:
    logs = RunLogs(RecordedTemporal(model()).client, max_bytes=1)
    log = await logs.open(RUN)
    logs.memory.kept.put("other", object(), 1)
    assert await logs.open(RUN) is log


async def test_what_a_complete_log_leaves_behind_is_small() -> None:
    run = model(40)
    go_on(run, 40)
    logs = RunLogs(RecordedTemporal(run).client)
    log = await logs.open(RUN)
    assert log.generation.reading is None
    assert log.generation.size < 100_000


async def test_what_a_reading_held_is_freed_when_nobody_has_it_any_more() -> None:
    log = await RunLogs(RecordedTemporal(model()).client).open(RUN)
    reading = log.generation.reading
    assert reading is not None
    machine = weakref.ref(reading._projector._run)
    gc.disable()
    try:
        log.generation.reading = None
        del reading
        assert machine() is None
    finally:
        gc.enable()
