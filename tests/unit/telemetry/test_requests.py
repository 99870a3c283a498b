"""A request's span and measurement, by the semantic conventions for MCP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import RpcError, UpstreamError
from openwop_mcp.telemetry import requests
from openwop_mcp.telemetry.requests import MAX_TARGET, SentRequest, peer_of


class Heard:
    """What was told of requests."""

    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()

    @property
    def measured(self) -> dict[str, object]:
        """The attributes of the one measurement."""
        data = self.reader.get_metrics_data()
        assert data is not None
        [point] = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
        return dict(point.attributes or {})


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heard]:
    heard = Heard()
    traces, metrics = TracerProvider(shutdown_on_exit=False), MeterProvider([heard.reader], shutdown_on_exit=False)
    traces.add_span_processor(SimpleSpanProcessor(heard.spans))
    monkeypatch.setattr(requests, "_tracer", traces.get_tracer("tests"))
    monkeypatch.setattr(requests, "_duration", metrics.get_meter("tests").create_histogram("d"))
    monkeypatch.setattr(requests, "traced", lambda: True)
    monkeypatch.setattr(requests, "measured", lambda: True)
    yield heard
    traces.shutdown()
    metrics.shutdown()


def sent(method: str = "tools/call", target: str | None = "t", peer: str = "https://mcp.example") -> SentRequest:
    return SentRequest(
        method, target, revision="2026-07-28", request_id=7, peer=peer_of("s", peer, http=True), about={}
    )


def test_where_nobody_wants_to_know_there_is_no_span_and_an_answer_is_not_looked_at() -> None:
    with sent() as request:
        assert not request.active


@pytest.mark.parametrize(
    ("method", "target", "name"),
    [
        ("tools/call", "t", "tools/call t"),
        ("prompts/get", "p", "prompts/get p"),
        ("resources/read", "file:///secret", "resources/read"),
        ("tools/list", None, "tools/list"),
        ("tools/call", "x" * (MAX_TARGET + 1), "tools/call"),
    ],
)
def test_a_span_is_named_by_method_and_tool_or_prompt(heard: Heard, method: str, target: str | None, name: str) -> None:
    with sent(method, target):
        pass
    [span] = heard.spans.get_finished_spans()
    assert span.name == name
    assert "secret" not in span.to_json()


def test_an_address_has_the_port_of_its_scheme_and_a_program_has_none(heard: Heard) -> None:
    with sent():
        pass
    [span] = heard.spans.get_finished_spans()
    assert (span.attributes or {})["server.port"] == 443
    assert peer_of("s", "s", http=False) == {"openwop_mcp.server_id": "s", "network.transport": "pipe"}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            RpcError("hush", rpc_code=-32602, error=b"{}", http_status=200, not_processed=False),
            {"error.type": "mcp_error", "rpc.response.status_code": "-32602", "openwop_mcp.delivery": "answered"},
        ),
        (
            UpstreamError("hush", delivery=Delivery.NOT_SENT),
            {"error.type": "upstream_unavailable", "openwop_mcp.delivery": "not_sent"},
        ),
        (asyncio.CancelledError(), {"error.type": "cancelled", "openwop_mcp.delivery": "unknown"}),
        (RuntimeError("hush"), {"error.type": "_OTHER"}),
    ],
)
def test_an_error_is_told_by_its_code_and_not_in_words(
    heard: Heard, error: BaseException, told: dict[str, object]
) -> None:
    with pytest.raises(type(error)), sent():
        raise error
    [span] = heard.spans.get_finished_spans()
    assert told.items() <= dict(span.attributes or {}).items()
    assert (span.status.status_code, span.status.description, span.events) == (StatusCode.ERROR, None, ())
    assert heard.measured["error.type"] == told["error.type"]


def test_a_tool_that_says_that_it_failed_is_an_error(heard: Heard) -> None:
    with sent() as request:
        request.answered(b'{"isError": true, "content": []}')
    [span] = heard.spans.get_finished_spans()
    assert (span.attributes or {})["error.type"] == heard.measured["error.type"] == "tool_error"
    assert span.status.status_code is StatusCode.ERROR


def test_a_metric_tells_codes_apart_that_a_protocol_has_and_no_others(heard: Heard) -> None:
    with pytest.raises(RpcError), sent():
        raise RpcError("hush", rpc_code=10**30, error=b"{}", http_status=200, not_processed=False)
    assert heard.measured["rpc.response.status_code"] == "_OTHER"
