"""Tokens for a machine, by credentials of its own: client credentials, or an assertion that a platform issued.

Owns what is asked for, and when asking again is of use. Keeps no token, as one can be had at any time, but whom the
credentials were shown to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

import msgspec

from openwop_mcp.client.auth._discovery import Discovery, Place
from openwop_mcp.client.auth._fetch import Fetch, shown
from openwop_mcp.client.auth._grants import JWT_BEARER, request_token
from openwop_mcp.client.auth._held import Demand, Held, due, expiry, refuse_fresh
from openwop_mcp.client.auth._scopes import Scopes, initial, split, union, without_offline_access
from openwop_mcp.client.auth._secrets import Secrets
from openwop_mcp.client.auth._store import StoreKey, TokenStore
from openwop_mcp.config import OAuth
from openwop_mcp.errors import AuthorizationError

__all__ = ("Machine", "stepped_up")

MAX_STEP_UPS = 10
"""How often one token may be made good for more. A server has a few kinds of operations; one that wants something else
after each of them wants no end of it."""


class Machine:
    """The source of a machine's tokens.

    Args:
        key: Whose tokens.
        oauth: The settings.
        secrets: Their secrets.
        discovery: Who is asked.
        fetch: Sends requests.
        store: Where it is kept who was asked first.
        clock: Seconds of the epoch.
    """

    def __init__(
        self,
        key: StoreKey,
        oauth: OAuth,
        secrets: Secrets,
        discovery: Discovery,
        fetch: Fetch,
        store: TokenStore,
        clock: Callable[[], float],
    ) -> None:
        self._key = key
        self._oauth = oauth
        self._secrets = secrets
        self._discovery = discovery
        self._fetch = fetch
        self._store = store
        self._clock = clock
        self._configured = split(oauth.scope)
        self._asked: Scopes = ()
        self._steps = 0
        self._began = False
        self._open = False
        # The settings say it, or else the first that the server names is kept.
        self._kept = oauth.issuer is not None

    async def token(self, held: Held | None) -> Held | None:
        """A token before the server has asked for one, or in place of one that ends.

        The first request goes without, since only the server's challenge says where its metadata is and which scopes
        it wants. A server that does not object gets a token all the same from then on: it may show less to strangers.
        """
        if not self._began:
            self._began = True
            return None
        if self._open:
            return None
        await self._recall()
        place = self._discovery.known or await self._discovery.look(asked=held is not None)
        self._open = place is None
        return None if place is None else await self._obtain(place, self._wanted(place, ()), new=False)

    async def renew(self, demand: Demand) -> Held:
        """A token that the server may take after it refused a request.

        Raises:
            AuthorizationError: There is none.
        """
        self._began = True
        await self._recall()
        place = await self._discovery.again(demand.metadata)
        refuse_fresh(demand, place.issuer)
        scopes = self._wanted(place, demand.scopes)
        if demand.step_up:
            self._steps += 1
            scopes = stepped_up(demand, self._asked, self._configured, self._steps)
        return await self._obtain(place, scopes, new=True)

    async def _recall(self) -> None:
        """Go on with the issuer that an earlier worker began with: the credentials are no other's."""
        if not self._kept:
            with _explained():
                record = await asyncio.to_thread(self._store.read, self._key)
            if record.issuer is not None:
                self._discovery.pin(record.issuer)

    async def _keep(self, issuer: str) -> None:
        """Keep whom the credentials are shown to, before they are; of two workers that begin at once one is first.

        Raises:
            AuthorizationError: Another was; or it cannot be kept.
        """
        if self._kept:
            return
        with _explained():
            async with self._store.locked(self._key):
                record = await asyncio.to_thread(self._store.read, self._key)
                if record.issuer is None:
                    record = msgspec.structs.replace(record, issuer=issuer)
                    await asyncio.shield(asyncio.to_thread(self._store.write, record))
        assert record.issuer is not None
        self._discovery.hold(record.issuer, issuer)
        self._kept = True

    def _wanted(self, place: Place, challenged: Scopes) -> Scopes:
        if self._configured:
            return self._configured
        supported = without_offline_access(place.resource.scopes)
        return initial(configured=(), challenged=challenged, supported=supported, before=self._asked)

    async def _obtain(self, place: Place, scopes: Scopes, *, new: bool) -> Held:
        await self._keep(place.issuer)
        client = self._secrets.client()
        grant = {"grant_type": "client_credentials"}
        if self._oauth.grant == "jwt_bearer":
            grant = {"grant_type": JWT_BEARER, "assertion": self._secrets.assertion()}
        answer = await request_token(
            self._fetch, place.authority, client, grant, resource=place.resource.identifier, scopes=scopes
        )
        self._secrets.tell(answer.access_token)
        self._asked = scopes
        now = self._clock()
        ends = expiry(answer, now)
        granted = scopes if answer.scopes is None else answer.scopes
        identity = (place.issuer, client.client_id or "", *sorted(granted))
        return Held(answer.access_token, place.issuer, identity, due(now, ends), ends, new)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    """Say of a fault of the store what a machine needs it for, and how to do without."""
    try:
        yield
    except AuthorizationError as error:
        raise AuthorizationError(
            f"who issues the server's tokens has to be kept, as its credential is no other's: {error.message}; or write"
            ' issuer = "https://..." in servers.<id>.credential.oauth',
            cause=error.cause,
            retryable=error.retryable,
        ) from error


def stepped_up(demand: Demand, asked: Scopes, configured: Scopes, steps: int) -> Scopes:
    """The scopes to ask for when a token is not good for an operation (MCP 2026-07-28, step-up authorization).

    Args:
        demand: What the server wants.
        asked: What was asked for so far.
        configured: What the settings say. It is the operator's bound: no server widens it.
        steps: How often there was a step up, this one included.

    Raises:
        AuthorizationError: Asking again is of no use; cause ``insufficient_scope``.
    """
    wanted = union(asked, demand.scopes)
    missing = " ".join(scope for scope in demand.scopes if scope not in asked)
    if configured and missing:
        raise AuthorizationError(
            f"the server wants a token with the scopes {shown(missing)}, and the settings ask for others: add them to"
            " servers.<id>.credential.oauth.scope if calls may have them",
            cause="insufficient_scope",
        )
    if len(wanted) == len(asked):
        told = shown(" ".join(demand.scopes)) if demand.scopes else "more than it says"
        raise AuthorizationError(
            f"the token is not good for this call: the server wants the scopes {told}, which were asked for; see what"
            " the authorization server grants to this client",
            cause="insufficient_scope",
        )
    if steps > MAX_STEP_UPS:
        raise AuthorizationError(
            f"the server has wanted more scopes {MAX_STEP_UPS} times and now wants {shown(missing)}: name all that"
            " calls need in servers.<id>.credential.oauth.scope",
            cause="insufficient_scope",
        )
    return wanted
