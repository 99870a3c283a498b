"""What the host says of itself: the discovery document, the OpenAPI document, and the workflows by their ids."""

from __future__ import annotations

from urllib.parse import unquote

from fastapi import APIRouter, Depends, Request, Response

from openwop_mcp import jsontext

from .. import etags, openapi
from ..context import Host
from ..discovery import Document
from ..web import caller, represented, with_head

__all__ = ("routes",)


def routes(host: Host, discovery: Document) -> APIRouter:
    """The routes.

    Args:
        host: What the routes share.
        discovery: The discovery document.
    """
    router = APIRouter()
    described: Document | None = None

    @router.get(
        "/.well-known/openwop",
        operation_id="getCapabilities",
        summary="What this host offers",
        responses={
            **openapi.answered(200, "The discovery document.", {"type": "object"}),
            **openapi.answered(304, "The client has this document."),
        },
        openapi_extra={**openapi.OPEN, "parameters": [openapi.IF_NONE_MATCH]},
    )
    async def capabilities(request: Request) -> Response:
        return represented(request, discovery.etag, [discovery.body])

    @router.get(
        "/openapi.json",
        operation_id="getOpenApiSpec",
        summary="This document",
        responses={
            **openapi.answered(200, "The OpenAPI document.", {"type": "object"}),
            **openapi.answered(304, "The client has this document."),
        },
        openapi_extra={**openapi.OPEN, "parameters": [openapi.IF_NONE_MATCH]},
    )
    async def spec(request: Request) -> Response:
        nonlocal described
        if described is None:
            text = jsontext.encode(openapi.document(request.app))
            described = Document(text, etags.of_bytes(text))
        return represented(request, described.etag, [described.body])

    @router.get(
        "/workflows/{workflowId}",
        operation_id="getWorkflow",
        summary="A workflow's definition, byte for byte as its file has it",
        responses={
            **openapi.answered(200, "The definition.", {"type": "object"}),
            **openapi.answered(304, "The client has this definition."),
            **openapi.refused(404),
        },
        openapi_extra={"parameters": [openapi.IF_NONE_MATCH]},
        dependencies=[Depends(caller(host.authenticator, "manifest:read"))],
    )
    async def workflow(request: Request) -> Response:
        found = host.workflows.workflow(unquote(request.path_params["workflowId"]))
        return represented(request, found.etag, [found.text])

    return with_head(router)
