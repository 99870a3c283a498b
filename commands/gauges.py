"""What a worker tells of itself, and of the namespace as a whole: how many questions wait, how old its catalogs are.

Looked at as often as metrics are sent, and only where somebody wants them: it takes a list of all that runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

from opentelemetry.metrics import Observation
from temporalio.client import Client
from temporalio.service import RPCError

from openwop_mcp.catalogs import Catalogs
from openwop_mcp.config import Settings
from openwop_mcp.encryption import EncryptionError
from openwop_mcp.storage import LostValueError, StorageError
from openwop_mcp.telemetry import attributes, switch
from openwop_mcp.telemetry.exporting import metrics_interval
from openwop_mcp.telemetry.instruments import CATALOG_AGE, CIRCUIT, IN_FLIGHT, WAITING, gauge
from openwop_mcp.traffic import ServerTraffic
from workflows.client import waiting_questions

__all__ = ("tell_traffic", "telling")

logger = logging.getLogger(__name__)

UNREAD = (RPCError, EncryptionError, StorageError, LostValueError)
"""Why something cannot be read now, of which others complain: a gauge is silent meanwhile."""


class _Namespace:
    """A namespace as it was seen last."""

    def __init__(self, client: Client, settings: Settings, kept: Sequence[tuple[str, str]]) -> None:
        own = settings.worker
        self._client = client
        self._catalogs = Catalogs(client, task_queue=own.task_queue, heartbeat=own.heartbeat_timeout)
        self._kept = kept
        self._waiting: int | None = None
        self._listed: dict[str, float] = {}

    async def keep_looking(self, every: float) -> None:
        while True:
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001 - a gauge is no reason to end a worker
                logger.warning("what metrics tell of the namespace could not be read: %s", type(error).__name__)
            await asyncio.sleep(every)

    async def _look(self) -> None:
        self._waiting = None
        with contextlib.suppress(*UNREAD):
            self._waiting = await waiting_questions(self._client)
        listed: dict[str, float] = {}
        for tenant, server_id in self._kept:
            with contextlib.suppress(*UNREAD):
                catalog = await self._catalogs.read(tenant, server_id)
                if catalog is not None and catalog.listed_at is not None:
                    at = catalog.listed_at / 1000
                    listed[server_id] = min(at, listed.get(server_id, at))
        # One that cannot be read now grows older all the same.
        self._listed |= listed

    def waiting(self) -> Iterator[Observation]:
        if self._waiting is not None:
            yield Observation(self._waiting)

    def ages(self) -> Iterator[Observation]:
        for server_id, at in self._listed.copy().items():
            yield Observation(max(0.0, time.time() - at), {attributes.SERVER_ID: server_id})


def tell_traffic(traffic: Callable[[], Iterable[ServerTraffic]]) -> None:
    """Tell how each server stands in this worker, from now on, if somebody wants to know.

    Args:
        traffic: Says it.
    """
    if not switch.measured():
        return
    gauge(IN_FLIGHT, lambda: [_of(one, one.in_flight) for one in traffic()])
    gauge(CIRCUIT, lambda: [_of(one, int(one.circuit != "closed")) for one in traffic()])


@contextlib.asynccontextmanager
async def telling(client: Client, settings: Settings, kept: Sequence[tuple[str, str]]) -> AsyncIterator[None]:
    """Tell of the namespace until the context ends; nothing is looked at for nobody.

    Args:
        client: Connected to the namespace.
        settings: Of the worker.
        kept: Tenant and server of each catalog.
    """
    if not switch.measured():
        yield
        return
    namespace = _Namespace(client, settings, kept)
    gauge(WAITING, namespace.waiting)
    gauge(CATALOG_AGE, namespace.ages)
    looking = asyncio.create_task(namespace.keep_looking(metrics_interval(os.environ)))
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])


def _of(one: ServerTraffic, value: int) -> Observation:
    return Observation(value, {attributes.SERVER_ID: one.server_id})
