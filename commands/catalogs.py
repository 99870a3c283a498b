"""Catalogs as commands read them: what Temporal keeps, or else what the server itself says. They decide nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.service import RPCError

from commands.asking import list_directly
from commands.connection import PATIENCE, connect
from commands.ending import EXPECTED
from commands.errors import CommandError
from commands.printing import complain
from commands.settings import configured, settings_of
from openwop_mcp import terminal
from openwop_mcp.catalog.decisions import DECIDING, is_catalog
from openwop_mcp.catalog.names import catalog_id
from openwop_mcp.catalog.state import Catalog
from openwop_mcp.catalogs import Catalogs
from openwop_mcp.config import Settings
from openwop_mcp.storage import data_converter, resolve
from workflows.client import RunNotFoundError, kept_histories
from workflows.replay import read_file

__all__ = ("catalogs_of", "decided_on", "kept_catalog", "read_catalog", "read_catalogs")

LOOK_PATIENCE = 2.0
"""Seconds that a look at a server's tools waits for Temporal, and for a catalog, before the server itself is asked."""

ASKED_DIRECTLY = "asked the server itself, so that it is not known what was classified or has changed"
"""What is told where a server's list does not come from its catalog: it looks the same, and says less."""


async def catalogs_of(settings: Settings) -> Catalogs | None:
    """The catalogs of the settings' Temporal; None where that does not answer, which is told."""
    try:
        async with asyncio.timeout(LOOK_PATIENCE):
            return catalogs_at(await connect(settings), settings)
    except CommandError as error:
        why = str(error)
    except TimeoutError:
        why = f"no Temporal server answers at {settings.temporal.address} within {LOOK_PATIENCE:g} s"
    complain(terminal.escape(f"{why}; {ASKED_DIRECTLY}"))
    return None


def catalogs_at(client: Client, settings: Settings) -> Catalogs:
    """The catalogs of a Temporal."""
    own = settings.worker
    return Catalogs(client, task_queue=own.task_queue, heartbeat=own.heartbeat_timeout)


async def read_catalogs(
    settings: Settings, server_ids: Sequence[str], config: str | None, *, refresh: bool
) -> dict[str, Catalog | Exception]:
    """What servers offer, all read at once, or why that cannot be told."""
    catalogs = await catalogs_of(settings)

    async def read(server_id: str) -> Catalog | Exception:
        try:
            return await read_catalog(settings, catalogs, server_id, config, refresh=refresh)
        except (*EXPECTED, RPCError) as error:
            return error

    return dict(zip(server_ids, await asyncio.gather(*map(read, server_ids)), strict=True))


async def read_catalog(
    settings: Settings, catalogs: Catalogs | None, server_id: str, config: str | None, *, refresh: bool = False
) -> Catalog:
    """What a server offers: from its catalog, or, while that has no list, from the server itself.

    Raises:
        CommandError: There is no such server, or no worker that could refresh the catalog where that was asked for.
        McpError: The server was asked directly, and does not answer.
    """
    configured(settings, server_id, config)
    if catalogs is not None:
        tenant = settings.worker.tenant
        if refresh and not await catalogs.refresh(tenant, server_id, within=PATIENCE, force=True):
            raise CommandError(unrefreshed(server_id), code="service_unavailable")
        catalog = await catalogs.fresh(tenant, server_id, now=time.time())
        if catalog is not None and catalog.failure is not None:
            # Others are not made to wait for a server that is down; who looks at it may have just mended it.
            await catalogs.refresh(tenant, server_id, within=LOOK_PATIENCE)
            catalog = await catalogs.read(tenant, server_id)
        if catalog is not None and catalog.listed_at is not None:
            return catalog
        failure = None if catalog is None else catalog.failure
        why = "no worker has listed it yet" if failure is None else f"{failure.code}: {failure.message}"
        complain(terminal.escape(f"{server_id}: {why}; {ASKED_DIRECTLY}"))
    return await list_directly(settings_of(config), server_id, config)


async def kept_catalog(
    settings: Settings, server_id: str, config: str | None, *, fresh: bool = False
) -> tuple[Catalogs, Catalog]:
    """The catalog of a server that has been listed at least once, and where it is.

    Args:
        settings: Where.
        server_id: The server.
        config: The settings' file, for messages.
        fresh: Whether a list that is stale is to be renewed, if that can be done in a moment.

    Raises:
        CommandError: There is no Temporal, no such server, or no list of it.
    """
    configured(settings, server_id, config)
    tenant = settings.worker.tenant
    catalogs = catalogs_at(await connect(settings), settings)
    read = catalogs.fresh(tenant, server_id, now=time.time()) if fresh else catalogs.read(tenant, server_id)
    catalog = await read
    if catalog is None or catalog.listed_at is None:
        await catalogs.refresh(tenant, server_id, within=PATIENCE)
        catalog = await catalogs.read(tenant, server_id)
    if catalog is None or catalog.listed_at is None:
        failure = None if catalog is None else catalog.failure
        if failure is None:
            raise CommandError(unrefreshed(server_id), code="service_unavailable")
        raise CommandError(failure.message, code=failure.code)
    return catalogs, catalog


async def decided_on(settings: Settings, what: str) -> list[HistoryEvent]:
    """The events of a catalog's history that tell what was decided, opened; as far back as Temporal has them.

    Args:
        settings: Where, and whose.
        what: A server id, which need not be in the settings any more, or the file of an exported history.

    Raises:
        CommandError: There is no Temporal, no such catalog, or another history in the file.
        HistoryFileError: It is none.
        EncryptionError: It is encrypted, and the settings lack a key.
    """
    # A folder may be called like a server.
    if what.endswith(".json"):
        file = Path(what)
        found, converter = read_file(file), data_converter(settings)
        if not is_catalog(found[0].events):
            raise CommandError(f"{file}: is the history of '{found[0].workflow_id}', and of no catalog")
    else:
        client = await connect(settings)
        try:
            found = await kept_histories(client, catalog_id(settings.worker.tenant, what))
        except RunNotFoundError:
            raise CommandError(
                f"there is no catalog of server '{what}' for tenant '{settings.worker.tenant}'", code="not_found"
            ) from None
        converter = client.data_converter
    events = [event for history in found for event in history.events if event.event_type in DECIDING]
    await resolve(events, converter)
    return events


def unrefreshed(server_id: str) -> str:
    """Says that a server's list could not be had in time."""
    return (
        f"'{server_id}' was not listed within {PATIENCE:g} s: it is slow, or there is no worker; start 'worker.py run'"
        " or 'worker.py dev' with the same temporal and worker settings"
    )
