"""Who a request comes from and what they may do, however that was told. Knows no credential and no request."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

from openwop_mcp.runs.start import Owner

from .errors import HostError

__all__ = ("ALL_SCOPES", "KEY_ISSUER", "TOKEN_ISSUER", "Kind", "Lane", "Principal", "is_subject_id")

KEY_ISSUER = "urn:openwop-mcp:api-key"
"""Who vouches for a subject that came with a key: this host."""

TOKEN_ISSUER = "urn:openwop-mcp:interrupt-token"  # noqa: S105 - names a way in
"""Who vouches for a subject of whom nothing is known but that a link was given to it: this host."""

ALL_SCOPES = "*"
"""In the scopes of a key: whatever an operation asks for."""

Lane = Literal["api-key", "oidc", "workload"]
"""The lanes of OpenWOP v2, identity, that a request can come in by."""

Kind = Literal["user", "workload"]
"""What a subject is. Nobody is anonymous here, and who acts for whom is told by no credential."""

_SUBJECT_ID = re.compile(r"[^\s/]{1,256}")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request comes from.

    Attributes:
        key_id: Tells credentials apart in limits and logs, and names nobody who did not choose it: of a key its name
            in the settings, of a token a digest of its subject.
        tenant: Whose runs these are.
        subject_id: Who it is within the tenant.
        scopes: What they may do.
        issuer: Who vouches for them.
        lane: How they came in.
        kind: A person, or a program on its own account.
        expires_at: Seconds since 1970 from which on the credential is good for nothing; infinite where none is known.
    """

    key_id: str
    tenant: str
    subject_id: str
    scopes: frozenset[str]
    issuer: str = KEY_ISSUER
    lane: Lane = "api-key"
    kind: Kind = "user"
    expires_at: float = math.inf

    @property
    def subject(self) -> dict[str, str]:
        """The Subject of OpenWOP v2, identity: closed."""
        return {
            "issuer": self.issuer,
            "subjectId": self.subject_id,
            "tenant": self.tenant,
            "lane": self.lane,
            "kind": self.kind,
        }

    @property
    def owner(self) -> Owner:
        """The owner of what they start."""
        return Owner(self.tenant, self.subject)

    def may(self, scope: str) -> bool:
        """Whether the credential has a scope."""
        return ALL_SCOPES in self.scopes or scope in self.scopes

    def require(self, *scopes: str) -> None:
        """Refuse an operation that the credential is not for.

        Raises:
            HostError: ``forbidden``, with the scopes that are missing; the challenge names all that are needed.
        """
        missing = [scope for scope in scopes if not self.may(scope)]
        if missing:
            raise HostError(
                "forbidden",
                f"the credential lacks the scope {', '.join(missing)}: use one that has it",
                {"missingScopes": missing},
                challenge={"error": "insufficient_scope", "scope": " ".join(scopes)},
            )


def is_subject_id(text: str) -> bool:
    """Tell whether a text can name a subject of OpenWOP."""
    return _SUBJECT_ID.fullmatch(text) is not None
