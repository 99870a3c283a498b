"""Who issues tokens for a server, and how: RFC 9728, RFC 8414 and OpenID Connect Discovery, as MCP orders them.

Owns where metadata is looked for and what must hold of it before it is believed. Knows no token and no secret.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from openwop_mcp.client.auth._fetch import Fetch, document, shown, site, usable
from openwop_mcp.client.auth._scopes import Scopes, listed
from openwop_mcp.errors import AuthorizationError

__all__ = (
    "Authority",
    "Resource",
    "authority",
    "authority_urls",
    "canonical",
    "covers",
    "default_authority",
    "legacy_authority",
    "resource",
    "resource_urls",
)

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Resource:
    """A protected resource's metadata (RFC 9728, section 2).

    Attributes:
        identifier: Its ``resource`` as published; what resource indicators must say (RFC 8707).
        issuers: Its ``authorization_servers``, in its order.
        scopes: Its ``scopes_supported``.
    """

    identifier: str
    issuers: tuple[str, ...] = ()
    scopes: Scopes = ()


@dataclass(frozen=True, slots=True)
class Authority:
    """An authorization server's metadata (RFC 8414, section 2). Lists that it left out are None.

    Attributes:
        issuer: What it is known by, character by character.
        token_endpoint: Where tokens are had.
        authorization_endpoint: Where a person is sent.
        registration_endpoint: Where clients register.
        scopes: ``scopes_supported``.
        auth_methods: ``token_endpoint_auth_methods_supported``.
        signing_algorithms: ``token_endpoint_auth_signing_alg_values_supported``.
        challenge_methods: ``code_challenge_methods_supported``.
        metadata_documents: ``client_id_metadata_document_supported``.
        names_itself: ``authorization_response_iss_parameter_supported`` (RFC 9207).
        assumed: Whether there is no metadata, and these are the endpoints that MCP 2025-03-26 assumes then.
    """

    issuer: str
    token_endpoint: str
    authorization_endpoint: str | None = None
    registration_endpoint: str | None = None
    scopes: Scopes = ()
    auth_methods: tuple[str, ...] | None = None
    signing_algorithms: tuple[str, ...] | None = None
    challenge_methods: tuple[str, ...] | None = None
    metadata_documents: bool = False
    names_itself: bool = False
    assumed: bool = False


# --- the protected resource -----------------------------------------------------------------------------------------


def canonical(url: str) -> str:
    """A server's URL as a resource identifier (MCP 2026-07-28, canonical server URI).

    In lower case where case does not matter, without a default port, without a slash at the end.
    """
    parts = urlsplit(url)
    query = f"?{parts.query}" if parts.query else ""
    return f"{_origin(url)}{parts.path.rstrip('/')}{query}"


def covers(identifier: str, url: str) -> bool:
    """Whether a resource identifier is that of a server: its own, or that of a part of the host that it belongs to."""
    try:
        ours, theirs = urlsplit(canonical(url)), urlsplit(canonical(identifier))
    except ValueError:
        return False
    if "#" in identifier or "@" in urlsplit(identifier).netloc:
        return False
    if (theirs.scheme, theirs.netloc) != (ours.scheme, ours.netloc):
        return False
    if theirs.query:
        return (theirs.path, theirs.query) == (ours.path, ours.query)
    return f"{ours.path}/".startswith(f"{theirs.path}/")


def _meant(identifier: object, url: str) -> str:
    """Whose metadata it is, for a message: origins alone, as paths may be secret."""
    theirs, ours = (site(one) if isinstance(one, str) else None for one in (identifier, url))
    if theirs == ours:
        return f"for something else at {shown(ours)} than this server"
    return f"for {shown(theirs)}, not for {shown(ours)}"


def resource_urls(url: str) -> list[str]:
    """Where a server's metadata is if it does not say so: at its path, then at the root (RFC 9728, section 3.1)."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    query = f"?{parts.query}" if parts.query else ""
    root = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource"
    return list(dict.fromkeys([f"{root}{path}{query}", root]))


async def resource(fetch: Fetch, url: str, named: str | None = None) -> Resource | None:
    """A server's metadata; None if it has none.

    Args:
        fetch: Asks for it.
        url: The MCP endpoint.
        named: Where a challenge says that it is.

    Raises:
        AuthorizationError: It is another server's, or cannot be had now.
        EgressDeniedError: The settings do not allow to ask for it.
    """
    places = [] if named is None else [named]
    for place in dict.fromkeys([*places, *resource_urls(url)]):
        found = await document(fetch, usable(place, "the resource metadata's URL"))
        if found is None:
            continue
        identifier = found.get("resource")
        if not isinstance(identifier, str) or not covers(identifier, url):
            raise AuthorizationError(
                f"the resource metadata at {shown(site(place))} is {_meant(identifier, url)}: a token got with it would"
                " be another server's; check the server's url in the settings",
                cause="resource_mismatch",
            )
        return Resource(identifier, _texts(found, "authorization_servers") or (), listed(found.get("scopes_supported")))
    return None


