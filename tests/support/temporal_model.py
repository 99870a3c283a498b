"""A model of what Temporal does with a run: carries out the machine's commands and writes the history of it.

Activities and timers end when the test says so; each workflow task takes up what happened since the one before.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import temporalio.api.enums.v1 as enums
import temporalio.api.history.v1 as history
from temporalio.api.failure.v1 import Failure
from temporalio.api.sdk.v1 import WorkflowTaskCompletedMetadata
from temporalio.api.update.v1 import Request

from openwop_mcp import calls, failures
from openwop_mcp.runs.interrupts import RESOLVE, Resolution
from openwop_mcp.runs.machine import (
    CancelNode,
    CancelRequested,
    CancelRun,
    Carried,
    Command,
    CompleteRun,
    ContinueAsNew,
    DrainRequested,
    Fact,
    FailRun,
    InterruptResolved,
    NodeFailed,
    NodeSucceeded,
    NoteWaiting,
    PauseRequested,
    ResumeRequested,
    RunMachine,
    ScheduleNode,
    StartTimer,
    TimerFired,
    Turn,
)
from openwop_mcp.runs.pauses import PAUSE, RESUME, DrainPolicy, Pause, Resume
from openwop_mcp.runs.start import RunStart
from tests.support.tool_sessions import BRACKETS

AT_ONCE = 2
"""The SDK's flag of a workflow task that applied updates and all else at once."""

BEGINNING = 1_790_000_000_000
"""Milliseconds since 1970 at which every modelled run begins."""


def event(event_id: int, name: str, at: int, **attributes: Any) -> history.HistoryEvent:
    """A history event by the name of its attributes' field, without the suffix."""
    made = history.HistoryEvent(event_id=event_id, event_type=getattr(enums.EventType, f"EVENT_TYPE_{name.upper()}"))
    made.event_time.FromMilliseconds(at)
    field = getattr(made, f"{name}_event_attributes")
    field.SetInParent()
    for key, value in attributes.items():
        target = getattr(field, key)
        if isinstance(value, str | int | bytes | bool):
            setattr(field, key, value)
        elif isinstance(value, list):
            target.payloads.extend(failures.json_payload(one) if isinstance(one, bytes) else one for one in value)
        else:
            target.CopyFrom(value)
    return made


def _canceled(taken_by: int = 0) -> Failure:
    failure = Failure()
    failure.activity_failure_info.started_event_id = taken_by
    failure.cause.canceled_failure_info.SetInParent()
    return failure


