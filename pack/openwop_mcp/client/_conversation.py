"""Requests to one server on agreed terms: each goes out with what its revision wants beside it.

Owns the agreement, ids, what a server says and asks beside its answers, and trying again where a server did not act.
Knows nothing of tools, caches or schemas.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from openwop_mcp import jsontext
from openwop_mcp.client import _notices as notices
from openwop_mcp.client._beside import beside
from openwop_mcp.client._echoes import Echoes
from openwop_mcp.client._negotiation import Negotiator
from openwop_mcp.client._trace import trace_members
from openwop_mcp.client._wire import Incoming, Outgoing, StaleTermsError, Terms, Wire
from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import (
    ConnectError,
    HttpStatusError,
    InvalidRequestError,
    MalformedAnswerError,
    McpError,
    NoCommonRevisionError,
    RpcError,
    TimeLimitError,
)
from openwop_mcp.protocol import eras, messages, mrtr, revisions
from openwop_mcp.redaction import Redacted, Redactor
from openwop_mcp.telemetry.requests import SentRequest, peer_of

if TYPE_CHECKING:
    from openwop_mcp import schemas

__all__ = ("DEFAULT", "CallOptions", "Conversation", "Exchange", "Members", "More", "OnInput")

T = TypeVar("T")

logger = logging.getLogger(__name__)

Members = Sequence[tuple[str, bytes]]
"""Members of a request's params, each with its JSON text."""

OnInput = Callable[[str, bytes], Awaitable[bytes]]
"""Answers what a server asks: method and params in, the result's JSON text out."""

NO_CAPABILITIES = b"{}"
"""No elicitation, sampling or roots: a server must then not ask for them (MCP 2026-07-28, multi round-trip)."""

ASKABLE = b'{"elicitation":{"form":{}}}'
"""What a client declares that has someone to ask."""

SUSPENDS = b'{"elicitation":{"form":{},"url":{}}}'
"""What a request declares whose caller takes the server's questions to a person, however long that takes."""

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Which parameter stands in ``Mcp-Name`` (MCP 2026-07-28, Streamable HTTP, standard headers)."""

CAPABILITY = {"tools": "tools", "resources": "resources", "prompts": "prompts", "completion": "completions"}
"""The capability that a server of an older revision must have declared, by the first part of a method's name."""

ONLY_MODERN = frozenset({"subscriptions/listen"})
"""Methods that no revision before 2026-07-28 has."""

WITHOUT_PROGRESS = frozenset({"server/discover", "initialize", "subscriptions/listen"})
"""Methods that have no progress to tell."""

MAX_TRIES = 4
"""Times that one call may be put on the wire: besides the call itself for a revision that the server named, a session
that had ended, and a process that was restarted."""

MAX_ROUNDS = 10
"""Rounds of questions in one call; the SDKs of MCP stop at as many."""

SET_LEVEL = 5.0
"""Seconds that an older server may take to hear which log messages are wanted: it must not hold a call up."""

MAX_REPLIES = 16
"""Questions of an older server that are answered at once; a server that asks more is not entitled to more."""

BAD_REQUEST = 400
NOT_FOUND = 404

NO_SESSION = frozenset({-32000, -32001, -32600})
"""What real servers call a session that they do not know, with a status of 400 or 404."""


NO_REQUEST = 0
"""An id that no request has."""

FIRST_IDS = 2**31
"""Of so many ids one is the first of a client. What a server asked one client, another one may answer, after days and a
restart, and the server has to get that with an id that it has not had for it; so has what is sent again in doubt."""

MINIMUM = 0.001
"""Seconds: the least limit there is, for a call whose time is up."""


