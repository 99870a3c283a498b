"""The MCP client of one server: builds requests, reads answers, remembers what the server said of itself.

Speaks revision 2026-07-28, in which every request stands alone. One call is one HTTP request; the two exceptions, each
taken once, are a server that names another revision of ours (-32022) and a tool whose parameter headers were not known
(-32020). Knows nothing of policy, tenants or Temporal.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import httpx

from openwop_mcp import jsontext
from openwop_mcp.client._http import HttpTransport, SizeLimits
from openwop_mcp.client._redact import Redactor
from openwop_mcp.config import Limits, Server, Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import MalformedAnswerError, McpError, NoCommonRevisionError, RpcError
from openwop_mcp.protocol import headers, messages, params, revisions

__all__ = ("Exchange", "McpClient")

CLIENT_CAPABILITIES = b"{}"
"""No elicitation, sampling or roots: a server must then not ask for them (MCP 2026-07-28, multi round-trip)."""

NAMED_BY = {"tools/call": "name", "resources/read": "uri"}
"""Which parameter stands in ``Mcp-Name`` (MCP 2026-07-28, Streamable HTTP, standard headers)."""

MAY_BE_ANNOTATED = re.compile(rb"x-mcp-header|\\u")
"""Whether a schema's text can name a header, plainly or with escapes. Most cannot, and are not decoded."""

MAX_HEADERS_KEPT = 256
"""Tools and resources whose headers are kept at once: more than one server's usual tools, and little memory."""

MAX_PAGES = 100
"""Pages read to find one tool's definition after a header mismatch; a list that does not end is a server's fault."""

MAX_SHOWN = 10
"""Revisions shown of those that a server claims to speak: more are no help, and a server decides how many it names."""

MAX_DISCOVER_AGE = 3600.0
"""Seconds a DiscoverResult is kept at most, whatever its ttlMs: a server must not pin what we think of it."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One answered request.

    Attributes:
        result: The exact bytes of ``result``.
        revision: MCP revision on the wire.
        http_status: Status of the answer.
    """

    result: bytes
    revision: str
    http_status: int


@dataclass(frozen=True, slots=True)
class _Discovered:
    exchange: Exchange
    until: float


