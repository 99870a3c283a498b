"""The one writer of an attempt's heartbeats: the claim before a request leaves, a beat a second until it is answered.

Every beat is an acknowledged call with the attempt's own token, so that only the current attempt can claim, and none is
buffered: ``activity.heartbeat()`` would let a late flush overwrite a claim. Knows nothing of what is called.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

import temporalio.api.common.v1
from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, AsyncActivityHandle
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp.failures import json_payload

__all__ = ("INTERVAL", "WITHDRAWN", "Beat", "Claim", "ClaimRefusedError", "is_cancel", "report")

T = TypeVar("T")

logger = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between beats. Cancellation arrives with the answer to a beat, so this is how long it may take."""

SDK_PATIENCE = 5.0
"""Seconds past the heartbeat timeout after which the SDK, which knows only heartbeats of its own, takes an activity for
lost: it cancels it and keeps what it returns to itself."""

WITHDRAWN = b'{"delivery":"not_sent","repeatSafe":true,"retry":null}'
"""The record of an attempt that claimed and then sent nothing."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Leave to send one request, which only a :class:`Beat` gives.

    Attributes:
        recorded: Whether Temporal has acknowledged it. It need not where a repeat would be safe.
    """

    recorded: bool


class ClaimRefusedError(Exception):
    """This attempt may not send.

    Attributes:
        cancelled: Whether the call was cancelled; otherwise the worker shuts down, an operator has reset or paused the
            attempt, or the claim could not be recorded, since the attempt is no longer the current one or Temporal is
            out of reach.
    """

    def __init__(self, *, cancelled: bool) -> None:
        if cancelled:
            why = "the call was cancelled"
        elif activity.is_worker_shutdown():
            why = "the worker shut down"
        else:
            why = "Temporal did not take the claim"
        super().__init__(why)
        self.cancelled = cancelled


