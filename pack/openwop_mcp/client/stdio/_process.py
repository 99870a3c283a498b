"""A server's process from its start to its end, with its pipes and its group. Does not read what goes through them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Final, cast

from openwop_mcp.client._wire import StaleTermsError

__all__ = ("INHERITED", "LAST_WORDS", "PATIENCE", "Process", "environment")

INHERITED: Final = re.compile(
    "PATH|HOME|USER|LOGNAME|SHELL|TERM|LANG|LANGUAGE|TZ|TZDIR|TMPDIR|TEMP|TMP"
    "|LC_(ALL|ADDRESS|COLLATE|CTYPE|IDENTIFICATION|MEASUREMENT|MESSAGES|MONETARY|NAME|NUMERIC|PAPER|TELEPHONE|TIME)"
    "|XDG_(CACHE|CONFIG|DATA|STATE)_HOME|XDG_(CONFIG|DATA)_DIRS|XDG_RUNTIME_DIR"
    "|SSL_CERT_FILE|SSL_CERT_DIR|NODE_EXTRA_CA_CERTS|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)
"""Variables of the worker that its servers get: where programs, files and certificates are, who runs them, language and
time. Each by its whole name, since whoever names a secret may begin its name with LC_ or XDG_. None of them holds one;
the address of a proxy can, so an operator who needs that gives it to the server."""

LAST_WORDS = 0.5
"""Seconds for what is still in the pipes, and for the exit status, after the first sign that a process is ending. More
would only help where a grandchild holds the pipes, which it may do for ever."""

PATIENCE = 2.0
"""Seconds that a server is given after its input was closed, and again after SIGTERM, and after SIGKILL for the kernel.
The worker must be gone ten seconds after its own SIGTERM."""

_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")
_SIGNALS = {one.value: one.name for one in signal.Signals}


class _Pipe(asyncio.Protocol):
    """One of the three pipes: lost when either side closed it, writable unless the server leaves too much unread."""

    def __init__(self, feed: Callable[[bytes], None]) -> None:
        self._feed = feed
        self.lost: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self.writable = asyncio.Event()
        self.writable.set()

    def __call__(self) -> _Pipe:
        return self

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Each of them is the one or the other, and is asked for nothing that it has not.
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._feed(data)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.lost.set_result(None)


class Process:
    """A process with a session of its own, so that signals of the worker's terminal do not reach it, and no shell.

    The event loops' own subprocesses differ: uvloop's have sockets for pipes and hold each of them twice, so that a
    server that closes one is not noticed. What both do alike is read and write pipes.

    What it writes to its standard output and its standard error goes to ``on_output`` and ``on_error``.
    """

    def __init__(self, on_output: Callable[[bytes], None], on_error: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.started = self._loop.time()
        self._stdin, self._stdout, self._stderr = _Pipe(lambda _: None), _Pipe(on_output), _Pipe(on_error)
        self._popen: subprocess.Popen[bytes] | None = None
        self._status: asyncio.Future[int | None] = self._loop.create_future()
        self._stopped: asyncio.Future[int | None] = self._loop.create_future()
        self._signs = (self._stopped, self._status, self._stdin.lost, self._stdout.lost)

    @property
    def accepting(self) -> bool:
        """Whether messages may be written; never again once they may not."""
        return not any(sign.done() for sign in self._signs)

    @property
    def pid(self) -> int:
        """Its id, and that of its group and session."""
        assert self._popen is not None
        return self._popen.pid

    async def start(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        """Start it.

        Raises:
            OSError: It cannot be started.
            ValueError: The command holds what no command can.
        """
        self._popen = popen = subprocess.Popen(  # noqa: ASYNC220, S603 - takes a millisecond; the operator's command
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )
        read, write = self._loop.connect_read_pipe, self._loop.connect_write_pipe
        files = [cast("IO[bytes]", file) for file in (popen.stdout, popen.stderr, popen.stdin)]
        connected: list[asyncio.WriteTransport] = []
        try:
            for connect, pipe in ((read, self._stdout), (read, self._stderr), (write, self._stdin)):
                await connect(pipe, files.pop(0))
                connected.append(pipe.transport)
        except BaseException:
            self._signal(signal.SIGKILL)
            # The one under way was closed by the loop; to close it again could hit a descriptor of somebody else.
            held: Sequence[IO[bytes] | asyncio.WriteTransport] = (*connected, *files)
            for one in held:
                one.close()
            popen.wait()
            raise
        threading.Thread(target=self._wait, args=(popen,), name=f"wait for {popen.pid}", daemon=True).start()

    async def may_write(self) -> None:
        """Wait while the server does not read. What follows without a pause is written as one piece.

        Raises:
            StaleTermsError: The process is ending.
        """
        while self.accepting and not self._stdin.writable.is_set():
            await self._stdin.writable.wait()
        if not self.accepting:
            raise StaleTermsError

    def write(self, message: bytes) -> None:
        """Write a message as one line."""
        if b"\n" in message or b"\r" in message:
            # In JSON they stand between tokens only, where a space says the same.
            message = message.translate(_LINE_BREAKS)
        self._stdin.transport.write(message + b"\n")

    def pause(self) -> None:
        """Read no more of its output for now, unless it is ending: what is left then is no more than a pipe holds."""
        if self.accepting:
            self._stdout.transport.pause_reading()

    def resume(self) -> None:
        """Read its output on."""
        if not self._stdout.transport.is_closing():
            self._stdout.transport.resume_reading()

    def stop(self) -> None:
        """Have it end as MCP wants it: close its input, then SIGTERM, then SIGKILL, to all of its group."""
        if not self._stopped.done():
            self._stopped.set_result(None)

    async def ending(self) -> str:
        """Wait for the first sign of its end, and for what is still said then; tells how it came, in words."""
        await asyncio.wait(self._signs, return_when=asyncio.FIRST_COMPLETED)
        self._stdin.writable.set()
        self.resume()
        if not self._stopped.done():
            await self._over(LAST_WORDS)
        else:
            self._stdin.transport.close()
            if not await self._over(PATIENCE):
                self._signal(signal.SIGTERM)
                await self._over(PATIENCE)
        status = self._status.result() if self._status.done() else None
        if status is None:
            return f"closed its standard {'output' if self._stdout.lost.done() else 'input'}"
        return f"exited with status {status}" if status >= 0 else f"was ended by {_SIGNALS.get(-status, -status)}"

    async def drop(self) -> bool:
        """Let go of it, whatever of it is left; says whether it has gone."""
        self.stop()
        # Who is left in the group has no pipe to the worker any more.
        self._signal(signal.SIGKILL)
        stdin = self._stdin.transport
        # A pipe of asyncio that is closing and has nothing left to write must not be aborted.
        if not stdin.is_closing() or stdin.get_write_buffer_size():
            stdin.abort()
        self._stdout.transport.close()
        self._stderr.transport.close()
        return await self._over(PATIENCE)

    async def _over(self, seconds: float) -> bool:
        _, pending = await asyncio.wait((self._status, self._stdout.lost, self._stderr.lost), timeout=seconds)
        return not pending

    def _signal(self, number: signal.Signals) -> None:
        # EPERM is what macOS says of a group in which only zombies are left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def _wait(self, popen: subprocess.Popen[bytes]) -> None:
        """In a thread: wait for the end of the process, as asyncio does where nothing better is to be had."""
        status = popen.wait()
        # A loop that is closed needs no news.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._status.set_result, status)


def environment(environ: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """What a server's process gets: of the worker's variables what every program needs, and what it is given."""
    return {name: value for name, value in environ.items() if INHERITED.fullmatch(name)} | dict(given)
