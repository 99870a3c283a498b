"""One call, from what a workflow asked to the record that history keeps. The one place where a request can leave.

Owns the clients and their connection pool. Knows settings, policy and Temporal's activity context; not how a node or a
workflow came to ask.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.metadata
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

import temporalio.api.common.v1
from temporalio import activity

from openwop_mcp import failures, jsontext
from openwop_mcp.calls import METHODS, CallRequest, record
from openwop_mcp.client import CallOptions, Clients, Exchange, McpClient, Progress, health
from openwop_mcp.config import Settings
from openwop_mcp.effects.decide import RetryPolicy
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import (
    InterruptedCallError,
    InvalidRequestError,
    McpError,
    ResultTooLargeError,
    UnexpectedError,
    UnknownServerError,
)

from .beat import Beat, ClaimRefusedError, report

__all__ = ("Calls",)

logger = logging.getLogger(__name__)

CLIENT_INFO = jsontext.encode({"name": "openwop-mcp-pack", "version": importlib.metadata.version("openwop-mcp-pack")})
"""``Implementation`` of this client (MCP 2026-07-28, base protocol, _meta)."""

MESSAGE_BYTES = 300
"""UTF-8 bytes of a progress message that a heartbeat carries: with it a claim stays under a kilobyte."""

EXACT = 2**53
"""Up to here a float holds every whole number, which is then written as one."""

Sender = Callable[[McpClient, CallRequest, bytes | None, CallOptions], Awaitable[Exchange]]


class Calls:
    """Performs calls for one worker process. Enter it before the worker polls, leave it after the worker has stopped.

    Args:
        settings: Servers, policy and limits.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients = Clients(settings, client_info=CLIENT_INFO, environ=os.environ)

    async def __aenter__(self) -> Self:
        await self._clients.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._clients.__aexit__(kind, error, trace)

    def client(self, server_id: str, tenant: str | None) -> McpClient:
        """The client of a server that the tenant may use.

        Raises:
            UnknownServerError: There is none.
        """
        if self._settings.server(server_id, tenant or self._settings.worker.tenant) is None:
            raise UnknownServerError(server_id)
        return self._clients[server_id]

    async def perform(self, request: CallRequest, arguments: bytes | None) -> temporalio.api.common.v1.Payload:
        """Perform a call inside an activity.

        Returns:
            The record: the exact bytes of the server's result, with its provenance beside it.

        Raises:
            ApplicationError: As ``openwop_mcp.failures.write`` makes it; never retried by Temporal.
        """
        began = time.monotonic()
        tenant = request.tenant or self._settings.worker.tenant
        server = self._settings.server(request.server_id, tenant)
        # Every method but tools/call only reads, so that a repeat harms nothing.
        repeat_safe = request.method != "callTool"
        retry = RetryPolicy()
        terms: dict[str, str] = {}
        try:
            peer = self.client(request.server_id, tenant).peer
            assert server is not None
            terms = {"peer": peer, "floor": server.minimum_revision}
            retry = request.retry or server.retry.policy
            if request.method == "callTool":
                repeat_safe = server.policy(_required(request.name, "name")).repeat_safe
            exchange = await self._guarded(request, arguments, retry, repeat_safe=repeat_safe)
            terms |= _agreed(exchange)
            self._fits(exchange.result)
        except Exception as caught:  # noqa: BLE001 - whatever it is, the effect may have happened by then
            error = caught if isinstance(caught, McpError) else _unexpected(caught)
            failure = failures.write(
                error,
                repeat_safe=repeat_safe,
                policy=retry,
                serverId=request.server_id,
                method=METHODS[request.method],
                name=request.name,
                uri=request.uri,
                attempt=request.attempt,
                **terms,
            )
            await report(failure, began=began)
            raise failure from None
        answer = record(
            exchange.result,
            {
                "server-id": request.server_id,
                "method": METHODS[request.method],
                "subject": request.subject,
                **terms,
                **({"http-status": str(exchange.http_status)} if exchange.http_status else {}),
                **_noted(exchange),
                "attempt": str(request.attempt),
                "sha256": hashlib.sha256(exchange.result).hexdigest(),
                "duration-ms": str(round((time.monotonic() - began) * 1000)),
            },
        )
        await report(answer, began=began)
        return answer

    async def _guarded(
        self, request: CallRequest, arguments: bytes | None, retry: RetryPolicy, *, repeat_safe: bool
    ) -> Exchange:
        """Send, under a claim where a repeat would not be safe; say what is known when the call is given up."""
        last: Progress | None = None

        def claim() -> bytes:
            return jsontext.encode(
                {
                    "delivery": Delivery.UNKNOWN.value,
                    "repeatSafe": repeat_safe,
                    "retry": {"attempts": retry.attempts, "maxWait": retry.max_wait, "total": retry.total},
                    "serverId": request.server_id,
                    "method": METHODS[request.method],
                    "name": request.name,
                    "attempt": request.attempt,
                    **({} if last is None else {"progress": _told(last)}),
                }
            )

        def on_progress(progress: Progress) -> None:
            nonlocal last
            last = progress
            beat.renew()

        async with Beat(claim, grace=self._settings.worker.shutdown_grace) as beat:
            try:
                if not repeat_safe:
                    await beat.claim()
                return await beat.hold(self._send(request, arguments, on_progress))
            except ClaimRefusedError as refused:
                raise InterruptedCallError(
                    "nothing was sent: the call was cancelled"
                    if refused.cancelled
                    else "nothing was sent: Temporal did not take the claim",
                    cancelled=refused.cancelled,
                    delivery=Delivery.NOT_SENT,
                ) from None
            except asyncio.CancelledError:
                if not beat.cancelled and not activity.is_worker_shutdown():
                    raise
                raise InterruptedCallError(
                    "the call was cancelled while it was under way"
                    if beat.cancelled
                    else "the worker shut down while the call was under way",
                    cancelled=beat.cancelled,
                    delivery=Delivery.UNKNOWN,
                ) from None

    async def _send(
        self, request: CallRequest, arguments: bytes | None, on_progress: Callable[[Progress], None]
    ) -> Exchange:
        options = CallOptions(
            timeout=request.timeout,
            on_progress=on_progress,
            log_level=request.log_level,
            tenant=request.tenant or self._settings.worker.tenant,
            principal=request.principal,
        )
        return await SENDERS[request.method](self._clients[request.server_id], request, arguments, options)

    def _fits(self, result: bytes) -> None:
        limit = self._settings.limits.result_bytes
        if len(result) > limit:
            raise ResultTooLargeError(
                f"the server acted and its result of {len(result)} bytes is over the {limit} bytes that a history"
                " can hold (setting limits.result_bytes)",
                delivery=Delivery.ANSWERED,
                limit=limit,
                setting="limits.result_bytes",
                size=len(result),
                sha256=hashlib.sha256(result).hexdigest(),
            )