# --- the authorization server ---------------------------------------------------------------------------------------


def authority_urls(issuer: str) -> list[str]:
    """Where an issuer's metadata may be, in the order of MCP 2026-07-28 (RFC 8414, section 3.1; OpenID Connect)."""
    parts = urlsplit(issuer)
    origin, path = f"{parts.scheme}://{parts.netloc}", parts.path.rstrip("/")
    return list(
        dict.fromkeys(
            [
                f"{origin}/.well-known/oauth-authorization-server{path}",
                f"{origin}/.well-known/openid-configuration{path}",
                f"{origin}{path}/.well-known/openid-configuration",
            ]
        )
    )


async def authority(fetch: Fetch, issuer: str) -> Authority:
    """An issuer's metadata.

    Raises:
        AuthorizationError: There is none, it is another issuer's, or it cannot be had now.
        EgressDeniedError: The settings do not allow to ask for it.
    """
    found = await _authority(fetch, (usable(issuer, "the issuer"),))
    if found is None:
        raise AuthorizationError(
            f"the authorization server {shown(issuer)} publishes no metadata (RFC 8414): check the server's credential,"
            " setting servers.<id>.credential.oauth.issuer",
            cause="no_metadata",
        )
    return found


async def legacy_authority(fetch: Fetch, url: str) -> Authority | None:
    """The metadata of a server that is its own authorization server, as in MCP 2025-03-26; None if it has none.

    Nobody has spelled this issuer yet, so both spellings of the origin are ones that its well-known URL is made from.

    Raises:
        AuthorizationError: It is another issuer's, or it cannot be had now.
    """
    origin = usable(_origin(url), "the server's URL")
    return await _authority(fetch, (origin, f"{origin}/"))


def default_authority(url: str) -> Authority:
    """What MCP 2025-03-26 assumes of a server without any metadata."""
    origin = usable(_origin(url), "the server's URL")
    return Authority(
        issuer=origin,
        token_endpoint=f"{origin}/token",
        authorization_endpoint=f"{origin}/authorize",
        registration_endpoint=f"{origin}/register",
        assumed=True,
    )


async def _authority(fetch: Fetch, issuers: tuple[str, ...]) -> Authority | None:
    others: list[object] = []
    for place in authority_urls(issuers[0]):
        found = await document(fetch, place)
        if found is None:
            continue
        if found.get("issuer") in issuers:
            return _read(found, found["issuer"])
        others.append(found.get("issuer"))
    if others:
        raise AuthorizationError(
            f"the metadata of the authorization server {shown(issuers[0])} names {shown(others[0])} as its issuer:"
            " nothing of it is used, since the two must be the same to the letter (RFC 8414, section 3.3)",
            cause="issuer_mismatch",
        )
    return None


def _read(found: dict[str, Any], issuer: str) -> Authority:
    made = Authority(
        issuer=issuer,
        token_endpoint=usable(found.get("token_endpoint"), "the token endpoint"),
        scopes=listed(found.get("scopes_supported")),
        auth_methods=_texts(found, "token_endpoint_auth_methods_supported"),
        signing_algorithms=_texts(found, "token_endpoint_auth_signing_alg_values_supported"),
        challenge_methods=_texts(found, "code_challenge_methods_supported"),
        metadata_documents=found.get("client_id_metadata_document_supported") is True,
        names_itself=found.get("authorization_response_iss_parameter_supported") is True,
    )
    if found.get("authorization_endpoint") is not None:
        made = replace(
            made, authorization_endpoint=usable(found["authorization_endpoint"], "the authorization endpoint")
        )
    if found.get("registration_endpoint") is not None:
        made = replace(made, registration_endpoint=usable(found["registration_endpoint"], "the registration endpoint"))
    return made


def _texts(found: dict[str, Any], name: str) -> tuple[str, ...] | None:
    values = found.get(name)
    return tuple(value for value in values if isinstance(value, str)) if isinstance(values, list) else None


def _origin(url: str) -> str:
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    host = f"[{host}]" if ":" in host else host
    port = "" if parts.port in {None, _PORTS.get(parts.scheme)} else f":{parts.port}"
    return f"{parts.scheme.lower()}://{host}{port}"
