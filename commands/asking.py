"""MCP servers asked by the command itself, outside any workflow: only for what has no effect."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from commands.settings import configured
from openwop_mcp.catalog import listing
from openwop_mcp.catalog.state import Catalog
from openwop_mcp.config import Settings
from openwop_mcp.verbatim import Verbatim

if TYPE_CHECKING:
    from openwop_mcp.client import Exchange, McpClient

__all__ = ("list_directly", "milliseconds", "with_server")

DIRECT_PAGES = 1000
"""Pages of a list that a command asks for itself; a server that goes on for ever has to end somewhere."""


async def with_server(
    settings: Settings, server_id: str, ask: Callable[[McpClient], Awaitable[Exchange]], config: str | None
) -> Verbatim:
    """Ask a server directly, outside any workflow: for what has no effect."""
    # Here for the same reason as in `running_worker`.
    from activities.perform import CLIENT_INFO
    from openwop_mcp.client import Clients

    server = configured(settings, server_id, config)
    alone = settings.model_copy(update={"servers": {server_id: server}})
    async with Clients(alone, client_info=CLIENT_INFO, environ=os.environ) as clients:
        return Verbatim((await ask(clients[server_id])).result)


async def list_directly(settings: Settings, server_id: str, config: str | None) -> Catalog:
    """What a server says that it offers, all pages of it, as a catalog that has seen nothing else.

    Raises:
        McpError: The server does not answer.
    """
    pages: list[bytes] = []
    ended: str | None = None

    async def ask(client: McpClient) -> Exchange:
        nonlocal ended
        page = await client.list_tools()
        asked = set[str]()
        while True:
            pages.append(page.result)
            following = Verbatim(page.result).get("nextCursor")
            if not isinstance(following, str):
                return page
            if following in asked or len(pages) == DIRECT_PAGES:
                ended = f"after {len(pages)} pages the server named another one"
                return page
            asked.add(following)
            page = await client.list_tools(following)

    await with_server(settings, server_id, ask, config)
    http = configured(settings, server_id, config).url is not None
    return listing.unkept(settings.worker.tenant, server_id, pages, http=http, ended=ended, at=milliseconds())


def milliseconds() -> int:
    """Now, in milliseconds since 1970."""
    return round(time.time() * 1000)
