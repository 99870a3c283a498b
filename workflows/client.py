"""What a client does with runs: start one, and read what Temporal has recorded of it. No worker is needed to read."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import EventType, PendingActivityState, VersioningBehavior, WorkflowTaskFailedCause
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowHistory,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import RawValue, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp import encryption, jsontext
from openwop_mcp.effects.shared import effect_workflow_id
from openwop_mcp.errors import KeyMismatchError
from openwop_mcp.failures import json_payload, said
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import Definition, DefinitionError, parse
from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.interrupts import MEMO, RESOLVE, WAITING, OpenInterrupt, Resolution, read_open, waiting_status
from openwop_mcp.runs.ledger import EffectAttempt, Ledger, needs_values
from openwop_mcp.runs.masking import Masks, masks
from openwop_mcp.runs.projection import Projector
from openwop_mcp.runs.records import CallRecord, MadeCall, made_calls, records, run_failure
from openwop_mcp.runs.start import RunStart
from openwop_mcp.storage import bare, resolve, resolved

from . import records as kept

__all__ = (
    "GRAPH_RUN",
    "SEALED",
    "WORKFLOW_ID",
    "CallProgress",
    "InterruptRefusedError",
    "RecordedRun",
    "RunExpiredError",
    "RunNotFoundError",
    "UnderWay",
    "cancel_run",
    "effect_ledger",
    "histories",
    "kept_histories",
    "memo_member",
    "mint_run_id",
    "open_interrupts",
    "pinned_to",
    "read_asking",
    "read_run",
    "resolve_interrupt",
    "start_run",
    "under_way",
    "waiting_questions",
    "waiting_runs",
    "waits_for_answers",
)

SEALED = object()
"""What is there and cannot be opened here."""

GRAPH_RUN = "RunWorkflow"
"""Workflow type of runs; other workflows have calls, but no event log."""

WORKFLOW_ID = "openwop-mcp.workflowId"
"""The memo that says of which workflow a run is, for lists."""

PATIENCE = 10.0
"""Seconds that an answer waits for a worker, which takes it within some milliseconds where there is one."""

_NO_WORKER = frozenset(
    {
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.RESOURCE_EXHAUSTED,
    }
)
"""How Temporal's client puts it that no worker took an answer in time."""

STATUS = {
    "run.completed": "completed",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED: "completed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: "failed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: "failed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: "cancelled",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: "cancelled",
}
"""How a run ended, by the last event of its log, or of its history where it has no log."""

TASK_ENDS = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
    }
)
"""How a workflow task ends. Of its further attempts history has none."""

OF_CODE = frozenset(
    {
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_WORKFLOW_WORKER_UNHANDLED_FAILURE,
        WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_NON_DETERMINISTIC_ERROR,
    }
)
"""Why a workflow task fails again and again. Of other causes, such as a reset or what arrived meanwhile, none stays."""

TURNS = frozenset({"run.paused", "run.resumed"})
"""The events that say whether a run is paused: the last of them holds."""


class RunNotFoundError(Exception):
    """There is no such workflow in the namespace."""

    code = "not_found"


