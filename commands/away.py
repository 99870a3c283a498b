"""A Temporal that does not answer, as whoever serves tells of it: once, now and then, and when it is back.

Its SDK tells it of each poll that it tries again, some ten lines a second, none of which says where.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client, RPCTimeoutOrCancelledError
from temporalio.service import RPCError

from commands.health import Touch, kept_healthy

__all__ = ("watched",)

logger = logging.getLogger(__name__)

EVERY = 5.0
"""Seconds between two looks, each of which takes Temporal a millisecond. Whoever takes a worker's file for stale after
twenty has missed three."""

LIMIT = timedelta(seconds=2)
"""What it is given to answer."""

AGAIN = 300.0
"""Seconds between two lines while it is away: of a night some hundred."""

TRIED_AGAIN = "gRPC call "
"""What the SDK's core begins a line with that tells of a request that it has tried again."""


@contextlib.asynccontextmanager
async def watched(client: Client, healthy: Path | None = None) -> AsyncIterator[None]:
    """Tell, until the context ends, whether the Temporal of a client answers; what the SDK says of it is for DEBUG.

    Args:
        client: What the process works with.
        healthy: A file that is there until then, and touched whenever Temporal answers.

    Raises:
        CommandError: The file cannot be written.
    """
    async with kept_healthy(healthy) as touch:
        sdk = logging.getLogger("temporalio")
        sdk.addFilter(_hushed)
        watching = asyncio.create_task(_watch(client, touch))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            sdk.removeFilter(_hushed)


async def _watch(client: Client, touch: Touch) -> None:
    address = client.service_client.config.target_host
    tells = Tells(address)
    while True:
        await asyncio.sleep(EVERY)
        try:
            await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=LIMIT)
        except (RPCError, RPCTimeoutOrCancelledError):
            tells.answered(yes=False)
        else:
            tells.answered(yes=True)
            await touch()


class Tells:
    """What is told of looks that follow each other.

    Args:
        address: Where was looked.
        clock: Monotonic seconds.
    """

    def __init__(self, address: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._clock = clock
        self._since: float | None = None
        self._told = 0.0

    def answered(self, *, yes: bool) -> None:
        """Tell of a look, unless it is no news."""
        now = self._clock()
        if yes:
            if self._since is not None:
                logger.info("Temporal at %s answers again, after %.0f s", self._address, now - self._since)
            self._since = None
            return
        if self._since is None:
            self._since = now
        elif now - self._told < AGAIN:
            return
        self._told = now
        logger.warning(
            "Temporal at %s does not answer, and is asked again until it does: nothing is taken on meanwhile, and what"
            " calls under way bring is told it if that is within ten seconds",
            self._address,
        )


def _hushed(record: logging.LogRecord) -> bool:
    """Whether a line of the SDK is to be logged: one on a request that was tried again is for DEBUG."""
    core = getattr(record, "temporal_log", None)
    if core is None or not core.message.startswith(TRIED_AGAIN):
        return True
    record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return logging.getLogger("temporalio").isEnabledFor(logging.DEBUG)
