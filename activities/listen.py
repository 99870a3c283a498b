"""A subscription to what a server changes: told, gathered for a moment, to the workflow that keeps its catalog.

Owns one subscription and its renewal. Nothing that was missed between two of them is told again, so that the workflow
hears that something may have been.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp import failures, jsontext
from openwop_mcp.client import CallOptions, McpClient, Notice
from openwop_mcp.effects.decide import RetryPolicy
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import InterruptedCallError, McpError, TimeLimitError
from openwop_mcp.failures import json_payload
from openwop_mcp.logs import about

from .beat import INTERVAL, Beat, report
from .perform import Calls

__all__ = ("LISTEN", "ListenRequest", "listen_activities")

logger = logging.getLogger(__name__)

LISTEN = "mcp.listen"
"""Activity type; persisted in histories, so never renamed."""

METHOD = "subscriptions/listen"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

GATHER = 0.25
"""Seconds that changes are gathered before they are told: servers announce several at once, and each signal is an event
in the workflow's history."""

LONGEST_GATHER = 10.0
"""Seconds at most that they are gathered while one signal follows the other, each after twice the time of the one
before: a history has room for some ten thousand, and whoever is told all the time has enough to read anew."""

SIGNAL_BYTES = 16 * 1024
"""Bytes of changes in one signal, as a history of all signals has 50 MiB; of more the workflow hears that it has missed
some, and reads anew what matters."""

URI_BYTES = 2048
"""Bytes of a URI that is told: longer ones are rare, and a few of them would leave no room for the others."""

BEATS = 6
"""Beats within the heartbeat timeout: one or two may be late before the worker counts as lost."""

FIRST_WAIT = 1.0
"""Seconds before a subscription that ended is renewed, doubled each time until it holds again."""

HELD = 60.0
"""Seconds after which a subscription counts as one that held: to renew one each minute is no burden."""

LONGEST_WAIT = 60.0
"""Seconds between two tries at most: so long a server's return may go unnoticed."""


