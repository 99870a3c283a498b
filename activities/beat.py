"""The one writer of an attempt's heartbeats: the claim before a request leaves, a beat a second until it is answered.

Every beat is an acknowledged call with the attempt's own token, so that only the current attempt can claim, and none is
buffered: ``activity.heartbeat()`` would let a late flush overwrite a claim. Knows nothing of what is called.
"""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Self

from temporalio import activity
from temporalio.client import AsyncActivityCancelledError, AsyncActivityHandle
from temporalio.common import RawValue
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp.failures import json_payload

__all__ = ("Beat", "ClaimRefusedError")

logger = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between beats. Cancellation arrives with the answer to a beat, so this is how long it may take."""

WITHDRAWN = b'{"delivery":"not_sent","repeatSafe":true,"retry":null}'
"""The record of an attempt that claimed and then sent nothing."""


class ClaimRefusedError(Exception):
    """This attempt may not send.

    Attributes:
        cancelled: Whether the call was cancelled; otherwise the attempt is no longer the current one.
    """

    def __init__(self, *, cancelled: bool) -> None:
        super().__init__("the claim was refused")
        self.cancelled = cancelled


class Beat:
    """Beats for the activity that runs in the current task.

    Args:
        record: JSON text; what a workflow is to know if this is the last that is heard of the attempt.

    Attributes:
        cancelled: Whether the answer to a beat said that the call is cancelled; the task was then cancelled too.
    """

    def __init__(self, record: bytes) -> None:
        self._record = RawValue(json_payload(record))
        self._handle: AsyncActivityHandle = activity.client().get_async_activity_handle(
            task_token=activity.info().task_token
        )
        self._loop = asyncio.get_running_loop()
        self._owner = asyncio.current_task()
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
        if self._beating is not None:
            self._beating.cancel()

    async def claim(self) -> None:
        """Record that the request is about to leave, and wait until Temporal has it.

        Raises:
            ClaimRefusedError: Nothing may be sent.
        """
        try:
            await self._handle.heartbeat(self._record)
        except AsyncActivityCancelledError:
            # Temporal has stored the claim all the same (measured): without this it would stand for a request sent.
            await self._withdraw()
            raise ClaimRefusedError(cancelled=True) from None
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise ClaimRefusedError(cancelled=False) from None
            raise

    async def _withdraw(self) -> None:
        try:
            await self._handle.heartbeat(RawValue(json_payload(WITHDRAWN)))
        except (AsyncActivityCancelledError, RPCError):
            # A beat that raises is recorded too; one for an attempt that is gone has nothing to correct.
            return

    def _arm(self) -> None:
        self._timer = self._loop.call_later(INTERVAL, self._start)

    def _start(self) -> None:
        self._beating = self._loop.create_task(self._beat())

    async def _beat(self) -> None:
        try:
            await self._handle.heartbeat(self._record)
        except AsyncActivityCancelledError:
            self._give_up(cancelled=True)
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
        if not self._closed:
            self._arm()

    def _give_up(self, *, cancelled: bool) -> None:
        if self._closed or self._owner is None:
            return
        self.cancelled = cancelled
        self._closed = True
        self._owner.cancel()
