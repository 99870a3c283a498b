"""What every way to a server has in common: a request goes out on agreed terms, the message that answers it comes back.

Owns the shapes and the promises; knows no socket, no process and no message's content.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from openwop_mcp.config import Timeouts
from openwop_mcp.protocol.revisions import MODERN

__all__ = ("Authorizer", "Incoming", "OnMessage", "Outgoing", "SizeLimits", "StaleTermsError", "Terms", "Wire")

OnMessage = Callable[[bytes], None]
"""Takes a message that is not the answer: a notification, or what an older server asks of its client."""


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """Bytes; an answer as a whole, and one event of a stream or one line."""

    response_bytes: int
    event_bytes: int


@dataclass(frozen=True, slots=True)
class Terms:
    """On what requests to a server are agreed.

    Attributes:
        revision: Revision of MCP that each of them declares.
        session_id: What the server calls the session (revisions before 2026-07-28, Streamable HTTP), if it has one.
        generation: What the wire's ``open`` said when they were agreed; another number voids them.
        capabilities: The server's, as JSON text, where a handshake told them; a client uses no others.
    """

    revision: str
    session_id: str | None = None
    generation: int = 0
    capabilities: bytes = b"{}"

    @property
    def legacy(self) -> bool:
        """Whether they come from a handshake."""
        return self.revision != MODERN


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One JSON-RPC request.

    Attributes:
        request_id: Its id, which no other request of this client has.
        method: Its method.
        body: The message.
        terms: What it was made for. An ``initialize`` has terms of the revision that it offers.
        name: What ``Mcp-Name`` mirrors, for the methods that have it.
        headers: More headers of this one request, such as ``Mcp-Param-*``; stdio has none.
        on_connected: Called when there is a connection to send it on, once or again where it is redirected.
    """

    request_id: int
    method: str
    body: bytes
    terms: Terms
    name: str | None = None
    headers: Sequence[tuple[str, str]] = ()
    on_connected: Callable[[], None] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Incoming:
    """The message that answers a request.

    Attributes:
        message: Its bytes.
        status: HTTP status; 0 over stdio.
        session_id: The session that an answer to ``initialize`` opened.
        distrust: To call where it answers another request: what it came on is not used again, as what comes next may be
            the answer that should have come.
    """

    message: bytes
    status: int = 0
    session_id: str | None = None
    distrust: Callable[[], None] = field(default=lambda: None, compare=False)


class StaleTermsError(Exception):
    """What was agreed is void: the server's process is another one now. The request was not sent."""


class Authorizer(Protocol):
    """Has the token that a server's requests carry. One server's wire asks it, for many requests at once."""

    @property
    def context(self) -> int:
        """A number that changes with issuer, client, subject or scopes of the token, and not when it is refreshed."""
        ...

    async def header(self) -> tuple[str, str] | None:
        """The header that carries the token; None to ask without one, and see what the server wants.

        Fetches or refreshes a token if that is known to be needed.

        Raises:
            AuthorizationError: There is no token; nothing was sent.
            EgressDeniedError: The settings do not allow to ask for one.
        """
        ...

    async def refused(self, status: int, challenges: Sequence[str], sent: str | None) -> bool:
        """Hear that the server refused a request. Whoever asks bounds how often one request is tried.

        Args:
            status: 401 or 403.
            challenges: The values of ``WWW-Authenticate``.
            sent: The header value that was refused.

        Returns:
            Whether to try again with :meth:`header`; False if the refusal is not about the token.

        Raises:
            AuthorizationError: It is, and no other token can be had.
            EgressDeniedError: The settings do not allow to ask for one.
        """
        ...

    async def close(self) -> None:
        """Give up what is under way."""
        ...


class Wire(Protocol):
    """A way to one server. One client owns it and closes it.

    Attributes:
        on_unmatched: Takes messages that belong to no request: changes of lists, log messages, and what an older server
            asks of its client.
    """

    on_unmatched: OnMessage | None

    @property
    def http(self) -> bool:
        """Whether it is Streamable HTTP, with headers that mirror a request."""
        ...

    @property
    def origin(self) -> str:
        """What the server is known by: scheme, host and port, or its command. Holds no credential."""
        ...

    @property
    def context(self) -> int:
        """The authorization context: a number that changes when the credential changes what may be seen."""
        ...

    async def open(self, limits: Timeouts) -> int:
        """See to it that there is something to talk to; says which generation of it.

        Raises:
            McpError: There is nothing, and nothing was sent.
        """
        ...

    async def exchange(self, out: Outgoing, *, limits: Timeouts, on_message: OnMessage | None = None) -> Incoming:
        """Send a request and wait for the message that answers it. To be cancelled is to give the request up.

        Raises:
            StaleTermsError: See there.
            McpError: Any of the tree; ``delivery`` says what is known of the request.
        """
        ...

    async def tell(self, message: bytes, terms: Terms, limits: Timeouts) -> None:
        """Send a notification without which the server is of no use.

        Raises:
            StaleTermsError: See there.
            McpError: It was not taken, as far as can be known.
        """
        ...

    async def notify(self, message: bytes, terms: Terms) -> None:
        """Send a notification, or the answer to what an older server asked; to fail at it is no fault of a call."""
        ...

    def attend(self, terms: Terms) -> None:
        """Hear what a server of an older revision asks beside requests, where that takes a stream of its own.

        Messages go to ``on_unmatched``. A server that has no such stream is none the worse for it.
        """
        ...

    async def end(self, terms: Terms) -> None:
        """End a session that the server still keeps; to fail at it is no fault of a call."""
        ...

    async def close(self) -> None:
        """Let go of what is held."""
        ...