UNSPENT = 0.05
"""Seconds up to which nothing counts as spent, so that a limit that fires is told as it stands in the settings."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One answered request.

    Attributes:
        result: The exact bytes of ``result``.
        revision: MCP revision on the wire; empty where nothing came, which is a health all the same.
        http_status: Status of the answer; 0 where there is none, as over stdio.
        cached: Whether it was read before and is still fresh; then nothing was sent.
        verdict: Whether ``structuredContent`` keeps to the tool's output schema, where one is known. The result is the
            result all the same: the tool has run.
        refusal: Why there is no revision that both sides speak, where a health says so.
        asked: Whether the server asked something before it answered; such an answer is never served again.
        redacted: What was taken out of the answer, where it held a credential of the server.
        questions: What the server asks in place of an answer; the result is then the exact bytes of its
            ``input_required``. Only where the request said that its caller suspends.
    """

    result: bytes
    revision: str
    http_status: int
    cached: bool = False
    verdict: schemas.Verdict | None = None
    refusal: NoCommonRevisionError | None = None
    asked: bool = False
    redacted: Redacted | None = None
    questions: mrtr.InputRequired | None = None


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What a caller may want of one request beside its answer.

    Attributes:
        timeout: Seconds; a total limit below the server's own.
        on_progress: Takes what the server tells of the request's progress.
        on_connected: Called when the request has a connection, once or oftener.
        on_notice: Takes the notifications of a subscription.
        log_level: The level from which on the server may send log messages; None for the server's setting.
        tenant: On whose behalf; what one may see no other is shown.
        principal: On whose authority, likewise.
        provider_key: The key that a server can tell a repeat of the same effect by, visible ASCII. ``tools/call``
            alone carries it, in whatever the server's settings say carries keys.
        revalidate: Ask the server also where what it answered before is still fresh.
        suspends: Whether the caller takes what the server asks to a person, in form or URL mode: it is then returned in
            place of a result. Where revision 2026-07-28 or later is spoken, and the method can ask.
        input: What answers the server's last question, for such a caller.
        about: Attributes of the spans of its requests, which only the caller knows.
    """

    timeout: float | None = None
    on_progress: Callable[[notices.Progress], None] | None = None
    on_connected: Callable[[], None] | None = None
    on_notice: Callable[[notices.Notice], None] | None = None
    log_level: str | None = None
    tenant: str = ""
    principal: str = ""
    provider_key: str | None = None
    revalidate: bool = False
    suspends: bool = False
    input: mrtr.Input | None = None
    about: Mapping[str, str | int] = field(default_factory=dict)


DEFAULT = CallOptions()


@dataclass(frozen=True, slots=True)
class More:
    """What one request carries beside its params and what every request does.

    Attributes:
        mirrors: Headers that mirror its arguments, which revision 2026-07-28 alone has.
        headers: Headers over HTTP, whatever the revision.
        meta: Members of ``_meta``.
    """

    mirrors: Sequence[tuple[str, str]] = ()
    headers: Sequence[tuple[str, str]] = ()
    meta: Sequence[tuple[str, bytes]] = ()


NOTHING_MORE = More()


class Conversation:
    """What is said with one server. Close it, and with it the wire.

    Args:
        wire: The way to the server; owned.
        timeouts: Limits in seconds for each request.
        client_info: JSON text of ``Implementation``.
        floor: The oldest revision of MCP to speak.
        name: The server's id in the settings.
        log_level: The level from which on the server may send log messages; None for none.
        on_input: Answers the server's questions; None declares that it must ask none.
        on_change: Is told of what voids what was read before.
        redactor: Keeps credentials out of errors and logs.
        echoes: Keeps them out of answers.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        timeouts: Timeouts,
        client_info: bytes,
        floor: str,
        name: str,
        log_level: str | None,
        on_input: OnInput | None,
        on_change: Callable[[notices.Notice], None],
        redactor: Redactor,
        echoes: Echoes,
        clock: Callable[[], float],
    ) -> None:
        self._wire = wire
        self._timeouts = timeouts
        self._name = name
        self._peer = peer_of(name, wire.origin, http=wire.http)
        self._log_level = log_level
        self._on_input = on_input
        self._on_change = on_change
        self._redactor = redactor
        self._echoes = echoes
        self._clock = clock
        self._ids = itertools.count(1 + secrets.randbelow(FIRST_IDS))
        self._replies: set[asyncio.Task[None]] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._in_use: Counter[Terms] = Counter()
        self._unwanted: set[Terms] = set()
        self._logs: list[notices.ServerLog] = []
        capabilities = NO_CAPABILITIES if on_input is None else ASKABLE
        self._meta = messages.terms_meta(revisions.MODERN, client_info, capabilities)
        self._suspending_meta = messages.terms_meta(revisions.MODERN, client_info, SUSPENDS)
        wire.on_unmatched = self._unmatched
        self._negotiator = Negotiator(
            self._ask,
            self._introduce,
            self._leave,
            limits=timeouts,
            client_info=client_info,
            capabilities=capabilities,
            floor=floor,
            http=wire.http,
            clock=clock,
        )

    @property
    def terms(self) -> Terms | None:
        """What was agreed last, if it stands."""
        return self._negotiator.terms

    async def close(self) -> None:
        """End the session, if there is one, and let go of the wire."""
        await self._negotiator.close()
        terms = self._negotiator.terms
        if terms is not None and terms.legacy:
            self._negotiator.forget(terms)
            self._unwanted.add(terms)
        unwanted, self._unwanted = self._unwanted, set()
        for one in unwanted:
            self._end(one)
        for task in self._replies:
            task.cancel()
        if self._leaving:
            # Each is bounded by the wire.
            await asyncio.wait(self._leaving)
        await self._wire.close()

    async def answered(
        self,
        method: str,
        members: Members,
        options: CallOptions,
        more: More = NOTHING_MORE,
        limits: Timeouts | None = None,
    ) -> Exchange:
        """A request and what the server asks before it answers, if there is someone to ask.

        Raises:
            McpError: Any of the tree; no credential is in it.
        """
        limits = limits or self.limits(options.timeout)
        try:
            return await self._rounds(method, members, options, more, limits)
        except McpError as error:
            if isinstance(error, TimeLimitError) and error.limit == "total":
                error.of(limits.total)
            error.about(self._name)
            self._redactor.clean(error)
            raise

    async def _rounds(
        self,
        method: str,
        members: Members,
        options: CallOptions,
        more: More,
        limits: Timeouts,
    ) -> Exchange:
        if options.suspends or options.input is not None:
            return await self._round(method, members, options, more, limits)
        began = self._clock()
        exchange = await self.request(method, members, options, more, limits)
        rounds = 0
        while await _asks(exchange):
            if rounds == MAX_ROUNDS:
                raise _unanswerable(method, "endless_input_requests", f" ({MAX_ROUNDS} times)")
            rounds += 1
            asked = await self._asked(method, exchange.result)
            again = mrtr.retry(members, *asked)
            exchange = await self.request(method, again, options, more, self._less(limits, began))
        return replace(exchange, asked=True) if rounds else exchange

    async def _round(
        self, method: str, members: Members, options: CallOptions, more: More, limits: Timeouts
    ) -> Exchange:
        """One request of a call whose caller answers what the server asks, at another time and in another process."""
        carried = members if options.input is None else mrtr.carrying(members, options.input)
        exchange = await self.request(method, carried, options, more, limits)
        if not await _asks(exchange):
            return exchange if options.input is None else replace(exchange, asked=True)
        if not options.suspends:
            raise _unanswerable(method, "input_required_undeclared")
        try:
            questions = mrtr.read_elicitations(exchange.result)
        except mrtr.MalformedInputError as error:
            raise _unanswerable(method, "invalid_input_request", f": {error}") from None
        undeclared = {one.method for one in questions.requests.values()} - {mrtr.ELICITATION}
        if undeclared:
            raise _unanswerable(method, "input_required_undeclared", f" ({min(undeclared)})")
        return replace(exchange, asked=True, questions=questions)

    async def _asked(self, method: str, result: bytes) -> tuple[mrtr.InputRequired, Mapping[str, bytes]]:
        if self._on_input is None:
            raise _unanswerable(method, "input_required_undeclared")
        try:
            asked = mrtr.read(result)
        except mrtr.MalformedInputError as error:
            raise _unanswerable(method, "invalid_input_request", f": {error}") from None
        return asked, {key: await self._on_input(want.method, want.params) for key, want in asked.requests.items()}

    async def request(
        self,
        method: str,
        members: Members,
        options: CallOptions,
        more: More,
        limits: Timeouts,
    ) -> Exchange:
        """A request on agreed terms, and once more on others where those turn out not to stand."""
        began = self._clock()
        left = limits
        # What is known of the call where something beside it fails.
        known = Delivery.NOT_SENT
        terms = await self._terms(left, known)
        tries, insisted, renewed = 0, False, False
        while True:
            tries += 1
            left = self._less(limits, began)
            try:
                result, incoming = await self._send(terms, method, members, left, options, more)
            except (StaleTermsError, RpcError, HttpStatusError) as failure:
                stale = isinstance(failure, StaleTermsError)
                undone = known if stale else Delivery.NOT_PROCESSED
                left, other = self._less(limits, began), None
                if tries < MAX_TRIES and (stale or not renewed):
                    try:
                        other = await self._agreed(self._other_terms(terms, method, failure, left), left, undone)
                    except McpError as unagreed:
                        if _says_undone(terms, failure) or isinstance(unagreed, NoCommonRevisionError):
                            raise
                        # Whether it refuses the terms, or says something of the call, cannot be found out: it stands.
                        raise self._final(terms, method, failure) from None
                if other is None or (other is terms and insisted):
                    raise self._final(terms, method, failure) from None
                known = undone
                # A server that refuses a revision and names it all the same is asked once more, and no oftener.
                insisted = other is terms
                # Nor is a session replaced twice for one call: what is refused again is refused.
                renewed = renewed or (terms.legacy and not stale)
                terms = other
            except McpError as error:
                if error.delivery is Delivery.NOT_SENT:
                    error.delivery = known
                raise
            else:
                self._negotiator.confirm(terms)
                redacted = await self._echoes.left_out(method, result)
                kept = result if redacted is None else redacted.data
                return Exchange(kept, terms.revision, incoming.status, redacted=redacted)

    def _final(self, terms: Terms, method: str, failure: StaleTermsError | RpcError | HttpStatusError) -> McpError:
        """What a call ends with that no other terms help."""
        if isinstance(failure, StaleTermsError):
            return _never_there()
        if isinstance(failure, RpcError) and self._negotiator.took(terms, method, failure):
            failure.facts["revision"] = terms.revision
        return failure

    async def _terms(self, limits: Timeouts, known: Delivery) -> Terms:
        """The terms to send a request on."""
        began = self._clock()
        for _ in range(MAX_TRIES):
            left = self._less(limits, began)
            generation = await self._wire.open(left)
            standing = self._negotiator.standing(generation)
            if standing is not None:
                return standing
            # A process that ends before it agrees is followed by another.
            with contextlib.suppress(StaleTermsError):
                left = self._less(limits, began)
                return await self._agreed(self._negotiator.agree(generation), left, known)
        raise _never_there()

    async def _agreed(self, work: Coroutine[Any, Any, T], limits: Timeouts, known: Delivery) -> T:
        """Agree with the server for a call, within its limits: others may be agreeing, and it waits for them.

        What fails here says nothing of the call itself, of which is known what was known before.
        """
        try:
            async with asyncio.timeout(limits.total):
                return await work
        except TimeoutError:
            raise TimeLimitError(
                f"no agreement with the server: the 'total' limit of {limits.total:g} s ran out (setting"
                " servers.<id>.timeouts.total, or the call's own timeout)",
                limit="total",
                seconds=limits.total,
                delivery=known,
            ) from None
        except McpError as error:
            error.delivery = known
            raise

    async def _other_terms(
        self, terms: Terms, method: str, error: StaleTermsError | RpcError | HttpStatusError, limits: Timeouts
    ) -> Terms | None:
        """Terms on which a request is to be sent again: it was not sent, or the server did not act on it."""
        if not isinstance(error, StaleTermsError):
            with contextlib.suppress(StaleTermsError):
                return await self._contradicted(terms, method, error)
        self._negotiator.forget(terms)
        return await self._terms(limits, Delivery.NOT_SENT)

    async def _contradicted(self, terms: Terms, method: str, error: RpcError | HttpStatusError) -> Terms | None:
        if not terms.legacy:
            return await self._negotiator.contradicted(terms, method, error)
        if not self._wire.http:
            return None
        if _is_dead(terms, error):
            return await self._negotiator.renewed(terms, gone=_status(error) == NOT_FOUND)
        return await self._negotiator.upgraded() if _misses_something(error) else None

    async def _ask(self, terms: Terms, method: str, members: Members, limits: Timeouts) -> tuple[bytes, Incoming]:
        """What the negotiator asks with."""
        return await self._send(terms, method, members, limits, DEFAULT, NOTHING_MORE)

    async def _introduce(self, terms: Terms) -> None:
        await self._wire.tell(messages.notification("notifications/initialized"), terms, self._timeouts)
        if self._on_input is not None:
            self._wire.attend(terms)
        if self._log_level is None or jsontext.member(terms.capabilities, "logging") is None:
            return
        limits = self._timeouts.narrowed(min(SET_LEVEL, self._timeouts.total))
        try:
            await self._ask(terms, "logging/setLevel", [("level", jsontext.encode(self._log_level))], limits)
        except McpError as error:
            # What a server logs is no reason not to call it.
            logger.warning("server %s does not take a log level: %s", self._name, self._redactor.text(error.message))

    def _leave(self, terms: Terms) -> None:
        """End a session once no request is under way in it, without waiting for the server."""
        if terms in self._in_use:
            self._unwanted.add(terms)
        else:
            self._end(terms)

    @contextlib.contextmanager
    def _used(self, terms: Terms) -> Iterator[None]:
        """Keep a session for as long as a request is under way in it."""
        if terms.session_id is None:
            yield
            return
        self._in_use[terms] += 1
        try:
            yield
        finally:
            self._in_use[terms] -= 1
            if not self._in_use[terms]:
                del self._in_use[terms]
                if terms in self._unwanted:
                    self._unwanted.remove(terms)
                    self._end(terms)

    def _end(self, terms: Terms) -> None:
        task = asyncio.get_running_loop().create_task(self._wire.end(terms))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _send(
        self,
        terms: Terms,
        method: str,
        members: Members,
        limits: Timeouts,
        options: CallOptions,
        more: More,
    ) -> tuple[bytes, Incoming]:
        if terms.legacy:
            _declared(terms, method)
            if options.input is not None:
                raise InvalidRequestError(
                    f"nothing was sent: the server asked for input in MCP {revisions.MODERN}, and now speaks"
                    f" {terms.revision}, in which it cannot be answered"
                )
        request_id, name = next(self._ids), _named(method, members)
        with SentRequest(
            method, name, revision=terms.revision, request_id=request_id, peer=self._peer, about=options.about
        ) as sent:
            trace = trace_members()
            meta = self._meta_of(terms, method, request_id, options, more)
            meta += [(key, jsontext.encode(value)) for key, value in trace]
            out = Outgoing(
                request_id,
                method,
                messages.request(request_id, method, members, meta),
                terms,
                None if terms.legacy else name,
                [*(() if terms.legacy else more.mirrors), *more.headers, *trace] if self._wire.http else (),
                options.on_connected,
            )
            result, incoming = await self._exchanged(out, limits, options)
            if sent.active:
                sent.answered(result)
        return result, incoming

    async def _exchanged(self, out: Outgoing, limits: Timeouts, options: CallOptions) -> tuple[bytes, Incoming]:
        """Put a request on the wire: its result, and the message that it came in."""
        request_id, terms = out.request_id, out.terms
        level = options.log_level or self._log_level
        log = None if level is None else notices.ServerLog(self._name, level, self._redactor.text)

        def on_message(message: bytes) -> None:
            self._take(message, request_id, terms, options, log)

        logs = [] if log is None else [log]
        self._logs += logs
        try:
            with self._used(terms):
                incoming = await self._wire.exchange(out, limits=limits, on_message=on_message)
        finally:
            for one in logs:
                self._logs.remove(one)
        judge = partial(
            messages.answer,
            request_id=request_id,
            method=out.method,
            http_status=incoming.status,
            legacy=terms.legacy,
        )
        try:
            result = await beside(incoming.message, judge)
        except MalformedAnswerError as error:
            if error.fault == "wrong_id":
                incoming.distrust()
            raise
        return result, incoming

    def _meta_of(
        self, terms: Terms, method: str, request_id: int, options: CallOptions, more: More
    ) -> list[tuple[str, bytes]]:
        suspends = options.suspends and method in messages.INPUT_METHODS
        meta = [] if terms.legacy else list(self._suspending_meta if suspends else self._meta)
        if method not in WITHOUT_PROGRESS:
            meta.append(("progressToken", b"%d" % request_id))
        level = options.log_level or self._log_level
        if level is not None and not terms.legacy:
            meta.append((messages.LOG_LEVEL, jsontext.encode(level)))
        meta.extend(more.meta)
        return meta

    def _take(
        self, message: bytes, request_id: int, terms: Terms, options: CallOptions, log: notices.ServerLog | None
    ) -> None:
        """Deal with a message that is no answer; one that cannot be read is none."""
        try:
            self._hear(notices.read(message), request_id, terms, options, log)
        except jsontext.JsonTextError:
            logger.debug("server %s: a message beside the answers is not sound, and is passed over", self._name)

    def _hear(
        self,
        notice: notices.Notice | notices.Asked | None,
        request_id: int,
        terms: Terms,
        options: CallOptions,
        log: notices.ServerLog | None,
    ) -> None:
        if isinstance(notice, notices.Asked):
            # A server of revision 2026-07-28 asks nothing this way, and gets no answer.
            if terms.legacy:
                self._reply(notice, terms)
            return
        if notice is None:
            return
        if notice.method in notices.CHANGES:
            self._on_change(notice)
        if notice.method == notices.MESSAGE and log is not None:
            log.take(notice)
        if options.on_notice is not None and notice.subscription == b"%d" % request_id:
            options.on_notice(notices.Notice(notice.method, self._echoes.told(notice.params)))
        if options.on_progress is not None and (progress := notice.progress(request_id)) is not None:
            said = progress.message and self._redactor.text(progress.message)
            options.on_progress(notices.Progress(progress.progress, progress.total, said))

    def _unmatched(self, message: bytes) -> None:
        """Deal with a message that belongs to no request: a change, a log message, or what an older server asks."""
        # Of the requests under way a log message is for the one that wants to know most; without one nobody wants it.
        log = min(self._logs, key=lambda log: log.least, default=None)
        self._take(message, NO_REQUEST, self._negotiator.speaking, DEFAULT, log)

    def _reply(self, asked: notices.Asked, terms: Terms) -> None:
        if len(self._replies) >= MAX_REPLIES:
            logger.debug("server %s asks more than is answered at once: this is not", self._name)
            return
        task = asyncio.get_running_loop().create_task(self._answer_to(asked, terms))
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    async def _answer_to(self, asked: notices.Asked, terms: Terms) -> None:
        """Answer what a server of an older revision asks of its client."""
        if asked.method == "ping":
            reply = messages.response(asked.request_id, b"{}")
        elif asked.method == "elicitation/create" and self._on_input is not None:
            reply = messages.response(asked.request_id, await self._on_input(asked.method, asked.params))
        else:
            reply = messages.error_response(
                asked.request_id, messages.METHOD_NOT_FOUND, "this client has no such method"
            )
        await self._wire.notify(reply, terms)

    def limits(self, timeout: float | None, began: float | None = None) -> Timeouts:
        """Limits of a call; what is left of them since ``began``, as the requests that it needs share its total."""
        limits = self._timeouts if timeout is None else self._timeouts.narrowed(timeout)
        return limits if began is None else self._less(limits, began)

    def _less(self, limits: Timeouts, began: float) -> Timeouts:
        spent = self._clock() - began
        return limits if spent < UNSPENT else limits.narrowed(max(MINIMUM, limits.total - spent))


