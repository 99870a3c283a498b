"""Cursors of lists: where a page ends, signed, so that only what this host gave out comes back.

A cursor holds no secret and hides nothing; it is bound to whose list it is and what the list was narrowed to. Knows no
list.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

from openwop_mcp import jsontext

from .errors import HostError, invalid

__all__ = ("Cursors",)

MAC_BYTES = 16
"""Half a SHA-256: a guess is right once in 2^128, and the cursor stays short."""

FIELD = "cursor"
"""The parameter that a cursor comes back in."""


class Cursors:
    """Seals positions of one kind of list and opens them again.

    Args:
        secret: Bytes that all hosts of one deployment share and no client knows.
        purpose: Which list it is; a cursor of another one does not open.
    """

    def __init__(self, secret: bytes, purpose: str) -> None:
        self._secret = secret
        self._purpose = purpose

    def seal(self, position: str, *, tenant: str, narrowed: Mapping[str, str]) -> str:
        """Make the cursor of a position.

        Args:
            position: Where the next page begins, in the list's own words.
            tenant: Whose list it is.
            narrowed: The filters that the list was asked for with.
        """
        bound = jsontext.encode([self._purpose, tenant, sorted(narrowed.items()), position])
        mac = hmac.digest(self._secret, bound, hashlib.sha256)[:MAC_BYTES]
        return base64.urlsafe_b64encode(mac + position.encode()).rstrip(b"=").decode()

    def open(self, cursor: str, *, tenant: str, narrowed: Mapping[str, str]) -> str:
        """Take the position from a cursor.

        Raises:
            HostError: ``validation_error`` if it was not given out for this list.
        """
        try:
            sealed = base64.b64decode(cursor.encode() + b"=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
            position = sealed[MAC_BYTES:].decode()
        except ValueError:
            raise _foreign() from None
        # The whole text is compared, since base64 has more than one spelling for the same bytes.
        expected = self.seal(position, tenant=tenant, narrowed=narrowed)
        if not hmac.compare_digest(expected.encode(), cursor.encode()):
            raise _foreign()
        return position


def _foreign() -> HostError:
    return invalid(FIELD, "not a cursor of this list: take nextCursor as it was given, with the same filters")
