"""API keys: whose a key is, and what they may do. Holds digests of keys and never a key; knows no request."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Self

from openwop_mcp.config import Key, SettingsError

from .principals import Principal, is_subject_id

__all__ = ("KeyRing",)


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
            if not is_subject_id(key.subject):
                raise SettingsError(
                    f"keys[{index}].subject: a subject has 1 to 256 characters without spaces and /: write another one"
                )
            try:
                digest = _digest_of(key, environ)
            except SettingsError as error:
                raise SettingsError(f"keys[{index}].secret: {error}") from None
            if digest in principals:
                raise SettingsError(f"keys[{index}]: another key has the same secret: give each its own")
            principals[digest] = Principal(key.id, key.tenant, key.subject, frozenset(key.scopes))
        return cls(principals)

    def holder(self, key: str) -> Principal | None:
        """Tell whose a key is; None if it is none of these.

        All keys are compared, each in constant time, so that the time taken tells nothing of them.
        """
        presented = hashlib.sha256(key.encode()).digest()
        found: Principal | None = None
        for digest, principal in self._principals.items():
            if hmac.compare_digest(digest, presented):
                found = principal
        return found


def _digest_of(key: Key, environ: Mapping[str, str]) -> bytes:
    if key.sha256 is not None:
        return bytes.fromhex(key.sha256)
    assert key.secret is not None
    return hashlib.sha256(key.secret.reveal(environ).encode()).digest()
