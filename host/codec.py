"""The codec server: opens payloads for Temporal's UI and command line, in Temporal's own protocol for it.

Knows the keys and the storage of large values, and no Temporal: who has a payload brings it. It is no part of OpenWOP,
but its callers, refusals and limits are those of the REST surface.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from google.protobuf.json_format import MessageToJson, ParseDict, ParseError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import DataConverter

from openwop_mcp.config import Settings
from openwop_mcp.encryption import EncryptionError
from openwop_mcp.storage import LostValueError, MalformedReferenceError, data_converter, open_payload, size_of

from .authenticators import Authenticators
from .errors import HostError, invalid
from .limiting import KeyLimits, Limited
from .server import Listening, listening
from .surface import Surface, raised_on
from .web import JSON, Authenticator, body_limit, caller, read_body

__all__ = ("codec_app", "serving_codec")

SCOPE = "audit:read"
"""What it takes to have something opened, whosesoever it is: a payload does not say whose it is."""

HEALTH = "/healthz"

MAX_OPENED = 4 * 1024**2
"""Bytes of large values that come with one answer without being asked for: more is no help on a page or a terminal."""

MAX_DOWNLOAD = 1024**3
"""Bytes of a value that is asked for: as many as one may have."""

MAX_DOWNLOADS = 256 * 1024**2
"""Bytes of several that are asked for at once. All are in memory together, and a few times over while they are written:
who wants more can ask again."""

LARGEST_BODIES = 4
"""As on the REST surface."""

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
"""Both alphabets, as Protobuf reads them. It leaves out any other character without a word, and would open, or encrypt,
what nobody sent."""


def codec_app(settings: Settings, authenticator: Authenticator, stopping: asyncio.Event) -> FastAPI:
    """Put the application together.

    Args:
        settings: With keys of encryption.
        authenticator: Tells who sent a request.
        stopping: Set when it is about to end.
    """
    # What it would list are the operations of somebody else's protocol.
    app = FastAPI(
        openapi_url=None,
        redirect_slashes=False,
        telemetry={"tracing": False, "metrics": False, "logs": False},
        exception_handlers={HTTPException: raised_on, RequestValidationError: raised_on},
    )
    app.include_router(_routes(data_converter(settings), authenticator, most=body_limit(settings.limits)))
    own = settings.host
    limits = KeyLimits(
        at_once=own.key_requests,
        per_second=own.key_rate,
        body_bytes=LARGEST_BODIES * body_limit(settings.limits),
    )
    app.add_middleware(Limited, limits=limits)
    app.add_middleware(Surface, beside={HEALTH}, stopping=stopping)
    # Around all else, so that a page can read why it was refused.
    app.add_middleware(
        CORSMiddleware,
        allow_origins=settings.encryption.ui_origins,
        allow_methods=["POST"],
        allow_headers=["Authorization", "Content-Type", "X-Namespace"],
    )
    return app


@contextlib.asynccontextmanager
async def serving_codec(settings: Settings, environ: Mapping[str, str]) -> AsyncIterator[Listening]:
    """Serve until the context ends.

    Args:
        settings: With keys of encryption, and with what callers are known by.
        environ: The environment, where secrets may be.

    Raises:
        BindError: It cannot listen where the settings say so.
        SettingsError: A key cannot be used.
    """
    async with Authenticators.open(settings, environ) as authenticator:
        stopping = asyncio.Event()
        app = codec_app(settings, authenticator, stopping)
        async with listening(
            app, bind=settings.encryption.bind, stopping=stopping, setting="encryption.bind"
        ) as running:
            yield running


def _routes(converter: DataConverter, authenticator: Authenticator, *, most: int) -> APIRouter:
    router = APIRouter()
    trusted = APIRouter(dependencies=[Depends(caller(authenticator, SCOPE))])
    codec = converter.payload_codec
    assert codec is not None

    @router.api_route(HEALTH, methods=["GET", "HEAD"])
    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    async def answered(request: Request, work: Callable[[Payload], Awaitable[Payload]]) -> Response:
        given = _read(await read_body(request, most=most))
        done: list[Payload] = []
        for index, payload in enumerate(given):
            with _refused(f"payloads[{index}]"):
                done.append(await work(payload))
        return Response(await asyncio.to_thread(_written, done), media_type=JSON)

    @trusted.post("/encode")
    async def encode(request: Request) -> Response:
        async def sealed(payload: Payload) -> Payload:
            [encrypted] = await codec.encode([payload])
            return encrypted

        return await answered(request, sealed)

    @trusted.post("/decode")
    async def decode(request: Request) -> Response:
        left = MAX_OPENED

        async def opened(payload: Payload) -> Payload:
            nonlocal left
            found = await _opened(payload, converter, most=left)
            left -= size_of(payload) if found is not payload else 0
            return found

        return await answered(request, opened)

    @trusted.post("/download")
    async def download(request: Request) -> Response:
        taken = 0

        async def whole(payload: Payload) -> Payload:
            nonlocal taken
            taken = _together(taken, size_of(payload))
            return await open_payload(payload, converter, most=MAX_DOWNLOAD)

        return await answered(request, whole)

    router.include_router(trusted)
    return router


async def _opened(payload: Payload, converter: DataConverter, *, most: int) -> Payload:
    try:
        return await open_payload(payload, converter, most=most)
    except LostValueError:
        # It shows what is known of it, and must not keep a page from all else; nor may what never was a reference.
        return payload


def _together(taken: int, size: int) -> int:
    """Bytes of values with another one among them. However large the first one is, it may be the only one."""
    if taken and taken + size > MAX_DOWNLOADS:
        raise HostError(
            "payload_too_large",
            f"the values have more than {MAX_DOWNLOADS} bytes together: ask for fewer at once, and for a large one by"
            " itself",
        )
    return taken + size


@contextlib.contextmanager
def _refused(field: str) -> Iterator[None]:
    """Tell which payload cannot be had, and why. Where a lost one was looked for is the operator's business."""
    try:
        yield
    except EncryptionError as error:
        raise invalid(field, str(error), keyId=error.key_id) from None
    except MalformedReferenceError:
        raise invalid(field, "send the reference to a value as it stands in history") from None
    except LostValueError as error:
        [lost] = error.details
        raise HostError(
            "not_found",
            f"{field}: the value with SHA-256 {lost['sha256']} is gone or was changed: have it put back into the"
            " storage of large values, or the codec server given the [storage] of the worker that recorded it",
            {"field": field, "sha256": lost["sha256"], "size": int(lost["size"])},
        ) from None


