from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import httpx
import pytest

from tests.support import real_servers

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tests", "version": "1"}},
}


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (lambda _: real_servers.time(), "mcp-time"),
        (lambda folder: real_servers.git(real_servers.git_repository(folder)), "mcp-git"),
        (lambda _: real_servers.fetch(), "mcp-fetch"),
        (lambda _: real_servers.fast(), "fast"),
        (lambda _: real_servers.legacy(), "legacy"),
        (lambda _: real_servers.everything(), "mcp-servers/everything"),
        (real_servers.filesystem, "secure-filesystem-server"),
    ],
    ids=["time", "git", "fetch", "fast", "legacy", "everything", "filesystem"],
)
async def test_a_command_starts_the_server_it_is_called_after(
    command: Callable[[Path], real_servers.Command], name: str, tmp_path: Path
) -> None:
    line = command(tmp_path)
    process = await asyncio.create_subprocess_exec(
        *line, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
    async with asyncio.timeout(real_servers.START_LIMIT):
        answer = json.loads(await process.stdout.readline())
        assert answer["result"]["serverInfo"]["name"] == name
        assert [found.pid for found in real_servers.processes(line)] == [process.pid]
        process.stdin.close()
        await process.wait()


@pytest.mark.parametrize(
    "server",
    [real_servers.fast_http, real_servers.legacy_http, real_servers.everything_http],
    ids=["fast", "legacy", "everything"],
)
async def test_an_http_server_has_the_same_address_and_no_memory_after_a_restart(
    server: Callable[[], AbstractAsyncContextManager[real_servers.HttpServer]],
) -> None:
    headers = {"Accept": "application/json, text/event-stream"}
    async with server() as running, httpx.AsyncClient(headers=headers) as http:
        answer = await http.post(running.url, json=INITIALIZE)
        assert answer.status_code == 200
        await running.restart()
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        session = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
        assert (await http.post(running.url, json=listing, headers=session)).status_code in {400, 404}
