"""Tokens that a person granted: kept in a file, refreshed once for all who share it, and asked for by a login.

Owns what a grant is worth and when a person has to come back. Sends nobody anywhere unless it is given a way to.
"""

from __future__ import annotations

import asyncio
import secrets as random
from collections.abc import Callable
from dataclasses import replace

import msgspec

from openwop_mcp.client.auth._code import Visit, code_of, request
from openwop_mcp.client.auth._discovery import Discovery, Place
from openwop_mcp.client.auth._fetch import Fetch, shown
from openwop_mcp.client.auth._grants import Client, TokenAnswer, request_token
from openwop_mcp.client.auth._held import Demand, Held, due, expiry, refuse_fresh
from openwop_mcp.client.auth._machine import stepped_up
from openwop_mcp.client.auth._registration import as_client, by_document, register, still_good
from openwop_mcp.client.auth._scopes import Scopes, initial, split, union, with_offline_access
from openwop_mcp.client.auth._secrets import Secrets
from openwop_mcp.client.auth._store import Grant, Record, StoreKey, TokenStore
from openwop_mcp.config import OAuth
from openwop_mcp.errors import AuthorizationError

__all__ = ("Person",)


class Person:
    """The source of the tokens that a person granted.

    Args:
        key: Whose tokens.
        oauth: The settings.
        secrets: Their secrets.
        discovery: Who is asked.
        fetch: Sends requests.
        store: Where grants are kept.
        clock: Seconds of the epoch.
        visit: Sends the person to log in; None where nobody is there.
        redirect_uri: Where they come back to.
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
        visit: Visit | None,
        redirect_uri: str | None,
    ) -> None:
        self._key = key
        self._oauth = oauth
        self._secrets = secrets
        self._discovery = discovery
        self._fetch = fetch
        self._store = store
        self._clock = clock
        self._visit = visit
        self._redirect_uri = redirect_uri
        self._configured = split(oauth.scope)
        self._steps = 0

    async def token(self, _: Held | None) -> Held | None:
        """The token that is kept, refreshed if it ends.

        Raises:
            AuthorizationError: There is none and nobody to ask; cause ``login_required``.
        """
        grant = self._grant(await self._read())
        if grant is not None and not _due(grant, self._clock()):
            return self._held(grant)
        if grant is not None:
            async with self._store.locked(self._key):
                record = await self._read()
                grant = self._grant(record)
                if grant is not None and not _due(grant, self._clock()):
                    return self._held(grant)
                renewed = await self._refreshed(record, grant)
            if renewed is not None:
                return self._held(renewed)
            if grant is not None and not (held := self._held(grant)).ended(self._clock()):
                return held
        if self._visit is None:
            raise self._login_required("no token that could be used is kept for it")
        # The challenge of a request without a token says what to ask for.
        return None

    async def renew(self, demand: Demand) -> Held:
        """A token that the server may take after it refused a request.

        Raises:
            AuthorizationError: There is none; cause ``login_required`` where a person has to come back.
        """
        if (kept := self._another(self._grant(await self._read()), demand)) is not None:
            return self._held(kept)
        place = await self._discovery.again(demand.metadata)
        async with self._store.locked(self._key):
            record = await self._read()
            grant = self._grant(record)
            if (kept := self._another(grant, demand)) is not None:
                return self._held(kept)
            grant = grant if grant is not None and grant.issuer == place.issuer else None
            renewed = None
            refuse_fresh(demand, place.issuer)
            if not demand.step_up:
                renewed = await self._refreshed(record, grant)
            elif self._visit is None:
                await self._want(record, demand)
        if renewed is not None:
            return replace(self._held(renewed), new=True)
        if self._visit is None:
            raise self._login_required("the server refuses what is kept for it, and that cannot be refreshed")
        asked = grant.requested if grant is not None else ()
        if demand.step_up:
            self._steps += 1
            asked = stepped_up(demand, asked, self._configured, self._steps)
        return replace(self._held(await self._authorize(self._visit, place, demand.scopes, asked)), new=True)

    async def login(self, demand: Demand) -> Grant:
        """Send a person to log in, whatever is kept, and keep what they grant.

        Raises:
            AuthorizationError: They did not, or it is not to be had this way.
        """
        assert self._visit is not None
        place = await self._discovery.again(demand.metadata)
        record = await self._read()
        before = record.grant.requested if record.grant is not None and record.grant.issuer == place.issuer else ()
        return await self._authorize(self._visit, place, demand.scopes, union(before, record.wanted))

    # --- what is kept

    async def _read(self) -> Record:
        record = await asyncio.to_thread(self._store.read, self._key)
        grant = record.grant
        if grant is not None:
            self._tell(grant)
            self._discovery.pin(grant.issuer)
        for registration in record.registrations.values():
            if registration.client_secret is not None:
                self._secrets.tell(registration.client_secret)
        return record

    async def _write(self, record: Record) -> None:
        # Not to be torn: what a refresh cost is lost if it is not written.
        await asyncio.shield(asyncio.to_thread(self._store.write, record))

    def _tell(self, grant: Grant) -> None:
        self._secrets.tell(grant.access_token)
        if grant.refresh_token is not None:
            self._secrets.tell(grant.refresh_token)

    def _grant(self, record: Record) -> Grant | None:
        """The grant, unless the settings no longer allow its issuer."""
        grant = record.grant
        return None if grant is None or self._oauth.issuer not in {None, grant.issuer} else grant

    def _another(self, grant: Grant | None, demand: Demand) -> Grant | None:
        """A grant with another token than the one that was refused: another worker, or a login, has been faster."""
        if grant is None or _due(grant, self._clock()):
            return None
        refused = demand.refused
        return grant if refused is None or grant.access_token != refused.access_token else None

    def _held(self, grant: Grant) -> Held:
        identity = (grant.issuer, grant.client_id, grant.grant_id, *sorted(grant.granted))
        due_at = due(grant.obtained_at, grant.expires_at)
        return Held(grant.access_token, grant.issuer, identity, due_at, grant.expires_at)

    async def _want(self, record: Record, demand: Demand) -> None:
        """Keep what the server wants more, so that the next login asks for it."""
        asked = record.grant.requested if record.grant is not None else ()
        scopes = stepped_up(demand, asked, self._configured, steps=0)
        await self._write(msgspec.structs.replace(record, wanted=union(record.wanted, demand.scopes)))
        missing = " ".join(scope for scope in scopes if scope not in asked)
        raise AuthorizationError(
            f"the token is not good for this call: the server wants the scopes {shown(missing)} too. {self._advice()},"
            " which will ask for them",
            cause="insufficient_scope",
        )

    def _login_required(self, why: str) -> AuthorizationError:
        return AuthorizationError(
            f"server '{self._key.server_id}' wants a person's token, and {why}. {self._advice()}",
            cause="login_required",
        )

    def _advice(self) -> str:
        return f"Run: worker.py login {self._key.server_id}"

    # --- tokens

    async def _refreshed(self, record: Record, grant: Grant | None) -> Grant | None:
        """Refresh a grant; None if that cannot be done. To be called with the key's lock, which makes it once only."""
        client = None if grant is None or grant.refresh_token is None else self._client_of(record, grant)
        if grant is None or grant.refresh_token is None or client is None:
            return None
        authority = await self._discovery.of(grant.issuer)
        fields = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token}
        try:
            answer = await request_token(self._fetch, authority, client, fields, resource=grant.resource)
        except AuthorizationError as error:
            if error.cause != "refused" or error.retryable:
                raise
            # It will not be taken another time either, and some servers take a second try for a theft.
            spent = msgspec.structs.replace(grant, refresh_token=None)
            await self._write(msgspec.structs.replace(_without(record, error, grant.issuer), grant=spent))
            return None
        now = self._clock()
        renewed = msgspec.structs.replace(
            grant,
            access_token=answer.access_token,
            refresh_token=answer.refresh_token or grant.refresh_token,
            expires_at=expiry(answer, now),
            obtained_at=now,
            granted=grant.granted if answer.scopes is None else answer.scopes,
        )
        self._tell(renewed)
        await self._write(msgspec.structs.replace(record, grant=renewed))
        return renewed

    def _client_of(self, record: Record, grant: Grant) -> Client | None:
        """The client that a grant was given to; no other may use it."""
        if self._oauth.client_id is not None:
            return self._secrets.client() if self._oauth.client_id == grant.client_id else None
        if self._oauth.client_metadata_url == grant.client_id:
            return Client(grant.client_id, method="none")
        registration = record.registrations.get(grant.issuer)
        known = registration is not None and registration.client_id == grant.client_id
        return as_client(registration) if registration is not None and known else None

    # --- a login

    async def _authorize(self, visit: Visit, place: Place, challenged: Scopes, before: Scopes) -> Grant:
        assert self._redirect_uri is not None
        client = await self._client_for(place, self._redirect_uri)
        assert client.client_id is not None
        scopes = self._configured or with_offline_access(
            initial(configured=(), challenged=challenged, supported=place.resource.scopes, before=before),
            place.authority.scopes,
        )
        resource = place.resource.identifier
        sent = request(place.authority, client.client_id, self._redirect_uri, resource=resource, scopes=scopes)
        self._secrets.tell(sent.verifier)
        code = code_of(sent, await visit(sent.url))
        self._secrets.tell(code)
        try:
            answer = await request_token(self._fetch, place.authority, client, sent.grant(code), resource=resource)
        except AuthorizationError as error:
            async with self._store.locked(self._key):
                record = await self._read()
                await self._write(_without(record, error, place.issuer))
            raise
        grant = self._granted(place, client.client_id, scopes, answer)
        self._tell(grant)
        async with self._store.locked(self._key):
            record = await self._read()
            await self._write(msgspec.structs.replace(record, grant=grant, wanted=()))
        self._discovery.pin(grant.issuer)
        return grant

    def _granted(self, place: Place, client_id: str, scopes: Scopes, answer: TokenAnswer) -> Grant:
        now = self._clock()
        return Grant(
            grant_id=random.token_hex(16),
            issuer=place.issuer,
            client_id=client_id,
            resource=place.resource.identifier,
            access_token=answer.access_token,
            refresh_token=answer.refresh_token,
            expires_at=expiry(answer, now),
            obtained_at=now,
            requested=scopes,
            granted=scopes if answer.scopes is None else answer.scopes,
        )

    async def _client_for(self, place: Place, redirect_uri: str) -> Client:
        """Who we are there: known before, by a document, registered before, or registered now."""
        if self._oauth.client_id is not None:
            return self._secrets.client()
        if self._oauth.client_metadata_url is not None:
            client = by_document(self._oauth.client_metadata_url, place.authority)
            if client is not None:
                return client
        record = await self._read()
        registration = still_good(record.registrations.get(place.issuer), redirect_uri, self._clock())
        if registration is None:
            registration = await register(self._fetch, place.authority, redirect_uri)
            if registration.client_secret is not None:
                self._secrets.tell(registration.client_secret)
            async with self._store.locked(self._key):
                record = await self._read()
                known = {**record.registrations, place.issuer: registration}
                await self._write(msgspec.structs.replace(record, registrations=known))
        return as_client(registration)


def _due(grant: Grant, now: float) -> bool:
    at = due(grant.obtained_at, grant.expires_at)
    return at is not None and now >= at


def _without(record: Record, error: AuthorizationError, issuer: str) -> Record:
    """A record without the registration that an authorization server no longer knows."""
    if error.facts.get("oauthError") != "invalid_client":
        return record
    kept = {known: registration for known, registration in record.registrations.items() if known != issuer}
    return msgspec.structs.replace(record, registrations=kept)
