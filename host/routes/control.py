"""What is done to runs that are under way: cancelled, one or many, paused and resumed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from fastapi import APIRouter, Depends, Request, Response

from openwop_mcp.runs.pauses import Resume

from .. import bodies, openapi, records
from ..context import Host
from ..control import Control
from ..web import Answer, caller, read_body, run_of

__all__ = ("routes",)

MAX_BODY = 64 * 1024
"""Bytes of a body: a hundred of the longest ids and a reason of the longest have half of it."""

_ID = {"type": "string"}
_REASON = {"type": "string", "minLength": 1, "maxLength": bodies.MAX_REASON}
_AT = {"type": "string", "format": "date-time"}
_CANCELLED = {"enum": ["cancelling", "cancelled"]}
_VERDICT = openapi.schema_of({"runId": _ID, "ok": {"type": "boolean"}}, {"status": _CANCELLED, "error": openapi.ERROR})

_CANCEL = openapi.schema_of({}, {"reason": _REASON})
_CANCEL_ALL = openapi.schema_of(
    {"runIds": {"type": "array", "items": _ID, "minItems": 1, "maxItems": bodies.MAX_RUN_IDS}}, {"reason": _REASON}
)
_PAUSE = openapi.schema_of({}, {"reason": _REASON, "drainPolicy": {"enum": ["drain-current-node", "immediate"]}})


def routes(host: Host) -> APIRouter:
    """The routes."""
    router = APIRouter(dependencies=[Depends(caller(host.authenticator, "runs:cancel"))])
    control = Control(host.client, host.logs)

    async def once(
        request: Request,
        operation: str,
        body: bytes,
        act: Callable[[str | None], Awaitable[Answer]],
        *,
        target: str = "",
    ) -> Response:
        return (await host.records.answered(request, operation, body, act, target=target)).response()

    @router.post(
        "/runs/{runId}/cancel",
        operation_id="cancelRun",
        summary="Cancel a run",
        responses={
            **openapi.answered(200, "It is being cancelled.", openapi.schema_of({"runId": _ID, "status": _CANCELLED})),
            **openapi.refused(400, 404, 409, 413, 415),
        },
        openapi_extra={**openapi.body(_CANCEL, required=False), "parameters": [records.PARAMETER]},
    )
    async def cancel(request: Request) -> Response:
        run_id = run_of(request)
        body = await read_body(request, most=MAX_BODY)
        reason = bodies.read_reason(body)
        return await once(request, "cancelRun", body, lambda _name: control.cancel(run_id, reason), target=str(run_id))

    @router.post(
        "/runs:bulk-cancel",
        operation_id="bulkCancelRuns",
        summary="Cancel runs, each with a verdict of its own",
        responses={
            **openapi.answered(
                200,
                "The verdicts, in the order of the ids.",
                openapi.schema_of({"results": {"type": "array", "items": _VERDICT}}),
            ),
            **openapi.refused(400, 409, 413, 415),
        },
        openapi_extra={**openapi.body(_CANCEL_ALL), "parameters": [records.PARAMETER]},
    )
    async def cancel_all(request: Request) -> Response:
        tenant = request.state.principal.tenant
        body = await read_body(request, most=MAX_BODY)
        asked = bodies.read_bulk_cancel(body)
        return await once(request, "bulkCancelRuns", body, lambda _name: control.cancel_all(tenant, asked))

    @router.post(
        "/runs/{runId}:pause",
        operation_id="pauseRun",
        summary="Pause a run",
        status_code=HTTPStatus.ACCEPTED,
        responses={
            **openapi.answered(
                202,
                "It is paused.",
                openapi.schema_of({"runId": _ID, "status": {"const": "paused"}, "pausedAt": _AT}),
            ),
            **openapi.refused(400, 404, 409, 413, 415),
        },
        openapi_extra={**openapi.body(_PAUSE, required=False), "parameters": [records.PARAMETER]},
    )
    async def pause(request: Request) -> Response:
        run_id = run_of(request)
        body = await read_body(request, most=MAX_BODY)
        asked = bodies.read_pause(body)
        return await once(
            request, "pauseRun", body, lambda name: control.pause(run_id, asked, again=name), target=str(run_id)
        )

    @router.post(
        "/runs/{runId}:resume",
        operation_id="resumeRun",
        summary="Let a paused run go on",
        status_code=HTTPStatus.ACCEPTED,
        responses={
            **openapi.answered(
                202,
                "It goes on.",
                openapi.schema_of({"runId": _ID, "status": {"const": "running"}, "resumedAt": _AT}),
            ),
            **openapi.refused(400, 404, 409, 413, 415),
        },
        openapi_extra={**openapi.body(_CANCEL, required=False), "parameters": [records.PARAMETER]},
    )
    async def resume(request: Request) -> Response:
        run_id = run_of(request)
        body = await read_body(request, most=MAX_BODY)
        asked = Resume(bodies.read_reason(body))
        return await once(
            request, "resumeRun", body, lambda name: control.resume(run_id, asked, again=name), target=str(run_id)
        )

    return router
