"""Someone who pauses and resumes runs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from temporalio.client import WorkflowHandle, WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from openwop_mcp.failures import json_payload
from openwop_mcp.runs.pauses import PAUSE, RESUME, Pause, Resume
from tests.support.patience import PATIENCE

__all__ = ("pause", "refused", "resume", "until_ended")

ENDS = tuple(f"activity_task_{end}_event_attributes" for end in ("completed", "failed", "timed_out", "canceled"))


async def pause(run: WorkflowHandle[Any, Any], asked: Pause | None = None) -> dict[str, Any]:
    """Pause a run; what it answers."""
    return await _update(run, PAUSE, (asked or Pause()).encode())


async def resume(run: WorkflowHandle[Any, Any], reason: str | None = None) -> dict[str, Any]:
    """Resume a run; what it answers."""
    return await _update(run, RESUME, Resume(reason).encode())


async def _update(run: WorkflowHandle[Any, Any], name: str, given: bytes) -> dict[str, Any]:
    answer = await run.execute_update(name, RawValue(json_payload(given)), result_type=RawValue)
    taken: dict[str, Any] = json.loads(answer.payload.data)
    return taken


async def refused(run: WorkflowHandle[Any, Any], update: str, given: bytes = b"{}") -> str:
    """Ask for what is refused; the code."""
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await run.execute_update(update, RawValue(json_payload(given)))
    assert isinstance(caught.value.cause, ApplicationError)
    return caught.value.cause.type or ""


async def until_ended(run: WorkflowHandle[Any, Any], times: int = 1) -> None:
    """Wait until so many activities of a run have ended, and it has taken that up."""

    async def wait() -> None:
        left = times
        async for event in run.fetch_history_events(wait_new_event=True):
            left -= any(event.HasField(end) for end in ENDS)  # type: ignore[arg-type]  # names of fields
            if left <= 0 and event.HasField("workflow_task_completed_event_attributes"):
                return
        raise AssertionError("the run ended before")

    await asyncio.wait_for(wait(), PATIENCE)
