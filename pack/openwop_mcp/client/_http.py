"""One POST over Streamable HTTP, from a request's bytes to the bytes of the message that answers it.

Owns the connection pool, limits of time and size, and the verdict on delivery. Messages are opaque here but for the
question whether one of an event stream is the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self, cast

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from openwop_mcp.client._deadline import Deadline
from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import (
    ConnectError,
    ConnectionLostError,
    HttpStatusError,
    MalformedAnswerError,
    RateLimitedError,
    ResultTooLargeError,
)
from openwop_mcp.protocol import messages
from openwop_mcp.protocol.sse import EventStreamDecoder, EventTooLargeError

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

__all__ = ("HttpAnswer", "HttpTransport", "SizeLimits")

logger = logging.getLogger(__name__)

KEEP_ALIVE = 3.0
"""Seconds an idle connection is kept for reuse. Servers close idle ones after five (uvicorn, Node); a request written
into a closing connection is lost in doubt, so ours end first."""

STREAM_END = 0.05
"""Seconds that the end of a stream may take after the answer, which ends it. Its connection is then used again; a new
one costs about as much as this wait, which only a server that leaves its streams open makes us take."""

REFUSAL_BODY = 5.0
"""Seconds that the body of a refusal may take: the status is known by then, and the body only explains it."""

GATEWAY = frozenset({502, 503, 504})
"""Statuses that come from in front of the server: their body is no verdict on the call, whatever it holds."""

MOVED = frozenset({301, 302, 307, 308})
"""Redirects that ask for the request at another place; the others are answers of a kind (RFC 9110, section 15.4)."""

NOT_PROCESSED = frozenset({401, 403, 404, 405, 406, 413, 415, 431}) | MOVED
"""Statuses with which an HTTP server refuses a request before anything acts on it (RFC 9110, section 15)."""

OK = 200
REDIRECT = range(300, 400)

LARGE_BODY = 1024**2
"""Bytes from which a body is handed on in pieces: aiohttp warns of larger ones, as one write of them stalls a loop."""

PIECE = 64 * 1024
"""Bytes of a piece: what a socket takes at once, about."""

JSON_TYPE = "application/json"
STREAM_TYPE = "text/event-stream"


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """Bytes; an answer as a whole, and one event of a stream."""

    response_bytes: int
    event_bytes: int


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The message that answers a request."""

    status: int
    message: bytes


_DEADLINE: ContextVar[Deadline] = ContextVar("deadline")

_FAILED = (httpx.HTTPError, httpx.StreamError, OSError, aiohttp.ClientError)
"""What the libraries raise when the network, or the other end of it, fails."""


class _Connector(aiohttp.TCPConnector):
    """Tells the request under way when it has a connection: the moment from which it may reach the server."""

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout) -> Connection:
        connection = await super().connect(req, traces, timeout)
        _DEADLINE.get().sending()
        return connection


class HttpTransport:
    """The connection pool of a worker process. Each worker in it enters it; the last to leave closes it.

    Response bodies are asked for uncompressed: a result's bytes are then the bytes on the wire, and a size limit counts
    what was really sent.
    """

    def __init__(self) -> None:
        self._transport: AiohttpTransport | None = None
        self._users = 0

    async def __aenter__(self) -> Self:
        self._users += 1
        if self._transport is None:
            context = httpx.create_ssl_context()
            self._transport = AiohttpTransport(verify=context, client=_session(context))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._users -= 1
        if self._transport is not None and self._users == 0:
            transport, self._transport = self._transport, None
            await transport.aclose()

    async def post(
        self,
        url: httpx.URL,
        headers: httpx.Headers,
        body: bytes,
        *,
        timeouts: Timeouts,
        sizes: SizeLimits,
        on_message: Callable[[bytes], None] | None = None,
    ) -> HttpAnswer:
        """Send one JSON-RPC request and read the message that answers it.

        Args:
            url: The server's MCP endpoint, as configured.
            headers: All headers of the request but Host and Content-Length.
            body: The JSON-RPC request.
            timeouts: Limits in seconds.
            sizes: Limits in bytes.
            on_message: Called with each message of an event stream that is not the answer.

        Raises:
            McpError: Any of the tree; ``delivery`` says what is known of the request.
        """
        if self._transport is None:
            raise RuntimeError("the transport is not open: enter it first")
        deadline = Deadline(timeouts)
        token = _DEADLINE.set(deadline)
        try:
            async with deadline:
                response = await self._transport.handle_async_request(_request(url, headers, body))
                try:
                    deadline.alive()
                    return await _read(response, deadline, sizes, on_message)
                finally:
                    await response.aclose()
        except _FAILED as error:
            _raise_for(error, connected=deadline.connected)
        finally:
            _DEADLINE.reset(token)


