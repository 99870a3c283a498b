"""The settings as a whole: every table by its name, and which server a tenant may use.

Knows not where they were read from.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from openwop_mcp.config._encryption import Encryption
from openwop_mcp.config._host import Host, Issuer, Key
from openwop_mcp.config._logs import Logs
from openwop_mcp.config._servers import Server, ServerId
from openwop_mcp.config._tables import Table
from openwop_mcp.config._values import AsTuple
from openwop_mcp.config._worker import Limits, Storage, Temporal, Worker

__all__ = ("Settings",)


class Settings(Table):
    """All settings of worker and host."""

    temporal: Temporal = Field(Temporal(), description="a table, as in [temporal]")
    worker: Worker = Field(Worker(), description="a table, as in [worker]")
    storage: Storage = Field(Storage(), description="a table, as in [storage]")
    encryption: Encryption = Field(Encryption(), description="a table, as in [encryption]")
    limits: Limits = Field(Limits(), description="a table, as in [limits]")
    logs: Logs = Field(Logs(), description="a table, as in [logs]")
    host: Host = Field(Host(), description="a table, as in [host]")
    keys: Annotated[tuple[Key, ...], AsTuple] = Field((), description="tables, each as in [[keys]]")
    issuers: Annotated[tuple[Issuer, ...], AsTuple] = Field((), description="tables, each as in [[issuers]]")
    servers: dict[ServerId, Server] = Field(default={}, description="tables by server id, as in [servers.weather]")

    def server(self, server_id: str, tenant: str) -> Server | None:
        """The server of that id, if the tenant may use it."""
        server = self.servers.get(server_id)
        if server is None or not {"*", tenant} & set(server.tenants):
            return None
        return server

    @property
    def server_classes(self) -> dict[str, str]:
        """The class of each server that is in one, by server id."""
        return {
            server_id: server.server_class
            for server_id, server in self.servers.items()
            if server.server_class is not None
        }

    def barred(self, server_id: str, tenant: str) -> str | None:
        """The tenant, if it is the worker's own and a server of that id does not admit it; for the operator to hear."""
        own = tenant == self.worker.tenant and server_id in self.servers
        return tenant if own and self.server(server_id, tenant) is None else None
