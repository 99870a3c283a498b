"""The trace context of a request: who asks the server, for whoever follows a call through systems.

Takes it from the current span. Without one there is nothing to say.
"""

from __future__ import annotations

from openwop_mcp.telemetry.propagation import PROPAGATOR

__all__ = ("trace_members",)


def trace_members() -> list[tuple[str, str]]:
    """``traceparent``, ``tracestate`` and ``baggage``, as far as there are any: members of ``_meta``, and headers."""
    carrier: dict[str, str] = {}
    PROPAGATOR.inject(carrier)
    return list(carrier.items())
