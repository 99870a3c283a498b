"""An HTTP server for tests that sends exactly the bytes it is told and keeps exactly what it was sent.

Raw asyncio, no framework: a response may be wrong, cut short, stalled or reset. It knows nothing of the pack, so that a
fault in the pack's protocol code cannot hide in it.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import socket
import struct
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any, Literal, Self

__all__ = (
    "CONNECTION",
    "MODERN",
    "FakeServer",
    "Handler",
    "Reply",
    "Request",
    "error_reply",
    "modern",
    "notice_event",
    "result_reply",
)

MODERN = "2026-07-28"

CONNECTION = "a connection of a fake server"
"""The name of the task that serves one: of servers that several tests share, at any time."""

NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""Methods whose requests carry `Mcp-Name`, with the parameter it mirrors (MCP 2026-07-28, Streamable HTTP)."""

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER on, zero seconds: closing sends RST in place of FIN."""

DISCOVER = (
    b'{"resultType":"complete","supportedVersions":["2026-07-28"],'
    b'"capabilities":{"tools":{},"resources":{},"prompts":{},"completions":{}},'
    b'"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1"}},"ttlMs":0,"cacheScope":"private"}'
)
TOOLS = (
    b'{"resultType":"complete","tools":[{"name":"echo","inputSchema":{"type":"object"}}],"ttlMs":0,'
    b'"cacheScope":"private"}'
)
CALLED = b'{"resultType":"complete","content":[{"type":"text","text":"done"}],"isError":false}'
RESOURCES = (
    b'{"resultType":"complete","resources":[{"uri":"fake://one","name":"one"}],"ttlMs":0,"cacheScope":"private"}'
)
TEMPLATES = (
    b'{"resultType":"complete","resourceTemplates":[{"uriTemplate":"fake://{which}","name":"any"}],"ttlMs":0,'
    b'"cacheScope":"private"}'
)
PROMPTS = (
    b'{"resultType":"complete","prompts":[{"name":"greet","arguments":[{"name":"who","required":true}]}],"ttlMs":0,'
    b'"cacheScope":"private"}'
)
PROMPT = b'{"resultType":"complete","messages":[{"role":"user","content":{"type":"text","text":"Greet Ada."}}]}'
COMPLETED = b'{"resultType":"complete","completion":{"values":["Ada"],"total":1,"hasMore":false}}'
READ = b'{"resultType":"complete","contents":[{"uri":"fake://one","text":"one"}],"ttlMs":0,"cacheScope":"private"}'


@dataclass(frozen=True)
class Request:
    """A request as it arrived. Header names keep their case and order."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int

    def header(self, name: str) -> str | None:
        """The only value of a header, in any case; None if it is absent."""
        found = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(found) <= 1, f"header {name} came {len(found)} times"
        return found[0] if found else None

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)


@dataclass(frozen=True)
class Reply:
    """What to send.

    Attributes:
        body: Sent with a Content-Length, unless `headers` frames it otherwise.
        chunks: In place of `body`: sent in chunked encoding, each flushed on its own. An `asyncio.Event` among them is
            waited for.
        wait: Seconds before the first byte.
        delay: Seconds between two chunks.
        abort_after: Bytes of the body (framing not counted) after which the connection is broken off.
        abort: How it is broken off: a TCP reset, or an orderly close.
        stall: Send nothing more, and keep the connection open until the client closes it: `head` sends nothing at
            all, `body` the given body and no end of it.
    """

    status: int = 200
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""
    chunks: Sequence[bytes | asyncio.Event] | None = None
    wait: float = 0.0
    delay: float = 0.0
    abort_after: int | None = None
    abort: Literal["reset", "close"] = "reset"
    stall: Literal["head", "body"] | None = None

    def head(self) -> bytes:
        """The status line and the headers, with the framing that fits."""
        names = {name.lower() for name, _ in self.headers}
        framing: list[tuple[str, str]] = []
        if self.chunks is not None:
            if "transfer-encoding" not in names:
                framing.append(("Transfer-Encoding", "chunked"))
        elif "content-length" not in names:
            framing.append(("Content-Length", str(len(self.body) + (self.stall == "body"))))
        try:
            reason = HTTPStatus(self.status).phrase
        except ValueError:
            reason = "Unknown"
        lines = [f"HTTP/1.1 {self.status} {reason}", *(f"{name}: {value}" for name, value in (*self.headers, *framing))]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


