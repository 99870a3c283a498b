"""What leaves the process of a span: what the table of attributes has, and of an exception its class.

Temporal's interceptor writes what exceptions say, and those of a call repeat what a server said.
"""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import Link, Status

from openwop_mcp.telemetry.attributes import MEANINGS

__all__ = ("CleanExporter",)

EXCEPTION = "exception"
EXCEPTION_TYPE = "exception.type"


class CleanExporter(SpanExporter):
    """Hands spans on to another exporter without anything that could hold what is nobody's business.

    Args:
        exporter: The other one.
    """

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """See base class."""
        return self._exporter.export([_clean(span) for span in spans])

    def shutdown(self) -> None:
        """See base class."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """See base class."""
        return self._exporter.force_flush(timeout_millis)


def _clean(span: ReadableSpan) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes={name: value for name, value in (span.attributes or {}).items() if name in MEANINGS},
        events=[_clean_event(event) for event in span.events if event.name == EXCEPTION],
        links=[Link(link.context) for link in span.links],
        kind=span.kind,
        status=Status(span.status.status_code),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _clean_event(event: Event) -> Event:
    kind = (event.attributes or {}).get(EXCEPTION_TYPE)
    return Event(EXCEPTION, {} if kind is None else {EXCEPTION_TYPE: kind}, event.timestamp)
