"""What a client does with runs: start one, and read what Temporal has recorded of it. No worker is needed to read."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.common import RawValue, WorkflowIDConflictPolicy, WorkflowIDReusePolicy

from openwop_mcp.failures import json_payload
from openwop_mcp.runs.definition import Definition
from openwop_mcp.runs.start import RunStart

__all__ = ("histories", "mint_run_id", "start_run")


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
        "RunWorkflow",
        args=[RawValue(json_payload(start.encode())), RawValue(json_payload(inputs))],
        id=start.run_id,
        task_queue=task_queue,
        result_type=RawValue,
        id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        static_summary=definition.name,
    )


async def histories(client: Client, workflow_id: str) -> AsyncIterator[WorkflowHistory]:
    """The histories of a workflow, from its first run through every continue-as-new to the latest."""
    latest = await client.get_workflow_handle(workflow_id).fetch_history()
    first = latest.events[0].workflow_execution_started_event_attributes.first_execution_run_id
    run_id: str | None = first or None
    while run_id:
        history = await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
        yield history
        run_id = _next_run(history.events[-1])


def _next_run(last: HistoryEvent) -> str | None:
    return last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id or None
