"""One server over Streamable HTTP: a request's headers, its credential, and streams that older revisions take up again.

Owns what stands in headers. Knows sessions and tokens as values only: the client agrees on the one, an authorizer has
the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import httpx

from openwop_mcp import jsontext
from openwop_mcp.client._answers import GATEWAY, AnswerReader, HttpAnswer, StreamCutError, is_stream
from openwop_mcp.client._deadline import Deadline
from openwop_mcp.client._faults import NETWORK_FAULTS, name_fault
from openwop_mcp.client._pool import HttpPool, Reach, address, origin
from openwop_mcp.client._room import Room
from openwop_mcp.client._standing import StandingStream
from openwop_mcp.client._wire import Authorizer, Incoming, OnMessage, Outgoing, SizeLimits, Terms
from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import ConnectionLostError, HttpStatusError, McpError, TimeLimitError
from openwop_mcp.protocol import headers, keys, messages

__all__ = ("HttpWire",)

T = TypeVar("T")

Send = Callable[[Sequence[tuple[str, str]], Timeouts], Awaitable[T]]
"""Sends something with the credential that it is given, within limits."""

logger = logging.getLogger(__name__)

SESSION_HEADER = "Mcp-Session-Id"
"""Names the session of revisions before 2026-07-28."""

FIRST_WITH_VERSION_HEADER = "2025-06-18"
"""The revision that brought ``MCP-Protocol-Version``; a server of the one before knows no such header."""

BATCHES = "2025-03-26"
"""The one revision with batches."""

NO_VERSION_HEADER = frozenset({"initialize"})
"""What agrees on the revision can declare none yet."""

ASIDE = Timeouts(connect=1, first_byte=2, idle=2, total=2)
"""Seconds for what goes beside a call (a notification, the end of a session): it must not hold one up."""

LASTING = frozenset({"subscriptions/listen"})
"""Requests whose stream goes on for as long as someone listens."""

MAX_AUTHORIZATIONS = 4
"""Requests that one call may take to satisfy a server's demands for authorization: a first token, a fresh one, and two
steps up in scope. A server that wants more goes round in circles."""

MAX_HEADERS_KEPT = 256
"""Tools and resources whose headers are kept at once: more than one server's usual tools, and little memory."""

UNAUTHORIZED = 401
REFUSED = frozenset({UNAUTHORIZED, 403})

NOT_TAKEN = REFUSED | GATEWAY | {429}
"""Statuses of a notification that the server did not get to see. Of the others some servers have many for it, 400 and
500 among them, and are none the worse for it: whether they took it, the next request shows."""