class InterruptRefusedError(Exception):
    """An answer was not taken. The message says why.

    Attributes:
        code: OpenWOP error code.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class RunExpiredError(Exception):
    """The beginning of a run is past retention; what is left is not shown as if it were the whole."""

    code = "run_expired"


@dataclass(frozen=True)
class RecordedRun:
    """What Temporal has recorded of a run, or of an author's workflow.

    Attributes:
        run_id: The run; this is the workflow id.
        histories: Of each part of a chain of continue-as-new, the first part first.
    """

    run_id: str
    histories: Sequence[WorkflowHistory]

    @property
    def workflow_type(self) -> str:
        """The workflow type."""
        return self.histories[0].events[0].workflow_execution_started_event_attributes.workflow_type.name

    @property
    def is_graph(self) -> bool:
        """Whether it is a run of a graph, which alone has a log."""
        return self.workflow_type == GRAPH_RUN

    @cached_property
    def log(self) -> list[RunEvent]:
        """The run's events.

        Raises:
            RunNotFoundError: This is the workflow of an author and no run of a graph.
            ProjectionError: The history is none that a run can have.
        """
        if not self.is_graph:
            raise RunNotFoundError(f"'{self.run_id}' is a workflow of type {self.workflow_type} and has no event log")
        projector = Projector(self.run_id)
        return [event for history in self.histories for event in projector.project(history.events)]

    @cached_property
    def calls(self) -> list[CallRecord]:
        """The calls that were answered."""
        return [call for history in self.histories for call in records(history.events)]

    @cached_property
    def made(self) -> list[MadeCall]:
        """All calls, whatever became of them; of a graph as its log would show them."""
        made = made_calls(history.events for history in self.histories)
        if not self.is_graph:
            return made
        # What follows from an answer, or from none in time, is no activity's end: the log alone has it.
        refused = {event.node_id: event.payload for event in self.log if event.type == "node.failed"}
        told = [
            call if call.asks is None or call.name not in refused else _refused(call, refused[call.name])
            for call in made
        ]
        return told if self.masks is None else [self.masks.call(call) for call in told]

    @cached_property
    def _start(self) -> RunStart:
        """What the run of a graph was started with."""
        started = self.histories[0].events[0].workflow_execution_started_event_attributes
        return RunStart.decode(started.input.payloads[0].data)

    @property
    def definition(self) -> bytes:
        """JSON text of the definition that the run of a graph was started with."""
        return self._start.definition

    @property
    def workflow_id(self) -> str:
        """The workflow that it is a run of: of a graph the definition's id, else the workflow's type."""
        return str(jsontext.decode(self.definition).get("id", "")) if self.is_graph else self.workflow_type

    @property
    def started_by(self) -> str | None:
        """Who started the run of a graph, by the name of the subject; None where that is not known."""
        name = self._start.owner.subject.get("subjectId") if self.is_graph else None
        return name if isinstance(name, str) else None

    @cached_property
    def masks(self) -> Masks | None:
        """What is not shown of a run of a graph; None where all is."""
        if not self.is_graph:
            return None
        text = self.definition
        try:
            return masks(parse(text, source="definition", node_types=REGISTRY), text)
        except DefinitionError:
            return masks(None, text)

    @property
    def failure(self) -> tuple[str, str, bytes] | None:
        """Code, message and details (JSON object text) of why it did not complete; None where it did or goes on."""
        if not self.is_graph:
            return run_failure(self.histories[-1].events[-1])
        if self.status not in {"failed", "cancelled"}:
            return None
        last = self.log[-1].payload
        given = jsontext.pointer(last, ["error"])
        error = {} if given is None else jsontext.decode(given)
        return (
            error.get("code", "run_cancelled" if self.status == "cancelled" else "internal_error"),
            error.get("message", f"the run was {self.status}"),
            jsontext.pointer(last, ["error", "details"]) or b"{}",
        )

    @property
    def failed_node(self) -> str | None:
        """The node that made a run of a graph fail, if one did."""
        told = self.log[-1] if self.is_graph and self.log else None
        return jsontext.decode(told.payload).get("failedNodeId") if told and told.type == "run.failed" else None

    @property
    def stuck(self) -> str | None:
        """Why its last workflow task failed, which Temporal has tried again ever since; None where it can go on.

        It is what a workflow's code raised, so that of a run with something to mask the type alone is told.
        """
        if self.status in {"completed", "failed", "cancelled"}:
            return None
        last = next((event for event in reversed(self.histories[-1].events) if event.event_type in TASK_ENDS), None)
        if last is None or last.workflow_task_failed_event_attributes.cause not in OF_CODE:
            return None
        failure = last.workflow_task_failed_event_attributes.failure
        named = failure.application_failure_info.type
        told = said(failure) if self.masks is None else ""
        return ": ".join(part for part in (named, told) if part) or "the worker's log says why"

    @property
    def task_queue(self) -> str:
        """Where its workflow tasks wait for a worker."""
        return self.histories[-1].events[0].workflow_execution_started_event_attributes.task_queue.name

    @property
    def status(self) -> str:
        """Where it stands, in the words of a snapshot of OpenWOP."""
        if not self.is_graph:
            return STATUS.get(self.histories[-1].events[-1].event_type, "running")
        if not self.log:
            return "pending"
        if (ended := STATUS.get(self.log[-1].type)) is not None:
            return ended
        last_turn = next((event.type for event in reversed(self.log) if event.type in TURNS), None)
        if last_turn == "run.paused":
            return "paused"
        return waiting_status(self.interrupts[0].kind) if self.interrupts else "running"

    @cached_property
    def interrupts(self) -> list[OpenInterrupt]:
        """The questions that the run of a graph waits with."""
        asked: dict[str | None, RunEvent] = {}
        # Nodes that share an effect wait with one interrupt.
        found: dict[tuple[str, str], OpenInterrupt] = {}
        for event in self.log:
            node_id = event.node_id or ""
            if event.type == "interrupt.requested":
                asked[event.node_id] = event
            elif event.type == "node.suspended":
                identity = str(jsontext.decode(event.payload)["interruptId"])
                question = asked[event.node_id]
                found[identity, node_id] = OpenInterrupt(
                    identity, node_id, question.payload, self.run_id, question.timestamp
                )
            elif event.type == "interrupt.resolved":
                found.pop((str(jsontext.decode(event.payload)["interruptId"]), node_id), None)
            elif event.type == "node.cancelled":
                found = {named: one for named, one in found.items() if one.node_id != node_id}
            elif event.type in STATUS:
                return []
        return list(found.values())


def _refused(call: MadeCall, payload: bytes) -> MadeCall:
    """A call of which nobody gave what it had asked for, by the payload of its node's ``node.failed``."""
    error = jsontext.member(payload, "error") or b"{}"
    told = jsontext.decode(error)
    return call.refused(told["code"], told.get("message", ""), jsontext.member(error, "details") or b"{}")