@dataclass(frozen=True, slots=True)
class ListenRequest:
    """What to listen to, and who is told.

    Attributes:
        server_id: The server, by its id in the settings.
        notifications: JSON text of the filter (MCP 2026-07-28, subscriptions).
        workflow_id: The workflow that is told.
        signal: The signal that tells it: ``{"serverId", "changes": [{"method", "uri"?}], "missed"}``.
        tenant: Tenant of the caller; None means the worker's own.
        again: Whether it follows another subscription, between which and this one something may have been missed.
    """

    server_id: str
    notifications: bytes
    workflow_id: str
    signal: str
    tenant: str | None = None
    again: bool = False

    def encode(self) -> bytes:
        """JSON text, the filter in it byte for byte."""
        members = {"serverId": self.server_id, "workflowId": self.workflow_id, "signal": self.signal}
        tenant = [] if self.tenant is None else [("tenant", jsontext.encode(self.tenant))]
        return jsontext.build(
            [
                *((key, jsontext.encode(value)) for key, value in members.items()),
                ("notifications", self.notifications),
                *tenant,
                *([("again", b"true")] if self.again else []),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> ListenRequest:
        """Read what :meth:`encode` wrote; unknown members are ignored, as they come from a newer workflow."""
        found = dict(jsontext.members(data))
        return cls(
            jsontext.decode(found["serverId"]),
            found["notifications"],
            jsontext.decode(found["workflowId"]),
            jsontext.decode(found["signal"]),
            jsontext.decode(found["tenant"]) if "tenant" in found else None,
            found.get("again") == b"true",
        )


def listen_activities(calls: Calls) -> Sequence[Callable[..., Any]]:
    """The activity, bound to the calls of one worker.

    It ends when it is cancelled, when nobody is there to be told, or with a failure that another try would not mend.
    """

    @activity.defn(name=LISTEN)
    async def listen(request: RawValue) -> None:
        began = time.monotonic()
        asked = ListenRequest.decode(request.payload.data)
        about(run=activity.info().workflow_id, server=asked.server_id, tenant=asked.tenant)

        def record() -> bytes:
            return jsontext.encode(
                {"delivery": Delivery.UNKNOWN.value, "repeatSafe": True, "serverId": asked.server_id, "method": METHOD}
            )

        beat = Beat(record, grace=0, interval=_interval())
        try:
            client = calls.client(asked.server_id, asked.tenant)
            async with beat:
                await beat.hold(_Subscription(client, asked).keep())
        except McpError as error:
            failure = _failure(error, asked)
        except asyncio.CancelledError:
            if beat.cancelled:
                raise
            if not activity.is_worker_shutdown():
                # Temporal knows the activity no more: its workflow has ended, or goes on in a new history.
                activity.raise_complete_async()
            failure = _failure(_left(), asked)
        else:
            return
        await report(failure, began=began)
        raise failure

    return [listen]


class _ListenerGoneError(Exception):
    """The workflow that was to be told has ended."""


class _Subscription:
    """One subscription, renewed for as long as someone wants to hear."""

    def __init__(self, client: McpClient, asked: ListenRequest) -> None:
        self._client = client
        self._asked = asked
        self._handle = activity.client().get_workflow_handle(asked.workflow_id)
        self._changes: dict[bytes, None] = {}
        self._size = 0
        self._missed = False
        self._failed = 0
        self._renewed = asked.again
        self._due = asyncio.Event()

    async def keep(self) -> None:
        """Listen until the workflow is gone.

        Raises:
            InterruptedCallError: The worker shuts down. At once: it never ends by itself, and would use up the time
                that calls are given to end.
        """
        tasks = {asyncio.ensure_future(part) for part in (self._tell(), self._listen(), _leave())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        except _ListenerGoneError:
            return
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _listen(self) -> None:
        options = CallOptions(on_notice=self._hear, tenant=self._asked.tenant or "")
        clock = asyncio.get_running_loop().time
        while True:
            began, ours = clock(), False
            try:
                await self._client.listen(self._asked.notifications, options)
            except McpError as error:
                if not error.retryable:
                    raise
                ours = isinstance(error, TimeLimitError) and error.limit == "total"
            self._failed = 0 if ours or clock() - began >= HELD else self._failed + 1
            self._renewed = True
            await asyncio.sleep(_wait(self._failed))

    def _hear(self, notice: Notice) -> None:
        if notice.method == ACKNOWLEDGED:
            self._judge(notice)
            self._missed |= self._renewed
            if not self._renewed:
                return
        else:
            self._gather(notice)
        self._due.set()

    def _gather(self, notice: Notice) -> None:
        uri = jsontext.member(notice.params, "uri")
        about = uri if uri is not None and jsontext.kind(uri) == "string" else None
        if about is not None and len(about) > URI_BYTES:
            self._missed = True
            return
        told = [] if about is None else [("uri", jsontext.encode(jsontext.decode(about)))]
        change = jsontext.build([("method", jsontext.encode(notice.method)), *told])
        if change in self._changes:
            return
        if self._size + len(change) > SIGNAL_BYTES:
            self._missed = True
            return
        self._changes[change] = None
        self._size += len(change) + 1

    def _judge(self, acknowledged: Notice) -> None:
        """Say what of the filter the server does not honour: of that nobody will hear."""
        honoured = jsontext.member(acknowledged.params, "notifications") or b"{}"
        left_out = [name for name, _ in jsontext.members(self._asked.notifications) if not _holds(honoured, name)]
        if left_out and not self._renewed:
            logger.warning("server %s does not tell of %s", self._asked.server_id, ", ".join(left_out))

    async def _tell(self) -> None:
        clock = asyncio.get_running_loop().time
        gather, told_at = GATHER, -LONGEST_GATHER
        while True:
            await self._due.wait()
            gather = _gathering(gather, quiet=clock() - told_at)
            await asyncio.sleep(gather)
            self._due.clear()
            changes, self._changes, self._size = self._changes, {}, 0
            missed, self._missed = self._missed, False
            told = [
                ("serverId", jsontext.encode(self._asked.server_id)),
                ("changes", b"[%b]" % b",".join(changes)),
                ("missed", jsontext.encode(missed)),
            ]
            told_at = clock()
            try:
                await self._handle.signal(self._asked.signal, RawValue(json_payload(jsontext.build(told))))
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    raise _ListenerGoneError from None
                # Temporal is out of reach: what was to be told counts as missed, and is told when it is back.
                self._missed = True
                self._due.set()


async def _leave() -> NoReturn:
    await activity.wait_for_worker_shutdown()
    raise _left()


def _left() -> InterruptedCallError:
    return InterruptedCallError("the worker shut down while it listened", cancelled=False, delivery=Delivery.UNKNOWN)


def _failure(error: McpError, asked: ListenRequest) -> ApplicationError:
    """What the workflow is told; nothing is logged of it, since most servers cannot be subscribed to."""
    failure = failures.write(error, repeat_safe=True, policy=RetryPolicy(), serverId=asked.server_id, method=METHOD)
    return ApplicationError(
        failure.message,
        *failure.details,
        type=failure.type,
        non_retryable=True,
        category=ApplicationErrorCategory.BENIGN,
    )


def _interval() -> float:
    """Seconds between beats: a subscription may last for months, and nothing is lost if its worker is missed late."""
    timeout = activity.info().heartbeat_timeout
    return INTERVAL if timeout is None else max(INTERVAL, timeout.total_seconds() / BEATS)


def _holds(honoured: bytes, name: str) -> bool:
    return jsontext.kind(honoured) == "object" and jsontext.member(honoured, name) not in {None, b"false", b"[]"}


def _gathering(before: float, *, quiet: float) -> float:
    """Seconds to gather changes, by how long the signal before gathered and how long nothing came after it."""
    return GATHER if quiet >= before else min(LONGEST_GATHER, 2 * before)


def _wait(failed: int) -> float:
    """Seconds until the next try: longer after each failure, and never the same for all who lost the same server."""
    longest = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(failed, 10))
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - a spread, no secret
