"""A run read: its snapshot, its events page by page, and its events as they come."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from http import HTTPStatus

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Send

from .. import delivery, openapi, polling, streaming
from ..context import Host
from ..streaming import StreamMode
from ..web import JSON, caller, represented, run_of, with_head

__all__ = ("routes",)

EVENT_STREAM = "text/event-stream"

LIVE = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""For answers that are good once, and that no proxy may hold back until it has more of them."""

_SNAPSHOT = openapi.schema_of(
    {
        "runId": {"type": "string"},
        "workflowId": {"type": "string"},
        "status": {"type": "string"},
        "owner": {"type": "object"},
        "eventLogSchemaVersion": {"type": "integer"},
    },
    {
        "engineVersion": {"type": "integer"},
        "currentNodeId": {"type": "string"},
        "startedAt": {"type": "string", "format": "date-time"},
        "completedAt": {"type": "string", "format": "date-time"},
        "error": {"type": "object"},
        "inputs": {"type": "object"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "metadata": {},
        "configurable": {"type": "object"},
    },
)

_PAGE = openapi.schema_of(
    {
        "runId": {"type": "string"},
        "events": {"type": "array", "items": {"type": "object"}},
        "lastSequence": {"type": "integer", "minimum": -1},
        "status": {"type": "string"},
        "isTerminal": {"type": "boolean"},
    }
)

_AFTER = openapi.parameter(
    "afterSequence", "query", {"type": "integer", "minimum": 0}, "Events after this one; all if it is left out."
)
_TIMEOUT = openapi.parameter(
    "timeout",
    "query",
    {"type": "integer", "minimum": 1, "maximum": polling.MAX_SECONDS, "default": polling.DEFAULT_SECONDS},
    "Seconds to wait for an event if there is none.",
)
_MODE = openapi.parameter(
    "streamMode",
    "query",
    {"type": "string", "pattern": streaming.MODE.pattern, "default": streaming.MODES[0]},
    "What is shown: values alone, or one or more of the others, with commas between.",
)
_BUFFER = openapi.parameter(
    "bufferMs",
    "query",
    {"type": "integer", "minimum": 0, "maximum": streaming.MAX_BUFFER_MS, "default": 0},
    "Milliseconds that events may wait for others, to be sent as one batch.",
)
_LAST_EVENT_ID = openapi.parameter(
    "Last-Event-ID", "header", {"type": "integer", "minimum": 0}, "The id of the last frame that the client has."
)


def routes(host: Host) -> APIRouter:
    """The routes."""
    router = APIRouter(dependencies=[Depends(caller(host.authenticator, "runs:read"))])

    async def run(request: Request) -> Response:
        log = await host.logs.open(run_of(request))
        etag = log.view.etag(cancelling=log.cancelling)
        return represented(request, etag, log.view.parts(cancelling=log.cancelling))

    async def poll(request: Request) -> Response:
        run_id = run_of(request)
        after = polling.after_sequence(request.query_params.get("afterSequence"))
        seconds = polling.timeout(request.query_params.get("timeout"))
        log = await host.logs.open(run_id)
        if request.method == "HEAD":
            return Response(headers=LIVE, media_type=JSON)
        await log.wait(after, min(seconds, _seconds_left(request)))
        return StreamingResponse(delivery.page(str(run_id), log, after), headers=LIVE, media_type=JSON)

    async def events(request: Request) -> Response:
        run_id = run_of(request)
        mode = StreamMode.parse(request.query_params.get("streamMode"))
        buffer_ms = streaming.buffer_ms(request.query_params.get("bufferMs"))
        after = streaming.last_event_id(request.headers.get("last-event-id"))
        log = await host.logs.open(run_id)
        if request.method == "HEAD":
            return Response(headers=LIVE, media_type=EVENT_STREAM)
        left = _seconds_left(request)
        return _EventStream(delivery.stream(log, after, mode, buffer_ms=buffer_ms, seconds=left))

    # Else the name of an operation that is not here would be read as the end of an id.
    router.add_api_route("/runs/{runId}:{operation}", _absent, methods=["GET", "HEAD"], include_in_schema=False)
    router.get(
        "/runs/{runId}",
        operation_id="getRun",
        summary="Where a run stands",
        responses={
            **openapi.answered(200, "The run.", _SNAPSHOT),
            **openapi.answered(304, "The run stands where the client knows it to."),
            **openapi.refused(400, 404, 410),
        },
        openapi_extra={"parameters": [openapi.IF_NONE_MATCH]},
    )(run)
    router.get(
        "/runs/{runId}/events/poll",
        operation_id="pollRunEvents",
        summary="The events of a run after one of them; waits where there is none yet",
        responses={**openapi.answered(200, "The events.", _PAGE), **openapi.refused(400, 404, 410)},
        openapi_extra={"parameters": [_AFTER, _TIMEOUT]},
    )(poll)
    router.get(
        "/runs/{runId}/events",
        operation_id="streamRunEvents",
        summary="The events of a run as they come, to the last one",
        responses={
            **openapi.answered(200, "The events.", {"type": "string"}, media_type=EVENT_STREAM),
            **openapi.refused(400, 404, 410),
        },
        openapi_extra={"parameters": [_MODE, _BUFFER, _LAST_EVENT_ID]},
    )(events)
    return with_head(router)


async def _absent() -> Response:
    raise HTTPException(HTTPStatus.NOT_FOUND)


def _seconds_left(request: Request) -> float:
    """How long the credential of a request is good for."""
    expires_at: float = request.state.principal.expires_at
    return max(0.0, expires_at - time.time())


class _EventStream(StreamingResponse):
    """A stream that is cut where its client is to come back, and otherwise ended."""

    def __init__(self, frames: AsyncIterator[bytes]) -> None:
        super().__init__(frames, headers=LIVE, media_type=EVENT_STREAM)

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except delivery.CutError:
            # The server closes a connection whose answer was not ended: some clients take a quiet end for the run's.
            return
