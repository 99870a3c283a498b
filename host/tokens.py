"""Tokens of interrupts, ``ow2.hs256.<kid>.<payload>.<mac>``: whoever holds one may read or answer one question.

Pure: keys and a time in, claims out. Whether the question is still open is for others. A token is a credential: it is
given to whoever is to answer, and stands in no log, event or message.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Self, get_args

from openwop_mcp import jsontext
from openwop_mcp.config import RESERVED_KEY, SettingsError, TokenKey

from .errors import HostError

__all__ = ("ALGORITHMS", "MAX_TOKEN", "Claims", "Intent", "TokenKeys")

ALGORITHMS = ("hs256",)
"""What may sign a token."""

MAX_TOKEN = 4096
"""Characters of a token: the longest ids make up half of it."""

_HEAD = "ow2.hs256"
_LABEL = b"openwop-mcp/interrupt-token/1"

Intent = Literal["resolve", "inspect"]
"""What a token is for: to answer, which includes to read, or to read alone."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says.

    Attributes:
        run_id: The run.
        node_id: The node that waits.
        interrupt_id: What it waits with.
        expires_at: Seconds since 1970 from which on it is good for nothing.
        intent: What it is for.
    """

    run_id: str
    node_id: str
    interrupt_id: str
    expires_at: int
    intent: Intent = "resolve"


class TokenKeys:
    """Signs tokens, and tells whether one was signed here.

    Args:
        keys: Bytes by the key's id. The first one signs.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = dict(keys)
        self._signing = next(iter(self._keys))
        # In place of a key that is not held, so that it takes as long to refuse a token of it.
        self._nobodys = secrets.token_bytes(32)

    @classmethod
    def of(cls, keys: Iterable[TokenKey], environ: Mapping[str, str]) -> Self:
        """Take the keys of the settings, of which there is one at least.

        Args:
            keys: The keys.
            environ: The environment, where secrets may be.

        Raises:
            SettingsError: A secret cannot be had.
        """
        held: dict[str, bytes] = {}
        for index, key in enumerate(keys):
            try:
                held[key.id] = key.secret.reveal(environ).encode()
            except SettingsError as error:
                raise SettingsError(f"host.token_keys[{index}].secret: {error}") from None
        return cls(held)

    @classmethod
    def shared(cls, secret: bytes) -> Self:
        """Take what the hosts of a namespace share, which signs other things as well."""
        return cls({RESERVED_KEY: hmac.digest(secret, _LABEL, hashlib.sha256)})

    def sign(self, claims: Claims) -> str:
        """Make a token."""
        told = {
            "runId": claims.run_id,
            "nodeId": claims.node_id,
            "interruptId": claims.interrupt_id,
            "intent": claims.intent,
            "expiresAt": claims.expires_at,
        }
        signed = f"{_HEAD}.{self._signing}.{_base64(jsontext.encode(told))}"
        return f"{signed}.{_mac(self._keys[self._signing], signed)}"

    def read(self, token: str, *, now: float) -> Claims:
        """Read a token.

        Args:
            token: The token.
            now: Seconds since 1970.

        Raises:
            HostError: ``interrupt_token_invalid`` if it was not signed with one of these keys, in the same words and
                the same time whatever is wrong; ``interrupt_expired``.
        """
        signed, _, mac = token.rpartition(".")
        head, _, rest = signed.rpartition(".")
        prefix, _, kid = head.rpartition(".")
        held = self._keys.get(kid)
        # The texts are compared: base64 has more than one spelling of the same bytes.
        expected = _mac(self._nobodys if held is None else held, signed)
        genuine = hmac.compare_digest(expected.encode(), mac.encode("utf-8", "replace"))
        if not genuine or held is None or prefix != _HEAD or len(token) > MAX_TOKEN:
            raise _invalid()
        claims = _claims(rest)
        if now >= claims.expires_at:
            raise HostError("interrupt_expired", "the link is too old: ask for another one, or answer with a key")
        return claims


def _claims(text: str) -> Claims:
    """What a genuine token says. One of another version may say it in another way."""
    try:
        told = jsontext.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        claims = Claims(told["runId"], told["nodeId"], told["interruptId"], told["expiresAt"], told["intent"])
    except (binascii.Error, jsontext.JsonTextError, KeyError, TypeError):
        raise _invalid() from None
    if claims.intent not in get_args(Intent):
        raise _invalid()
    return claims


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _mac(key: bytes, signed: str) -> str:
    return _base64(hmac.digest(key, signed.encode("utf-8", "replace"), hashlib.sha256))


def _invalid() -> HostError:
    return HostError("interrupt_token_invalid", "the link is none of this host's, or not whole: ask for another one")
