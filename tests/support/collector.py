"""An OpenTelemetry collector for tests: takes OTLP over HTTP, and keeps what it was sent, with the bytes of it."""

from __future__ import annotations

import asyncio
import gzip
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from tests.support.patience import PATIENCE

__all__ = ("Collector", "Measured", "Span", "collector")


@dataclass(frozen=True)
class Span:
    """A span as it arrived."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str
    attributes: Mapping[str, Any]
    status: int
    described: str
    events: list[tuple[str, dict[str, Any]]]
    links: list[str]
    service: str


@dataclass(frozen=True)
class Measured:
    """One point of a metric as it arrived, the value of a histogram being how often and how much in all."""

    name: str
    unit: str
    attributes: Mapping[str, Any]
    value: float | tuple[int, float]
    resource: Mapping[str, Any]


@dataclass
class Collector:
    """What arrived, the newest last."""

    url: str = ""
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    metrics: list[Measured] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that have a process send all that it can to here, at short intervals."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "OTEL_METRIC_EXPORT_INTERVAL": "300",
        }

    async def until(self, holds: Callable[[Collector], Any]) -> Any:
        """Wait until something has arrived; what was asked for of it."""
        async with asyncio.timeout(PATIENCE):
            while not (found := holds(self)):  # noqa: ASYNC110 - it comes in a thread
                await asyncio.sleep(0.05)
        return found

    def named(self, name: str) -> list[Span]:
        """The spans of a name."""
        return [span for span in list(self.spans) if span.name == name]

    def above(self, span: Span) -> list[Span]:
        """The span and those that it hangs on, its own first."""
        by_id = {one.span_id: one for one in list(self.spans) if one.trace_id == span.trace_id}
        line = [span]
        while (parent := by_id.get(line[-1].parent_id)) is not None:
            line.append(parent)
        return line

    def points(self, name: str, **attributes: Any) -> list[Measured]:
        """The points of a metric with these attributes, whose dots are written as two underscores."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        return [one for one in list(self.metrics) if one.name == name and wanted.items() <= one.attributes.items()]

    def take(self, path: str, body: bytes) -> None:
        """Keep what was sent to a path."""
        self.bodies.append(body)
        if path == "/v1/traces":
            self.spans += _spans(ExportTraceServiceRequest.FromString(body))
        if path == "/v1/metrics":
            self.metrics += _metrics(ExportMetricsServiceRequest.FromString(body))


@contextmanager
def collector(status: int = 200) -> Iterator[Collector]:
    """A collector that answers everything with a status; it keeps what it takes."""
    kept = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            kept.headers.append({name.lower(): value for name, value in self.headers.items()})
            if status == 200:
                kept.take(self.path, body)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    kept.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield kept
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return None if kind is None else getattr(value, kind)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _spans(sent: ExportTraceServiceRequest) -> list[Span]:
    return [
        Span(
            name=span.name,
            kind=span.kind,
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            attributes=_attributes(span.attributes),
            status=span.status.code,
            described=span.status.message,
            events=[(event.name, _attributes(event.attributes)) for event in span.events],
            links=[link.span_id.hex() for link in span.links],
            service=_attributes(resource.resource.attributes).get("service.name", ""),
        )
        for resource in sent.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _metrics(sent: ExportMetricsServiceRequest) -> list[Measured]:
    found: list[Measured] = []
    for resource in sent.resource_metrics:
        about = _attributes(resource.resource.attributes)
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                kind = metric.WhichOneof("data")
                for point in getattr(metric, kind).data_points:
                    value = (
                        (point.count, point.sum) if kind == "histogram" else getattr(point, point.WhichOneof("value"))
                    )
                    found.append(Measured(metric.name, metric.unit, _attributes(point.attributes), value, about))
    return found
