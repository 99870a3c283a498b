"""The attempts of one call in workflow code: each is an activity, and what follows it is the table's decision.

Knows neither what an attempt is scheduled with nor who is asked where it ended without an outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

import temporalio.api.common.v1
from temporalio import workflow
from temporalio.common import RawValue
from temporalio.common import RetryPolicy as ActivityRetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from openwop_mcp.calls import NODE, CallRequest, answering, interim, provenance
    from openwop_mcp.effects.decide import Again, Ask, Decision, Parked, decide
    from openwop_mcp.effects.doubt import Answer
    from openwop_mcp.failures import CallFailure, Escaped, read, remembered
    from openwop_mcp.protocol import mrtr
    from openwop_mcp.sealed import check_open
    from openwop_mcp.telemetry.calls import count_doubt

__all__ = ("ONE_ATTEMPT", "Asking", "EndedError", "attempted", "in_light_of")

ONE_ATTEMPT = ActivityRetryPolicy(maximum_attempts=1)
"""Attempts belong to the workflow, so that each stands in history: Temporal makes none of its own."""

FIRST_PAUSE = 0.25
"""Seconds before a server that only wants to be called again is called again, doubled each time."""

LONGEST_PAUSE = 8.0
"""Seconds of such a wait at most: rounds are bounded, and a server that is still not ready by then is asked in vain."""

HEARD = "openwop-mcp.cancelled-with-a-result"
"""Patch: before it, a call that had a result although it was cancelled went on as if it were not."""

REMEMBERED = "openwop-mcp.escaped-before-the-last-attempt"
"""Patch: before it a call ended as not sent, whatever had become of its earlier attempts, if its last one was not."""

MAX_PROSE = 200
"""Characters of a summary, which is a line in Temporal's UI."""


class Asking(Protocol):
    """Who is asked where an attempt ended without an outcome. What these raise ends the call."""

    async def about_doubt(self, failure: CallFailure) -> Answer:
        """What becomes of an effect in doubt."""

    async def for_input(
        self, request: CallRequest, record: temporalio.api.common.v1.Payload
    ) -> tuple[bytes, tuple[str, ...]]:
        """The ``inputResponses`` to what a server asks, and the digests of what was declined of it."""

    async def for_approval(self, request: CallRequest, facts: bytes, escaped: Escaped) -> bytes:
        """The ``approved`` of a call that a person approves, whatever its attempts so far may have done."""


class EndedError(Exception):
    """A call ended without a result.

    Attributes:
        failure: That of the last attempt, in the light of those before it.
        decision: Why there is no further one.
    """

    def __init__(self, failure: CallFailure, decision: Decision) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.decision = decision


async def attempted(
    request: CallRequest,
    schedule: Callable[[CallRequest], Awaitable[RawValue]],
    asking: Asking | None = None,
) -> RawValue:
    """Make attempts until one has a result, or none may follow.

    Args:
        request: The call.
        schedule: Schedules one attempt.
        asking: Who is asked. Without it a doubt is an end like any other, and an interim record a result like any; one
            that comes after a cancel is kept, as the call is all that there is to cancel.

    Raises:
        EndedError: There is no result.
        SealedError: It is encrypted still, as the worker's client has no keys.
        asyncio.CancelledError: The call was cancelled; its result, if it had one, stands in history.
    """
    task = asyncio.current_task()
    assert task is not None
    cancels = task.cancelling()
    pauses = 0
    escaped = Escaped.NO
    while True:
        request, record, escaped = await _round(request, schedule, asking, task, cancels, escaped)
        check_open(record.payload)
        metadata = record.payload.metadata
        kind = interim(metadata)
        if asking is None:
            return record
        # Where an attempt ends after the call was cancelled, the SDK tells of the end alone.
        if task.cancelling() > cancels and (kind is not None or workflow.patched(HEARD)):
            raise asyncio.CancelledError
        if kind is None:
            return record
        result, named = record.payload.data, replace(request, node=request.node or provenance(metadata, NODE))
        if kind == "approval":
            request = named.approved_as(await asking.for_approval(named, result, escaped))
            continue
        responses: bytes | None = None
        declined: tuple[str, ...] = ()
        if mrtr.read(result).requests:
            pauses = 0
            responses, declined = await asking.for_input(named, record.payload)
        else:
            pause = min(FIRST_PAUSE * 2**pauses, LONGEST_PAUSE)
            pauses += 1
            await workflow.sleep(pause, summary=f"{_prose(request)} again after {pause:g} s")
        request = named.next_round(answering(result, metadata, responses, declined, before=named.input))


async def _round(
    request: CallRequest,
    schedule: Callable[[CallRequest], Awaitable[RawValue]],
    asking: Asking | None,
    task: asyncio.Task[object],
    cancels: int,
    escaped: Escaped,
) -> tuple[CallRequest, RawValue, Escaped]:
    """Make attempts until one has a record; what was asked by it, it, and what those before it may have done."""
    # The limits of attempts are those of one round: that a server or a person is asked is no failure of the call.
    before = 0 if request.input is None and request.approved is None else request.attempt - 1
    waited, parked = 0.0, Parked()
    while True:
        try:
            return request, await schedule(request), escaped
        except ActivityError as error:
            if error.failure is None:
                raise
            failure = read(error.failure)
            count_doubt(failure)
            if failure.cancelled or task.cancelling() > cancels:
                raise asyncio.CancelledError from error
            attempts, postponed = request.attempt - before - parked.times, failure.happened.postponed is not None
            decision = decide(failure.policy, attempts, waited, failure.happened, parked)
            escaped = escaped.after(failure)
            activity_id, answer = error.activity_id, None
            if isinstance(decision, Ask) and asking is not None:
                answer = await asking.about_doubt(failure)
            elif not isinstance(decision, Again):
                raise EndedError(in_light_of(escaped, failure), decision) from error
        if isinstance(decision, Again):
            if decision.wait > 0:
                word = "postponed" if postponed else "retry"
                await workflow.sleep(decision.wait, summary=f"{word} {_prose(request)} after {decision.wait:g} s")
            if postponed:
                parked = parked.after(decision.wait)
            else:
                waited += decision.wait
        request = request.next_attempt(activity_id, answer)


def in_light_of(escaped: Escaped, failure: CallFailure) -> CallFailure:
    """The failure that a call ends with, where one of its attempts may have had its effect."""
    known = remembered(failure, escaped)
    return known if known is not failure and workflow.patched(REMEMBERED) else failure


def _prose(request: CallRequest) -> str:
    about = f" {request.subject}" if request.subject else ""
    return f"{request.method} {request.server_id}{about}"[:MAX_PROSE]