class McpClient:
    """One server, as seen from one worker process.

    Args:
        url: The MCP endpoint, taken as it stands.
        transport: The process's connection pool; not owned.
        timeouts: Limits in seconds for each request.
        sizes: Limits in bytes for each answer.
        client_info: JSON text of ``Implementation``.
        static_headers: Headers of every request, credentials among them; no error shows their values.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        url: str,
        transport: HttpTransport,
        *,
        timeouts: Timeouts,
        sizes: SizeLimits,
        client_info: bytes,
        static_headers: Sequence[tuple[str, str]] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = httpx.URL(url)
        self._transport = transport
        self._timeouts = timeouts
        self._sizes = sizes
        self._client_info = client_info
        self._static_headers = (
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("Accept-Encoding", "identity"),
            ("User-Agent", "openwop-mcp-pack"),
            *static_headers,
        )
        self._redactor = Redactor(value for _, value in static_headers)
        self._clock = clock
        self._ids = itertools.count(1)
        self._made_headers: dict[tuple[str, str | None], httpx.Headers] = {}
        self._header_params: dict[str, list[params.HeaderParam]] = {}
        self._discovered: _Discovered | None = None

    @classmethod
    def of(
        cls, server: Server, limits: Limits, transport: HttpTransport, *, client_info: bytes, environ: Mapping[str, str]
    ) -> McpClient:
        """The client of a server in the settings.

        Raises:
            SettingsError: Its credential cannot be had.
        """
        return cls(
            server.url,
            transport,
            timeouts=server.timeouts,
            sizes=SizeLimits(limits.response_bytes, limits.event_bytes),
            client_info=client_info,
            static_headers=[server.credential.as_header(environ)] if server.credential is not None else [],
        )

    async def call_tool(self, name: str, arguments: bytes | None, *, timeout: float | None = None) -> Exchange:
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
            return await self._request("tools/call", members, timeout=timeout, extra=_mirror(known, arguments))
        except RpcError as refusal:
            if refusal.rpc_code != messages.HEADER_MISMATCH:
                raise
            try:
                fresh = await self._definition(name, timeout, began)
            except RpcError:
                raise refusal from None
            except McpError as failed:
                # Only reading failed: the server refused the call itself.
                failed.delivery = Delivery.NOT_PROCESSED
                raise
            if fresh == known:
                raise
        left = self._left(timeout, began)
        return await self._request("tools/call", members, timeout=left, extra=_mirror(fresh, arguments))

    async def list_tools(self, cursor: str | None = None, *, timeout: float | None = None) -> Exchange:
        """``tools/list``: one page. Any cursor is forwarded, the empty string included."""
        members = [] if cursor is None else [("cursor", jsontext.encode(cursor))]
        exchange = await self._request("tools/list", members, timeout=timeout)
        self._learn(exchange.result)
        return exchange

    async def read_resource(self, uri: str, *, timeout: float | None = None) -> Exchange:
        """``resources/read``."""
        return await self._request("resources/read", [("uri", jsontext.encode(uri))], timeout=timeout)

    async def discover(self, *, timeout: float | None = None) -> Exchange:
        """``server/discover``, or what it said before if its ``ttlMs`` has not passed. Failures are not remembered."""
        if self._discovered is not None and self._clock() < self._discovered.until:
            return self._discovered.exchange
        self._discovered = None
        asked = self._clock()
        exchange = await self._request("server/discover", [], timeout=timeout)
        ttl = _milliseconds(jsontext.member(exchange.result, "ttlMs"))
        if ttl > 0:
            self._discovered = _Discovered(exchange, asked + ttl)
        return exchange

    async def _request(
        self,
        method: str,
        members: Sequence[tuple[str, bytes]],
        *,
        timeout: float | None,
        extra: Sequence[tuple[str, str]] = (),
    ) -> Exchange:
        began = self._clock()
        try:
            return await self._send(method, members, timeout, extra)
        except RpcError as error:
            if error.rpc_code != messages.UNSUPPORTED_REVISION:
                raise
            offered = _supported(error.error)
            if revisions.choose(offered, floor=revisions.MODERN) is None:
                shown = [messages.excerpt(item.encode("utf-8", "backslashreplace")) for item in offered[:MAX_SHOWN]]
                raise NoCommonRevisionError(requested=revisions.MODERN, supported=shown) from error
        return await self._send(method, members, self._left(timeout, began), extra)

    async def _send(
        self, method: str, members: Sequence[tuple[str, bytes]], timeout: float | None, extra: Sequence[tuple[str, str]]
    ) -> Exchange:
        request_id = next(self._ids)
        body = messages.request(
            request_id,
            method,
            members,
            revision=revisions.MODERN,
            client_info=self._client_info,
            capabilities=CLIENT_CAPABILITIES,
        )
        try:
            answer = await self._transport.post(
                self._url,
                self._headers(method, _named(method, members), extra),
                body,
                timeouts=self._timeouts if timeout is None else self._timeouts.narrowed(timeout),
                sizes=self._sizes,
            )
            result = messages.answer(answer.message, request_id, method=method, http_status=answer.status)
            if messages.is_input_required(result):
                raise MalformedAnswerError(
                    f"the answer to {method} {messages.FAULTS['input_required_undeclared']}",
                    fault="input_required_undeclared",
                    delivery=Delivery.ANSWERED,
                    retryable=False,
                )
        except McpError as error:
            self._redactor.clean(error)
            raise
        return Exchange(result, revisions.MODERN, answer.status)

    def _headers(self, method: str, name: str | None, extra: Sequence[tuple[str, str]]) -> httpx.Headers:
        """All headers of a request. Those of a method and name are kept: making them costs as much as the request."""
        made = self._made_headers.get((method, name))
        if made is None:
            if len(self._made_headers) >= MAX_HEADERS_KEPT:
                self._made_headers.clear()
            made = httpx.Headers([*self._static_headers, *headers.standard(revisions.MODERN, method, name=name)])
            self._made_headers[method, name] = made
        return httpx.Headers([*made.multi_items(), *extra]) if extra else made

    def _left(self, timeout: float | None, began: float) -> float:
        """Seconds left of a call that needs more than one request: they share its total limit."""
        total = self._timeouts.total if timeout is None else min(timeout, self._timeouts.total)
        return max(0.0, total - (self._clock() - began))

    async def _definition(self, name: str, timeout: float | None, began: float) -> list[params.HeaderParam]:
        """The header parameters of one tool, from a fresh list; none where the list does not hold the tool."""
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            members = [] if cursor is None else [("cursor", jsontext.encode(cursor))]
            page = (await self._request("tools/list", members, timeout=self._left(timeout, began))).result
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


def _supported(error: bytes) -> list[str]:
    value = jsontext.pointer(error, ["data", "supported"])
    listed = jsontext.decode(value) if value is not None else None
    return [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []


def _milliseconds(value: bytes | None) -> float:
    """Seconds of a ``ttlMs``, up to our limit; absent, negative or not a number is zero (MCP 2026-07-28, Caching)."""
    decoded = jsontext.decode(value) if value is not None else 0
    if not isinstance(decoded, int | float) or isinstance(decoded, bool):
        return 0.0
    # Bounded before it is divided: an integer can be too large for a float.
    return max(0, min(decoded, MAX_DISCOVER_AGE * 1000)) / 1000
