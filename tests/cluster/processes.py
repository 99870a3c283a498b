"""The processes of a cluster, all of one settings file: workers, hosts, and the server that they call.

Knows how they start, end and are killed. When that is to happen, and what is asked of them, is not known here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.counting_server import WORKER
from tests.cluster.plan import SERVER, TENANT, workflows
from tests.support.cli import ROOT
from tests.support.host_process import ACME, keys
from tests.support.servers.mastered import mastered

__all__ = ("Process", "Server", "counting", "hosts", "workers", "write_settings")

NAME = "CLUSTER_WORKER"
"""Variable with the name that a worker gives the server; for the pack this is a credential."""

START = 60.0
"""Seconds for a process to say that it is ready: on two processors that have all the others to do, it takes ten."""

STOP = 20.0
"""Seconds for a process to end that is told to: it gives its calls five, and its requests as many."""


def write_settings(folder: Path, temporal: str, port: int) -> Path:
    """Write the settings, and the workflows that they name.

    Args:
        folder: Where to.
        temporal: Address of Temporal.
        port: Of the server.
    """
    flows = folder / "flows"
    flows.mkdir()
    for name, definition in workflows().items():
        (flows / f"{name}.json").write_text(json.dumps(definition), encoding="utf-8")
    tables: dict[str, Mapping[str, Any]] = {
        "temporal": {"address": temporal},
        "host": {"workflows": [str(flows)]},
        "storage": {"folder": str(folder / "values")},
        "worker": {"tenant": TENANT, "heartbeat_timeout": 5},
        f"servers.{SERVER}": {"url": f"http://127.0.0.1:{port}/mcp", "network": "private", "honours_key": True},
        f"servers.{SERVER}.credential.header": {"name": WORKER},
        f"servers.{SERVER}.credential.header.value": {"env": NAME},
        f"servers.{SERVER}.tools.look": {"safety_tier": "read"},
    }
    text = "\n".join(
        f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        for table, values in tables.items()
    )
    file = folder / "openwop-mcp.toml"
    file.write_text(f"{text}\n{keys()}", encoding="utf-8")
    return file


@dataclass(eq=False)
class Process:
    """A process that can be killed, and started again in its place.

    Attributes:
        name: What it is called.
        command: Its command line.
        folder: Where what it says is kept.
        env: Its environment beside this process's.
        facts: What it told when it was ready.
        fell: How often it ended by itself.
    """

    name: str
    command: Sequence[str]
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    fell: int = 0
    _process: asyncio.subprocess.Process | None = None
    _watch: asyncio.Task[None] | None = None
    _doomed: bool = False

    async def start(self) -> None:
        """Start it, and wait until it is ready."""
        self._doomed = False
        own = {name: value for name, value in os.environ.items() if not name.startswith("OPENWOP_MCP__")}
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**own, **self.env},
            )
        assert self._process.stdout is not None
        self._watch = asyncio.create_task(self._look(self._process))
        async with asyncio.timeout(START):
            line = await self._process.stdout.readline()
        self.facts = json.loads(line or b"{}")

    async def _look(self, process: asyncio.subprocess.Process) -> None:
        await process.wait()
        self.fell += not self._doomed

    async def kill(self) -> None:
        """End it as a loss of power would."""
        await self._end("kill")

    async def stop(self) -> None:
        """Tell it to end; it has to in time."""
        await self._end("terminate")

    async def _end(self, how: str) -> None:
        if self._process is None or self._watch is None:
            return
        self._doomed = True
        with contextlib.suppress(ProcessLookupError):
            getattr(self._process, how)()
        async with asyncio.timeout(STOP):
            await self._watch

    @property
    def complaints(self) -> list[str]:
        """Lines of its log that tell of a fault of its own."""
        text = (self.folder / f"{self.name}.log").read_text(encoding="utf-8", errors="replace")
        return [line for line in text.splitlines() if '"level": "error"' in line or line.startswith("Traceback")]


def workers(folder: Path, settings: Path, count: int) -> list[Process]:
    """Workers that are yet to be started."""
    return [
        Process(name, ("worker.py", "run", "--config", str(settings)), folder, {NAME: name})
        for name in (f"worker-{number}" for number in range(1, count + 1))
    ]


def hosts(folder: Path, settings: Path, ports: Sequence[int]) -> list[Process]:
    """Hosts that are yet to be started, each with an address that it keeps."""
    return [
        Process(
            f"host-{number}",
            ("worker.py", "serve", "--config", str(settings)),
            folder,
            # Hosts have no credentials of servers; where they listen is all that they differ in.
            {"OPENWOP_MCP__HOST__BIND": f"127.0.0.1:{port}"},
        )
        for number, port in enumerate(ports, 1)
    ]


AUTHORIZATION = {"Authorization": f"Bearer {ACME}"}
"""What clients of the hosts identify themselves with."""


class Server:
    """The counting server as its master has it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def hold(self) -> None:
        """Keep answers back from now on."""
        self._say(b"hold\n")

    def release(self) -> None:
        """Let them go."""
        self._say(b"release\n")

    async def held(self) -> dict[str, int]:
        """How many are kept back, by the worker that asked."""
        self._say(b"held\n")
        assert self._process.stdout is not None
        held: dict[str, int] = json.loads(await self._process.stdout.readline())
        return held

    def _say(self, word: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(word)


@contextlib.asynccontextmanager
async def counting(port: int, book: Path) -> AsyncIterator[Server]:
    """The process with the server; its book is written when the context ends."""
    async with mastered("tests.cluster.counting_server", str(port), str(book)) as process:
        yield Server(process)
