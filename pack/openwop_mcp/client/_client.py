"""The MCP client of one server: builds requests, reads answers, remembers what the server said of itself.

One call is one request on the wire. What it may take besides, each once: finding out what the server speaks, a list
where a tool's parameter headers were not known (-32020), a new session in place of a dead one. Knows nothing of policy,
tenants or Temporal.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from openwop_mcp import jsontext, schemas
from openwop_mcp.client import _notices as notices
from openwop_mcp.client._cache import Asker, ResultCache
from openwop_mcp.client._negotiation import Negotiator
from openwop_mcp.client._redact import Redactor
from openwop_mcp.client._tools import KnownTool, ToolBook
from openwop_mcp.client._trace import trace_meta
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
    NotCallableError,
    RpcError,
)
from openwop_mcp.protocol import messages, mrtr, params, revisions

__all__ = ("CallOptions", "Exchange", "McpClient", "OnInput")

logger = logging.getLogger(__name__)

OnInput = Callable[[str, bytes], Awaitable[bytes]]
"""Answers what a server asks: method and params in, the result's JSON text out."""

NO_CAPABILITIES = b"{}"
"""No elicitation, sampling or roots: a server must then not ask for them (MCP 2026-07-28, multi round-trip)."""

ASKABLE = b'{"elicitation":{"form":{}}}'
"""What a client declares that has someone to ask."""

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Which parameter stands in ``Mcp-Name`` (MCP 2026-07-28, Streamable HTTP, standard headers)."""

CAPABILITY = {"tools": "tools", "resources": "resources", "prompts": "prompts", "completion": "completions"}
"""The capability that a server of an older revision must have declared, by the first part of a method's name."""

WITHOUT_PROGRESS = frozenset({"server/discover", "initialize", "subscriptions/listen"})
"""Methods that have no progress to tell."""

MAX_PAGES = 100
"""Pages read to find one tool's definition after a header mismatch; a list that does not end is a server's fault."""

QUICK = 16 * 1024
"""Bytes that are checked by a schema at once; more takes milliseconds, which other calls would wait."""

LISTEN = 3600.0
"""Seconds of one subscription at most: then it is asked for anew, so that a dead one cannot pass for a quiet one."""

MAX_TRIES = 4
"""Times that one call may be put on the wire: besides the call itself for a revision that the server named, a session
that had ended, and a process that was restarted."""

MAX_ROUNDS = 10
"""Rounds of questions in one call; the SDKs of MCP stop at as many."""

DEAD_SESSION = frozenset({400, 404})
"""How servers say that they do not know a session: the older revisions ask for 404, and some answer 400."""


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
    """

    result: bytes
    revision: str
    http_status: int
    cached: bool = False
    verdict: schemas.Verdict | None = None
    refusal: NoCommonRevisionError | None = None


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What a caller may want of one request beside its answer.

    Attributes:
        timeout: Seconds; a total limit below the server's own.
        on_progress: Takes what the server tells of the request's progress.
        on_notice: Takes the notifications of a subscription.
        log_level: The level from which on the server may send log messages; None for the server's setting.
        tenant: On whose behalf; what one may see no other is shown.
        principal: On whose authority, likewise.
    """

    timeout: float | None = None
    on_progress: Callable[[notices.Progress], None] | None = None
    on_notice: Callable[[notices.Notice], None] | None = None
    log_level: str | None = None
    tenant: str = ""
    principal: str = ""


_DEFAULT = CallOptions()


