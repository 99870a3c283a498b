"""The tools that the caller may use: all of them, and one by its id."""

from __future__ import annotations

from urllib.parse import unquote

from fastapi import APIRouter, Depends, Request, Response

from openwop_mcp.catalog.shapes import COMPACT_DESCRIPTOR, DESCRIPTOR

from .. import etags, openapi
from ..catalog import ToolList, View
from ..context import Host
from ..errors import HostError, invalid
from ..principals import Principal
from ..web import caller, header, represented, with_head

__all__ = ("routes",)

SOURCES = ("node-pack", "workflow", "mcp", "connector", "host-extension")
"""Where OpenWOP lets tools come from, whatever of it is here."""

_TOOL = {"anyOf": [DESCRIPTOR, COMPACT_DESCRIPTOR]}
_LIST = {
    "oneOf": [
        {"type": "array", "items": DESCRIPTOR},
        openapi.schema_of({"tools": {"type": "array", "items": COMPACT_DESCRIPTOR}}),
    ]
}

_VIEW = openapi.parameter(
    "view", "query", {"type": "string"}, "compact leaves out what a model has no use for; anything else shows all."
)
_SOURCE = openapi.parameter(
    "source", "query", {"type": "string", "enum": list(SOURCES)}, "Where the tools come from; all if it is left out."
)
_CACHE_CONTROL = openapi.parameter(
    "Cache-Control", "header", {"type": "string"}, "no-cache asks the servers anew, each once a second at most."
)


def routes(host: Host) -> APIRouter:
    """The routes."""
    router = APIRouter(dependencies=[Depends(caller(host.authenticator))])

    @router.get(
        "/tools",
        operation_id="listTools",
        summary="The tools that the caller can have called",
        responses={
            **openapi.answered(200, "The tools, by their ids; in the compact view the member tools holds them.", _LIST),
            **openapi.answered(304, "The client has this list."),
            **openapi.refused(400),
        },
        openapi_extra={"parameters": [_VIEW, _SOURCE, _CACHE_CONTROL, openapi.IF_NONE_MATCH]},
    )
    async def listed(request: Request) -> Response:
        source, view = _source(request.query_params.getlist("source")), _view(request)
        if _calls(request):
            tools = await host.tools.listed(_tenant(request), view, source, anew=_anew(request))
        else:
            tools = ToolList((), view)
        return represented(request, tools.etag, tools.parts)

    @router.get(
        "/tools/{toolId}",
        operation_id="getTool",
        summary="A tool that the caller can have called",
        responses={
            **openapi.answered(200, "The tool.", _TOOL),
            **openapi.answered(304, "The client has this."),
            **openapi.refused(404),
        },
        openapi_extra={"parameters": [_VIEW, _CACHE_CONTROL, openapi.IF_NONE_MATCH]},
    )
    async def tool(request: Request) -> Response:
        identity = unquote(request.path_params["toolId"])
        descriptor = None
        if _calls(request):
            descriptor = await host.tools.find(_tenant(request), identity, _view(request), anew=_anew(request))
        if descriptor is None:
            raise HostError("not_found", "toolId: there is no such tool that you may call")
        return represented(request, etags.of_bytes(descriptor), [descriptor])

    return with_head(router)


def _calls(request: Request) -> bool:
    """Whether the caller can have a tool called at all, which a run does."""
    principal: Principal = request.state.principal
    return principal.may("runs:create")


def _tenant(request: Request) -> str:
    tenant: str = request.state.principal.tenant
    return tenant


def _view(request: Request) -> View:
    return "compact" if request.query_params.getlist("view") == ["compact"] else "standard"


def _source(asked: list[str]) -> str | None:
    if not asked:
        return None
    if len(asked) > 1 or asked[0] not in SOURCES:
        raise invalid("source", f"write one of {', '.join(SOURCES)}, once")
    return asked[0]


def _anew(request: Request) -> bool:
    directives = (header(request, "Cache-Control") or "").split(",")
    return any(directive.strip().lower() == "no-cache" for directive in directives)
