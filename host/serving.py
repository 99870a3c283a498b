"""A host from settings: what is wrong with them is told before anything starts, then all is put together and served."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Self

from temporalio.client import Client

from openwop_mcp.catalogs import Catalogs
from openwop_mcp.config import Settings, SettingsError
from openwop_mcp.runs.start import Options

from .app import create_app
from .authenticators import Authenticators
from .catalog import ToolCatalog
from .context import Host
from .keys import KeyRing
from .links import Links
from .logs import RunLogs
from .records import Records
from .scopes import Scopes
from .server import Listening, listening
from .tokens import TokenKeys
from .workflows import Workflows

__all__ = ("Offer",)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a host offers, and to whom.

    Attributes:
        settings: The settings.
        environ: The environment, where secrets may be.
        workflows: The workflows.
    """

    settings: Settings
    environ: Mapping[str, str]
    workflows: Workflows

    @classmethod
    def of(cls, settings: Settings, environ: Mapping[str, str], *, source: str) -> Self:
        """Read what the settings name.

        Args:
            settings: The settings.
            environ: The environment, where secrets may be.
            source: The file of the settings, for faults.

        Raises:
            SettingsError: With all faults, one a line.
        """
        faults: list[str] = []
        workflows = Workflows(())
        if not settings.keys and not settings.issuers:
            faults.append(
                f"{source}: keys: nobody could use the host: write [[keys]] with an id, "
                'secret = { env = "NAME" }, a tenant, a subject and scopes = ["*"]'
            )
        try:
            KeyRing.of(settings.keys, environ)
        except SettingsError as error:
            faults.append(f"{source}: {error}")
        try:
            if settings.host.token_keys:
                TokenKeys.of(settings.host.token_keys, environ)
        except SettingsError as error:
            faults.append(f"{source}: {error}")
        try:
            workflows = Workflows.read(settings.host, source=source)
        except SettingsError as error:
            faults.append(str(error))
        if faults:
            raise SettingsError("\n".join(faults))
        return cls(settings, environ, workflows)

    @contextlib.asynccontextmanager
    async def serving(self, client: Client, options: Options) -> AsyncIterator[Listening]:
        """Serve until the context ends.

        Args:
            client: Connected to the namespace of the runs, with the storage of large values.
            options: What every run is started with.

        Raises:
            BindError: The host cannot listen where the settings say so.
        """
        async with Authenticators.open(self.settings, self.environ) as authenticator:
            stopping = asyncio.Event()
            worker = self.settings.worker
            catalogs = Catalogs(client, task_queue=worker.task_queue, heartbeat=worker.heartbeat_timeout)
            host = Host(
                settings=self.settings,
                client=client,
                authenticator=authenticator,
                workflows=self.workflows,
                tools=ToolCatalog(self.settings, self.workflows, catalogs),
                logs=RunLogs(client, stopping=stopping),
                records=Records(client),
                links=Links(self.settings.host, self.environ, client),
                task_queue=worker.task_queue,
                options=options,
                stopping=stopping,
            )
            tidying = asyncio.create_task(Scopes(client).keep_tidy())
            try:
                async with listening(create_app(host), bind=self.settings.host.bind, stopping=stopping) as running:
                    yield running
            finally:
                tidying.cancel()
