"""The command line as a user has it: a process of its own, what it printed, and its exit status."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.patience import PATIENCE

__all__ = ("ROOT", "WORKER", "Done", "Serving", "cli", "on_terminal", "python", "serving", "until")

ROOT = Path(__file__).parents[2]
WORKER = str(ROOT / "worker.py")

LIMIT = 60.0
"""Seconds for a command; the longest waits ten for a worker that does not come."""

UNREAD = 2**26
"""Bytes of a process's log that nobody has read: more than any test makes it write."""


@dataclass(frozen=True)
class Done:
    """A command that has ended."""

    status: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        """Its one JSON value."""
        return json.loads(self.out)

    @property
    def text(self) -> str:
        """What it printed."""
        return self.out.decode()


def _environment(env: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("OPENWOP_MCP__")}
    # Several hosts of this machine must not want one port.
    return own | {"OPENWOP_MCP__HOST__BIND": "127.0.0.1:0"} | dict(env)


async def python(*arguments: str, cwd: Path | None = None, **env: str) -> Done:
    """Run a Python program to its end."""
    # Files, and no pipes: what a program of a few megabytes printed was once cut short by how this process read it.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=cwd,
            env=_environment(env),
        )
        async with asyncio.timeout(LIMIT):
            status = await process.wait()
        out.seek(0)
        err.seek(0)
        return Done(status, out.read(), err.read().decode())


async def cli(*arguments: str, cwd: Path | None = None, **env: str) -> Done:
    """Run a command of `worker.py` to its end; no fault of it may show as a traceback."""
    done = await python(WORKER, *arguments, cwd=cwd, **env)
    assert "Traceback" not in done.err, done.err
    return done


async def on_terminal(
    *arguments: str,
    said: Sequence[tuple[str, str | signal.Signals | Callable[[str], str]]] = (),
    cwd: Path | None = None,
    **env: str,
) -> tuple[int, bytes]:
    """Run a command on a terminal; its status and every byte that the terminal got.

    Args:
        arguments: The command.
        said: What is typed, or what makes that of all that was shown, or which signal comes, each once the terminal
            shows a text; the texts come in this order.
        cwd: Where it runs.
        env: Its environment, beside that of this process.
    """
    master, slave = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, WORKER, *arguments, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=_environment(env)
    )
    os.close(slave)

    def read() -> bytes:
        got, seen, left = b"", 0, list(said)
        # The last process that has the terminal closes it, which Linux tells as an error and others as an end.
        with contextlib.suppress(OSError):
            while piece := os.read(master, 65536):
                got += piece
                while left and (at := got.find(left[0][0].encode(), seen)) >= 0:
                    text, act = left.pop(0)
                    seen = at + len(text.encode())
                    if isinstance(act, signal.Signals):
                        process.send_signal(act)
                    else:
                        os.write(master, (act if isinstance(act, str) else act(got.decode())).encode())
        assert not left, f"{left[0][0]!r} was not shown: {got.decode(errors='replace')}"
        return got

    async with asyncio.timeout(LIMIT):
        shown = await asyncio.to_thread(read)
        status = await process.wait()
    os.close(master)
    return status, shown


@dataclass(frozen=True)
class Serving:
    """A process that has said that it is ready."""

    process: asyncio.subprocess.Process
    facts: dict[str, Any]

    async def end(self, *numbers: signal.Signals, within: float = PATIENCE) -> Done:
        """Send it signals, one right after the other, and wait for its end."""
        for number in numbers:
            self.process.send_signal(number)
        async with asyncio.timeout(within):
            out, err = await self.process.communicate()
        assert self.process.returncode is not None
        return Done(self.process.returncode, out, err.decode())


@contextlib.asynccontextmanager
async def serving(*arguments: str, ready: bool = True, **env: str) -> AsyncIterator[Serving]:
    """A command of `worker.py` that serves until it is told to stop."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        WORKER,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        # What it logs is taken as it comes: a pipe that is full would hold it.
        limit=UNREAD,
        env=_environment(env),
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(LIMIT):
            line = await process.stdout.readline() if ready else b"{}"
        yield Serving(process, json.loads(line))
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that sends no event."""
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)