class HttpWire:
    """The way to one server over HTTP.

    Args:
        url: The MCP endpoint, taken as it stands.
        pool: The process's connections; not owned.
        reach: Where they may go.
        sizes: Limits in bytes for each answer.
        static_headers: Headers of every request, credentials among them.
        authorizer: Has the token, where one has to be fetched.
        room: What large answers have to find room in; None for none that anybody counts.
    """

    def __init__(
        self,
        url: str,
        pool: HttpPool,
        *,
        reach: Reach,
        sizes: SizeLimits,
        static_headers: Sequence[tuple[str, str]] = (),
        authorizer: Authorizer | None = None,
        room: Room | None = None,
    ) -> None:
        self._url = httpx.URL(url)
        self._address = address(self._url)
        self._pool = pool
        self._reach = reach
        self._sizes = sizes
        self._authorizer = authorizer
        self._room = room
        self._shown = bool(static_headers)
        self._static = (
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("Accept-Encoding", "identity"),
            ("User-Agent", "openwop-mcp-pack"),
            *static_headers,
        )
        self._made: dict[tuple[str, str | None], httpx.Headers] = {}
        self._made_for: Terms | None = None
        self._aside: set[asyncio.Task[None]] = set()
        self.on_unmatched: OnMessage | None = None
        self._standing: StandingStream | None = None
        self._stands_for: Terms | None = None

    @property
    def http(self) -> bool:
        """It is Streamable HTTP."""
        return True

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return origin(self._url)

    @property
    def context(self) -> int:
        """The authorization context; a static credential has one."""
        return self._authorizer.context if self._authorizer is not None else 0

    async def open(self, limits: Timeouts) -> int:  # noqa: ARG002 - each request finds its own connection
        """There is nothing to open: a server that was restarted is the same server."""
        return 0

    async def exchange(self, out: Outgoing, *, limits: Timeouts, on_message: OnMessage | None = None) -> Incoming:
        """Send a request and read its answer; see ``Wire``."""

        async def send(credential: Sequence[tuple[str, str]], left: Timeouts) -> Incoming:
            return await self._cancellable(out, credential, left, on_message)

        return await self._with_credential(send, limits)

    async def tell(self, message: bytes, terms: Terms, limits: Timeouts) -> None:
        """Send a notification that has to be taken; see ``Wire``."""

        async def send(credential: Sequence[tuple[str, str]], left: Timeouts) -> None:
            deadline = Deadline(left, server=self._address)
            made = httpx.Headers([*self._static, *_of_terms(terms, "", None), *credential])
            try:
                async with deadline:
                    response = await self._pool.open(
                        "POST", self._url, made, message, reach=self._reach, deadline=deadline
                    )
                    async with contextlib.aclosing(response):
                        if response.status_code in NOT_TAKEN:
                            # Which has an error for each of them.
                            await AnswerReader(self._sizes, deadline, None).read(response)
            except NETWORK_FAULTS as error:
                name_fault(error, connected=deadline.connected, at=self._address, setting="servers.<id>.url")

        await self._with_credential(send, limits)

    async def notify(self, message: bytes, terms: Terms) -> None:
        """Send what has no answer; see ``Wire``."""
        await self._beside("POST", message, terms)

    def attend(self, terms: Terms) -> None:
        """Open the stream on which a server asks and tells what belongs to no request; see ``Wire``."""

        async def get(last: str | None, deadline: Deadline) -> httpx.Response:
            credential = _listed(await self._authorizer.header()) if self._authorizer is not None else []
            asked = _for_stream(httpx.Headers([*self._static, *_of_terms(terms, "", None), *credential]), last)
            return await self._pool.open("GET", self._url, asked, b"", reach=self._reach, deadline=deadline)

        def hear(message: bytes) -> None:
            if self.on_unmatched is not None:
                self.on_unmatched(message)

        if self._standing is not None:
            # That of a session that has ended.
            self._standing.leave()
        self._standing, self._stands_for = StandingStream(get, hear, self._sizes), terms

    async def end(self, terms: Terms) -> None:
        """End a session; see ``Wire``."""
        if self._stands_for is terms:
            await self._leave()
        if terms.session_id is not None:
            await self._beside("DELETE", b"", terms)

    async def close(self) -> None:
        """Wait for what is under way beside calls, which is bounded."""
        await self._leave()
        while self._aside:
            await asyncio.wait(self._aside)
        if self._authorizer is not None:
            await self._authorizer.close()

    async def _leave(self) -> None:
        standing, self._standing, self._stands_for = self._standing, None, None
        if standing is not None:
            await standing.close()

    async def _with_credential(self, send: Send[T], limits: Timeouts) -> T:
        if self._authorizer is not None:
            return await self._authorized(self._authorizer, send, limits)
        try:
            return await send((), limits)
        except HttpStatusError as error:
            if error.status == UNAUTHORIZED:
                error.message = _unauthorized(error.challenges, shown=self._shown)
            raise

    async def _authorized(self, authorizer: Authorizer, send: Send[T], limits: Timeouts) -> T:
        """Send a request with a token, and again with another where the server wants one: it has not acted then."""
        loop = asyncio.get_running_loop()
        end = loop.time() + limits.total
        for _ in range(MAX_AUTHORIZATIONS - 1):
            sent = await _within(authorizer.header(), end, limits)
            try:
                return await send(_listed(sent), _left(limits, end))
            except HttpStatusError as error:
                if error.status not in REFUSED:
                    raise
                again = authorizer.refused(error.status, error.challenges, sent[1] if sent else None)
                if not await _within(again, end, limits):
                    raise
        sent = await _within(authorizer.header(), end, limits)
        return await send(_listed(sent), _left(limits, end))

    async def _cancellable(
        self, out: Outgoing, credential: Sequence[tuple[str, str]], limits: Timeouts, on_message: OnMessage | None
    ) -> Incoming:
        if not out.terms.legacy:
            # The end of its connection cancels a request of revision 2026-07-28.
            return await self._exchange(out, credential, limits, on_message)
        try:
            return await self._exchange(out, credential, limits, on_message)
        except (asyncio.CancelledError, TimeLimitError) as error:
            if out.method != "initialize":
                reason = "the client gave the request up" if isinstance(error, asyncio.CancelledError) else str(error)
                members = [("requestId", b"%d" % out.request_id), ("reason", jsontext.encode(reason))]
                self._start(self.notify(messages.notification("notifications/cancelled", members), out.terms))
            raise

    async def _exchange(
        self, out: Outgoing, credential: Sequence[tuple[str, str]], limits: Timeouts, on_message: OnMessage | None
    ) -> Incoming:
        deadline = Deadline(limits, server=self._address, on_connected=out.on_connected)
        legacy = out.terms.legacy
        reader = AnswerReader(
            self._sizes,
            deadline,
            on_message,
            room=self._room,
            batches=out.terms.revision == BATCHES,
            resumable=legacy,
            lasting=out.method in LASTING,
        )
        made = self._headers(out, credential)
        try:
            async with deadline:
                response = await self._pool.open(
                    "POST", self._url, made, out.body, reach=self._reach, deadline=deadline
                )
                session_id = response.headers.get(SESSION_HEADER) if legacy else None
                try:
                    deadline.alive()
                    answer = await reader.read(response)
                except StreamCutError as cut:
                    await response.aclose()
                    answer = await self._resumed(cut, reader, made, credential, deadline)
                finally:
                    await response.aclose()
        except NETWORK_FAULTS as error:
            name_fault(error, connected=deadline.connected, at=self._address, setting="servers.<id>.url")
        return Incoming(answer.message, answer.status, session_id, deadline.hang_up)

    async def _resumed(
        self,
        cut: StreamCutError,
        reader: AnswerReader,
        made: httpx.Headers,
        credential: Sequence[tuple[str, str]],
        deadline: Deadline,
    ) -> HttpAnswer:
        """Take a stream up where it ended, as often as it ends, within the request's limits (MCP 2025-11-25).

        The request was taken: to refuse to go on with its stream says nothing of it, whatever it is said with.
        """
        made, renewed = httpx.Headers(made), False
        while True:
            response = await self._reopened(cut, made, deadline)
            try:
                deadline.alive()
                if is_stream(response):
                    return await reader.read(response)
                token = None if renewed else await self._another(response, credential)
                if token is None:
                    raise ConnectionLostError(
                        "the event stream ended without an answer, and the server does not take it up again"
                        f" (status {response.status_code})"
                    )
                renewed, made[token[0]] = True, token[1]
            except StreamCutError as again:
                cut = again
            finally:
                await response.aclose()

    async def _reopened(self, cut: StreamCutError, made: httpx.Headers, deadline: Deadline) -> httpx.Response:
        """Ask for the rest of a stream when the server wants it to be asked for, and on until it is there to answer."""
        asked = _for_stream(made, cut.last_event_id)
        deadline.resting()
        await asyncio.sleep(cut.wait)
        deadline.alive()
        while True:
            with contextlib.suppress(*NETWORK_FAULTS):
                return await self._pool.open("GET", self._url, asked, b"", reach=self._reach, deadline=deadline)
            # It may be on its way back; the request's own limits say how long that can take.
            await asyncio.sleep(cut.wait)

    async def _another(self, response: httpx.Response, credential: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
        """Another token, where the server does not take the one of a call any more whose stream is to go on."""
        if self._authorizer is None or response.status_code != UNAUTHORIZED:
            return None
        challenges, sent = response.headers.get_list("www-authenticate"), credential[0][1] if credential else None
        try:
            if await self._authorizer.refused(UNAUTHORIZED, challenges, sent):
                return await self._authorizer.header()
        except McpError as error:
            logger.debug("no token to take a stream up again: %s", type(error).__name__)
        return None

    def _headers(self, out: Outgoing, credential: Sequence[tuple[str, str]]) -> httpx.Headers:
        """All headers of a request. Those of a method and name are kept: making them costs as much as the request."""
        if out.terms is not self._made_for:
            self._made.clear()
            self._made_for = out.terms
        made = self._made.get((out.method, out.name))
        if made is None:
            if len(self._made) >= MAX_HEADERS_KEPT:
                self._made.clear()
            made = httpx.Headers([*self._static, *_of_terms(out.terms, out.method, out.name)])
            self._made[out.method, out.name] = made
        more = [*out.headers, *credential]
        if more:
            # Copied and added to: to make them anew of text costs four times as much.
            made = httpx.Headers(made)
            for name, value in more:
                made[name] = value
        return made

    async def _beside(self, method: str, body: bytes, terms: Terms) -> None:
        token = None
        try:
            if self._authorizer is not None:
                # Without a token in hand by then, the server would not take it.
                token = await _within(self._authorizer.header(), asyncio.get_running_loop().time() + ASIDE.total, ASIDE)
            given = httpx.Headers([*self._static, *_of_terms(terms, "", None), *_listed(token)])
            await self._pool.fetch(
                method,
                str(self._url),
                dict(given),
                body,
                reach=self._reach,
                limits=ASIDE,
                max_bytes=messages.EXCERPT_BYTES,
            )
        except McpError as error:
            logger.debug("what goes beside a call was not taken: %s", type(error).__name__)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)


