"""An Update of a run: sent to it, waited for as long as a worker takes, and what came of it. Knows no request."""

from __future__ import annotations

import asyncio
import contextlib
from weakref import WeakValueDictionary

from temporalio.client import Client, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp.failures import json_payload

from .errors import HostError
from .ids import BoundId
from .siblings import client as runs

__all__ = ("RunOverError", "UpdateRefusedError", "update", "was_taken")

PATIENCE = 5.0
"""Seconds that a worker is given to take it: it takes some milliseconds where one is there."""

AT_ONCE = 5
"""Updates of one run that are sent at once. Temporal takes ten, those of other hosts and of commands included, and has
whoever comes beyond them try again, later each time: of two hundred at once it took two in five seconds."""

_turns: WeakValueDictionary[BoundId, asyncio.Semaphore] = WeakValueDictionary()
"""Of the runs to which something is sent, who may send. Each is there for as long as somebody does."""

RETRY_AFTER = 2
"""Seconds after which to try again where no worker took it: a restart takes about as long."""

_NO_ROOM = frozenset(
    {
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.FAILED_PRECONDITION,
    }
)
"""How Temporal's client puts it that a run was not reached in time; the first one also where ten wait for it, the last
one where no worker that there is gets on with the run."""


class RunOverError(Exception):
    """The run has ended, and takes nothing more."""


class UpdateRefusedError(Exception):
    """The run does not take it.

    Attributes:
        code: The run's own word for why.
        message: Why, for people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


async def update(client: Client, run_id: BoundId, name: str, given: bytes, *, again: str | None) -> bytes:
    """Update a run.

    Args:
        client: Connected to its namespace.
        run_id: The run, of which it is known that it is one.
        name: The Update.
        given: JSON text of its argument.
        again: Names the request where it may come again; it then counts once.

    Returns:
        JSON text of its result.

    Raises:
        UpdateRefusedError: It was refused.
        RunOverError: The run has ended.
        HostError: ``service_unavailable`` if no worker took it in time, ``payload_too_large``.
        RPCError: Temporal does not answer.
    """
    handle = client.get_workflow_handle(str(run_id))
    try:
        # The client's own limit is for each of its attempts, of which it makes some.
        async with asyncio.timeout(PATIENCE), _turns.setdefault(run_id, asyncio.Semaphore(AT_ONCE)):
            taken = await handle.execute_update(name, RawValue(json_payload(given)), id=again, result_type=RawValue)
    except WorkflowUpdateFailedError as error:
        if isinstance(error.cause, ApplicationError) and error.cause.type:
            raise UpdateRefusedError(error.cause.type, error.cause.message) from None
        raise
    except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
        raise await _not_taken(client, run_id) from None
    except RPCError as error:
        if error.status in _NO_ROOM:
            raise await _not_taken(client, run_id) from None
        if error.status is RPCStatusCode.NOT_FOUND:
            raise RunOverError from None
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            # All else in it is this host's own.
            raise HostError("payload_too_large", "it is more than this Temporal takes: send less") from None
        raise
    result: bytes = taken.payload.data
    return result


async def was_taken(client: Client, run_id: BoundId, again: str) -> bool:
    """Whether an Update has been taken of which nobody heard in time, also where the run has ended since.

    Args:
        client: Connected to its namespace.
        run_id: The run.
        again: What named the request.

    Raises:
        RPCError: Temporal does not answer.
    """
    handle = client.get_workflow_handle(str(run_id)).get_update_handle(again, result_type=RawValue)
    try:
        async with asyncio.timeout(PATIENCE):
            await handle.result()
    except (WorkflowUpdateFailedError, TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
        return False
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


async def _not_taken(client: Client, run_id: BoundId) -> HostError:
    version = None
    with contextlib.suppress(RPCError, TimeoutError):
        async with asyncio.timeout(PATIENCE):
            version = await runs.pinned_to(client, str(run_id))
    needed = "one" if version is None else f"one of version '{version}', which the run is pinned to,"
    return HostError(
        "service_unavailable",
        f"no worker took it within {PATIENCE:g} s, and one may still take it: see that {needed} runs, and try again",
        retry_after=RETRY_AFTER,
    )
