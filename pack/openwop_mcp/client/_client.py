"""The MCP client of one server: builds requests, reads answers, remembers what the server said of itself.

One call is one request on the wire. What it may take besides, each once: finding out what the server speaks, a list
where a tool's parameter headers were not known (-32020), a new session in place of a dead one. Knows nothing of policy,
tenants or Temporal.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openwop_mcp import jsontext
from openwop_mcp.client import _notices as notices
from openwop_mcp.client._negotiation import Negotiator
from openwop_mcp.client._redact import Redactor
from openwop_mcp.client._wire import Incoming, Outgoing, StaleTermsError, Terms, Wire
from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import (
    ConnectError,
    HttpStatusError,
    InvalidRequestError,
    MalformedAnswerError,
    McpError,
    RpcError,
)
from openwop_mcp.protocol import messages, mrtr, params, revisions

__all__ = ("CallOptions", "Exchange", "McpClient", "OnInput")

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

MAY_BE_ANNOTATED = re.compile(rb"x-mcp-header|\\u")
"""Whether a schema's text can name a header, plainly or with escapes. Most cannot, and are not decoded."""

MAX_PAGES = 100
"""Pages read to find one tool's definition after a header mismatch; a list that does not end is a server's fault."""

MAX_DISCOVER_AGE = 3600.0
"""Seconds a DiscoverResult is kept at most, whatever its ttlMs: a server must not pin what we think of it."""

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
        revision: MCP revision on the wire.
        http_status: Status of the answer; 0 where there is none, as over stdio.
    """

    result: bytes
    revision: str
    http_status: int


@dataclass(frozen=True, slots=True)
class CallOptions:
    """What a caller may want of one request beside its answer.

    Attributes:
        timeout: Seconds; a total limit below the server's own.
        on_progress: Takes what the server tells of the request's progress.
        log_level: The level from which on the server may send log messages; None for the server's setting.
        meta: Further members of ``params._meta``, such as a trace context.
    """

    timeout: float | None = None
    on_progress: Callable[[notices.Progress], None] | None = None
    log_level: str | None = None
    meta: Sequence[tuple[str, bytes]] = ()


_DEFAULT = CallOptions()


@dataclass(frozen=True, slots=True)
class _Discovered:
    exchange: Exchange
    until: float


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
        redactor: Keeps credentials out of errors and logs.
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
        redactor: Redactor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wire = wire
        self._timeouts = timeouts
        self._name = name
        self._log_level = log_level
        self._on_input = on_input
        self._redactor = redactor or Redactor(())
        self._clock = clock
        self._ids = itertools.count(1)
        self._header_params: dict[str, list[params.HeaderParam]] = {}
        self._discovered: _Discovered | None = None
        self._replies: set[asyncio.Task[None]] = set()
        capabilities = NO_CAPABILITIES if on_input is None else ASKABLE
        self._meta = messages.terms_meta(revisions.MODERN, client_info, capabilities)
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
        known = self._header_params.get(name, [])
        began = self._clock()
        try:
            return await self._answered("tools/call", members, options, _mirror(known, arguments))
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
            if fresh == known:
                raise
        left = self._limits(options.timeout, began)
        return await self._answered("tools/call", members, options, _mirror(fresh, arguments), left)

    async def list_tools(self, cursor: str | None = None, options: CallOptions = _DEFAULT) -> Exchange:
        """``tools/list``: one page. Any cursor is forwarded, the empty string included."""
        exchange = await self._page("tools/list", cursor, options)
        self._learn(exchange.result)
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
        return await self._answered("resources/read", [("uri", jsontext.encode(uri))], options)

    async def discover(self, options: CallOptions = _DEFAULT) -> Exchange:
        """``server/discover``, or what it said before if its ``ttlMs`` has not passed. Failures are not remembered."""
        if self._discovered is not None and self._clock() < self._discovered.until:
            return self._discovered.exchange
        self._discovered = None
        asked = self._clock()
        exchange = await self._answered("server/discover", [], options)
        ttl = _milliseconds(jsontext.member(exchange.result, "ttlMs"))
        if ttl > 0:
            self._discovered = _Discovered(exchange, asked + ttl)
        return exchange

    async def _page(self, method: str, cursor: str | None, options: CallOptions) -> Exchange:
        members = [] if cursor is None else [("cursor", jsontext.encode(cursor))]
        return await self._answered(method, members, options)

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

        def on_message(message: bytes) -> None:
            self._take(message, request_id, terms, options)

        incoming = await self._wire.exchange(out, limits=limits, on_message=on_message)
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
        meta.extend(options.meta)
        return meta

    def _take(self, message: bytes, request_id: int, terms: Terms, options: CallOptions) -> None:
        """Deal with a message that came while a request was under way."""
        notice = notices.read(message)
        if isinstance(notice, notices.Asked):
            if terms.legacy:
                self._reply(self._answer_to(notice, terms))
            # A server of revision 2026-07-28 asks nothing this way, and gets no answer.
            return
        if notice is None:
            return
        if options.on_progress is not None and (progress := notice.progress(request_id)) is not None:
            said = progress.message and self._redactor.text(progress.message)
            options.on_progress(notices.Progress(progress.progress, progress.total, said))
        elif notice.method == notices.MESSAGE and (options.log_level or self._log_level) is not None:
            notices.log_message(notice, self._name, self._redactor.text)

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

    async def _definition(self, name: str, timeout: float | None, began: float) -> list[params.HeaderParam]:
        """The header parameters of one tool, from a fresh list; none where the list does not hold the tool."""
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            members = [] if cursor is None else [("cursor", jsontext.encode(cursor))]
            limits = self._limits(timeout, began)
            page = (await self._request("tools/list", members, _DEFAULT, (), limits)).result
            learnt = self._learn(page)
            if name in learnt:
                return learnt[name]
            following = jsontext.member(page, "nextCursor")
            if following is None or jsontext.kind(following) != "string":
                break
            cursor = jsontext.decode(following)
        return []

    def _learn(self, page: bytes) -> dict[str, list[params.HeaderParam]]:
        """Keep what a page says of header parameters, for calls to come. Most tools have none, and take no room."""
        learnt = _header_params(page)
        for name, found in learnt.items():
            if found:
                self._header_params[name] = found
            else:
                self._header_params.pop(name, None)
        return learnt


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


def _header_params(page: bytes) -> dict[str, list[params.HeaderParam]]:
    """The header parameters of each tool on a page; none for a tool with a fault in them, whatever it meant."""
    tools = jsontext.member(page, "tools")
    found: dict[str, list[params.HeaderParam]] = {}
    for tool in jsontext.elements(tools) if tools is not None and jsontext.kind(tools) == "array" else []:
        if jsontext.kind(tool) != "object":
            continue
        name, schema = jsontext.member(tool, "name"), jsontext.member(tool, "inputSchema")
        if name is None or jsontext.kind(name) != "string":
            continue
        try:
            annotated = schema is not None and MAY_BE_ANNOTATED.search(schema) is not None
            found[jsontext.decode(name)] = params.header_params(schema) if annotated else []
        except params.InvalidHeaderAnnotationError:
            found[jsontext.decode(name)] = []
    return found


def _mirror(known: Sequence[params.HeaderParam], arguments: bytes | None) -> list[tuple[str, str]]:
    return params.param_headers(known, arguments) if known and arguments is not None else []


def _named(method: str, members: Sequence[tuple[str, bytes]]) -> str | None:
    key = NAMED_BY.get(method)
    return next((jsontext.decode(value) for name, value in members if name == key), None)


def _milliseconds(value: bytes | None) -> float:
    """Seconds of a ``ttlMs``, up to our limit; absent, negative or not a number is zero (MCP 2026-07-28, Caching)."""
    decoded = jsontext.decode(value) if value is not None else 0
    if not isinstance(decoded, int | float) or isinstance(decoded, bool):
        return 0.0
    # Bounded before it is divided: an integer can be too large for a float.
    return max(0, min(decoded, MAX_DISCOVER_AGE * 1000)) / 1000
