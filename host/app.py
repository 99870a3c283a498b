"""The application: routes, what stands around all of them, and the document that says what works. Decides nothing."""

from __future__ import annotations

import importlib.metadata

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from openwop_mcp.protocol.revisions import COMPARED

from . import catalog, discovery, listing
from .context import Host
from .limiting import KeyLimits, Limited
from .protected_resource import ProtectedResource
from .routes import control, interrupts, manifest, probes, reading, resource_metadata, runs, tools
from .surface import Surface, raised_on
from .tokens import ALGORITHMS
from .tracing import Traced
from .web import body_limit

__all__ = ("create_app",)

DISTRIBUTION = "openwop-mcp-pack"
"""Whose version the documents tell."""

LARGEST_BODIES = 4
"""Of the largest bodies so many of one key are held at a time: no more than a host has room for, and of those that are
common it is tens of thousands."""


def create_app(host: Host) -> FastAPI:
    """Put the application together."""
    version = importlib.metadata.version(DISTRIBUTION)
    app = FastAPI(
        title="openwop-mcp-pack",
        summary="Durable runs of workflows whose nodes call MCP servers (OpenWOP v2)",
        version=version,
        # The document is a route of ours, and a page that shows it would load its scripts from elsewhere.
        openapi_url=None,
        redirect_slashes=False,
        # FastAPI's spans hold paths, some of which are credentials.
        telemetry={"tracing": False, "metrics": False, "logs": False},
        exception_handlers={HTTPException: raised_on, RequestValidationError: raised_on},
    )
    for module in (runs, reading, control, interrupts, tools, resource_metadata, probes):
        app.include_router(module.routes(host))
    app.include_router(manifest.routes(host, _document(host, version)))
    requests = host.settings.host
    limits = KeyLimits(
        at_once=requests.key_requests,
        per_second=requests.key_rate,
        body_bytes=LARGEST_BODIES * body_limit(host.settings.limits),
    )
    app.add_middleware(Limited, limits=limits)
    resource = ProtectedResource.of(host.settings)
    app.add_middleware(Surface, beside=probes.PATHS, resource=resource, stopping=host.stopping)
    # Around all of it, so that a refusal belongs to its trace, and has its status there.
    app.add_middleware(Traced, beside=probes.PATHS)
    return app


def _document(host: Host, version: str) -> discovery.Document:
    requests = host.settings.host
    families: dict[str, discovery.Facets] = {
        "auth": discovery.auth_facets(host.settings.issuers),
        "eventLog": {},
        "idempotency": {},
        "interrupt": discovery.interrupt_facets(ALGORITHMS, callbacks=requests.callback_secret is not None),
        "limits": discovery.limits_facets(host.options),
        "mcp": discovery.mcp_facets(COMPARED, requests.mrtr_max_rounds),
        "runList": discovery.run_list_facets(max_page_size=listing.MAX_PAGE_SIZE, filters=listing.FILTERS),
        "toolCatalog": discovery.tool_catalog_facets(catalog.SOURCES),
    }
    return discovery.document(version=version, families=families, fixtures=host.workflows.fixtures)
