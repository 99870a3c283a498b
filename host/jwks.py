"""The keys of an issuer: where they are, how long they are held, and which one a token was signed with.

Owns the requests to an issuer, and how often there are any, whatever is asked for. Knows no claim of a token.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, RSAKey

from openwop_mcp.client.auth import Fetch, Fetched
from openwop_mcp.config import Issuer
from openwop_mcp.errors import McpError

__all__ = ("IssuerKeys", "PublicKey", "Signing", "json_object", "public_keys", "signing")

logger = logging.getLogger("openwop_mcp.host")

MIN_FRESH: Final = 60
"""Seconds between two requests for the same keys, whatever was said of how long they last: a token that names a key
that nobody has is anyone's to send."""

FRESH: Final = 300
"""Seconds that keys hold where the issuer does not say how long."""

MAX_FRESH: Final = 3600
"""Seconds that keys hold at most: that long a key that was withdrawn may still be taken."""

MAX_STALE: Final = 3600
"""Seconds beyond for which keys are used while the issuer cannot be asked: an outage of an hour stops nobody."""

PAUSE: Final = 10
"""Seconds between two requests where there are no keys yet, so that a host is soon of use after its issuer is."""

PATIENCE: Final = 4
"""Seconds for all that is asked at once: requests wait for it."""

MAX_KEYS: Final = 100
"""Keys of an issuer that are looked at; those in use have under ten."""

RSA_BITS: Final = range(2048, 8192 + 1)
"""Shorter ones can be broken, longer ones make a check of a signature dear (NIST SP 800-131A)."""

MAX_NUMBER: Final = 1400
"""Characters of a number in a key, base64 of the longest modulus: to read one of a megabyte takes a second."""

OK: Final = 200

PublicKey = ECKey | RSAKey
"""What a signature is checked with."""


_KINDS: Mapping[str, type[ECKey | RSAKey]] = MappingProxyType({"EC": ECKey, "RSA": RSAKey})
_NUMBERS = ("n", "e", "x", "y")


class Signing(NamedTuple):
    """What an algorithm takes: a type of key, and where that has curves, the one."""

    key_type: str
    curve: str | None = None


_SIGNING: Mapping[str, Signing] = MappingProxyType(
    {
        **{f"{family}{bits}": Signing("RSA") for family in ("RS", "PS") for bits in (256, 384, 512)},
        "ES256": Signing("EC", "P-256"),
        "ES384": Signing("EC", "P-384"),
        "ES512": Signing("EC", "P-521"),
    }
)

_MAX_AGE = re.compile(r"(?:^|[\s,])max-age=\"?([0-9]{1,9})")
_NOT_KEPT = re.compile(r"(?:^|[\s,])no-(?:store|cache)")


class _UnusableError(Exception):
    """What an issuer sent is of no use; the message says why, without what it was."""


def signing(key: PublicKey, algorithm: str) -> bool:
    """Tell whether a key can be one that an algorithm signs with: so that no key is used as what it is not."""
    fits = _SIGNING[algorithm]
    curve = key.curve_name if isinstance(key, ECKey) else None
    return (key.key_type, curve) == fits and key.alg in {None, algorithm}


