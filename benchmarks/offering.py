"""An MCP server whose tools and results are as large as it is told, and a collector that takes what it is sent.

It answers with as little work as it can, so that what is measured is who asks. `/offer?tools=N` sets how many tools it
has; `/offer?changed=N` gives the first N of them another definition; `/taken` tells how often something was sent to
it as to a collector.
"""

from __future__ import annotations

import json
import sys
from typing import Any
from urllib.parse import parse_qsl

from starlette.types import Message, Receive, Scope, Send

from examples.sample_server import serve

__all__ = ("Offering",)

PAGE = 100
"""Tools on a page of the list."""

REVISION = "2026-07-28"

FRESH = {"ttlMs": 3_600_000, "cacheScope": "private"}
"""Nobody lists the tools for being old while something is measured."""

Answer = tuple[int, bytes]


class Offering:
    """The application (ASGI)."""

    def __init__(self) -> None:
        self._definitions: list[bytes] = []
        self._changes = 0
        self._taken = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        body = await _body(receive)
        status, answer = self._answer(scope["path"], scope["query_string"].decode(), body)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    def _answer(self, path: str, query: str, body: bytes) -> Answer:
        if path == "/mcp":
            return self._answer_mcp(json.loads(body))
        if path == "/taken":
            return 200, str(self._taken).encode()
        if path == "/offer":
            self._offer(**{name: int(value) for name, value in parse_qsl(query)})
        else:
            self._taken += 1
        # To who sends to a collector, an empty answer is one that took all of it.
        return 200, b""

    def _offer(self, tools: int | None = None, changed: int = 0) -> None:
        if tools is not None:
            self._definitions = [_definition(number, 0) for number in range(tools)]
        self._changes += 1
        for number in range(changed):
            self._definitions[number] = _definition(number, self._changes)

    def _answer_mcp(self, request: Any) -> Answer:
        match request["method"]:
            case "server/discover":
                result = _json(
                    resultType="complete",
                    supportedVersions=[REVISION],
                    capabilities={"tools": {}},
                    _meta={"io.modelcontextprotocol/serverInfo": {"name": "offering", "version": "1"}},
                    **FRESH,
                )
            case "tools/list":
                result = self._page(int(request["params"].get("cursor", 0)))
            case "tools/call":
                # A million letters are written faster by hand than by an encoder.
                text = b"x" * int(request["params"].get("arguments", {}).get("bytes", 0))
                result = b'{"resultType":"complete","content":[{"type":"text","text":"%b"}],"isError":false}' % text
            case _:
                error = {"code": -32601, "message": "no such method"}
                return 404, json.dumps({"jsonrpc": "2.0", "id": request.get("id"), "error": error}).encode()
        return 200, b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (json.dumps(request["id"]).encode(), result)

    def _page(self, start: int) -> bytes:
        following = start + PAGE
        more = {"nextCursor": str(following)} if following < len(self._definitions) else {}
        tools = b",".join(self._definitions[start:following])
        return b'{"tools":[%b],%b' % (tools, _json(resultType="complete", **more, **FRESH)[1:])


def _definition(number: int, version: int) -> bytes:
    """A tool of about a kilobyte, as servers have them."""
    words = f"Version {version} of tool {number} does what it says, and says it at some length. "
    properties = {f"argument_{index}": {"type": "string", "description": words} for index in range(6)}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return _json(name=f"tool_{number}", description=words * 3, inputSchema=schema)


def _json(**members: Any) -> bytes:
    return json.dumps(members).encode()


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    while True:
        message: Message = await receive()
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


if __name__ == "__main__":
    sys.exit(serve(Offering(), "127.0.0.1", 0))
