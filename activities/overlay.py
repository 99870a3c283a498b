"""What the catalogs say of tools, as far as a call has to know it before it is sent.

Owns how old that may be. Knows neither how a catalog comes about nor what follows from it for a call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError

from openwop_mcp.catalog.state import Catalog
from openwop_mcp.catalogs import Catalogs
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.encryption import EncryptionError
from openwop_mcp.errors import InterruptedCallError
from openwop_mcp.runs.start import Options
from openwop_mcp.storage import LostValueError, StorageError

__all__ = ("Known", "Overlay")

logger = logging.getLogger(__name__)

MAX_AGE = 5.0
"""Seconds after which what an operator decides about a tool, or a drift that was seen, counts for every call."""

RENEW_AGE = MAX_AGE / 2
"""Seconds from which on a catalog that is asked for is read anew beside the calls: where it is used, none waits."""

PATIENCE = 2.0
"""Seconds that a call waits for a catalog to be read. One that lasts longer would rather be tried again."""


@dataclass(frozen=True, slots=True)
class Known:
    """A catalog as it was read.

    Attributes:
        catalog: The catalog; None where nobody keeps one, so that nothing is known of any tool.
        at: When it was asked for, by ``time.monotonic``: nothing that it holds is older.
    """

    catalog: Catalog | None
    at: float


class Overlay:
    """The catalogs that the calls of one worker need. Use it inside activities; close it after the worker has stopped.

    Args:
        task_queue: The worker's task queue.
    """

    def __init__(self, task_queue: str) -> None:
        self._task_queue = task_queue
        self._catalogs: Catalogs | None = None
        self._known: dict[tuple[str, str], Known] = {}
        self._reading: dict[tuple[str, str], asyncio.Task[Exception | None]] = {}
        self._beginning: dict[tuple[str, str], asyncio.Task[None]] = {}

    async def close(self) -> None:
        """Give up what is being read."""
        under_way = [*self._reading.values(), *self._beginning.values()]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        self._known.clear()
        self._catalogs = None

    def known(self, tenant: str, server_id: str) -> Known | None:
        """The catalog of a server, as far as it may count still; None where it has to be read first."""
        key = tenant, server_id
        known = self._known.get(key)
        if known is None:
            return None
        age = time.monotonic() - known.at
        if age < RENEW_AGE:
            return known
        self._read(key)
        return known if age < MAX_AGE else None

    async def read(self, tenant: str, server_id: str) -> Known:
        """The catalog of a server, read now unless what is known may count still.

        Raises:
            InterruptedCallError: It could not be read, so that nobody can say whether the call may be sent.
        """
        until = time.monotonic() + PATIENCE
        while (known := self.known(tenant, server_id)) is None:
            reading = self._read((tenant, server_id))
            await asyncio.wait([reading], timeout=max(0.0, until - time.monotonic()))
            if not reading.done():
                raise _unread(f"could not be read within {PATIENCE:g} s")
            if (error := reading.result()) is not None:
                said = f": {error}" if isinstance(error, EncryptionError | LostValueError | StorageError) else ""
                raise _unread(f"could not be read{said}")
        return known

    def begin(self, tenant: str, server_id: str) -> None:
        """Have a catalog kept of which there is none, so that a change of what is called now is noticed."""
        key = tenant, server_id
        if key not in self._beginning:
            task = asyncio.get_running_loop().create_task(self._begin(self._of(activity.client()), key))
            self._beginning[key] = task

    async def _begin(self, catalogs: Catalogs, key: tuple[str, str]) -> None:
        try:
            await catalogs.start(*key)
        except (RPCError, EncryptionError, LostValueError, StorageError) as error:
            logger.warning(
                "the catalog of server %s was not started, and is with a later call: %s", key[1], type(error).__name__
            )
        finally:
            del self._beginning[key]

    def _of(self, client: Client) -> Catalogs:
        if self._catalogs is None:
            self._catalogs = Catalogs(client, task_queue=self._task_queue, heartbeat=Options().heartbeat_timeout)
        return self._catalogs

    def _read(self, key: tuple[str, str]) -> asyncio.Task[Exception | None]:
        """The reading of a catalog that is under way, which is begun if there is none."""
        if (reading := self._reading.get(key)) is not None:
            return reading
        reading = asyncio.get_running_loop().create_task(self._take(self._of(activity.client()), key))
        self._reading[key] = reading
        return reading

    async def _take(self, catalogs: Catalogs, key: tuple[str, str]) -> Exception | None:
        """Read a catalog; why it could not be, for the calls that wait for it."""
        began = time.monotonic()
        try:
            known = Known(await catalogs.read(*key), began)
        except (RPCError, EncryptionError, StorageError, LostValueError) as error:
            return error
        except Exception as error:
            logger.exception("the catalog of server %s could not be read, by a fault of the reader", key[1])
            return error
        finally:
            del self._reading[key]
        # What is too old counts for nothing any more, and would only keep a whole catalog in memory.
        self._known = {one: kept for one, kept in self._known.items() if began - kept.at < MAX_AGE}
        self._known[key] = known
        return None


def _unread(why: str) -> InterruptedCallError:
    return InterruptedCallError(
        f"nothing was sent: the catalog, which says what may be called, {why}",
        cancelled=False,
        delivery=Delivery.NOT_SENT,
    )