def _session(context: ssl.SSLContext) -> Callable[[], aiohttp.ClientSession]:
    def make() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            # Calls are bounded where they are scheduled; a pool that queues would spend their time limits.
            connector=_Connector(limit=0, ssl=context, keepalive_timeout=KEEP_ALIVE),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
            # Line limits are aiohttp's own business; event streams are read in chunks.
            timeout=aiohttp.ClientTimeout(total=None),
        )

    return make


def _request(url: httpx.URL, headers: httpx.Headers, body: bytes) -> httpx.Request:
    if len(body) <= LARGE_BODY:
        return httpx.Request("POST", url, headers=headers, content=body)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), PIECE):
            yield body[start : start + PIECE]

    # With its length given it is not sent chunked, which not every server takes.
    headers = httpx.Headers(headers)
    headers["Content-Length"] = str(len(body))
    return httpx.Request("POST", url, headers=headers, content=pieces())


async def _read(
    response: httpx.Response,
    deadline: Deadline,
    sizes: SizeLimits,
    on_message: Callable[[bytes], None] | None,
) -> HttpAnswer:
    status = response.status_code
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if status == OK and media_type == JSON_TYPE:
        return HttpAnswer(status, await _read_body(response, deadline, sizes))
    if status == OK and media_type == STREAM_TYPE:
        return HttpAnswer(status, await _read_stream(response, deadline, sizes, on_message))
    deadline.answered()
    if status == httpx.codes.TOO_MANY_REQUESTS:
        raise RateLimitedError(
            "the server answered 429: too many requests",
            retry_after=_retry_after(response.headers.get("retry-after")),
        )
    may_answer = media_type == JSON_TYPE and status not in GATEWAY and status not in REDIRECT
    body = await _refusal(response, sizes.response_bytes if may_answer else messages.EXCERPT_BYTES)
    if may_answer and messages.is_error(body):
        return HttpAnswer(status, body)
    if status == OK and not body and not media_type:
        raise MalformedAnswerError(
            f"HTTP {status} with an empty body is no answer to a request", fault="empty", delivery=Delivery.UNKNOWN
        )
    location = _location(response) if status in MOVED else None
    media_type = messages.excerpt(media_type.encode())
    raise HttpStatusError(
        _prose(response, media_type, location),
        status=status,
        delivery=Delivery.NOT_PROCESSED if status in NOT_PROCESSED else Delivery.UNKNOWN,
        media_type=media_type or None,
        retry_after=_retry_after(response.headers.get("retry-after")),
        excerpt=messages.excerpt(body),
        location=location,
    )


def _prose(response: httpx.Response, media_type: str, location: str | None) -> str:
    status = response.status_code
    if status == OK:
        return f"HTTP {status} with media type '{media_type or 'none'}' is no MCP answer: is this the MCP endpoint?"
    if location is not None:
        return (
            f"the server answered {status}, a redirect from {_origin(response.request.url)} to {location}, which is not"
            " followed: if that is the server, make it the server's url setting"
        )
    if status in {401, 403}:
        return f"the server answered {status}: check the server's credential setting"
    if status in {404, 405}:
        return f"the server answered {status} without a JSON-RPC error: is this the MCP endpoint?"
    return f"the server answered {status} without a JSON-RPC answer"


def _location(response: httpx.Response) -> str | None:
    """Where a redirect points, without user, query and fragment; without a path that is ours, as it may be secret."""
    try:
        there = response.request.url.join(response.headers["location"])
    except (KeyError, ValueError, httpx.InvalidURL):
        return None
    path = "" if there.path == response.request.url.path else there.raw_path.partition(b"?")[0].decode("ascii")
    return messages.excerpt((_origin(there) + path).encode())


