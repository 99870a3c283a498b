"""The token of one server for all who call it: one request for a token at a time, whoever needs it.

Owns the token in use, the number that says what it may see, and the order of refusals. Knows no grant.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from openwop_mcp.client.auth._code import Visit
from openwop_mcp.client.auth._discovery import Discovery
from openwop_mcp.client.auth._fetch import Fetch
from openwop_mcp.client.auth._held import Demand, Held
from openwop_mcp.client.auth._machine import Machine
from openwop_mcp.client.auth._person import Person
from openwop_mcp.client.auth._secrets import Secrets
from openwop_mcp.client.auth._store import Grant, StoreKey, TokenStore
from openwop_mcp.config import OAuth
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import AuthorizationError

__all__ = ("OAuthAuthorizer", "store_key")


LANDING = 3.0
"""Seconds that a request for a token is waited for at the end: its answer may hold the only refresh token that is still
good. Authorization servers answer in less, and a worker has ten seconds to go."""


class OAuthAuthorizer:
    """An ``Authorizer`` by OAuth (MCP 2026-07-28, authorization).

    Args:
        server_id: The server's id in the settings.
        url: Its MCP endpoint.
        oauth: The settings.
        environ: Where their secrets are.
        fetch: Sends requests, within the server's limits and network.
        store: Where grants of persons are kept, and whom a machine's credential belongs to.
        on_secret: Is told every token and secret before it is used, so that none gets into an error.
        visit: Sends a person to log in; None where nobody is there, as in a worker.
        redirect_uri: Where they come back to; needed with ``visit``.
        guess: Whether the endpoints of MCP 2025-03-26 may be assumed where a server has no metadata at all.
        clock: Seconds of the epoch.
    """

    def __init__(
        self,
        *,
        server_id: str,
        url: str,
        oauth: OAuth,
        environ: Mapping[str, str],
        fetch: Fetch,
        store: TokenStore,
        on_secret: Callable[[str], None],
        visit: Visit | None = None,
        redirect_uri: str | None = None,
        guess: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        secrets = Secrets(oauth, environ, on_secret)
        by_person = oauth.grant == "authorization_code"
        discovery = Discovery(
            url,
            fetch,
            issuer=oauth.issuer,
            bound=oauth.client_id is not None or oauth.assertion is not None,
            # A machine's secret is sent to no address that was merely guessed.
            guess=guess and by_person and oauth.client_secret is None,
        )
        self._source: Machine | Person
        key = store_key(server_id, url, oauth)
        if by_person:
            self._source = Person(key, oauth, secrets, discovery, fetch, store, clock, visit, redirect_uri)
        else:
            self._source = Machine(key, oauth, secrets, discovery, fetch, store, clock)
        self._held: Held | None = None
        self._handed = 0
        self._identity: tuple[str, ...] | None = None
        self._context = 0
        self._flight: asyncio.Task[None] | None = None

    @property
    def context(self) -> int:
        """See :class:`Authorizer`."""
        return self._context

    async def header(self) -> tuple[str, str] | None:
        """See :class:`Authorizer`."""
        needed = self._held is None or self._held.due(self._clock())
        # Whoever comes while a token is fetched takes what comes of it.
        if needed and not await self._joined():
            await self._alone(self._ensure())
        if self._held is None:
            return None
        self._handed += 1
        return "Authorization", self._held.header

    async def refused(self, status: int, challenges: Sequence[str], sent: str | None) -> bool:
        """See :class:`Authorizer`."""
        try:
            return await self._refused(status, challenges, sent)
        except AuthorizationError as error:
            raise error.after(Delivery.NOT_PROCESSED) from error.__cause__

    async def login(self, challenges: Sequence[str] = ()) -> Grant:
        """Send a person to log in, whatever is kept, and keep what they grant.

        Args:
            challenges: The values of ``WWW-Authenticate`` with which the server refuses a request without a token.

        Raises:
            AuthorizationError: They did not, or it is not to be had this way.
            EgressDeniedError: The settings do not allow to go there.
        """
        assert isinstance(self._source, Person)
        demand = Demand.of(401, challenges, None, fresh=False)
        assert demand is not None
        return await self._source.login(demand)

    async def close(self) -> None:
        """Give up what is under way, unless it ends soon."""
        flight = self._flight
        if flight is not None:
            await asyncio.wait({flight}, timeout=LANDING)
            flight.cancel()
            await asyncio.wait({flight})

    async def _refused(self, status: int, challenges: Sequence[str], sent: str | None) -> bool:
        fresh = self._held is not None and self._held.new and self._handed <= 1
        demand = Demand.of(status, challenges, self._held, fresh=fresh)
        if demand is None:
            return False
        while sent == self._sent and await self._joined():
            # What was fetched may have been for another's need, and still another may be at it again.
            pass
        if sent != self._sent:
            return True
        await self._alone(self._renew(demand))
        return True

    @property
    def _sent(self) -> str | None:
        return None if self._held is None else self._held.header

    async def _ensure(self) -> None:
        held, now = self._held, self._clock()
        try:
            self._take(await self._source.token(held))
        except AuthorizationError as error:
            # A token that is renewed early is still good.
            if not error.retryable or held is None or held.ended(now):
                raise

    async def _renew(self, demand: Demand) -> None:
        self._take(await self._source.renew(demand))

    def _take(self, held: Held | None) -> None:
        if held is not None and (self._held is None or held.access_token != self._held.access_token):
            self._handed = 0
        self._held = held
        identity = None if held is None else held.identity
        if identity != self._identity:
            self._identity = identity
            self._context += 1

    async def _joined(self) -> bool:
        """Wait for what is under way, and share its failure; False if nothing is."""
        if self._flight is None:
            return False
        try:
            await asyncio.shield(self._flight)
        except AuthorizationError as error:
            raise error.after(error.delivery) from error.__cause__
        return True

    async def _alone(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something as the only one.

        It goes on if the caller is cancelled: others may wait, and the answer to a request with a refresh token that is
        good for one use must not be lost.
        """
        self._flight = asyncio.get_running_loop().create_task(work)
        self._flight.add_done_callback(self._landed)
        await asyncio.shield(self._flight)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        if self._flight is flight:
            self._flight = None
        if not flight.cancelled():
            # Those who waited have it; if nobody did, it is nobody's.
            flight.exception()


def store_key(server_id: str, url: str, oauth: OAuth) -> StoreKey:
    """Under what the tokens of a server's settings are kept."""
    return StoreKey(server_id, url, oauth.client_id or oauth.client_metadata_url or "")
