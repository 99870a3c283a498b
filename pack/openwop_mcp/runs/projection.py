"""The run's event log, computed from its Temporal history by the machine that also drove the run.

Reads history events and writes nothing; needs no worker, no server and no storage. It follows no chain itself: the
histories of a run that was continued as new are fed one after the other.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import temporalio.api.enums.v1
import temporalio.api.failure.v1
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from openwop_mcp import failures, jsontext
from openwop_mcp.runs.callbacks import NOTIFY
from openwop_mcp.runs.engines import ENGINE_VERSION
from openwop_mcp.runs.events import RunEvent, timestamp
from openwop_mcp.runs.interrupts import RESOLVE, Resolution
from openwop_mcp.runs.machine import (
    CancelNode,
    CancelRequested,
    CancelRun,
    Command,
    CompleteRun,
    ContinueAsNew,
    DrainRequested,
    Fact,
    FailRun,
    InterruptResolved,
    NodeFailed,
    NodeSucceeded,
    PauseRequested,
    ResumeRequested,
    RunMachine,
    ScheduleNode,
    StartTimer,
    TimerFired,
    Turn,
)
from openwop_mcp.runs.pauses import PAUSE, RESUME, Pause, Resume
from openwop_mcp.runs.start import RunStart
from openwop_mcp.updates import TakenUpdates

__all__ = ("ProjectionError", "Projector")

_RESET = temporalio.api.enums.v1.WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW

_OF_TASK = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
    }
)

_AT_ONCE = 2
"""The SDK's flag in a workflow task for that it applied all that had come before the workflow's code went on."""

TERMINATED = "terminated"
"""Reason of a run that was ended from outside without a word to it."""

TEMPORALS_LIMIT = re.compile(r"\b(size|count)\b.*\bexceeds?\b.*\blimit\b", re.IGNORECASE)
"""What Temporal gives as the reason where it terminates a workflow that takes up more than it allows."""


class ProjectionError(Exception):
    """A history that the machine did not produce.

    Attributes:
        event_id: The event at which they part.
    """

    def __init__(self, event_id: int, what: str) -> None:
        super().__init__(f"history event {event_id}: {what}")
        self.event_id = event_id


@dataclass(slots=True)
class _Told:
    """Events as the machine tells them.

    It knows this and no projector, so that what they hold, which may be all of a run's results, is freed with the
    projector and need not wait for a garbage collection.
    """

    run_id: str
    engine_version: int = ENGINE_VERSION
    generation: str = ""
    events: list[RunEvent] = field(default_factory=list)

    def tell(self, sequence: int, event_type: str, node_id: str | None, payload: bytes, at: int) -> None:
        self.events.append(
            RunEvent(
                event_id=f"{self.generation}-{sequence}",
                run_id=self.run_id,
                type=event_type,
                payload=payload,
                timestamp=timestamp(at),
                sequence=sequence,
                node_id=node_id,
                engine_version=self.engine_version,
            )
        )

    def taken(self) -> list[RunEvent]:
        events, self.events = self.events, []
        return events


class Projector:
    """Turns a run's history events into run events, as they come.

    Args:
        run_id: The bound id of the run.
    """

    def __init__(self, run_id: str) -> None:
        self._machine: RunMachine | None = None
        self._told = _Told(run_id)
        self._begin_at = 0.0
        self._begun = False
        self._pending: list[tuple[int, Fact]] = []
        self._drain: DrainRequested | None = None
        self._task: HistoryEvent | None = None
        self._taken = TakenUpdates()
        self._updates: list[InterruptResolved | Turn] = []
        self._completed_task = 0
        self._to_schedule: dict[str, int] = {}
        self._to_start: deque[int] = deque()
        self._ordinals: dict[int, int] = {}
        self._notified: set[int] = set()
        self._cancel_reason = ""

    def project(self, events: Iterable[HistoryEvent]) -> list[RunEvent]:
        """Take the next history events, which end where Temporal ended a page or the history.

        Returns:
            The run events that follow from them; most history events have none.

        Raises:
            ProjectionError: if the machine cannot have been in the run that this history is of.
        """
        for event in events:
            self._feed(event)
        # What a workflow task did is written at once, so that a page does not end within it.
        self._settle_task()
        return self._told.taken()

    def take(self, event: HistoryEvent) -> list[RunEvent]:
        """Take one of several history events. A task ends with the next one, or with :meth:`project`.

        Returns:
            The run events that follow so far.

        Raises:
            ProjectionError: See :meth:`project`.
        """
        self._feed(event)
        return self._told.taken()

    @property
    def held(self) -> int:
        """Bytes of the values that are kept for events to come."""
        return 0 if self._machine is None else self._machine.held

    def _feed(self, event: HistoryEvent) -> None:
        if event.event_type not in _OF_TASK:
            self._settle_task()
        reader = self._READERS.get(event.event_type)
        if reader is None or self._is_of_callback(event):
            return
        if self._machine is None and event.event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            raise ProjectionError(event.event_id, "the history's beginning is missing: feed it from its first event")
        reader(self, event)

    def _is_of_callback(self, event: HistoryEvent) -> bool:
        """Whether it is about the telling of somebody that the run waits, which is nothing that the run itself does."""
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            if event.activity_task_scheduled_event_attributes.activity_type.name != NOTIFY:
                return False
            self._notified.add(event.event_id)
            return True
        if not self._notified:
            return False
        attributes = getattr(event, event.WhichOneof("attributes") or "", None)
        return getattr(attributes, "scheduled_event_id", 0) in self._notified

    @property
    def _run(self) -> RunMachine:
        assert self._machine is not None
        return self._machine

    # --- the run begins and goes on ---

    def _started(self, event: HistoryEvent) -> None:
        attributes = event.workflow_execution_started_event_attributes
        try:
            first, inputs, *kept = (payload.data for payload in attributes.input.payloads)
        except ValueError:
            raise ProjectionError(event.event_id, "not the history of a run: it has no start and inputs") from None
        try:
            start = RunStart.decode(first)
        except ValueError as error:
            raise ProjectionError(event.event_id, str(error)) from None
        before = self._machine
        follows = before is not None and isinstance(before.over, ContinueAsNew)
        if (start.state is not None) is not follows:
            raise ProjectionError(
                event.event_id, "the history does not follow on: feed a run's chain from its first history, in order"
            )
        self._machine = RunMachine(
            start, inputs, kept, emit=self._told.tell, carried=before.carried if before else None
        )
        self._told.engine_version = start.engine_version
        self._told.generation = attributes.original_execution_run_id
        self._begin_at = _at(event)
        self._begun = False
        self._pending.clear()
        self._to_schedule.clear()
        self._to_start.clear()
        self._ordinals.clear()
        self._notified.clear()

    def _task_started(self, event: HistoryEvent) -> None:
        suggested = event.workflow_task_started_event_attributes.suggest_continue_as_new
        self._drain = DrainRequested(_at(event)) if suggested else None

    def _task_completed(self, event: HistoryEvent) -> None:
        self._completed_task = event.event_id
        self._task = event

    def _settle_task(self) -> None:
        """Give the machine what a task of the workflow took up: all that was in history when it started, and updates.

        The updates that it accepted stand behind its completion, and come before all else: the SDK applies them first,
        unless the task says that it took all at once.
        """
        if self._task is None:
            return
        completed, self._task = self._task.workflow_task_completed_event_attributes, None
        updates, self._updates = self._updates, []
        taken_until = completed.started_event_id
        facts = [fact for event_id, fact in self._pending if event_id < taken_until]
        self._pending = [(event_id, fact) for event_id, fact in self._pending if event_id >= taken_until]
        commands: list[Command] = []
        at_once = _AT_ONCE in completed.sdk_metadata.lang_used_flags
        if not self._begun:
            # An update that is there before the run begins is taken with all else.
            at_once = self._begun = True
            commands += self._run.begin(self._begin_at)
        for batch in ([*updates, *facts],) if at_once else (updates, facts):
            if batch:
                commands += self._run.apply([*batch, self._drain] if self._drain else batch)
        # What is started and cancelled within one task leaves no trace in history, and a call ends with that.
        cancelled = {command.ordinal for command in commands if isinstance(command, CancelNode)}
        unsent = [one.ordinal for one in commands if isinstance(one, ScheduleNode) and one.ordinal in cancelled]
        if unsent:
            commands += self._run.apply([NodeFailed(ordinal, _cancelled(), 0) for ordinal in unsent])
        self._expect(commands, cancelled)

    def _expect(self, commands: Sequence[Command], cancelled: Collection[int]) -> None:
        self._to_start.clear()
        for command in commands:
            if isinstance(command, ScheduleNode) and command.ordinal not in cancelled:
                self._to_schedule[command.activity_id] = command.ordinal
            elif isinstance(command, StartTimer) and command.ordinal not in cancelled:
                self._to_start.append(command.ordinal)

    def _task_failed(self, event: HistoryEvent) -> None:
        attributes = event.workflow_task_failed_event_attributes
        if attributes.cause == _RESET:
            self._told.generation = attributes.new_run_id

    # --- what the machine asked for ---

    def _scheduled(self, event: HistoryEvent) -> None:
        activity_id = event.activity_task_scheduled_event_attributes.activity_id
        ordinal = self._to_schedule.pop(activity_id, None)
        if ordinal is None:
            raise ProjectionError(event.event_id, "it schedules an activity that the run's definition does not ask for")
        self._ordinals[event.event_id] = ordinal

    def _timer_started(self, event: HistoryEvent) -> None:
        by = event.timer_started_event_attributes.workflow_task_completed_event_id
        if by != self._completed_task or not self._to_start:
            raise ProjectionError(event.event_id, "it starts a timer that the run's definition does not ask for")
        self._ordinals[event.event_id] = self._to_start.popleft()

    # --- facts ---

    def _fact(self, event: HistoryEvent, fact: Fact) -> None:
        self._pending.append((event.event_id, fact))

    def _ordinal(self, event: HistoryEvent, began_by: int) -> int:
        try:
            return self._ordinals.pop(began_by)
        except KeyError:
            raise ProjectionError(event.event_id, f"it ends what event {began_by} did not begin") from None

    def _succeeded(self, event: HistoryEvent) -> None:
        attributes = event.activity_task_completed_event_attributes
        ordinal = self._ordinal(event, attributes.scheduled_event_id)
        if len(attributes.result.payloads) != 1:
            raise ProjectionError(event.event_id, "the activity gave no single result")
        payload = attributes.result.payloads[0]
        result = payload.data
        try:
            jsontext.check(result)
        except jsontext.JsonTextError as error:
            raise ProjectionError(event.event_id, f"the activity's result is no JSON text: {error}") from None
        self._fact(event, NodeSucceeded(ordinal, result, _at(event), payload.metadata))

    def _failed(self, event: HistoryEvent) -> None:
        attributes = event.activity_task_failed_event_attributes
        self._not_done(event, attributes.scheduled_event_id, attributes.failure)

    def _timed_out(self, event: HistoryEvent) -> None:
        attributes = event.activity_task_timed_out_event_attributes
        self._not_done(event, attributes.scheduled_event_id, attributes.failure)

    def _canceled(self, event: HistoryEvent) -> None:
        attributes = event.activity_task_canceled_event_attributes
        ordinal = self._ordinal(event, attributes.scheduled_event_id)
        self._fact(event, NodeFailed(ordinal, _cancelled(attributes.started_event_id), _at(event)))

    def _not_done(self, event: HistoryEvent, scheduled_by: int, failure: temporalio.api.failure.v1.Failure) -> None:
        self._fact(event, NodeFailed(self._ordinal(event, scheduled_by), failures.read(failure), _at(event)))

    def _timer_fired(self, event: HistoryEvent) -> None:
        started_by = event.timer_fired_event_attributes.started_event_id
        self._fact(event, TimerFired(self._ordinal(event, started_by), _at(event)))

    def _update_admitted(self, event: HistoryEvent) -> None:
        self._taken.admit(event)

    def _update_accepted(self, event: HistoryEvent) -> None:
        name, given = self._taken.accept(event)
        turn = len(self._updates)
        if name == RESOLVE:
            self._answered(event, Resolution.decode(given))
        elif name == PAUSE:
            self._updates.append(PauseRequested(turn, Pause.decode(given), _at(event)))
        elif name == RESUME:
            self._updates.append(ResumeRequested(turn, Resume.decode(given), _at(event)))
        else:
            raise ProjectionError(event.event_id, f"a run takes no update '{name}'")

    def _answered(self, event: HistoryEvent, resolution: Resolution) -> None:
        ordinals = self._run.open_interrupts(resolution.interrupt_id)
        if not ordinals:
            raise ProjectionError(event.event_id, "it answers an interrupt that the run does not have")
        self._updates += [
            InterruptResolved(ordinal, resolution.resume_value, resolution.resolved_by, _at(event))
            for ordinal in ordinals
        ]

    def _cancel_requested(self, event: HistoryEvent) -> None:
        self._cancel_reason = event.workflow_execution_cancel_requested_event_attributes.cause
        self._fact(event, CancelRequested(self._cancel_reason, _at(event)))

    # --- the end ---

    def _agree(self, event: HistoryEvent, *ends: type[Any]) -> None:
        if not isinstance(self._run.over, ends):
            raise ProjectionError(event.event_id, "it ends the run in another way than the run's definition does")

    def _completed(self, event: HistoryEvent) -> None:
        self._agree(event, CompleteRun)

    def _continued(self, event: HistoryEvent) -> None:
        self._agree(event, ContinueAsNew)

    def _ended_failed(self, event: HistoryEvent) -> None:
        failure = event.workflow_execution_failed_event_attributes.failure
        self._run.abandon_failed(_at(event), "internal_error", failures.said(failure) or "the workflow failed")
        self._agree(event, FailRun)

    def _ended_timed_out(self, event: HistoryEvent) -> None:
        self._run.abandon_failed(_at(event), "run_timeout", "the run took longer than it may")

    def _ended_canceled(self, event: HistoryEvent) -> None:
        self._run.abandon_cancelled(_at(event), self._cancel_reason)
        self._agree(event, CancelRun)

    def _ended_terminated(self, event: HistoryEvent) -> None:
        reason = event.workflow_execution_terminated_event_attributes.reason
        if TEMPORALS_LIMIT.search(reason):
            self._run.abandon_failed(
                _at(event), "storage_limit_exceeded", f"Temporal ended the run without a word to it: {reason}"
            )
        else:
            self._run.abandon_cancelled(_at(event), TERMINATED)

    _READERS: ClassVar[Mapping[int, Callable[[Projector, HistoryEvent], None]]] = {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: _started,
        EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED: _task_started,
        EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED: _task_completed,
        EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED: _task_failed,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED: _update_admitted,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: _update_accepted,
        EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED: _scheduled,
        EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED: _succeeded,
        EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: _failed,
        EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: _timed_out,
        EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED: _canceled,
        EventType.EVENT_TYPE_TIMER_STARTED: _timer_started,
        EventType.EVENT_TYPE_TIMER_FIRED: _timer_fired,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED: _cancel_requested,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: _completed,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW: _continued,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: _ended_failed,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: _ended_timed_out,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: _ended_canceled,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: _ended_terminated,
    }


def _cancelled(started_event_id: int = 0) -> failures.CallFailure:
    """What the live run gets where an activity ended as cancelled; history holds no failure of it."""
    failure = temporalio.api.failure.v1.Failure()
    failure.activity_failure_info.started_event_id = started_event_id
    failure.cause.canceled_failure_info.SetInParent()
    return failures.read(failure)


def _at(event: HistoryEvent) -> float:
    return event.event_time.ToMicroseconds() / 1_000_000
