"""The trace that a request belongs to, as its client tells it (W3C Trace Context).

Makes it the current one while the request is handled, so that what is asked of Temporal for it, and of MCP servers in
the end, belongs to the same trace. Knows two headers; what a client says in ``baggage`` stays here, since it would be
sent to servers that the client does not know.
"""

from __future__ import annotations

import logging

from opentelemetry import context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ("Traced",)

HEADERS = ("traceparent", "tracestate")

MAX_TRACESTATE = 512
"""Characters of ``tracestate`` that go on: as many as the standard asks for. It stands in history with every call."""

_propagator = TraceContextTextMapPropagator()


class Traced:
    """Middleware that puts a request into its trace. A header that is none of the standard's is as good as absent.

    Args:
        app: What is inside.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        # It complains of a tracestate that is none by repeating it, and a client can have put anything there.
        logging.getLogger("opentelemetry.trace.span").setLevel(logging.ERROR)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle what comes (ASGI)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        # Several lines of one header are one list, and more than one parent is none.
        carrier = {name: ",".join(values) for name in HEADERS if (values := headers.getlist(name))}
        if len(carrier.get("tracestate", "")) > MAX_TRACESTATE:
            del carrier["tracestate"]
        token = context.attach(_propagator.extract(carrier, context.Context()))
        try:
            await self._app(scope, receive, send)
        finally:
            context.detach(token)
