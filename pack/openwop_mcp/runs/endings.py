"""How an activity ended, read from one event of a Temporal history."""

from __future__ import annotations

from dataclasses import dataclass

import temporalio.api.common.v1
import temporalio.api.history.v1

from openwop_mcp import failures
from openwop_mcp.effects.decide import Failure
from openwop_mcp.effects.delivery import Delivery

__all__ = ("Ending", "cancelled", "ending")


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of an activity.

    Attributes:
        scheduled_event_id: The event that scheduled it.
        result: The payload of its result, if it has one.
        failure: Why it has none; None where it completed.
    """

    scheduled_event_id: int
    result: temporalio.api.common.v1.Payload | None = None
    failure: failures.CallFailure | None = None


def ending(event: temporalio.api.history.v1.HistoryEvent) -> Ending | None:
    """Read an event; None if no activity ends with it."""
    match event.WhichOneof("attributes"):
        case "activity_task_completed_event_attributes":
            done = event.activity_task_completed_event_attributes
            return Ending(done.scheduled_event_id, done.result.payloads[0] if done.result.payloads else None)
        case "activity_task_failed_event_attributes":
            failed = event.activity_task_failed_event_attributes
            return Ending(failed.scheduled_event_id, failure=failures.read(failed.failure))
        case "activity_task_timed_out_event_attributes":
            late = event.activity_task_timed_out_event_attributes
            return Ending(late.scheduled_event_id, failure=failures.read(late.failure))
        case "activity_task_canceled_event_attributes":
            gone = event.activity_task_canceled_event_attributes
            # What no worker has taken cannot have been sent.
            delivery = Delivery.UNKNOWN if gone.started_event_id else Delivery.NOT_SENT
            return Ending(gone.scheduled_event_id, failure=cancelled("cancelled", delivery))
        case _:
            return None


def cancelled(message: str, delivery: Delivery) -> failures.CallFailure:
    """The failure of a call that someone, or the end of its run, cut short."""
    return failures.CallFailure(
        code="run_cancelled",
        message=message,
        details=b"{}",
        happened=Failure(code="run_cancelled", delivery=delivery, retryable=False, repeat_safe=True),
        cancelled=True,
    )
