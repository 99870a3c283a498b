"""HTTP servers that drop, delay, truncate, reset and lie at random; a process of its own.

    python -m tests.chaos.http_server SEED MODERN LEGACY

Listens on so many ports for each era and writes them to standard output as a line of JSON. For each line on standard
input it writes one that says what it saw; it ends with its input. Knows nothing of the pack.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import random
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from tests.chaos.sound import LIE, envelope, nonce_of, notice, sound

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on, zero seconds: closing sends RST in place of FIN."""

HOLD = 5.0
"""Seconds that a server says nothing more: longer than any limit of a call."""

AT_ACCEPT = 0.01
"""Share of connections that are ended before they say anything."""

STATUSES = (201, 202, 204, 206, 300, 304, 400, 401, 402, 403, 404, 405, 406, 407, 408, 409, 410, 411, 413, 414, 415)
STATUSES += (418, 421, 422, 425, 426, 431, 451, 499, 500, 501, 502, 503, 504, 505, 507, 511, 520, 599)
RETRY_AFTER = ("0", "1", "86400", "Fri, 31 Dec 1999 23:59:59 GMT", "soon", "-1", "1e3", "9" * 40)
RPC_CODES = (-32700, -32600, -32601, -32602, -32603, -32000, -32001, -32002, -32020, -32021, -32022, 1, 0)
REVISION = "2025-11-25"


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    message: dict[str, Any]

    @property
    def id(self) -> Any:
        return self.message.get("id")


class GoneError(Exception):
    """The connection was ended, by either side."""


class Answering(Protocol):
    """What a connection is to."""

    random: random.Random
    connections: set[Connection]
    failures: list[str]

    async def answer(self, c: Connection, r: Request) -> None: ...


class Connection(asyncio.Protocol):
    """Takes one request after the other off a connection."""

    def __init__(self, server: Answering) -> None:
        self.server = server
        self.random = server.random
        self.buffer = b""
        self.task: asyncio.Task[None] | None = None
        self.poisoned = False
        self.gone = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.server.connections.add(self)
        if self.random.random() < AT_ACCEPT:
            self.random.choice((self.reset, self.finish))()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone = True
        self.server.connections.discard(self)
        if self.task is not None:
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self._next()

    def _next(self) -> None:
        if self.task is not None or self.gone:
            return
        head, end, rest = self.buffer.partition(b"\r\n\r\n")
        if not end:
            return
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        if len(rest) < length:
            return
        self.buffer = rest[length:]
        method, path, _ = first.split(" ")
        request = Request(method, path, headers, json.loads(rest[:length]) if length else {})
        self.task = asyncio.get_running_loop().create_task(self._serve(request))
        self.task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self.task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self.server.failures.append(repr(error))
        self._next()

    async def _serve(self, request: Request) -> None:
        with contextlib.suppress(GoneError):
            await self.server.answer(self, request)

    # --- what faults are made of --------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self.gone or self.transport.is_closing():
            raise GoneError
        self.transport.write(data)

    async def pieces(self, data: bytes, pause: float = 0.004) -> None:
        """Write in pieces, cut anywhere."""
        at = 0
        while at < len(data):
            size = self.random.choice((1, 7, 100, 1000, 5000))
            self.write(data[at : at + size])
            at += size
            await asyncio.sleep(self.random.uniform(0, pause))

    def reset(self) -> None:
        sock = self.transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.transport.abort()

    def finish(self) -> None:
        self.transport.close()

    def end(self) -> None:
        self.random.choice((self.reset, self.finish))()

    def reply(self, body: bytes, status: int = 200, *headers: str, media: str | None = "application/json") -> None:
        self.write(head(status, *headers, *([f"Content-Type: {media}"] if media else []), length=len(body)) + body)


def head(status: int, *headers: str, length: int | None = None) -> bytes:
    own = [] if length is None else [f"Content-Length: {length}"]
    return "\r\n".join((f"HTTP/1.1 {status} Chaos", *headers, *own, "", "")).encode()


