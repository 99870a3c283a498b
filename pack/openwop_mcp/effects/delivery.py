"""What is known about one attempt's request having reached the server."""

from __future__ import annotations

from enum import StrEnum

__all__ = ("Delivery",)


class Delivery(StrEnum):
    """The four things that can be known of a request."""

    NOT_SENT = "not_sent"
    """No byte of it left: resolution, connection or TLS failed, or the claim was refused."""

    NOT_PROCESSED = "not_processed"
    """The server answered and said that it did not act on it (429, 401, a header that no longer fits)."""

    ANSWERED = "answered"
    """The server answered; what it said is final."""

    UNKNOWN = "unknown"
    """It left and no whole answer came back. The effect may have happened."""

    @property
    def nothing_happened(self) -> bool:
        """Whether the server has certainly not acted on it."""
        return self in {Delivery.NOT_SENT, Delivery.NOT_PROCESSED}
