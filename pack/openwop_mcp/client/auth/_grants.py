"""Requests to a token endpoint and what comes back: how a client proves itself, and what makes an answer a token.

Owns RFC 6749 sections 2.3, 5 and 6, RFC 7523 and RFC 8707 as far as they are requests. Knows no discovery and no file.
"""

from __future__ import annotations

import base64
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import quote_plus, urlencode

from authlib.oauth2.rfc7523 import private_key_jwt_sign  # type: ignore[import-untyped]
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from openwop_mcp.client.auth._fetch import OK, Fetch, fetched, json_object, shown
from openwop_mcp.client.auth._metadata import Authority
from openwop_mcp.client.auth._scopes import Scopes, split
from openwop_mcp.errors import AuthorizationError
from openwop_mcp.protocol.messages import excerpt

__all__ = ("JWT_BEARER", "Client", "TokenAnswer", "method_for", "proof", "request_token")

JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
"""RFC 7523, section 2.1."""

_ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

ASSERTION_LIFETIME = 60
"""Seconds that a client assertion is good for: it is used at once, and clocks differ."""

MAX_LIFETIME = 10 * 365 * 86_400
"""Seconds. A longer ``expires_in`` is no statement about a token's end."""

_TRANSIENT = frozenset({"server_error", "temporarily_unavailable"})
"""Error codes that say nothing of the request (RFC 6749, section 4.1.2.1); some token endpoints use them too."""

_B64TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_ERROR_CODE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,64}")

_ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "PS256", "RS384", "RS512", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "secp256k1": ("ES256K",),
    "Ed25519": ("EdDSA", "Ed25519"),
    "Ed448": ("EdDSA", "Ed448"),
}
"""What a key can sign with, by its type or curve; the first is taken unless the authorization server lists others."""


@dataclass(frozen=True, slots=True)
class Client:
    """What we are to an authorization server.

    Attributes:
        client_id: What it calls us; None where an assertion says all.
        secret: A client secret.
        private_key: A private key, as PEM.
        method: How the client proves itself; None to take what fits.
    """

    client_id: str | None
    secret: str | None = field(default=None, repr=False)
    private_key: str | None = field(default=None, repr=False)
    method: str | None = None


@dataclass(frozen=True, slots=True)
class TokenAnswer:
    """A token as it was issued.

    Attributes:
        access_token: Goes into ``Authorization: Bearer``.
        expires_in: Seconds that it is good for; None if that was not said.
        refresh_token: For the next one.
        scopes: What was granted; None if that is what was asked for.
    """

    access_token: str = field(repr=False)
    expires_in: float | None = None
    refresh_token: str | None = field(default=None, repr=False)
    scopes: Scopes | None = None


def method_for(client: Client, authority: Authority) -> str:
    """How a client proves itself at the token endpoint: as configured or registered, else what both sides can."""
    if client.method is not None:
        return client.method
    if client.private_key is not None:
        return "private_key_jwt"
    if client.secret is None:
        return "none"
    # Whoever issues passwords has to take them as Basic (RFC 6749, section 2.3.1), so that is what is left.
    listed = authority.auth_methods or ("client_secret_basic",)
    return (
        "client_secret_post"
        if "client_secret_post" in listed and "client_secret_basic" not in listed
        else ("client_secret_basic")
    )


def proof(client: Client, authority: Authority) -> tuple[dict[str, str], dict[str, str]]:
    """Headers and form fields that prove who the client is.

    Raises:
        AuthorizationError: The settings lack what the method needs, or the key is none; cause ``credential``.
    """
    method = method_for(client, authority)
    name = {} if client.client_id is None else {"client_id": client.client_id}
    if method == "none":
        return {}, name
    if method == "private_key_jwt":
        if client.private_key is None or client.client_id is None:
            raise _lacking(method, "private_key")
        return {}, {
            **name,
            "client_assertion_type": _ASSERTION_TYPE,
            "client_assertion": _assertion(client.client_id, client.private_key, authority),
        }
    if client.secret is None or client.client_id is None:
        raise _lacking(method, "client_secret")
    if method == "client_secret_post":
        return {}, {**name, "client_secret": client.secret}
    # Both halves are form-encoded first, so that a colon in either is no separator (RFC 6749, section 2.3.1).
    pair = f"{quote_plus(client.client_id)}:{quote_plus(client.secret)}"
    return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}, {}


