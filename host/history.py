"""What Temporal has recorded of a run, read page by page, and the log that follows from it, event by event.

Asks Temporal and the storage of large values, and keeps no more than a page. Whose run it is, and what becomes of the
events, is for others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.projection import ProjectionError, Projector
from openwop_mcp.runs.start import RunStart
from openwop_mcp.storage import LostValueError, resolved

from .errors import HostError
from .siblings import client as runs

__all__ = ("Extent", "Reading", "Standing", "chain", "standing")

SECONDS = 5
"""What Temporal is given for an answer that it has at once. It takes some milliseconds."""

NEWS_SECONDS = 30
"""What Temporal is given for a page that is to wait for news: by itself it answers after 20 seconds without any."""

_UNREAD = frozenset(
    {
        EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
    }
)
"""Events whose values the log does not need: they stand in others as well, and may be as large as all of them."""


class Standing(NamedTuple):
    """Where a workflow stands.

    Attributes:
        latest: Temporal's id of its latest run: a reset and a continue-as-new begin another one.
        length: Events in the history of that run.
        cancelling: Whether a cancel was accepted.
    """

    latest: str
    length: int
    cancelling: bool


class Extent(NamedTuple):
    """How far a run's histories are the run's.

    Attributes:
        parts: Temporal's ids of the runs that it consists of, each continued as the next.
        length: Events in the history of the last one. What follows may not be the run's any more: it may be reset.
    """

    parts: tuple[str, ...]
    length: int


async def standing(client: Client, run_id: str) -> Standing:
    """Ask where a run stands.

    Raises:
        HostError: ``not_found``, also where that id is of some other workflow.
        RPCError: Temporal does not answer.
    """
    request = DescribeWorkflowExecutionRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=run_id)
    )
    try:
        found = await client.workflow_service.describe_workflow_execution(
            request, retry=True, timeout=timedelta(seconds=SECONDS)
        )
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise _not_found() from None
        raise
    info = found.workflow_execution_info
    if info.type.name != runs.GRAPH_RUN:
        raise _not_found()
    return Standing(info.execution.run_id, info.history_length, found.workflow_extended_info.cancel_requested)


async def chain(client: Client, run_id: str, latest: str, known: Sequence[str] = ()) -> tuple[str, ...]:
    """Temporal's ids of the runs that a run consists of, the first one first.

    Args:
        client: Connected to the run's namespace.
        run_id: The run.
        latest: The last of them.
        known: The chain as it was found before. It is the beginning of the new one, unless the run was reset.

    Raises:
        HostError: ``run_expired``.
        RPCError: Temporal does not answer.
    """
    # Backwards, since a run that was reset and one that goes on after it have the same first run.
    found = [latest]
    while found[0] not in known:
        request = _request(client, run_id, found[0])
        request.maximum_page_size = 1
        [first, *_] = (await _page(client, request, SECONDS)).history.events
        before = first.workflow_execution_started_event_attributes.continued_execution_run_id
        if not before:
            return tuple(found)
        found.insert(0, before)
    return (*known[: known.index(found[0])], *found)


class Reading:
    """One way through the histories of a run, from the beginning.

    Args:
        client: Connected to the run's namespace, with the storage of the workers.
        run_id: The run.

    Attributes:
        start: What the run was started with, once its first event was taken.
        start_bytes: What that and the run's inputs take up.
    """

    def __init__(self, client: Client, run_id: str) -> None:
        self.start: RunStart | None = None
        self.start_bytes = 0
        self._client = client
        self._run_id = run_id
        self._parts: tuple[str, ...] = ()
        self._part = 0
        self._token: bytes | None = b""
        self._page: deque[HistoryEvent] = deque()
        self._page_bytes = 0
        self._taken = 0
        self._projector = Projector(run_id)
        self._events: deque[RunEvent] = deque()
        self._fault: str | None = None

    @property
    def is_ahead(self) -> bool:
        """Whether there is something on the page that was beyond the extent of the last call."""
        return bool(self._page)

    @property
    def held(self) -> int:
        """Bytes that it takes up."""
        return self._projector.held + (self._page_bytes if self._page else 0)

    async def next(self, extent: Extent) -> RunEvent | None:
        """Take the next event of the log. One call at a time; one that is cancelled has lost nothing.

        Args:
            extent: How far it may go. It may have grown since the last call, and not otherwise changed.

        Returns:
            None where there is no other one.

        Raises:
            HostError: ``run_expired``, ``payload_unprojectable``; the latter from then on always.
            StorageError: A large value cannot be had now.
            RPCError: Temporal does not answer.
        """
        self._parts = extent.parts
        if self._fault is None:
            try:
                return await self._next(extent)
            except ProjectionError as error:
                self._fault = str(error)
        raise HostError(
            "payload_unprojectable",
            f"the run's log cannot be told from its history: {self._fault}; have the host run the version of "
            "openwop-mcp-pack that the run's workers have",
        )

    async def fetch(self) -> None:
        """Fetch the next page. Where there is none yet, wait for it; in vain after some 20 seconds.

        May be called while :meth:`next` is under way, and after it.

        Raises:
            HostError: ``run_expired``.
            RPCError: Temporal does not answer.
        """
        place = self._part, self._token
        if self._token is None:
            return
        request = _request(self._client, self._run_id, self._parts[self._part])
        # Without it the last page has no token to go on from.
        request.wait_new_event = True
        request.next_page_token = self._token
        found = await _page(self._client, request, NEWS_SECONDS)
        if place != (self._part, self._token):
            # It was fetched by another call meanwhile.
            return
        self._page.extend(found.history.events)
        self._page_bytes = found.ByteSize()
        self._token = found.next_page_token or None

    async def _next(self, extent: Extent) -> RunEvent | None:
        while not self._events:
            is_last = self._part == len(extent.parts) - 1
            read_out = self._token is None and not self._page
            if is_last and (read_out or self._taken >= extent.length):
                self._events.extend(self._projector.project(()))
                break
            if read_out:
                self._part, self._token, self._taken = self._part + 1, b"", 0
            elif self._page:
                await self._take()
            else:
                await self.fetch()
        return self._events.popleft() if self._events else None

    async def _take(self) -> None:
        event = self._page[0]
        if event.event_type not in _UNREAD:
            event = await self._whole(event)
        self._events.extend(self._projector.take(event))
        self._page.popleft()
        self._taken = event.event_id
        if self.start is None:
            payloads = event.workflow_execution_started_event_attributes.input.payloads
            self.start = RunStart.decode(payloads[0].data)
            self.start_bytes = sum(payload.ByteSize() for payload in payloads)

    async def _whole(self, event: HistoryEvent) -> HistoryEvent:
        try:
            return await resolved(event, self._client.data_converter)
        except LostValueError as error:
            [lost] = error.details
            raise HostError(
                "run_expired",
                f"a value of the run is gone or was changed, the one with SHA-256 {lost['sha256']}: have it put back"
                " into the storage of large values, or the host given the [storage] of the worker that recorded it",
                {"sha256": lost["sha256"], "size": int(lost["size"])},
            ) from None


def _request(client: Client, run_id: str, part: str) -> GetWorkflowExecutionHistoryRequest:
    return GetWorkflowExecutionHistoryRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=run_id, run_id=part)
    )


async def _page(
    client: Client, request: GetWorkflowExecutionHistoryRequest, seconds: float
) -> GetWorkflowExecutionHistoryResponse:
    try:
        return await client.workflow_service.get_workflow_execution_history(
            request, retry=True, timeout=timedelta(seconds=seconds)
        )
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        raise HostError(
            "run_expired", "the beginning of the run is past the retention of Temporal's namespace: it cannot be read"
        ) from None


def _not_found() -> HostError:
    return HostError("not_found", "there is no such run")
