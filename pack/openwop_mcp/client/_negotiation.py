"""On what terms to talk with one server: finds out which era it is of, agrees with it, remembers, and forgets.

Owns the memory and the handshake of the older revisions. Asks through a function that it is given, and knows no wire.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from openwop_mcp import jsontext
from openwop_mcp.client._wire import Incoming, Terms
from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import (
    FIRST_SERVER_ERROR,
    HttpStatusError,
    MalformedAnswerError,
    McpError,
    NoCommonRevisionError,
    RpcError,
    TimeLimitError,
)
from openwop_mcp.protocol import eras, messages, revisions

__all__ = ("Ask", "Negotiator", "offered", "shown")

REMEMBERED = 3600.0
"""Seconds that the outcome is remembered: a server that was upgraded is met anew within an hour, and one that was not
costs a probe an hour."""

STDIO_PATIENCE = 10.0
"""Seconds that a local process may take for its first answer before it is taken for one of an older revision (MCP
2026-07-28, stdio, backward compatibility). Programs that install themselves at their first start take a few."""

PROBE = "server/discover"
"""Has no effect, and every modern server answers it."""

NOT_UNDERSTOOD = frozenset({-32700, -32600, messages.METHOD_NOT_FOUND})
"""Parse error, invalid request, method not found (JSON-RPC 2.0, section 5.1): who says so has not taken terms that were
only assumed. A server of another revision says it of messages that are new to it."""

MAX_SHOWN = 10
"""Revisions shown of those that a server claims to speak: more are no help, and a server decides how many it names."""

SESSION_ID = re.compile(r"[\x21-\x7e]+")
"""Visible ASCII (MCP 2025-11-25, Streamable HTTP, sessions)."""


class Ask(Protocol):
    """Sends one request on the given terms and judges its answer."""

    def __call__(
        self, terms: Terms, method: str, members: Sequence[tuple[str, bytes]], limits: Timeouts
    ) -> Awaitable[tuple[bytes, Incoming]]:
        """The exact bytes of the result, and the message that they came in."""
        ...


@dataclass(frozen=True, slots=True)
class _Known:
    terms: Terms
    until: float


@dataclass(frozen=True, slots=True)
class _Probed:
    """What a probe said: the era, the revisions that were named, and whether ours was refused for them."""

    verdict: eras.Verdict
    named: list[str]
    refused: bool = False


class Negotiator:
    """Agrees with one server.

    Args:
        ask: Sends a request.
        introduce: Tells the server that a handshake is done, on the terms that it agreed to.
        leave: Tells the server that a handshake led to nothing.
        client_info: JSON text of ``Implementation``.
        capabilities: JSON text of what the client declares.
        floor: The oldest revision that the settings allow.
        http: Whether the server is reached over HTTP, where modern terms need no agreement.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        ask: Ask,
        introduce: Callable[[Terms, Timeouts], Awaitable[None]],
        leave: Callable[[Terms], Awaitable[None]],
        *,
        client_info: bytes,
        capabilities: bytes,
        floor: str,
        http: bool,
        clock: Callable[[], float],
    ) -> None:
        self._ask = ask
        self._introduce = introduce
        self._leave = leave
        self._client_info = client_info
        self._capabilities = capabilities
        self._floor = floor
        self._http = http
        self._clock = clock
        self._known: _Known | None = None
        self._lock = asyncio.Lock()
        self._assumed = Terms(revisions.MODERN)

    @property
    def terms(self) -> Terms | None:
        """What was agreed last, if it stands."""
        return self._known.terms if self._known is not None else None

    def standing(self, generation: int) -> Terms | None:
        """The terms to send a request on, where none need be found out.

        They are those that are remembered. Over HTTP, where the settings allow no older revision, the request asks.
        """
        known = self._known
        if known is not None and known.terms.generation == generation and self._clock() < known.until:
            return known.terms
        return self._assumed if self._http and self._floor == revisions.MODERN else None

    async def agree(self, generation: int, limits: Timeouts) -> Terms:
        """New terms, unless someone else has agreed on them meanwhile.

        Raises:
            McpError: There is no agreement, or none could be sought.
        """
        async with self._lock:
            standing = self.standing(generation)
            if standing is not None:
                return standing
            known = self._known
            previous = known.terms if known is not None and known.terms.generation == generation else None
            return self._remember(await self._found_out(generation, limits, previous))

    def confirm(self, terms: Terms) -> None:
        """An answer came that only a server of this era gives: what was assumed is known now."""
        if terms is self._assumed and self._known is None:
            self._remember(terms)

    def took(self, terms: Terms, method: str, error: RpcError) -> bool:
        """Whether an error that stands is the server's answer on these terms. It depends on the answer alone.

        An error of HTTP that may come from something before the server, or from one that wants something else first,
        says nothing of the terms.
        """
        status = error.http_status if self._http else None
        if status is not None and (status in eras.NO_EVIDENCE or status >= FIRST_SERVER_ERROR):
            return False
        if error.rpc_code == messages.UNSUPPORTED_REVISION:
            return False
        verdict = eras.judge(_answered(error, http=self._http), probe=method == PROBE)
        if terms.legacy or verdict == "modern":
            return True
        agreed = not self._http or self._floor != revisions.MODERN
        return verdict == "none" and (agreed or error.rpc_code not in NOT_UNDERSTOOD)

    def forget(self, terms: Terms) -> None:
        """What was agreed does not stand."""
        if self._known is not None and self._known.terms == terms:
            self._known = None

    async def renewed(self, terms: Terms, limits: Timeouts) -> Terms:
        """Terms in place of a session that the server does not know any more.

        Raises:
            McpError: There is no agreement, or none could be sought.
        """
        async with self._lock:
            if self._known is not None and self._known.terms != terms:
                return self._known.terms
            self._known = None
            try:
                return self._remember(await self._handshake(terms.revision, terms.generation, limits))
            except (RpcError, HttpStatusError):
                # It does not know the handshake either: perhaps it is of the other era by now.
                return self._remember(await self._found_out(terms.generation, limits, None))

    async def contradicted(self, terms: Terms, method: str, error: McpError, limits: Timeouts) -> Terms | None:
        """Judge the refusal of a request of revision 2026-07-28: other terms to send it on, or None where it stands.

        Raises:
            NoCommonRevisionError: The server speaks only what the settings do not allow.
            McpError: What could be found out could not be asked.
        """
        if isinstance(error, RpcError) and error.rpc_code == messages.UNSUPPORTED_REVISION:
            return await self._chosen(terms, error, limits)
        if eras.judge(_answered(error, http=self._http), probe=method == PROBE) != "legacy":
            return None
        if self._floor == revisions.MODERN:
            if isinstance(error, HttpStatusError):
                # No other era is allowed, and a bare status may come from no server of MCP: it says what there is.
                return None
            if method == PROBE:
                raise NoCommonRevisionError(
                    requested=terms.revision, supported=[], floor=self._floor, legacy=True
                ) from error
        async with self._lock:
            if self._known is not None and self._known.terms is not terms and self._known.terms.legacy:
                return self._known.terms
            found = await self._found_out(terms.generation, limits, None)
            self._remember(found)
            return found if found.legacy else None

    async def _chosen(self, terms: Terms, error: RpcError, limits: Timeouts) -> Terms:
        """Terms of a revision that the server named when it refused ours."""
        named = offered(error.error, "data", "supported")
        choice = revisions.choose(named, floor=self._floor)
        if choice is None:
            self.forget(terms)
            raise NoCommonRevisionError(requested=terms.revision, supported=shown(named), floor=self._floor) from error
        if choice == revisions.MODERN:
            return terms
        async with self._lock:
            return self._remember(await self._handshake(choice, terms.generation, limits))

    async def _found_out(self, generation: int, limits: Timeouts, previous: Terms | None) -> Terms:
        """Ask the server which era it is of, and agree with it."""
        modern = Terms(revisions.MODERN, generation=generation)
        began = self._clock()
        probed = await self._probe(modern, limits)
        choice = revisions.choose(probed.named, floor=self._floor)
        if choice == revisions.MODERN or (probed.verdict == "modern" and not probed.refused):
            return modern
        if self._floor == revisions.MODERN or (probed.refused and choice is None):
            raise NoCommonRevisionError(
                requested=revisions.MODERN,
                supported=shown(probed.named),
                floor=self._floor,
                legacy=probed.verdict == "legacy",
            )
        if previous is not None and previous.legacy:
            return previous
        left = limits.narrowed(max(0.001, limits.total - (self._clock() - began)))
        return await self._handshake(choice or revisions.LEGACY[0], generation, left)

    async def _probe(self, terms: Terms, limits: Timeouts) -> _Probed:
        """Find out the era."""
        patience = limits if self._http else limits.narrowed(min(STDIO_PATIENCE, limits.total))
        try:
            result, _ = await self._ask(terms, PROBE, [], patience)
        except (RpcError, HttpStatusError) as error:
            verdict = eras.judge(_answered(error, http=self._http), probe=True)
            bare = isinstance(error, HttpStatusError) and self._floor == revisions.MODERN
            if verdict == "none" or (verdict == "legacy" and bare):
                # No server of MCP need be behind a bare status, and where no other era is allowed it says enough.
                raise
            refused = isinstance(error, RpcError) and error.rpc_code == messages.UNSUPPORTED_REVISION
            return _Probed(
                verdict, offered(error.error, "data", "supported") if isinstance(error, RpcError) else [], refused
            )
        except TimeLimitError:
            if self._http or patience.total == limits.total:
                raise
            # Over stdio, and only there, silence is an answer.
            return _Probed("legacy", [])
        named = offered(result, "supportedVersions")
        found = eras.Answered(None, result=True, offered=named)
        return _Probed(eras.judge(found, probe=True), named)

    async def _handshake(self, revision: str, generation: int, limits: Timeouts) -> Terms:
        """``initialize`` (MCP 2025-11-25, lifecycle)."""
        members = [
            ("protocolVersion", jsontext.encode(revision)),
            ("capabilities", self._capabilities),
            ("clientInfo", self._client_info),
        ]
        terms = Terms(revision, generation=generation)
        result, incoming = await self._ask(terms, "initialize", members, limits)
        value = jsontext.member(result, "protocolVersion")
        answered = jsontext.decode(value) if value is not None and jsontext.kind(value) == "string" else ""
        session_id = incoming.session_id
        if session_id is not None and SESSION_ID.fullmatch(session_id) is None:
            raise MalformedAnswerError(
                f"the answer to initialize {messages.FAULTS['invalid_session_id']}",
                fault="invalid_session_id",
                delivery=Delivery.NOT_PROCESSED,
                retryable=False,
            )
        capabilities = jsontext.member(result, "capabilities") or b"{}"
        agreed = Terms(answered, session_id, generation, capabilities)
        if answered not in revisions.LEGACY or answered < self._floor:
            await self._leave(agreed)
            raise NoCommonRevisionError(requested=revision, supported=shown([answered]), floor=self._floor)
        await self._introduce(agreed, limits)
        return agreed

    def _remember(self, terms: Terms) -> Terms:
        self._known = _Known(terms, self._clock() + REMEMBERED)
        return terms


def offered(value: bytes, *path: str) -> list[str]:
    """The revisions that a server names at a place."""
    found = jsontext.pointer(value, path)
    listed = jsontext.decode(found) if found is not None else None
    return [item for item in listed if isinstance(item, str)] if isinstance(listed, list) else []


def shown(named: Sequence[str]) -> list[str]:
    """What may be shown of what a server named."""
    return [messages.excerpt(item.encode("utf-8", "backslashreplace")) for item in named[:MAX_SHOWN]]


def _answered(error: McpError, *, http: bool) -> eras.Answered:
    if isinstance(error, RpcError):
        return eras.Answered(error.http_status if http else None, error.rpc_code)
    return eras.Answered(error.status if isinstance(error, HttpStatusError) and http else None)
