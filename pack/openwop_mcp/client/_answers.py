"""Reads the message that answers a request out of an HTTP response, or says why there is none.

Knows statuses, media types and event streams. Messages are opaque here but for the question whether one of a stream is
the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx

from openwop_mcp.client._deadline import Deadline
from openwop_mcp.client._decoding import decoded, is_encoded
from openwop_mcp.client._faults import NETWORK_FAULTS, too_large
from openwop_mcp.client._pool import MOVED, address, origin
from openwop_mcp.client._room import LARGE, Room
from openwop_mcp.client._wire import OnMessage, SizeLimits
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import ConnectionLostError, HttpStatusError, MalformedAnswerError, RateLimitedError
from openwop_mcp.protocol import messages
from openwop_mcp.protocol.sse import EventStreamDecoder, EventTooLargeError

__all__ = ("GATEWAY", "AnswerReader", "HttpAnswer", "StreamCutError", "is_stream")

logger = logging.getLogger(__name__)

STREAM_END = 0.05
"""Seconds that the end of a stream may take after the answer, which ends it. Its connection is then used again; a new
one costs about as much as this wait, which only a server that leaves its streams open makes us take."""

REFUSAL_BODY = 5.0
"""Seconds that the body of a refusal may take within the request's total limit: the status is known by then, and the
body only explains it."""

GATEWAY = frozenset({502, 503, 504})
"""Statuses that come from in front of the server: their body is no verdict on the call, whatever it holds."""

NOT_PROCESSED = frozenset({401, 403, 404, 405, 406, 413, 415, 431}) | MOVED
"""Statuses with which an HTTP server refuses a request before anything acts on it (RFC 9110, section 15)."""

OK = 200
UNAUTHORIZED = 401
FORBIDDEN = 403
REDIRECT = range(300, 400)

RESUME_AFTER = 1.0
"""Seconds until a stream is taken up again where the server named no time."""

RESUME_SOONEST = 0.05
"""Seconds until then at the least: a server that is gone, or that named no time at all, is not asked in a tight
circle."""

TURN = 4 * 1024
"""Bytes of a stream after which others have a turn, as many come in one piece, and more of them without a wait. They
take some milliseconds where they are nothing but short messages or full of escapes."""

REST = 0.05
"""Seconds until a lasting stream is read on after a turn: some hundred changes a second, and a server that sends
without end takes up a small part of the worker, as it can send no faster than it is read."""

RESUMABLE_ID = re.compile(rb"[!-~\x80-\xff]([\t -~\x80-\xff]*[!-~\x80-\xff])?")
"""What a header can hold as it stands (RFC 9110, section 5.5)."""

JSON_TYPE = "application/json"
STREAM_TYPE = "text/event-stream"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The message that answers a request."""

    status: int
    message: bytes


class StreamCutError(Exception):
    """An event stream ended before it answered, and can be taken up again where it ended.

    Attributes:
        last_event_id: Where.
        wait: Seconds to wait, as the server said if it did.
    """

    def __init__(self, last_event_id: str, retry: int | None) -> None:
        super().__init__("the event stream ended without an answer")
        self.last_event_id = last_event_id
        self.wait = RESUME_AFTER if retry is None else max(RESUME_SOONEST, retry / 1000)