def _lacking(method: str, key: str) -> AuthorizationError:
    return AuthorizationError(
        f"{method} needs {key}: write it beside client_id in servers.<id>.credential.oauth, or change token_auth",
        cause="credential",
    )


def _assertion(client_id: str, pem: str, authority: Authority) -> str:
    key, kind = _private_key(pem)
    able = _ALGORITHMS[kind]
    wanted = authority.signing_algorithms
    algorithm = next((name for name in able if wanted is None or name in wanted), able[0])
    with warnings.catch_warnings():
        # The library warns of "EdDSA", which is the name that authorization servers know (RFC 8037).
        warnings.simplefilter("ignore")
        signed = private_key_jwt_sign(
            key, client_id, authority.issuer, alg=algorithm, header={}, expires_in=ASSERTION_LIFETIME
        )
    return cast("str", signed)


def _private_key(pem: str) -> tuple[ECKey | OKPKey | RSAKey, str]:
    for kind in (ECKey, RSAKey, OKPKey):
        try:
            key = kind.import_key(pem)
        except (JoseError, ValueError, TypeError):
            continue
        name = "RSA" if isinstance(key, RSAKey) else key.curve_name
        if key.is_private and name in _ALGORITHMS:
            return key, name
    raise AuthorizationError(
        "private_key is no key to sign with: give an RSA, EC (P-256, P-384, P-521) or Ed25519 private key as PEM, not"
        " encrypted",
        cause="credential",
    )


async def request_token(
    fetch: Fetch,
    authority: Authority,
    client: Client,
    grant: Mapping[str, str],
    *,
    resource: str,
    scopes: Scopes = (),
) -> TokenAnswer:
    """Ask for a token, once.

    Args:
        fetch: Sends the request.
        authority: Who is asked.
        client: Who asks.
        grant: ``grant_type`` and what belongs to it.
        resource: What the token is for (RFC 8707), as its metadata spells it.
        scopes: What it is to be good for.

    Raises:
        AuthorizationError: No token; cause ``refused`` with the code in ``oauthError``, ``malformed`` or
            ``unreachable``. What a server says beside its code is not repeated: it may hold what was sent.
    """
    headers, fields = proof(client, authority)
    form = {**grant, **fields, "resource": resource}
    if scopes:
        form["scope"] = " ".join(scopes)
    answer = await fetched(
        fetch,
        "POST",
        authority.token_endpoint,
        {"Content-Type": "application/x-www-form-urlencoded", **headers},
        urlencode(form).encode("ascii"),
    )
    found = json_object(answer.body)
    if answer.status != OK:
        raise _refusal(found, answer.status, authority)
    return _token(found, authority)


def _refusal(found: dict[str, Any] | None, status: int, authority: Authority) -> AuthorizationError:
    code = found.get("error") if found is not None else None
    known = code if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else None
    said = f"'{known}'" if known is not None else f"status {status}"
    return AuthorizationError(
        f"the authorization server {shown(authority.issuer)} issued no token: {said}",
        cause="refused",
        retryable=known in _TRANSIENT,
        oauth_error=known,
    )


def _token(found: dict[str, Any] | None, authority: Authority) -> TokenAnswer:
    who = f"the authorization server {shown(authority.issuer)}"
    if found is None:
        raise AuthorizationError(f"{who} answered a token request with what is no JSON object", cause="malformed")
    access, kind, scope = found.get("access_token"), found.get("token_type"), found.get("scope")
    if not isinstance(access, str) or _B64TOKEN.fullmatch(access) is None:
        raise AuthorizationError(f"{who} issued what is no bearer token (RFC 6750, section 2.1)", cause="malformed")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        told = excerpt(kind.encode("utf-8", "backslashreplace"))[:64] if isinstance(kind, str) else "none"
        raise AuthorizationError(
            f"{who} issued a token of type '{told}': only Bearer tokens can be sent", cause="unsupported"
        )
    refresh = found.get("refresh_token")
    return TokenAnswer(
        access_token=access,
        expires_in=_seconds(found.get("expires_in")),
        refresh_token=refresh if isinstance(refresh, str) and refresh else None,
        scopes=split(scope) if isinstance(scope, str) else None,
    )


def _seconds(value: object) -> float | None:
    """Seconds that a token is good for. Some servers write the number as a string."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds <= MAX_LIFETIME else None
