"""Traces and metrics of one process, on their way to whom the environment names; and the end of that.

A collector that is away holds nothing up: what is not taken is dropped, and the end waits for it a moment at most.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from openwop_mcp.config import SettingsError
from openwop_mcp.telemetry._environment import EXTRA, Plan, metrics_interval, read

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import MetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanProcessor
    from temporalio.runtime import OpenTelemetryConfig

__all__ = ("Plan", "RuntimeMetrics", "exporting", "metrics_interval", "plan_of")

logger = logging.getLogger(__name__)

SERVICE = "openwop-mcp"
"""The service's name where neither OTEL_SERVICE_NAME nor OTEL_RESOURCE_ATTRIBUTES says another."""

FLUSH = 1.0
"""Seconds that the last spans and metrics are given at the end. A collector takes them in a tenth of that, and whatever
else has to end fits into what is left of the ten seconds after which a supervisor kills."""


@dataclass(frozen=True, slots=True)
class RuntimeMetrics:
    """What Temporal's runtime is made with, so that its metrics go where those of this program do.

    Attributes:
        config: Where to.
        tags: Of which process they are.
    """

    config: OpenTelemetryConfig
    tags: Mapping[str, str]


def plan_of(environ: Mapping[str, str]) -> Plan:
    """What is to be sent.

    Raises:
        SettingsError: A variable has a fault, what one names is not there, or a package is missing.
    """
    plan = read(environ)
    if plan.asked_by is not None:
        try:
            import opentelemetry.exporter.otlp.proto.http  # noqa: PLC0415, F401 - an extra, which few need
        except ImportError:
            raise SettingsError(
                f"{plan.asked_by}: what sends to a collector is not installed: pip install"
                f" 'openwop-mcp-pack[{EXTRA}]', or unset it"
            ) from None
    # Told of a file that is not there, what sends would drop everything, and say that no collector listens.
    lost = [
        f"{name}: write the path of a file that can be read"
        for name, path in plan.files
        if not os.access(path, os.R_OK)
    ]
    # OpenTelemetry ends the process over one that it does not find.
    lost += [
        f"{name}: write the name of an entry point of {group} that is installed, or unset it"
        for name, group, plugin in plan.plugins
        if not entry_points(group=group, name=plugin)
    ]
    if lost:
        raise SettingsError("\n".join(dict.fromkeys(lost)))
    return plan


@contextlib.contextmanager
def exporting(plan: Plan) -> Iterator[RuntimeMetrics | None]:
    """Make this process's providers, and at the end have them send what is left. Once in a process.

    Without anything to send there is no provider, so that no span is made and nothing is measured.

    Yields:
        Where Temporal's own metrics go, which it sends itself; None for nowhere.
    """
    ends: list[Callable[[], object]] = []
    runtime: RuntimeMetrics | None = None
    if plan:
        # Here and below, since it takes a quarter of a second, which only those wait for who want it.
        from openwop_mcp.telemetry._quiet import hush  # noqa: PLC0415

        hush()
        resource = _resource()
        if plan.traces:
            ends.append(_trace(plan, resource))
        if plan.metrics:
            ends.append(_measure(plan, resource))
        if "otlp" in plan.metrics:
            runtime = _runtime_metrics(plan, resource)
    try:
        yield runtime
    finally:
        _at_once(ends)


def _runtime_metrics(plan: Plan, resource: Resource) -> RuntimeMetrics:
    from temporalio.runtime import OpenTelemetryConfig  # noqa: PLC0415

    config = OpenTelemetryConfig(
        url=plan.metrics_url,
        headers=plan.metrics_headers,
        # Left alone it is a second.
        metric_periodicity=timedelta(seconds=plan.metrics_every),
        durations_as_seconds=True,
        http=True,
    )
    # By what SDK they are made, Temporal says itself.
    tags = {name: str(value) for name, value in resource.attributes.items() if not name.startswith("telemetry.sdk.")}
    return RuntimeMetrics(config, tags)


def _resource() -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415

    from openwop_mcp.telemetry.instruments import VERSION  # noqa: PLC0415

    given = Resource.create()
    own: dict[str, str] = {}
    if str(given.attributes["service.name"]).startswith("unknown_service"):
        own["service.name"] = SERVICE
    own |= {
        name: value
        # Two workers on one machine are two sources: told as one, their counters would go up and down.
        for name, value in (("service.version", VERSION), ("service.instance.id", str(uuid.uuid4())))
        if name not in given.attributes
    }
    return given.merge(Resource(own))


def _trace(plan: Plan, resource: Resource) -> Callable[[], object]:
    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import (  # noqa: PLC0415
        BatchSpanProcessor,
        ConsoleSpanExporter,
        SimpleSpanProcessor,
    )

    from openwop_mcp.telemetry._clean import CleanExporter  # noqa: PLC0415
    from openwop_mcp.telemetry._ids import RunIds  # noqa: PLC0415

    processors: list[SpanProcessor] = []
    if "otlp" in plan.traces:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415

        processors.append(BatchSpanProcessor(CleanExporter(OTLPSpanExporter())))
    if "console" in plan.traces:
        # Standard output is for what was asked for.
        processors.append(SimpleSpanProcessor(CleanExporter(ConsoleSpanExporter(out=sys.stderr))))
    provider = TracerProvider(resource=resource, id_generator=RunIds(), shutdown_on_exit=False)
    for processor in processors:
        provider.add_span_processor(processor)
    trace.set_tracer_provider(provider)
    return provider.shutdown


def _measure(plan: Plan, resource: Resource) -> Callable[[], object]:
    from opentelemetry import metrics  # noqa: PLC0415
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415
        ConsoleMetricExporter,
        PeriodicExportingMetricReader,
    )

    readers: list[MetricReader] = []
    if "otlp" in plan.metrics:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415

        readers.append(PeriodicExportingMetricReader(OTLPMetricExporter()))
    if "console" in plan.metrics:
        readers.append(PeriodicExportingMetricReader(ConsoleMetricExporter(out=sys.stderr)))
    provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    metrics.set_meter_provider(provider)
    return provider.shutdown


def _at_once(ends: Sequence[Callable[[], object]]) -> None:
    """Do all of it, and wait for it as long as it may take: the threads that are left end with the process."""
    threads = [threading.Thread(target=_quietly, args=(end,), daemon=True) for end in ends]
    for thread in threads:
        thread.start()
    until = time.monotonic() + FLUSH
    for thread in threads:
        thread.join(max(0.0, until - time.monotonic()))


def _quietly(end: Callable[[], object]) -> None:
    try:
        end()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is no fault of what the process was for
        logger.debug("the last spans or metrics were not sent: %s", type(error).__name__)