STREAM = head(200, "Content-Type: text/event-stream")
CHUNKED = head(200, "Content-Type: application/json", "Transfer-Encoding: chunked")
CHUNKED_STREAM = head(200, "Content-Type: text/event-stream", "Transfer-Encoding: chunked")


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def event(rng: random.Random, message: bytes, event_id: str = "") -> bytes:
    end = rng.choice((b"\n", b"\r\n", b"\r"))
    lines = [b"data: " + message]
    if event_id:
        lines.append(f"id: {event_id}".encode())
    if rng.random() < 0.3:
        lines.insert(0, b"event: message")
    return end.join((*lines, b"", b""))


def chatter(rng: random.Random, request: Request) -> bytes:
    """What may come before an answer: comments, progress, log messages, events that are no messages."""
    token = request.message.get("params", {}).get("_meta", {}).get("progressToken")
    return rng.choice(
        (
            b": still here\n\n",
            b"\n\n\n",
            event(rng, notice("progress", progressToken=token, progress=rng.randint(1, 9))),
            event(rng, notice("message", level="info", data="x" * rng.randint(0, 99))),
            event(rng, notice("tools/list_changed")),
            b'event: ping\ndata: {"jsonrpc":"2.0","id":1,"result":{"lie":true}}\n\n',
            b'data: {"type":"heartbeat"}\n\n',
        )
    )


Fault = Callable[[Connection, Request, bytes], Awaitable[None]]
"""Answers a request; the bytes are the sound message."""

FAULTS: dict[str, tuple[int, Fault]] = {}
"""By name: how often, and what it does. Names that begin with "sound" may come out as a result, no other."""


def fault(weight: int) -> Callable[[Fault], Fault]:
    def take(made: Fault) -> Fault:
        FAULTS[made.__name__] = (weight, made)
        return made

    return take


# --- sound ------------------------------------------------------------------------------------------------------------


@fault(260)
async def sound_json(c: Connection, r: Request, message: bytes) -> None:
    c.reply(message)


@fault(60)
async def sound_pieces(c: Connection, r: Request, message: bytes) -> None:
    await c.pieces(head(200, "Content-Type: application/json; charset=latin1", length=len(message)) + message)


@fault(40)
async def sound_chunks(c: Connection, r: Request, message: bytes) -> None:
    cut = c.random.randint(0, len(message))
    await c.pieces(CHUNKED + chunk(message[:cut]) + chunk(message[cut:]) + b"0\r\n\r\n")


@fault(140)
async def sound_stream(c: Connection, r: Request, message: bytes) -> None:
    said = [chatter(c.random, r) for _ in range(c.random.randint(0, 5))]
    await c.pieces(CHUNKED_STREAM + b"".join(map(chunk, (*said, event(c.random, message)))) + b"0\r\n\r\n")


@fault(20)
async def sound_stream_left_open(c: Connection, r: Request, message: bytes) -> None:
    c.write(CHUNKED_STREAM + chunk(event(c.random, message)))
    await asyncio.sleep(HOLD)


@fault(20)
async def sound_stream_then_a_lie(c: Connection, r: Request, message: bytes) -> None:
    c.write(CHUNKED_STREAM + chunk(event(c.random, message) + event(c.random, envelope(r.id, "result", LIE))))
    c.end()


@fault(60)
async def sound_late(c: Connection, r: Request, message: bytes) -> None:
    await asyncio.sleep(c.random.uniform(0, 0.25))
    half = c.random.randint(0, len(message))
    c.write(head(200, "Content-Type: application/json", length=len(message)) + message[:half])
    await asyncio.sleep(c.random.uniform(0, 0.25))
    c.write(message[half:])


@fault(30)
async def sound_then_closed(c: Connection, r: Request, message: bytes) -> None:
    c.reply(message)
    await asyncio.sleep(c.random.choice((0, 0, 0.001, 0.05)))
    c.finish()


@fault(15)
async def sound_then_reset(c: Connection, r: Request, message: bytes) -> None:
    c.reply(message)
    await asyncio.sleep(c.random.choice((0, 0.001, 0.05)))
    c.reset()


