"""Waits on this machine for the redirect that ends a login (RFC 8252, section 7.3).

Owns one listening socket on 127.0.0.1 for as long as the login lasts. A browser of another machine cannot reach it, so
that a person may say as well where that one ended. Knows nothing of what the answer is worth.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, urlsplit

from openwop_mcp.errors import AuthorizationError

__all__ = ("Loopback", "Pasting")

Pasting = Callable[[Callable[[str], bool]], contextlib.AbstractContextManager[None]]
"""Reads, as long as it is entered, what a person pastes, and gives it on; is told whether that was the answer."""

PATH = "/callback"

PATIENCE = 300.0
"""Seconds that a person has to log in."""

REQUEST_LIMIT = 5.0
"""Seconds for a browser to say what it wants."""

MAX_LINE = 16 * 1024
"""Bytes of a request line or header; codes are much shorter."""

MAX_HEADERS = 200

_PAGE = (
    "<!doctype html><meta charset=utf-8><title>openwop-mcp-pack</title>"
    "<body style='font:16px/1.5 sans-serif;margin:4em auto;max-width:32em'><p>{text}</p>"
)
_DONE = "This window can be closed: the command line has the answer."
_NOTHING = "Nothing is waiting for this address."


class Loopback:
    """Listens for one redirect. Enter it, send the person out by :meth:`visit`, leave it.

    Args:
        show: Is given the authorization URL: prints it, or opens a browser.
        port: Where to listen; 0 for any that is free.
        patience: Seconds to wait for the answer.
        pasting: Where a person can say by hand where their browser ended; None if nobody is there.
    """

    def __init__(
        self,
        show: Callable[[str], None],
        *,
        port: int = 0,
        patience: float = PATIENCE,
        pasting: Pasting | None = None,
    ) -> None:
        self._show = show
        self._port = port
        self._patience = patience
        self._pasting = pasting
        self._server: asyncio.Server | None = None
        self._answer: asyncio.Future[str] | None = None
        self._state: str | None = None

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port, limit=MAX_LINE)
        except OSError as error:
            raise AuthorizationError(
                f"nothing can listen on 127.0.0.1:{self._port} for the login's answer ({error.strerror}): name another"
                " port",
                cause="login_failed",
            ) from None
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def redirect_uri(self) -> str:
        """Where the authorization server must send the person."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}{PATH}"

    async def visit(self, authorization_url: str) -> str:
        """Show the URL and wait for the redirect that answers it, which comes in or is pasted; all else is turned away.

        Raises:
            AuthorizationError: Nobody came in time; cause ``login_failed``.
        """
        self._state = parse_qs(urlsplit(authorization_url).query).get("state", [""])[0]
        self._answer = asyncio.get_running_loop().create_future()
        pasting = contextlib.nullcontext() if self._pasting is None else self._pasting(self._take)
        try:
            with pasting:
                self._show(authorization_url)
                async with asyncio.timeout(self._patience):
                    return await self._answer
        except TimeoutError:
            raise AuthorizationError(
                f"nobody logged in within {self._patience:g} s: begin the login anew", cause="login_failed"
            ) from None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, ValueError, TimeoutError):
            async with asyncio.timeout(REQUEST_LIMIT):
                target = await _target(reader)
                taken = target is not None and self._take(target)
                writer.write(_response("200 OK", _DONE) if taken else _response("404 Not Found", _NOTHING))
                await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def _take(self, target: str) -> bool:
        try:
            parts = urlsplit(target)
            state = parse_qs(parts.query).get("state", [""])[0]
        except ValueError:
            return False
        if self._answer is None or self._answer.done() or parts.path != PATH:
            return False
        # Other programs of this machine can call too: they do not know the state, and end no login.
        if state != self._state:
            return False
        self._answer.set_result(f"{self.redirect_uri}?{parts.query}")
        return True


async def _target(reader: asyncio.StreamReader) -> str | None:
    """What a request asks for, once all of its headers were read; None if it is no GET."""
    words = (await reader.readline()).decode("latin-1").split()
    for _ in range(MAX_HEADERS):
        if not (await reader.readline()).strip():
            break
    return words[1] if len(words) == 3 and words[0] == "GET" else None  # noqa: PLR2004 - method, target, version


def _response(status: str, text: str) -> bytes:
    body = _PAGE.format(text=text).encode()
    return (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    ).encode() + body
