"""What every route needs: who asks, the bytes that were sent, and an answer as data. Knows HTTP and no operation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute

from openwop_mcp.config import Limits

from . import delivery, etags
from .errors import HostError
from .ids import BoundId
from .limiting import Admission
from .principals import Principal

__all__ = (
    "JSON",
    "Answer",
    "Authenticator",
    "beside",
    "body_limit",
    "caller",
    "header",
    "read_body",
    "represented",
    "run_of",
    "with_head",
)

T = TypeVar("T")

JSON = "application/json"
"""The one media type of bodies, both ways; events may also be streamed."""

NOT_MODIFIED = 304

BODY_ROOM = 256 * 1024
"""Bytes that a body may have beside a run's inputs: all the tags that a run may have fill half of it."""

LONG = 256 * 1024
"""Bytes of a text from which on it is worked through in a thread: below that it takes some milliseconds at worst."""

_READERS = ThreadPoolExecutor(2, "body")
"""Threads for long texts: more would only take the event loop's time."""


class Authenticator(Protocol):
    """Tells who sent a request."""

    async def authenticate(self, authorization: str | None) -> Principal:
        """Tell it by the ``Authorization`` header.

        Raises:
            HostError: ``unauthenticated``.
        """
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that can be kept and given again.

    Attributes:
        status: The HTTP status.
        body: JSON text.
        headers: Headers beside those of every answer.
    """

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, error: HostError) -> Answer:
        """The answer that says that a request is not done."""
        return cls(error.status, error.envelope, error.headers)

    def response(self) -> Response:
        """The response."""
        return Response(self.body, self.status, dict(self.headers), JSON if self.body else None)


def caller(authenticator: Authenticator, *scopes: str) -> Callable[[Request], Awaitable[Principal]]:
    """Make a dependency that gives who asks, and refuses who may not, or asks for too much at once.

    Args:
        authenticator: Tells who it is.
        scopes: What the operation needs.
    """

    async def authenticated(request: Request) -> Principal:
        principal = await authenticator.authenticate(request.headers.get("authorization"))
        request.state.principal = principal
        if (admission := Admission.of(request.scope)) is not None:
            admission.take(principal.key_id)
        principal.require(*scopes)
        return principal

    return authenticated


def body_limit(limits: Limits) -> int:
    """Bytes that the body of a request may have."""
    return limits.call_bytes + BODY_ROOM


def header(request: Request, name: str) -> str | None:
    """The value of a header, which is one list if it came in several lines; None if it did not come."""
    return ", ".join(request.headers.getlist(name)) if name in request.headers else None


def run_of(request: Request) -> BoundId:
    """The run that a path names, which is the caller's.

    Raises:
        HostError: ``validation_error`` if it is no id, ``id_tenant_mismatch``.
    """
    run_id = BoundId.from_segment(request.path_params["runId"], name="runId")
    run_id.require_tenant(request.state.principal.tenant)
    return run_id


async def read_body(request: Request, *, most: int) -> bytes:
    """Read what was sent.

    Args:
        request: The request.
        most: Bytes that it may have.

    Raises:
        HostError: ``unsupported_media_type`` if it is something else than JSON, ``payload_too_large``,
            ``rate_limited`` if the caller's other requests hold too much already.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most:
        raise _too_large(most)
    admission = Admission.of(request.scope)
    body = bytearray()
    async for piece in request.stream():
        if admission is not None:
            admission.hold(len(piece))
        body += piece
        if len(body) > most:
            raise _too_large(most)
    if body and media_type != JSON:
        raise HostError("unsupported_media_type", f"Content-Type: send {JSON}")
    return bytes(body)


async def beside(text: bytes, work: Callable[[bytes], T]) -> T:
    """Work through what was sent; through a long text in a thread, so that other requests are answered meanwhile."""
    return work(text) if len(text) < LONG else await asyncio.get_running_loop().run_in_executor(_READERS, work, text)


def represented(request: Request, etag: str, parts: Sequence[bytes]) -> Response:
    """Answer with something that can be read again, or say that the client has it.

    Args:
        request: The request.
        etag: Strong, of what the parts make up.
        parts: JSON text. What is large is sent as its client takes it, and held once for all of them.
    """
    headers = {"ETag": etag}
    if etags.matches(request.headers.get("if-none-match"), etag):
        return Response(status_code=NOT_MODIFIED, headers=headers)
    size = sum(map(len, parts))
    if size <= delivery.CHUNK_BYTES:
        return Response(b"".join(parts), headers=headers, media_type=JSON)
    return StreamingResponse(delivery.whole(parts), headers={**headers, "Content-Length": str(size)}, media_type=JSON)


def with_head(router: APIRouter) -> APIRouter:
    """Let HEAD be asked wherever GET is: the server leaves the body out. No document lists it."""
    for route in tuple(router.routes):
        if isinstance(route, APIRoute) and route.methods == {"GET"}:
            # The router adds its own again.
            own = route.dependencies[len(router.dependencies) :]
            router.add_api_route(
                route.path, route.endpoint, methods=["HEAD"], dependencies=own, include_in_schema=False
            )
    return router


def _too_large(most: int) -> HostError:
    return HostError("payload_too_large", f"the body may have {most} bytes: send less", {"maxRequestBodyBytes": most})
