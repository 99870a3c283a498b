"""Who sent a request: reads the ``Authorization`` header, and asks the lane that its credential belongs to.

Says no more of a credential that is not good than OpenWOP has a code for, and that only to who holds a genuine one.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Self

from openwop_mcp.config import Settings

from .errors import unauthenticated
from .keys import KeyRing
from .principals import Principal

if TYPE_CHECKING:
    from .oidc import Tokens

__all__ = ("Authenticators",)

_BEARER = re.compile(r"bearer +([\x21-\x7e]+) *", re.IGNORECASE)


class Authenticators:
    """All lanes of a host: keys of its settings, and tokens of its issuers.

    Args:
        keys: The keys.
        tokens: The tokens, where there are issuers.
    """

    def __init__(self, keys: KeyRing, tokens: Tokens | None = None) -> None:
        self._keys = keys
        self._tokens = tokens

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[Self]:
        """Take the credentials of the settings, with connections for the keys of issuers.

        Raises:
            SettingsError: A key of the settings cannot be used.
        """
        keys = KeyRing.of(settings.keys, environ)
        if not settings.issuers:
            yield cls(keys)
            return
        from .oidc import Tokens  # noqa: PLC0415 - signatures cost a start of a host that takes keys alone

        async with Tokens.open(settings.issuers) as tokens:
            yield cls(keys, tokens)

    async def authenticate(self, authorization: str | None) -> Principal:
        """Tell who sent a request.

        Args:
            authorization: The ``Authorization`` header, None if there is none.

        Raises:
            HostError: ``unauthenticated``, in the same words whatever is wrong; for a genuine token of an issuer also
                ``audience_mismatch``, ``credential_lifetime_exceeded`` or ``identity_unverified``.
        """
        match = None if authorization is None else _BEARER.fullmatch(authorization)
        if match is None:
            raise unauthenticated(presented=False)
        principal = None if self._tokens is None else await self._tokens.bearer(match[1])
        principal = principal or self._keys.holder(match[1])
        if principal is None:
            raise unauthenticated(presented=True)
        return principal