class McpClient:
    """One server, as seen from one worker process. Close it, and with it the wire.

    Args:
        wire: The way to the server; owned.
        timeouts: Limits in seconds for each request.
        client_info: JSON text of ``Implementation``.
        floor: The oldest revision of MCP to speak.
        name: The server's id in the settings.
        log_level: The level from which on the server may send log messages; None for none.
        on_input: Answers the server's questions; None declares that it must ask none.
        validate: What arguments that break a known input schema lead to: nothing, a warning, or no call.
        redactor: Keeps credentials out of errors and logs.
        cache: What servers said and is still fresh; may be shared with other clients.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        timeouts: Timeouts,
        client_info: bytes,
        floor: str = revisions.MODERN,
        name: str = "server",
        log_level: str | None = None,
        on_input: OnInput | None = None,
        validate: Literal["off", "warn", "refuse"] = "warn",
        redactor: Redactor | None = None,
        cache: ResultCache[Exchange] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wire = wire
        self._timeouts = timeouts
        self._name = name
        # Two servers of the settings may share an origin, and be shown different credentials.
        self._identity = f"{name} {wire.origin}"
        self._log_level = log_level
        self._on_input = on_input
        self._validate = validate
        self._redactor = redactor or Redactor(())
        self._clock = clock
        self._cache: ResultCache[Exchange] = ResultCache(clock) if cache is None else cache
        self._ids = itertools.count(1)
        self._tools = ToolBook()
        self._replies: set[asyncio.Task[None]] = set()
        self._logs: list[notices.ServerLog] = []
        capabilities = NO_CAPABILITIES if on_input is None else ASKABLE
        self._meta = messages.terms_meta(revisions.MODERN, client_info, capabilities)
        wire.on_unmatched = self._unmatched
        self._negotiator = Negotiator(
            self._ask,
            self._introduce,
            wire.end,
            client_info=client_info,
            capabilities=capabilities,
            floor=floor,
            http=wire.http,
            clock=clock,
        )

    @property
    def origin(self) -> str:
        """What the server is known by: scheme, host and port, or its id where it is a local process."""
        return self._wire.origin

    @functools.cached_property
    def peer(self) -> str:
        """SHA-256 of the origin, in hexadecimal: what a run's log calls the server."""
        return hashlib.sha256(self.origin.encode()).hexdigest()

    @property
    def older_revision(self) -> str | None:
        """The revision before 2026-07-28 that was agreed on, if one was."""
        terms = self._negotiator.terms
        return terms.revision if terms is not None and terms.legacy else None

    async def close(self) -> None:
        """End the session, if there is one, and let go of the wire."""
        terms = self._negotiator.terms
        if terms is not None and terms.legacy:
            self._negotiator.forget(terms)
            await self._wire.end(terms)
        for task in self._replies:
            task.cancel()
        await self._wire.close()

    async def call_tool(self, name: str, arguments: bytes | None, options: CallOptions = _DEFAULT) -> Exchange:
        """``tools/call``. ``arguments`` is the JSON text of an object and is sent as it stands.

        Raises:
            McpError: Any of the tree.
        """
        members = [("name", jsontext.encode(name))]
        if arguments is not None:
            members.append(("arguments", arguments))
        tool = self._tools.get(name)
        if tool.invalid is not None and self._wire.http:
            raise NotCallableError(f"the tool cannot be called over HTTP: {tool.invalid}")
        await self._judge_arguments(tool, arguments)
        began = self._clock()
        try:
            exchange = await self._answered("tools/call", members, options, _mirror(tool, arguments))
        except RpcError as refusal:
            if refusal.rpc_code != messages.HEADER_MISMATCH:
                raise
            try:
                fresh = await self._definition(name, options.timeout, began)
            except RpcError:
                raise refusal from None
            except McpError as failed:
                # Only reading failed: the server refused the call itself.
                failed.delivery = Delivery.NOT_PROCESSED
                raise
            if fresh.invalid is not None or fresh.headers == tool.headers:
                raise
            tool, left = fresh, self._limits(options.timeout, began)
            exchange = await self._answered("tools/call", members, options, _mirror(tool, arguments), left)
        return await self._judged(tool, exchange)

    async def list_tools(self, cursor: str | None = None, options: CallOptions = _DEFAULT) -> Exchange:
        """``tools/list``: one page. Any cursor is forwarded, the empty string included."""
        exchange = await self._page("tools/list", cursor, options)
        if not exchange.cached:
            self._tools.learn(exchange.result)
        return exchange

    async def list_resources(self, cursor: str | None = None, options: CallOptions = _DEFAULT) -> Exchange:
        """``resources/list``: one page."""
        return await self._page("resources/list", cursor, options)

    async def list_resource_templates(self, cursor: str | None = None, options: CallOptions = _DEFAULT) -> Exchange:
        """``resources/templates/list``: one page."""
        return await self._page("resources/templates/list", cursor, options)

    async def list_prompts(self, cursor: str | None = None, options: CallOptions = _DEFAULT) -> Exchange:
        """``prompts/list``: one page."""
        return await self._page("prompts/list", cursor, options)

    async def get_prompt(self, name: str, arguments: bytes | None, options: CallOptions = _DEFAULT) -> Exchange:
        """``prompts/get``. ``arguments`` is the JSON text of an object and is sent as it stands."""
        members = [("name", jsontext.encode(name))]
        if arguments is not None:
            members.append(("arguments", arguments))
        return await self._answered("prompts/get", members, options)

    async def complete(self, request: bytes, options: CallOptions = _DEFAULT) -> Exchange:
        """``completion/complete``. ``request`` is the JSON text of its params: ``ref``, ``argument``, ``context``."""
        return await self._answered("completion/complete", jsontext.members(request), options)

    async def read_resource(self, uri: str, options: CallOptions = _DEFAULT) -> Exchange:
        """``resources/read``."""
        return await self._fresh("resources/read", [("uri", jsontext.encode(uri))], options)

    async def discover(self, options: CallOptions = _DEFAULT) -> Exchange:
        """``server/discover``, or what it said before if its ``ttlMs`` has not passed. Failures are not remembered."""
        return await self._fresh("server/discover", [], options)

    async def listen(self, notifications: bytes, options: CallOptions) -> Exchange:
        """``subscriptions/listen``: hands notifications to ``options.on_notice`` until the server or an hour ends it.

        Args:
            notifications: JSON text of the filter: what to be told of.
            options: With ``on_notice``. The first notice says what of the filter the server honours.

        Raises:
            TimeLimitError: The hour is over; ask anew.
            McpError: Any other of the tree. Nothing that was missed is told again: read anew what matters.
        """
        lasting = self._timeouts.model_copy(update={"idle": LISTEN, "total": LISTEN})
        return await self._answered("subscriptions/listen", [("notifications", notifications)], options, (), lasting)

    async def _page(self, method: str, cursor: str | None, options: CallOptions) -> Exchange:
        members = [] if cursor is None else [("cursor", jsontext.encode(cursor))]
        try:
            return await self._fresh(method, members, options)
        except RpcError as error:
            if error.rpc_code == messages.INVALID_PARAMS and cursor is not None:
                self._cache.drop_list(self._identity, method)
            raise

    async def _fresh(self, method: str, members: Sequence[tuple[str, bytes]], options: CallOptions) -> Exchange:
        """What was answered before, where that is still fresh; else a request."""
        terms = self._negotiator.terms
        revision = revisions.MODERN if terms is None else terms.revision
        asker = Asker(options.tenant, self._identity, revision, options.principal, self._wire.context)
        params_text = jsontext.build(members)
        kept = self._cache.find(asker, method, params_text)
        if kept is not None:
            return replace(kept, cached=True)
        ticket = self._cache.begin(asker, method, params_text)
        exchange = await self._answered(method, members, options)
        if self._wire.context != asker.context:
            # Another authorization came in between: nobody knows which of the two this was answered for.
            self._cache.authorization_changed(replace(asker, context=self._wire.context))
        elif exchange.revision == asker.revision:
            self._cache.keep(ticket, exchange)
        return exchange

    async def _answered(
        self,
        method: str,
        members: Sequence[tuple[str, bytes]],
        options: CallOptions,
        extra: Sequence[tuple[str, str]] = (),
        limits: Timeouts | None = None,
    ) -> Exchange:
        """A request and what the server asks before it answers, if there is someone to ask."""
        began = self._clock()
        limits = limits or self._limits(options.timeout, began)
        try:
            exchange = await self._request(method, members, options, extra, limits)
            for _ in range(MAX_ROUNDS):
                if not messages.is_input_required(exchange.result):
                    return exchange
                asked = await self._asked(method, exchange.result)
                again = mrtr.retry(members, *asked)
                left = limits.narrowed(max(MINIMUM, limits.total - (self._clock() - began)))
                exchange = await self._request(method, again, options, extra, left)
            raise _undeclared(method)
        except McpError as error:
            self._redactor.clean(error)
            raise

    async def _asked(self, method: str, result: bytes) -> tuple[mrtr.InputRequired, Mapping[str, bytes]]:
        if self._on_input is None:
            raise _undeclared(method)
        try:
            asked = mrtr.read(result)
        except mrtr.MalformedInputError as error:
            raise MalformedAnswerError(
                f"the answer to {method} asks for input in a way that cannot be answered: {error}",
                fault="invalid_input_request",
                delivery=Delivery.ANSWERED,
                retryable=False,
            ) from None
        return asked, {key: await self._on_input(want.method, want.params) for key, want in asked.requests.items()}

    async def _request(
        self,
        method: str,
        members: Sequence[tuple[str, bytes]],
        options: CallOptions,
        extra: Sequence[tuple[str, str]],
        limits: Timeouts,
    ) -> Exchange:
        """A request on agreed terms, and once more on others where those turn out not to stand."""
        began = self._clock()
        left = limits
        generation = await self._wire.open(limits)
        terms = await self._negotiator.agree(generation, limits)
        tries, insisted = 0, False
        while True:
            tries += 1
            try:
                result, incoming = await self._send(terms, method, members, left, options, extra)
            except StaleTermsError:
                if tries == MAX_TRIES:
                    raise ConnectError(
                        "the server's process ends again and again before a request reaches it"
                    ) from None
                self._negotiator.forget(terms)
                left = self._less(limits, began)
                terms = await self._negotiator.agree(await self._wire.open(left), left)
            except (RpcError, HttpStatusError) as error:
                left = self._less(limits, began)
                other = await self._other_terms(terms, method, error, left) if tries < MAX_TRIES else None
                if other is None or (other is terms and insisted):
                    if isinstance(error, RpcError) and self._negotiator.took(terms, method, error):
                        error.facts["revision"] = terms.revision
                    raise
                # A server that refuses a revision and names it all the same is asked once more, and no oftener.
                insisted = other is terms
                terms = other
            else:
                self._negotiator.confirm(terms)
                return Exchange(result, terms.revision, incoming.status)
            left = self._less(limits, began)

    async def _other_terms(
        self, terms: Terms, method: str, error: RpcError | HttpStatusError, limits: Timeouts
    ) -> Terms | None:
        """Terms on which a refused request is to be sent again: the server did not act on it."""
        if not terms.legacy:
            return await self._negotiator.contradicted(terms, method, error, limits)
        status = error.http_status if isinstance(error, RpcError) else error.status
        if self._wire.http and status in DEAD_SESSION:
            return await self._negotiator.renewed(terms, limits)
        return None

    async def _ask(
        self, terms: Terms, method: str, members: Sequence[tuple[str, bytes]], limits: Timeouts
    ) -> tuple[bytes, Incoming]:
        """What the negotiator asks with."""
        return await self._send(terms, method, members, limits, _DEFAULT, ())

    async def _introduce(self, terms: Terms, limits: Timeouts) -> None:
        await self._wire.notify(messages.notification("notifications/initialized"), terms)
        if self._log_level is not None and jsontext.member(terms.capabilities, "logging") is not None:
            await self._ask(terms, "logging/setLevel", [("level", jsontext.encode(self._log_level))], limits)

    async def _send(
        self,
        terms: Terms,
        method: str,
        members: Sequence[tuple[str, bytes]],
        limits: Timeouts,
        options: CallOptions,
        extra: Sequence[tuple[str, str]],
    ) -> tuple[bytes, Incoming]:
        if terms.legacy:
            _declared(terms, method)
        request_id = next(self._ids)
        out = Outgoing(
            request_id,
            method,
            messages.request(request_id, method, members, self._meta_of(terms, method, request_id, options)),
            terms,
            None if terms.legacy else _named(method, members),
            extra if self._wire.http and not terms.legacy else (),
        )

        level = options.log_level or self._log_level
        log = None if level is None else notices.ServerLog(self._name, level, self._redactor.text)

        def on_message(message: bytes) -> None:
            self._take(message, request_id, terms, options, log)

        logs = [] if log is None else [log]
        self._logs += logs
        try:
            incoming = await self._wire.exchange(out, limits=limits, on_message=on_message)
        finally:
            for one in logs:
                self._logs.remove(one)
        result = messages.answer(
            incoming.message, request_id, method=method, http_status=incoming.status, legacy=terms.legacy
        )
        return result, incoming

    def _meta_of(self, terms: Terms, method: str, request_id: int, options: CallOptions) -> list[tuple[str, bytes]]:
        meta = [] if terms.legacy else list(self._meta)
        if method not in WITHOUT_PROGRESS:
            meta.append(("progressToken", b"%d" % request_id))
        level = options.log_level or self._log_level
        if level is not None and not terms.legacy:
            meta.append((messages.LOG_LEVEL, jsontext.encode(level)))
        meta.extend(trace_meta())
        return meta

    def _take(
        self, message: bytes, request_id: int, terms: Terms, options: CallOptions, log: notices.ServerLog | None
    ) -> None:
        """Deal with a message that came with a request."""
        notice = notices.read(message)
        self._heard(notice, terms, log)
        if not isinstance(notice, notices.Notice):
            return
        if options.on_notice is not None and notice.subscription == b"%d" % request_id:
            options.on_notice(notice)
        if options.on_progress is not None and (progress := notice.progress(request_id)) is not None:
            said = progress.message and self._redactor.text(progress.message)
            options.on_progress(notices.Progress(progress.progress, progress.total, said))

    def _heard(
        self, notice: notices.Notice | notices.Asked | None, terms: Terms, log: notices.ServerLog | None
    ) -> None:
        """Deal with what is the same whether or not it came with a request."""
        if isinstance(notice, notices.Asked):
            # A server of revision 2026-07-28 asks nothing this way, and gets no answer.
            if terms.legacy:
                self._reply(self._answer_to(notice, terms))
        elif notice is not None and notice.method in notices.CHANGES:
            self._cache.drop(self._identity, notice.method, notice.params)
        elif notice is not None and notice.method == notices.MESSAGE and log is not None:
            log.take(notice)

    def _unmatched(self, message: bytes) -> None:
        """Deal with a message that belongs to no request: a change, a log message, or what an older server asks."""
        # Of the requests under way a log message is for the one that wants to know most; without one nobody wants it.
        log = min(self._logs, key=lambda log: log.least, default=None)
        self._take(message, NO_REQUEST, self._negotiator.terms or Terms(revisions.MODERN), _DEFAULT, log)

    def _reply(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
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

    def _limits(self, timeout: float | None, began: float) -> Timeouts:
        """Limits of a call that needs more than one request: they share its total limit."""
        limits = self._timeouts if timeout is None else self._timeouts.narrowed(timeout)
        return self._less(limits, began)

    def _less(self, limits: Timeouts, began: float) -> Timeouts:
        spent = self._clock() - began
        return limits if spent < UNSPENT else limits.narrowed(max(MINIMUM, limits.total - spent))

    async def _definition(self, name: str, timeout: float | None, began: float) -> KnownTool:
        """What a fresh list says of one tool; nothing where it does not hold the tool."""
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            members = [] if cursor is None else [("cursor", jsontext.encode(cursor))]
            limits = self._limits(timeout, began)
            page = (await self._request("tools/list", members, _DEFAULT, (), limits)).result
            learnt = self._tools.learn(page)
            if name in learnt:
                return learnt[name]
            following = jsontext.member(page, "nextCursor")
            if following is None or jsontext.kind(following) != "string":
                break
            cursor = jsontext.decode(following)
        return KnownTool()

    async def _judge_arguments(self, tool: KnownTool, arguments: bytes | None) -> None:
        """Check arguments before anything leaves; what cannot be checked the server judges."""
        if self._validate == "off" or tool.input_schema is None:
            return
        verdict = await _check(tool.input_schema, arguments or b"{}")
        if verdict.state != "mismatch":
            return
        said = f"the arguments break the tool's input schema at '{verdict.path}': {verdict.reason}"
        if self._validate == "refuse":
            raise InvalidRequestError(said, path=f"arguments{verdict.path or ''}")
        logger.warning("server %s: %s", self._name, said)

    async def _judged(self, tool: KnownTool, exchange: Exchange) -> Exchange:
        """An answer with the verdict on its structured content: none where it has none, or says that it is an error."""
        if self._validate == "off" or tool.output_schema is None:
            return exchange
        content = jsontext.member(exchange.result, "structuredContent")
        if content is None or jsontext.member(exchange.result, "isError") == b"true":
            return exchange
        return replace(exchange, verdict=await _check(tool.output_schema, content))


NO_REQUEST = 0
"""An id that no request has."""

MINIMUM = 0.001
"""Seconds: the least limit there is, for a call whose time is up."""


UNSPENT = 0.05
"""Seconds up to which nothing counts as spent, so that a limit that fires is told as it stands in the settings."""


def _undeclared(method: str) -> MalformedAnswerError:
    return MalformedAnswerError(
        f"the answer to {method} {messages.FAULTS['input_required_undeclared']}",
        fault="input_required_undeclared",
        delivery=Delivery.ANSWERED,
        retryable=False,
    )


def _declared(terms: Terms, method: str) -> None:
    """Only what the server declared may be asked of it (MCP 2025-11-25, lifecycle)."""
    capability = CAPABILITY.get(method.partition("/")[0])
    if capability is not None and jsontext.member(terms.capabilities, capability) is None:
        raise InvalidRequestError(f"the server has not declared '{capability}', so that {method} cannot be asked of it")


def _mirror(tool: KnownTool, arguments: bytes | None) -> list[tuple[str, str]]:
    return params.param_headers(tool.headers, arguments) if tool.headers and arguments is not None else []


async def _check(schema: bytes, instance: bytes) -> schemas.Verdict:
    """Check, beside the event loop where it takes long."""
    if len(instance) <= QUICK:
        return schemas.check(schema, instance)
    return await asyncio.to_thread(schemas.check, schema, instance)


def _named(method: str, members: Sequence[tuple[str, bytes]]) -> str | None:
    key = NAMED_BY.get(method)
    return next((jsontext.decode(value) for name, value in members if name == key), None)