def _unauthorized(challenges: Sequence[str], *, shown: bool) -> str:
    said = (
        "it does not take the credential of servers.<id>.credential"
        if shown
        else "it wants a credential, and servers.<id>.credential has none"
    )
    oauth = any("resource_metadata" in challenge for challenge in challenges)
    hint = "; it names who issues tokens, so that credential = { oauth = { grant = ... } } may be what it wants"
    return f"the server answered 401: {said}{hint if oauth else ''}"


def _of_terms(terms: Terms, method: str, name: str | None) -> list[tuple[str, str]]:
    if not terms.legacy:
        return headers.standard(terms.revision, method, name=name)
    own: list[tuple[str, str]] = []
    if method not in NO_VERSION_HEADER and terms.revision >= FIRST_WITH_VERSION_HEADER:
        own.append(("MCP-Protocol-Version", terms.revision))
    if terms.session_id is not None:
        own.append((SESSION_HEADER, terms.session_id))
    return own


def _for_stream(made: httpx.Headers, last_event_id: str | None) -> httpx.Headers:
    """The headers of a GET that opens a stream, or takes one up after an event."""
    asked = httpx.Headers(made)
    del asked["Content-Type"]
    # A stream that is taken up has the headers of its call, whose key is for what acts.
    asked.pop(keys.HEADER, None)
    asked["Accept"] = "text/event-stream"
    if last_event_id is not None:
        # As the event had it, which is UTF-8 (HTML, server-sent events, the Last-Event-ID header).
        asked.encoding = "utf-8"
        asked["Last-Event-ID"] = last_event_id
    return asked


def _listed(header: tuple[str, str] | None) -> list[tuple[str, str]]:
    return [] if header is None else [header]


def _left(limits: Timeouts, end: float) -> Timeouts:
    return limits.narrowed(max(0.001, end - asyncio.get_running_loop().time()))


async def _within(work: Coroutine[Any, Any, T], end: float, limits: Timeouts) -> T:
    """Await what has to be had before a request can be sent, within the request's total limit."""
    try:
        async with asyncio.timeout_at(end):
            return await work
    except TimeoutError:
        raise TimeLimitError(
            f"no token: the 'total' limit of {limits.total:g} s ran out while one was asked for",
            limit="total",
            seconds=limits.total,
            delivery=Delivery.NOT_SENT,
        ) from None
