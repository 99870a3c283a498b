"""How a catalog stands in Temporal: the names of what it consists of, and what its workflow is started with. Pure.

All of it is persisted, so that nothing here is ever renamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from openwop_mcp import jsontext

__all__ = (
    "APPROVE",
    "CATALOG_WORKFLOW",
    "CHANGED",
    "CLASSIFY",
    "PUBLISH",
    "REFRESH",
    "CatalogStart",
    "catalog_queue",
    "decode_pages",
    "encode_pages",
)

CATALOG_WORKFLOW = "CatalogWorkflow"
"""Type of the workflow that keeps what a server offers to a tenant."""

PUBLISH = "catalog.publish"
"""Type of the activity that lists some pages."""

REFRESH = "refresh"
"""The Update that has the server listed: ``{"force": bool}`` gives ``{"listedAt": ms or null, "failure"?: …}``."""

CLASSIFY = "classify"
"""The Update that says what kind of tools some definitions are."""

APPROVE = "approve"
"""The Update that accepts definitions which changed."""

CHANGED = "changed"
"""The signal that a server has told of a change."""


@dataclass(frozen=True, slots=True)
class CatalogStart:
    """The first payload of the workflow. The second is :func:`encode_pages` of the pages that it carries on.

    Attributes:
        tenant: Whose catalog it is.
        server_id: The server, by its id in the settings.
        heartbeat: Seconds without a beat after which a worker counts as lost.
        state: JSON text of the state that is carried on from the run before; None for a new catalog.
    """

    tenant: str
    server_id: str
    heartbeat: float
    state: bytes | None = None

    def encode(self) -> bytes:
        """JSON text, the state in it byte for byte."""
        members = {"tenant": self.tenant, "serverId": self.server_id, "heartbeat": self.heartbeat}
        state = [] if self.state is None else [("state", self.state)]
        return jsontext.build([*((name, jsontext.encode(value)) for name, value in members.items()), *state])

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read what :meth:`encode` wrote; unknown members are ignored, as they come from a newer version."""
        found = dict(jsontext.members(data))
        tenant, server_id, heartbeat = (jsontext.decode(found[name]) for name in ("tenant", "serverId", "heartbeat"))
        return cls(tenant, server_id, float(heartbeat), found.get("state"))


def encode_pages(pages: Sequence[bytes]) -> bytes:
    """JSON text of an array of pages, each byte for byte. One payload of all: storage takes none that is small."""
    return b"[" + b",".join(pages) + b"]"


def decode_pages(data: bytes) -> list[bytes]:
    """Read what :func:`encode_pages` wrote."""
    return jsontext.elements(data)


def catalog_queue(task_queue: str) -> str:
    """The queue of catalogs beside a task queue: a server that is slow to list its tools must not hold up calls."""
    return f"{task_queue}-catalog"
