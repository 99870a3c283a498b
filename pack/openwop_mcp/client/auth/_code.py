"""The authorization code flow: a person is sent to an authorization server and comes back with a code.

Owns PKCE, ``state`` and the check of ``iss`` (OAuth 2.1; RFC 7636; RFC 9207). Knows no browser and no file.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlencode, urlsplit

from authlib.common.security import generate_token  # type: ignore[import-untyped]
from authlib.oauth2.rfc7636 import create_s256_code_challenge  # type: ignore[import-untyped]

from openwop_mcp.client.auth._fetch import shown
from openwop_mcp.client.auth._metadata import Authority
from openwop_mcp.client.auth._scopes import Scopes
from openwop_mcp.errors import AuthorizationError
from openwop_mcp.protocol.messages import excerpt

__all__ = ("Request", "Visit", "code_of", "request")

Visit = Callable[[str], Awaitable[str]]
"""Sends a person to an authorization URL, and gives the URL that they were redirected to."""

VERIFIER_LENGTH = 64
"""Characters; RFC 7636 asks for 43 to 128 that cannot be guessed."""

STATE_LENGTH = 32

METHOD = "S256"

ERROR_LENGTH = 64


@dataclass(frozen=True, slots=True)
class Request:
    """One authorization request.

    Attributes:
        url: Where to send the person.
        authority: Who will answer.
        redirect_uri: Where the answer will come in.
        state: What ties the answer to this request.
        verifier: What ties the code to this client.
    """

    url: str
    authority: Authority
    redirect_uri: str
    state: str = field(repr=False)
    verifier: str = field(repr=False)

    def grant(self, code: str) -> dict[str, str]:
        """What redeems the code at the token endpoint."""
        return {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": self.verifier,
        }


def request(authority: Authority, client_id: str, redirect_uri: str, *, resource: str, scopes: Scopes) -> Request:
    """Make an authorization request.

    Raises:
        AuthorizationError: The authorization server has no such endpoint, or does not say that it knows PKCE with
            S256; cause ``unsupported``.
    """
    who = f"the authorization server {shown(authority.issuer)}"
    if authority.authorization_endpoint is None:
        raise AuthorizationError(f"{who} has no authorization endpoint: nobody can log in there", cause="unsupported")
    if not authority.assumed and METHOD not in (authority.challenge_methods or ()):
        raise AuthorizationError(
            f"{who} does not say that it checks codes by PKCE with {METHOD} (code_challenge_methods_supported): a code"
            " that is stolen on its way could be redeemed, so no login is begun",
            cause="unsupported",
        )
    state, verifier = generate_token(STATE_LENGTH), generate_token(VERIFIER_LENGTH)
    query = {
        "response_type": "code",
        "client_id": client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": create_s256_code_challenge(verifier),
        "code_challenge_method": METHOD,
        "resource": resource,
    }
    if scopes:
        query["scope"] = " ".join(scopes)
    joint = "&" if urlsplit(authority.authorization_endpoint).query else "?"
    return Request(
        f"{authority.authorization_endpoint}{joint}{urlencode(query)}", authority, redirect_uri, state, verifier
    )


def code_of(sent: Request, redirected: str) -> str:
    """The code in an authorization response.

    ``state`` is looked at first, then ``iss``, and only then anything else: whoever else wrote the response has
    nothing to say, not even of what went wrong.

    Raises:
        AuthorizationError: There is none that may be redeemed; cause ``login_failed`` or ``issuer_mismatch``.
    """
    answered = _parameters(redirected)
    who = f"the authorization server {shown(sent.authority.issuer)}"
    if not hmac.compare_digest(answered.get("state", "").encode(), sent.state.encode()):
        raise AuthorizationError(
            "the login's answer belongs to no request of ours (state): begin it anew", cause="login_failed"
        )
    issuer = answered.get("iss")
    if issuer is None and sent.authority.names_itself:
        raise AuthorizationError(
            f"{who} says that it names itself in its answers (RFC 9207), and did not: the code may be another's and is"
            " not redeemed",
            cause="issuer_mismatch",
        )
    if issuer is not None and issuer != sent.authority.issuer:
        raise AuthorizationError(
            f"the login's answer comes from another than {who} (iss, RFC 9207): the code is not redeemed",
            cause="issuer_mismatch",
        )
    if "error" in answered:
        code = excerpt(answered["error"].encode("utf-8", "backslashreplace"))[:ERROR_LENGTH]
        raise AuthorizationError(f"{who} let nobody in: '{code}'", cause="login_failed", oauth_error=code)
    if not answered.get("code"):
        raise AuthorizationError(f"{who} answered the login without a code", cause="login_failed")
    return answered["code"]


def _parameters(url: str) -> Mapping[str, str]:
    """The query's parameters; none of them if one stands twice, since then nobody knows which counts."""
    try:
        pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True, max_num_fields=50)
    except ValueError:
        return {}
    found = dict(pairs)
    return found if len(found) == len(pairs) else {}
