"""Finds out who issues tokens for a server, and notices when that changes. Knows whose a credential is."""

from __future__ import annotations

from dataclasses import dataclass

from openwop_mcp.client.auth import _metadata
from openwop_mcp.client.auth._fetch import Fetch, shown
from openwop_mcp.client.auth._metadata import Authority, Resource
from openwop_mcp.errors import AuthorizationError

__all__ = ("Discovery", "Place")


@dataclass(frozen=True, slots=True)
class Place:
    """Where tokens for a server are had."""

    resource: Resource
    authority: Authority

    @property
    def issuer(self) -> str:
        """Who issues them."""
        return self.authority.issuer


class Discovery:
    """Discovery for one server.

    Args:
        url: The MCP endpoint.
        fetch: Sends requests.
        issuer: The only issuer that the settings allow; None for the one that the server names.
        bound: Whether the settings hold a credential of one authorization server. It never goes to another one, even
            if the server should name another.
        guess: Whether to fall back on the endpoints of MCP 2025-03-26 where there is no metadata at all.
    """

    def __init__(self, url: str, fetch: Fetch, *, issuer: str | None, bound: bool, guess: bool) -> None:
        self._url = url
        self._fetch = fetch
        self._issuer = issuer
        self._bound = bound
        self._guess = guess
        self._pin: str | None = None
        self._known: Place | None = None

    def pin(self, issuer: str) -> None:
        """Say who issued what is held; a credential that is bound stays there."""
        if self._pin is None or not self._bound:
            self._pin = issuer

    async def look(self, named: str | None = None, *, asked: bool = True) -> Place | None:
        """Find out anew.

        Args:
            named: Where a challenge says that the server's metadata is.
            asked: Whether the server wants a token. If it does not, a server without metadata has no need of one, and
                nothing is guessed.

        Raises:
            AuthorizationError: See the causes ``no_metadata``, ``resource_mismatch``, ``issuer_mismatch``,
                ``unsafe_url`` and ``unreachable``.
            EgressDeniedError: The settings do not allow to go there.
        """
        found = await _metadata.resource(self._fetch, self._url, named)
        if found is None and self._issuer is None:
            authority = await self._without_metadata() if asked else None
            resource = Resource(_metadata.canonical(self._url))
        else:
            resource = found or Resource(_metadata.canonical(self._url))
            authority = await self._authority(self._choose(found))
        if authority is None:
            return None
        self._keep(authority.issuer)
        self._known = Place(resource, authority)
        return self._known

    async def again(self, named: str | None = None) -> Place:
        """Find out anew, after a refusal. An outage says nothing: what was known goes on to hold.

        Raises:
            AuthorizationError: As :meth:`look`, and where there is nothing.
        """
        try:
            place = await self.look(named)
        except AuthorizationError as error:
            if self._known is None or not error.retryable:
                raise
            return self._known
        if place is None:
            raise AuthorizationError(
                "the server wants a token and nothing says who issues it: it has no resource metadata (RFC 9728) and is"
                ' no authorization server; write issuer = "https://..." in servers.<id>.credential.oauth',
                cause="no_metadata",
            )
        return place

    async def of(self, issuer: str) -> Authority:
        """The metadata of the issuer of a token that is held already, as it is known or else anew."""
        return await self._authority(issuer)

    @property
    def known(self) -> Place | None:
        """What was found last."""
        return self._known

    async def _without_metadata(self) -> Authority | None:
        found = await _metadata.legacy_authority(self._fetch, self._url)
        return found or (_metadata.default_authority(self._url) if self._guess else None)

    async def _authority(self, issuer: str) -> Authority:
        if self._known is not None and self._known.issuer == issuer:
            return self._known.authority
        if self._guess and self._issuer is None and issuer == _metadata.default_authority(self._url).issuer:
            # A grant of a server that is its own authorization server, perhaps without metadata.
            return await self._without_metadata() or _metadata.default_authority(self._url)
        return await _metadata.authority(self._fetch, issuer)

    def _choose(self, found: Resource | None) -> str:
        issuers = found.issuers if found is not None else ()
        if self._issuer is not None:
            if issuers and self._issuer not in issuers:
                raise AuthorizationError(
                    f"the server now names {shown(issuers[0])} as its authorization server, and the settings allow"
                    f" {shown(self._issuer)} only: if the change is right, get credentials there and change"
                    " servers.<id>.credential.oauth.issuer",
                    cause="issuer_mismatch",
                )
            return self._issuer
        if not issuers:
            raise AuthorizationError(
                'the server\'s resource metadata names no authorization server: write issuer = "https://..." in'
                " servers.<id>.credential.oauth",
                cause="no_metadata",
            )
        return self._pin if self._pin in issuers and self._pin is not None else issuers[0]

    def _keep(self, issuer: str) -> None:
        if self._bound and self._issuer is None and self._pin is not None:
            self.hold(self._pin, issuer)
        self._pin = issuer

    @staticmethod
    def hold(pinned: str, issuer: str) -> None:
        """Hold a credential to the issuer that it belongs to.

        Raises:
            AuthorizationError: This is another one; cause ``issuer_mismatch``.
        """
        if pinned != issuer:
            raise AuthorizationError(
                f"the server's authorization server was {shown(pinned)} and is now {shown(issuer)}: the"
                " credential in the settings belongs to the former and is not shown to another; if the change is right,"
                ' get one there and write issuer = "..." beside it',
                cause="issuer_mismatch",
            )
