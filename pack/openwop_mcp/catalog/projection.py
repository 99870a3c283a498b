"""A catalog as of now, computed from the history of its workflow by the machine that also drives that workflow.

Reads history events and writes nothing; needs no worker and no server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import temporalio.api.failure.v1
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from openwop_mcp import failures
from openwop_mcp.catalog.start import APPROVE, CLASSIFY, PUBLISH, CatalogStart, decode_pages
from openwop_mcp.catalog.state import Catalog
from openwop_mcp.updates import TakenUpdates

__all__ = ("CatalogProjector",)

_Fact = Callable[[Catalog, int], object]
"""Something that the workflow is told: done to its state, at a time in milliseconds since 1970."""

_OF_TASK = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
    }
)


class CatalogProjector:
    """Follows a catalog's workflow, event by event, over all parts of its chain.

    What the workflow was told counts once it took it up, at the time that it then had: with the same facts in the same
    order, the state is the workflow's own to the last bit.

    Args:
        tenant: Whose catalog it is.
        server_id: The server, by its id in the settings.
    """

    def __init__(self, tenant: str, server_id: str) -> None:
        self._catalog = Catalog(tenant, server_id)
        self._scheduled: set[int] = set()
        self._pending: list[tuple[int, _Fact]] = []
        self._taken = TakenUpdates()
        self._updates: list[_Fact] = []
        self._task_began_at = 0
        self._task: int | None = None

    @property
    def catalog(self) -> Catalog:
        """The catalog after the events so far, which end where Temporal ended a page of the history."""
        self._settle()
        return self._catalog

    def take(self, event: HistoryEvent) -> None:
        """Take the next event of the history.

        Args:
            event: Its payloads are values, and no references to storage.
        """
        if event.event_type not in _OF_TASK:
            self._settle()
        reader = self._READERS.get(event.event_type)
        if reader is not None:
            reader(self, event)

    def _settle(self) -> None:
        """Give the catalog what a task of the workflow took up: updates first, as the SDK does."""
        if self._task is None:
            return
        taken_until, self._task = self._task, None
        facts = [*self._updates, *(fact for event_id, fact in self._pending if event_id < taken_until)]
        self._updates = []
        self._pending = [(event_id, fact) for event_id, fact in self._pending if event_id >= taken_until]
        for fact in facts:
            fact(self._catalog, self._task_began_at)

    def _started(self, event: HistoryEvent) -> None:
        first, *carried = event.workflow_execution_started_event_attributes.input.payloads
        start = CatalogStart.decode(first.data)
        if start.state is None:
            self._catalog = Catalog(start.tenant, start.server_id)
        else:
            self._catalog = Catalog.decode(start.state, decode_pages(carried[0].data))
        self._scheduled.clear()
        self._pending.clear()
        self._taken = TakenUpdates()

    def _task_began(self, event: HistoryEvent) -> None:
        self._task_began_at = _at(event)

    def _task_completed(self, event: HistoryEvent) -> None:
        self._task = event.workflow_task_completed_event_attributes.started_event_id

    def _activity_scheduled(self, event: HistoryEvent) -> None:
        if event.activity_task_scheduled_event_attributes.activity_type.name == PUBLISH:
            self._scheduled.add(event.event_id)
            self._catalog.publish_request()

    def _succeeded(self, event: HistoryEvent) -> None:
        attributes = event.activity_task_completed_event_attributes
        if attributes.scheduled_event_id in self._scheduled:
            answer = attributes.result.payloads[0].data
            self._pending.append((event.event_id, lambda catalog, at: catalog.published(answer, at)))

    def _failed(self, event: HistoryEvent) -> None:
        attributes = event.activity_task_failed_event_attributes
        self._not_done(event, attributes.scheduled_event_id, attributes.failure)

    def _timed_out(self, event: HistoryEvent) -> None:
        attributes = event.activity_task_timed_out_event_attributes
        self._not_done(event, attributes.scheduled_event_id, attributes.failure)

    def _not_done(self, event: HistoryEvent, scheduled_by: int, failure: temporalio.api.failure.v1.Failure) -> None:
        if scheduled_by in self._scheduled:
            told = failures.read(failure)
            self._pending.append((event.event_id, lambda catalog, at: catalog.failed(told.code, told.message, at)))

    def _update_admitted(self, event: HistoryEvent) -> None:
        self._taken.admit(event)

    def _update_accepted(self, event: HistoryEvent) -> None:
        name, given = self._taken.accept(event)
        if name == CLASSIFY:
            self._updates.append(lambda catalog, at: catalog.classified(given, at))
        elif name == APPROVE:
            self._updates.append(lambda catalog, at: catalog.approved(given, at))

    _READERS: ClassVar[Mapping[int, Callable[[CatalogProjector, HistoryEvent], None]]] = {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED: _started,
        EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED: _task_began,
        EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED: _task_completed,
        EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED: _activity_scheduled,
        EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED: _succeeded,
        EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: _failed,
        EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: _timed_out,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED: _update_admitted,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED: _update_accepted,
    }


def _at(event: HistoryEvent) -> int:
    return event.event_time.ToMilliseconds()
