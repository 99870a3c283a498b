"""Spans of what Temporal does: Temporal's own, with the workflow's run as the one that its activities hang on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from opentelemetry import context, trace
from temporalio import client, worker, workflow
from temporalio.contrib.opentelemetry import TracingInterceptor, TracingWorkflowInboundInterceptor
from temporalio.exceptions import ApplicationError

from openwop_mcp.telemetry import attributes as names
from openwop_mcp.telemetry._headers import LASTING, read
from openwop_mcp.telemetry._ids import run_span_id, with_id
from openwop_mcp.telemetry.propagation import PROPAGATOR

__all__ = ("Spanned",)

RUN_SPAN = "RunWorkflow:"
"""How the name of the span of a workflow's run begins."""


class Spanned(TracingInterceptor):
    """Makes spans of clients' requests, of workflows and of activities.

    Its provider has to take ids from :class:`RunIds <openwop_mcp.telemetry._ids.RunIds>`, and an exporter that drops
    what exceptions say: it writes their messages.
    """

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:  # noqa: A002 - theirs
        """See base class."""
        return _SpannedClient(super().intercept_client(next), next)

    def intercept_activity(self, next: worker.ActivityInboundInterceptor) -> worker.ActivityInboundInterceptor:  # noqa: A002
        """See base class."""
        return super().intercept_activity(_CodedActivity(next))

    def workflow_interceptor_class(
        self,
        input: worker.WorkflowInterceptorClassInput,  # noqa: A002 - theirs
    ) -> type[TracingWorkflowInboundInterceptor]:
        """See base class."""
        super().workflow_interceptor_class(input)
        return _SpannedWorkflow

    def _completed_workflow_span(self, params: Any) -> Any:
        if not params.name.startswith(RUN_SPAN):
            return super()._completed_workflow_span(params)
        with with_id(run_span_id(params.attributes["temporalRunID"])):
            return super()._completed_workflow_span(params)


class _SpannedClient(client.OutboundInterceptor):
    """Makes no span of the start of what lasts."""

    def __init__(self, spanned: client.OutboundInterceptor, beside: client.OutboundInterceptor) -> None:
        super().__init__(spanned)
        self._beside = beside

    async def start_workflow(self, input: client.StartWorkflowInput) -> client.WorkflowHandle[Any, Any]:  # noqa: A002
        way = self._beside if input.workflow in LASTING else self.next
        return await way.start_workflow(input)


class _CodedActivity(worker.ActivityInboundInterceptor):
    """Says of an activity's span by which code it failed, which is all that is said of it."""

    async def execute_activity(self, input: worker.ExecuteActivityInput) -> Any:  # noqa: A002 - theirs
        try:
            return await self.next.execute_activity(input)
        except ApplicationError as error:
            trace.get_current_span().set_attribute(names.ERROR_TYPE, error.type or names.OTHER)
            raise


class _SpannedWorkflow(TracingWorkflowInboundInterceptor):
    """Has all that a workflow's run does hang on its own span, whose id follows from the run's."""

    async def execute_workflow(self, input: worker.ExecuteWorkflowInput) -> Any:  # noqa: A002 - theirs
        with self._as_asked():
            self._completed_span(f"{RUN_SPAN}{workflow.info().workflow_type}", kind=trace.SpanKind.SERVER)
        with self._top_level_workflow_context(success_is_complete=True):
            # Temporal's own would make the span once more.
            return await self.next.execute_workflow(input)

    @contextlib.contextmanager
    def _as_asked(self) -> Iterator[None]:
        """A context in which the trace is where it was when the run was asked for."""
        token = context.attach(self._set_on_context(read(workflow.info().headers) or context.Context()))
        try:
            yield
        finally:
            context.detach(token)

    def _load_workflow_context_carrier(self) -> Any:
        if self._workflow_context_carrier is None:
            asked = read(workflow.info().headers)
            if asked is not None:
                self._workflow_context_carrier = _hung_on_run(asked)
        return self._workflow_context_carrier


def _hung_on_run(asked: context.Context) -> dict[str, list[str] | str]:
    """The trace of a workflow's run where the run itself is what comes before."""
    before = trace.get_current_span(asked).get_span_context()
    own = trace.SpanContext(
        before.trace_id,
        # After a reset, the span is that of the run which was reset: the new one begins in the midst of it.
        run_span_id(workflow.info().original_execution_run_id),
        is_remote=True,
        trace_flags=before.trace_flags,
        trace_state=before.trace_state,
    )
    carrier: dict[str, list[str] | str] = {}
    PROPAGATOR.inject(carrier, trace.set_span_in_context(trace.NonRecordingSpan(own), asked))
    return carrier
