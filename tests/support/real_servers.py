"""MCP servers that others wrote, as their users run them: a command for stdio, or a process with an address for HTTP.

Each says by a skip what is not installed. Nothing here speaks MCP.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from tests.support.ports import free_port
from tests.support.tools import LEGACY, NODE_SERVERS, SERVERS, Piece, node

__all__ = (
    "Command",
    "HttpServer",
    "everything",
    "everything_http",
    "fast",
    "fast_http",
    "fetch",
    "filesystem",
    "git",
    "git_repository",
    "kill",
    "legacy",
    "legacy_http",
    "memory",
    "page",
    "processes",
    "sqlite",
    "thinking",
    "time",
)

Command = tuple[str, ...]

START_LIMIT = 60.0
"""Seconds until a server takes connections. The slowest imports for three; the machine may do other work as well."""

POLL = 0.02
"""Seconds between two looks at whether it does."""

SCRIPTS = Path(__file__).with_name("servers")


def time() -> Command:
    """mcp-server-time."""
    return (_program(SERVERS, "mcp-server-time"), "--local-timezone", "UTC")


def git(repository: Path) -> Command:
    """mcp-server-git, over a repository."""
    return (_program(SERVERS, "mcp-server-git"), "--repository", str(repository))


def fetch() -> Command:
    """mcp-server-fetch, which may read pages of this machine and asks no robots.txt."""
    return (_program(SERVERS, "mcp-server-fetch"), "--ignore-robots-txt", "--allow-private-ips")


def fast() -> Command:
    """`tests/support/servers/fast.py`, over stdio."""
    return (_program(SERVERS, "python"), str(SCRIPTS / "fast.py"))


def legacy() -> Command:
    """`tests/support/servers/legacy.py`, over stdio."""
    return (_program(LEGACY, "python"), str(SCRIPTS / "legacy.py"))


def everything() -> Command:
    """@modelcontextprotocol/server-everything, over stdio."""
    return (*_script("server-everything"), "stdio")


def filesystem(folder: Path) -> Command:
    """@modelcontextprotocol/server-filesystem, which may read and write in a folder."""
    return (*_script("server-filesystem"), str(folder))


def memory() -> Command:
    """@modelcontextprotocol/server-memory, over stdio; it writes nothing until something is remembered."""
    return _script("server-memory")


def thinking() -> Command:
    """@modelcontextprotocol/server-sequential-thinking, over stdio."""
    return _script("server-sequential-thinking")


def sqlite(folder: Path) -> Command:
    """mcp-server-sqlite, which runs on the SDK before its second version only, over a database in a folder."""
    return (_program(LEGACY, "mcp-server-sqlite"), "--db-path", str(folder / "data.db"))


def git_repository(folder: Path) -> Path:
    """A repository with one commit, which holds the file `README` and is called "First"."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README").write_text("a file\n")
    identity = {
        f"GIT_{who}_{what}": "tests@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    environment = {**os.environ, **identity, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    for arguments in (("init", "--quiet"), ("add", "README"), ("commit", "--quiet", "--message", "First")):
        subprocess.run(["git", *arguments], cwd=folder, env=environment, check=True)
    return folder


@contextlib.asynccontextmanager
async def page(text: str) -> AsyncIterator[str]:
    """The address of a page of plain text."""
    body = text.encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head.encode() + body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}/"


class HttpServer:
    """A server of its own process on a port of its own, which stays the same from one start to the next."""

    def __init__(self, command: Sequence[str], *, port: int, path: str, environment: Mapping[str, str]) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}{path}"
        self._command = command
        self._environment = {**os.environ, **environment}
        self._process: asyncio.subprocess.Process | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `close`

    async def start(self) -> None:
        """Starts it and waits until it takes connections."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=self._output,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
            start_new_session=True,
        )
        async with asyncio.timeout(START_LIMIT):
            while not await _takes_connections(self.port):
                if self._process.returncode is not None:
                    raise RuntimeError(f"{self._command[0]} ended with {self._process.returncode}: {self.output}")
                await asyncio.sleep(POLL)

    async def kill(self) -> None:
        """Ends it at once, with all that it started, and every session with it."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()
        self._process = None

    async def restart(self) -> None:
        """What a crash and a supervisor do: the same address, no memory."""
        await self.kill()
        await self.start()

    @property
    def output(self) -> str:
        """What it has printed."""
        self._output.seek(0)
        return self._output.read().decode(errors="replace")

    async def close(self) -> None:
        await self.kill()
        self._output.close()


@contextlib.asynccontextmanager
async def fast_http() -> AsyncIterator[HttpServer]:
    """`tests/support/servers/fast.py`, over HTTP."""
    port = free_port()
    async with _running((*fast(), str(port)), port) as server:
        yield server


@contextlib.asynccontextmanager
async def legacy_http() -> AsyncIterator[HttpServer]:
    """`tests/support/servers/legacy.py`, over HTTP with sessions."""
    port = free_port()
    async with _running((*legacy(), str(port)), port) as server:
        yield server


@contextlib.asynccontextmanager
async def everything_http() -> AsyncIterator[HttpServer]:
    """@modelcontextprotocol/server-everything, over HTTP with sessions."""
    port = free_port()
    async with _running((*_script("server-everything"), "streamableHttp"), port, PORT=str(port)) as server:
        yield server


def processes(command: Command) -> list[psutil.Process]:
    """The children of this process that run a command, however they were started."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            arguments = child.cmdline()
            # A script of Python is run by its interpreter, which stands first.
            if arguments[-len(command) :] == list(command):
                found.append(child)
    return found


async def kill(command: Command) -> None:
    """Ends the one child of this process that runs a command, and returns when it is gone."""
    (process,) = processes(command)
    process.kill()
    async with asyncio.timeout(START_LIMIT):
        # At least once round the loop, or nobody in this process has heard of it.
        await asyncio.sleep(POLL)
        while process.is_running():  # noqa: ASYNC110 - it is not ours to await
            await asyncio.sleep(POLL)


@contextlib.asynccontextmanager
async def _running(command: Command, port: int, **environment: str) -> AsyncIterator[HttpServer]:
    server = HttpServer(command, port=port, path="/mcp", environment=environment)
    try:
        await server.start()
        yield server
    finally:
        await server.close()


def _program(piece: Piece, name: str) -> str:
    _need(piece)
    return str(piece.folder / "bin" / name)


def _script(package: str) -> Command:
    _need(NODE_SERVERS)
    index = NODE_SERVERS.folder / "node_modules/@modelcontextprotocol" / package / "dist/index.js"
    return (str(node()), str(index))


def _need(piece: Piece) -> None:
    if reason := piece.missing():
        pytest.skip(reason)


async def _takes_connections(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True
