"""Whether anybody would carry a run out: looks at who polls the task queue, and warns where nobody does.

A run that is created without a worker is kept by Temporal and waits, so this is never a reason to refuse one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

__all__ = ("Pollers", "warn_unless_polled")

logger = logging.getLogger("openwop_mcp.host")

EVERY = 60.0
"""Seconds between two looks for runs that are created: as often as a line in a log is read."""

SOON = 1.0
"""Seconds from a run to the look: a worker that was started together with the host polls by then."""


async def warn_unless_polled(client: Client, task_queue: str) -> None:
    """Warn where no worker polls the queue; where Temporal does not say so, nobody can."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    try:
        answer = await client.workflow_service.describe_task_queue(request)
    except RPCError:
        return
    if not answer.pollers:
        logger.warning(
            "no worker polls the task queue '%s' (setting worker.task_queue), so that runs stay pending: start one"
            " with worker.py run",
            task_queue,
        )


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