def _origin(url: httpx.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def _chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    """Pieces of a body, decoded where a server encodes it although it was asked not to."""
    encoding = response.headers.get("content-encoding", "identity").lower()
    # The stream itself: httpx's own iterators cost a layer of generators for each small answer.
    return aiter(cast("httpx.AsyncByteStream", response.stream)) if encoding == "identity" else response.aiter_bytes()


async def _read_body(response: httpx.Response, deadline: Deadline, sizes: SizeLimits) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in _chunks(response):
        deadline.alive()
        size += len(chunk)
        if size > sizes.response_bytes:
            raise _too_large(sizes.response_bytes, "limits.response_bytes")
        parts.append(chunk)
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def _read_stream(
    response: httpx.Response,
    deadline: Deadline,
    sizes: SizeLimits,
    on_message: Callable[[bytes], None] | None,
) -> bytes:
    decoder = EventStreamDecoder(sizes.event_bytes)
    chunks = _chunks(response)
    size = 0
    noted = False
    async for chunk in chunks:
        deadline.alive()
        size += len(chunk)
        if size > sizes.response_bytes:
            raise _too_large(sizes.response_bytes, "limits.response_bytes")
        try:
            events = decoder.feed(chunk)
        except EventTooLargeError:
            raise _too_large(sizes.event_bytes, "limits.event_bytes") from None
        for message in events:
            kind = messages.classify_stream_message(message)
            if kind == "answer":
                deadline.answered()
                await _finish(chunks)
                return message
            if kind == "other" and not noted:
                noted = True
                logger.warning("an event of a stream is no JSON-RPC message and is passed over")
            if on_message is not None:
                on_message(message)
    raise ConnectionLostError("the event stream ended without an answer")


async def _finish(chunks: AsyncIterator[bytes]) -> None:
    """Read the end of a stream that has answered, if it comes at once."""
    with contextlib.suppress(*_FAILED):
        async with asyncio.timeout(STREAM_END):
            await anext(chunks, b"")


async def _refusal(response: httpx.Response, limit: int) -> bytes:
    """What can be had of a body that is no result, up to a limit: it only explains a status that stands by itself."""
    parts: list[bytes] = []
    size = 0
    with contextlib.suppress(*_FAILED):
        async with asyncio.timeout(REFUSAL_BODY):
            async for chunk in _chunks(response):
                parts.append(chunk)
                size += len(chunk)
                if size >= limit:
                    break
    return b"".join(parts)[:limit]


def _too_large(limit: int, setting: str) -> ResultTooLargeError:
    return ResultTooLargeError(
        f"the answer is larger than {limit} bytes and was not read further (setting {setting}); the server has acted",
        delivery=Delivery.ANSWERED,
        limit=limit,
        setting=setting,
    )


def _retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After, in either form (RFC 9110, section 10.2.3); None where there is none to be read."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:12])
    try:
        when = parsedate_to_datetime(value)
    except (ValueError, OverflowError, IndexError, TypeError):
        # What the standard library raises for garbage depends on the garbage.
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


def _raise_for(error: BaseException, *, connected: bool) -> NoReturn:
    """Name a fault of the network. What the libraries call it is prose; whether a connection was there is the fact."""
    cause = error.__cause__ if isinstance(error.__cause__, aiohttp.ClientError | OSError) else error
    if isinstance(cause, aiohttp.ClientResponseError | httpx.DecodingError):
        raise MalformedAnswerError(
            f"the answer {messages.FAULTS['invalid_http']} ({type(cause).__name__})",
            fault="invalid_http",
            delivery=Delivery.UNKNOWN,
        ) from error
    said = _said(getattr(cause, "os_error", cause))
    reason = f"{type(cause).__name__}: {said}" if said else type(cause).__name__
    if connected:
        raise ConnectionLostError(f"the connection broke before the answer was whole ({reason})") from error
    raise ConnectError(f"no connection to the server ({reason})") from error


def _said(error: object) -> str | None:
    """What the system says of a fault: event loops put words and addresses of their own in its place."""
    if isinstance(error, ssl.SSLError | socket.gaierror) or not isinstance(error, OSError):
        return getattr(error, "strerror", None)
    return os.strerror(error.errno) if error.errno else None
