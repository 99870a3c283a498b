"""What the host is to a client of OAuth: a resource at an address, that tokens of some issuers are for (RFC 9728).

Owns the metadata document and where it stands; everything in it is told by the settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

from openwop_mcp import jsontext
from openwop_mcp.config import SCOPES, Issuer, Settings

__all__ = ("ProtectedResource",)

WELL_KNOWN = "/.well-known/oauth-protected-resource"
"""Stands between the host and the path of a resource's identifier (RFC 9728, section 3.1)."""


@dataclass(frozen=True, slots=True)
class ProtectedResource:
    """The host, where it takes tokens.

    Attributes:
        identifier: Its address, as clients know it.
        issuers: Whose tokens it takes.
    """

    identifier: str
    issuers: tuple[Issuer, ...]

    @classmethod
    def of(cls, settings: Settings) -> Self | None:
        """Make it of the settings; None where only keys are taken."""
        if not settings.issuers:
            return None
        assert settings.host.url is not None
        return cls(settings.host.url, settings.issuers)

    @property
    def path(self) -> str:
        """Path of the metadata document."""
        return f"{WELL_KNOWN}{urlsplit(self.identifier).path.rstrip('/')}"

    @property
    def metadata_url(self) -> str:
        """Address of the metadata document."""
        parts = urlsplit(self.identifier)
        return f"{parts.scheme}://{parts.netloc}{self.path}"

    @property
    def metadata(self) -> bytes:
        """JSON text of the metadata document."""
        allowed = {scope for issuer in self.issuers for scope in issuer.allowed_scopes}
        return jsontext.encode(
            {
                "resource": self.identifier,
                "authorization_servers": [issuer.issuer for issuer in self.issuers],
                "scopes_supported": [scope for scope in SCOPES if scope in allowed],
                "bearer_methods_supported": ["header"],
            }
        )

    def point(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Headers of an answer, a challenge among them with where the document is (RFC 9728, section 5.1)."""
        return {
            name: f'{value}, resource_metadata="{self.metadata_url}"' if name == "WWW-Authenticate" else value
            for name, value in headers.items()
        }
