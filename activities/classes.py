"""The worker of one class of servers: their calls, on a task queue and with slots of their own.

Knows no workflow: runs and shared effects stay where they are, and schedule here.
"""

from __future__ import annotations

from datetime import timedelta

from temporalio.client import Client
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker, WorkerDeploymentConfig

from openwop_mcp.calls import class_queue
from openwop_mcp.config import Settings

from .mcp import effect_activities, mcp_activities
from .nodes import node_activities
from .perform import Calls

__all__ = ("class_worker",)


def class_worker(
    client: Client, calls: Calls, settings: Settings, name: str, *, deployment: WorkerDeploymentConfig | None
) -> Worker:
    """The worker of a class, beside that of a task queue.

    Args:
        client: Connected to the namespace.
        calls: The calls of the process; entered before the worker runs.
        settings: How much the worker takes on, of this class and in general.
        name: The class.
        deployment: The worker deployment that the process is of, if any.
    """
    own = settings.worker
    slots = own.classes[name].max_activities
    return Worker(
        client,
        task_queue=class_queue(name, own.task_queue),
        activities=[*mcp_activities(calls), *node_activities(calls), *effect_activities(calls)],
        max_concurrent_activities=slots,
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(min(own.activity_pollers, slots)),
        graceful_shutdown_timeout=timedelta(seconds=own.shutdown_grace),
        deployment_config=deployment,
    )
