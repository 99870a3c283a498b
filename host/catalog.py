"""The tools that a tenant may call, as descriptors: what its MCP servers list, the node types, and the workflows.

Decides which tools stand there, and keeps what was derived for as long as a server's catalog stays the same. Knows no
request.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

from openwop_mcp.catalog.descriptor import compact_descriptor, mcp_descriptor, node_descriptor, workflow_descriptor
from openwop_mcp.catalog.names import node_tool_id, read_tool_id, tool_id, workflow_tool_id
from openwop_mcp.catalog.policy import effective, refusal
from openwop_mcp.catalog.state import Catalog, Tool
from openwop_mcp.catalogs import Catalogs
from openwop_mcp.config import Server, Settings
from openwop_mcp.encryption import EncryptionError
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.storage import LostValueError, StorageError

from . import etags
from .workflows import Workflows, named_servers

__all__ = ("SOURCES", "Shelf", "ToolCatalog", "ToolList", "View")

logger = logging.getLogger("openwop_mcp.host")

View = Literal["standard", "compact"]
"""How a tool is shown."""

SOURCES = ("mcp", "node-pack", "workflow")
"""Where tools of this host come from."""

WAIT = 2.0
"""Seconds that a request waits for servers at most: who asks for tools is about to use them, and most stand there."""

FORCED_EVERY_MS = 1000
"""Milliseconds between two questions to a server: whoever asks sooner waits, so that no client makes this host hammer
it."""

_FRAMES: Mapping[View, tuple[bytes, bytes]] = {"standard": (b"[", b"]"), "compact": (b'{"tools":[', b"]}")}
"""What stands around the tools of a list."""


@dataclass(frozen=True, slots=True)
class Shelf:
    """Tools whose ids begin alike, so that no other one's stands among them in a sorted list.

    Attributes:
        text: The descriptors in the order of their ids, with commas between them.
        places: By id, where in the text its descriptor stands.
        digest: Of the text.
    """

    text: bytes
    places: Mapping[str, slice]
    digest: str

    @classmethod
    def of(cls, descriptors: Mapping[str, bytes]) -> Shelf:
        """Put descriptors on a shelf, by id."""
        places: dict[str, slice] = {}
        end = -1
        for identity in sorted(descriptors):
            start = end + 1
            end = start + len(descriptors[identity])
            places[identity] = slice(start, end)
        text = b",".join(descriptors[identity] for identity in places)
        return cls(text, places, etags.of_bytes(text))

    def get(self, identity: str) -> bytes | None:
        """The descriptor of a tool; None if it is not here."""
        place = self.places.get(identity)
        return None if place is None else self.text[place]

    def compact(self) -> Shelf:
        """The same tools in the compact view."""
        return Shelf.of({identity: compact_descriptor(self.text[place]) for identity, place in self.places.items()})


EMPTY = Shelf.of({})
"""Where there are no tools."""


class ToolList:
    """A list of tools as it is sent.

    Args:
        shelves: What stands on it, in any order.
        view: How its tools are shown.

    Attributes:
        parts: JSON text in pieces, which all lists share.
        etag: Strong, of the whole text.
    """

    def __init__(self, shelves: Iterable[Shelf], view: View) -> None:
        head, tail = _FRAMES[view]
        filled = sorted((shelf for shelf in shelves if shelf.places), key=lambda shelf: next(iter(shelf.places)))
        self.parts: list[bytes] = [head]
        for shelf in filled:
            self.parts += (b",", shelf.text) if len(self.parts) > 1 else (shelf.text,)
        self.parts.append(tail)
        # The digests tell the text apart as well as its own would, which for 10,000 tools takes longer than the list.
        self.etag = etags.of_bytes(b" ".join([head, *(shelf.digest.encode() for shelf in filled)]))


class ToolCatalog:
    """The tools of a host.

    Args:
        settings: Which servers there are, who may use them, and what is said of their tools.
        workflows: The workflows of which runs can be had.
        catalogs: What the servers list.
    """

    def __init__(self, settings: Settings, workflows: Workflows, catalogs: Catalogs) -> None:
        self._settings = settings
        self._catalogs = catalogs
        self._workflows = workflows
        self._nodes = _Views(_nodes)
        # By the servers that a tenant may not use: most tenants see the same ones.
        self._runnable: dict[frozenset[str], _Views] = {}
        self._derived: WeakKeyDictionary[Catalog, _Derived] = WeakKeyDictionary()

    async def listed(self, tenant: str, view: View, source: str | None = None, *, anew: bool = False) -> ToolList:
        """The tools that a tenant may call, sorted by id.

        A server that does not answer in time stands there with what it listed last.

        Args:
            tenant: The tenant.
            view: How they are shown.
            source: Where they are to come from; None for all.
            anew: Ask the servers, however new their lists are.

        Raises:
            RPCError: Temporal does not answer.
        """
        shelves = [views.shelf(view) for name, views in self._own(tenant).items() if source in {None, name}]
        if source in {None, "mcp"}:
            shelves += [self._listed(tenant, server_id, view, anew=anew) for server_id in self._settings.servers]
        return ToolList(await asyncio.gather(*shelves), view)

    async def find(self, tenant: str, identity: str, view: View, *, anew: bool = False) -> bytes | None:
        """The descriptor of a tool; None if there is none that the tenant may call.

        Args:
            tenant: The tenant.
            identity: The tool's id.
            view: How it is shown.
            anew: Ask its server, however new its list is.

        Raises:
            RPCError: Temporal does not answer.
            StorageError: A large value cannot be had now.
        """
        named = read_tool_id(identity)
        if named is None:
            found = [(await views.shelf(view)).get(identity) for views in self._own(tenant).values()]
            return next((descriptor for descriptor in found if descriptor is not None), None)
        server_id, name = named
        server = self._settings.server(server_id, tenant)
        catalog = None if server is None else await self._catalog(tenant, server_id, anew=anew)
        tool = None if catalog is None else catalog.tool(name)
        if server is None or tool is None:
            return None
        return await asyncio.to_thread(_described, tool, server_id, server, view)

    def _own(self, tenant: str) -> dict[str, _Views]:
        """The tools that are this host's own, by their source."""
        servers = self._settings.servers
        denied = frozenset(one for one in servers if self._settings.server(one, tenant) is None)
        if denied not in self._runnable:
            self._runnable[denied] = _Views(lambda: _runnable(self._workflows, denied))
        return {"node-pack": self._nodes, "workflow": self._runnable[denied]}

    async def _listed(self, tenant: str, server_id: str, view: View, *, anew: bool) -> Shelf:
        """What a server offers to a tenant, which is nothing where the tenant may not use it."""
        server = self._settings.server(server_id, tenant)
        try:
            if server is None or (catalog := await self._catalog(tenant, server_id, anew=anew)) is None:
                return EMPTY
        except (StorageError, EncryptionError) as error:
            # It may stay away, and would keep its tenant from all other tools.
            logger.warning("the tools of server '%s' are left out of a list: %s", server_id, error)
            return EMPTY
        return await self._shelf(catalog, server_id, server, view)

    async def _catalog(self, tenant: str, server_id: str, *, anew: bool) -> Catalog | None:
        try:
            if anew:
                return await self._anew(tenant, server_id)
            return await self._catalogs.fresh(tenant, server_id, now=time.time())
        except LostValueError as error:
            # Nobody knows what its tools may do, and until somebody does they are not called.
            logger.warning("the tools of server '%s' are left out: %s", server_id, error)
            return None

    async def _anew(self, tenant: str, server_id: str) -> Catalog | None:
        """The catalog with a list that the server was asked for after this was."""
        clock = asyncio.get_running_loop().time
        asked_at, until = time.time() * 1000, clock() + WAIT
        catalog = await self._catalogs.read(tenant, server_id)
        if catalog is not None and (pause := _pause(catalog, asked_at)) > 0:
            await asyncio.sleep(pause)
            catalog = await self._catalogs.read(tenant, server_id)
        if catalog is None or not any(asked_at <= at <= time.time() * 1000 for at in _asked_at(catalog)):
            await self._catalogs.refresh(tenant, server_id, within=until - clock(), force=True)
            catalog = await self._catalogs.read(tenant, server_id)
        return catalog

    async def _shelf(self, catalog: Catalog, server_id: str, server: Server, view: View) -> Shelf:
        derived = self._derived.get(catalog)
        if derived is None or derived.version != catalog.version:
            # Taken at once: what follows has a thread of its own, and the catalog may go on meanwhile.
            tools = [tool for name in catalog.names() if (tool := catalog.tool(name)) is not None]
            views = _Views(lambda: _callable(tools, server_id, server))
            derived = self._derived[catalog] = _Derived(catalog.version, views)
        return await derived.views.shelf(view)


