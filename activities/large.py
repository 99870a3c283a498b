"""Large results and errors: whether this worker can keep them, and keeping them while the attempt still beats.

What counts is the storage that the worker's client has, not what the settings say: an author's own client may have
another, or none. Knows nothing of how a call is sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable

import temporalio.api.common.v1
from temporalio import activity
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp.ceilings import INLINE_BYTES, INLINE_RESULT
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import McpError, ResultNotKeptError, ResultTooLargeError, RpcError
from openwop_mcp.failures import MAX_RPC_ERROR, json_payload
from openwop_mcp.storage import StorageError, kept_outside

from .beat import Beat

__all__ = ("check_size", "complete_large", "error_ceiling", "make_whole")

logger = logging.getLogger(__name__)


def check_size(result: bytes, limit: int) -> None:
    """Refuse a result that cannot be recorded; the effect happened all the same.

    Args:
        result: What the server answered.
        limit: The setting ``limits.result_bytes``.

    Raises:
        ResultTooLargeError: It is too large, and is not asked for again.
    """
    setting, told = "limits.result_bytes", "(setting limits.result_bytes)"
    if not _has_storage() and limit > INLINE_RESULT:
        limit, setting = INLINE_RESULT, "storage.driver"
        told = "that Temporal's history holds; this worker's client has no storage for more (setting storage.driver)"
    if len(result) > limit:
        raise ResultTooLargeError(
            f"the server acted, and its result of {len(result)} bytes is over the {limit} bytes {told}",
            delivery=Delivery.ANSWERED,
            limit=limit,
            setting=setting,
            size=len(result),
            sha256=hashlib.sha256(result).hexdigest(),
        )


async def complete_large(answer: temporalio.api.common.v1.Payload, claim: Callable[[], bytes], *, grace: float) -> None:
    """Complete the activity with a result that storage takes, which may last longer than a worker may be silent.

    Returns where the SDK is to complete it: the result is small, or Temporal did not take the completion.

    Args:
        answer: The record.
        claim: Makes the record of a beat, as :class:`Beat` takes it.
        grace: Seconds that storing is given when the worker shuts down.

    Raises:
        ResultNotKeptError: Storage did not take it, or not in time. The SDK would make a failure without a type of it.
    """
    # The data alone first: a message that is asked for its size is written out for it, twice.
    if (len(answer.data) < INLINE_BYTES and answer.ByteSize() < INLINE_BYTES) or not _has_storage():
        return
    handle = activity.client().get_async_activity_handle(task_token=activity.info().task_token)
    try:
        async with Beat(claim, grace=grace) as beat:
            await beat.hold(handle.complete(RawValue(answer)))
    except StorageError as error:
        raise _not_kept(answer, str(error)) from None
    except asyncio.CancelledError:
        if beat.cancelled:
            raise _not_kept(answer, "the call was cancelled before it was") from None
        if activity.is_worker_shutdown():
            raise _not_kept(answer, "the worker shut down before it was") from None
        raise
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            return
        logger.warning("the outcome came too late: the attempt is no longer the current one")
    activity.raise_complete_async()


async def make_whole(error: McpError) -> None:
    """Have all of a long JSON-RPC error, without credentials, where it can be kept: else its outline is enough.

    May take seconds, in which the attempt has to beat.
    """
    if isinstance(error, RpcError) and error.whole is not None and _has_storage():
        error.error = await asyncio.to_thread(error.whole)


async def error_ceiling(error: McpError, limit: int) -> int:
    """Bytes up to which a JSON-RPC error is recorded unaltered.

    Args:
        error: What the call ended with.
        limit: The setting ``limits.result_bytes``.
    """
    if not isinstance(error, RpcError) or not MAX_RPC_ERROR < len(error.error) <= limit or not _has_storage():
        return MAX_RPC_ERROR
    try:
        # Now, as a failure that storage does not take afterwards loses all that it says.
        await activity.client().data_converter.encode([RawValue(json_payload(error.error))])
    except StorageError:
        logger.warning("a JSON-RPC error of %d bytes was shortened: storage did not take it", len(error.error))
        return MAX_RPC_ERROR
    return limit


def _not_kept(answer: temporalio.api.common.v1.Payload, why: str) -> ResultNotKeptError:
    data = answer.data
    return ResultNotKeptError(why, size=len(data), sha256=hashlib.sha256(data).hexdigest())


def _has_storage() -> bool:
    return kept_outside(activity.client().data_converter)
