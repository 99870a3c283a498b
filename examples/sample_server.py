"""A small MCP server to try the pack against, with a journal of the exact bytes it sent.

It stands alone: it uses the official SDK and nothing of the pack, so that what the pack recorded can be compared with
what an independent server says it sent.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import logging
import os
import socket
import sys
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal

import anyio
import uvicorn
from mcp.server.elicitation import AcceptedElicitation, ElicitationResult
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ("Journal", "main", "result_span", "sample_server", "serve", "traced")

PROGRESS_EVERY = 0.5
"""Seconds between two signs of life of `slow`: often enough to be seen by someone who watches."""

SHUTDOWN_GRACE = 1
"""Seconds that calls under way get when the server is told to stop; a stopped server is what the caller asked for."""


class Forecast(BaseModel):
    """What `get_forecast` answers."""

    city: str
    celsius: float
    sky: str
    hours: list[int]


class Booking(BaseModel):
    """What `book_table` asks."""

    day: date = Field(title="Day")
    people: int = Field(2, title="How many", ge=1, le=8)
    place: Literal["inside", "terrace"] = Field("inside", title="Where")


def ask_for_booking(restaurant: str) -> Elicit[Booking]:
    """Ask a person what only they know."""
    return Elicit(f"When do you want a table at {restaurant}?", Booking)


def book_table(
    restaurant: str, booking: Annotated[ElicitationResult[Booking], Resolve(ask_for_booking)]
) -> dict[str, Any]:
    """Book a table, and ask when: the call is answered once a person has said it."""
    booked = booking.data.model_dump(mode="json") if isinstance(booking, AcceptedElicitation) else None
    return {"restaurant": restaurant, "booked": booked}


def sample_server() -> MCPServer[Any]:
    """Make the server with its tools and resources."""
    server: MCPServer[Any] = MCPServer("sample", version="1.0.0", log_level="WARNING")

    @server.tool()
    def add(a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    @server.tool()
    def echo(value: Annotated[Any, Field(description="Any JSON value")]) -> dict[str, Any]:
        """Give back what was sent."""
        return {"value": value}

    @server.tool()
    async def slow(
        seconds: Annotated[float, Field(ge=0, le=3600)], label: str, ctx: Context[Any, Any]
    ) -> dict[str, Any]:
        """Wait, and report progress twice a second."""
        waited = 0.0
        while waited < seconds:
            await ctx.report_progress(waited, seconds, label)
            pause = min(PROGRESS_EVERY, seconds - waited)
            await anyio.sleep(pause)
            waited += pause
        return {"label": label, "seconds": seconds}

    @server.tool()
    def get_forecast(city: str) -> Forecast:
        """Tell the weather of a city: always the same for the same city."""
        digest = hashlib.sha256(city.encode()).digest()
        skies = ("clear", "cloudy", "rain", "snow")
        return Forecast(city=city, celsius=digest[0] / 10, sky=skies[digest[1] % 4], hours=[6, 12, 18])

    server.tool()(book_table)

    @server.tool()
    def always_error() -> str:
        """Fail: the result says `isError`."""
        raise ToolError("this tool always fails")

    @server.resource("sample://greeting", mime_type="text/plain")
    def greeting() -> str:
        """Say hello."""
        return "Grüß Gott"

    @server.resource("sample://greeting/{name}", mime_type="text/plain")
    def personal_greeting(name: str) -> str:
        """Say hello to someone."""
        return f"Hello, {name}"

    return server


def result_span(message: bytes) -> bytes | None:
    """Cut the exact bytes of the member `result` out of a JSON-RPC message; None if it has none."""
    decode = json.JSONDecoder().raw_decode
    text = message.decode()
    at = _skip(text, 0)
    if text[at : at + 1] != "{":
        return None
    at = _skip(text, at + 1)
    while text[at : at + 1] == '"':
        name, at = decode(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, end = decode(text, start)
        if name == "result":
            return text[start:end].encode()
        at = _skip(text, _skip(text, end) + 1)
    return None


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\r", "\n"):
        at += 1
    return at


def _answer(content_type: str, body: bytes) -> bytes | None:
    """Find the result in a whole response body, be it one JSON text or an event stream."""
    if not content_type.startswith("text/event-stream"):
        return result_span(body) if content_type.startswith("application/json") else None
    for event in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        lines = [line.removeprefix(b"data:").removeprefix(b" ") for line in event.split(b"\n") if line[:5] == b"data:"]
        if lines and (result := result_span(b"\n".join(lines))) is not None:
            return result
    return None


class Journal:
    """ASGI middleware that writes one JSON line for each POST: what was asked, and the bytes that were sent for it.

    The line is written before the last bytes leave, so that whoever has the answer can read the line. A response that
    was broken off has its line too, with the bytes sent until then.
    """

    def __init__(self, app: ASGIApp, file: Path) -> None:
        self.app = app
        self.file = file

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and listen to both sides of it."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        asked, sent = bytearray(), bytearray()
        status, content_type, written = 0, "", False

        async def listening_receive() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                asked.extend(message.get("body", b""))
            return message

        async def listening_send(message: Message) -> None:
            nonlocal status, content_type, written
            if message["type"] == "http.response.start":
                status = message["status"]
                content_type = dict(message["headers"]).get(b"content-type", b"").decode("latin-1")
            elif message["type"] == "http.response.body":
                sent.extend(message.get("body", b""))
                if not message.get("more_body", False):
                    written = True
                    self._write(bytes(asked), status, content_type, bytes(sent))
            await send(message)

        try:
            await self.app(scope, listening_receive, listening_send)
        finally:
            if not written:
                self._write(bytes(asked), status, content_type, bytes(sent))

    def _write(self, asked: bytes, status: int, content_type: str, sent: bytes) -> None:
        method, name = _what(asked)
        result = _answer(content_type, sent)
        line = {
            "method": method,
            "name": name,
            "status": status,
            "bytes": len(sent),
            "sha256": None if result is None else hashlib.sha256(result).hexdigest(),
            "resultBytes": None if result is None else len(result),
        }
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def _what(body: bytes) -> tuple[str | None, str | None]:
    try:
        message = json.loads(body)
    except ValueError:
        return None, None
    if not isinstance(message, dict):
        return None, None
    method, params = message.get("method"), message.get("params")
    name = (params.get("name") or params.get("uri")) if isinstance(params, dict) else None
    return method, name


class _Server(uvicorn.Server):
    """uvicorn that says on standard output when it listens, and for which a signal is an orderly end."""

    url = ""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        print(json.dumps({"ready": True, "url": self.url}), flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.should_exit = True


def serve(app: ASGIApp, host: str, port: int) -> int:
    """Serve an application until SIGTERM or SIGINT; gives the exit status."""
    # A call cut off by the shutdown is no fault; uvicorn would print its traceback.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        print(f"cannot listen on {host}:{port}: {error.strerror or error}", file=sys.stderr)
        return 1
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=SHUTDOWN_GRACE)
    server = _Server(config)
    server.url = f"http://{host}:{listener.getsockname()[1]}/mcp"
    server.run(sockets=[listener])
    return 0


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """Send the span that the SDK makes of each request to the collector that the environment names, if it names one.

    Each is part of the trace that the request tells of in its ``_meta``.
    """
    exporters = os.environ.get("OTEL_TRACES_EXPORTER", "")
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    if "otlp" not in (exporters or ("otlp" if any(map(os.environ.get, endpoints)) else "")):
        yield
        return
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    name = os.environ.get("OTEL_SERVICE_NAME", "sample-server")
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()


def main() -> int:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description="A sample MCP server over Streamable HTTP.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one (default)")
    parser.add_argument("--journal", type=Path, help="file that gets one JSON line for each POST")
    options = parser.parse_args()
    app: ASGIApp = sample_server().streamable_http_app(host=options.host)
    if options.journal is not None:
        app = Journal(app, options.journal)
    with traced():
        return serve(app, options.host, options.port)


if __name__ == "__main__":
    sys.exit(main())
