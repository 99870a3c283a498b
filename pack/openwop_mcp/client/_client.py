"""The MCP client of one server: its methods, and what the server said that saves or judges later requests.

One call is one request on the wire; a list besides, once, where a tool's parameter headers were not known (-32020).
Knows nothing of policy, tenants or Temporal.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from openwop_mcp import jsontext
from openwop_mcp.client._beside import LONG
from openwop_mcp.client._cache import Asker, ResultCache
from openwop_mcp.client._conversation import (
    DEFAULT,
    NOTHING_MORE,
    CallOptions,
    Conversation,
    Exchange,
    Members,
    More,
    OnInput,
)
from openwop_mcp.client._echoes import Echoes
from openwop_mcp.client._notices import Notice
from openwop_mcp.client._tools import KnownTool, ToolBook, read_page
from openwop_mcp.client._wire import Wire
from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import InvalidRequestError, McpError, NotCallableError, RpcError
from openwop_mcp.protocol import keys, messages, params, revisions
from openwop_mcp.redaction import Redactor

if TYPE_CHECKING:
    from openwop_mcp import schemas

__all__ = ("McpClient",)

logger = logging.getLogger(__name__)

MAX_PAGES = 100
"""Pages read to find one tool's definition after a header mismatch; a list that does not end is a server's fault."""

CHECKERS = ThreadPoolExecutor(2, "schema-check")
"""Threads for checks that take long: more would only take the event loop's time, and a hostile schema has but one."""

READERS = ThreadPoolExecutor(1, "page-read")
"""A thread for long pages: what it takes to read one is in memory once."""

MAX_UNCHECKED = 100
"""Tools of which it is said that they go unchecked: whoever reads the log knows by then."""