def mint_run_id(tenant: str) -> str:
    """A new run id, bound to its tenant (OpenWOP v2, identity)."""
    return f"{tenant}/{uuid.uuid4().hex}"


async def start_run(
    client: Client,
    start: RunStart,
    definition: Definition,
    inputs: bytes,
    *,
    task_queue: str,
    request: bytes | None = None,
) -> WorkflowHandle[object, RawValue]:
    """Start a run; its id is the workflow id.

    Args:
        client: Connected to the namespace of the workers.
        start: The run's envelope.
        definition: The parsed definition that the envelope holds, for the summary.
        inputs: JSON text of the run's inputs, kept byte for byte.
        task_queue: Queue of the workers that have the pack.
        request: JSON text that tells the request for it from others, where the same one may come again.

    Raises:
        WorkflowAlreadyStartedError: There is a run of that id.
    """
    return await client.start_workflow(
        GRAPH_RUN,
        args=[RawValue(json_payload(start.encode())), RawValue(json_payload(inputs))],
        id=start.run_id,
        task_queue=task_queue,
        result_type=RawValue,
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        static_summary=definition.name,
        memo={
            WORKFLOW_ID: definition.id,
            **({} if request is None else {kept.MEMO: RawValue(json_payload(request))}),
        },
    )


async def read_run(client: Client, run_id: str) -> RecordedRun:
    """Read a run, or any other workflow.

    Raises:
        RunNotFoundError: There is none of that id.
        RunExpiredError: Its beginning is gone.
        LostValueError: A large value is gone, or has changed.
        StorageError: A large value cannot be had now.
    """
    return RecordedRun(run_id, [history async for history in histories(client, run_id)])


