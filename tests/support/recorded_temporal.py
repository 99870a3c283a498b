"""A Temporal that serves what a `TemporalModel` wrote, as its clients read it, and counts what it was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    GetWorkflowExecutionHistoryRequest,
    GetWorkflowExecutionHistoryResponse,
)
from temporalio.client import Client
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from tests.support.patience import PATIENCE
from tests.support.temporal_model import TemporalModel

__all__ = ("RecordedTemporal", "until")

CLOSED = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW,
    }
)


class RecordedTemporal:
    """One workflow.

    Attributes:
        run: The model; None for histories that stand by themselves.
        parts: Temporal's ids of the runs that there are, and their histories.
        page: Events that a page has at most.
        described: How often it was asked where the workflow stands.
        asked: How often it was asked for history.
        sent: Events that were sent.
        polls: Requests that wait for news.
        fault: What it answers every request with.
        gate: Answers to the question where the workflow stands wait for it.
    """

    namespace = "default"
    data_converter = DataConverter.default

    def __init__(self, run: TemporalModel | None, *, workflow_type: str = "RunWorkflow", page: int = 10) -> None:
        self.run = run
        self.parts: dict[str, Sequence[HistoryEvent]] = {}
        self.page = page
        self.described = 0
        self.asked = 0
        self.sent = 0
        self.polls = 0
        self.fault: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self._workflow_type = workflow_type
        self._news = asyncio.Condition()

    @property
    def client(self) -> Client:
        """What is given to whoever wants a client."""
        return cast("Client", self)

    @property
    def workflow_service(self) -> Any:
        return self

    @property
    def latest(self) -> str:
        """Temporal's id of the latest run."""
        return list(self._parts())[-1]

    async def tell(self) -> None:
        """Answer those who wait for news."""
        async with self._news:
            self._news.notify_all()

    def _parts(self) -> dict[str, Sequence[HistoryEvent]]:
        told = [] if self.run is None else self.run.histories
        parts: dict[str, Sequence[HistoryEvent]] = {}
        for number, events in enumerate(told):
            if number:
                events[0].workflow_execution_started_event_attributes.continued_execution_run_id = str(number - 1)
            parts[str(number)] = events
        return parts | self.parts

    async def describe_workflow_execution(
        self, request: DescribeWorkflowExecutionRequest, **_: object
    ) -> DescribeWorkflowExecutionResponse:
        self.described += 1
        answer = DescribeWorkflowExecutionResponse()
        latest, events = list(self._parts().items())[-1]
        answer.workflow_execution_info.execution.run_id = latest
        answer.workflow_execution_info.type.name = self._workflow_type
        answer.workflow_execution_info.history_length = len(events)
        answer.workflow_extended_info.cancel_requested = any(
            event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED for event in events
        )
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return answer

    async def get_workflow_execution_history(
        self, request: GetWorkflowExecutionHistoryRequest, **_: object
    ) -> GetWorkflowExecutionHistoryResponse:
        self.asked += 1
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        run_id = request.execution.run_id
        position = int(request.next_page_token or b"0")
        if run_id not in self._parts():
            raise RPCError("workflow execution not found", RPCStatusCode.NOT_FOUND, b"")

        def has_news() -> bool:
            events = self._parts()[run_id]
            return len(events) > position or (bool(events) and events[-1].event_type in CLOSED)

        if request.wait_new_event and not has_news():
            self.polls += 1
            try:
                async with self._news:
                    await self._news.wait_for(lambda: has_news() or self.fault is not None)
            finally:
                self.polls -= 1
            if self.fault is not None:
                raise self.fault
        events = self._parts()[run_id]
        found = events[position : position + (request.maximum_page_size or self.page)]
        position += len(found)
        self.sent += len(found)
        answer = GetWorkflowExecutionHistoryResponse()
        answer.history.events.extend(found)
        is_closed = events[-1].event_type in CLOSED
        if position < len(events) or (request.wait_new_event and not is_closed):
            answer.next_page_token = str(position).encode()
        return answer


async def until(condition: Callable[[], bool]) -> None:
    """Let others go on until something holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - the condition is of any kind, and steps are all it takes
            await asyncio.sleep(0)