class AnswerReader:
    """Reads the answer to one request, from as many responses as it takes.

    Args:
        sizes: Limits in bytes.
        deadline: The request's time limits.
        on_message: Takes each message that is not the answer.
        room: What large answers have to find room in; None for none that anybody counts.
        batches: Whether messages may come in batches (MCP 2025-03-26).
        resumable: Whether a stream that ended without the answer can be taken up again (MCP up to 2025-11-25).
        lasting: Whether a stream is there to tell what happens and not to answer: it has no size as a whole.
    """

    def __init__(
        self,
        sizes: SizeLimits,
        deadline: Deadline,
        on_message: OnMessage | None,
        *,
        room: Room | None = None,
        batches: bool = False,
        resumable: bool = False,
        lasting: bool = False,
    ) -> None:
        self._sizes = sizes
        self._deadline = deadline
        self._on_message = on_message
        self._room = room
        self._batches = batches
        self._resumable = resumable
        self._lasting = lasting
        self._size = 0
        self._heard = 0
        self._room_found = 0
        self._noted = False
        self._last_event_id: str | None = None
        self._retry: int | None = None

    async def read(self, response: httpx.Response) -> HttpAnswer:
        """Read a response.

        Raises:
            McpError: It holds no answer.
            StreamCutError: It held none yet.
        """
        status = response.status_code
        media_type = _media_type(response)
        if status == OK and media_type == JSON_TYPE:
            return HttpAnswer(status, self._answer_of(await self._body(response)))
        if is_stream(response):
            return HttpAnswer(status, await self._stream(response))
        self._deadline.answered()
        return await _refused(response, media_type, self._sizes, min(REFUSAL_BODY, self._deadline.left))

    def _answer_of(self, body: bytes) -> bytes:
        """The answer in a body, which in revision 2025-03-26 may be one of several messages."""
        parts = messages.batch(body) if self._batches else [body]
        return parts[0] if len(parts) == 1 else self._picked(parts) or body

    async def _body(self, response: httpx.Response) -> bytes:
        parts: list[bytes] = []
        limit = self._sizes.response_bytes
        async for chunk in decoded(response):
            self._deadline.alive()
            self._size += len(chunk)
            if self._size > limit:
                raise too_large(limit, "limits.response_bytes")
            parts.append(chunk)
            if self._size > LARGE:
                await self._find_room(self._size, _length(response, limit))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _stream(self, response: httpx.Response) -> bytes:
        decoder = EventStreamDecoder(self._sizes.event_bytes)
        chunks = decoded(response)
        try:
            async for chunk in chunks:
                self._deadline.alive()
                self._size += len(chunk)
                if self._size > self._sizes.response_bytes and not self._lasting:
                    raise too_large(self._sizes.response_bytes, "limits.response_bytes")
                answer = await self._hear(decoder, chunk)
                if answer is not None:
                    self._deadline.answered()
                    await _finish(chunks)
                    return answer
                if decoder.held > LARGE and not self._lasting:
                    await self._find_room(decoder.held, self._sizes.event_bytes)
        except NETWORK_FAULTS as error:
            if not self._resumable or not self._remember(decoder):
                raise
            raise self._cut() from error
        if self._resumable and self._remember(decoder):
            raise self._cut()
        raise ConnectionLostError("the event stream ended without an answer")

    async def _hear(self, decoder: EventStreamDecoder, chunk: bytes) -> bytes | None:
        """Take what came of a stream, and leave others their turns; the answer, if it is in there."""
        for at in range(0, len(chunk), TURN):
            piece = chunk[at : at + TURN]
            events = _events(decoder, piece, self._sizes.event_bytes)
            for event in events:
                answer = self._take(event)
                if answer is not None:
                    return answer
            # Of a long line nothing is looked at until it ends.
            if b"\n" in piece or b"\r" in piece:
                self._heard += max(len(piece), sum(map(len, events)))
            if self._heard >= TURN:
                self._heard = 0
                await asyncio.sleep(REST if self._lasting else 0)
                self._deadline.alive()
        return None

    async def _find_room(self, size: int, limit: int) -> None:
        """Read no further until there is room for what has come, and for as much again as far as the limit lets it.

        A server that is slow, or that names a length and does not send it, so takes up no more than twice what it sent.
        """
        if self._room is None or size <= self._room_found:
            return
        found = max(size, min(2 * size, limit))
        self._deadline.held_back()
        await self._room.take(found - self._room_found)
        self._room_found = found
        self._deadline.alive()

    def _take(self, event: bytes) -> bytes | None:
        """Hand the messages of an event on; the answer, if it is among them."""
        if event.isspace():
            # A keep-alive of empty lines.
            return None
        return self._picked(messages.batch(event) if self._batches else [event])

    def _picked(self, parts: Sequence[bytes]) -> bytes | None:
        """Hand messages on; the answer, if it is among them."""
        answer: bytes | None = None
        for message in parts:
            kind = messages.classify_stream_message(message)
            if kind == "answer":
                answer = message if answer is None else answer
                continue
            if kind == "other":
                if not self._noted:
                    self._noted = True
                    logger.warning("something beside an answer is no JSON-RPC message and is passed over")
            elif self._on_message is not None:
                self._on_message(message)
        return answer

    def _remember(self, decoder: EventStreamDecoder) -> bool:
        if decoder.last_event_id:
            self._last_event_id = _sendable(decoder.last_event_id)
        self._retry = decoder.retry if decoder.retry is not None else self._retry
        return self._last_event_id is not None

    def _cut(self) -> StreamCutError:
        assert self._last_event_id is not None
        return StreamCutError(self._last_event_id, self._retry)


