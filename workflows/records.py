"""Records in Temporal that need no worker: a name that one caller takes, and what it was closed with.

A record is a workflow whose first task lies so far ahead that none is ever given out. Starting it inserts what must be
unique; terminating it, with an ending, is a compare-and-set that one caller wins; and where its maker died, Temporal
ends it by itself. Knows no HTTP and no run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import (
    Client,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowHandle,
    WorkflowHistoryEventFilterType,
)
from temporalio.common import RawValue, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp.failures import json_payload

__all__ = ("ANSWER", "MEMO", "SCOPE", "SECRET", "Record", "close", "ending", "find", "make", "open_records")

ANSWER = "HttpAnswer"
"""Workflow type of records of what was answered to a request with a key. Persisted, as the others: never renamed."""

SCOPE = "RunScope"
"""Workflow type of records of the one run that is active in a scope."""

SECRET = "HostSecret"  # noqa: S105 - the name of a type
"""Workflow type of the record of what the hosts of one deployment sign with."""

MEMO = "openwop-mcp.record"
"""The memo that holds what a record was made with. A run that was asked for with a key has it too, and needs no other
record."""

NEVER = timedelta(days=3650)
"""When a record's first task would be due: after whatever it is about is forgotten."""

QUEUE = "openwop-mcp-records"
"""The task queue of records. Nobody polls it, and nothing is ever put there."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record.

    Attributes:
        record_id: Its name, which is the workflow id.
        kind: Its workflow type; a workflow of any other type can be found under a name as well.
        run_id: Which of the records that had this name one after the other.
        content: JSON text that it was made with; empty where there is none.
        made_at: When it was made, by Temporal's clock.
        status: Running while it is open, terminated once it was closed, timed out where its maker did not.
    """

    record_id: str
    kind: str
    run_id: str
    content: bytes
    made_at: datetime
    status: WorkflowExecutionStatus | None

    @property
    def is_open(self) -> bool:
        """Whether it can still be closed."""
        return self.status is WorkflowExecutionStatus.RUNNING

    @property
    def is_closed(self) -> bool:
        """Whether it has an ending."""
        return self.status is WorkflowExecutionStatus.TERMINATED


async def make(
    client: Client, record_id: str, kind: str, content: bytes, *, lapses: timedelta | None = None, again: bool = False
) -> str | None:
    """Make a record, if there is none of that name.

    Args:
        client: Connected to the namespace.
        record_id: Its name.
        kind: Its workflow type.
        content: JSON text, some kilobytes at most.
        lapses: After so long it is no longer open, whoever made it; None if that is for others to see to.
        again: Whether the name may have had a record that is no longer open.

    Returns:
        The record's ``run_id``, for :func:`close`. None if there is one.
    """
    reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE if again else WorkflowIDReusePolicy.REJECT_DUPLICATE
    try:
        handle = await client.start_workflow(
            kind,
            id=record_id,
            task_queue=QUEUE,
            id_reuse_policy=reuse,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            start_delay=NEVER,
            execution_timeout=lapses,
            memo={MEMO: RawValue(json_payload(content))},
        )
    except WorkflowAlreadyStartedError:
        return None
    assert handle.result_run_id is not None
    return handle.result_run_id


async def find(client: Client, record_id: str) -> Record | None:
    """The record, or any other workflow, that has the name or had it last."""
    try:
        found = await client.get_workflow_handle(record_id).describe()
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return None
        raise
    return await _record(client, found)


async def open_records(client: Client, kind: str, *, prefix: str | None = None) -> AsyncIterator[Record]:
    """The open records of a kind, as far as Temporal's list, which lags, shows them.

    Args:
        client: Connected to the namespace.
        kind: Their workflow type.
        prefix: How their names begin, without quotes in it.
    """
    named = "" if prefix is None else f" AND WorkflowId STARTS_WITH '{prefix}'"
    async for found in client.list_workflows(f"WorkflowType = '{kind}' AND ExecutionStatus = 'Running'{named}"):
        yield await _record(client, found)


async def close(client: Client, record_id: str, run_id: str, ending: bytes, *, why: str) -> bool:
    """Close a record.

    Args:
        client: Connected to the namespace.
        record_id: Its name.
        run_id: Which one of that name.
        ending: JSON text to close it with.
        why: A word for whoever looks at it in Temporal.

    Returns:
        Whether this closed it; False if it was not open any more.
    """
    try:
        await client.get_workflow_handle(record_id, run_id=run_id).terminate(RawValue(json_payload(ending)), reason=why)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


async def ending(client: Client, record: Record, *, wait: float) -> bytes | None:
    """What a record was closed with: JSON text.

    Args:
        client: Connected to the namespace.
        record: The record.
        wait: Seconds to wait for it where the record is open.

    Returns:
        None where it is open still, or lapsed.
    """
    handle: WorkflowHandle[object, object] = client.get_workflow_handle(record.record_id, run_id=record.run_id)
    told: Payload | None = None
    try:
        async with asyncio.timeout(wait if record.is_open else None):
            async for event in handle.fetch_history_events(
                wait_new_event=record.is_open, event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT
            ):
                if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
                    (told,) = event.workflow_execution_terminated_event_attributes.details.payloads
    except TimeoutError:
        return None
    return None if told is None else await _text(client, told)


async def _record(client: Client, found: WorkflowExecution) -> Record:
    memo = found.raw_info.memo.fields.get(MEMO)
    content = b"" if memo is None else await _text(client, memo)
    return Record(found.id, found.workflow_type, found.run_id, content, found.start_time, found.status)


async def _text(client: Client, payload: Payload) -> bytes:
    (value,) = await client.data_converter.decode([payload], [RawValue])
    text: bytes = value.payload.data
    return text
