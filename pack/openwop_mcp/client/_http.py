"""One POST over Streamable HTTP, from a request's bytes to the bytes of the message that answers it.

Owns the connection pool, limits of time and size, and the verdict on delivery. Messages are opaque here but for the
question whether one of an event stream is the answer.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

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
from openwop_mcp.protocol.messages import classify_stream_message, excerpt
from openwop_mcp.protocol.sse import EventStreamDecoder, EventTooLargeError

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

__all__ = ("HttpAnswer", "HttpTransport", "SizeLimits")

KEEP_ALIVE = 3.0
"""Seconds an idle connection is kept for reuse. Servers close idle ones after five (uvicorn, Node); a request written
into a closing connection is lost in doubt, so ours end first."""

CHARGED_AGAIN = frozenset({502, 503, 504})
"""Statuses that come from in front of the server: their body is no verdict on the call, whatever it holds."""

NOT_PROCESSED = frozenset({401, 403, 404, 405, 406, 413, 415, 431})
"""Statuses with which an HTTP server refuses a request before anything acts on it (RFC 9110, section 15)."""

SERVER_ERROR = 500
OK = 200
REDIRECT = range(300, 400)

EXCERPT_BYTES = 512
"""Bytes read of a body that is no answer, to tell a person what was met."""

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
        headers: Sequence[tuple[str, str]],
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
                request = httpx.Request("POST", url, headers=list(headers), content=body)
                response = await self._transport.handle_async_request(request)
                try:
                    deadline.alive()
                    return await _read(response, deadline, sizes, on_message)
                finally:
                    await response.aclose()
        except (httpx.HTTPError, httpx.StreamError, OSError, aiohttp.ClientError) as error:
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


async def _read(
    response: httpx.Response,
    deadline: Deadline,
    sizes: SizeLimits,
    on_message: Callable[[bytes], None] | None,
) -> HttpAnswer:
    status = response.status_code
    media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if status != OK:
        await _refuse_status(response, status, media_type, deadline)
    if media_type == STREAM_TYPE:
        return HttpAnswer(status, await _read_stream(response, deadline, sizes, on_message))
    if media_type != JSON_TYPE:
        head = await _head(response, deadline)
        if not head and not media_type:
            raise MalformedAnswerError(
                f"HTTP {status} with an empty body is no answer to a request",
                fault="empty",
                delivery=Delivery.UNKNOWN,
            )
        raise HttpStatusError(
            f"HTTP {status} with media type '{media_type or 'none'}' is no MCP answer: is this the MCP endpoint?",
            status=status,
            delivery=Delivery.UNKNOWN,
            media_type=media_type or None,
            excerpt=excerpt(head),
        )
    return HttpAnswer(status, await _read_body(response, deadline, sizes))


async def _refuse_status(response: httpx.Response, status: int, media_type: str, deadline: Deadline) -> None:
    """Raise for a status that is a verdict by itself; return where the body may hold a JSON-RPC error."""
    retry_after = _retry_after(response.headers.get("retry-after"))
    if status == httpx.codes.TOO_MANY_REQUESTS:
        raise RateLimitedError("the server answered 429: too many requests", retry_after=retry_after)
    if media_type == JSON_TYPE and status not in CHARGED_AGAIN and status not in REDIRECT:
        return
    raise HttpStatusError(
        _status_prose(status),
        status=status,
        delivery=Delivery.NOT_PROCESSED if status in NOT_PROCESSED or status in REDIRECT else Delivery.UNKNOWN,
        media_type=media_type or None,
        retry_after=retry_after,
        excerpt=excerpt(await _head(response, deadline)),
    )


def _status_prose(status: int) -> str:
    if status in REDIRECT:
        return (
            f"the server answered {status}, a redirect, which is not followed: set the server's url to where it points"
        )
    if status in {401, 403}:
        return f"the server answered {status}: check the server's credential setting"
    if status in {404, 405}:
        return f"the server answered {status} without a JSON-RPC error: is this the MCP endpoint?"
    return f"the server answered {status} without a JSON-RPC answer"


def _chunks(response: httpx.Response) -> AsyncIterator[bytes]:
    encoding = response.headers.get("content-encoding", "identity").lower()
    return response.aiter_raw() if encoding == "identity" else response.aiter_bytes()


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
    size = 0
    async for chunk in _chunks(response):
        deadline.alive()
        size += len(chunk)
        if size > sizes.response_bytes:
            raise _too_large(sizes.response_bytes, "limits.response_bytes")
        try:
            messages = decoder.feed(chunk)
        except EventTooLargeError:
            raise _too_large(sizes.event_bytes, "limits.event_bytes") from None
        for message in messages:
            if classify_stream_message(message) == "answer":
                return message
            if on_message is not None:
                on_message(message)
    raise ConnectionLostError("the event stream ended without an answer")


async def _head(response: httpx.Response, deadline: Deadline) -> bytes:
    head = b""
    try:
        async for chunk in _chunks(response):
            deadline.alive()
            head += chunk
            if len(head) >= EXCERPT_BYTES:
                break
    except (httpx.HTTPError, aiohttp.ClientError):
        # The excerpt only illustrates; the status is the news.
        return head[:EXCERPT_BYTES]
    return head[:EXCERPT_BYTES]


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
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


def _raise_for(error: BaseException, *, connected: bool) -> NoReturn:
    """Name a fault of the network. What the libraries call it is prose; whether a connection was there is the fact."""
    cause = error.__cause__ if isinstance(error.__cause__, aiohttp.ClientError | OSError) else error
    reason = f"{type(cause).__name__}" + (
        f": {cause.strerror}" if isinstance(cause, OSError) and cause.strerror else ""
    )
    if connected:
        raise ConnectionLostError(f"the connection broke before the answer was whole ({reason})") from error
    raise ConnectError(f"no connection to the server ({reason})") from error
