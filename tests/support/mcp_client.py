"""The pack's MCP client against the fake server, and replies that hold exact bytes for whichever request came."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import httpx

from openwop_mcp.client import McpClient
from openwop_mcp.client._http import HttpWire
from openwop_mcp.client._network import Network
from openwop_mcp.client._pool import HttpPool, Reach
from openwop_mcp.client._wire import Authorizer, SizeLimits
from openwop_mcp.config import Timeouts
from openwop_mcp.redaction import Redactor
from tests.support.fake_server import FakeServer, Handler, Reply, Request
from tests.support.patience import PATIENCE

__all__ = ("ARGUMENTS", "client_of", "connected", "json_reply", "replies", "stream_reply")

ARGUMENTS = b'{"q":1}'

CLIENT_INFO = b'{"name":"tests","version":"1"}'


def client_of(
    url: str,
    pool: HttpPool,
    *,
    response_bytes: int = 1024**2,
    event_bytes: int = 1024**2,
    headers: Sequence[tuple[str, str]] = (),
    network: Network = "private",
    authorizer: Authorizer | None = None,
    options: Mapping[str, Any] | None = None,
    **timeouts: float,
) -> McpClient:
    """A client; `timeouts` by their settings keys, else as long as a test waits; `options` as in `McpClient`."""
    limits = {**dict.fromkeys(("connect", "first_byte", "idle", "total"), PATIENCE), **timeouts}
    wire = HttpWire(
        url,
        pool,
        reach=Reach.of(network, httpx.URL(url)),
        sizes=SizeLimits(response_bytes, event_bytes),
        static_headers=headers,
        authorizer=authorizer,
    )
    return McpClient(
        wire,
        timeouts=Timeouts(**limits),
        client_info=CLIENT_INFO,
        redactor=Redactor(value for _, value in headers),
        **(options or {}),
    )


@contextlib.asynccontextmanager
async def connected(handler: Handler, **options: Any) -> AsyncIterator[tuple[McpClient, FakeServer]]:
    """A client and the server it calls."""
    async with FakeServer(handler) as server, HttpPool() as pool:
        client = client_of(server.url, pool, **options)
        yield client, server
        await client.close()


def replies(make: Reply | Callable[[Request], Reply | None]) -> Handler:
    """A handler that judges nothing."""

    async def handle(request: Request) -> Reply | None:
        return make(request) if callable(make) else make

    return handle


def json_reply(body: bytes, status: int = 200, **more: Any) -> Reply:
    """An answer in one piece."""
    return Reply(status=status, headers=[("Content-Type", "application/json")], body=body, **more)


def stream_reply(*chunks: Any, **more: Any) -> Reply:
    """An event stream, cut as given."""
    return Reply(headers=[("Content-Type", "text/event-stream")], chunks=chunks, **more)
