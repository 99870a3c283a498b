"""Servers whose tools change while they are listed, and catalogs of them with a worker that keeps them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.service import RPCError

from openwop_mcp.catalog.names import catalog_id
from openwop_mcp.catalog.state import Catalog, Tool
from openwop_mcp.catalogs import Catalogs
from openwop_mcp.config import Settings
from tests.support.fake_server import FakeServer, Handler, Reply, Request, error_reply, modern
from tests.support.mcp_client import stream_reply
from tests.support.pack import SERVER, Pack, chain, pack_worker, settings_for
from tests.support.patience import PATIENCE

__all__ = ("Kept", "Shop", "keeping", "of", "tool")


def tool(name: str, description: str = "does it", **more: Any) -> dict[str, Any]:
    """A definition."""
    return {"name": name, "description": description, "inputSchema": {"type": "object"}} | more


@dataclass
class Shop:
    """A server's tools, as a test changes them.

    Attributes:
        tools: Its definitions.
        page_size: Tools on a page.
        ttl_ms: What its pages say they are good for.
        fault: Makes the reply in place of a page, while it is set.
        gate: Pages are held back while this is not set.
        lists: Requests for a page so far.
        listening: Set while someone is subscribed.
        subscribable: Whether it can be subscribed to.
    """

    tools: list[Any] = field(default_factory=lambda: [tool("one"), tool("two")])
    page_size: int = 100
    ttl_ms: int = 0
    fault: Callable[[Request], bytes | Reply] | None = None
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    lists: int = 0
    asked: asyncio.Condition = field(default_factory=asyncio.Condition)
    listening: asyncio.Event = field(default_factory=asyncio.Event)
    subscribable: bool = False

    def __post_init__(self) -> None:
        self.gate.set()
        self._telling: asyncio.Event = asyncio.Event()

    def page(self, cursor: str | None) -> bytes:
        """The exact bytes of a page."""
        start = int(cursor or 0)
        following = start + self.page_size
        more = {"nextCursor": str(following)} if following < len(self.tools) else {}
        page = {"resultType": "complete", "tools": self.tools[start:following], **more}
        # Spelled as no encoder of ours would do it.
        return json.dumps({**page, "ttlMs": self.ttl_ms, "cacheScope": "private"}, indent=1).encode()

    async def list(self, request: Request) -> bytes | Reply:
        self.lists += 1
        async with self.asked:
            self.asked.notify_all()
        await self.gate.wait()
        if self.fault is not None:
            return self.fault(request)
        return self.page(request.json["params"].get("cursor"))

    async def until_asked(self, times: int) -> None:
        """Wait until it was asked for so many pages."""
        async with self.asked:
            await asyncio.wait_for(self.asked.wait_for(lambda: self.lists >= times), PATIENCE)

    def tell(self) -> None:
        """Tell who is subscribed that the list has changed."""
        self._telling.set()

    def subscribe(self, request: Request) -> Reply:
        if not self.subscribable:
            return error_reply(request, -32601, "no such method", status=404)
        self.listening.set()
        acknowledged = _note(request, "subscriptions/acknowledged", notifications={"toolsListChanged": True})
        return stream_reply(acknowledged, self._telling, _note(request, "tools/list_changed"), stall="body")

    def handler(self) -> Handler:
        return modern({"tools/list": self.list, "subscriptions/listen": self.subscribe})


def _note(request: Request, method: str, **params: Any) -> bytes:
    meta = {"io.modelcontextprotocol/subscriptionId": request.json["id"]}
    message = {"jsonrpc": "2.0", "method": f"notifications/{method}", "params": {**params, "_meta": meta}}
    return b"data: %b\n\n" % json.dumps(message).encode()


@dataclass
class Kept:
    """A catalog of a server, kept by a worker in this process."""

    client: Client
    settings: Settings
    catalogs: Catalogs
    server: FakeServer
    shop: Shop
    tenant: str

    def worker(self) -> contextlib.AbstractAsyncContextManager[Pack]:
        """A worker that keeps it."""
        return pack_worker(self.client, self.settings, task_queue=self.settings.worker.task_queue)

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(catalog_id(self.tenant, SERVER))

    async def read(self) -> Catalog:
        found = await self.catalogs.read(self.tenant, SERVER)
        assert found is not None
        return found

    async def refresh(self, *, force: bool = True) -> Catalog:
        """Have it listed anew; the catalog after that."""
        assert await self.catalogs.refresh(self.tenant, SERVER, within=PATIENCE, force=force)
        return await self.read()

    async def fresh(self, *, after: float = 0) -> Catalog:
        """The catalog as a reader has it, so many seconds from now."""
        found = await self.catalogs.fresh(self.tenant, SERVER, now=time.time() + after)
        assert found is not None
        return found

    async def until(self, holds: Callable[[Catalog], bool]) -> Catalog:
        """Wait until it holds of the catalog, over all parts of its chain."""
        async with asyncio.timeout(PATIENCE):
            while True:
                async for event in self.handle.fetch_history_events(wait_new_event=True):
                    if event.HasField("workflow_task_completed_event_attributes") and holds(
                        catalog := await self.read()
                    ):
                        return catalog

    async def histories(self) -> list[WorkflowHistory]:
        return await chain(self.client, self.handle.id)


def of(catalog: Catalog, name: str) -> Tool:
    """A tool that is listed."""
    found = catalog.tool(name)
    assert found is not None
    return found


@contextlib.asynccontextmanager
async def keeping(
    client: Client, shop: Shop | None = None, *, handler: Handler | None = None, worker: bool = True, **settings: Any
) -> AsyncIterator[Kept]:
    """A server, mostly a worker, and the means to read its catalog, which ends with it: nobody asks for it in vain."""
    shop = shop or Shop()
    tenant, queue = f"t{uuid.uuid4().hex}", f"catalogs-{uuid.uuid4().hex}"
    own = {"tenant": tenant, "task_queue": queue, "heartbeat_timeout": 10, "shutdown_grace": 0.2}
    async with FakeServer(handler or shop.handler()) as server:
        given = settings_for(server.url, worker=own, **settings)
        catalogs = Catalogs(client, task_queue=queue, heartbeat=10)
        kept = Kept(client, given, catalogs, server, shop, tenant)
        async with kept.worker() if worker else contextlib.nullcontext():
            try:
                yield kept
            finally:
                shop.gate.set()
                with contextlib.suppress(RPCError):
                    await kept.handle.terminate()
