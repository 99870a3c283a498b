"""A host for tests: what routes share, and a client that speaks to an application in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import httpx
from temporalio.client import Client

from host.context import Host
from host.errors import HostError
from host.links import Links
from host.principals import Principal
from host.workflows import Workflows
from openwop_mcp.config import Settings
from openwop_mcp.runs.start import Options

__all__ = ("KEYS", "Keys", "Nothing", "asked", "bearer", "host")

KEYS = {
    "acme-all": Principal("all", "acme", "dev", frozenset({"*"})),
    "acme-reads": Principal("reads", "acme", "auditor", frozenset({"runs:read"})),
    "acme-alice": Principal("alice", "acme", "alice", frozenset({"approvals:respond"})),
    "umbrella-all": Principal("umbrella", "umbrella", "dev", frozenset({"*"})),
}
"""Who holds which key."""


class Keys:
    """An authenticator that knows :data:`KEYS`."""

    async def authenticate(self, authorization: str | None) -> Principal:
        """Tell who sent a request."""
        principal = KEYS.get((authorization or "").removeprefix("Bearer "))
        if principal is None:
            raise HostError("unauthenticated", "send a key")
        return principal


class Nothing:
    """Stands where a test has no use for what belongs there: any use fails."""


def bearer(key: str) -> dict[str, str]:
    """The headers of a request with a key."""
    return {"Authorization": f"Bearer {key}"}


def host(settings: dict[str, Any] | None = None, client: Client | None = None) -> Host:
    """What routes share, without logs and records."""
    own = Settings.model_validate(settings or {})
    nothing = cast("Any", Nothing())
    return Host(
        settings=own,
        client=nothing if client is None else client,
        authenticator=Keys(),
        workflows=Workflows.read(own.host),
        tools=nothing,
        logs=nothing,
        records=nothing,
        links=Links(own.host, {}, nothing if client is None else client),
        task_queue=own.worker.task_queue,
        options=Options(),
        stopping=asyncio.Event(),
    )


def asked(app: Callable[..., Any]) -> httpx.AsyncClient:
    """A client whose requests go to an application in this process."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://host.test")
