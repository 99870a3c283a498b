"""The trace context of a request: who asks the server, for whoever follows a call through systems.

Takes it from the current span, which Temporal's interceptor makes the activity's. Without one there is nothing to say.
"""

from __future__ import annotations

from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from openwop_mcp import jsontext

__all__ = ("trace_meta",)

PROPAGATOR = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])
"""W3C formats, whatever the process uses elsewhere: MCP has no others (MCP 2026-07-28, base protocol, _meta)."""


def trace_meta() -> list[tuple[str, bytes]]:
    """Members of ``_meta``: ``traceparent``, ``tracestate`` and ``baggage``, as far as there are any."""
    carrier: dict[str, str] = {}
    PROPAGATOR.inject(carrier)
    return [(key, jsontext.encode(value)) for key, value in carrier.items()]
