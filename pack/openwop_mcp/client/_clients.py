"""The clients of one process, by server id: from the settings to something that can be called.

The one place that knows how a server is reached and what it is shown. Owns the connection pool and the clients.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

import httpx

from openwop_mcp.client._cache import ResultCache
from openwop_mcp.client._client import McpClient
from openwop_mcp.client._conversation import Exchange, OnInput
from openwop_mcp.client._http import HttpWire
from openwop_mcp.client._pool import HttpPool, Reach
from openwop_mcp.client._room import Room
from openwop_mcp.client._wire import SizeLimits, Wire
from openwop_mcp.client.stdio import StdioWire
from openwop_mcp.config import Server, Settings
from openwop_mcp.errors import InvalidRequestError, McpError
from openwop_mcp.redaction import KNOWN, Redactor

if TYPE_CHECKING:
    from openwop_mcp.client.auth import Login, OAuthAuthorizer, Pasting, Visit

__all__ = ("Clients", "log_in")


GUESSED = "2025-03-26"
"""The revision whose servers may have no metadata, so that where tokens are issued is guessed (MCP 2025-03-26)."""

COPIES = 4
"""How often a large answer is in memory at once at most: as it came, as it is recorded, and as it is put into storage.
Measured, with answers of 20 and 60 MB."""


class Clients:
    """Clients for the servers of the settings. Each worker that shares them enters them; the last to leave closes them.

    Args:
        settings: Servers and limits.
        client_info: JSON text of ``Implementation``.
        environ: The environment, for credentials.
        on_input: Answers servers' questions; None declares that they must ask none.
        visit: Sends a person to log in; None where nobody is there.
        redirect_uri: Where that person comes back to.

    Raises:
        SettingsError: A credential cannot be had.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        client_info: bytes,
        environ: Mapping[str, str],
        on_input: OnInput | None = None,
        visit: Visit | None = None,
        redirect_uri: str | None = None,
    ) -> None:
        self._settings = settings
        self._client_info = client_info
        self._environ = environ
        self._on_input = on_input
        self._visit = visit
        self._redirect_uri = redirect_uri
        self._pool = HttpPool()
        self._clients: dict[str, McpClient] = {}
        self._users = 0
        self._cache: ResultCache[Exchange] = ResultCache(time.monotonic)
        self._room = Room(settings.limits.memory_bytes // COPIES)

    async def __aenter__(self) -> Self:
        if not self._users:
            # Before the pool is opened: a credential that cannot be had leaves nothing behind.
            self._clients = {
                server_id: self._client(server_id, one) for server_id, one in self._settings.servers.items()
            }
        self._users += 1
        await self._pool.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._users -= 1
        if not self._users:
            clients, self._clients = list(self._clients.values()), {}
            await asyncio.gather(*(client.close() for client in clients))
        await self._pool.__aexit__(kind, error, trace)

    @property
    def pool(self) -> HttpPool:
        """The connections that they share."""
        return self._pool

    @property
    def room(self) -> Room:
        """The places that they have for large answers."""
        return self._room

    def __getitem__(self, server_id: str) -> McpClient:
        return self._clients[server_id]

    def _client(self, server_id: str, server: Server) -> McpClient:
        redactor = Redactor((), also=KNOWN)
        return McpClient(
            self._wire(server_id, server, redactor),
            timeouts=server.timeouts,
            client_info=self._client_info,
            floor=server.minimum_revision,
            name=server_id,
            log_level=server.log_level,
            on_input=self._on_input,
            validate=server.validate_schemas,
            key_carriers=server.key_carriers,
            redactor=redactor,
            echoed_credentials=server.echoed_credentials,
            cache=self._cache,
        )

    def _wire(self, server_id: str, server: Server, redactor: Redactor) -> Wire:
        limits = self._settings.limits
        sizes = SizeLimits(limits.response_bytes, limits.event_bytes)
        if server.url is None:
            assert server.command is not None
            given = {name: value.reveal(self._environ) for name, value in server.environment.items()}
            for name, value in server.environment.items():
                if value.secret:
                    redactor.add(given[name])
            return StdioWire(server_id, server.command, given, sizes=sizes, redactor=redactor, room=self._room)
        credential = server.credential
        header = credential.as_header(self._environ) if credential is not None else None
        if header is not None:
            redactor.add(header[1])
        return HttpWire(
            server.url,
            self._pool,
            reach=Reach.of(server.network, httpx.URL(server.url)),
            sizes=sizes,
            static_headers=[] if header is None else [header],
            authorizer=self._authorizer(server_id, server, server.url, redactor),
            room=self._room,
        )

    def _authorizer(self, server_id: str, server: Server, url: str, redactor: Redactor) -> OAuthAuthorizer | None:
        if server.credential is None or server.credential.oauth is None:
            return None
        # Here, since what it takes to sign costs a worker 18 MB, and few servers want it.
        from openwop_mcp.client.auth import OAuthAuthorizer, TokenStore  # noqa: PLC0415

        oauth = server.credential.oauth
        for reference in (oauth.client_secret, oauth.private_key):
            if reference is not None:
                # Else enough tokens would have it forgotten.
                redactor.add(reference.reveal(self._environ))
        return OAuthAuthorizer(
            server_id=server_id,
            url=url,
            oauth=oauth,
            environ=self._environ,
            fetch=self._pool.fetcher(server.network),
            store=TokenStore.default(self._environ),
            on_secret=redactor.rotate,
            visit=self._visit,
            guess=server.minimum_revision <= GUESSED,
            redirect_uri=self._redirect_uri,
        )


async def log_in(
    server_id: str,
    server: Server,
    *,
    environ: Mapping[str, str],
    show: Callable[[str], None],
    pasting: Pasting | None = None,
    port: int = 0,
) -> Login:
    """Have a person log in at a server's authorization server; clients of this machine then have the token.

    Args:
        server_id: The server's id in the settings.
        server: Its settings, with a credential by OAuth and the grant ``authorization_code``.
        environ: The environment, for secrets and for where tokens are kept.
        show: Is given the URL that the person has to open.
        pasting: Where they can say by hand where their browser ended, which may be on another machine.
        port: Where to wait for them on this machine; 0 for any port.

    Raises:
        InvalidRequestError: The settings of this server want no person.
        AuthorizationError: There is no token.
        EgressDeniedError: The settings do not allow to go where it would be had.
    """
    from openwop_mcp.client.auth import TokenStore, login  # noqa: PLC0415 - for the same reason

    oauth = server.credential.oauth if server.credential is not None else None
    if oauth is None or server.url is None:
        raise InvalidRequestError(
            f"server '{server_id}' takes no login: its setting credential would be"
            ' { oauth = { grant = "authorization_code" } }'
        )
    redactor = Redactor((), also=KNOWN)
    async with HttpPool() as pool:
        try:
            return await login(
                server_id=server_id,
                url=server.url,
                oauth=oauth,
                environ=environ,
                fetch=pool.fetcher(server.network),
                store=TokenStore.default(environ),
                on_secret=redactor.add,
                show=show,
                pasting=pasting,
                port=port,
                guess=server.minimum_revision <= GUESSED,
            )
        except McpError as error:
            error.about(server_id)
            redactor.clean(error)
            raise
