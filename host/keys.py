"""API keys: who a request comes from, and what they may do.

Holds digests of keys and never a key; tells a caller that the key is not good and nothing more. Of a request it knows
the ``Authorization`` header alone.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from openwop_mcp.config import Key, SettingsError
from openwop_mcp.runs.start import Owner

from .errors import HostError

__all__ = ("ALL_SCOPES", "ISSUER", "LANE", "KeyRing", "Principal")

ISSUER = "urn:openwop-mcp:api-key"
"""Who vouches for a subject that came with a key: this host."""

LANE = "api-key"
"""The lane of OpenWOP v2, identity, that keys are."""

ALL_SCOPES = "*"
"""In a key's scopes: whatever an operation asks for."""

_BEARER = re.compile(r"bearer +([\x21-\x7e]+) *", re.IGNORECASE)
_SUBJECT_ID = re.compile(r"[^\s/]{1,256}")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request comes from.

    Attributes:
        key_id: The key's name in the settings, for limits and logs.
        tenant: Whose runs these are.
        subject_id: Who it is within the tenant.
        scopes: What they may do.
    """

    key_id: str
    tenant: str
    subject_id: str
    scopes: frozenset[str]

    @property
    def subject(self) -> dict[str, str]:
        """The Subject of OpenWOP v2, identity: closed."""
        return {
            "issuer": ISSUER,
            "subjectId": self.subject_id,
            "tenant": self.tenant,
            "lane": LANE,
            "kind": "user",
        }

    @property
    def owner(self) -> Owner:
        """The owner of what they start."""
        return Owner(self.tenant, self.subject)

    def require(self, *scopes: str) -> None:
        """Refuse an operation that the key is not for.

        Raises:
            HostError: ``forbidden``, with the scopes that are missing.
        """
        missing = [] if ALL_SCOPES in self.scopes else [scope for scope in scopes if scope not in self.scopes]
        if missing:
            raise HostError(
                "forbidden",
                f"the key lacks the scope {', '.join(missing)}: use one that has it",
                {"missingScopes": missing},
            )


class KeyRing:
    """The keys of the settings.

    Args:
        principals: By the SHA-256 of their key.
    """

    def __init__(self, principals: Mapping[bytes, Principal]) -> None:
        self._principals = principals

    @classmethod
    def of(cls, keys: Iterable[Key], environ: Mapping[str, str]) -> Self:
        """Take the keys of the settings. What is secret is read, hashed and forgotten.

        Args:
            keys: The settings' keys.
            environ: The environment, where secrets may be.

        Raises:
            SettingsError: A secret cannot be had, two keys have the same one, or a subject is none of OpenWOP's.
        """
        principals: dict[bytes, Principal] = {}
        for index, key in enumerate(keys):
            if _SUBJECT_ID.fullmatch(key.subject) is None:
                raise SettingsError(
                    f"keys[{index}].subject: a subject has 1 to 256 characters without spaces and /: write another one"
                )
            digest = _digest_of(key, environ)
            if digest in principals:
                raise SettingsError(f"keys[{index}]: another key has the same secret: give each its own")
            principals[digest] = Principal(key.id, key.tenant, key.subject, frozenset(key.scopes))
        return cls(principals)

    def authenticate(self, authorization: str | None) -> Principal:
        """Tell who sent a request.

        All keys are compared, each in constant time, so that the time taken tells nothing of them.

        Args:
            authorization: The ``Authorization`` header, None if there is none.

        Raises:
            HostError: ``unauthenticated``, in the same words whatever is wrong.
        """
        match = None if authorization is None else _BEARER.fullmatch(authorization)
        presented = hashlib.sha256(match[1].encode() if match else b"").digest()
        found: Principal | None = None
        for digest, principal in self._principals.items():
            if hmac.compare_digest(digest, presented):
                found = principal
        if match is None or found is None:
            raise HostError("unauthenticated", "send a key of this host, as in Authorization: Bearer KEY")
        return found


def _digest_of(key: Key, environ: Mapping[str, str]) -> bytes:
    if key.sha256 is not None:
        return bytes.fromhex(key.sha256)
    assert key.secret is not None
    return hashlib.sha256(key.secret.reveal(environ).encode()).digest()
