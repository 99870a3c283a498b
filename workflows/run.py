"""``RunWorkflow``: a graph of nodes as a Temporal workflow.

Carries out what the run's state machine decides and tells it what came of it. Decides nothing itself: the same machine,
fed from history, is the run's event log.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, CancelledError

with workflow.unsafe.imports_passed_through():
    from openwop_mcp import failures, jsontext, terminal
    from openwop_mcp.calls import class_queue
    from openwop_mcp.errors import InvalidRequestError
    from openwop_mcp.nodes import NodeCall
    from openwop_mcp.questions.eligibility import takes_tokens
    from openwop_mcp.runs import machine as machines
    from openwop_mcp.runs.callbacks import MAX_DATA, NOTIFY, Callback
    from openwop_mcp.runs.definition import Node
    from openwop_mcp.runs.interrupts import RESOLVE, WAITING, Resolution
    from openwop_mcp.runs.pauses import PAUSE, PAUSED, RESUME, Pause, Resume, encode_taken
    from openwop_mcp.runs.start import RunStart
    from openwop_mcp.runs.waiting import Asking
    from openwop_mcp.telemetry.calls import count_doubt

__all__ = ("RunWorkflow",)

ATTEMPT_TIMEOUT = timedelta(hours=2)
"""Backstop for one attempt of a node. The limits that matter are the server's ``timeouts``, in the worker."""

MAX_LOGGED = 300
"""Characters of a failure's message in the log: the whole of it is in the run's history."""

ONE_ATTEMPT = RetryPolicy(maximum_attempts=1)

CALLBACK_TIMEOUT = timedelta(seconds=30)
"""For one attempt to tell somebody that the run waits: what it is given on the network, and a little more."""

CALLBACK_PATIENCE = timedelta(days=1)
"""How long that is tried where the receiver is down. By then somebody has looked for themselves."""

CALLBACK_RETRY = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(minutes=5))
"""A receiver that restarts is there again in some seconds; one that stays down is not to be asked all the time."""

NO_PAUSE: Mapping[machines.Standing, tuple[str, str]] = {
    "paused": ("run_state_conflict", "the run is paused already"),
    "ending": ("run_state_conflict", "the run is ending, and starts nothing more"),
    "over": ("run_terminal", "the run is over"),
}
"""Why a run is not paused, code and words, by where it stands."""

NO_RESUME: Mapping[machines.Standing, tuple[str, str]] = {
    "running": ("run_state_conflict", "the run is not paused"),
    "ending": ("run_state_conflict", "the run is ending, and starts nothing more"),
    "over": ("run_terminal", "the run is over"),
}
"""Why a run is not resumed, in the same way."""

LOGGED: Mapping[str, str] = {"server": "serverId", "effect": "effectId", "attempt": "attempt"}
"""What the log says of the call that a run failed with, by where it stands among the failure's facts."""

# Says nothing on replay.
_logger = workflow.LoggerAdapter(logging.getLogger("openwop_mcp.runs"), None)
_logger.workflow_info_on_message = False

F = TypeVar("F", bound=Callable[..., Any])


def _and_more(method: F) -> F:
    """Tell Temporal of two parameters only, so that it gives two payloads as they are.

    It knows no types for a number of payloads that varies, and would parse them. More than two are therefore sent in an
    encoding that is never parsed and arrives as bytes.
    """
    declared = inspect.signature(method)
    two = [one for one in declared.parameters.values() if one.kind is not inspect.Parameter.VAR_POSITIONAL]
    method.__signature__ = declared.replace(parameters=two)  # type: ignore[attr-defined]  # any function takes it
    return method


