"""What holds for every request whatever it asks for: its path, its contract, its refusal and its line in the log.

An ASGI middleware around the routes, which streams pass through as they come. Knows no operation; a request for what is
no part of the protocol goes past it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import NoReturn
from urllib.parse import unquote

from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from temporalio.client import RPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp.encryption import EncryptionError
from openwop_mcp.logs import about
from openwop_mcp.storage import StorageError

from . import versioning
from .errors import HostError, invalid, place
from .protected_resource import ProtectedResource
from .web import Answer

__all__ = ("Surface", "raised_on", "refusal", "routed")

access = logging.getLogger("openwop_mcp.access")
faults = logging.getLogger("openwop_mcp.host")

RETRY_AFTER = 2
"""Seconds after which to ask again where Temporal did not answer: a restart of it takes about as long."""

_AWAY = frozenset(
    {
        RPCStatusCode.ABORTED,
        RPCStatusCode.CANCELLED,
        RPCStatusCode.DEADLINE_EXCEEDED,
        RPCStatusCode.RESOURCE_EXHAUSTED,
        RPCStatusCode.UNAVAILABLE,
    }
)
"""What Temporal answers, or what its client says in its place, when the same request may succeed in a moment. Where an
answer does not come in time the client says that the question was cancelled."""

_BY_STATUS: Mapping[int, tuple[str, str]] = {
    404: ("not_found", "there is no such operation here: /openapi.json has those that there are"),
    405: ("not_found", "there is no such operation here: /openapi.json has the methods that this path has"),
    413: ("payload_too_large", "the body is larger than may be sent: send less"),
}
"""What the framework refuses by a status alone. For a method that a path does not have, OpenWOP has no code."""

_WITH_SLASH = ("not_found", "there is no such operation here: in a path, write the slash of a run's id as ~2F")

_UNPROJECTED = re.compile(r"/runs/[^/:]+/[A-Za-z0-9._~-]{16,128}(?:[/:]|$)")
"""The path of a run whose id was written with its slash."""

_UNRESERVED = re.compile(r"%(?:2[DdEe]|3[0-9Aa]|4[1-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9AaEe])")
"""Escapes of what never needs one (RFC 3986, section 2.3), and of the colon, which begins the name of an operation."""


def routed(raw_path: bytes) -> str:
    """The path that routes are found by: as it was sent, but for escapes of what needs none.

    An escaped slash stays escaped, so that an id which is bound to a tenant is one segment.
    """
    return _UNRESERVED.sub(lambda escape: unquote(escape[0]), raw_path.decode("latin-1"))


def refusal(error: Exception, path: str = "") -> HostError | None:
    """What is answered where a request for a path raised; None for what nobody foresaw."""
    match error:
        case HostError():
            return error
        case RequestValidationError():
            fault = error.errors()[0]
            return invalid(place(*(str(step) for step in fault["loc"][1:])) or "body", fault["msg"])
        case HTTPException() if error.status_code in _BY_STATUS:
            unprojected = error.status_code == HTTPStatus.NOT_FOUND and _UNPROJECTED.match(path)
            return HostError(*(_WITH_SLASH if unprojected else _BY_STATUS[error.status_code]))
        case RPCTimeoutOrCancelledError() | RPCError() if getattr(error, "status", RPCStatusCode.ABORTED) in _AWAY:
            return _away("Temporal")
        case StorageError() | EncryptionError():
            # Which of them, and which key, stands in the log.
            return _away("what keeps values and keys")
        case _:
            return None


async def raised_on(_request: Request, error: Exception) -> NoReturn:
    """What FastAPI would answer in words of its own goes on to where every refusal becomes an envelope."""
    raise error


def _away(what: str) -> HostError:
    return HostError("service_unavailable", f"{what} does not answer now: try again", retry_after=RETRY_AFTER)


def _ending() -> HostError:
    return HostError("service_unavailable", "the host is about to end: try again", retry_after=RETRY_AFTER)


class Surface:
    """Middleware around all routes.

    Args:
        app: What is inside.
        beside: Paths that are no part of the protocol: they are neither versioned nor logged.
        resource: What challenges point to, where tokens are taken.
        stopping: Set when the host is about to end.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        beside: Collection[str],
        stopping: asyncio.Event,
        resource: ProtectedResource | None = None,
    ) -> None:
        self._app = app
        self._beside = beside
        self._resource = resource
        self._stopping = stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["path"] = routed(scope["raw_path"])
        if scope["path"] in self._beside:
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send, self._resource)
        try:
            asked = Headers(scope=scope).getlist(versioning.HEADER)
            versioning.negotiate(", ".join(asked) if asked else None)
            await self._app(scope, receive, exchange.send)
        except asyncio.CancelledError:
            # The server gives up what does not end in time when it is stopped itself.
            if not self._stopping.is_set():
                raise
            await exchange.refuse(_ending())
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told in the closed envelope
            await exchange.refuse(error)
        finally:
            exchange.log()


class _Exchange:
    """A request and what was answered to it."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, resource: ProtectedResource | None) -> None:
        self._resource = resource
        self._scope = scope
        self._receive = receive
        self._send = send
        self._begun = time.perf_counter()
        self._correlation_id = uuid.uuid4().hex
        about(request=self._correlation_id)
        self._status: int | None = None

    async def send(self, message: Message) -> None:
        """Pass on a piece of the answer, its head with the contract that it follows."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            version = (versioning.HEADER.lower().encode(), versioning.VERSION.encode())
            message = {**message, "headers": [*message.get("headers", ()), version]}
        await self._send(message)

    async def refuse(self, error: Exception) -> None:
        """Answer that it is not done. An answer that had begun is cut, so that nobody takes it for whole."""
        if isinstance(error, ClientDisconnect):
            return
        told = refusal(error, self._scope["path"])
        if told is None:
            faults.error("request %s failed", self._correlation_id, exc_info=error)
        elif self._status is not None:
            faults.warning("request %s: its answer is cut: %s", self._correlation_id, error)
        elif told.code == "service_unavailable":
            faults.warning("request %s: %s", self._correlation_id, error)
        if told is None:
            told = HostError(
                "internal_error",
                "this is a fault of the host: tell its operator the correlation id",
                {"correlationId": self._correlation_id},
            )
        if self._status is None:
            headers = told.headers if self._resource is None else self._resource.point(told.headers)
            await Answer(told.status, told.envelope, headers).response()(self._scope, self._receive, self.send)

    def log(self) -> None:
        """Write the line. Which path it was is told by its route: ids and tokens in it are nobody's business."""
        route = self._scope.get("route")
        principal = self._scope.get("state", {}).get("principal")
        about(key=getattr(principal, "key_id", None), tenant=getattr(principal, "tenant", None))
        facts = {
            "method": self._scope["method"],
            "route": getattr(route, "path", "-"),
            "status": self._status or "-",
            "ms": round((time.perf_counter() - self._begun) * 1000),
        }
        access.info("%(method)s %(route)s %(status)s %(ms)d ms", facts, extra={"facts": facts})
