"""The trace that a request belongs to, as its client tells it (W3C Trace Context), and the host's own part of it.

The trace is the current one while the request is handled, so that what is asked of Temporal for it, and of MCP servers
in the end, belongs to it. Where somebody wants to know, the request has a span and is measured. Of what it asks for,
only its route is told: paths hold ids and tokens. What a client says in ``baggage`` stays here, since it would be sent
to servers that the client does not know.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection
from http import HTTPMethod, HTTPStatus

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openwop_mcp.telemetry import attributes as names
from openwop_mcp.telemetry.instruments import HTTP_REQUESTS, NAME, VERSION, histogram
from openwop_mcp.telemetry.switch import measured, traced

__all__ = ("Traced",)

HEADERS = ("traceparent", "tracestate")

MAX_TRACESTATE = 512
"""Characters of ``tracestate`` that go on: as many as the standard asks for. It stands in history with every call."""

METHODS = frozenset(HTTPMethod)
"""Methods that are told apart; a client can make up others."""

_propagator = TraceContextTextMapPropagator()
_tracer = trace.get_tracer(NAME, VERSION)
_duration = histogram(HTTP_REQUESTS)


class Traced:
    """Middleware that puts a request into its trace. A header that is none of the standard's is as good as absent.

    Args:
        app: What is inside.
        beside: Paths that are asked for all the time by what watches the host: they are neither traced nor measured.
    """

    def __init__(self, app: ASGIApp, *, beside: Collection[str] = ()) -> None:
        self._app = app
        self._beside = beside
        # It complains of a tracestate that is none by repeating it, and a client can have put anything there.
        logging.getLogger("opentelemetry.trace.span").setLevel(logging.ERROR)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle what comes (ASGI)."""
        if scope["type"] != "http" or scope["path"] in self._beside:
            await self._app(scope, receive, send)
            return
        parent = _told(scope)
        if traced() or measured():
            await self._watched(parent, scope, receive, send)
            return
        token = context.attach(parent)
        try:
            await self._app(scope, receive, send)
        finally:
            context.detach(token)

    async def _watched(self, parent: Context, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request with its span, and measure it."""
        began, status = time.perf_counter(), 0
        method = scope["method"] if scope["method"] in METHODS else names.OTHER
        facts: dict[str, str | int] = {names.HTTP_METHOD: method, names.SCHEME: scope["scheme"]}
        span = _tracer.start_span(_name(method), parent, SpanKind.SERVER, facts)

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        token = context.attach(trace.set_span_in_context(span, parent))
        try:
            await self._app(scope, receive, noted)
        finally:
            context.detach(token)
            # Which route it was is known by now; where there is none, the path is anybody's.
            if (route := getattr(scope.get("route"), "path", None)) is not None:
                facts[names.HTTP_ROUTE] = route
                span.update_name(f"{_name(method)} {route}")
            if status:
                facts[names.HTTP_STATUS] = status
            if not status or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                # Without a status the client went away, or the host ends.
                facts[names.ERROR_TYPE] = str(status) if status else "cancelled"
                span.set_status(StatusCode.ERROR)
            span.set_attributes(facts)
            span.end()
            _duration.record(time.perf_counter() - began, facts)


def _name(method: str) -> str:
    return "HTTP" if method == names.OTHER else method


def _told(scope: Scope) -> Context:
    """The trace that a client tells of."""
    headers = Headers(scope=scope)
    # Several lines of one header are one list, and more than one parent is none.
    carrier = {name: ",".join(values) for name in HEADERS if (values := headers.getlist(name))}
    if len(carrier.get("tracestate", "")) > MAX_TRACESTATE:
        del carrier["tracestate"]
    return _propagator.extract(carrier, Context())
