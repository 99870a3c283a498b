"""One call, from what a workflow asked to the record that history keeps. The one place where a request can leave.

Owns the clients and their connection pool. Knows settings, policy and Temporal's activity context; not how a node or a
workflow came to ask.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import importlib.metadata
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

import temporalio.api.common.v1
from temporalio import activity
from temporalio.exceptions import ApplicationError

from openwop_mcp import failures, jsontext
from openwop_mcp.calls import (
    INTERIM,
    MAX_DEPTH,
    METHODS,
    NODE,
    ORIGINAL,
    REDACTED,
    ROUND,
    CallRequest,
    Interim,
    class_queue,
    record,
)
from openwop_mcp.catalog.policy import Standing
from openwop_mcp.client import CallOptions, Clients, Exchange, HttpPool, McpClient, Progress, Room, health
from openwop_mcp.config import Server, Settings
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.effects.doubt import Answer
from openwop_mcp.errors import (
    EffectInDoubtError,
    InterruptedCallError,
    InvalidRequestError,
    McpError,
    NotCallableError,
    RoundsExceededError,
    UnexpectedError,
    UnknownServerError,
)
from openwop_mcp.logs import about
from openwop_mcp.protocol.mrtr import request_digest
from openwop_mcp.telemetry import attributes
from openwop_mcp.telemetry.calls import EndedAttempt
from openwop_mcp.traffic import Full

from .beat import WITHDRAWN, Beat, Claim, ClaimRefusedError, report
from .effects import SharedEffects
from .guard import Guard, check_unclaimed, happened_before
from .large import check_size, complete_large, error_ceiling, make_whole
from .overlay import Overlay
from .traffic import Admission

__all__ = ("Calls",)

logger = logging.getLogger(__name__)

CLIENT_INFO = jsontext.encode({"name": "openwop-mcp-pack", "version": importlib.metadata.version("openwop-mcp-pack")})
"""``Implementation`` of this client (MCP 2026-07-28, base protocol, _meta)."""

MESSAGE_BYTES = 300
"""UTF-8 bytes of a progress message that a heartbeat carries: with it a claim stays under a kilobyte."""

LONG = 64 * 1024
"""Bytes of arguments from which on their digest is taken in a thread: it takes some milliseconds there."""

EXACT = 2**53
"""Up to here a float holds every whole number, which is then written as one."""

T = TypeVar("T")

Sender = Callable[[McpClient, CallRequest, bytes | None, CallOptions], Awaitable[Exchange]]


class Calls:
    """Performs calls for one worker process. Enter it before the worker polls, leave it after the worker has stopped.

    Args:
        settings: Servers, policy and limits.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clients = Clients(settings, client_info=CLIENT_INFO, environ=os.environ)
        own = settings.worker
        self._effects = SharedEffects({class_queue(name, own.task_queue): own.task_queue for name in own.classes})
        self._overlay = Overlay(settings.worker.task_queue)
        self._admission = Admission(settings)

    async def __aenter__(self) -> Self:
        await self._clients.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._effects.close()
        await self._overlay.close()
        await self._clients.__aexit__(kind, error, trace)

    @property
    def pool(self) -> HttpPool:
        """The connections of the process."""
        return self._clients.pool

    @property
    def room(self) -> Room:
        """The places for large answers in this process."""
        return self._clients.room

    @property
    def admission(self) -> Admission:
        """Who may call now, and how each server stands."""
        return self._admission

    def client(self, server_id: str, tenant: str | None) -> McpClient:
        """The client of a server that the tenant may use.

        Raises:
            UnknownServerError: There is none.
        """
        tenant = tenant or self._settings.worker.tenant
        if self._settings.server(server_id, tenant) is None:
            if server_id in self._settings.servers:
                # To the caller it is not there: what other tenants have is none of theirs.
                logger.warning("a call was refused: servers.%s.tenants does not admit tenant %r", server_id, tenant)
            raise UnknownServerError(server_id, barred=self._settings.barred(server_id, tenant))
        return self._clients[server_id]

    async def perform(
        self, request: CallRequest, arguments: bytes | None, *, for_effect: bool = False
    ) -> temporalio.api.common.v1.Payload:
        """Perform a call inside an activity.

        Args:
            request: The call.
            arguments: JSON text of its arguments.
            for_effect: Whether the workflow of a shared effect asks: it alone sends what has an author's key.

        Returns:
            The record: the exact bytes of the server's result, with its provenance beside it. To a caller that
            suspends it may be one that is no outcome, see :data:`openwop_mcp.calls.Interim`.

        Raises:
            ApplicationError: As ``openwop_mcp.failures.write`` makes it; never retried by Temporal.
        """
        # Until the bytes are handed on: what is read is in memory for as long.
        with self._clients.room.held():
            return await self._performed(request, arguments, for_effect=for_effect)

    async def _performed(
        self, request: CallRequest, arguments: bytes | None, *, for_effect: bool
    ) -> temporalio.api.common.v1.Payload:
        began = time.monotonic()
        tenant = request.tenant or self._settings.worker.tenant
        _begin(request, tenant)
        server = self._settings.server(request.server_id, tenant)
        guard = Guard()
        terms: dict[str, str] = {}
        ended = EndedAttempt(request, arguments, known=server is not None)
        try:
            check_unclaimed()
            peer = self.client(request.server_id, tenant).peer
            assert server is not None
            terms = {"peer": peer, "floor": server.minimum_revision}
            guard = Guard.at_first(request, server)
            standing = await self._standing(request, tenant)
            guard = await self._judged(request, arguments, tenant, server, standing)
            about(effect=None if guard.effect is None else guard.effect.effect_id)
            answer = None if for_effect else _unapproved(guard, request)
            if answer is None and request.idempotency_key is not None and guard.effect is not None and not for_effect:
                self._effects.wait(guard.effect, request, arguments, ask=guard.ask, refusal=guard.refusal)
            if answer is None:
                answer = await self._known(guard, request)
            if answer is None:
                answer = await self._made(request, arguments, guard, tenant, terms, began=began)
            ended.answer = answer
            await complete_large(answer, lambda: _claim(request, guard), grace=self._settings.worker.shutdown_grace)
        except Exception as caught:  # noqa: BLE001 - whatever it is, the effect may have happened by then
            failure = (
                caught
                if isinstance(caught, ApplicationError)
                else await _failure(caught, request, guard, terms, self._settings.limits.result_bytes)
            )
            ended.failure = failure
            await report(failure, began=began)
            raise failures.unsaid(failure) if request.sensitive else failure from None
        finally:
            ended.count()
        await report(answer, began=began)
        return answer

    async def _standing(self, request: CallRequest, tenant: str) -> Standing | None:
        """How the tool that is to be called stands in its server's catalog; None where nothing is known of it."""
        if request.method != "callTool":
            return None
        known = self._overlay.known(tenant, request.server_id)
        if known is None:
            known = await self._beating(self._overlay.read(tenant, request.server_id))
        if known.catalog is not None:
            return known.catalog.standing(request.name or "")
        server = self._settings.server(request.server_id, tenant)
        if server is not None and server.policy(request.name or "").quarantine:
            # Of a tenant that the settings do not name: what it is given to call now is what later lists are held to.
            self._overlay.begin(tenant, request.server_id)
        return None

    async def _judged(
        self, request: CallRequest, arguments: bytes | None, tenant: str, server: Server, standing: Standing | None
    ) -> Guard:
        """What is decided about a call whose arguments are sound."""

        def judge() -> Guard:
            _check(request, arguments)
            return Guard.of(request, arguments, tenant, server, standing)

        if arguments is None or len(arguments) < LONG:
            return judge()
        # To check and digest some megabytes takes seconds, in which no other call of this worker would go on.
        return await self._beating(asyncio.to_thread(judge))

    async def _beating(self, work: Coroutine[Any, Any, T]) -> T:
        """Await what takes its time before anything is sent, so that the worker does not count as lost meanwhile."""
        async with Beat(lambda: WITHDRAWN, grace=self._settings.worker.shutdown_grace) as beat:
            try:
                return await beat.hold(work)
            except asyncio.CancelledError:
                if not beat.cancelled and not activity.is_worker_shutdown():
                    raise
                raise InterruptedCallError(
                    "nothing was sent: " + ("the call was cancelled" if beat.cancelled else "the worker shut down"),
                    cancelled=beat.cancelled,
                    delivery=Delivery.NOT_SENT,
                ) from None

    async def _known(self, guard: Guard, request: CallRequest) -> temporalio.api.common.v1.Payload | None:
        """The outcome of the call, where it is known already: to a person, or to a run before a reset."""
        match request.answer:
            case Answer("done", bytes() as result):
                return record(result, _asked(request, guard) | {"sha256": _sha256(result), "decided": "done"})
            case Answer("fail"):
                raise EffectInDoubtError(
                    "an attempt left the effect in doubt, and a person decided that the call fails"
                )
            case _ if not request.was_reset(activity.info().workflow_run_id or ""):
                return await happened_before(guard, request)
            case _:
                return await self._beating(happened_before(guard, request))

    async def _made(
        self,
        request: CallRequest,
        arguments: bytes | None,
        guard: Guard,
        tenant: str,
        terms: dict[str, str],
        *,
        began: float,
    ) -> temporalio.api.common.v1.Payload:
        """Send, and record the answer, which is not kept a second time; ``terms`` then tell what was agreed."""
        exchange = await self._admitted(request, arguments, guard, tenant)
        terms |= _agreed(exchange)
        asks = _asks(exchange, request, self._settings.host.mrtr_max_rounds)
        check_size(exchange.result, self._settings.limits.result_bytes)
        return _recorded(exchange, request, guard, {**terms, **asks}, began=began)

    async def _admitted(self, request: CallRequest, arguments: bytes | None, guard: Guard, tenant: str) -> Exchange:
        """Send where there is room, before which nothing is claimed.

        Raises:
            PostponedError: There is none for now.
        """
        if guard.refusal is not None:
            raise NotCallableError(guard.refusal)
        if request.method == "serverHealth":
            # It is asked to find out, and not to be told what is believed.
            exchange = await self._guarded(request, arguments, guard)
            if exchange.http_status and not exchange.cached:
                self._admission.heard(request.server_id)
            return exchange
        given = self._admission.enter(request.server_id, tenant)
        if isinstance(given, Full):
            given = await self._beating(self._admission.wait(request.server_id, tenant, given))
        place = given

        def on_connected() -> None:
            nonlocal place
            if place.probe:
                place = self._admission.connected(place)

        try:
            exchange = await self._guarded(request, arguments, guard, on_connected)
        except BaseException as error:
            self._admission.leave(place, error)
            raise
        self._admission.leave(place)
        return exchange

    async def _guarded(
        self,
        request: CallRequest,
        arguments: bytes | None,
        guard: Guard,
        on_connected: Callable[[], None] | None = None,
    ) -> Exchange:
        """Send, under a claim where a repeat would not be safe; say what is known when the call is given up."""
        last: Progress | None = None

        def claim() -> bytes:
            return _claim(request, guard, **({} if last is None else {"progress": _told(last)}))

        def on_progress(progress: Progress) -> None:
            nonlocal last
            last = dataclasses.replace(progress, message=None) if request.sensitive else progress
            beat.renew()

        async with Beat(claim, grace=self._settings.worker.shutdown_grace) as beat:
            try:
                leave = await beat.claim(recorded=not guard.repeat_safe)
                return await beat.hold(self._send(leave, request, arguments, guard, on_progress, on_connected))
            except ClaimRefusedError as refused:
                raise InterruptedCallError(
                    f"nothing was sent: {refused}", cancelled=refused.cancelled, delivery=Delivery.NOT_SENT
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
            except McpError as error:
                if not guard.repeat_safe and error.delivery.nothing_happened:
                    await beat.withdraw()
                raise

    async def _send(
        self,
        _: Claim,
        request: CallRequest,
        arguments: bytes | None,
        guard: Guard,
        on_progress: Callable[[Progress], None],
        on_connected: Callable[[], None] | None,
    ) -> Exchange:
        """The one place where a request can leave: it takes a claim, which only a beat gives."""
        options = CallOptions(
            timeout=request.timeout,
            on_progress=on_progress,
            on_connected=on_connected,
            log_level=request.log_level,
            tenant=request.tenant or self._settings.worker.tenant,
            principal=request.principal,
            provider_key=None if guard.effect is None else guard.effect.provider_key,
            suspends=request.suspends,
            input=request.input,
            about=_about(request, guard),
        )
        try:
            return await SENDERS[request.method](self._clients[request.server_id], request, arguments, options)
        except McpError as error:
            await make_whole(error)
            raise


def _about(request: CallRequest, guard: Guard) -> Mapping[str, str | int]:
    """What the spans of a call's requests say of it."""
    info = activity.info()
    effect = {} if guard.effect is None else {attributes.EFFECT_ID: guard.effect.effect_id}
    return {
        attributes.RUN_ID: info.workflow_id or "",
        attributes.NODE_ID: request.node or info.activity_id,
        attributes.ATTEMPT: request.attempt,
        **effect,
    }


def _begin(request: CallRequest, tenant: str) -> None:
    """Say what is worked on, for all that is logged of it."""
    info = activity.info()
    about(
        run=info.workflow_id,
        node=request.node or info.activity_id,
        server=request.server_id,
        attempt=request.attempt,
        tenant=tenant,
    )


def _claim(request: CallRequest, guard: Guard, **progress: object) -> bytes:
    """What is known of an attempt of which nothing more is heard."""
    return jsontext.encode(
        {
            "delivery": Delivery.UNKNOWN.value,
            "repeatSafe": guard.repeat_safe,
            "retry": guard.retry.facts,
            "serverId": request.server_id,
            "method": METHODS[request.method],
            "name": request.name,
            "attempt": request.attempt,
            **guard.facts,
            **progress,
        }
    )


async def _failure(
    caught: Exception, request: CallRequest, guard: Guard, terms: Mapping[str, str], limit: int
) -> ApplicationError:
    """What is recorded of a call without a result; of a JSON-RPC error up to so many bytes, where there is storage."""
    error = caught if isinstance(caught, McpError) else _unexpected(caught)
    facts = guard.facts
    if request.answer is not None and request.answer.verdict == "fail":
        # The question was answered: it is not asked again.
        facts.pop("onDoubt", None)
    return failures.write(
        error,
        await error_ceiling(error, limit),
        repeat_safe=guard.repeat_safe,
        policy=guard.retry,
        serverId=request.server_id,
        method=METHODS[request.method],
        name=request.name,
        uri=request.uri,
        attempt=request.attempt,
        **facts,
        **terms,
    )


def _recorded(
    exchange: Exchange, request: CallRequest, guard: Guard, terms: Mapping[str, str], *, began: float
) -> temporalio.api.common.v1.Payload:
    """What is recorded of an answer: its bytes, and beside them where they came from."""
    return record(
        exchange.result,
        {
            **_asked(request, guard),
            **terms,
            **({"http-status": str(exchange.http_status)} if exchange.http_status else {}),
            **_noted(exchange),
            "sha256": _sha256(exchange.result),
            "duration-ms": str(round((time.monotonic() - began) * 1000)),
        },
    )


def _unapproved(guard: Guard, request: CallRequest) -> temporalio.api.common.v1.Payload | None:
    """The record of a call that a person has to approve before anything of it is sent or looked for."""
    if guard.to_approve is None:
        return None
    if not request.suspends:
        raise NotCallableError(
            "nothing was sent: a person has to approve this call (setting approval of the tool, unless 'worker.py tools"
            " classify' said otherwise), and what makes it cannot ask: make the call anew with this version of the pack"
        )
    return record(guard.to_approve, _asked(request, guard) | _interim("approval", request))


def _asks(exchange: Exchange, request: CallRequest, most: int) -> dict[str, str]:
    """What the record says of a question of the server's; nothing where this is its answer.

    Raises:
        RoundsExceededError: It asked once too often, or again what a person had declined.
    """
    if exchange.questions is None:
        return {}
    rounds = request.round + 1
    declined = () if request.input is None else request.input.declined
    if declined and any(request_digest(key, one) in declined for key, one in exchange.questions.requests.items()):
        raise RoundsExceededError(rounds=rounds)
    if rounds > most:
        raise RoundsExceededError(rounds=rounds, limit=most)
    return _interim("input", request) | {ROUND: str(rounds)}


def _interim(kind: Interim, request: CallRequest) -> dict[str, str]:
    return {INTERIM: kind, NODE: request.node or activity.info().activity_id}


def _asked(request: CallRequest, guard: Guard) -> dict[str, str]:
    return {
        "server-id": request.server_id,
        "method": METHODS[request.method],
        "subject": request.subject,
        "attempt": str(request.attempt),
        **guard.provenance,
    }


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


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
    if exchange.redacted is not None:
        noted |= {REDACTED: str(exchange.redacted.count), ORIGINAL: exchange.redacted.sha256}
    verdict = exchange.verdict
    if verdict is not None:
        noted["schema"] = " ".join(part for part in (verdict.state, verdict.path, verdict.reason) if part)
    return noted


def _required(value: str | None, name: str) -> str:
    if not value:
        raise InvalidRequestError(f"'{name}' is missing", path=name)
    return value


def _check(request: CallRequest, arguments: bytes | None) -> None:
    """Refuse what cannot be sent, before anything is decided about it."""
    if request.method in NAMED:
        _required(request.name, "name")
    if arguments is None:
        return
    try:
        jsontext.check_depth(arguments, MAX_DEPTH)
        jsontext.check(arguments)
        sound = jsontext.kind(arguments) == "object"
    except jsontext.JsonTextError:
        sound = False
    if not sound:
        raise InvalidRequestError(
            f"'arguments' is not the JSON text of an object, or is nested over {MAX_DEPTH} deep", path="arguments"
        )


NAMED = frozenset({"callTool", "getPrompt"})
"""Methods that need a name."""

SENDERS: Mapping[str, Sender] = {
    "callTool": lambda client, asked, given, options: client.call_tool(asked.name or "", given, options),
    "listTools": lambda client, asked, _, options: client.list_tools(asked.cursor, options),
    "listResources": lambda client, asked, _, options: client.list_resources(asked.cursor, options),
    "listResourceTemplates": lambda client, asked, _, options: client.list_resource_templates(asked.cursor, options),
    "readResource": lambda client, asked, _, options: client.read_resource(_required(asked.uri, "uri"), options),
    "listPrompts": lambda client, asked, _, options: client.list_prompts(asked.cursor, options),
    "getPrompt": lambda client, asked, given, options: client.get_prompt(asked.name or "", given, options),
    "complete": lambda client, _, given, options: client.complete(given or b"{}", options),
    "serverHealth": lambda client, _, __, options: health(client, options),
}
"""What each host method asks of a client, with the arguments that travel beside the request."""
