"""What leaves a process of a span is what the table of attributes has."""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from openwop_mcp.telemetry._clean import CleanExporter


def test_what_an_exception_says_stays_behind_and_so_does_what_no_table_has() -> None:
    kept = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(CleanExporter(kept)))
    tracer = provider.get_tracer("tests")
    with tracer.start_as_current_span("before") as before:
        link = Link(before.get_span_context(), {"note": "hush"})
    with tracer.start_as_current_span("call", kind=SpanKind.CLIENT, links=[link]) as span:
        span.set_attributes({"openwop_mcp.server_id": "weather", "argument": "hush"})
        span.add_event("said", {"text": "hush"})
        span.record_exception(ValueError("hush"))
        span.set_status(Status(StatusCode.ERROR, "hush"))
    provider.shutdown()
    cleaned = kept.get_finished_spans()[1]
    assert "hush" not in cleaned.to_json()
    assert dict(cleaned.attributes or {}) == {"openwop_mcp.server_id": "weather"}
    assert [(event.name, dict(event.attributes or {})) for event in cleaned.events] == [
        ("exception", {"exception.type": "ValueError"})
    ]
    assert cleaned.status.status_code is StatusCode.ERROR
    assert (cleaned.name, cleaned.kind) == ("call", SpanKind.CLIENT)
    assert cleaned.context == span.get_span_context()
    assert [one.context for one in cleaned.links] == [before.get_span_context()]
