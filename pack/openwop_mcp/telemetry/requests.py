"""One request to an MCP server as its client sees it: a span, and how long it took.

Owns what of it is said, by the semantic conventions for MCP. Knows errors by their codes alone, and no wire.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextvars import Token
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode

from openwop_mcp import jsontext
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import McpError, RpcError
from openwop_mcp.telemetry import attributes as names
from openwop_mcp.telemetry._tools import tool_names
from openwop_mcp.telemetry.instruments import NAME, OPERATIONS, VERSION, histogram
from openwop_mcp.telemetry.switch import measured, traced

__all__ = ("SentRequest", "peer_of")

TOOL_CALL = "tools/call"

TARGETS: Mapping[str, str] = {TOOL_CALL: names.TOOL, "prompts/get": names.PROMPT}
"""What a request is about where that is told, by its method. The URI of a resource is not: it can hold a secret."""

MAX_TARGET = 128
"""Characters of a name that stands in the name of a span; a longer one is told by its attribute."""

Value = str | int

_tracer = trace.get_tracer(NAME, VERSION)
_duration = histogram(OPERATIONS)


def peer_of(server_id: str, origin: str, *, http: bool) -> Mapping[str, Value]:
    """What is said of a server.

    Args:
        server_id: Its id in the settings.
        origin: Scheme, host and port, where it is reached over HTTP.
        http: Whether it is.
    """
    if not http:
        return {names.SERVER_ID: server_id, names.NETWORK_TRANSPORT: "pipe"}
    at = urlsplit(origin)
    return {
        names.SERVER_ID: server_id,
        names.SERVER_ADDRESS: at.hostname or "",
        names.SERVER_PORT: at.port or (443 if at.scheme == "https" else 80),
        names.NETWORK_PROTOCOL: "http",
        names.NETWORK_TRANSPORT: "tcp",
    }


class SentRequest:
    """A context around the sending of a request and the wait for its answer; its span is the current one in it.

    Args:
        method: Method of MCP.
        target: Name of the tool or prompt that it is about.
        revision: Revision of MCP that it declares.
        request_id: Its JSON-RPC id.
        peer: What :func:`peer_of` said.
        about: What only its caller knows: attributes of the span.
    """

    __slots__ = (
        "_about",
        "_began",
        "_facts",
        "_method",
        "_outcome",
        "_peer",
        "_request_id",
        "_revision",
        "_span",
        "_target",
        "_token",
        "active",
    )

    def __init__(
        self,
        method: str,
        target: str | None,
        *,
        revision: str,
        request_id: int,
        peer: Mapping[str, Value],
        about: Mapping[str, Value],
    ) -> None:
        self._about = about
        self._method = method
        self._peer = peer
        self._request_id = request_id
        self._revision = revision
        self._target = target if method in TARGETS else None
        self._facts: Mapping[str, Value] = {}
        self._outcome: dict[str, Value] = {}
        self._span: trace.Span | None = None
        self._token: Token[Context] | None = None
        self._began = 0.0
        self.active = False
        """Whether somebody wants to know; a caller need not look at an answer for nobody."""

    def __enter__(self) -> Self:
        spans = traced()
        self.active = spans or measured()
        if not self.active:
            return self
        tool = {names.OPERATION: "execute_tool"} if self._method == TOOL_CALL else {}
        self._facts = {names.METHOD: self._method, names.REVISION: self._revision, **self._peer, **tool}
        self._began = time.perf_counter()
        if spans:
            self._span = _tracer.start_span(self._name, kind=SpanKind.CLIENT, attributes=self._said)
            self._token = context.attach(trace.set_span_in_context(self._span))
        return self

    def answered(self, result: bytes) -> None:
        """Take the result, for a tool may say in it that it has failed."""
        self._outcome = {names.DELIVERY: Delivery.ANSWERED.value}
        if self._method == TOOL_CALL and jsontext.member(result, "isError") == b"true":
            self._outcome[names.ERROR_TYPE] = "tool_error"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace_back: TracebackType | None
    ) -> None:
        if not self.active:
            return
        if error is not None:
            self._outcome = _failed(error)
        if self._token is not None:
            context.detach(self._token)
        if self._span is not None:
            self._span.set_attributes(self._outcome)
            if names.ERROR_TYPE in self._outcome:
                # Without words: those of a server may hold anything.
                self._span.set_status(StatusCode.ERROR)
            self._span.end()
        measurement = {**self._facts, **_told_apart(self._outcome)}
        if self._target is not None and TARGETS[self._method] == names.TOOL:
            measurement[names.TOOL] = tool_names.bounded(str(self._facts[names.SERVER_ID]), self._target)
        _duration.record(time.perf_counter() - self._began, measurement)

    @property
    def _name(self) -> str:
        named = self._target is not None and len(self._target) <= MAX_TARGET
        return f"{self._method} {self._target}" if named else self._method

    @property
    def _said(self) -> Mapping[str, Value]:
        target = {} if self._target is None else {TARGETS[self._method]: self._target}
        return {**self._facts, names.REQUEST_ID: str(self._request_id), **target, **self._about}


RESERVED = range(-32768, -31999)
"""Codes of JSON-RPC's own and of MCP (JSON-RPC 2.0, section 5.1). A server can make up any number of others."""


def _told_apart(outcome: Mapping[str, Value]) -> dict[str, Value]:
    """What of an outcome a metric tells, each value of which costs whoever keeps it."""
    told = {key: value for key, value in outcome.items() if key in {names.ERROR_TYPE, names.RPC_STATUS}}
    if names.RPC_STATUS in told and int(told[names.RPC_STATUS]) not in RESERVED:
        told[names.RPC_STATUS] = names.OTHER
    return told


def _failed(error: BaseException) -> dict[str, Value]:
    if isinstance(error, McpError):
        status = {names.RPC_STATUS: str(error.rpc_code)} if isinstance(error, RpcError) else {}
        return {names.DELIVERY: error.delivery.value, names.ERROR_TYPE: error.code, **status}
    if isinstance(error, asyncio.CancelledError):
        return {names.DELIVERY: Delivery.UNKNOWN.value, names.ERROR_TYPE: "cancelled"}
    return {names.ERROR_TYPE: names.OTHER}
