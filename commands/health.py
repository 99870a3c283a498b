"""A file that says that a worker is well, for whoever watches processes by a command. Who looks at it is not known."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client, RPCTimeoutOrCancelledError
from temporalio.service import RPCError

from commands.errors import CommandError

__all__ = ("EVERY", "kept_healthy")

EVERY = 5.0
"""Seconds between two touches: whoever takes a file for stale after twenty has missed three."""

LIMIT = timedelta(seconds=2)
"""What Temporal is given to answer. It takes a millisecond."""


@contextlib.asynccontextmanager
async def kept_healthy(client: Client, file: Path | None) -> AsyncIterator[None]:
    """Touch a file as long as the event loop runs and Temporal answers; with the context's end it is gone.

    Args:
        client: What the worker polls with.
        file: The file; None for none.

    Raises:
        CommandError: It cannot be written.
    """
    if file is None:
        yield
        return
    try:
        await asyncio.to_thread(file.touch)
    except OSError as error:
        raise CommandError(f"the file {file} cannot be written ({error.strerror}): give another to --healthy") from None
    touching = asyncio.create_task(_touch(client, file))
    try:
        yield
    finally:
        touching.cancel()
        await asyncio.wait([touching])
        await asyncio.to_thread(file.unlink, missing_ok=True)


async def _touch(client: Client, file: Path) -> None:
    while True:
        await asyncio.sleep(EVERY)
        # A disk that is full for a while is told by the file's age, as all else is.
        with contextlib.suppress(RPCError, RPCTimeoutOrCancelledError, OSError):
            await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=LIMIT)
            await asyncio.to_thread(file.touch)
