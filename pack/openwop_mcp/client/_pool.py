"""The connection pools of a worker process: a request out, its response back, and nothing known of what they carry.

Owns connections, the network policy (checked on the address that is dialled) and redirects, which are followed within
the origin only. Knows HTTP and no MCP.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import aiohttp
import httpx
from httpx_aiohttp import AiohttpTransport

from openwop_mcp.client._deadline import Deadline
from openwop_mcp.client._decoding import decoded
from openwop_mcp.client._faults import NETWORK_FAULTS, name_fault, too_large
from openwop_mcp.client._network import Network, verdict
from openwop_mcp.config import Timeouts
from openwop_mcp.errors import ConnectError, EgressDeniedError

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

__all__ = ("Fetched", "HttpPool", "Reach", "address", "origin")

KEEP_ALIVE = 3.0
"""Seconds an idle connection is kept for reuse. Servers close idle ones after five (uvicorn, Node); a request written
into a closing connection is lost in doubt, so ours end first."""

MOVED = frozenset({301, 302, 307, 308})
"""Redirects that ask for the request at another place; the others are answers of a kind (RFC 9110, section 15.4)."""

MAX_REDIRECTS = 5
"""Redirects followed for one request; within one origin more are a circle."""

LARGE_BODY = 1024**2
"""Bytes from which a body is handed on in pieces: aiohttp warns of larger ones, as one write of them stalls a loop."""

DOCUMENT = Timeouts(connect=5, first_byte=10, idle=10, total=20)
"""Seconds for a document of an authorization server: such servers answer at once, and calls wait for them."""

MAX_DOCUMENT = 1024**2
"""Bytes of such a document: the largest in use are a few kilobytes."""

PIECE = 64 * 1024
"""Bytes of a piece: what a socket takes at once, about."""


MAX_NAME = 253
"""Characters of a host that are shown: no name in DNS is longer."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Where connections may go.

    Attributes:
        network: The policy.
        named: An address that the operator wrote into the settings as it is, if that is how a server is named.
    """

    network: Network
    named: str | None = None

    @classmethod
    def of(cls, network: Network, url: httpx.URL) -> Reach:
        """The reach of a server in the settings."""
        return cls(network, _address(url.raw_host.decode("ascii")))


@dataclass(frozen=True, slots=True)
class Fetched:
    """A whole response, whatever its status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


_DEADLINE: ContextVar[Deadline] = ContextVar("deadline")


class _RefusedAddressError(OSError):
    """The policy does not let this address be dialled."""


class _Connector(aiohttp.TCPConnector):
    """Tells the request under way when it has a connection: the moment from which it may reach the server."""

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: aiohttp.ClientTimeout) -> Connection:
        connection = await super().connect(req, traces, timeout)
        while connection.protocol is not None and connection.protocol.should_close:
            # Bytes came while it was idle. They answer nothing, and would be taken for the answer to what is sent now.
            connection.close()
            connection = await super().connect(req, traces, timeout)
        transport = connection.transport
        _DEADLINE.get().sending(None if transport is None else transport.close)
        return connection


