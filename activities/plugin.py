"""The pack inside an author's own worker: a plugin that brings the activities, their connection pool and the wiring."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from typing import Any

from temporalio import workflow
from temporalio.client import Client
from temporalio.common import VersioningBehavior
from temporalio.converter import DataConverter
from temporalio.plugin import SimplePlugin
from temporalio.worker import (
    Interceptor,
    PollerBehaviorSimpleMaximum,
    StartActivityInput,
    UnsandboxedWorkflowRunner,
    Worker,
    WorkerConfig,
    WorkerDeploymentConfig,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
    WorkflowRunner,
)
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from openwop_mcp.calls import ACTIVITY_NAMES, DEFAULT_TASK_QUEUE, class_queue
from openwop_mcp.config import Settings, SettingsError
from openwop_mcp.effects.shared import effect_queue
from openwop_mcp.encryption import Encryption, with_encryption
from openwop_mcp.storage import with_storage

from .contexts import context_free
from .listen import listen_activities
from .mcp import effect_activities, mcp_activities
from .nodes import node_activities
from .perform import Calls
from .versions import behaving

__all__ = ("EAGER_CALLS", "McpPlugin")

logger = logging.getLogger(__name__)

PASSED_THROUGH = ("openwop_mcp", "msgspec")
"""Modules that a workflow sandbox takes as they are: pure, and costly to import once per workflow."""

EAGER_CALLS = 50
"""Calls that a workflow task may start in its own worker without a poll for each: more than a tenth of the CPU of a
fan-out, where 100 save no more and leave nothing to other workers. The SDK's own 3 suit activities that compute; ours
wait."""

OURS = frozenset(ACTIVITY_NAMES.values())

CLASS_QUEUES = class_queue("")
"""What the task queues of classes begin with, unless an author names another worker's."""


class McpPlugin(SimplePlugin):
    """Embeds the pack in a worker, beside its author's workflows and activities.

    Give it to the worker (or to the client that the worker is made with)::

        worker = Worker(client, task_queue="orders", workflows=[Order], plugins=[McpPlugin(load("openwop-mcp.toml"))])

    Calls that ``ctx.mcp`` makes in that worker's workflows then stay on the worker's own task queue, also those that
    name the queue of a class of servers: classes are for workers of the pack alone.

    Given to the client it also brings the storage of large values and the encryption; a worker has what its client has,
    which is none unless the client got the plugin, or ``openwop_mcp.storage.data_converter``.

    Args:
        settings: What :func:`openwop_mcp.config.load` returned.
        tenant: Tenant of the calls, in place of the settings' ``[worker] tenant``.
    """

    def __init__(self, settings: Settings, *, tenant: str | None = None) -> None:
        if tenant is not None:
            settings = settings.model_copy(update={"worker": settings.worker.model_copy(update={"tenant": tenant})})
        calls = Calls(settings)
        self._calls = calls
        self._settings = settings

        @asynccontextmanager
        async def pool() -> AsyncIterator[None]:
            async with calls:
                yield

        super().__init__(
            "openwop-mcp-pack",
            activities=[*mcp_activities(calls), *node_activities(calls), *listen_activities(calls)],
            workflow_runner=_pass_through,
            data_converter=lambda given: with_encryption(
                with_storage(given or DataConverter.default, settings), settings
            ),
            interceptors=[_OwnQueue()],
            run_context=pool,
        )

    async def run_worker(self, worker: Worker, next: Callable[[Worker], Awaitable[None]]) -> None:  # noqa: A002  the SDK's name
        """See base class.

        Raises:
            SettingsError: There are keys of encryption, and the worker's client encrypts nothing.
        """
        codec = worker.client.data_converter.payload_codec
        if self._settings.encryption.keys and (codec is None or (isinstance(codec, Encryption) and not codec.encrypts)):
            raise SettingsError(
                "encryption.keys: the client of this worker encrypts nothing: give McpPlugin to Client.connect, or the"
                " client the pack's data converter (openwop_mcp.storage.data_converter)"
            )
        if self._settings.storage.driver != "none" and worker.client.data_converter.external_storage is None:
            logger.warning(
                "the client of this worker has no storage for large values: a result over 1.5 MiB is lost, although its"
                " server acted. Give McpPlugin to Client.connect, or the client the pack's data converter"
                " (openwop_mcp.storage.data_converter), or set storage.driver to none"
            )

        async def with_effects(worker: Worker) -> None:
            # Without plugins: this one would run a worker for each that it runs.
            config = worker.client.config(active_config=True)
            config["plugins"] = []
            client = Client(**config)
            async with effect_worker(
                client,
                self._calls,
                self._settings,
                worker.task_queue,
                _effect_workflow(),
                deployment=worker.config(active_config=True).get("deployment_config"),
            ):
                await next(worker)

        await super().run_worker(worker, with_effects)

    def configure_worker(self, config: WorkerConfig) -> WorkerConfig:
        """See base class.

        Raises:
            ValueError: The worker has the pack already.
        """
        if any(isinstance(one, _OwnQueue) for one in config.get("interceptors") or ()):
            raise ValueError("a worker has two McpPlugins: give one to it or to its client, not to both, and only once")
        config = super().configure_worker(config)
        own = config.get("max_eager_activity_reservations_per_workflow_task", 0)
        config["max_eager_activity_reservations_per_workflow_task"] = max(own, EAGER_CALLS)
        converter = config["client"].data_converter
        config["workflow_runner"] = context_free(config["workflow_runner"], converter)
        unsandboxed = config.get("unsandboxed_workflow_runner", UnsandboxedWorkflowRunner())
        config["unsandboxed_workflow_runner"] = context_free(unsandboxed, converter)
        return config


def effect_worker(
    client: Client,
    calls: Calls,
    settings: Settings,
    task_queue: str,
    workflow_class: type,
    *,
    deployment: WorkerDeploymentConfig | None,
) -> Worker:
    """The worker of the effects that several runs share, beside the one of a task queue and with slots of its own.

    Args:
        client: Connected to the namespace.
        calls: The calls of the process; entered before the worker runs.
        settings: How much the worker takes on.
        task_queue: The task queue beside which it is.
        workflow_class: ``EffectWorkflow``.
        deployment: That of the worker beside which it is, if that is in one.
    """
    own = settings.worker
    return Worker(
        client,
        task_queue=effect_queue(task_queue),
        workflows=[workflow_class],
        activities=effect_activities(calls),
        unsandboxed_workflow_runner=context_free(UnsandboxedWorkflowRunner(), client.data_converter),
        max_concurrent_activities=own.max_activities,
        workflow_task_poller_behavior=PollerBehaviorSimpleMaximum(own.activity_pollers),
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(own.activity_pollers),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=own.sticky_timeout),
        graceful_shutdown_timeout=timedelta(seconds=own.shutdown_grace),
        # It is over within hours and waits for no person: the version that began it can be kept for so long.
        deployment_config=behaving(deployment, VersioningBehavior.PINNED),
    )


def _effect_workflow() -> type:
    # The sibling package: `workflows` in the checkout, `openwop_mcp.workflows` in the wheel. Only here do the two meet,
    # since an author's worker gets both from one plugin.
    parent = __package__.rpartition(".")[0]
    workflows = import_module(f"{parent}.workflows" if parent else "workflows")
    found: type = workflows.EffectWorkflow
    return found


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
        queue = input.task_queue or ""
        if input.activity in OURS and (queue == DEFAULT_TASK_QUEUE or queue.startswith(CLASS_QUEUES)):
            input.task_queue = workflow.info().task_queue
        return self.next.start_activity(input)