@fault(15)
async def sound_twice(c: Connection, r: Request, message: bytes) -> None:
    c.poisoned = True
    c.reply(message)
    await asyncio.sleep(c.random.choice((0, 0.001, 0.01)))
    c.reply(message)


@fault(20)
async def sound_to_the_end(c: Connection, r: Request, message: bytes) -> None:
    c.write(head(200, "Content-Type: application/json", "Connection: close"))
    await c.pieces(message)
    c.finish()


@fault(15)
async def sound_after_interim(c: Connection, r: Request, message: bytes) -> None:
    for _ in range(c.random.randint(1, 3)):
        c.write(f"HTTP/1.1 {c.random.choice((100, 102, 103))} Wait\r\n\r\n".encode())
        await asyncio.sleep(c.random.uniform(0, 0.01))
    c.reply(message)


@fault(10)
async def sound_gzip(c: Connection, r: Request, message: bytes) -> None:
    c.reply(gzip.compress(message), 200, "Content-Encoding: gzip")


@fault(10)
async def sound_redirect(c: Connection, r: Request, message: bytes) -> None:
    if r.path != "/mcp":
        c.reply(message)
    else:
        c.reply(b"", c.random.choice((307, 308)), "Location: /mcp/there")


@fault(10)
async def sound_resumable(c: Connection, r: Request, message: bytes) -> None:
    """A stream that ends before its answer and, in older revisions, goes on where it is taken up again."""
    nonce = nonce_of(r.message) or ""
    c.write(CHUNKED_STREAM + chunk(b"retry: %d\nid: %s\ndata:\n\n" % (c.random.randint(0, 50), nonce.encode())))
    c.server.cut[nonce] = message
    await asyncio.sleep(c.random.uniform(0, 0.05))
    if c.random.random() < 0.5:
        c.write(b"0\r\n\r\n")
    else:
        c.end()


# --- silent, slow, cut ------------------------------------------------------------------------------------------------


@fault(12)
async def silent(c: Connection, r: Request, message: bytes) -> None:
    await asyncio.sleep(HOLD)


@fault(8)
async def silent_inside(c: Connection, r: Request, message: bytes) -> None:
    whole = c.random.choice((b"", STREAM)) or head(200, "Content-Type: application/json", length=len(message)) + message
    c.write(whole[: c.random.randrange(len(whole))])
    await asyncio.sleep(HOLD)


@fault(8)
async def drip(c: Connection, r: Request, message: bytes) -> None:
    c.write(head(200, "Content-Type: application/json", length=len(message) + 1000))
    for at in range(100):
        c.write(message[at : at + 1])
        await asyncio.sleep(0.1)


@fault(8)
async def drip_stream(c: Connection, r: Request, message: bytes) -> None:
    c.write(STREAM)
    for _ in range(100):
        c.write(chatter(c.random, r))
        await asyncio.sleep(0.1)


@fault(8)
async def drip_refusal(c: Connection, r: Request, message: bytes) -> None:
    status = c.random.choice(STATUSES[6:])
    c.write(head(status, f"Content-Type: {c.random.choice(('application/json', 'text/html'))}", length=10**6))
    for _ in range(100):
        c.write(b" ")
        await asyncio.sleep(c.random.choice((0.1, 2)))


@fault(30)
async def short_body(c: Connection, r: Request, message: bytes) -> None:
    more = c.random.randint(1, 1000)
    c.write(head(200, "Content-Type: application/json", length=len(message) + more) + message)
    c.end()


@fault(30)
async def cut_anywhere(c: Connection, r: Request, message: bytes) -> None:
    whole = head(200, "Content-Type: application/json", length=len(message)) + message
    c.write(whole[: c.random.randrange(len(whole))])
    if c.random.random() < 0.5:
        await asyncio.sleep(c.random.uniform(0, 0.05))
    c.end()


@fault(20)
async def cut_chunks(c: Connection, r: Request, message: bytes) -> None:
    whole = CHUNKED + chunk(message) + b"0\r\n"
    c.write(whole[: c.random.randrange(len(CHUNKED), len(whole))])
    c.end()


