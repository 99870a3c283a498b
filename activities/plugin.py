"""The pack inside an author's own worker: a plugin that brings the activities, their connection pool and the wiring."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from temporalio import workflow
from temporalio.plugin import SimplePlugin
from temporalio.worker import (
    Interceptor,
    StartActivityInput,
    WorkerConfig,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
    WorkflowRunner,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from openwop_mcp.calls import ACTIVITY_NAMES, DEFAULT_TASK_QUEUE
from openwop_mcp.config import Settings

from .listen import listen_activities
from .mcp import mcp_activities
from .nodes import node_activities
from .perform import Calls

__all__ = ("EAGER_CALLS", "McpPlugin")

PASSED_THROUGH = ("openwop_mcp", "msgspec")
"""Modules that a workflow sandbox takes as they are: pure, and costly to import once per workflow."""

EAGER_CALLS = 20
"""Calls that a workflow task may start in its own worker without a poll for each: a tenth of the CPU of a fan-out.
The SDK's own 3 suit activities that compute; ours wait."""

OURS = frozenset(ACTIVITY_NAMES.values())


class McpPlugin(SimplePlugin):
    """Embeds the pack in a worker, beside its author's workflows and activities.

    Give it to the worker (or to the client that the worker is made with)::

        worker = Worker(client, task_queue="orders", workflows=[Order], plugins=[McpPlugin(load("openwop-mcp.toml"))])

    Calls that ``ctx.mcp`` makes in that worker's workflows then stay on the worker's own task queue.

    Args:
        settings: What :func:`openwop_mcp.config.load` returned.
        tenant: Tenant of the calls, in place of the settings' ``[worker] tenant``.
    """

    def __init__(self, settings: Settings, *, tenant: str | None = None) -> None:
        if tenant is not None:
            settings = settings.model_copy(update={"worker": settings.worker.model_copy(update={"tenant": tenant})})
        calls = Calls(settings)

        @asynccontextmanager
        async def pool() -> AsyncIterator[None]:
            async with calls:
                yield

        super().__init__(
            "openwop-mcp-pack",
            activities=[*mcp_activities(calls), *node_activities(calls), *listen_activities(calls)],
            workflow_runner=_pass_through,
            interceptors=[_OwnQueue()],
            run_context=pool,
        )

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """See base class."""
        config = super().configure_worker(config)
        own = config.get("max_eager_activity_reservations_per_workflow_task", 0)
        config["max_eager_activity_reservations_per_workflow_task"] = max(own, EAGER_CALLS)
        return config


def _pass_through(runner: WorkflowRunner | None) -> WorkflowRunner:
    if isinstance(runner, SandboxedWorkflowRunner):
        return dataclasses.replace(runner, restrictions=runner.restrictions.with_passthrough_modules(*PASSED_THROUGH))
    if runner is None:
        raise ValueError("a worker with McpPlugin needs a workflow runner: leave workflow_runner at its default")
    return runner


class _OwnQueue(Interceptor):
    """Keeps calls on the embedding worker's queue: its workflows need not know that there is no other."""

    def workflow_interceptor_class(self, _input: WorkflowInterceptorClassInput) -> type[WorkflowInboundInterceptor]:
        return _OwnQueueInbound


class _OwnQueueInbound(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        self.next.init(_OwnQueueOutbound(outbound))


class _OwnQueueOutbound(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:  # noqa: A002  the SDK's name
        if input.activity in OURS and input.task_queue == DEFAULT_TASK_QUEUE:
            input.task_queue = workflow.info().task_queue
        return self.next.start_activity(input)