def _read(body: bytes) -> Sequence[Payload]:
    try:
        given = json.loads(body.decode(), object_pairs_hook=_once)
        _check_base64(given)
        return ParseDict(given, Payloads(), ignore_unknown_fields=True).payloads
    except (ParseError, ValueError, RecursionError):
        raise invalid(
            "body", 'send {"payloads": [{"metadata": {"encoding": "…"}, "data": "…"}]} with values in base64'
        ) from None


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, each of whose names stands there once: nobody else may have read the other one."""
    found = dict(members)
    if len(found) != len(members):
        raise ValueError
    return found


def _check_base64(given: object) -> None:
    """Look at the texts that are bytes. What else is wrong is for Protobuf to find."""
    if not isinstance(given, dict):
        raise ValueError  # noqa: TRY004 - the caller's fault and not the code's
    payloads = given.get("payloads")
    for payload in payloads if isinstance(payloads, list) else ():
        if not isinstance(payload, dict):
            continue
        metadata = payload.get("metadata")
        for text in (payload.get("data"), *(metadata.values() if isinstance(metadata, dict) else ())):
            if isinstance(text, str) and not _BASE64.fullmatch(text):
                raise ValueError


def _written(payloads: Sequence[Payload]) -> str:
    return f'{{"payloads":[{",".join(MessageToJson(payload, indent=None) for payload in payloads)}]}}'
