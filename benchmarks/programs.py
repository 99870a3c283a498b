"""The programs that are measured, as child processes: started, asked, and looked at from outside. Knows no load."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import psutil

__all__ = ("ROOT", "Process", "Program", "program")

ROOT = Path(__file__).resolve().parent.parent

READY_WITHIN = 60.0
"""Seconds for a program to start on a busy machine."""

MAX_SAID = 2_000
"""Characters of its log that are told of a program that failed."""

STOP_WITHIN = 20.0
"""Seconds for a program to end by itself."""

ENDS_WITH_INPUT = frozenset({"benchmarks.worker"})
"""Programs that the end of their input ends; the others are told to by a signal."""

NOT_HANDED_ON = ("OPENWOP_MCP__", "OTEL_")
"""How the variables begin that would change what is measured by who measures it."""


class Process:
    """A process as the system accounts for it.

    Args:
        pid: Its id.
    """

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)

    def cpu(self) -> float:
        """Seconds of user and system CPU so far, in steps of 10 ms on Linux."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def rss(self) -> int:
        """Bytes of its resident set."""
        return int(self._process.memory_info().rss)


class Program(Process):
    """A child process that speaks JSON lines.

    Args:
        process: The process.
        log: What it writes to standard error.
    """

    def __init__(self, process: asyncio.subprocess.Process, log: IO[bytes]) -> None:
        super().__init__(process.pid)
        self._child = process
        self._log = log

    async def read(self) -> dict[str, Any]:
        """Read its next line."""
        assert self._child.stdout is not None
        line = await asyncio.wait_for(self._child.stdout.readline(), READY_WITHIN)
        if not line:
            status = await self._child.wait()
            self._log.seek(0)
            said = self._log.read().decode(errors="replace")[-MAX_SAID:]
            raise RuntimeError(f"a program of the benchmark ended with status {status}: {said}")
        value: dict[str, Any] = json.loads(line)
        return value

    async def ask(self) -> dict[str, Any]:
        """Have it answer a line with a line."""
        assert self._child.stdin is not None
        self._child.stdin.write(b"\n")
        return await self.read()


@asynccontextmanager
async def program(
    module: str, *arguments: str, environment: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[Program, dict[str, Any]]]:
    """Run `python -m module`; gives it and its first line. It gets the end of its input, and SIGTERM, to end.

    Args:
        module: The module.
        arguments: Its arguments.
        environment: Variables beside those of this process.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith(NOT_HANDED_ON)}
    # What it says belongs to no table; a file of it holds it up least.
    with TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            env=own | dict(environment or {}),
        )
        running = Program(process, log)
        try:
            yield running, await running.read()
        finally:
            if process.returncode is None:
                assert process.stdin is not None
                process.stdin.close()
                if module not in ENDS_WITH_INPUT:
                    process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), STOP_WITHIN)
                except TimeoutError:
                    process.kill()
                    await process.wait()
