"""Runs as a whole: created, listed, and the ledger of a run's effects."""

from __future__ import annotations

import asyncio
from functools import partial
from http import HTTPStatus
from typing import get_args

from fastapi import APIRouter, Depends, Request, Response

from openwop_mcp import jsontext
from openwop_mcp.storage import LostValueError

from .. import bodies, history, listing, openapi, records, scopes
from ..context import Host
from ..creation import Creation
from ..errors import HostError
from ..ids import BoundId
from ..listing import Asked, RunList
from ..records import Keyed
from ..siblings import client as runs
from ..snapshot import RunStatus
from ..web import Answer, beside, body_limit, caller, header, read_body, run_of, with_head

__all__ = ("routes",)

FORCE_ENGINE = "OpenWOP-Force-Engine-Version"
"""Header of a key that is for tests; no key here is."""

LEDGERS = 2
"""Ledgers that are told at a time: each holds the run's histories meanwhile, and one thing that was sent."""

_STRING = {"type": "string"}
_OBJECT = {"type": "object"}

_CREATE = openapi.schema_of(
    {"workflowId": _STRING},
    {
        "inputs": _OBJECT,
        "tenantId": _STRING,
        "scopeId": {"type": "string", "minLength": 1, "maxLength": bodies.MAX_SCOPE_ID},
        "configurable": _OBJECT,
        "tags": {
            "type": "array",
            "items": {"type": "string", "minLength": 1, "maxLength": bodies.MAX_TAG},
            "maxItems": bodies.MAX_TAGS,
        },
        "metadata": _OBJECT,
        bodies.CALLBACK_URL: {
            "type": "string",
            "format": "uri",
            "maxLength": bodies.MAX_URL,
            "description": "Is told that the run waits for an answer, if interrupt.callbackDelivery is offered.",
        },
    },
)
_CREATED = openapi.schema_of(
    {"runId": _STRING, "status": {"const": "pending"}, "eventsUrl": _STRING, "statusUrl": _STRING}
)
_LIST = openapi.schema_of({"runs": {"type": "array", "items": _OBJECT}}, {"nextCursor": _STRING})
_EFFECTS = openapi.schema_of(
    {
        "runId": _STRING,
        "effects": {
            "type": "array",
            "items": openapi.schema_of(
                {
                    "effectId": _STRING,
                    "nodeId": _STRING,
                    "attempt": {"type": "integer", "minimum": 1},
                    "keying": {"enum": ["business-identity", "activity-recipe"]},
                    "state": {"enum": ["claimed", "completed", "released", "escaped"]},
                    "at": {"type": "string", "format": "date-time"},
                },
                {"providerKey": _STRING},
            ),
        },
    }
)

_DEDUP = openapi.parameter(
    scopes.HEADER, "header", {"const": "enforce"}, "The run is to be the only active one of its scopeId."
)
_LIMIT = openapi.parameter(
    "limit",
    "query",
    {"type": "integer", "minimum": 1, "default": listing.DEFAULT_PAGE_SIZE},
    f"Runs on a page, {listing.MAX_PAGE_SIZE} at most.",
)
_CURSOR = openapi.parameter("cursor", "query", _STRING, "Where the page begins: nextCursor of the one before.")
_WORKFLOW = openapi.parameter("workflowId", "query", _STRING, "Runs of this workflow only.")
_STATUS = openapi.parameter("status", "query", {"enum": list(get_args(RunStatus))}, "Runs only that stand like this.")


def routes(host: Host) -> APIRouter:
    """The routes."""
    router = APIRouter()
    listed = RunList(host.client, host.logs)
    creation = Creation(host, listed)
    callbacks = host.settings.host.callback_secret is not None
    ledgers = asyncio.Semaphore(LEDGERS)

    @router.post(
        "/runs",
        operation_id="createRun",
        summary="Create a run of a workflow",
        status_code=HTTPStatus.CREATED,
        responses={
            **openapi.answered(201, "The run is created, now or by the same request before.", _CREATED),
            **openapi.refused(400, 404, 409, 413, 415, 422),
        },
        openapi_extra={**openapi.body(_CREATE), "parameters": [records.PARAMETER, _DEDUP]},
        dependencies=[Depends(caller(host.authenticator, "runs:create"))],
    )
    async def create(request: Request) -> Response:
        principal = request.state.principal
        if FORCE_ENGINE in request.headers:
            raise HostError("force_engine_version_forbidden", f"{FORCE_ENGINE}: no key here is for tests: leave it out")
        dedup = header(request, scopes.HEADER)
        body = await read_body(request, most=body_limit(host.settings.limits))
        keyed = Keyed.of(
            header(request, records.HEADER), tenant=principal.tenant, operation="createRun", body=body, dedup=dedup
        )
        read = partial(bodies.read_create_run, tenant=principal.tenant, callbacks=callbacks)
        asked = await beside(body, read)
        enforced = scopes.asked(dedup, asked.scope_id)
        return (await creation.create(principal, asked, keyed, enforced=enforced)).response()

    @router.get(
        "/runs",
        operation_id="listRuns",
        summary="The runs of the tenant, newest first, without their inputs",
        responses={**openapi.answered(200, "A page of them.", _LIST), **openapi.refused(400)},
        openapi_extra={"parameters": [_LIMIT, _CURSOR, _WORKFLOW, _STATUS]},
        dependencies=[Depends(caller(host.authenticator, "runs:read"))],
    )
    async def list_runs(request: Request) -> Response:
        asked = Asked.read(request.query_params)
        return (await listed.page(request.state.principal.tenant, asked)).response()

    @router.get(
        "/runs/{runId}/effects",
        operation_id="getRunEffects",
        summary="The effects of a run, one record for each attempt",
        responses={**openapi.answered(200, "The ledger.", _EFFECTS), **openapi.refused(400, 404, 410)},
        dependencies=[Depends(caller(host.authenticator, "runs:read"))],
    )
    async def effects(request: Request) -> Response:
        run_id = run_of(request)
        async with ledgers:
            return Answer(HTTPStatus.OK, await _ledger(host, run_id)).response()

    return with_head(router)


async def _ledger(host: Host, run_id: BoundId) -> bytes:
    """The ledger of a run: JSON text, without anything that was sent or answered."""
    await history.standing(host.client, str(run_id))
    try:
        ledger = await runs.effect_ledger(host.client, str(run_id), tenant=run_id.tenant)
    except (runs.RunNotFoundError, runs.RunExpiredError, LostValueError):
        raise HostError(
            "run_expired", "a part of the run is past retention, or a large value that it sent is gone"
        ) from None
    return jsontext.encode({"runId": str(run_id), "effects": [attempt.facts for attempt in ledger]})
