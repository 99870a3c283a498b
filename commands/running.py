"""The parts of a process that serves: a worker, the REST surface, catalogs. Which command has which is up to it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import PollerBehaviorSimpleMaximum, UnsandboxedWorkflowRunner, Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from commands.deployment import deployment_of
from commands.errors import CommandError
from commands.gauges import tell_traffic, telling
from commands.settings import options_of
from openwop_mcp import terminal
from openwop_mcp.catalogs import Catalogs
from openwop_mcp.config import DEFAULT_CLASS, DEFAULT_FILE, Settings
from openwop_mcp.encryption import EncryptionError
from openwop_mcp.runs.callbacks import Callback
from openwop_mcp.storage import LostValueError, StorageError
from workflows import CatalogWorkflow, EffectWorkflow, RunWorkflow

if TYPE_CHECKING:
    from host.server import Listening
    from host.serving import Offer

__all__ = ("offer_of", "running_codec", "running_host", "running_worker", "start_catalogs", "starting_catalogs")

EVERY_TENANT = "*"
"""In place of names of tenants: a catalog of these is begun when one of them first asks for tools."""

STARTED_AT_ONCE = 20
"""Catalogs that are started at once: each takes Temporal some milliseconds."""


@contextlib.asynccontextmanager
async def running_worker(
    client: Client, settings: Settings, workflows: Sequence[type] = ()
) -> AsyncIterator[list[str]]:
    """What a worker process takes on by its settings, polling; it ends with the context, calls under way first.

    Yields:
        The task queues that it polls.
    """
    # Here, since the commands that only talk to Temporal start in half the time without an HTTP client.
    from activities import (
        EAGER_CALLS,
        Calls,
        catalog_worker,
        class_worker,
        context_free,
        effect_worker,
        listen_activities,
        mcp_activities,
        node_activities,
        notify_activities,
    )
    from host.links import Links

    own = settings.worker
    deployment = deployment_of(own)
    links = Links(settings.host, os.environ, client)

    async def link(callback: Callback) -> tuple[str, int] | None:
        until = None if callback.until is None else callback.until / 1000
        made = await links.make(
            run_id=callback.run_id, node_id=callback.node_id, interrupt_id=callback.interrupt_id, until=until
        )
        return None if made is None else (made.url, made.expires_at)

    def runs_worker(calls: Calls) -> Worker:
        return Worker(
            client,
            task_queue=own.task_queue,
            workflows=[RunWorkflow, *workflows],
            activities=[
                *mcp_activities(calls),
                *node_activities(calls),
                *listen_activities(calls),
                *notify_activities(calls.pool, settings.host, os.environ, link),
            ],
            max_concurrent_activities=own.max_activities,
            max_eager_activity_reservations_per_workflow_task=EAGER_CALLS,
            workflow_runner=context_free(SandboxedWorkflowRunner(), client.data_converter),
            unsandboxed_workflow_runner=context_free(UnsandboxedWorkflowRunner(), client.data_converter),
            workflow_task_poller_behavior=PollerBehaviorSimpleMaximum(own.workflow_pollers),
            activity_task_poller_behavior=PollerBehaviorSimpleMaximum(own.activity_pollers),
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=own.sticky_timeout),
            graceful_shutdown_timeout=timedelta(seconds=own.shutdown_grace),
            deployment_config=deployment,
        )

    async with Calls(settings) as calls, contextlib.AsyncExitStack() as stack:
        workers = [
            class_worker(client, calls, settings, name, deployment=deployment)
            for name in own.served
            if name != DEFAULT_CLASS
        ]
        tell_traffic(calls.admission.snapshot)
        if DEFAULT_CLASS in own.served:
            workers += [
                effect_worker(client, calls, settings, own.task_queue, EffectWorkflow, deployment=deployment),
                catalog_worker(client, calls, settings, CatalogWorkflow, deployment=deployment),
                runs_worker(calls),
            ]
            await stack.enter_async_context(telling(client, settings, catalogs_of(settings)))
        for worker in workers:
            await stack.enter_async_context(worker)
        try:
            yield sorted(worker.task_queue for worker in workers)
        finally:
            # At once: one after the other they would take as many times the grace.
            await asyncio.gather(*(worker.shutdown() for worker in workers))


async def start_catalogs(client: Client, settings: Settings) -> None:
    """Start the catalog of each server for each tenant that the settings name; it waits for no server."""
    own = settings.worker
    catalogs = Catalogs(client, task_queue=own.task_queue, heartbeat=own.heartbeat_timeout)
    slots = asyncio.Semaphore(STARTED_AT_ONCE)

    async def start(tenant: str, server_id: str) -> None:
        async with slots:
            try:
                await catalogs.start(tenant, server_id)
            except (RPCError, EncryptionError, StorageError, LostValueError) as error:
                logging.getLogger(__name__).warning(
                    "the catalog of server %s for tenant %s was not started, and is when it is first asked for: %s",
                    server_id,
                    tenant,
                    error,
                )

    await asyncio.gather(*(start(tenant, server_id) for tenant, server_id in catalogs_of(settings)))


def catalogs_of(settings: Settings) -> list[tuple[str, str]]:
    """Tenant and server of each catalog that the settings name."""
    tenants = {
        settings.worker.tenant,
        *(key.tenant for key in settings.keys),
        *(issuer.tenant for issuer in settings.issuers if issuer.tenant is not None),
        *itertools.chain.from_iterable(issuer.tenants for issuer in settings.issuers if issuer.tenant is None),
        *itertools.chain.from_iterable(server.tenants for server in settings.servers.values()),
    } - {EVERY_TENANT}
    return [
        (tenant, server_id)
        for tenant in sorted(tenants)
        for server_id in settings.servers
        if settings.server(server_id, tenant) is not None
    ]


@contextlib.asynccontextmanager
async def starting_catalogs(client: Client, settings: Settings) -> AsyncIterator[None]:
    """Start the catalogs meanwhile: there may be thousands."""
    starting = asyncio.create_task(start_catalogs(client, settings))
    try:
        yield
    finally:
        starting.cancel()
        await asyncio.wait([starting])


def offer_of(settings: Settings, config: str | None) -> Offer:
    """What the host of these settings offers; warns of what runs of it will fail with.

    Raises:
        SettingsError: With all that is wrong with it.
    """
    # Here for the same reason as in `running_worker`.
    from host.serving import Offer

    offer = Offer.of(settings, os.environ, source=config or DEFAULT_FILE)
    for doubt in offer.workflows.doubts(settings.servers):
        logging.getLogger(__name__).warning("%s", terminal.escape(doubt))
    return offer


@contextlib.asynccontextmanager
async def running_host(client: Client, offer: Offer) -> AsyncIterator[Listening]:
    """The REST surface, listening; it ends with the context, requests under way first."""
    from host.server import BindError

    try:
        async with offer.serving(client, options_of(offer.settings)) as host:
            yield host
    except BindError as error:
        raise CommandError(str(error), code="service_unavailable") from None


@contextlib.asynccontextmanager
async def running_codec(settings: Settings) -> AsyncIterator[Listening | None]:
    """The codec server, listening, or None where nothing is encrypted; it ends with the context."""
    if not settings.encryption.keys:
        yield None
        return
    # Here for the same reason as in `running_worker`.
    from host.codec import serving_codec
    from host.server import BindError

    try:
        async with serving_codec(settings, os.environ) as codec:
            yield codec
    except BindError as error:
        raise CommandError(str(error), code="service_unavailable") from None