def _unexpected(error: Exception) -> McpError:
    """A fault of our own, after which nobody knows what became of the request."""
    logger.error("a call ended by a fault of the client itself", exc_info=error)
    return UnexpectedError(type(error).__name__)


def _told(progress: Progress) -> dict[str, object]:
    """What a heartbeat says of a call's progress."""
    message = progress.message and progress.message.encode()[:MESSAGE_BYTES].decode(errors="ignore")
    members = {"progress": _number(progress.progress), "total": _number(progress.total), "message": message or None}
    return {key: value for key, value in members.items() if value is not None}


def _number(value: float | None) -> float | None:
    return int(value) if value is not None and value.is_integer() and abs(value) < EXACT else value


def _agreed(exchange: Exchange) -> dict[str, str]:
    """What the record says of the terms, whether or not they had been agreed before this call."""
    facts = {} if exchange.refusal is None else exchange.refusal.facts
    told = {"revision": exchange.revision, "refused": facts.get("reason"), "requested": facts.get("requested")}
    return {key: value for key, value in told.items() if value}


def _noted(exchange: Exchange) -> dict[str, str]:
    """What the record says beside the answer: where it was had from, and whether it keeps to the tool's own schema."""
    noted = {"cached": "true"} if exchange.cached else {}
    verdict = exchange.verdict
    if verdict is not None:
        noted["schema"] = " ".join(part for part in (verdict.state, verdict.path, verdict.reason) if part)
    return noted


def _required(value: str | None, name: str) -> str:
    if not value:
        raise InvalidRequestError(f"'{name}' is missing", path=name)
    return value


def _object(arguments: bytes | None) -> bytes | None:
    if arguments is None:
        return None
    try:
        jsontext.check(arguments)
        sound = jsontext.kind(arguments) == "object"
    except jsontext.JsonTextError:
        sound = False
    if not sound:
        raise InvalidRequestError("'arguments' is not the JSON text of an object", path="arguments")
    return arguments


SENDERS: Mapping[str, Sender] = {
    "callTool": lambda client, asked, given, options: client.call_tool(
        _required(asked.name, "name"), _object(given), options
    ),
    "listTools": lambda client, asked, _, options: client.list_tools(asked.cursor, options),
    "listResources": lambda client, asked, _, options: client.list_resources(asked.cursor, options),
    "listResourceTemplates": lambda client, asked, _, options: client.list_resource_templates(asked.cursor, options),
    "readResource": lambda client, asked, _, options: client.read_resource(_required(asked.uri, "uri"), options),
    "listPrompts": lambda client, asked, _, options: client.list_prompts(asked.cursor, options),
    "getPrompt": lambda client, asked, given, options: client.get_prompt(
        _required(asked.name, "name"), _object(given), options
    ),
    "complete": lambda client, _, given, options: client.complete(_object(given) or b"{}", options),
    "serverHealth": lambda client, _, __, options: health(client, options),
}
"""What each host method asks of a client, with the arguments that travel beside the request."""
