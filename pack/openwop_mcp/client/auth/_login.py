"""What ``worker.py login SERVER`` does: a person logs in, and the worker has a token from then on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from openwop_mcp.client.auth._authorizer import OAuthAuthorizer
from openwop_mcp.client.auth._fetch import Fetch, fetched, usable
from openwop_mcp.client.auth._loopback import PATIENCE, Loopback, Pasting
from openwop_mcp.client.auth._store import TokenStore
from openwop_mcp.config import OAuth
from openwop_mcp.errors import InvalidRequestError

__all__ = ("Login", "login")

UNAUTHORIZED = 401
REFUSALS = frozenset({UNAUTHORIZED, 403})


@dataclass(frozen=True, slots=True)
class Login:
    """What a login brought.

    Attributes:
        issuer: Who let us in.
        client_id: What we are there.
        scopes: What was granted.
        expires_at: When the first token ends, in seconds of the epoch; None if that is unknown.
        renewable: Whether it can be refreshed without a person.
    """

    issuer: str
    client_id: str
    scopes: tuple[str, ...]
    expires_at: float | None
    renewable: bool


async def login(
    *,
    server_id: str,
    url: str,
    oauth: OAuth,
    environ: Mapping[str, str],
    fetch: Fetch,
    store: TokenStore,
    on_secret: Callable[[str], None],
    show: Callable[[str], None],
    pasting: Pasting | None = None,
    port: int = 0,
    guess: bool = False,
    patience: float = PATIENCE,
    clock: Callable[[], float] = time.time,
) -> Login:
    """Have a person log in, and keep the tokens that come of it.

    Args:
        server_id: The server's id in the settings.
        url: Its MCP endpoint.
        oauth: The settings.
        environ: Where their secrets are.
        fetch: Sends requests, within the server's limits and network.
        store: Where the tokens go.
        on_secret: Is told every token and secret.
        show: Is given the URL that the person has to open; it is http or https.
        pasting: Where they can say by hand where their browser ended, which may be on another machine.
        port: Where to wait for them on this machine; 0 for any port.
        guess: As in :class:`OAuthAuthorizer`.
        patience: Seconds to wait for them.
        clock: Seconds of the epoch.

    Raises:
        InvalidRequestError: This server's settings want no person.
        AuthorizationError: There is no token.
        EgressDeniedError: The settings do not allow to go where it would be had.
    """
    if oauth.grant != "authorization_code":
        raise InvalidRequestError(
            f"server '{server_id}' needs no login: its grant is {oauth.grant}, which the worker uses by itself"
        )
    challenges = await _challenges(fetch, usable(url, "the server's URL"), server_id)
    async with Loopback(show, port=port, patience=patience, pasting=pasting) as loopback:
        authorizer = OAuthAuthorizer(
            server_id=server_id,
            url=url,
            oauth=oauth,
            environ=environ,
            fetch=fetch,
            store=store,
            on_secret=on_secret,
            visit=loopback.visit,
            redirect_uri=loopback.redirect_uri,
            guess=guess,
            clock=clock,
        )
        grant = await authorizer.login(challenges)
    return Login(grant.issuer, grant.client_id, grant.granted, grant.expires_at, grant.refresh_token is not None)


async def _challenges(fetch: Fetch, url: str, server_id: str) -> list[str]:
    """What the server says to a stranger. It is asked with a message that no server acts on.

    Raises:
        InvalidRequestError: It lets strangers in.
    """
    answer = await fetched(
        fetch,
        "POST",
        url,
        {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"},
        b"{}",
    )
    if answer.status not in REFUSALS:
        raise InvalidRequestError(
            f"server '{server_id}' needs no login: it answers a stranger with status {answer.status} and asks for no"
            " token; take its credential out"
        )
    challenge = answer.headers.get("www-authenticate")
    return [challenge] if answer.status == UNAUTHORIZED and challenge else []
