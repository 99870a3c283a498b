"""The formats in which a trace travels: W3C's, whatever the process uses elsewhere, since MCP has no others."""

from __future__ import annotations

from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = ("PROPAGATOR",)

PROPAGATOR = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])
"""Trace context and baggage (MCP 2026-07-28, base protocol, _meta)."""