Handler = Callable[[Request], Awaitable[Reply | None]]
"""Answers a request; None closes the connection without an answer."""


class _AbortedError(Exception):
    """The connection is to be broken off, or the client has left."""


@dataclass(eq=False)
class _Connection:
    number: int
    server: FakeServer
    closed: asyncio.Event
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    body_bytes: int = 0

    async def serve(self) -> None:
        try:
            while (request := await self._read()) is not None:
                self.server.requests.append(request)
                reply = await self.server.handler(request)
                if reply is None or not await self._send(reply):
                    break
                if (request.header("connection") or "").lower() == "close":
                    break
        except (_AbortedError, ConnectionError, asyncio.IncompleteReadError):
            pass
        except Exception as error:  # noqa: BLE001 - a handler's fault belongs to the test, not to this task
            self.server.failures.append(error)
        finally:
            self.writer.close()

    async def _read(self) -> Request | None:
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        method, path, _ = first.split(" ")
        headers = [(name, value.strip(" \t")) for name, _, value in (line.partition(":") for line in lines)]
        lower = {name.lower(): value for name, value in headers}
        if lower.get("transfer-encoding", "").lower() == "chunked":
            body = await self._read_chunks()
        else:
            body = await self.reader.readexactly(int(lower.get("content-length", "0")))
        return Request(method, path, headers, body, self.number)

    async def _read_chunks(self) -> bytes:
        body = bytearray()
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readuntil(b"\r\n")
        return bytes(body)

    async def _send(self, reply: Reply) -> bool:
        """Send it; whether the connection goes on."""
        self.body_bytes = 0
        if reply.wait:
            await self._pause(asyncio.sleep(reply.wait))
        if reply.stall == "head":
            await self.closed.wait()
            return False
        self.writer.write(reply.head())
        if reply.chunks is None:
            await self._write(reply, reply.body)
        else:
            await self._send_chunks(reply, reply.chunks)
        if reply.stall == "body":
            await self.closed.wait()
            return False
        if reply.chunks is not None:
            self.writer.write(b"0\r\n\r\n")
        await self.writer.drain()
        return ("connection", "close") not in {(name.lower(), value.lower()) for name, value in reply.headers}

    async def _send_chunks(self, reply: Reply, chunks: Sequence[bytes | asyncio.Event]) -> None:
        sent_one = False
        for chunk in chunks:
            if isinstance(chunk, asyncio.Event):
                await self.writer.drain()
                await self._pause(chunk.wait())
                continue
            if sent_one and reply.delay:
                await self._pause(asyncio.sleep(reply.delay))
            sent_one = True
            await self._write(reply, chunk)
        if reply.abort_after is not None:
            await self._abort(reply)

    async def _write(self, reply: Reply, data: bytes) -> None:
        """Write a piece of the body, up to where the reply is to be broken off."""
        if self.closed.is_set():
            raise _AbortedError
        over = reply.abort_after is not None and self.body_bytes + len(data) >= reply.abort_after
        if over:
            assert reply.abort_after is not None
            data = data[: reply.abort_after - self.body_bytes]
        self.body_bytes += len(data)
        if reply.chunks is None:
            self.writer.write(data)
        elif data:
            self.writer.write(b"%x\r\n%b\r\n" % (len(data), data))
        await self.writer.drain()
        if over:
            await self._abort(reply)

    async def _abort(self, reply: Reply) -> None:
        if reply.abort == "reset":
            # Give what was written a turn to leave before the reset throws away what is still buffered.
            await asyncio.sleep(0)
            sock = self.writer.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self.writer.transport.abort()
        raise _AbortedError

    async def _pause(self, waited_for: Awaitable[Any]) -> None:
        """Wait for something, or for the client to leave."""
        tasks = [asyncio.ensure_future(waited_for), asyncio.ensure_future(self.closed.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        if self.closed.is_set():
            raise _AbortedError


class _Protocol(asyncio.StreamReaderProtocol):
    """Tells at once that the client has closed its side, whatever the connection's task is doing."""

    def __init__(self, server: FakeServer) -> None:
        self.lost = asyncio.Event()
        self._number = 0
        self._fake = server
        self._stream_reader_of_mine = asyncio.StreamReader()
        super().__init__(self._stream_reader_of_mine, self._connected)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(self._number, self._fake, self._fake.closed[self._number], reader, writer)
        self._fake.start(connection)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._number = self._fake.admit(self)
        self._transport_of_mine = transport
        super().connection_made(transport)

    def abort(self) -> None:
        assert isinstance(self._transport_of_mine, asyncio.WriteTransport)
        self._transport_of_mine.abort()

    def eof_received(self) -> bool | None:
        self._fake.closed[self._number].set()
        return super().eof_received()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._fake.closed[self._number].set()
        self._fake.forget(self)
        self.lost.set()
        super().connection_lost(exc if isinstance(exc, Exception) else None)


@dataclass(eq=False)
class FakeServer:
    """`async with FakeServer(handler) as server:`; an error raised by the handler is raised when the block ends.

    Attributes:
        listens_on: The port; 0 for a free one.
        requests: Every request, in order of arrival.
        connections: Connections accepted so far; a connection's number counts from 1.
        closed: By connection number, an event that is set when that connection is closed, by whichever side.
    """

    handler: Handler
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    closed: dict[int, asyncio.Event] = field(default_factory=lambda: defaultdict(asyncio.Event))
    failures: list[Exception] = field(default_factory=list)
    listens_on: int = 0

    def __post_init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._protocols: set[_Protocol] = set()
        self._server: asyncio.Server | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """The address of its MCP endpoint."""
        return f"http://127.0.0.1:{self.port}/mcp"

    def calls(self, tool: str) -> list[Request]:
        """The calls of a tool so far, among whatever else its clients ask, such as lists in the background."""
        called = b'"name":%b' % json.dumps(tool).encode()
        return [one for one in self.requests if b'"tools/call"' in one.body and called in one.body.replace(b": ", b":")]

    @property
    def open_connections(self) -> int:
        """Connections open at this moment."""
        return len(self._protocols)

    def admit(self, protocol: _Protocol) -> int:
        """Count a new connection, and give it its number."""
        self._protocols.add(protocol)
        self.connections += 1
        return self.connections

    def forget(self, protocol: _Protocol) -> None:
        """Take a lost connection out of the count."""
        self._protocols.discard(protocol)

    def start(self, connection: _Connection) -> None:
        """Serve a connection."""
        task = asyncio.get_running_loop().create_task(connection.serve(), name=CONNECTION)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Protocol(self), "127.0.0.1", self.listens_on)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        protocols = list(self._protocols)
        for protocol in protocols:
            protocol.abort()
        await asyncio.gather(*(protocol.lost.wait() for protocol in protocols))
        await self._server.wait_closed()
        if kind is None and self.failures:
            raise self.failures[0]


def _envelope(request: Request, name: str, value: bytes) -> bytes:
    """A JSON-RPC response to a request, around exact bytes."""
    try:
        request_id = request.json.get("id")
    except (ValueError, AttributeError):
        request_id = None
    return b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (json.dumps(request_id).encode(), name.encode(), value)


def result_reply(request: Request, result: bytes, as_: Literal["json", "sse"] = "json") -> Reply:
    """A reply that holds exactly `result`, with the request's id."""
    message = _envelope(request, "result", result)
    if as_ == "json":
        return Reply(headers=[("Content-Type", "application/json")], body=message)
    assert b"\r" not in message, "an event stream cannot carry a carriage return inside its data"
    event = b"event: message\n" + b"".join(b"data: %b\n" % line for line in message.split(b"\n")) + b"\n"
    return Reply(headers=[("Content-Type", "text/event-stream")], chunks=[event])


def notice_event(method: str, **params: Any) -> bytes:
    """An event of a stream that holds a notification."""
    message = json.dumps({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})
    return b"data: %b\n\n" % message.encode()


def error_reply(request: Request, code: int, message: str, data: Any = None, status: int = 200) -> Reply:
    """A JSON-RPC error with the request's id."""
    error: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    body = _envelope(request, "error", json.dumps(error).encode())
    return Reply(status=status, headers=[("Content-Type", "application/json")], body=body)


Canned = bytes | Callable[[Request], bytes | Reply | Awaitable[bytes | Reply | None] | None]
"""An exact result, or a function (async or not) of the request that gives one, or a whole reply."""


def modern(handlers: Mapping[str, Canned] | None = None, *, as_: Literal["json", "sse"] = "json") -> Handler:
    """A handler that speaks MCP 2026-07-28 with canned exact results and is strict about headers.

    `handlers`, by method, come before the canned results for every request that MCP has but `subscriptions/listen`; any
    other method is unknown.
    """
    known: dict[str, Canned] = {
        "server/discover": DISCOVER,
        "tools/list": TOOLS,
        "tools/call": CALLED,
        "resources/list": RESOURCES,
        "resources/templates/list": TEMPLATES,
        "resources/read": READ,
        "prompts/list": PROMPTS,
        "prompts/get": PROMPT,
        "completion/complete": COMPLETED,
        **(handlers or {}),
    }

    async def handle(request: Request) -> Reply | None:
        if (refusal := _refusal(request)) is not None:
            return refusal
        method = request.json["method"]
        if method not in known:
            return error_reply(request, -32601, f"Method not found: {method}", status=404)
        answer = known[method]
        made = answer(request) if callable(answer) else answer
        if inspect.isawaitable(made):
            made = await made
        return result_reply(request, made, as_) if isinstance(made, bytes) else made

    return handle


def _refusal(request: Request) -> Reply | None:
    """What a strict server says to a request whose shape or headers are wrong; None if they are right."""
    if request.method != "POST":
        return Reply(status=405, headers=[("Allow", "POST")])
    message = request.json
    params = message.get("params", {})
    meta = params.get("_meta", {})
    for key in ("io.modelcontextprotocol/protocolVersion", "io.modelcontextprotocol/clientCapabilities"):
        if key not in meta:
            return error_reply(request, -32602, f"_meta lacks {key}", status=400)
    version = meta["io.modelcontextprotocol/protocolVersion"]
    expected = {"MCP-Protocol-Version": version, "Mcp-Method": message["method"]}
    if (named := NAMED_BY.get(message["method"])) is not None:
        expected["Mcp-Name"] = params.get(named)
    for name, value in expected.items():
        got = request.header(name)
        if got is None or _plain(name, got) != value:
            return error_reply(request, -32020, f"{name} is missing or differs from the body", status=400)
    if version != MODERN:
        return error_reply(
            request, -32022, "unsupported version", {"supported": [MODERN], "requested": version}, status=400
        )
    return None


def _plain(name: str, value: str) -> str:
    """Undo the Base64 form, which only `Mcp-Name` has."""
    if name == "Mcp-Name" and value.startswith("=?base64?") and value.endswith("?="):
        return base64.b64decode(value[9:-2], validate=True).decode()
    return value
