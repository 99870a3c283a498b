"""Who we are to an authorization server: known before, by a metadata document, or by registering (RFC 7591).

Owns the order of these ways (MCP 2026-07-28, client registration). Keeps nothing: what was registered is handed back.
"""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import urlsplit

from openwop_mcp.client.auth._fetch import Fetch, fetched, json_object, shown
from openwop_mcp.client.auth._grants import Client
from openwop_mcp.client.auth._metadata import Authority
from openwop_mcp.client.auth._store import Registration
from openwop_mcp.errors import AuthorizationError
from openwop_mcp.protocol.messages import excerpt

__all__ = ("as_client", "by_document", "register", "still_good")

CLIENT_NAME: Final = "openwop-mcp-pack"
"""What a person reads who is asked to let us in."""

_METHODS: Final = ("none", "client_secret_basic", "client_secret_post")
"""How a registered client may prove itself, best first: a program on somebody's machine keeps no secret from them, and
the code is bound to it by PKCE."""

_REGISTERED: Final = frozenset({200, 201})
"""RFC 7591 has 201; some servers answer 200."""


def by_document(url: str, authority: Authority) -> Client | None:
    """The client of a metadata document, where the authorization server takes one.

    Raises:
        AuthorizationError: The URL can be none of a metadata document; cause ``credential``.
    """
    parts = urlsplit(url)
    if parts.scheme != "https" or parts.path in {"", "/"}:
        raise AuthorizationError(
            "client_metadata_url is no place for a client metadata document: it needs https and a path, as in"
            ' client_metadata_url = "https://example.org/pack.json"',
            cause="credential",
        )
    return Client(url, method="none") if authority.metadata_documents else None


def as_client(registration: Registration) -> Client:
    """The client that a registration made of us."""
    return Client(registration.client_id, registration.client_secret, method=registration.method)


def still_good(registration: Registration | None, redirect_uri: str, now: float) -> Registration | None:
    """A registration, if it can be used for a login with that redirect URI."""
    if registration is None or registration.redirect_uri != redirect_uri:
        return None
    return None if 0 < registration.expires_at <= now else registration


async def register(fetch: Fetch, authority: Authority, redirect_uri: str) -> Registration:
    """Register with an authorization server.

    Raises:
        AuthorizationError: It takes no registrations, or not this one; causes ``no_client`` and ``malformed``.
    """
    who = f"the authorization server {shown(authority.issuer)}"
    ask = (
        f"ask who runs it for a client, with the redirect URI {redirect_uri} (choose its port: login --port), and write"
        ' client_id = "..." in servers.<id>.credential.oauth'
    )
    if authority.registration_endpoint is None:
        raise AuthorizationError(f"{who} does not know us and takes no registrations: {ask}", cause="no_client")
    method = _method(authority, who, ask)
    wanted = {
        "client_name": CLIENT_NAME,
        "application_type": "native",
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }
    answer = await fetched(
        fetch,
        "POST",
        authority.registration_endpoint,
        {"Content-Type": "application/json"},
        json.dumps(wanted).encode(),
    )
    found = json_object(answer.body)
    if answer.status not in _REGISTERED:
        code = found.get("error") if found is not None else None
        said = excerpt(code.encode("utf-8", "backslashreplace"))[:64] if isinstance(code, str) else None
        raise AuthorizationError(
            f"{who} refused to register us ({said or f'status {answer.status}'}): {ask}",
            cause="no_client",
            oauth_error=said,
        )
    client_id = found.get("client_id") if found is not None else None
    if found is None or not isinstance(client_id, str) or not client_id:
        raise AuthorizationError(f"{who} registered us without a client_id: {ask}", cause="malformed")
    secret, given, ends = (
        found.get(name) for name in ("client_secret", "token_endpoint_auth_method", "client_secret_expires_at")
    )
    return Registration(
        client_id=client_id,
        method=given if given in _METHODS else method,
        redirect_uri=redirect_uri,
        client_secret=secret if isinstance(secret, str) and secret else None,
        expires_at=float(ends) if isinstance(ends, int | float) and not isinstance(ends, bool) else 0,
    )


def _method(authority: Authority, who: str, ask: str) -> str:
    # What a server leaves out means Basic (RFC 8414, section 2); where nothing is published, it is a public client.
    listed = ("none",) if authority.assumed else authority.auth_methods or ("client_secret_basic",)
    for method in _METHODS:
        if method in listed:
            return method
    raise AuthorizationError(
        f"{who} takes none of the ways in which a registered client could prove itself: {ask}", cause="no_client"
    )