@fault(20)
async def cut_stream(c: Connection, r: Request, message: bytes) -> None:
    said = b"".join(chatter(c.random, r) for _ in range(3)) + b"data: " + message
    c.write(STREAM + said[: c.random.randrange(len(said))])
    c.end()


@fault(20)
async def ended_at_once(c: Connection, r: Request, message: bytes) -> None:
    await asyncio.sleep(c.random.choice((0, 0.01, 0.1)))
    c.end()


@fault(10)
async def stream_without_answer(c: Connection, r: Request, message: bytes) -> None:
    c.write(CHUNKED_STREAM + chunk(chatter(c.random, r)) + b"0\r\n\r\n")


# --- lies -------------------------------------------------------------------------------------------------------------


def _lies(r: Request) -> tuple[bytes, ...]:
    request_id: int = r.id
    lie = envelope(request_id, "result", LIE)
    own = b'"id":%d' % request_id
    return (
        envelope(request_id + 1, "result", LIE),
        envelope(max(1, request_id - 1), "result", LIE),
        envelope(str(request_id), "result", LIE),
        envelope(None, "result", LIE),
        envelope(float(request_id), "result", LIE),
        lie.replace(own + b",", b""),
        lie.replace(b'"2.0"', b'"1.0"'),
        lie.replace(b'"2.0"', b"2.0"),
        lie.replace(b'"jsonrpc":"2.0",', b""),
        lie.replace(own, own + b"," + own),
        lie[:-1] + b',"result":' + LIE + b"}",
        lie[:-1] + b',"r\\u0065sult":' + LIE + b"}",
        lie[:-1] + b',"error":{"code":1,"message":"both"}}',
        envelope(request_id, "results", LIE),
        envelope(request_id, "result", b"[" + LIE + b"]"),
        envelope(request_id, "result", b"null"),
        envelope(request_id, "result", b'"text"'),
        # Older revisions know no types of results.
        b"{}" if "mcp-session-id" in r.headers else envelope(request_id, "result", b'{"resultType":"partial"}'),
        b"" if "mcp-session-id" in r.headers else envelope(request_id, "result", b'{"resultType":"input_required"}'),
        envelope(request_id, "error", b'"text"'),
        envelope(request_id, "error", b'{"code":"1","message":"text"}'),
        b"[" + lie + b"," + lie + b"]",
        b"[]",
        b"null",
        b"",
        b" ",
        b"\xff\xfe" + lie,
        lie.replace(b'"lie"', b'"\xc3\x28"'),
        lie + lie,
        lie[:-1],
        lie.replace(b":true", b":NaN"),
        lie.replace(b":true", b":tru"),
        b"[" * 20_000,
        b'{"a":' * 10_000,
        b"<html>it works</html>",
    )


@fault(60)
async def lie_json(c: Connection, r: Request, message: bytes) -> None:
    c.reply(c.random.choice(_lies(r)), c.random.choice((200, 200, 200, 500)))


@fault(30)
async def lie_stream(c: Connection, r: Request, message: bytes) -> None:
    said = b"".join(chatter(c.random, r) for _ in range(c.random.randint(0, 2)))
    lie = event(c.random, c.random.choice(_lies(r)).replace(b"\r", b"").replace(b"\n", b""))
    await c.pieces(CHUNKED_STREAM + chunk(said + lie) + b"0\r\n\r\n")


@fault(20)
async def lie_page(c: Connection, r: Request, message: bytes) -> None:
    media = c.random.choice(("text/html", "text/plain", "application/octet-stream", "application/jsonp", "", None))
    c.reply(c.random.choice((b"<html>log in</html>", message, b"")), media=media)


@fault(12)
async def lie_gzip(c: Connection, r: Request, message: bytes) -> None:
    body = c.random.choice((b"garbage", gzip.compress(message)[:-40], message, gzip.compress(b" " * 2**21)))
    c.reply(body, 200, f"Content-Encoding: {c.random.choice(('gzip', 'deflate'))}")


