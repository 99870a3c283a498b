"""Tokens of identity providers: which of them are good, and who their bearer is.

Owns the order of the checks: signature, issuer, audience, time, and only then who it is (OpenWOP v2, identity; RFC
7519, 8725 and 9068). What cannot be checked is not believed, and why is told to the log. Knows no header of a request.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self

from joserfc import jws
from joserfc.errors import JoseError

from openwop_mcp.client import HttpPool
from openwop_mcp.client.auth import Fetch
from openwop_mcp.config import Issuer

from .errors import INVALID_TOKEN, HostError, unauthenticated
from .jwks import IssuerKeys, PublicKey, json_object
from .principals import Kind, Principal, is_subject_id

__all__ = ("Cause", "RefusedError", "Tokens", "resolve")

logger = logging.getLogger("openwop_mcp.host")

MAX_TOKEN: Final = 16 * 1024
"""Characters of a token: what servers take of headers in all, about, and many times what issuers send."""

LEEWAY: Final = 60
"""Seconds by which an issuer's clock may be ahead. The end of a token is not moved by it: whose token ends early gets a
new one, and who advertises how long a token is good for has to mean it."""

LAST_DATE: Final = 253_402_300_799
"""The last second of the year 9999; a later one is no date."""

TYPES: Final = frozenset({"jwt", "at+jwt", "application/at+jwt"})
"""What a token may say that it is, if it says so: others are signed with the same keys and mean something else, such as
that a session has ended (RFC 8725, section 3.11)."""

_TOKEN = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+")
_TENANT = re.compile(r"[A-Za-z0-9._-]{1,128}")


class Cause(Enum):
    """Why a token is refused, as the log tells it."""

    TYPE = "it is of another type than access tokens are"
    CRITICAL = "its header asks for what nobody here knows (crit)"
    ALGORITHM = "it is signed by none of the algorithms in the settings"
    KEY = "the issuer has no one key that fits it, or cannot be asked"
    SIGNATURE = "its signature is wrong"
    AUDIENCE = "it is for another audience"
    PARTY = "it is for several audiences and does not say who it was issued to (azp)"
    DATES = "its dates are none"
    EXPIRED = "it has ended"
    LIFETIME = "it is good for longer than max_lifetime, or does not say since when (iat)"
    EARLY = "it is not good yet, by more than clocks differ"
    BOUND = "it is good only with a proof that nobody here can check (cnf)"
    DELEGATED = "it is for someone who acts for another (act), of which there is no proof"
    SUBJECT = "subject_claim has nothing in it that can name a subject"
    TENANT = "tenant_claim has no tenant in it that this issuer may speak for"


_TOLD: Mapping[Cause, tuple[str, str]] = MappingProxyType(
    {
        Cause.AUDIENCE: ("audience_mismatch", "the token is for others: get one whose audience is this host"),
        Cause.LIFETIME: (
            "credential_lifetime_exceeded",
            "the token is good for too long, or does not say since when (iat): get one that ends sooner",
        ),
        Cause.DELEGATED: (
            "identity_unverified",
            "the token is for someone who acts for another, which cannot be proved here: get one of your own",
        ),
    }
)
"""What is told to a bearer: it stands in the token, and comes up only once the token is known to be genuine."""


class RefusedError(Exception):
    """A token that is not good.

    Attributes:
        cause: Why.
    """

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.value)
        self.cause = cause


class _Token(NamedTuple):
    """A token as it came: nothing of it is to be believed yet."""

    text: str
    header: Mapping[str, Any]
    claims: Mapping[str, Any]


class Tokens:
    """The tokens of all issuers in the settings.

    Args:
        issuers: The settings.
        fetcher: Makes what sends requests, by the policy of the network.
        now: Seconds since 1970.
    """

    def __init__(
        self, issuers: Iterable[Issuer], fetcher: Callable[[Any], Fetch], *, now: Callable[[], float] = time.time
    ) -> None:
        self._issuers = {
            issuer.issuer: _Provider(issuer, f"issuers.{index}", fetcher(issuer.network), now)
            for index, issuer in enumerate(issuers)
        }

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, issuers: Iterable[Issuer]) -> AsyncIterator[Self]:
        """Take tokens, with connections for the keys of their issuers."""
        async with HttpPool() as pool:
            tokens = cls(issuers, pool.fetcher)
            try:
                yield tokens
            finally:
                for provider in tokens._issuers.values():
                    await provider.keys.aclose()

    async def bearer(self, text: str) -> Principal | None:
        """Tell whose a token is; None if it is none of these issuers'.

        Raises:
            HostError: It is not good: ``unauthenticated``, or for a genuine one ``audience_mismatch``,
                ``credential_lifetime_exceeded`` or ``identity_unverified``.
        """
        token = _read(text)
        issuer = None if token is None else token.claims.get("iss")
        provider = self._issuers.get(issuer) if isinstance(issuer, str) else None
        if token is None or provider is None:
            return None
        try:
            return await provider.bearer(token)
        except RefusedError as error:
            logger.info("%s: a token is refused: %s", provider.place, error)
            if error.cause not in _TOLD:
                raise unauthenticated(presented=True) from None
            raise HostError(*_TOLD[error.cause], challenge=INVALID_TOKEN) from None


class _Provider:
    """One issuer."""

    def __init__(self, issuer: Issuer, place: str, fetch: Fetch, now: Callable[[], float]) -> None:
        self.place = place
        self.keys = IssuerKeys(issuer, place, fetch)
        self._issuer = issuer
        self._now = now

    async def bearer(self, token: _Token) -> Principal:
        algorithm, kid = _header(token.header, self._issuer)
        key = await self.keys.find(algorithm, kid)
        if key is None:
            raise RefusedError(Cause.KEY)
        if not _signed(token.text, key, algorithm):
            raise RefusedError(Cause.SIGNATURE)
        return resolve(token.claims, self._issuer, self._now())


def _read(text: str) -> _Token | None:
    match = _TOKEN.fullmatch(text) if len(text) <= MAX_TOKEN else None
    if match is None:
        return None
    header, claims = (_decoded(match[part]) for part in (1, 2))
    return None if header is None or claims is None else _Token(text, header, claims)


def _decoded(segment: str) -> dict[str, Any] | None:
    try:
        return json_object(base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)))
    except ValueError:
        return None


def _header(header: Mapping[str, Any], issuer: Issuer) -> tuple[str, str | None]:
    """The algorithm of a token and the name of its key. Keys that a token brings along or points to are not looked at.

    Raises:
        RefusedError: It can be no access token of the issuer's.
    """
    kind = header.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in TYPES:
        raise RefusedError(Cause.TYPE)
    if "crit" in header:
        raise RefusedError(Cause.CRITICAL)
    algorithm = next((known for known in issuer.algorithms if known == header.get("alg")), None)
    if algorithm is None:
        raise RefusedError(Cause.ALGORITHM)
    kid = header.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise RefusedError(Cause.KEY)
    return algorithm, kid


def _signed(text: str, key: PublicKey, algorithm: str) -> bool:
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    registry.max_header_length = MAX_TOKEN
    try:
        jws.deserialize_compact(text, key, registry=registry)
    except (JoseError, ValueError, TypeError, RecursionError):
        return False
    return True


def resolve(claims: Mapping[str, Any], issuer: Issuer, now: float) -> Principal:
    """Tell whose a token is, whose signature and issuer are known to be right.

    Args:
        claims: Its claims.
        issuer: The settings of its issuer.
        now: Seconds since 1970.

    Raises:
        RefusedError: It is for others, not of this time, or names nobody.
    """
    _check_audience(claims, issuer)
    ends = _end(claims, issuer.max_lifetime, now)
    if claims.get("cnf") is not None:
        raise RefusedError(Cause.BOUND)
    if claims.get("act") is not None:
        raise RefusedError(Cause.DELEGATED)
    subject = claims.get(issuer.subject_claim)
    if not isinstance(subject, str) or not is_subject_id(subject):
        raise RefusedError(Cause.SUBJECT)
    tenant = _tenant(claims, issuer)
    named = Principal("", tenant, subject, _scopes(claims, issuer), issuer.issuer, "oidc", _kind(claims), ends)
    # A digest, since limits and logs need to tell bearers apart and not to name them.
    return replace(named, key_id=f"oidc:{named.owner.principal}")


def _check_audience(claims: Mapping[str, Any], issuer: Issuer) -> None:
    told = claims.get("aud")
    audiences = told if isinstance(told, list) else [told]
    if issuer.audience not in audiences:
        raise RefusedError(Cause.AUDIENCE)
    parties = [claims.get(name) for name in ("azp", "client_id")]
    if len(audiences) > 1 and not any(isinstance(party, str) and party for party in parties):
        raise RefusedError(Cause.PARTY)


def _end(claims: Mapping[str, Any], max_lifetime: int, now: float) -> float:
    """When a token ends whose time this is."""
    ends, begins, issued = (_date(claims, name) for name in ("exp", "nbf", "iat"))
    if ends is None or (begins is None and "nbf" in claims):
        raise RefusedError(Cause.DATES)
    if ends <= now:
        raise RefusedError(Cause.EXPIRED)
    if issued is None or max(ends - issued, ends - now) > max_lifetime:
        raise RefusedError(Cause.LIFETIME)
    if max(issued, begins or 0) > now + LEEWAY:
        raise RefusedError(Cause.EARLY)
    return ends


def _date(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LAST_DATE:
        return None
    return value


def _tenant(claims: Mapping[str, Any], issuer: Issuer) -> str:
    if issuer.tenant_claim is None:
        assert issuer.tenant is not None
        return issuer.tenant
    told = claims.get(issuer.tenant_claim)
    if not isinstance(told, str) or _TENANT.fullmatch(told) is None or not {"*", told} & set(issuer.tenants):
        raise RefusedError(Cause.TENANT)
    return told


def _scopes(claims: Mapping[str, Any], issuer: Issuer) -> frozenset[str]:
    """What the token says and the settings allow, by name: a token that says ``*`` may do nothing for that."""
    told = claims.get("scope", claims.get("scp"))
    names = told.split() if isinstance(told, str) else told if isinstance(told, list) else []
    return frozenset(scope for scope in issuer.allowed_scopes if scope in names)


def _kind(claims: Mapping[str, Any]) -> Kind:
    """A program's own account is one whose subject is the client itself (RFC 9068, section 2.2)."""
    subject = claims.get("sub")
    return "workload" if subject is not None and subject in (claims.get("client_id"), claims.get("azp")) else "user"
