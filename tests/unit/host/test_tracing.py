"""The trace of a request is the current one while it is handled, and no longer."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import baggage, trace
from starlette.types import Receive, Scope, Send

from host.tracing import MAX_TRACESTATE, Traced

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


async def seen(*headers: tuple[str, str]) -> tuple[trace.SpanContext, dict[str, Any]]:
    """What is current within a request."""
    found: list[tuple[trace.SpanContext, dict[str, Any]]] = []

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        found.append((trace.get_current_span().get_span_context(), dict(baggage.get_all())))

    async def nothing(*_: object) -> Any:
        raise AssertionError

    raw = [(name.encode(), value.encode()) for name, value in headers]
    await Traced(app)(
        {"type": "http", "method": "GET", "scheme": "http", "path": "/runs", "headers": raw}, nothing, nothing
    )
    assert not trace.get_current_span().get_span_context().is_valid
    return found[0]


async def test_a_request_belongs_to_the_trace_that_its_client_tells() -> None:
    context, _ = await seen(("traceparent", PARENT), ("tracestate", "a=1"), ("tracestate", "b=2"))
    assert trace.format_trace_id(context.trace_id) == TRACE
    assert trace.format_span_id(context.span_id) == "00f067aa0ba902b7"
    assert context.trace_flags.sampled
    assert context.trace_state.to_header() == "a=1,b=2"


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("tracestate", "a=1"),),
        (("traceparent", "00-zz-00f067aa0ba902b7-01"),),
        (("traceparent", ""),),
        (("traceparent", f"00-{'0' * 32}-00f067aa0ba902b7-01"),),
        (("traceparent", PARENT), ("traceparent", PARENT)),
    ],
)
async def test_a_header_that_is_none_of_the_standards_is_as_good_as_absent(
    headers: tuple[tuple[str, str], ...],
) -> None:
    assert not (await seen(*headers))[0].is_valid


@pytest.mark.parametrize(
    "state", ["=hush", "hush", "a=hush,a=hush", "a=1,HUSH=hush", ",".join(f"a{n}=hush" for n in range(33))]
)
async def test_a_trace_state_that_is_none_is_not_repeated_in_the_log(
    state: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert (await seen(("traceparent", PARENT), ("tracestate", state)))[0].is_valid
    assert not caplog.records


async def test_baggage_stays_with_whoever_sent_it() -> None:
    context, carried = await seen(("traceparent", PARENT), ("baggage", "secret=hush"))
    assert context.is_valid
    assert carried == {}


async def test_more_state_than_the_standard_asks_for_does_not_go_on() -> None:
    members = [("tracestate", f"{name}={'x' * 250}") for name in "abc"]
    assert sum(len(member) for _, member in members) > MAX_TRACESTATE
    most, more = [await seen(("traceparent", PARENT), *members[:count]) for count in (2, 3)]
    assert len(most[0].trace_state) == 2
    assert more[0].is_valid
    assert len(more[0].trace_state) == 0


async def test_what_is_no_request_passes_through() -> None:
    passed: list[str] = []

    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        passed.append(scope["type"])

    async def nothing(*_: object) -> Any:
        raise AssertionError

    await Traced(app)({"type": "lifespan"}, nothing, nothing)
    assert passed == ["lifespan"]
