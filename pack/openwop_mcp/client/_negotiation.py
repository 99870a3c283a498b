"""On what terms to talk with one server: finds out which era it is of, agrees with it, remembers, and forgets.

Owns the memory and the handshake of the older revisions. Asks through a function that it is given, and knows no wire.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from openwop_mcp import jsontext
from openwop_mcp.client._room import apart
from openwop_mcp.client._wire import Incoming, StaleTermsError, Terms
from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import (
    FIRST_SERVER_ERROR,
    ConnectionLostError,
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
        leave: Tells the server, without waiting for it, that a session is not used any more.
        limits: Limits in seconds for each request: those of the server, as no caller's are all callers'.
        client_info: JSON text of ``Implementation``.
        capabilities: JSON text of what the client declares.
        floor: The oldest revision that the settings allow.
        http: Whether the server is reached over HTTP, where modern terms need no agreement.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        ask: Ask,
        introduce: Callable[[Terms], Awaitable[None]],
        leave: Callable[[Terms], None],
        *,
        limits: Timeouts,
        client_info: bytes,
        capabilities: bytes,
        floor: str,
        http: bool,
        clock: Callable[[], float],
    ) -> None:
        self._ask = ask
        self._introduce = introduce
        self._leave = leave
        self._limits = limits
        self._client_info = client_info
        self._capabilities = capabilities
        self._floor = floor
        self._http = http
        self._clock = clock
        self._known: _Known | None = None
        self._seeking: asyncio.Task[None] | None = None
        self._shaking: Terms | None = None
        self._unprobed_until = 0.0
        self._assumed = Terms(revisions.MODERN)

    @property
    def terms(self) -> Terms | None:
        """What was agreed last, if it stands."""
        return self._known.terms if self._known is not None else None

    @property
    def speaking(self) -> Terms:
        """On what terms the server speaks now: those of a handshake under way, what was agreed, or what is assumed."""
        return self._shaking or self.terms or self._assumed

    def standing(self, generation: int) -> Terms | None:
        """The terms to send a request on, where none need be found out.

        They are those that are remembered. Over HTTP, where the settings allow no older revision, the request asks.
        """
        known = self._known
        if known is not None and known.terms.generation == generation and self._clock() < known.until:
            return known.terms
        return self._assumed if self._http and self._floor == revisions.MODERN else None

    async def agree(self, generation: int) -> Terms:
        """Terms to send requests on, found out by whoever needs them first.

        Raises:
            StaleTermsError: The server's process ended meanwhile.
            McpError: There is no agreement, or none could be sought.
        """
        while True:
            standing = self.standing(generation)
            if standing is not None:
                return standing
            known = self._known
            previous = known.terms if known is not None and known.terms.generation == generation else None
            await self._landed(lambda: self._found_out(generation, previous))  # noqa: B023 - called within this turn

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
        if error.rpc_code == messages.UNSUPPORTED_REVISION and error.delivery is Delivery.NOT_PROCESSED:
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

    async def renewed(self, terms: Terms, *, gone: bool) -> Terms:
        """Terms in place of those that the server does not take any more.

        Args:
            terms: What does not stand.
            gone: Whether the server said that the session is not there, so that there is none to end.

        Raises:
            McpError: There is no agreement, or none could be sought.
        """

        async def renewal() -> Terms:
            if gone:
                self._known = None
            try:
                return await self._handshake(terms.revision, terms.generation)
            except (RpcError, HttpStatusError):
                # It does not know the handshake either: perhaps it is of the other era by now.
                return await self._found_out(terms.generation, None)

        # By identity: a server may open a session anew under the name that it had.
        while self._known is None or self._known.terms is terms:
            await self._landed(renewal)
        return self._known.terms

    async def upgraded(self) -> Terms | None:
        """Terms of revision 2026-07-28 in place of older ones, if the server speaks it by now; else those stand.

        Raises:
            McpError: It could not be asked.
        """
        before = self.terms
        if before is not None and before.legacy:
            await self._landed(lambda: self._found_out(before.generation, before))
        now = self.terms
        return None if now is None or now.legacy else now

    async def contradicted(self, terms: Terms, method: str, error: McpError) -> Terms | None:
        """Judge the refusal of a request of revision 2026-07-28: other terms to send it on, or None where it stands.

        Raises:
            NoCommonRevisionError: The server speaks only what the settings do not allow.
            McpError: What could be found out could not be asked.
        """
        if isinstance(error, RpcError) and error.rpc_code == messages.UNSUPPORTED_REVISION:
            return await self._chosen(terms, error)
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
        other = self._other(terms)
        if other is None:
            await self._landed(lambda: self._found_out(terms.generation, None))
            other = self._other(terms)
        return other

    def _other(self, terms: Terms) -> Terms | None:
        """What was agreed by a handshake since a request went out on these terms."""
        known = self._known.terms if self._known is not None else None
        return known if known is not None and known.legacy and known != terms else None

    async def _chosen(self, terms: Terms, error: RpcError) -> Terms:
        """Terms of a revision that the server named when it refused ours."""
        named = offered(error.error, "data", "supported")
        choice = revisions.choose(named, floor=self._floor)
        if choice is None:
            self.forget(terms)
            raise NoCommonRevisionError(requested=terms.revision, supported=shown(named), floor=self._floor) from error
        if choice == revisions.MODERN:
            return terms
        if (other := self._other(terms)) is None:
            await self._landed(lambda: self._handshake(choice, terms.generation))
            other = self._other(terms)
        return terms if other is None else other

    async def _landed(self, seek: Callable[[], Coroutine[Any, Any, Terms]]) -> None:
        """Wait for the agreement that is being sought, or seek one.

        It is sought in a task of its own: what one caller's limit cuts short, others wait for, and a server that is
        slow to agree is met once and not by each call anew.
        """
        if self._seeking is None:
            self._seeking = asyncio.get_running_loop().create_task(self._seek(seek()))
            self._seeking.add_done_callback(_looked_at)
        try:
            await asyncio.shield(self._seeking)
        except McpError as error:
            # Each who waits has an error of its own: what is known of its call is not known of another's.
            raise error.again() from error

    async def _seek(self, work: Coroutine[Any, Any, Terms]) -> None:
        try:
            with apart():
                self._remember(await work)
        finally:
            self._seeking = None

    async def _found_out(self, generation: int, previous: Terms | None) -> Terms:
        """Ask the server which era it is of, and agree with it."""
        modern = Terms(revisions.MODERN, generation=generation)
        probed = await self._probe(modern)
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
        return await self._handshake(choice or revisions.LEGACY[0], generation)

    async def _probe(self, terms: Terms) -> _Probed:
        """Find out the era."""
        if self._clock() < self._unprobed_until:
            return _Probed("legacy", [])
        limits = self._limits if self._http else self._limits.narrowed(min(STDIO_PATIENCE, self._limits.total / 2))
        try:
            result, _ = await self._ask(terms, PROBE, [], limits)
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
            if self._http:
                raise
            # Over stdio, and only there, silence is an answer.
            return _Probed("legacy", [])
        except ConnectionLostError:
            if self._http or self._floor == revisions.MODERN:
                raise
            # Some older programs end when they are asked anything before the handshake: the next one is not asked.
            self._unprobed_until = self._clock() + REMEMBERED
            raise StaleTermsError from None
        named = offered(result, "supportedVersions")
        found = eras.Answered(None, result=True, offered=named)
        return _Probed(eras.judge(found, probe=True), named)

    async def _handshake(self, revision: str, generation: int) -> Terms:
        """``initialize`` (MCP 2025-11-25, lifecycle)."""
        members = [
            ("protocolVersion", jsontext.encode(revision)),
            ("capabilities", self._capabilities),
            ("clientInfo", self._client_info),
        ]
        self._shaking = Terms(revision, generation=generation)
        try:
            result, incoming = await self._ask(self._shaking, "initialize", members, self._limits)
            agreed = self._shaking = _agreed(result, incoming, generation)
            if agreed.revision not in revisions.LEGACY or agreed.revision < self._floor:
                self._leave(agreed)
                raise NoCommonRevisionError(requested=revision, supported=shown([agreed.revision]), floor=self._floor)
            try:
                await self._introduce(agreed)
            except BaseException:
                # It would take no request in it, or there will be none.
                self._leave(agreed)
                raise
        except McpError:
            # A server that was not probed may be another by now.
            self._unprobed_until = 0.0
            raise
        finally:
            self._shaking = None
        return agreed

    def _remember(self, terms: Terms) -> None:
        replaced = self._known.terms if self._known is not None else None
        self._known = _Known(terms, self._clock() + REMEMBERED)
        if replaced is not None and replaced.session_id not in {None, terms.session_id}:
            self._leave(replaced)

    async def close(self) -> None:
        """Give up what is being sought."""
        if self._seeking is not None:
            self._seeking.cancel()
            await asyncio.wait([self._seeking])


def _agreed(result: bytes, incoming: Incoming, generation: int) -> Terms:
    """The terms that an answer to ``initialize`` makes."""
    if incoming.session_id is not None and SESSION_ID.fullmatch(incoming.session_id) is None:
        raise MalformedAnswerError(
            f"the answer to initialize {messages.FAULTS['invalid_session_id']}",
            fault="invalid_session_id",
            delivery=Delivery.NOT_PROCESSED,
            retryable=False,
        )
    value = jsontext.member(result, "protocolVersion")
    revision = jsontext.decode(value) if value is not None and jsontext.kind(value) == "string" else ""
    given = jsontext.member(result, "capabilities")
    capabilities = given if given is not None and jsontext.kind(given) == "object" else b"{}"
    return Terms(revision, incoming.session_id, generation, capabilities)


def _looked_at(task: asyncio.Task[None]) -> None:
    """An agreement that failed when nobody waited for it any more is nobody's failure."""
    if not task.cancelled():
        task.exception()


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
