"""What a client does with runs: start one, and read what Temporal has recorded of it. No worker is needed to read."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from temporalio.api.common.v1 import Payloads
from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.common import RawValue, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp import jsontext
from openwop_mcp.failures import json_payload
from openwop_mcp.runs.definition import Definition
from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.projection import Projector
from openwop_mcp.runs.records import CallRecord, MadeCall, made_calls, records, run_failure
from openwop_mcp.runs.start import RunStart

__all__ = (
    "CallProgress",
    "RecordedRun",
    "RunExpiredError",
    "RunNotFoundError",
    "UnderWay",
    "histories",
    "mint_run_id",
    "read_run",
    "start_run",
    "under_way",
)

GRAPH_RUN = "RunWorkflow"
"""Workflow type of runs; other workflows have calls, but no event log."""

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


class RunNotFoundError(Exception):
    """There is no such workflow in the namespace."""

    code = "not_found"


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
        """All calls, whatever became of them."""
        return made_calls(history.events for history in self.histories)

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
    def task_queue(self) -> str:
        """Where its workflow tasks wait for a worker."""
        return self.histories[-1].events[0].workflow_execution_started_event_attributes.task_queue.name

    @property
    def status(self) -> str:
        """Where it stands: pending, running, completed, failed or cancelled."""
        if not self.is_graph:
            return STATUS.get(self.histories[-1].events[-1].event_type, "running")
        return STATUS.get(self.log[-1].type, "running") if self.log else "pending"


def mint_run_id(tenant: str) -> str:
    """A new run id, bound to its tenant (OpenWOP v2, identity)."""
    return f"{tenant}/{uuid.uuid4().hex}"


async def start_run(
    client: Client, start: RunStart, definition: Definition, inputs: bytes, *, task_queue: str
) -> WorkflowHandle[object, RawValue]:
    """Start a run; its id is the workflow id.

    Args:
        client: Connected to the namespace of the workers.
        start: The run's envelope.
        definition: The parsed definition that the envelope holds, for the summary.
        inputs: JSON text of the run's inputs, kept byte for byte.
        task_queue: Queue of the workers that have the pack.
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
    )


async def read_run(client: Client, run_id: str) -> RecordedRun:
    """Read a run, or any other workflow.

    Raises:
        RunNotFoundError: There is none of that id.
        RunExpiredError: Its beginning is gone.
    """
    return RecordedRun(run_id, [history async for history in histories(client, run_id)])


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


async def under_way(client: Client, run_id: str) -> dict[str, UnderWay]:
    """The activities of a run that have not ended, by id. History knows neither who waits nor how far they are."""
    description = await client.get_workflow_handle(run_id).describe()
    return {
        pending.activity_id: UnderWay(
            waits=pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED,
            progress=_progress(pending.heartbeat_details),
        )
        for pending in description.raw_description.pending_activities
    }


def _progress(beat: Payloads) -> CallProgress | None:
    """Read it from a heartbeat, which may be another activity's, or hidden by a codec."""
    try:
        details = [jsontext.decode(payload.data) for payload in beat.payloads]
    except jsontext.JsonTextError:
        return None
    match details:
        case [{"progress": {"progress": int() | float() as done, **more}}]:
            total, message = more.get("total"), more.get("message")
            return CallProgress(
                done, total if isinstance(total, int | float) else None, message if isinstance(message, str) else None
            )
        case _:
            return None


async def histories(client: Client, workflow_id: str) -> AsyncIterator[WorkflowHistory]:
    """The histories of a workflow, from its first run through every continue-as-new to the latest.

    Raises:
        RunNotFoundError: There is none of that id.
        RunExpiredError: Its beginning is gone.
    """
    latest = await _history(client, workflow_id, None)
    if latest is None:
        raise RunNotFoundError(f"no run '{workflow_id}' in namespace '{client.namespace}'")
    chain = [latest]
    # Backwards, since a run that was reset and one that goes on after it have the same first run.
    while before := chain[-1].events[0].workflow_execution_started_event_attributes.continued_execution_run_id:
        earlier = await _history(client, workflow_id, before)
        if earlier is None:
            raise RunExpiredError(f"the beginning of run '{workflow_id}' is past the namespace's retention")
        chain.append(earlier)
    for history in reversed(chain):
        yield history


async def _history(client: Client, workflow_id: str, run_id: str | None) -> WorkflowHistory | None:
    try:
        return await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
    except RPCError as error:
        # An id that Temporal refuses, such as one that is too long, is no run's either.
        if error.status in {RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT}:
            return None
        raise
