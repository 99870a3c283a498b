"""Whether anybody would carry a run out: looks at who polls the task queue, and warns where nobody does.

A run that is created without a worker is kept by Temporal and waits, so this is never a reason to refuse one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from openwop_mcp.calls import class_queue
from openwop_mcp.config import DEFAULT_CLASS

__all__ = ("Pollers", "warn_unless_polled", "warn_unless_served")

logger = logging.getLogger("openwop_mcp.host")

EVERY = 60.0
"""Seconds between two looks for runs that are created: as often as a line in a log is read."""

SOON = 1.0
"""Seconds to the look from a run, and to the second from a first that found nobody: a worker that was started together
with the host polls by then, and Temporal tells of it."""


async def warn_unless_polled(client: Client, task_queue: str) -> None:
    """Warn where no worker polls the queue; where Temporal does not say so, nobody can."""
    if await _is_deserted(client, task_queue, TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW):
        logger.warning(
            "no worker polls the task queue '%s' (setting worker.task_queue), so that runs stay pending: start one"
            " with worker.py run",
            task_queue,
        )


async def warn_unless_served(client: Client, task_queue: str, classes: Collection[str]) -> None:
    """Warn of each class of servers that no worker takes calls of.

    Args:
        client: Connected to the namespace of the workers.
        task_queue: The workers' task queue.
        classes: The classes, and ``default`` for runs and for what is in no class.
    """
    if DEFAULT_CLASS in classes:
        await warn_unless_polled(client, task_queue)
    queues = {name: class_queue(name, task_queue) for name in sorted(classes) if name != DEFAULT_CLASS}
    # All at once: a look may take a moment.
    deserted = await asyncio.gather(
        *(_is_deserted(client, queue, TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY) for queue in queues.values())
    )
    for (name, queue), alone in zip(queues.items(), deserted, strict=True):
        if alone:
            logger.warning(
                "no worker polls the task queue '%s' of class '%s', so that calls of its servers wait: start one with"
                " worker.py run whose worker.serves does not leave the class out",
                queue,
                name,
            )


async def _is_deserted(client: Client, task_queue: str, kind: TaskQueueType.ValueType) -> bool:
    """Whether nobody polls, neither now nor in a moment."""
    for wait in (0, SOON):
        await asyncio.sleep(wait)
        if await _is_polled(client, task_queue, kind) is not False:
            return False
    return True


async def _is_polled(client: Client, task_queue: str, kind: TaskQueueType.ValueType) -> bool | None:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace, task_queue=TaskQueue(name=task_queue), task_queue_type=kind
    )
    try:
        answer = await client.workflow_service.describe_task_queue(request)
    except RPCError:
        return None
    return bool(answer.pollers)


class Pollers:
    """Looks after runs that are created, at most once in :data:`EVERY`, and once after the last of them.

    Args:
        client: Connected to the namespace of the runs.
        task_queue: Queue of the workers that carry runs out.
        stopping: Set when the host is about to end: nobody looks any more.
    """

    def __init__(self, client: Client, task_queue: str, stopping: asyncio.Event) -> None:
        self._client = client
        self._task_queue = task_queue
        self._stopping = stopping
        self._looked = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    def created(self) -> None:
        """Have a look in a while. Returns at once, and nothing of it fails."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        due = max(SOON, self._looked + EVERY - time.monotonic())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), due)
            return
        self._looked = time.monotonic()
        await warn_unless_polled(self._client, self._task_queue)