async def _asks(exchange: Exchange) -> bool:
    """Whether an answer asks for input; before 2026-07-28 results are of no type, whatever they have in its place."""
    return exchange.revision == revisions.MODERN and await beside(exchange.result, messages.is_input_required)


def _status(error: RpcError | HttpStatusError) -> int:
    return error.http_status if isinstance(error, RpcError) else error.status


def _is_dead(terms: Terms, error: RpcError | HttpStatusError) -> bool:
    """Whether a refusal says that the session is not known (MCP 2025-11-25, sessions), or the revision not any more."""
    if isinstance(error, RpcError) and error.rpc_code in eras.RECOGNISED:
        return error.delivery is Delivery.NOT_PROCESSED
    if terms.session_id is None:
        return False
    if isinstance(error, HttpStatusError):
        return error.status == NOT_FOUND
    # What the older revisions ask to be a 404 some servers say with a 400. Any other code is about the call.
    return error.http_status in {BAD_REQUEST, NOT_FOUND} and error.rpc_code in NO_SESSION


def _misses_something(error: RpcError | HttpStatusError) -> bool:
    """Whether a refusal is one with which a server of 2026-07-28 meets a request of before, among others."""
    return _status(error) == BAD_REQUEST and isinstance(error, RpcError) and error.rpc_code == messages.INVALID_PARAMS


