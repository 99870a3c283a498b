"""Whether anybody wants to hear: a provider was set, by this program or by the author of the process it is in."""

from __future__ import annotations

from opentelemetry import metrics, trace

__all__ = ("measured", "traced")


def traced() -> bool:
    """Whether spans go anywhere."""
    # The API's own providers pass on nothing; whoever wants spans has set another.
    return not type(trace.get_tracer_provider()).__module__.startswith("opentelemetry.trace")


def measured() -> bool:
    """Whether measurements go anywhere."""
    return not type(metrics.get_meter_provider()).__module__.startswith("opentelemetry.metrics")