@fault(12)
async def lie_no_http(c: Connection, r: Request, message: bytes) -> None:
    c.write(
        c.random.choice((b"\0" * 100, b"SSH-2.0-x\r\n", message, b"HTTP/9 x\r\n\r\n", b"HTTP/1.1 200\r\nx\r\n\r\n"))
    )
    await asyncio.sleep(c.random.choice((0, HOLD)))
    c.end()


@fault(10)
async def lie_head(c: Connection, r: Request, message: bytes) -> None:
    lie = envelope(r.id, "result", LIE)
    kind = "Content-Type: application/json"
    c.write(
        c.random.choice(
            (
                head(200, kind, "X: " + "x" * 200_000, length=len(lie)),
                head(200, kind, f"Content-Length: {len(lie) + 1}", length=len(lie) - 1),
                head(200, kind, "Content-Length: -5"),
                head(200, kind, "Content-Length: many"),
                head(200, kind, "Transfer-Encoding: chunked") + b"zz\r\n",
                head(200, kind, "Transfer-Encoding: chunked", length=len(lie)),
            )
        )
        + lie[:-3]
    )
    c.end()


@fault(6)
async def lie_length(c: Connection, r: Request, message: bytes) -> None:
    """A body that is longer than it says: its rest stands where the next answer should begin."""
    c.poisoned = True
    c.write(head(200, "Content-Type: application/json", length=len(message) // 2) + message)


@fault(10)
async def huge(c: Connection, r: Request, message: bytes) -> None:
    first, piece = c.random.choice(
        (
            (head(200, "Content-Type: application/json", length=10**9), b" " * 60_000),
            (CHUNKED, chunk(b" " * 60_000)),
            (STREAM, b": " + b"x" * 60_000),
            (STREAM, b"data: " + b"x" * 9000 + b"\n"),
            (STREAM, event(c.random, notice("message", data="x" * 9000))),
            (head(404, "Content-Type: application/json", length=10**9), b" " * 60_000),
        )
    )
    c.write(first)
    for _ in range(40):
        c.write(piece)
        await asyncio.sleep(0.002)


# --- refusals ---------------------------------------------------------------------------------------------------------


@fault(50)
async def refused(c: Connection, r: Request, message: bytes) -> None:
    status = c.random.choice(STATUSES)
    body = c.random.choice((b"", b"<html>no</html>", b'{"error":"invalid_token"}', envelope(r.id, "result", LIE)))
    body = b"" if status in (204, 304) else body
    more = ["WWW-Authenticate: Bearer"] if status in (401, 403) else []
    c.reply(body, status, *more, media=c.random.choice(("text/html", "application/json", None)))


@fault(15)
async def refused_429(c: Connection, r: Request, message: bytes) -> None:
    c.reply(b"slow down", 429, f"Retry-After: {c.random.choice(RETRY_AFTER)}", media="text/plain")


@fault(10)
async def refused_elsewhere(c: Connection, r: Request, message: bytes) -> None:
    there = c.random.choice(
        ("/mcp", f"/mcp/{c.random.random()}", "http://192.0.2.1/mcp", "//", "", "ftp://x", "http://[")
    )
    c.reply(b"", c.random.choice((301, 302, 303, 307, 308)), f"Location: {there}", media=None)


@fault(30)
async def refused_rpc(c: Connection, r: Request, message: bytes) -> None:
    error = {"code": c.random.choice(RPC_CODES), "message": "no", "data": {"supported": ["2025-11-25", "2026-07-28"]}}
    request_id = c.random.choice((r.id, r.id, None))
    c.reply(envelope(request_id, "error", json.dumps(error).encode()), c.random.choice((200, 200, 400, 404, 500)))


class Server:
    """One port."""

    def __init__(self, rng: random.Random, *, legacy: bool) -> None:
        self.random = rng
        self.legacy = legacy
        self.connections: set[Connection] = set()
        self.failures: list[str] = []
        self.seen: dict[str, list[str]] = {}
        self.cut: dict[str, bytes] = {}
        self.sessions: set[str] = set()
        self.opened = 0
        self._names = list(FAULTS)
        self._weights = [weight for weight, _ in FAULTS.values()]
        self._listening: asyncio.Server | None = None
        self.port = 0

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(partial(Connection, self), "127.0.0.1", self.port, backlog=512)
        self.port = self._listening.sockets[0].getsockname()[1]

    async def come_and_go(self) -> None:
        """Refuse connections now and then."""
        while True:
            await asyncio.sleep(self.random.uniform(0.5, 2))
            assert self._listening is not None
            self._listening.close()
            await asyncio.sleep(self.random.uniform(0.02, 0.12))
            await self.listen()

    async def answer(self, c: Connection, r: Request) -> None:
        if r.method != "POST":
            await self._no_post(c, r)
            return
        nonce = nonce_of(r.message)
        if self.legacy and not self._in_session(r):
            self._note(nonce, "refused_session")
            await self._without_session(c, r)
            return
        if "id" not in r.message:
            c.reply(b"", self.random.choice((202, 202, 202, 400, 500)), media=None)
            return
        name = self.random.choices(self._names, self._weights)[0]
        if r.path != "/mcp":
            name = "sound_redirect"
        self._note(nonce, f"poisoned {name}" if c.poisoned else name)
        await FAULTS[name][1](c, r, envelope(r.id, "result", sound(nonce or "none")))

    def _note(self, nonce: str | None, name: str) -> None:
        if nonce is not None:
            self.seen.setdefault(nonce, []).append(name)

    async def _no_post(self, c: Connection, r: Request) -> None:
        message = self.cut.pop(r.headers.get("last-event-id", ""), None)
        if r.method == "GET" and message is not None and self.random.random() < 0.8:
            await c.pieces(CHUNKED_STREAM + chunk(event(self.random, message)) + b"0\r\n\r\n")
        else:
            self.sessions.discard(r.headers.get("mcp-session-id", ""))
            c.reply(b"", 200 if r.method == "DELETE" else 405, media=None)

    def _in_session(self, r: Request) -> bool:
        session = r.headers.get("mcp-session-id", "")
        if self.random.random() < 0.005:
            self.sessions.discard(session)
        return session in self.sessions

    async def _without_session(self, c: Connection, r: Request) -> None:
        method = r.message.get("method")
        if method == "initialize":
            if self.random.random() < 0.2:
                name = self.random.choices(self._names, self._weights)[0]
                await FAULTS[name][1](c, r, envelope(r.id, "result", sound("none")))
                return
            self.opened += 1
            session = f"session-{self.opened}"
            self.sessions.add(session)
            result = (
                f'{{"protocolVersion":"{REVISION}","capabilities":{{"tools":{{}},"resources":{{}}}},"serverInfo":{{}}}}'
            )
            c.reply(envelope(r.id, "result", result.encode()), 200, f"Mcp-Session-Id: {session}")
        elif method == "server/discover":
            if self.random.random() < 0.1:
                await silent(c, r, b"")
            error = b'{"code":-32000,"message":"Bad Request: Server not initialized"}'
            c.reply(envelope(None, "error", error), 400)
        else:
            error = b'{"code":-32600,"message":"Session not found"}'
            c.reply(envelope(r.id, "error", error), self.random.choice((404, 400)))


async def main(seed: str, modern: int, legacy: int) -> None:
    loop = asyncio.get_running_loop()
    servers = [Server(random.Random(f"{seed} {number}"), legacy=number >= modern) for number in range(modern + legacy)]
    for server in servers:
        await server.listen()
    moods = [loop.create_task(server.come_and_go()) for server in servers]
    say([server.port for server in servers])
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.readline():
        say(
            {
                "seen": {nonce: names for server in servers for nonce, names in server.seen.items()},
                "connections": sum(len(server.connections) for server in servers),
                "failures": [failure for server in servers for failure in server.failures],
                "sessions": sum(server.opened for server in servers),
            }
        )
    for mood in moods:
        mood.cancel()


def say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