def _says_undone(terms: Terms, failure: StaleTermsError | RpcError | HttpStatusError) -> bool:
    """Whether a failure says by itself that the server has not acted on its request."""
    if isinstance(failure, StaleTermsError) or failure.delivery is Delivery.NOT_PROCESSED:
        return True
    return terms.legacy and _is_dead(terms, failure)


def _never_there() -> ConnectError:
    return ConnectError("the server's process ends again and again before a request reaches it")


def _unanswerable(method: str, fault: str, detail: str = "") -> MalformedAnswerError:
    """What a server asks cannot be answered, and asking again would not change that."""
    return MalformedAnswerError(
        f"the answer to {method} {messages.FAULTS[fault]}{detail}",
        fault=fault,
        delivery=Delivery.ANSWERED,
        retryable=False,
    )


def _declared(terms: Terms, method: str) -> None:
    """Only what the server declared may be asked of it (MCP 2025-11-25, lifecycle)."""
    if method in ONLY_MODERN:
        raise InvalidRequestError(f"the server speaks MCP {terms.revision}, which has no {method}")
    capability = CAPABILITY.get(method.partition("/")[0])
    if capability is not None and jsontext.member(terms.capabilities, capability) is None:
        raise InvalidRequestError(f"the server has not declared '{capability}', so that {method} cannot be asked of it")


def _named(method: str, members: Members) -> str | None:
    key = NAMED_BY.get(method)
    return next((jsontext.decode(value) for name, value in members if name == key), None)
