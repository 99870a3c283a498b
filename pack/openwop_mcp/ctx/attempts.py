"""The attempts of one call in workflow code: each is an activity, and what follows it is the table's decision.

Knows neither what an attempt is scheduled with nor who is asked where an effect is in doubt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.common import RetryPolicy as ActivityRetryPolicy
from temporalio.exceptions import ActivityError

with workflow.unsafe.imports_passed_through():
    from openwop_mcp.calls import CallRequest
    from openwop_mcp.effects.decide import Again, Ask, Decision, decide
    from openwop_mcp.effects.doubt import Answer
    from openwop_mcp.failures import CallFailure, read

__all__ = ("ONE_ATTEMPT", "EndedError", "attempted")

ONE_ATTEMPT = ActivityRetryPolicy(maximum_attempts=1)
"""Attempts belong to the workflow, so that each stands in history: Temporal makes none of its own."""

MAX_PROSE = 200
"""Characters of a summary, which is a line in Temporal's UI."""


class EndedError(Exception):
    """A call ended without a result.

    Attributes:
        failure: That of the last attempt.
        decision: Why there is no further one.
    """

    def __init__(self, failure: CallFailure, decision: Decision) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.decision = decision


async def attempted(
    request: CallRequest,
    schedule: Callable[[CallRequest], Awaitable[RawValue]],
    ask: Callable[[CallFailure], Awaitable[Answer]] | None = None,
) -> RawValue:
    """Make attempts until one has a result, or none may follow.

    Args:
        request: The call.
        schedule: Schedules one attempt.
        ask: Asks a person about an effect in doubt. Without it a doubt is an end like any other.

    Raises:
        EndedError: There is no result.
        asyncio.CancelledError: The call was cancelled.
    """
    waited = 0.0
    task = asyncio.current_task()
    assert task is not None
    cancels = task.cancelling()
    while True:
        try:
            return await schedule(request)
        except ActivityError as error:
            if error.failure is None:
                raise
            failure = read(error.failure)
            # Where an attempt ends in the moment in which the call is cancelled, the SDK tells of the end alone.
            if failure.cancelled or task.cancelling() > cancels:
                raise asyncio.CancelledError from error
            decision = decide(failure.policy, request.attempt, waited, failure.happened)
            activity_id, answer = error.activity_id, None
            if isinstance(decision, Ask) and ask is not None:
                answer = await ask(failure)
            elif not isinstance(decision, Again):
                raise EndedError(failure, decision) from error
        if isinstance(decision, Again):
            if decision.wait > 0:
                await workflow.sleep(decision.wait, summary=f"retry {_prose(request)} after {decision.wait:g} s")
            waited += decision.wait
        request = request.next_attempt(activity_id, answer)


def _prose(request: CallRequest) -> str:
    about = f" {request.subject}" if request.subject else ""
    return f"{request.method} {request.server_id}{about}"[:MAX_PROSE]
