"""Where a client of OAuth learns whose tokens the host takes; nowhere, if it takes keys alone."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..context import Host
from ..protected_resource import ProtectedResource
from ..web import JSON, with_head

__all__ = ("routes",)


def routes(host: Host) -> APIRouter:
    """The route of the metadata document. It is OAuth's and no operation of OpenWOP, so that no document lists it."""
    router = APIRouter(include_in_schema=False)
    resource = ProtectedResource.of(host.settings)
    if resource is not None:
        metadata = resource.metadata

        @router.get(resource.path)
        async def resource_metadata() -> Response:
            return Response(metadata, media_type=JSON)

    return with_head(router)
