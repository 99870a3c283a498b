"""What authorization needs of HTTP: one request, one whole answer. Owns which URLs may be asked; opens no socket."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from openwop_mcp import jsontext
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import AuthorizationError, EgressDeniedError, McpError
from openwop_mcp.protocol.messages import MAX_DEPTH, excerpt

__all__ = ("CAUSES", "Fetch", "Fetched", "document", "fetched", "json_object", "shown", "site", "usable")

CAUSES: Final[Mapping[str, str]] = {
    "login_required": "a person has to log in",
    "login_failed": "the login did not end with a code that may be redeemed",
    "no_metadata": "nothing says where tokens are issued",
    "resource_mismatch": "the metadata is another server's",
    "issuer_mismatch": "an authorization server is not the one that it should be",
    "unsupported": "the authorization server cannot do what is needed",
    "no_client": "there is no way to become a client of the authorization server",
    "refused": "the authorization server refused",
    "token_refused": "the server refuses tokens that were issued for it",
    "insufficient_scope": "the token may not do this, and no other can be had",
    "unreachable": "the authorization server gave no usable answer",
    "malformed": "the authorization server broke its protocol",
    "unsafe_url": "a URL is not one to send secrets to",
    "credential": "a secret of the settings cannot be used",
    "store": "the file with the tokens cannot be used",
}
"""The cause words of :class:`AuthorizationError`, each with what it says."""

FIRST_SERVER_ERROR = 500
TOO_MANY_REQUESTS = 429
OK = 200


class Fetched(Protocol):
    """A whole HTTP response."""

    @property
    def status(self) -> int:
        """HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers; looked up without regard to case."""
        ...

    @property
    def body(self) -> bytes:
        """The body, decoded from its transfer and content codings."""
        ...


Fetch = Callable[[str, str, Mapping[str, str], bytes | None], Awaitable[Fetched]]
"""Sends a request (method, URL, headers, body) and reads the response whole, within limits of time, size and network.
Follows no redirect to another origin, and raises :class:`McpError` if there is no whole response."""


def usable(url: object, what: str) -> str:
    """Let a URL pass that secrets may be sent to: ``https``, or ``http`` to this machine (RFC 8252, section 7.3).

    Args:
        url: The URL as it stands in the settings or in what a server sent.
        what: What it is, for the message.

    Raises:
        AuthorizationError: It is none, with cause ``unsafe_url``.
    """
    if isinstance(url, str) and url.isascii() and url.isprintable() and " " not in url:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        plain = host is not None and parts.username is None and parts.password is None and not parts.fragment
        if plain and port != 0 and (parts.scheme == "https" or (parts.scheme == "http" and _loopback(host or ""))):
            return url
    raise AuthorizationError(
        f"{what} {shown(url)} is no https URL: tokens and secrets are sent to https only, and to http on this machine",
        cause="unsafe_url",
    )


def site(url: str) -> str:
    """Scheme, host and port of a URL, for a message: a path may be secret, and so may what stands before the host."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def shown(value: object) -> str:
    """A value that a server sent, for a message: printable and bounded."""
    return f"'{excerpt(value.encode('utf-8', 'backslashreplace'))}'" if isinstance(value, str) else "(none)"


async def fetched(
    fetch: Fetch, method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Fetched:
    """Send a request. What is not known of it says nothing of the call that needed a token.

    Raises:
        AuthorizationError: There is no answer, or one that says to come back later; cause ``unreachable``.
        EgressDeniedError: The settings do not allow to go there.
    """
    try:
        answer = await fetch(method, url, {"Accept": "application/json", **(headers or {})}, body)
    except (AuthorizationError, EgressDeniedError):
        raise
    except McpError as error:
        raise AuthorizationError(
            f"no answer to {method} at {shown(site(url))}, which is needed for a token: {error.message}",
            cause="unreachable",
            retryable=error.retryable,
            delivery=Delivery.NOT_SENT,
        ) from error
    if answer.status >= FIRST_SERVER_ERROR or answer.status == TOO_MANY_REQUESTS:
        raise AuthorizationError(
            f"{method} at {shown(site(url))}, which is needed for a token, was answered with status"
            f" {answer.status}: try again later",
            cause="unreachable",
            retryable=True,
        )
    return answer


async def document(fetch: Fetch, url: str) -> dict[str, Any] | None:
    """The JSON object at a URL; None if there is nothing of the kind.

    Raises:
        AuthorizationError: An outage, which says nothing of what is there.
    """
    answer = await fetched(fetch, "GET", url)
    return json_object(answer.body) if answer.status == OK else None


def json_object(body: bytes) -> dict[str, Any] | None:
    """The object that a body holds; None if it holds anything else, such as a page for people."""
    if jsontext.nests(body, MAX_DEPTH):
        return None
    try:
        value = jsontext.decode(body)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
