"""The MCP server that every variant calls: the sample server with JSON answers, and a count of its POSTs."""

from __future__ import annotations

import json
import sys

from starlette.types import ASGIApp, Receive, Scope, Send

from examples.sample_server import sample_server, serve

__all__ = ("Counter",)


class Counter:
    """ASGI middleware that counts POSTs and tells the count at `/count`."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.posts = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Count a request and pass it on."""
        if scope["type"] == "http" and scope["path"] == "/count":
            headers = [(b"content-type", b"application/json")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": json.dumps({"posts": self.posts}).encode()})
            return
        if scope["type"] == "http" and scope["method"] == "POST":
            self.posts += 1
        await self.app(scope, receive, send)


if __name__ == "__main__":
    sys.exit(serve(Counter(sample_server().streamable_http_app(json_response=True)), "127.0.0.1", 0))