class Beat:
    """Beats for the activity that runs in the current task.

    Args:
        record: Makes the JSON text of what a workflow is to know if this is the last that is heard of the attempt.
            Called with the first beat, as most calls end before one is due, and with the first after a renewal.
        grace: Seconds that a call under way is given when the worker shuts down.
        interval: Seconds between beats.

    Attributes:
        cancelled: Whether the answer to a beat said that the call is cancelled; the call was then cut short.
    """

    def __init__(self, record: Callable[[], bytes], *, grace: float, interval: float = INTERVAL) -> None:
        self._make_record = record
        self._interval = interval
        self._record: RawValue | None = None
        self._handle: AsyncActivityHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._grace = grace
        self._call: asyncio.Task[Any] | None = None
        self._on_its_own = False
        self._leave_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None
        self._closed = False
        self.cancelled = False

    async def __aenter__(self) -> Self:
        self._arm()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._beating is not None and not self._beating.done():
            # Given up on its way, it could reach Temporal after a claim that follows, and take its place.
            await asyncio.wait([self._beating], timeout=self._interval)
            self._beating.cancel()

    async def claim(self, *, recorded: bool) -> Claim:
        """Claim the right to send.

        Args:
            recorded: Whether to wait until Temporal has it, for what must not be sent twice.

        Raises:
            ClaimRefusedError: Nothing may be sent.
        """
        if not recorded:
            return Claim(recorded=False)
        try:
            await self._tell()
        except AsyncActivityCancelledError as error:
            cancelled = is_cancel(error)
        except RPCError:
            # Not the current attempt any more, or Temporal is out of reach: without a claim nothing is sent.
            raise ClaimRefusedError(cancelled=False) from None
        except asyncio.CancelledError:
            cancelled = self.cancelled
        else:
            if not self._closed:
                return Claim(recorded=True)
            # A beat that was answered meanwhile has said that nobody waits for the call, and was the last.
            cancelled = self.cancelled
        # Temporal may have stored the claim all the same (measured): without this it would stand for a request sent.
        await self.withdraw()
        raise ClaimRefusedError(cancelled=cancelled)

    async def withdraw(self) -> None:
        """Take a claim back: nothing was sent, or the server said that it did nothing.

        Should the worker be lost before it can say so itself, the effect is not in doubt.
        """
        # Also for a beat that comes due while this one is under way.
        self._record = RawValue(json_payload(WITHDRAWN))
        try:
            await self._tell()
        except (AsyncActivityCancelledError, RPCError):
            # A beat that raises is recorded too; one for an attempt that is gone has nothing to correct.
            return

    def renew(self) -> None:
        """Have the record made anew for the next beat, which is not put forward: there is one a second at most."""
        self._record = None

    async def hold(self, call: Coroutine[Any, Any, T]) -> T:
        """Await the call. Only the answer to a beat, or the worker's shutdown, cuts it short.

        The SDK has a timer of its own, see :data:`SDK_PATIENCE`. Temporal, which has the beats, knows better.

        Raises:
            asyncio.CancelledError: The call was cut short.
        """
        owner = asyncio.current_task()
        assert owner is not None
        under_way: asyncio.Task[T] = self._loop.create_task(call)
        self._call = under_way
        while True:
            try:
                return await asyncio.shield(under_way)
            except asyncio.CancelledError:
                if not under_way.done() and _only_the_sdks_timer():
                    owner.uncancel()
                    # The SDK cancels an activity once, so that a shutdown is not told any more.
                    self._on_its_own = True
                    continue
                under_way.cancel()
                await asyncio.wait([under_way])
                if under_way.cancelled():
                    raise
                # It ended in the same moment, which is worth more than that it was to be cut short.
                return under_way.result()

    async def _tell(self) -> None:
        """One acknowledged beat."""
        if self._handle is None:
            token = activity.info().task_token
            self._handle = activity.client().get_async_activity_handle(task_token=token)
        if self._record is None:
            self._record = RawValue(json_payload(self._make_record()))
        await self._handle.heartbeat(self._record)

    def _arm(self) -> None:
        self._timer = self._loop.call_later(self._interval, self._start)

    def _start(self) -> None:
        self._beating = self._loop.create_task(self._beat())

    async def _beat(self) -> None:
        try:
            await self._tell()
        except AsyncActivityCancelledError as error:
            if is_cancel(error):
                self._give_up(cancelled=True)
            else:
                # Cut short it would be in doubt. Temporal takes its outcome all the same.
                self._again()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                self._give_up(cancelled=False)
            else:
                # Temporal out of reach is no reason to drop a call; if it lasts, the heartbeat timeout says so.
                logger.warning("a heartbeat was not taken: %s", error.status)
                self._again()
        else:
            self._again()

    def _again(self) -> None:
        if self._closed:
            return
        if self._on_its_own and activity.is_worker_shutdown():
            now = self._loop.time()
            self._leave_at = self._leave_at or now + self._grace
            if now >= self._leave_at:
                self._give_up(cancelled=False)
                return
        self._arm()

    def _give_up(self, *, cancelled: bool) -> None:
        if self._closed:
            return
        self.cancelled = cancelled
        self._closed = True
        if self._call is not None:
            self._call.cancel()


async def report(outcome: temporalio.api.common.v1.Payload | ApplicationError, *, began: float) -> None:
    """Tell Temporal how the activity ended where the SDK no longer does, see :data:`SDK_PATIENCE`.

    Returns only where the SDK is to do it.

    Args:
        outcome: The activity's result or failure.
        began: When it began, by ``time.monotonic``.
    """
    info = activity.info()
    if info.heartbeat_timeout is None:
        return
    # A second early: between the two there must be no moment in which neither tells.
    if time.monotonic() - began < info.heartbeat_timeout.total_seconds() + SDK_PATIENCE - INTERVAL:
        return
    handle = activity.client().get_async_activity_handle(task_token=info.task_token)
    try:
        if isinstance(outcome, ApplicationError):
            await handle.fail(outcome)
        else:
            await handle.complete(RawValue(outcome))
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        logger.warning("the outcome came too late: the attempt is no longer the current one")
    activity.raise_complete_async()


def is_cancel(error: AsyncActivityCancelledError) -> bool:
    """Whether a beat was answered so because the call is cancelled, and not because an operator reset or paused it."""
    return error.details is None or error.details.cancel_requested


def _only_the_sdks_timer() -> bool:
    details = activity.cancellation_details()
    return details is not None and details.timed_out and not (details.worker_shutdown or details.cancel_requested)