async def cancel_run(client: Client, run_id: str, reason: str) -> None:
    """Cancel a run, or a workflow of an author; it says itself when it is cancelled.

    Raises:
        RunNotFoundError: There is none of that id that goes on.
    """
    handle = client.get_workflow_handle(run_id)
    try:
        # Temporal takes a cancel of what has ended without a word.
        running = (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
        if running:
            await handle.cancel(reason=await encryption.hidden(reason, client.data_converter))
    except RPCError as error:
        if error.status not in {RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT}:
            raise
        running = False
    if not running:
        raise RunNotFoundError(f"no run '{run_id}' goes on in namespace '{client.namespace}'")


async def read_asking(client: Client, run_id: str) -> RecordedRun:
    """Read a run as far as its questions need it.

    The memo of an author's workflow has them, so that its beginning may be gone, and large values with it.

    Raises:
        RunNotFoundError: There is none of that id.
        RunExpiredError: Its beginning is gone, and it is the run of a graph.
        LostValueError: A large value of such a run is gone, or has changed.
        StorageError: One cannot be had now.
    """
    found = RecordedRun(run_id, await kept_histories(client, run_id))
    return await read_run(client, run_id) if found.is_graph else found


async def open_interrupts(client: Client, run: RecordedRun) -> list[OpenInterrupt]:
    """The questions that a run, or a workflow of an author, waits with."""
    if run.is_graph:
        return run.interrupts
    description = await client.get_workflow_handle(run.run_id).describe()
    shown = description.raw_info.memo.fields.get(MEMO)
    if shown is None or description.status is not WorkflowExecutionStatus.RUNNING:
        return []
    (payload,) = await client.data_converter.decode([shown], [RawValue])
    return [replace(one, run_id=run.run_id) for one in read_open(payload.payload.data)]


async def waiting_runs(client: Client) -> AsyncIterator[str]:
    """Ids of the runs and workflows that wait for a person, as far as Temporal's list, which lags, shows them."""
    async for found in client.list_workflows("ExecutionStatus = 'Running'"):
        if await _waits(client, found):
            yield found.id


async def waiting_questions(client: Client) -> int:
    """How many questions all of them together wait with, likewise."""
    running = client.list_workflows("ExecutionStatus = 'Running'")
    told = [await memo_member(client, found, WAITING) async for found in running]
    return sum(questions for questions in told if isinstance(questions, int))


async def waits_for_answers(client: Client, run_id: str) -> bool:
    """Whether a run waits for a person."""
    return await _waits(client, await client.get_workflow_handle(run_id).describe())


async def memo_member(client: Client, found: WorkflowExecution, name: str) -> object:
    """A member of a workflow's memo; None without it, and :data:`SEALED` where it is not for this process to open.

    Others have workflows in the namespace too, with memos, encodings and keys of their own: only what is asked for is
    opened, and to fail at that is no fault.
    """
    shown = found.raw_info.memo.fields.get(name)
    if shown is None:
        return None
    codec = client.data_converter.payload_codec
    opened = await codec.glance(shown) if isinstance(codec, encryption.Encryption) else shown
    if opened is None or opened.metadata.get("encoding") != b"json/plain":
        return SEALED
    value: object = jsontext.decode(opened.data)
    return value


async def _waits(client: Client, found: WorkflowExecution) -> bool:
    # What cannot be opened here may wait: to read it tells why it cannot.
    return MEMO in found.raw_info.memo.fields or bool(await memo_member(client, found, WAITING))


async def resolve_interrupt(client: Client, run_id: str, resolution: Resolution) -> None:
    """Answer an interrupt.

    Raises:
        InterruptRefusedError: The answer was not taken, or no worker took it in time: one may still take it then.
        RPCError: Temporal does not answer.
    """
    handle = client.get_workflow_handle(run_id)
    try:
        # The client's own limit is for each of its attempts, of which it makes some.
        async with asyncio.timeout(PATIENCE):
            await handle.execute_update(RESOLVE, RawValue(json_payload(resolution.encode())))
    except WorkflowUpdateFailedError as error:
        cause = error.cause
        code = cause.type if isinstance(cause, ApplicationError) and cause.type else "internal_error"
        raise InterruptRefusedError(getattr(cause, "message", str(cause)), code) from None
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
        raise await _untaken(client, run_id) from None
    except RPCError as error:
        if error.status in _NO_WORKER:
            raise await _untaken(client, run_id) from None
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise InterruptRefusedError(
            f"'{run_id}' waits with no interrupt: there is no such workflow, or it has ended",
            "interrupt_already_resolved",
        ) from None


async def _untaken(client: Client, run_id: str) -> InterruptRefusedError:
    version = None
    with contextlib.suppress(RPCError):
        version = await pinned_to(client, run_id)
    needed = "one" if version is None else f"one of version '{version}', which the run is pinned to,"
    return InterruptRefusedError(
        f"no worker took the answer within {PATIENCE:g} s, and one may still take it: see that {needed} runs, and with"
        " 'runs show' whether the question is open before answering again",
        "service_unavailable",
    )


async def effect_ledger(client: Client, workflow_id: str, *, tenant: str) -> list[EffectAttempt]:
    """The ledger of a run's effects: one record for each attempt, of shared effects those of the effect's workflow.

    Large values are read one by one, and only what was sent and why it failed: results are not needed.

    Args:
        client: Connected to the run's namespace, with the storage of the workers.
        workflow_id: The run, or an author's workflow.
        tenant: Tenant of the worker, whose effects those calls are that name none.

    Raises:
        RunNotFoundError: There is none of that id.
        RunExpiredError: Its beginning is gone.
        LostValueError: What is needed of it is gone, or has changed.
        StorageError: It cannot be had now.
    """
    ledger: list[EffectAttempt] = []
    told: set[str] = set()
    for attempt in await _attempts(client, workflow_id, tenant):
        identity = attempt.effect.effect_id
        if not attempt.waits or (attempt.failure is not None and attempt.failure.code == KeyMismatchError.code):
            ledger.append(attempt)
        elif identity not in told:
            told.add(identity)
            ledger += await _shared_attempts(client, attempt) or [attempt]
    return [attempt for attempt in ledger if attempt.state is not None]


async def _shared_attempts(client: Client, asked: EffectAttempt) -> list[EffectAttempt]:
    """The attempts at an effect in its own workflows, as those of the node that asked for it."""
    found: list[EffectAttempt] = []
    effect = asked.effect
    for number in count():
        try:
            attempts = await _attempts(client, effect_workflow_id(effect.effect_id, number), effect.tenant)
        except RunNotFoundError:
            break
        found += [replace(one, effect=effect, node=asked.node, attempt=one.attempt + len(found)) for one in attempts]
    return found


async def _attempts(client: Client, workflow_id: str, tenant: str) -> list[EffectAttempt]:
    ledger = Ledger(workflow_id=workflow_id, tenant=tenant)
    async for history in histories(client, workflow_id, whole=False):
        for event in history.events:
            if needs_values(event):
                # To digest what was sent may take half a second.
                await asyncio.to_thread(ledger.take, await resolved(event, client.data_converter))
            else:
                ledger.take(await bare(event, client.data_converter))
    attempts = ledger.attempts()
    if all(one.state is not None for one in attempts):
        return attempts
    # History does not know whether an attempt that is under way has claimed; Temporal does.
    description = await client.get_workflow_handle(workflow_id).describe()
    claimed = {
        pending.activity_id
        for pending in description.raw_description.pending_activities
        if (await _beat(client, pending.heartbeat_details)).get("delivery") == "unknown"
    }
    return [
        replace(one, state="claimed") if one.state is None and one.activity_id in claimed else one for one in attempts
    ]


@dataclass(frozen=True, slots=True)
class CallProgress:
    """How far a call is, as its worker's last beat says it.

    Attributes:
        progress: So much is done.
        total: Of so much, if the server knows.
        message: What the server says of it: its words.
    """

    progress: float
    total: float | None = None
    message: str | None = None

    @property
    def facts(self) -> dict[str, object]:
        """What there is to say of it, for machines."""
        members = {"progress": self.progress, "total": self.total, "message": self.message}
        return {key: value for key, value in members.items() if value is not None}

    @property
    def prose(self) -> str:
        """A line for people, not yet escaped."""
        of = "" if self.total is None else f"/{self.total:.15g}"
        return f"progress {self.progress:.15g}{of}" + (f": {self.message}" if self.message else "")


@dataclass(frozen=True, slots=True)
class UnderWay:
    """An activity that has not ended.

    Attributes:
        waits: Whether it waits for a worker.
        progress: What is known of its progress.
    """

    waits: bool
    progress: CallProgress | None


async def pinned_to(client: Client, run_id: str) -> str | None:
    """The version whose workers alone go on with a run, as ``deployment:build id``; None where any may, or it is over.

    Raises:
        RPCError: Temporal does not answer, or knows no such run.
    """
    description = await client.get_workflow_handle(run_id).describe()
    if description.status is not WorkflowExecutionStatus.RUNNING:
        return None
    info = description.raw_info.versioning_info
    if info.HasField("versioning_override"):
        # What somebody said of this run goes before what its workers say.
        version = info.versioning_override.pinned.version
    elif info.behavior == VersioningBehavior.VERSIONING_BEHAVIOR_PINNED:
        version = info.deployment_version
    else:
        return None
    return f"{version.deployment_name}:{version.build_id}" if version.build_id else None


async def under_way(client: Client, run_id: str) -> dict[str, UnderWay]:
    """The activities of a run that have not ended, by id. History knows neither who waits nor how far they are."""
    description = await client.get_workflow_handle(run_id).describe()
    return {
        pending.activity_id: UnderWay(
            waits=pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED,
            progress=_progress(await _beat(client, pending.heartbeat_details)),
        )
        for pending in description.raw_description.pending_activities
    }


async def _beat(client: Client, beat: Payloads) -> dict[str, object]:
    """What a heartbeat says, which may be another activity's."""
    opened = await client.data_converter.decode(beat.payloads, [RawValue] * len(beat.payloads))
    try:
        details = [jsontext.decode(value.payload.data) for value in opened]
    except jsontext.JsonTextError:
        return {}
    return details[0] if len(details) == 1 and isinstance(details[0], dict) else {}


def _progress(beat: dict[str, object]) -> CallProgress | None:
    match beat:
        case {"progress": {"progress": int() | float() as done, **more}}:
            total, message = more.get("total"), more.get("message")
            return CallProgress(
                done, total if isinstance(total, int | float) else None, message if isinstance(message, str) else None
            )
        case _:
            return None


async def histories(client: Client, workflow_id: str, *, whole: bool = True) -> AsyncIterator[WorkflowHistory]:
    """The histories of a workflow, from its first run through every continue-as-new to the latest.

    Args:
        client: With the storage of the workers.
        workflow_id: The workflow.
        whole: Whether large values stand in their places; otherwise references to them do, as in Temporal.

    Raises:
        RunNotFoundError: There is none of that id.
        RunExpiredError: Its beginning is gone.
        LostValueError: A large value is gone, or has changed.
        StorageError: A large value cannot be had now.
    """
    chain = await kept_histories(client, workflow_id)
    if chain[0].events[0].workflow_execution_started_event_attributes.continued_execution_run_id:
        raise RunExpiredError(f"the beginning of run '{workflow_id}' is past the namespace's retention")
    for history in chain:
        if whole:
            await resolve(history.events, client.data_converter)
        yield history


async def kept_histories(client: Client, workflow_id: str) -> list[WorkflowHistory]:
    """As much as Temporal still has of a workflow's chain of continue-as-new, as it stands there, the first part first.

    Raises:
        RunNotFoundError: There is none of that id.
    """
    latest = await _history(client, workflow_id, None)
    if latest is None:
        raise RunNotFoundError(f"no run '{workflow_id}' in namespace '{client.namespace}'")
    chain = [latest]
    # Backwards, since a run that was reset and one that goes on after it have the same first run.
    while before := chain[-1].events[0].workflow_execution_started_event_attributes.continued_execution_run_id:
        earlier = await _history(client, workflow_id, before)
        if earlier is None:
            break
        chain.append(earlier)
    return chain[::-1]


async def _history(client: Client, workflow_id: str, run_id: str | None) -> WorkflowHistory | None:
    try:
        return await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
    except RPCError as error:
        # An id that Temporal refuses, such as one that is too long, is no run's either.
        if error.status in {RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT}:
            return None
        raise
