"""The application on a socket, inside an event loop of somebody else: it listens, serves, and ends in good order.

Knows uvicorn and no route; signals are for whoever owns the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp

__all__ = ("BindError", "Listening", "listening")

GRACE = 5
"""Seconds that requests under way are given to end, once streams and waiting polls were told to. A worker is given as
long, and both at once leave room in the ten seconds after which a supervisor kills."""

CUT = 1.0
"""Seconds in which what is cut off after that ends: it has to tell its client so, and nothing more."""

KEEP_ALIVE = 75
"""Seconds that a connection may be idle: more than the 60 of balancers, so that it is they who close it, and they never
send a request into one that is being closed here."""


class BindError(Exception):
    """The host cannot listen where the settings say so. The message names the setting."""


class Listening:
    """A host that serves.

    Attributes:
        address: Where, as in ``http://127.0.0.1:8080``.
    """

    def __init__(self, server: uvicorn.Server, address: str, stopping: asyncio.Event) -> None:
        self.address = address
        self._server = server
        self._stopping = stopping

    def stop(self) -> None:
        """Begin to end: nothing is accepted any more, streams end, and requests under way have some seconds left."""
        self._stopping.set()
        self._server.should_exit = True


class _Server(uvicorn.Server):
    """Tells when it listens, and leaves signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listens = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _not_of_cuts(record: logging.LogRecord) -> bool:
    """Passes all but the complaint about an answer that was not ended. Here that is how a stream is cut, on purpose."""
    return record.msg != "ASGI callable returned without completing response."


@contextlib.asynccontextmanager
async def listening(
    app: ASGIApp, *, bind: str, stopping: asyncio.Event, setting: str = "host.bind"
) -> AsyncIterator[Listening]:
    """Serve an application until the context ends.

    Args:
        app: The application.
        bind: Host and port; port 0 takes a free one.
        stopping: Set when it begins to end.
        setting: What host and port are called in the settings.

    Raises:
        BindError: It cannot listen there.
    """
    uvicorn_log = logging.getLogger("uvicorn.error")
    uvicorn_log.setLevel(logging.WARNING)
    uvicorn_log.addFilter(_not_of_cuts)
    listener = _bound(bind, setting)
    config = uvicorn.Config(
        app,
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=GRACE,
    )
    server = _Server(config)
    host, port = listener.getsockname()[:2]
    listens = asyncio.create_task(server.listens.wait())
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    own = Listening(server, f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}", stopping)
    try:
        await asyncio.wait((listens, serving), return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await _ended(serving, bind, setting)
        yield own
    finally:
        listens.cancel()
        own.stop()
        await _ended(serving, bind, setting)
        if cut := set(server.server_state.tasks):
            await asyncio.wait(cut, timeout=CUT)


def _bound(bind: str, setting: str) -> socket.socket:
    host, _, port = bind.rpartition(":")
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listener = socket.socket(family, kind, protocol)
        try:
            # A port that was in use a moment ago can be had again at once.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except UnicodeError:
        # No name can have a part that is so long, or none.
        raise _refused(bind, OSError("not a name of a machine"), setting) from None
    except OSError as error:
        raise _refused(bind, error, setting) from None
    return listener


async def _ended(serving: asyncio.Task[None], bind: str, setting: str) -> None:
    try:
        await serving
    except OSError as error:
        raise _refused(bind, error, setting) from None


def _refused(bind: str, error: OSError, setting: str) -> BindError:
    return BindError(f"{setting}: cannot listen at {bind} ({error.strerror or error}): write another address or port")