LISTEN = 3600.0
"""Seconds of one subscription at most: then it is asked for anew, so that a dead one cannot pass for a quiet one."""


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
        key_carriers: What carries the key of a call that has one.
        redactor: Knows the server's credentials, and keeps them out of errors, logs and answers.
        echoed_credentials: What becomes of an answer that holds one: it goes on without it, or fails.
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
        key_carriers: Sequence[keys.KeyCarrier] = keys.DEFAULT_CARRIERS,
        redactor: Redactor | None = None,
        echoed_credentials: Literal["redact", "fail"] = "redact",
        cache: ResultCache[Exchange] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wire = wire
        self._timeouts = timeouts
        self._name = name
        # Two servers of the settings may share an origin, and be shown different credentials.
        self._identity = f"{name} {wire.origin}"
        self._validate = validate
        self._key_carriers = tuple(key_carriers)
        self._redactor = redactor or Redactor(())
        self._clock = clock
        self._cache: ResultCache[Exchange] = ResultCache(clock) if cache is None else cache
        self._tools = ToolBook()
        self._unchecked: set[str] = set()
        self._conversation = Conversation(
            wire,
            timeouts=timeouts,
            client_info=client_info,
            floor=floor,
            name=name,
            log_level=log_level,
            on_input=on_input,
            on_change=self._changed,
            redactor=self._redactor,
            echoes=Echoes(self._redactor, echoed_credentials, name),
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
        terms = self._conversation.terms
        return terms.revision if terms is not None and terms.legacy else None

    async def close(self) -> None:
        """End the session, if there is one, and let go of the wire."""
        await self._conversation.close()

    async def call_tool(self, name: str, arguments: bytes | None, options: CallOptions = DEFAULT) -> Exchange:
        """``tools/call``. ``arguments`` is the JSON text of an object; at most the call's key is added to it.

        Raises:
            McpError: Any of the tree.
        """
        carried = keys.carry(options.provider_key, self._key_carriers, arguments)
        arguments = carried.arguments
        members = [("name", jsontext.encode(name))]
        if arguments is not None:
            members.append(("arguments", arguments))
        tool = self._tools.get(name)
        if tool.invalid is not None and self._wire.http:
            raise NotCallableError(f"the tool cannot be called over HTTP: {tool.invalid}")
        await self._judge_arguments(name, tool, arguments)
        began = self._clock()
        try:
            exchange = await self._conversation.answered("tools/call", members, options, _beside(tool, carried))
        except RpcError as refusal:
            if refusal.rpc_code != messages.HEADER_MISMATCH or refusal.delivery is not Delivery.NOT_PROCESSED:
                raise
            self._cache.drop_list(self._identity, "tools/list")
            try:
                fresh = await self._definition(name, options.timeout, began)
            except RpcError:
                raise refusal from None
            except McpError as failed:
                # Only reading failed: the server refused the call itself.
                failed.delivery = Delivery.NOT_PROCESSED
                failed.about(self._name)
                self._redactor.clean(failed)
                raise
            if fresh.invalid is not None or fresh.headers == tool.headers:
                raise
            tool, left = fresh, self._conversation.limits(options.timeout, began)
            exchange = await self._conversation.answered("tools/call", members, options, _beside(tool, carried), left)
        return await self._judged(tool, exchange)

    async def list_tools(self, cursor: str | None = None, options: CallOptions = DEFAULT) -> Exchange:
        """``tools/list``: one page. Any cursor is forwarded, the empty string included."""
        exchange = await self._page("tools/list", cursor, options)
        if not exchange.cached:
            await self._learnt(exchange.result)
        return exchange

    async def list_resources(self, cursor: str | None = None, options: CallOptions = DEFAULT) -> Exchange:
        """``resources/list``: one page."""
        return await self._page("resources/list", cursor, options)

    async def list_resource_templates(self, cursor: str | None = None, options: CallOptions = DEFAULT) -> Exchange:
        """``resources/templates/list``: one page."""
        return await self._page("resources/templates/list", cursor, options)

    async def list_prompts(self, cursor: str | None = None, options: CallOptions = DEFAULT) -> Exchange:
        """``prompts/list``: one page."""
        return await self._page("prompts/list", cursor, options)

    async def get_prompt(self, name: str, arguments: bytes | None, options: CallOptions = DEFAULT) -> Exchange:
        """``prompts/get``. ``arguments`` is the JSON text of an object and is sent as it stands."""
        members = [("name", jsontext.encode(name))]
        if arguments is not None:
            members.append(("arguments", arguments))
        return await self._conversation.answered("prompts/get", members, options)

    async def complete(self, request: bytes, options: CallOptions = DEFAULT) -> Exchange:
        """``completion/complete``. ``request`` is the JSON text of its params: ``ref``, ``argument``, ``context``."""
        return await self._conversation.answered("completion/complete", jsontext.members(request), options)

    async def read_resource(self, uri: str, options: CallOptions = DEFAULT) -> Exchange:
        """``resources/read``."""
        return await self._fresh("resources/read", [("uri", jsontext.encode(uri))], options)

    async def discover(self, options: CallOptions = DEFAULT) -> Exchange:
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
        return await self._conversation.answered(
            "subscriptions/listen", [("notifications", notifications)], options, limits=lasting
        )

    def _changed(self, notice: Notice) -> None:
        self._cache.drop(self._identity, notice.method, notice.params)
        if notice.method == "notifications/tools/list_changed":
            self._tools = ToolBook()

    async def _page(self, method: str, cursor: str | None, options: CallOptions) -> Exchange:
        members = [] if cursor is None else [("cursor", jsontext.encode(cursor))]
        try:
            return await self._fresh(method, members, options)
        except RpcError as error:
            if error.rpc_code == messages.INVALID_PARAMS and cursor is not None:
                self._cache.drop_list(self._identity, method)
            raise

    async def _fresh(self, method: str, members: Members, options: CallOptions) -> Exchange:
        """What was answered before, where that is still fresh; else a request."""
        if options.input is not None:
            # Answers and state are a person's and this call's own.
            return await self._conversation.answered(method, members, options)
        terms = self._conversation.terms
        revision = revisions.MODERN if terms is None else terms.revision
        asker = Asker(options.tenant, self._identity, revision, options.principal, self._wire.context)
        params_text = jsontext.build(members)
        kept = None if options.revalidate else self._cache.find(asker, method, params_text)
        if kept is not None:
            return replace(kept, cached=True)
        ticket = self._cache.begin(asker, method, params_text)
        exchange = await self._conversation.answered(method, members, options)
        if self._wire.context != asker.context:
            # Another authorization came in between: nobody knows which of the two this was answered for.
            self._cache.authorization_changed(replace(asker, context=self._wire.context))
        elif exchange.revision == asker.revision and not exchange.asked:
            self._cache.keep(ticket, exchange)
        return exchange

    async def _definition(self, name: str, timeout: float | None, began: float) -> KnownTool:
        """What a fresh list says of one tool; nothing where it does not hold the tool."""
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            members = [] if cursor is None else [("cursor", jsontext.encode(cursor))]
            limits = self._conversation.limits(timeout, began)
            page = (await self._conversation.request("tools/list", members, DEFAULT, NOTHING_MORE, limits)).result
            learnt = await self._learnt(page, name)
            if name in learnt:
                return learnt[name]
            following = jsontext.member(page, "nextCursor")
            if following is None or jsontext.kind(following) != "string":
                break
            cursor = jsontext.decode(following)
        return KnownTool()

    async def _learnt(self, page: bytes, sought: str | None = None) -> dict[str, KnownTool]:
        """Read a page of tools, a long one beside the event loop, and remember what it says."""
        # Where the server says meanwhile that its tools have changed, nobody sees this one any more.
        book = self._tools
        if len(page) < LONG:
            tools = read_page(page, sought)
        else:
            tools = await asyncio.get_running_loop().run_in_executor(READERS, read_page, page, sought)
        book.learn(tools)
        return tools

    async def _judge_arguments(self, name: str, tool: KnownTool, arguments: bytes | None) -> None:
        """Check arguments before anything leaves; what cannot be checked the server judges."""
        if self._validate == "off":
            return
        if tool.input_schema is None:
            if self._validate == "refuse":
                self._tell_unchecked(name)
            return
        verdict = await _check(tool.input_schema, arguments or b"{}")
        if verdict.state != "mismatch":
            return
        said = (
            f"the arguments of {messages.excerpt(name.encode('utf-8', 'backslashreplace'))} break the tool's input"
            f" schema at '{verdict.path}': {verdict.reason}"
        )
        if self._validate == "refuse":
            raise InvalidRequestError(said, path=f"arguments{verdict.path or ''}")
        logger.warning("server %s: %s", self._name, said)

    def _tell_unchecked(self, name: str) -> None:
        """Say once of a tool that its arguments go unchecked although they are to be checked."""
        if name in self._unchecked or len(self._unchecked) >= MAX_UNCHECKED:
            return
        self._unchecked.add(name)
        shown = messages.excerpt(name.encode("utf-8", "backslashreplace"))
        logger.warning("server %s: the arguments of %s are not checked: no page with it was listed", self._name, shown)

    async def _judged(self, tool: KnownTool, exchange: Exchange) -> Exchange:
        """An answer with the verdict on its structured content: none where it has none, or says that it is an error."""
        if self._validate == "off" or tool.output_schema is None:
            return exchange
        content = jsontext.member(exchange.result, "structuredContent")
        if content is None or jsontext.member(exchange.result, "isError") == b"true":
            return exchange
        return replace(exchange, verdict=await _check(tool.output_schema, content))


def _beside(tool: KnownTool, call: keys.Carried) -> More:
    mirrors = params.param_headers(tool.headers, call.arguments) if tool.headers and call.arguments is not None else ()
    return More(mirrors, call.headers, call.meta)


async def _check(schema: bytes, instance: bytes) -> schemas.Verdict:
    """Check, beside the event loop where it takes long."""
    # Here, since a worker that lists no tools has nothing to check by, and need not pay for the library.
    from openwop_mcp import schemas  # noqa: PLC0415

    verdict = schemas.check_at_once(schema, instance)
    if verdict is not None:
        return verdict
    return await asyncio.get_running_loop().run_in_executor(CHECKERS, schemas.check, schema, instance)
