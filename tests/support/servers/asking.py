"""A server on the official SDK, with a tool that asks twice; it journals every message with the answer that it gave.

    python -m tests.support.servers.asking PORT JOURNAL [forgetful]

What it asks it may be told after a restart, unless it is forgetful, as servers on the SDK are by default: then nothing
opens the state of its own requests any more that it had sealed before.
"""

from __future__ import annotations

import json
import sys
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from mcp.server.request_state import RequestStateSecurity
from pydantic import BaseModel, Field
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from examples.sample_server import serve

LASTING = RequestStateSecurity(keys=[b"k" * 32], ttl=86_400.0)


class When(BaseModel):
    """What it asks first."""

    day: date
    nights: int = Field(ge=1, le=14)


class Room(BaseModel):
    """What it asks once it knows that."""

    beds: Literal["one", "two"]


def ask_when(city: str) -> Elicit[When]:
    """Ask for the time."""
    return Elicit(f"When in {city}?", When)


def ask_room(when: Annotated[ElicitationResult[When], Resolve(ask_when)]) -> Elicit[Room]:
    """Ask for the room, then."""
    return Elicit(f"Which room? (first: {when.action})", Room)


def book(
    city: str,
    when: Annotated[ElicitationResult[When], Resolve(ask_when)],
    room: Annotated[ElicitationResult[Room], Resolve(ask_room)],
) -> dict[str, Any]:
    """Books a room."""
    told = {"when": when, "room": room}
    return {"city": city, **{name: one.model_dump(mode="json", exclude_none=True) for name, one in told.items()}}


def journaled(app: ASGIApp, journal: Path) -> ASGIApp:
    """Writes a line of JSON before the answer leaves."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        asked, sent = bytearray(), bytearray()

        async def hear() -> Message:
            message = await receive()
            asked.extend(message.get("body", b""))
            return message

        async def tell(message: Message) -> None:
            sent.extend(message.get("body", b""))
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                with journal.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"asked": asked.decode(), "answered": sent.decode()}) + "\n")
            await send(message)

        await app(scope, hear, tell)

    async def lifespan_too(scope: Scope, receive: Receive, send: Send) -> None:
        await (answer if scope["type"] == "http" else app)(scope, receive, send)

    return lifespan_too


if __name__ == "__main__":
    port, journal, *forgetful = sys.argv[1:]
    server: MCPServer[Any] = MCPServer(
        "asking", log_level="WARNING", request_state_security=None if forgetful else LASTING
    )
    server.tool()(book)
    sys.exit(serve(journaled(server.streamable_http_app(json_response=True), Path(journal)), "127.0.0.1", int(port)))
