"""The pack's MCP client against the fake server, and replies that hold exact bytes for whichever request came."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from openwop_mcp.client import HttpTransport, McpClient
from openwop_mcp.client._http import SizeLimits
from openwop_mcp.config import Timeouts
from tests.support.fake_server import FakeServer, Handler, Reply, Request

__all__ = ("ARGUMENTS", "client_of", "connected", "json_reply", "replies", "stream_reply")

ARGUMENTS = b'{"q":1}'

CLIENT_INFO = b'{"name":"tests","version":"1"}'


def client_of(
    url: str,
    transport: HttpTransport,
    *,
    response_bytes: int = 1024**2,
    event_bytes: int = 1024**2,
    headers: Sequence[tuple[str, str]] = (),
    clock: Callable[[], float] | None = None,
    **timeouts: float,
) -> McpClient:
    """A client; `timeouts` by their settings keys, five seconds each if not given."""
    limits = {"connect": 5.0, "first_byte": 5.0, "idle": 5.0, "total": 5.0, **timeouts}
    return McpClient(
        url,
        transport,
        timeouts=Timeouts(**limits),
        sizes=SizeLimits(response_bytes, event_bytes),
        client_info=CLIENT_INFO,
        static_headers=headers,
        **({} if clock is None else {"clock": clock}),
    )


@contextlib.asynccontextmanager
async def connected(handler: Handler, **options: Any) -> AsyncIterator[tuple[McpClient, FakeServer]]:
    """A client and the server it calls."""
    async with FakeServer(handler) as server, HttpTransport() as transport:
        yield client_of(server.url, transport, **options), server


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
