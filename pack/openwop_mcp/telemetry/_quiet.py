"""What exporters log when nobody takes what they send: one line now and then, whatever happens meanwhile."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

__all__ = ("hush",)

logger = logging.getLogger("openwop_mcp.telemetry")

LOGGERS = (
    "opentelemetry.exporter",
    "opentelemetry.sdk._shared_internal",
    "opentelemetry.sdk.metrics._internal.export",
    "temporalio.opentelemetry_sdk",
)
"""Who complains: each batch, a few lines every second."""

EVERY = 600.0
"""Seconds between two lines: a collector that is away for a night is told of some fifty times."""


class Hushed(logging.Handler):
    """Takes complaints, and passes one on in words of its own, since theirs can hold an answer or an address.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._clock = clock
        self._said: float | None = None

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - whatever it says
        """Say that something is not delivered, unless that was said."""
        now = self._clock()
        if self._said is not None and now - self._said < EVERY:
            return
        self._said = now
        logger.warning(
            "traces and metrics are not delivered, and are dropped; calls go on. See that a collector listens where"
            " OTEL_EXPORTER_OTLP_ENDPOINT says, and takes the headers of OTEL_EXPORTER_OTLP_HEADERS"
        )


def hush() -> None:
    """Have complaints about a collector taken this way, in this process."""
    handler = Hushed()
    for name in LOGGERS:
        one = logging.getLogger(name)
        one.handlers = [handler]
        one.propagate = False