def is_stream(response: httpx.Response) -> bool:
    """Whether it is the one response that takes a stream up again: any other is about the request for it."""
    return response.status_code == OK and _media_type(response) == STREAM_TYPE


def _media_type(response: httpx.Response) -> str:
    named: str = response.headers.get("content-type", "")
    return named.partition(";")[0].strip().lower()


def _sendable(event_id: bytes) -> str | None:
    """An event's id as it can be sent back; None for one that no header can hold."""
    with contextlib.suppress(UnicodeDecodeError):
        return event_id.decode() if RESUMABLE_ID.fullmatch(event_id) else None
    return None


def _events(decoder: EventStreamDecoder, chunk: bytes, limit: int) -> list[bytes]:
    try:
        return decoder.feed(chunk)
    except EventTooLargeError:
        raise too_large(limit, "limits.event_bytes") from None


async def _refused(response: httpx.Response, media_type: str, sizes: SizeLimits, patience: float) -> HttpAnswer:
    """What a response means that is not 200 with one of the two media types; the answer, if it is one after all."""
    status = response.status_code
    retry_after = _retry_after(response.headers.get("retry-after"))
    if status == httpx.codes.TOO_MANY_REQUESTS:
        raise RateLimitedError("the server answered 429: too many requests", retry_after=retry_after)
    challenges = response.headers.get_list("www-authenticate")
    about_access = status == UNAUTHORIZED or (status == FORBIDDEN and bool(challenges))
    may_answer = media_type == JSON_TYPE and status not in GATEWAY and status not in REDIRECT and not about_access
    body = await _refusal(response, sizes.response_bytes if may_answer else messages.EXCERPT_BYTES, patience)
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
        retry_after=retry_after,
        excerpt=messages.excerpt(body),
        location=location,
        challenges=challenges,
    )


def _prose(response: httpx.Response, media_type: str, location: str | None) -> str:
    status = response.status_code
    there = address(response.request.url)
    is_it = "is the setting servers.<id>.url its MCP endpoint?"
    if status == OK:
        return f"HTTP {status} with media type '{media_type or 'none'}' from {there} is no MCP answer: {is_it}"
    if location is not None:
        return (
            f"the server answered {status}, a redirect from {origin(response.request.url)} to {location}, which is not"
            " followed: if that is the server, make it the server's url setting"
        )
    if status in {UNAUTHORIZED, FORBIDDEN}:
        return f"the server answered {status}: check the server's credential setting"
    if status in {404, 405}:
        return f"the server at {there} answered {status} without a JSON-RPC error: {is_it}"
    return f"the server answered {status} without a JSON-RPC answer"


def _location(response: httpx.Response) -> str | None:
    """Where a redirect points, without user, query and fragment; without a path that is ours, as it may be secret."""
    try:
        there = response.request.url.join(response.headers["location"])
    except (KeyError, ValueError, httpx.InvalidURL):
        return None
    path = "" if there.path == response.request.url.path else there.raw_path.partition(b"?")[0].decode("ascii")
    return messages.excerpt((origin(there) + path).encode())


def _length(response: httpx.Response, limit: int) -> int:
    """Bytes that a body can have at most: as many as it says, unless it is to be decoded first."""
    told = response.headers.get("content-length", "")
    if is_encoded(response) or not (told.isascii() and told.isdigit()):
        return limit
    return min(int(told), limit)


async def _finish(chunks: AsyncIterator[bytes]) -> None:
    """Read the end of a stream that has answered, if it comes at once."""
    with contextlib.suppress(*NETWORK_FAULTS):
        async with asyncio.timeout(STREAM_END):
            await anext(chunks, b"")


async def _refusal(response: httpx.Response, limit: int, patience: float) -> bytes:
    """What can be had of a body that is no result, up to a limit: it only explains a status that stands by itself."""
    parts: list[bytes] = []
    size = 0
    with contextlib.suppress(*NETWORK_FAULTS, MalformedAnswerError):
        async with asyncio.timeout(patience):
            async for chunk in decoded(response):
                parts.append(chunk)
                size += len(chunk)
                if size >= limit:
                    break
    return b"".join(parts)[:limit]


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
