"""The run's event log, computed from its Temporal history by the machine that also drove the run.

Reads history events and writes nothing; needs no worker, no server and no storage. It follows no chain itself: the
histories of a run that was continued as new are fed one after the other.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import temporalio.api.enums.v1
import temporalio.api.failure.v1
import temporalio.api.update.v1
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from openwop_mcp import failures, jsontext
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
    RunMachine,
    ScheduleNode,
    StartTimer,
    TimerFired,
)
from openwop_mcp.runs.start import RunStart

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


class Projector:
    """Turns a run's history events into run events, as they come.

    Args:
        run_id: The bound id of the run.
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._machine: RunMachine | None = None
        self._generation = ""
        self._out: list[RunEvent] = []
        self._begin_at = 0.0
        self._begun = False
        self._pending: list[tuple[int, Fact]] = []
        self._drain: DrainRequested | None = None
        self._task: HistoryEvent | None = None
        self._admitted: dict[int, temporalio.api.update.v1.Request] = {}
        self._answers: list[InterruptResolved] = []
        self._completed_task = 0
        self._to_schedule: dict[str, int] = {}
        self._to_start: deque[int] = deque()
        self._ordinals: dict[int, int] = {}
        self._cancel_reason = ""
        self._readers: Mapping[int, Callable[[HistoryEvent], None]] = {
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: self._started,
            EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED: self._task_started,
            EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED: self._task_completed,
            EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED: self._task_failed,
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED: self._update_admitted,
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: self._update_accepted,
            EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED: self._scheduled,
            EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED: self._succeeded,
            EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: self._failed,
            EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: self._timed_out,
            EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED: self._canceled,
            EventType.EVENT_TYPE_TIMER_STARTED: self._timer_started,
            EventType.EVENT_TYPE_TIMER_FIRED: self._timer_fired,
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED: self._cancel_requested,
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: self._completed,
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW: self._continued,
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: self._ended_failed,
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: self._ended_timed_out,
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: self._ended_canceled,
            EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: self._ended_terminated,
        }

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
        out, self._out = self._out, []
        return out

    def _feed(self, event: HistoryEvent) -> None:
        if event.event_type not in _OF_TASK:
            self._settle_task()
        reader = self._readers.get(event.event_type)
        if reader is None:
            return
        if self._machine is None and event.event_type != EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            raise ProjectionError(event.event_id, "the history's beginning is missing: feed it from its first event")
        reader(event)

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
        self._machine = RunMachine(start, inputs, kept, emit=self._emitted, carried=before.carried if before else None)
        self._generation = attributes.original_execution_run_id
        self._begin_at = _at(event)
        self._begun = False
        self._pending.clear()
        self._to_schedule.clear()
        self._to_start.clear()
        self._ordinals.clear()

    def _task_started(self, event: HistoryEvent) -> None:
        suggested = event.workflow_task_started_event_attributes.suggest_continue_as_new
        self._drain = DrainRequested(_at(event)) if suggested else None

    def _task_completed(self, event: HistoryEvent) -> None:
        self._completed_task = event.event_id
        self._task = event

    def _settle_task(self) -> None:
        """Give the machine what a task of the workflow took up: all that was in history when it started, and answers.

        The answers that it accepted stand behind its completion, and come before all else: the SDK applies them first,
        unless the task says that it took all at once.
        """
        if self._task is None:
            return
        completed, self._task = self._task.workflow_task_completed_event_attributes, None
        answers, self._answers = self._answers, []
        taken_until = completed.started_event_id
        facts = [fact for event_id, fact in self._pending if event_id < taken_until]
        self._pending = [(event_id, fact) for event_id, fact in self._pending if event_id >= taken_until]
        commands: list[Command] = []
        at_once = _AT_ONCE in completed.sdk_metadata.lang_used_flags
        if not self._begun:
            # An answer that is there before the run begins is taken with all else.
            at_once = self._begun = True
            commands += self._run.begin(self._begin_at)
        for batch in ([*answers, *facts],) if at_once else (answers, facts):
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
            self._generation = attributes.new_run_id

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
        self._fact(event, NodeFailed(ordinal, _cancelled(), _at(event)))

    def _not_done(self, event: HistoryEvent, scheduled_by: int, failure: temporalio.api.failure.v1.Failure) -> None:
        self._fact(event, NodeFailed(self._ordinal(event, scheduled_by), failures.read(failure), _at(event)))

    def _timer_fired(self, event: HistoryEvent) -> None:
        started_by = event.timer_fired_event_attributes.started_event_id
        self._fact(event, TimerFired(self._ordinal(event, started_by), _at(event)))

    def _update_admitted(self, event: HistoryEvent) -> None:
        # After a reset the answers that came later are given again, and stand here.
        self._admitted[event.event_id] = event.workflow_execution_update_admitted_event_attributes.request

    def _update_accepted(self, event: HistoryEvent) -> None:
        attributes = event.workflow_execution_update_accepted_event_attributes
        request = attributes.accepted_request
        if not request.HasField("input"):
            request = self._admitted[attributes.accepted_request_sequencing_event_id]
        if request.input.name != RESOLVE:
            raise ProjectionError(event.event_id, f"a run takes no update '{request.input.name}'")
        resolution = Resolution.decode(request.input.args.payloads[0].data)
        ordinals = self._run.open_interrupts(resolution.interrupt_id)
        if not ordinals:
            raise ProjectionError(event.event_id, "it answers an interrupt that the run does not have")
        self._answers += [
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
        self._run.abandon_failed(_at(event), "internal_error", failure.message or "the workflow failed")
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

    # --- events ---

    def _emitted(self, sequence: int, event_type: str, node_id: str | None, payload: bytes, at: int) -> None:
        self._out.append(
            RunEvent(
                event_id=f"{self._generation}-{sequence}",
                run_id=self._run_id,
                type=event_type,
                payload=payload,
                timestamp=timestamp(at),
                sequence=sequence,
                node_id=node_id,
            )
        )


def _cancelled() -> failures.CallFailure:
    """What the live run gets where an activity ended as cancelled; history holds no failure of it."""
    failure = temporalio.api.failure.v1.Failure()
    failure.canceled_failure_info.SetInParent()
    return failures.read(failure)


def _at(event: HistoryEvent) -> float:
    return event.event_time.ToMicroseconds() / 1_000_000
