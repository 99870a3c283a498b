"""What an operator runs, to be measured: Temporal, and `worker.py run` and `serve` with one settings file.

Owns that file and the processes, and starts runs on them. What is done with them is for the parts.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
from temporalio.client import Client, WorkflowHandle

from benchmarks.loads import OWNER, TENANT
from benchmarks.programs import Process, Program, program
from benchmarks.variants import SERVER
from commands.connection import connect
from commands.settings import options_of
from openwop_mcp.catalogs import Catalogs
from openwop_mcp.config import Settings, load
from openwop_mcp.embedded import embedded_temporal
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import parse
from openwop_mcp.runs.start import RunStart
from workflows.client import mint_run_id, start_run

__all__ = ("AT_ONCE", "KEY", "Stage", "at_once", "stage")

KEY = "a-key-of-the-benchmark"

AT_ONCE = 50
"""Runs that are under way at once where many are made: enough to keep two cores busy."""

LIMIT = aiohttp.ClientTimeout(total=300)
"""Seconds after which the benchmark fails, and does not hang."""

SETTINGS = """\
[temporal]
address = "{address}"
[host]
bind = "127.0.0.1:0"
workflows = ["{folder}"]
key_requests = 10000
key_rate = 1000000
[worker]
tenant = "{tenant}"
[storage]
folder = "{folder}/blobs"
[[keys]]
id = "bench"
sha256 = "{digest}"
tenant = "{tenant}"
subject = "bench"
scopes = ["*"]
[servers.{server}]
url = "{url}"
network = "private"
[servers.{server}.tools."*"]
safety_tier = "read"
"""


@dataclass(frozen=True)
class Stage:
    """A Temporal, an MCP server and settings for them.

    Attributes:
        client: Connected to Temporal, as the command line is.
        temporal: Temporal's process.
        url: The MCP server.
        settings: As the file has them.
        config: The file.
    """

    client: Client
    temporal: Process
    url: str
    settings: Settings
    config: Path

    @asynccontextmanager
    async def worker(
        self, module: str = "worker", environment: Mapping[str, str] | None = None
    ) -> AsyncIterator[Program]:
        """`worker.py run`."""
        async with program(module, "run", "--config", str(self.config), environment=environment) as (process, _):
            yield process

    @asynccontextmanager
    async def host(self) -> AsyncIterator[tuple[Program, aiohttp.ClientSession]]:
        """`worker.py serve`, and a client of it that may do everything."""
        async with program("worker", "serve", "--config", str(self.config)) as (process, facts):
            bearer = {"Authorization": f"Bearer {KEY}"}
            # The client is to cost little, since it has the same cores, and to have as many connections as it likes.
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(
                facts["host"], headers=bearer, connector=connector, timeout=LIMIT, raise_for_status=True
            ) as http:
                yield process, http

    async def start(self, definition: bytes, inputs: bytes = b"{}") -> WorkflowHandle[Any, Any]:
        """Start a run."""
        parsed = parse(definition, source="benchmark", node_types=REGISTRY)
        start = RunStart(mint_run_id(TENANT), parsed.raw, OWNER, options=options_of(self.settings))
        queue = self.settings.worker.task_queue
        return await start_run(self.client, start, parsed, inputs, task_queue=queue)

    async def run(self, definition: bytes) -> str:
        """Run a definition to its end; gives the run's id."""
        handle = await self.start(definition)
        await handle.result()
        return handle.id

    def catalogs(self) -> Catalogs:
        """The catalogs, as a host reads them."""
        own = self.settings.worker
        return Catalogs(self.client, task_queue=own.task_queue, heartbeat=own.heartbeat_timeout)

    async def offer(self, **facts: int) -> None:
        """Tell the MCP server what to offer, where it is `benchmarks.offering`."""
        await self._ask("/offer", facts)

    async def taken(self) -> int:
        """How often anything was sent to that server as to a collector."""
        return int(await self._ask("/taken", {}))

    async def _ask(self, path: str, facts: Mapping[str, int]) -> bytes:
        url = self.url.removesuffix("/mcp") + path
        async with aiohttp.ClientSession(raise_for_status=True) as http, http.get(url, params=facts) as answer:
            return await answer.read()


@asynccontextmanager
async def stage(server: str = "benchmarks.offering", flows: Sequence[bytes] = ()) -> AsyncIterator[Stage]:
    """Everything but the processes that are measured.

    Args:
        server: The module of the MCP server.
        flows: Definitions that the host offers.
    """
    with TemporaryDirectory(prefix="openwop-mcp-bench-") as folder:
        async with embedded_temporal() as temporal, program(server) as (_, told):
            config = _written(Path(folder), temporal.address, told["url"], flows)
            settings = load(str(config), environ={})
            yield Stage(await connect(settings), Process(temporal.process.pid), told["url"], settings, config)


def _written(folder: Path, address: str, url: str, flows: Sequence[bytes]) -> Path:
    """Write the files; gives that of the settings."""
    for flow in flows:
        (folder / f"{json.loads(flow)['id']}.json").write_bytes(flow)
    config = folder / "openwop-mcp.toml"
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    text = SETTINGS.format(address=address, digest=digest, folder=folder, server=SERVER, tenant=TENANT, url=url)
    config.write_text(text, encoding="utf-8")
    return config


async def at_once(coroutines: Sequence[Any], limit: int = AT_ONCE) -> list[Any]:
    """Await all of them, so many at a time; their results in order."""
    slots = asyncio.Semaphore(limit)

    async def one(coroutine: Any) -> Any:
        async with slots:
            return await coroutine

    return list(await asyncio.gather(*map(one, coroutines)))
