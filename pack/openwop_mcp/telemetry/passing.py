"""A trace that somebody else begins goes on through Temporal, so that MCP servers hear of it. No span is made.

What is written and read in Temporal's headers is what Temporal's own interceptor has there, so that workers with either
work on one run. It costs a call next to nothing.
"""

from __future__ import annotations

from typing import Any, NoReturn

from opentelemetry import context
from temporalio import client, worker, workflow

from openwop_mcp.telemetry._headers import HEADER, LASTING, Headers, read, written

__all__ = ("PassedOn",)


class PassedOn(client.Interceptor, worker.Interceptor):
    """Passes a trace on, from client to workflow and from workflow to activity."""

    def intercept_client(self, next: client.OutboundInterceptor) -> client.OutboundInterceptor:  # noqa: A002 - theirs
        """See base class."""
        return _PassedOnClient(next)

    def intercept_activity(self, next: worker.ActivityInboundInterceptor) -> worker.ActivityInboundInterceptor:  # noqa: A002
        """See base class."""
        return _PassedOnActivity(next)

    def workflow_interceptor_class(
        self, _input: worker.WorkflowInterceptorClassInput
    ) -> type[worker.WorkflowInboundInterceptor]:
        """See base class."""
        return _PassedOnWorkflow


class _PassedOnClient(client.OutboundInterceptor):
    async def start_workflow(self, input: client.StartWorkflowInput) -> client.WorkflowHandle[Any, Any]:  # noqa: A002
        if input.workflow not in LASTING:
            input.headers = written(input.headers)
        return await self.next.start_workflow(input)


class _PassedOnActivity(worker.ActivityInboundInterceptor):
    async def execute_activity(self, input: worker.ExecuteActivityInput) -> Any:  # noqa: A002 - theirs
        found = read(input.headers)
        if found is None:
            return await self.next.execute_activity(input)
        token = context.attach(found)
        try:
            return await self.next.execute_activity(input)
        finally:
            context.detach(token)


class _PassedOnWorkflow(worker.WorkflowInboundInterceptor):
    def init(self, outbound: worker.WorkflowOutboundInterceptor) -> None:
        self.next.init(_PassedOnOutbound(outbound))


class _PassedOnOutbound(worker.WorkflowOutboundInterceptor):
    def start_activity(self, input: worker.StartActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002 - theirs
        input.headers = self._with_own(input.headers)
        return self.next.start_activity(input)

    def continue_as_new(self, input: worker.ContinueAsNewInput) -> NoReturn:  # noqa: A002 - theirs
        input.headers = self._with_own(input.headers)
        self.next.continue_as_new(input)

    def _with_own(self, headers: Headers) -> Headers:
        own = workflow.info().headers.get(HEADER)
        return headers if own is None else {**headers, HEADER: own}