class _Response(aiohttp.ClientResponse):
    """Leaves the reason phrase out, which is for people: one that is not UTF-8 would be the end of its response."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        await super().start(connection)
        self.reason = None
        return self


class HttpPool:
    """Connections, by where they may go. Each worker in a process enters it; the last to leave closes it.

    Response bodies are asked for uncompressed: a result's bytes are then the bytes on the wire, and a size limit counts
    what was really sent.
    """

    def __init__(self) -> None:
        self._context: ssl.SSLContext | None = None
        self._transports: dict[Reach, AiohttpTransport] = {}
        self._users = 0

    async def __aenter__(self) -> Self:
        self._users += 1
        if self._context is None:
            self._context = httpx.create_ssl_context()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._users -= 1
        if self._users == 0:
            self._context = None
            transports, self._transports = list(self._transports.values()), {}
            for transport in transports:
                await transport.aclose()

    async def open(
        self,
        method: str,
        url: httpx.URL,
        headers: httpx.Headers,
        body: bytes,
        *,
        reach: Reach,
        deadline: Deadline,
        redirects: int = MAX_REDIRECTS,
    ) -> httpx.Response:
        """Send a request; its response, of which nothing was read yet, is the caller's to close.

        Args:
            method: The method.
            url: Where to.
            headers: The headers.
            body: The body.
            reach: Where connections may go.
            deadline: The time limits, entered.
            redirects: How many are followed at most.

        Raises:
            EgressDeniedError: No address of the server may be dialled.
            ConnectError: What stands as its host is no name; trying again is of no use.
            Exception: One of ``NETWORK_FAULTS``.
        """
        transport = self._transport(reach)
        token = _DEADLINE.set(deadline)
        try:
            response = await transport.handle_async_request(_request(method, url, headers, body))
            for _ in range(redirects):
                there = _within(response)
                if there is None:
                    break
                await response.aclose()
                if method != "GET":
                    # A GET may take up a request that was sent before it, which no redirect undoes.
                    deadline.elsewhere()
                response = await transport.handle_async_request(_request(method, there, headers, body))
        except UnicodeError as error:
            if deadline.connected:
                raise
            raise _no_host() from error
        except NETWORK_FAULTS as error:
            if deadline.refused is not None and not deadline.dialled and not deadline.connected:
                address, reason = deadline.refused
                raise EgressDeniedError(address=address, reason=reason, network=reach.network) from error
            raise
        finally:
            _DEADLINE.reset(token)
        return response

    async def fetch(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        reach: Reach,
        limits: Timeouts,
        max_bytes: int,
    ) -> Fetched:
        """Send a request and read its response whole. Redirects are followed within the origin.

        Raises:
            McpError: There is no whole response.
        """
        asked = self._asked(method, url, headers, body or b"", reach=reach, limits=limits, redirects=MAX_REDIRECTS)
        async with asked as (response, deadline):
            return Fetched(response.status_code, response.headers, await _whole(response, deadline, max_bytes))

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, network: Network) -> int:
        """Send what nobody answers with more than a status; that. No redirect is followed.

        Raises:
            McpError: There is no response.
        """
        asked = self._asked("POST", url, headers, body, reach=Reach(network), limits=DOCUMENT, redirects=0)
        async with asked as (response, _):
            return response.status_code

    @contextlib.asynccontextmanager
    async def _asked(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes,
        *,
        reach: Reach,
        limits: Timeouts,
        redirects: int,
    ) -> AsyncIterator[tuple[httpx.Response, Deadline]]:
        deadline = Deadline(limits)
        try:
            async with deadline:
                target = httpx.URL(url)
                deadline.server = address(target)
                made = httpx.Headers({"Accept-Encoding": "identity", "User-Agent": "openwop-mcp-pack", **headers})
                response = await self.open(
                    method, target, made, body, reach=reach, deadline=deadline, redirects=redirects
                )
                try:
                    yield response, deadline
                finally:
                    await response.aclose()
        except httpx.InvalidURL as error:
            raise _no_host() from error
        except NETWORK_FAULTS as error:
            name_fault(error, connected=deadline.connected, at=deadline.server)

    def fetcher(self, network: Network) -> Callable[..., Awaitable[Fetched]]:
        """:meth:`fetch` for the documents of an authorization server, whose addresses a server names."""

        async def fetch(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Fetched:
            return await self.fetch(
                method, url, headers, body, reach=Reach(network), limits=DOCUMENT, max_bytes=MAX_DOCUMENT
            )

        return fetch

    def _transport(self, reach: Reach) -> AiohttpTransport:
        transport = self._transports.get(reach)
        if transport is None:
            if self._context is None:
                raise RuntimeError("the pool is not open: enter it first")
            transport = AiohttpTransport(verify=self._context, client=_session(self._context, reach))
            self._transports[reach] = transport
        return transport


def origin(url: httpx.URL) -> str:
    """Scheme, host and port of a URL."""
    return f"{url.scheme}://{url.netloc.decode('ascii')}"


def address(url: httpx.URL) -> str:
    """Host and port of a URL, and nothing else that stands in it."""
    host = url.raw_host.decode("ascii")[:MAX_NAME]
    return f"{f'[{host}]' if ':' in host else host}:{url.port or (443 if url.scheme == 'https' else 80)}"


def _session(context: ssl.SSLContext, reach: Reach) -> Callable[[], aiohttp.ClientSession]:
    def make() -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            # Calls are bounded where they are scheduled; a pool that queues would spend their time limits.
            connector=_Connector(
                limit=0, ssl=context, keepalive_timeout=KEEP_ALIVE, socket_factory=_socket_factory(reach)
            ),
            response_class=_Response,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
            # Line limits are aiohttp's own business; event streams are read in chunks.
            timeout=aiohttp.ClientTimeout(total=None),
        )

    return make


def _socket_factory(reach: Reach) -> Callable[[Any], socket.socket]:
    def make(address_info: tuple[Any, Any, int, str, tuple[Any, ...]]) -> socket.socket:
        family, kind, protocol, _, address = address_info
        dialled = str(address[0])
        reason = verdict(dialled, reach.network, named=reach.named is not None and reach.named == _address(dialled))
        if reason is not None:
            _DEADLINE.get().refused = (dialled, reason)
            raise _RefusedAddressError(f"{dialled} is {reason}")
        _DEADLINE.get().dialled = True
        return socket.socket(family=family, type=kind, proto=protocol)

    return make


def _no_host() -> ConnectError:
    """What no resolver is asked for, as it cannot be spelled in DNS."""
    error = ConnectError("no connection to the server: the host in its URL is no name that a host can have; correct it")
    error.retryable = False
    return error


def _request(method: str, url: httpx.URL, headers: httpx.Headers, body: bytes) -> httpx.Request:
    if len(body) <= LARGE_BODY:
        # Given as a stream, it gets no headers from httpx, which cost more than the rest; aiohttp makes the same ones.
        # What that passes over with them is a host that IDNA cannot spell, which no resolver is to be asked for.
        _ = url.host
        request = httpx.Request(method, url, headers=headers, stream=httpx.ByteStream(body))
        request.read()
        return request

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(body), PIECE):
            yield body[start : start + PIECE]

    # With its length given it is not sent chunked, which not every server takes.
    headers = httpx.Headers(headers)
    headers["Content-Length"] = str(len(body))
    return httpx.Request(method, url, headers=headers, content=pieces())


def _within(response: httpx.Response) -> httpx.URL | None:
    """Where a redirect leads, if it stays within the origin."""
    if response.status_code not in MOVED:
        return None
    here = response.request.url
    with contextlib.suppress(KeyError, ValueError, httpx.InvalidURL):
        there = here.join(response.headers["location"])
        # A fragment or user in it is not for a server to give.
        if origin(there) == origin(here) and not there.userinfo and there != here:
            return there.copy_with(fragment=None)
    return None


async def _whole(response: httpx.Response, deadline: Deadline, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for chunk in decoded(response):
        deadline.alive()
        size += len(chunk)
        if size > max_bytes:
            raise too_large(max_bytes, "none")
        parts.append(chunk)
    return b"".join(parts)


def _address(host: str) -> str | None:
    """An address in its one spelling; None for a name."""
    try:
        return ipaddress.ip_address(host).compressed
    except ValueError:
        return None