class TemporalModel:
    """One run: the live machine, what is under way, and the histories, one for each Temporal run."""

    def __init__(
        self,
        start: RunStart,
        inputs: bytes = b"{}",
        *,
        shuffle: Callable[[list[Fact]], list[Fact]] = list,
        before: Callable[[TemporalModel], None] = lambda _: None,
    ):
        self.inputs = inputs
        self.shuffle = shuffle
        self.log: list[tuple[int, str, str | None, bytes, int]] = []
        self.histories: list[list[history.HistoryEvent]] = []
        self.under_way: dict[int, ScheduleNode | StartTimer] = {}
        self.commands: list[Command] = []
        self.now = BEGINNING
        self.over = False
        self.turns = 0
        self.early: Callable[[Mapping[str, str]], Mapping[str, bytes]] = lambda _: {}
        self._queue: list[Fact] = []
        self.before = before
        self._updates: list[tuple[str, bytes, Sequence[InterruptResolved | Turn]]] = []
        self._begun_by: dict[int, int] = {}
        self._carried: Carried | None = None
        self._open(start)

    def _open(self, start: RunStart, kept: Sequence[bytes] = ()) -> None:
        self.start = start
        self.machine = RunMachine(
            start, self.inputs, kept, emit=lambda *told: self.log.append(told), carried=self._carried
        )
        self.quiet = RunMachine(start, self.inputs, kept)
        self.histories.append([])
        self.under_way.clear()
        self._queue.clear()
        number = len(self.histories)
        self._append(
            "workflow_execution_started",
            input=[start.encode(), self.inputs, *kept],
            original_execution_run_id=f"00000000-0000-4000-8000-{number:012}",
        )
        for node_id, value in self.early(self.questions).items():
            self.answer(node_id, value)
        self.before(self)
        begin, updates = self._at(), self._pending
        self._task(lambda machine: machine.begin(begin) + (machine.apply(updates) if updates else []))

    def _append(self, name: str, **attributes: Any) -> int:
        events = self.histories[-1]
        events.append(event(len(events) + 1, name, self.now, **attributes))
        return len(events)

    def _at(self) -> float:
        return self.now / 1000

    # --- what happens ---

    def succeed(self, ordinal: int, result: bytes = b'{"content":[]}', **provenance: str) -> None:
        del self.under_way[ordinal]
        payload = calls.record(result, provenance)
        self._append("activity_task_completed", scheduled_event_id=self._begun_by[ordinal], result=[payload])
        self._queue.append(NodeSucceeded(ordinal, result, self._at(), payload.metadata))

    def fail(self, ordinal: int, failure: Failure) -> None:
        del self.under_way[ordinal]
        self._append("activity_task_failed", scheduled_event_id=self._begun_by[ordinal], failure=failure)
        self._queue.append(NodeFailed(ordinal, failures.read(failure), self._at()))

    def cancelled(self, ordinal: int, *, taken: bool = False) -> None:
        """The activity ends as cancelled, before a worker has taken it or after that."""
        del self.under_way[ordinal]
        begun = self._begun_by[ordinal]
        taken_by = begun + 1 if taken else 0
        self._append("activity_task_canceled", scheduled_event_id=begun, started_event_id=taken_by)
        self._queue.append(NodeFailed(ordinal, failures.read(_canceled(taken_by)), self._at()))

    def fire(self, ordinal: int) -> None:
        del self.under_way[ordinal]
        self._append("timer_fired", started_event_id=self._begun_by[ordinal])
        self._queue.append(TimerFired(ordinal, self._at()))

    def request_cancel(self, reason: str = "enough") -> None:
        self._append("workflow_execution_cancel_requested", cause=reason)
        self._queue.append(CancelRequested(reason, self._at()))

    def answer(self, node_id: str, value: bytes) -> None:
        """A person answers the question that a node waits with."""
        resolution = Resolution(self.questions[node_id], value, b'{"subjectId":"alice"}')
        ordinals = self.machine.open_interrupts(resolution.interrupt_id)
        assert ordinals
        for ordinal in ordinals:
            self.machine.check_answer(ordinal, value)
        facts = [InterruptResolved(ordinal, value, resolution.resolved_by, self._at()) for ordinal in ordinals]
        self._updates.append((RESOLVE, resolution.encode(), facts))

    def pause(self, policy: DrainPolicy = "drain-current-node", reason: str | None = None) -> None:
        """Someone pauses the run."""
        assert self.standing == "running"
        self.turns += 1
        asked = Pause(policy, reason)
        self._updates.append((PAUSE, asked.encode(), [PauseRequested(len(self._pending), asked, self._at())]))

    def resume(self, reason: str | None = None) -> None:
        """Someone resumes the run."""
        assert self.standing == "paused"
        asked = Resume(reason)
        self._updates.append((RESUME, asked.encode(), [ResumeRequested(len(self._pending), asked, self._at())]))

    @property
    def standing(self) -> str:
        """Where the run stands for who wants to pause or resume it."""
        return self.machine.standing(self._pending)

    @property
    def _pending(self) -> list[Fact]:
        return [fact for _, _, facts in self._updates for fact in facts]

    # --- workflow tasks ---

    def task(self, *, suggest: bool = False, at_once: bool = False) -> None:
        """One workflow task with what is new, if anything is.

        Args:
            suggest: Whether Temporal suggests a continue-as-new.
            at_once: Whether the SDK applies updates together with all else, and not before it.
        """
        if self.over or not (self._queue or self._updates):
            return
        facts, self._queue = self._queue, []
        updates = self._pending
        drain = [DrainRequested(self._at())] if suggest else []
        together = [updates + facts] if at_once else [updates, facts]
        batches = [self.shuffle([*batch, *drain]) for batch in together if batch]
        self._task(
            lambda machine: [command for batch in batches for command in machine.apply(batch)],
            suggest=suggest,
            at_once=at_once,
        )

    def _task(
        self, run: Callable[[RunMachine], list[Command]], *, suggest: bool = False, at_once: bool = False
    ) -> None:
        started = self._append("workflow_task_started", suggest_continue_as_new=suggest)
        self.commands = run(self.machine)
        assert run(self.quiet) == self.commands
        flags = WorkflowTaskCompletedMetadata(lang_used_flags=[AT_ONCE] if at_once else [])
        completed = self._append("workflow_task_completed", started_event_id=started, sdk_metadata=flags)
        updates, self._updates = self._updates, []
        for name, given, _ in updates:
            request = Request()
            request.input.name = name
            request.input.args.payloads.append(failures.json_payload(given))
            self._append("workflow_execution_update_accepted", accepted_request=request)
            self._append("workflow_execution_update_completed")
        gone = {command.ordinal for command in self.commands if isinstance(command, CancelNode)}
        unsent = [one.ordinal for one in self.commands if isinstance(one, ScheduleNode) and one.ordinal in gone]
        if unsent:
            # What is scheduled and cancelled in one task never reaches the server, and ends within that task.
            ended = self.shuffle([NodeFailed(ordinal, failures.read(_canceled()), self._at()) for ordinal in unsent])
            more = self.machine.apply(ended)
            assert self.quiet.apply(ended) == more
            self.commands = [*self.commands, *more]
        for command in self.commands:
            self._carry_out(command, completed, gone)

    def _carry_out(self, command: Command, completed: int, gone: set[int]) -> None:  # noqa: C901 - one case each
        match command:
            case ScheduleNode() if command.ordinal in gone:
                pass
            case ScheduleNode():
                self._begun_by[command.ordinal] = self._append(
                    "activity_task_scheduled", activity_id=command.activity_id
                )
                self.under_way[command.ordinal] = command
            case StartTimer():
                assert command.seconds > 0
                if command.ordinal not in gone:
                    self._begun_by[command.ordinal] = self._append(
                        "timer_started", workflow_task_completed_event_id=completed
                    )
                    self.under_way[command.ordinal] = command
            case NoteWaiting():
                self._append("workflow_properties_modified")
            case CancelNode():
                if isinstance(self.under_way.get(command.ordinal), StartTimer):
                    del self.under_way[command.ordinal]
            case CompleteRun():
                self._close("workflow_execution_completed")
            case FailRun():
                self._close("workflow_execution_failed", failure=Failure(message=command.message))
            case CancelRun():
                self._close("workflow_execution_canceled")
            case ContinueAsNew():
                self._append("workflow_execution_continued_as_new")
                self._carried = self.machine.carried
                self._open(self.start.carrying(command.state), command.kept)

    def _close(self, name: str, **attributes: Any) -> None:
        self._append(name, **attributes)
        self.over = True

    # --- looking ---

    @property
    def types(self) -> list[str]:
        """The log as ``type node``, without the events around its calls."""
        return [f"{told[1]} {told[2]}" if told[2] else told[1] for told in self.log if told[1] not in BRACKETS]

    @property
    def questions(self) -> dict[str, str]:
        """Ids of the interrupts that are open, by the nodes that wait."""
        found: dict[str, str] = {}
        for _, kind, node_id, payload, _ in self.log:
            if kind == "node.suspended":
                found[node_id or ""] = json.loads(payload)["interruptId"]
            elif kind in {"interrupt.resolved", "node.cancelled"}:
                found.pop(node_id or "", None)
        return found

    def ordinal(self, node_id: str) -> int:
        """The ordinal under which a node is under way."""
        return next(ordinal for ordinal, command in self.under_way.items() if command.node_id == node_id)
