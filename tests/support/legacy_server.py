"""A handler for the fake server that speaks the revisions with a handshake, in the ways that real servers do.

Knows nothing of the pack.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.support.fake_server import Reply, Request, error_reply, result_reply

__all__ = ("REFUSALS", "LegacyServer")

LEGACY = ("2025-11-25", "2025-06-18", "2025-03-26")


def _json(status: int, body: str, headers: Sequence[tuple[str, str]] = ()) -> Reply:
    return Reply(status=status, headers=[("Content-Type", "application/json"), *headers], body=body.encode())


REFUSALS: dict[str, Callable[[], Reply]] = {
    "TypeScript": lambda: _json(
        400,
        '{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}',
    ),
    "Python with sessions": lambda: _json(
        400,
        '{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: Missing session ID"}}',
        [("mcp-session-id", "a-session-nobody-asked-for")],
    ),
    "Python without sessions": lambda: _json(
        400,
        '{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: Unsupported protocol'
        ' version: 2026-07-28. Supported versions: 2025-11-25"}}',
    ),
    "no body": lambda: Reply(status=400),
    "text": lambda: Reply(status=400, headers=[("Content-Type", "text/plain")], body=b"no session"),
    "not found": lambda: Reply(status=404, headers=[("Content-Type", "text/html")], body=b"<h1>404</h1>"),
    "not allowed": lambda: Reply(status=405),
    "not acceptable": lambda: Reply(status=406),
    "an error in a 200": lambda: _json(
        200, '{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}'
    ),
    "invalid params": lambda: _json(
        400, '{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"Invalid request parameters"}}'
    ),
}
"""What servers of before 2026-07-28 answer to ``server/discover``."""


@dataclass
class LegacyServer:
    """One server. Call it as a handler; it judges what it is sent and keeps what was wrong in ``faults``.

    `results` by method are exact results or functions of the request. `refusal` is one of REFUSALS. `dead` is what it
    says to a session that it does not know.
    """

    revisions: Sequence[str] = LEGACY
    refusal: str = "TypeScript"
    sessions: bool = True
    dead: int = 404
    capabilities: str = '{"tools":{},"resources":{},"prompts":{},"completions":{},"logging":{}}'
    results: dict[str, bytes | Callable[[Request], Reply | None]] = field(default_factory=dict)
    live: set[str] = field(default_factory=set)
    opened: int = 0
    ended: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notified: asyncio.Event = field(default_factory=asyncio.Event)
    agreed: str = ""

    async def __call__(self, request: Request) -> Reply | None:
        if request.method == "POST":
            return self._post(request)
        session = request.header("Mcp-Session-Id") or ""
        if request.method == "DELETE":
            self.ended.append(session)
            self.live.discard(session)
            return Reply(status=200)
        answer = self.results.get("GET")
        return answer(request) if callable(answer) else Reply(status=405)

    def _post(self, request: Request) -> Reply | None:
        session = request.header("Mcp-Session-Id")
        message = request.json
        method = message.get("method", "a response")
        self.seen.append(method)
        if method == "initialize":
            return self._initialize(request)
        if method == "server/discover" or "io.modelcontextprotocol/protocolVersion" in str(request.body):
            return REFUSALS[self.refusal]()
        if self.sessions and session not in self.live:
            return self._dead(request, session)
        self._judge(request)
        if "id" not in message or "method" not in message:
            self.notified.set()
            return Reply(status=202)
        answer = self.results.get(method, b'{"tools":[]}' if method.endswith("list") else b'{"content":[]}')
        return answer(request) if callable(answer) else result_reply(request, answer, "sse")

    def _initialize(self, request: Request) -> Reply:
        wanted = request.json["params"]["protocolVersion"]
        if request.header("MCP-Protocol-Version") is not None:
            self.faults.append("initialize says a revision in a header")
        if request.header("Mcp-Session-Id") is not None:
            self.faults.append("initialize has a session")
        self.agreed = wanted if wanted in self.revisions else self.revisions[0]
        self.opened += 1
        result = (
            f'{{"protocolVersion":{json.dumps(self.agreed)},"capabilities":{self.capabilities},'
            '"serverInfo":{"name":"old","version":"1"}}'
        )
        reply = result_reply(request, result.encode(), "sse")
        if not self.sessions:
            return reply
        session = f"session-{self.opened}"
        self.live.add(session)
        return Reply(headers=[*reply.headers, ("Mcp-Session-Id", session)], chunks=reply.chunks)

    def _dead(self, request: Request, session: str | None) -> Reply:
        if session is None:
            return error_reply(request, -32000, "Bad Request: Mcp-Session-Id header is required", status=400)
        if self.dead == 404:
            return error_reply(request, -32600, "Session not found", status=404)
        return error_reply(request, -32000, "Bad Request: No valid session ID provided", status=self.dead)

    def _judge(self, request: Request) -> None:
        version = request.header("MCP-Protocol-Version")
        if version != (self.agreed if self.agreed >= "2025-06-18" else None):
            self.faults.append(f"{request.json.get('method')} says revision {version}, agreed is {self.agreed}")
        if request.header("Mcp-Method") is not None:
            self.faults.append("a header of a later revision")
        if "io.modelcontextprotocol" in request.body.decode():
            self.faults.append("a _meta of a later revision")