class _Views:
    """Tools in each view, derived when they are first asked for, and once for all who ask.

    Args:
        derive: Gives the descriptors, by id. It is called in a thread.
    """

    def __init__(self, derive: Callable[[], Mapping[str, bytes]]) -> None:
        self._derive: Callable[[], Mapping[str, bytes]] | None = derive
        self._shelves: dict[View, Shelf] = {}
        self._deriving = asyncio.Lock()

    async def shelf(self, view: View) -> Shelf:
        """The tools in a view."""
        if (there := self._shelves.get(view)) is not None:
            return there
        async with self._deriving:
            if self._derive is not None:
                self._shelves["standard"] = Shelf.of(await asyncio.to_thread(self._derive))
                # What it was derived from is as large again.
                self._derive = None
            if view not in self._shelves:
                self._shelves[view] = await asyncio.to_thread(self._shelves["standard"].compact)
            return self._shelves[view]


@dataclass(frozen=True, slots=True)
class _Derived:
    """What was derived of a catalog, and of which state of it."""

    version: int
    views: _Views


def _nodes() -> dict[str, bytes]:
    return {node_tool_id(type_id): node_descriptor(node_type) for type_id, node_type in REGISTRY.items()}


def _runnable(workflows: Workflows, denied: AbstractSet[str]) -> dict[str, bytes]:
    """The workflows that can be run, but for those that name a server which is denied."""
    return {
        workflow_tool_id(identity): workflow_descriptor(definition)
        for identity in workflows.ids()
        if (definition := workflows.workflow(identity).definition) is not None
        and denied.isdisjoint(server_id for *_, server_id in named_servers(definition))
    }


def _callable(tools: Iterable[Tool], server_id: str, server: Server) -> dict[str, bytes]:
    return {
        tool_id(server_id, tool.name): descriptor
        for tool in tools
        if (descriptor := _described(tool, server_id, server)) is not None
    }


def _described(tool: Tool, server_id: str, server: Server, view: View = "standard") -> bytes | None:
    """A tool's descriptor; None if a call of it would be refused."""
    policy = effective(server, tool.name, tool.standing)
    if refusal(policy, tool.standing) is not None:
        return None
    descriptor = mcp_descriptor(server_id, server, tool.definition, policy)
    return compact_descriptor(descriptor) if view == "compact" else descriptor


def _asked_at(catalog: Catalog) -> list[int]:
    """When the server was last asked for its list, where it gave one and where it failed."""
    times = (catalog.listed_at, None if catalog.failure is None else catalog.failure.at)
    return [at for at in times if at is not None]


def _pause(catalog: Catalog, now_ms: float) -> float:
    """Seconds until the server may be asked again."""
    # A time to come is of a clock that differs, and says nothing.
    return max((FORCED_EVERY_MS - abs(now_ms - at) for at in _asked_at(catalog)), default=0.0) / 1000