# Unsandboxed: the sandbox costs about 30 % of a run's CPU, and this file has nothing that it would catch that a replay
# in the tests does not.
@workflow.defn(name="RunWorkflow", sandboxed=False)
class RunWorkflow:
    """One run of a workflow definition."""

    @workflow.init
    @_and_more
    def __init__(self, start: RawValue, inputs: RawValue, *kept: bytes) -> None:
        self._start = RunStart.decode(_bytes(start))
        self._inputs = _bytes(inputs)
        self._machine = machines.RunMachine(self._start, self._inputs, kept, emit=None)
        self._facts: list[machines.Fact] = []
        self._under_way: dict[int, asyncio.Task[Any]] = {}
        self._callbacks: dict[int, asyncio.Task[Any]] = {}

    @workflow.run
    @_and_more
    async def run(self, start: RawValue, inputs: RawValue, *kept: bytes) -> RawValue:
        """Carry the run to its end.

        Args:
            start: JSON text of a ``RunStart``.
            inputs: JSON text of the run's inputs, as they were posted.
            kept: Large values of the state in ``start``; with them all three are bytes.

        Returns:
            JSON text ``{"outputs": {<node>: reference}}``: which recorded node results are the run's outputs.
        """
        del start, inputs, kept  # read in __init__, where a replay finds them as well
        commands = self._machine.begin(workflow.time())
        while True:
            for command in commands:
                if (end := self._carry_out(command)) is not None:
                    return end
            self._call_back()
            try:
                await workflow.wait_condition(lambda: bool(self._facts))
            except asyncio.CancelledError:
                self._facts.append(machines.CancelRequested(workflow.cancellation_reason() or "", at=workflow.time()))
                # The cancellation is raised before the callbacks of results that came with it have run.
                await workflow.wait_condition(lambda: True)
            facts, self._facts = self._facts, []
            if workflow.info().is_continue_as_new_suggested():
                facts.append(machines.DrainRequested(at=workflow.time()))
            commands = self._machine.apply(facts)

    @workflow.update(name=RESOLVE)
    def resolve(self, given: RawValue) -> None:
        """Take a person's answer to an interrupt.

        Args:
            given: JSON text of a ``Resolution``.
        """
        resolution = Resolution.decode(given.payload.data)
        ordinals = self._machine.open_interrupts(resolution.interrupt_id)
        assert ordinals, "the validator has seen to it"
        self._facts += [
            machines.InterruptResolved(ordinal, resolution.resume_value, resolution.resolved_by, at=workflow.time())
            for ordinal in ordinals
        ]

    @resolve.validator
    def _check(self, given: RawValue) -> None:
        try:
            resolution = Resolution.decode(given.payload.data)
        except (ValueError, KeyError):
            raise _refused("validation_error", "the Update takes interruptId, resumeValue and resolvedBy") from None
        ordinals = self._machine.open_interrupts(resolution.interrupt_id)
        answered = {fact.ordinal for fact in self._facts if isinstance(fact, machines.InterruptResolved)}
        if not answered.isdisjoint(ordinals) or (not ordinals and self._machine.was_answered(resolution.interrupt_id)):
            raise _refused(
                "interrupt_already_resolved", "the interrupt has an answer, or nobody waits for one any more"
            )
        if not ordinals:
            raise _refused("not_found", "the run waits with no such interrupt")
        if not all(self._machine.may_answer(ordinal, resolution.resolved_by) for ordinal in ordinals):
            raise _refused("forbidden", "the interrupt names those who may answer it, and this subject is none of them")
        try:
            for ordinal in ordinals:
                self._machine.check_answer(ordinal, resolution.resume_value)
        except InvalidRequestError as error:
            raise _refused(error.code, error.message) from None

    @workflow.update(name=PAUSE)
    def pause(self, given: RawValue) -> RawValue:
        """Pause the run.

        Args:
            given: JSON text of a ``Pause``.

        Returns:
            JSON text ``{"at": …}``: since when it is paused.
        """
        asked = Pause.decode(given.payload.data)
        return self._turn(machines.PauseRequested(len(self._facts), asked, at=workflow.time()))

    @pause.validator
    def _check_pause(self, given: RawValue) -> None:
        try:
            Pause.decode(given.payload.data)
        except ValueError:
            raise _refused("validation_error", "the Update takes drainPolicy and a reason") from None
        self._check_standing(NO_PAUSE)

    @workflow.update(name=RESUME)
    def resume(self, given: RawValue) -> RawValue:
        """Let the paused run go on.

        Args:
            given: JSON text of a ``Resume``.

        Returns:
            JSON text ``{"at": …}``: since when it goes on.
        """
        asked = Resume.decode(given.payload.data)
        return self._turn(machines.ResumeRequested(len(self._facts), asked, at=workflow.time()))

    @resume.validator
    def _check_resume(self, given: RawValue) -> None:
        try:
            Resume.decode(given.payload.data)
        except ValueError:
            raise _refused("validation_error", "the Update takes a reason") from None
        self._check_standing(NO_RESUME)

    def _check_standing(self, refusals: Mapping[machines.Standing, tuple[str, str]]) -> None:
        if (refusal := refusals.get(self._machine.standing(self._facts))) is not None:
            raise _refused(*refusal)

    def _turn(self, fact: machines.Turn) -> RawValue:
        self._facts.append(fact)
        return RawValue(failures.json_payload(encode_taken(fact.at)))

    def _carry_out(self, command: machines.Command) -> RawValue | None:
        match command:
            case machines.ScheduleNode():
                self._watch(command.ordinal, self._schedule(command), command.node_id)
            case machines.StartTimer():
                self._watch(
                    command.ordinal,
                    asyncio.create_task(
                        workflow.sleep(command.seconds, summary=f"{command.purpose} {command.node_id or ''}".strip())
                    ),
                )
            case machines.CancelNode():
                if (task := self._under_way.get(command.ordinal)) is not None:
                    task.cancel()
            case machines.NoteWaiting():
                paused = {} if command.paused is None else {PAUSED: command.paused}
                workflow.upsert_memo({WAITING: command.questions, **paused})
            case machines.CompleteRun():
                return RawValue(failures.json_payload(command.result))
            case machines.FailRun():
                error = ApplicationError(
                    command.message,
                    RawValue(failures.json_payload(command.details)),
                    type=command.code,
                    non_retryable=True,
                )
                self._log("failed", command.node_id, command)
                raise failures.unsaid(error) if self._machine.is_sensitive(command.node_id) else error
            case machines.CancelRun():
                raise asyncio.CancelledError
            case machines.ContinueAsNew():
                parts = [
                    self._start.carrying(command.state, reset=self._was_reset).encode(),
                    self._inputs,
                    *command.kept,
                ]
                # Each large value in a payload of its own: storage knows it again, and it stays one reference. Of the
                # memo Temporal itself carries on only what the run was started with.
                workflow.continue_as_new(
                    args=parts if command.kept else [RawValue(failures.json_payload(part)) for part in parts],
                    memo=workflow.memo(),
                )
        return None

    def _call_back(self) -> None:
        """Have whoever created the run told of what it waits with, and no more of what it has stopped waiting with."""
        if self._start.callback_url is None:
            return
        asking = {one.ordinal: (node, one) for node, one in self._machine.asking}
        for ordinal in [ordinal for ordinal in self._callbacks if ordinal not in asking]:
            self._callbacks.pop(ordinal).cancel()
        for ordinal, (node, one) in asking.items():
            if ordinal not in self._callbacks:
                self._callbacks[ordinal] = self._notify(self._start.callback_url, node, one)

    def _notify(self, url: str, node: Node, one: Asking) -> asyncio.Task[Any]:
        asked = one.asked
        data = None if self._machine.is_sensitive(node.id) else jsontext.member(asked.payload, "data")
        callback = Callback(
            url,
            self._start.run_id,
            node.id,
            one.interrupt_id,
            asked.kind,
            asked.key,
            None if data is None or len(data) > MAX_DATA else data,
            until=one.due,
            takes_tokens=takes_tokens(asked.payload, node.config),
        )
        task = workflow.start_activity(
            NOTIFY,
            RawValue(failures.json_payload(callback.encode())),
            start_to_close_timeout=CALLBACK_TIMEOUT,
            schedule_to_close_timeout=CALLBACK_PATIENCE,
            retry_policy=CALLBACK_RETRY,
            summary=f"notify: {node.id} waits",
        )
        task.add_done_callback(_called_back)
        return task

    def _log(self, became: str, node_id: str | None, why: machines.FailRun | failures.CallFailure) -> None:
        sensitive = self._machine.is_sensitive(node_id)
        node = "" if node_id is None else f", node {node_id}"
        message = "" if sensitive else f": {terminal.escape(why.message[:MAX_LOGGED])}"
        told = {} if sensitive else jsontext.decode(why.details)
        facts = {name: told.get(member) for name, member in LOGGED.items()}
        facts |= {"node": node_id, "tenant": self._start.owner.tenant}
        _logger.warning(
            "run %s %s%s: %s%s",
            workflow.info().workflow_id,
            became,
            node,
            why.code,
            message,
            extra={"facts": {name: value for name, value in facts.items() if isinstance(value, str | int)}},
        )

    def _schedule(self, command: machines.ScheduleNode) -> asyncio.Task[Any]:
        owner = self._start.owner
        call = NodeCall(
            command.node_id,
            owner.tenant,
            command.attempt,
            command.config,
            owner.principal,
            origin=workflow.info().original_execution_run_id,
            reset=self._start.reset,
            answer=command.answer,
            sensitive=command.sensitive,
            allowed=command.allowed,
            suspends=command.suspends,
            input=command.input,
            approved=command.approved,
        )
        return workflow.start_activity(
            command.type_id,
            args=[
                RawValue(failures.json_payload(call.encode())),
                RawValue(failures.json_payload(command.inputs)),
            ],
            activity_id=command.activity_id,
            task_queue=self._queue_of(command),
            result_type=RawValue,
            start_to_close_timeout=ATTEMPT_TIMEOUT,
            heartbeat_timeout=timedelta(seconds=self._start.options.heartbeat_timeout),
            retry_policy=ONE_ATTEMPT,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            summary=f"{command.node_id}: {command.type_id}",
        )

    def _queue_of(self, command: machines.ScheduleNode) -> str | None:
        """The task queue of a node's server, where that is in a class; else the run's own."""
        classes = self._start.options.classes
        if not classes:
            return None
        text = jsontext.member(command.inputs, "serverId") or jsontext.member(command.config, "serverId")
        server_id = None if text is None else jsontext.decode(text)
        # What is no text is for the activity to refuse.
        name = classes.get(server_id) if isinstance(server_id, str) else None
        return None if name is None else class_queue(name, workflow.info().task_queue)

    @property
    def _was_reset(self) -> bool:
        info = workflow.info()
        return self._start.reset or info.run_id != info.original_execution_run_id

    def _watch(self, ordinal: int, task: asyncio.Task[Any], node_id: str | None = None) -> None:
        """Turn the task's end into a fact. Facts are only queued here; one loop takes what a workflow task brought."""
        self._under_way[ordinal] = task

        def ended(done: asyncio.Task[Any]) -> None:
            del self._under_way[ordinal]
            if (fact := _fact(ordinal, done)) is not None:
                self._facts.append(fact)
            if isinstance(fact, machines.NodeFailed) and fact.failure.happened.in_doubt and fact.failure.happened.ask:
                # Any other doubt fails the run, which is told then.
                self._log("has an effect in doubt", node_id, fact.failure)

        task.add_done_callback(ended)


def _called_back(task: asyncio.Task[Any]) -> None:
    """Nothing hangs on it: whoever was to be told can look, and the question waits."""
    error = None if task.cancelled() else task.exception()
    if isinstance(error, ActivityError) and not isinstance(error.cause, CancelledError):
        _logger.warning("run %s: %s", workflow.info().workflow_id, error.cause)


def _refused(code: str, message: str) -> ApplicationError:
    return ApplicationError(message, type=code, non_retryable=True)


def _bytes(given: RawValue | bytes) -> bytes:
    return given if isinstance(given, bytes) else given.payload.data


def _fact(ordinal: int, task: asyncio.Task[Any]) -> machines.Fact | None:
    at = workflow.time()
    if task.cancelled():
        return None  # a timer that the machine cancelled
    error = task.exception()
    if error is None:
        answer = task.result()
        if isinstance(answer, RawValue):
            return machines.NodeSucceeded(ordinal, answer.payload.data, at=at, metadata=answer.payload.metadata)
        return machines.TimerFired(ordinal, at=at)
    if isinstance(error, ActivityError) and error.failure is not None:
        failure = failures.read(error.failure)
        count_doubt(failure)
        return machines.NodeFailed(ordinal, failure, at=at)
    raise error