class IssuerKeys:
    """The keys of one issuer, asked for when they are needed and then held for a while.

    Args:
        issuer: The settings.
        place: Where they stand, for the log.
        fetch: Sends a request, under the issuer's network policy.
        clock: Seconds that never go back.
    """

    def __init__(
        self, issuer: Issuer, place: str, fetch: Fetch, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._issuer = issuer
        self._place = place
        self._fetch = fetch
        self._clock = clock
        self._keys: tuple[PublicKey, ...] = ()
        self._fresh_until = self._usable_until = self._asked_not_before = float("-inf")
        self._flight: asyncio.Task[None] | None = None

    async def find(self, algorithm: str, kid: str | None) -> PublicKey | None:
        """The one key that fits; None if there is none, or the issuer cannot be asked.

        Args:
            algorithm: What it signs with.
            kid: What the issuer calls it; None where it says nothing, as it may if it has but one.
        """
        if self._clock() >= self._fresh_until:
            await self._renew()
        found = self._held(algorithm, kid)
        if found is None:
            await self._renew()
            found = self._held(algorithm, kid)
        return found

    async def aclose(self) -> None:
        """End a request that is under way."""
        if self._flight is not None:
            self._flight.cancel()
            await asyncio.gather(self._flight, return_exceptions=True)

    def _held(self, algorithm: str, kid: str | None) -> PublicKey | None:
        if self._clock() >= self._usable_until:
            return None
        fitting = [key for key in self._keys if signing(key, algorithm) and kid in {None, key.kid}]
        return fitting[0] if len(fitting) == 1 else None

    async def _renew(self) -> None:
        """Ask anew, if the time for it has come: all who wait share one request, which outlives any of them."""
        if self._flight is None:
            if self._clock() < self._asked_not_before:
                return
            self._flight = asyncio.create_task(self._take())
        await asyncio.shield(self._flight)

    async def _take(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                self._keys, fresh = await self._ask()
        except (McpError, TimeoutError, _UnusableError) as error:
            told = f"no answer within {PATIENCE} s" if isinstance(error, TimeoutError) else str(error)
            logger.warning("%s: its keys cannot be had: %s", self._place, told.replace("servers.<id>", self._place))
        else:
            self._fresh_until = self._clock() + fresh
            self._usable_until = self._fresh_until + MAX_STALE
        finally:
            # Where there are keys to go on with, nobody is made to wait for a slow issuer time and again.
            now = self._clock()
            self._asked_not_before = now + (MIN_FRESH if now < self._usable_until else PAUSE)
            self._flight = None

    async def _ask(self) -> tuple[tuple[PublicKey, ...], int]:
        answer = await self._get(self._issuer.jwks_uri or await self._published())
        found = json_object(answer.body)
        listed = None if found is None else found.get("keys")
        if not isinstance(listed, list):
            raise _UnusableError("what is at its jwks_uri is no set of keys")
        keys = public_keys(listed)
        if not keys:
            logger.warning("%s: none of its keys can check a signature", self._place)
        return keys, _freshness(answer.headers)

    async def _published(self) -> str:
        """Where the keys are, as the issuer's metadata has it (OpenID Connect Discovery, section 4)."""
        answer = await self._get(f"{self._issuer.issuer.rstrip('/')}/.well-known/openid-configuration")
        found = json_object(answer.body) or {}
        uri = found.get("jwks_uri")
        if found.get("issuer") != self._issuer.issuer:
            raise _UnusableError("its metadata is another issuer's: the two have to be the same to the letter")
        if not isinstance(uri, str) or not self._issuer.asks(uri):
            raise _UnusableError("its metadata names no jwks_uri that keys may come from: https is asked for")
        return uri

    async def _get(self, url: str) -> Fetched:
        answer = await self._fetch("GET", url, {"Accept": "application/json"}, None)
        if answer.status != OK:
            raise _UnusableError(f"it answered with status {answer.status}")
        return answer


def public_keys(listed: Iterable[Any]) -> tuple[PublicKey, ...]:
    """The members of a set of keys that check signatures; the rest, and what is malformed, is passed over.

    A secret is never among them, and neither is a private key: whoever can read the set could sign with it.
    """
    found = (_public_key(jwk) for _, jwk in zip(range(MAX_KEYS), listed, strict=False))
    return tuple(key for key in found if key is not None)


def _public_key(jwk: Any) -> PublicKey | None:
    if not isinstance(jwk, dict) or "d" in jwk or any(len(str(jwk.get(name))) > MAX_NUMBER for name in _NUMBERS):
        return None
    kind = _KINDS.get(str(jwk.get("kty")))
    if kind is None:
        return None
    try:
        with warnings.catch_warnings():
            # Of short keys, which are left out below.
            warnings.simplefilter("ignore", SecurityWarning)
            key = kind.import_key(jwk)
    except (JoseError, LookupError, TypeError, ValueError):
        # Whatever is wrong with it: a curve that the library does not know is a KeyError.
        return None
    if isinstance(key, RSAKey) and key.raw_value.key_size not in RSA_BITS:
        return None
    checks = key.get("use", "sig") == "sig" and "verify" in (key.get("key_ops") or ("verify",))
    return key if checks else None


def _freshness(headers: Mapping[str, str]) -> int:
    """Seconds that an answer holds (RFC 9111, section 5.2.2), up to our own bound."""
    said = headers.get("Cache-Control", "").lower()
    age = _MAX_AGE.search(said)
    seconds = 0 if _NOT_KEPT.search(said) else FRESH if age is None else int(age[1])
    return min(seconds, MAX_FRESH)


def json_object(data: bytes) -> dict[str, Any] | None:
    """The object that a JSON text holds; None if it holds anything else."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
