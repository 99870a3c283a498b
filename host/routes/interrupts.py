"""Answers to questions of runs: by whoever has a key, at the node that asks, and by whoever was given a link."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Request, Response

from .. import bodies, openapi, records
from ..context import Host
from ..errors import HostError
from ..interrupts import Interrupts, bearer_of
from ..limiting import Admission
from ..tokens import Claims
from ..web import Answer, beside, body_limit, caller, read_body, run_of, with_head

__all__ = ("routes",)

_STRING = {"type": "string"}
_RESOLVE = openapi.schema_of({"resumeValue": {}})
_RESOLVED = openapi.schema_of({"runId": _STRING, "nodeId": _STRING, "status": _STRING})
_ASKED = openapi.schema_of(
    {"kind": _STRING, "key": _STRING, "data": {"type": "object"}},
    {"resumeSchema": {"type": "object"}, "timeoutMs": {"type": "integer"}},
)


def routes(host: Host) -> APIRouter:
    """The routes."""
    router = APIRouter()
    interrupts = Interrupts(host.client, host.logs)

    async def once(
        request: Request, operation: str, target: str, answer: Callable[[bytes, str | None], Awaitable[Answer]]
    ) -> Response:
        """Take an answer, or give what came of it before. What takes it is told a name of the request."""
        body = await read_body(request, most=body_limit(host.settings.limits))
        value = await beside(body, bodies.read_resolve)
        if len(value) > host.options.call_bytes:
            # More would not come through to the run, or not the run's refusal back.
            most = host.options.call_bytes
            raise HostError("payload_too_large", f"resumeValue: write {most} bytes at most", {"field": "resumeValue"})
        taken = await host.records.answered(request, operation, body, lambda name: answer(value, name), target=target)
        return taken.response()

    async def claimed(request: Request) -> Claims:
        """What the token in the path says. The requests with it count together, as those of a key do."""
        claims = await host.links.read(unquote(request.path_params["token"]))
        request.state.principal = bearer_of(claims)
        if (admission := Admission.of(request.scope)) is not None:
            admission.take(request.state.principal.key_id)
        return claims

    @router.post(
        "/runs/{runId}/interrupts/{nodeId}",
        operation_id="resolveInterruptByRun",
        summary="Answer the question that a node waits with",
        responses={
            **openapi.answered(200, "The answer is taken; where the run stands now.", _RESOLVED),
            **openapi.refused(400, 404, 409, 410, 413, 415),
        },
        openapi_extra={**openapi.body(_RESOLVE), "parameters": [records.PARAMETER]},
        dependencies=[Depends(caller(host.authenticator, "approvals:respond"))],
    )
    async def resolve_by_run(request: Request) -> Response:
        run_id = run_of(request)
        node_id = unquote(request.path_params["nodeId"])
        by = request.state.principal
        return await once(
            request,
            "resolveInterruptByRun",
            f"{run_id} {node_id}",
            lambda value, name: interrupts.resolve(run_id, node_id, value, by, again=name),
        )

    @router.get(
        "/interrupts/{token}",
        operation_id="inspectInterruptByToken",
        summary="The question that a link is for",
        responses={
            **openapi.answered(200, "The question.", _ASKED),
            **openapi.refused(400, 401, 403, 404, 409, 410),
        },
        openapi_extra={**openapi.OPEN},
    )
    async def inspect(request: Request) -> Response:
        return (await interrupts.inspect(await claimed(request))).response()

    @router.post(
        "/interrupts/{token}",
        operation_id="resolveInterruptByToken",
        summary="Answer the question that a link is for",
        responses={
            **openapi.answered(200, "The answer is taken; where the run stands now.", _RESOLVED),
            **openapi.refused(400, 401, 403, 404, 409, 410, 413, 415),
        },
        openapi_extra={**openapi.OPEN, **openapi.body(_RESOLVE), "parameters": [records.PARAMETER]},
    )
    async def resolve_by_token(request: Request) -> Response:
        claims = await claimed(request)
        if claims.intent != "resolve":
            raise HostError("forbidden", "the link is for reading alone: ask for one that is for answering")
        by = request.state.principal
        return await once(
            request,
            "resolveInterruptByToken",
            claims.interrupt_id,
            lambda value, name: interrupts.resolve_by_token(claims, value, by, again=name),
        )

    return with_head(router)
