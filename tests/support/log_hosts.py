"""A host that serves the logs of runs and their ledgers, in this process or in one of its own.

Started as a module it takes the address of a Temporal and the folder of large values, prints where it listens, and
serves until it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import sys
from collections.abc import AsyncIterator, Callable

import httpx
from fastapi import FastAPI
from temporalio.client import Client

from host.logs import MAX_BYTES, RunLogs
from host.routes import reading, runs
from host.server import listening
from host.surface import Surface
from openwop_mcp.config import Settings
from openwop_mcp.storage import data_converter
from tests.support.hosts import bearer, host

__all__ = ("LogHost", "log_host", "log_host_process", "path_of")

SECONDS = 60.0
"""What a request may take in a test."""


def path_of(run_id: str) -> str:
    """The path of a run."""
    return f"/runs/{run_id.replace('/', '~2F')}"


@dataclasses.dataclass(frozen=True)
class LogHost:
    """A host that serves.

    Attributes:
        http: A client of it, with a key.
        logs: What it knows of runs.
        stop: Begins to end it.
    """

    http: httpx.AsyncClient
    logs: RunLogs
    stop: Callable[[], None]


@contextlib.asynccontextmanager
async def log_host(client: Client, *, max_bytes: int = MAX_BYTES) -> AsyncIterator[LogHost]:
    """A host in this process, on a socket."""
    stopping = asyncio.Event()
    logs = RunLogs(client, max_bytes=max_bytes, stopping=stopping)
    own = dataclasses.replace(host(client=client), logs=logs, stopping=stopping)
    app = FastAPI(openapi_url=None)
    app.include_router(runs.routes(own))
    app.include_router(reading.routes(own))
    app.add_middleware(Surface, beside=frozenset(), stopping=stopping)
    async with (
        listening(app, bind="127.0.0.1:0", stopping=stopping) as running,
        _http(running.address) as http,
    ):
        yield LogHost(http, logs, running.stop)


def _http(address: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=address,
        headers=bearer("acme-all"),
        timeout=SECONDS,
        limits=httpx.Limits(max_connections=500),
    )


@contextlib.asynccontextmanager
async def log_host_process(
    temporal: str, folder: str
) -> AsyncIterator[tuple[httpx.AsyncClient, asyncio.subprocess.Process]]:
    """A host in a process of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, temporal, folder, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        address = (await asyncio.wait_for(process.stdout.readline(), SECONDS)).decode().strip()
        async with _http(address) as http:
            yield http, process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _main(temporal: str, folder: str) -> None:
    settings = Settings.model_validate({"storage": {"folder": folder}})
    client = await Client.connect(temporal, data_converter=data_converter(settings))
    async with log_host(client) as running:
        sys.stdout.write(f"{running.http.base_url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    try:
        asyncio.run(_main(*sys.argv[1:]))
    finally:
        # A client process of the SDK otherwise sometimes hangs at its end.
        os._exit(0)
