"""Room for calls in one worker: who waits for it a moment, who is sent away, and what calls tell of their servers.

Owns the clock, the lines of those who wait, and the words. Who may go is decided in ``openwop_mcp.traffic``.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from openwop_mcp.config import Server, Settings
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import (
    CircuitOpenError,
    ConnectError,
    HttpStatusError,
    InterruptedCallError,
    McpError,
    PostponedError,
    RateLimitedError,
    TimeLimitError,
)
from openwop_mcp.traffic import Ending, Full, Pass, ServerLimits, ServerTraffic, Traffic

__all__ = ("Admission",)

logger = logging.getLogger(__name__)

MOMENT = 1.0
"""Seconds that a call waits at its place in the worker: most find room by then, and to come again costs a timer, and an
attempt in history."""

LINE = 20
"""Calls of one server that wait so at once. They take up a tenth of a worker's places, and the rest is for others."""

UNAVAILABLE = 503
"""The status that says with ``Retry-After`` how long a server is down (RFC 9110, section 15.6.4)."""

WORTH_A_MOMENT = frozenset({"in_flight", "tenant", "rate", "retry_after"})
"""Reasons that may be over in a moment."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """A call in a line."""

    tenant: str
    given: asyncio.Future[Pass]


class Admission:
    """The traffic of one worker process, all its task queues together. Use it from one event loop.

    Args:
        settings: What holds for servers and tenants.
    """

    def __init__(self, settings: Settings) -> None:
        self._servers: Mapping[str, Server] = settings.servers
        limits = {server_id: _limits(server) for server_id, server in settings.servers.items()}
        self._tenant_limit = settings.worker.tenant_activities
        self._traffic = Traffic(limits, self._tenant_limit)
        self._lines: dict[str, list[_Waiter]] = {}

    def enter(self, server_id: str, tenant: str) -> Pass | Full:
        """Have a call go, if there is room for it now. What it is given it gives back with :meth:`leave`."""
        return self._traffic.enter(server_id, tenant, time.monotonic())

    async def wait(self, server_id: str, tenant: str, full: Full) -> Pass:
        """Wait for room, for a moment.

        Args:
            server_id: Where the call goes.
            tenant: On whose behalf.
            full: What :meth:`enter` said.

        Raises:
            PostponedError: There is none; the call is to come again.
        """
        until = time.monotonic() + MOMENT
        while full.reason in WORTH_A_MOMENT:
            left = until - time.monotonic()
            line = self._lines.setdefault(server_id, [])
            if left <= 0 or (full.wait or 0.0) > left or len(line) >= LINE:
                break
            given = await self._in_line(line, tenant, full.wait or left)
            entered = given or self.enter(server_id, tenant)
            if isinstance(entered, Pass):
                return entered
            full = entered
        raise self._postponed(server_id, tenant, full)

    async def _in_line(self, line: list[_Waiter], tenant: str, seconds: float) -> Pass | None:
        waiter = _Waiter(tenant, asyncio.get_running_loop().create_future())
        line.append(waiter)
        try:
            await asyncio.wait([waiter.given], timeout=seconds)
        except asyncio.CancelledError as cancelled:
            if waiter.given.done():
                self.leave(waiter.given.result(), cancelled)
            raise
        finally:
            if waiter in line:
                line.remove(waiter)
        return waiter.given.result() if waiter.given.done() else None

    def leave(self, given: Pass, error: BaseException | None = None) -> None:
        """Take the end of a call.

        Args:
            given: What it was given.
            error: What it failed with; None where it was answered.
        """
        now = time.monotonic()
        turned = self._traffic.leave(given, _ending(error), now)
        if error is not None:
            self._hear(given.server_id, error, now)
        if turned:
            self._tell(given.server_id)
        if self._lines:
            self._let_in(now)

    def connected(self, given: Pass) -> Pass:
        """Hear that a call which probes has a connection: the others need not wait for its end, which may be far off.

        Args:
            given: What it was given.

        Returns:
            What it gives back in its place: it does not probe any more.
        """
        self.heard(given.server_id)
        return replace(given, probe=False)

    def heard(self, server_id: str) -> None:
        """Hear that a server was reached by what asks it whether it is there, and waits for no room."""
        if self._traffic.heard(server_id, time.monotonic()):
            self._tell(server_id)

    def snapshot(self) -> Iterator[ServerTraffic]:
        """How each server stands, for who counts it: calls under way, those sent away so far, and its circuit."""
        return self._traffic.snapshot()

    def _let_in(self, now: float) -> None:
        """Give room that was made to those who have waited for it longest."""
        for server_id, line in list(self._lines.items()):
            for waiter in list(line):
                entered = self._traffic.enter(server_id, waiter.tenant, now)
                if isinstance(entered, Pass):
                    line.remove(waiter)
                    waiter.given.set_result(entered)
                elif entered.reason != "tenant":
                    # Nobody in this line gets further than the first.
                    break
            if not line:
                del self._lines[server_id]

    def _hear(self, server_id: str, error: BaseException, now: float) -> None:
        """Leave a server alone that has asked for it, for no longer than one wait may take: then it is asked again."""
        asked = isinstance(error, RateLimitedError) or (
            isinstance(error, HttpStatusError) and error.status == UNAVAILABLE
        )
        seconds = error.facts.get("retryAfter") if asked and isinstance(error, McpError) else None
        if seconds:
            self._traffic.leave_alone(server_id, min(seconds, self._servers[server_id].retry.max_wait), now)

    def _tell(self, server_id: str) -> None:
        circuit = self._servers[server_id].circuit
        if self._traffic.circuit(server_id) == "closed":
            logger.warning("server %s can be reached again, and is called as before", server_id)
        else:
            logger.warning(
                "server %s could not be reached %d times in a row: calls of it wait, and every %g s one of them finds"
                " out whether it is back (setting servers.%s.circuit)",
                server_id,
                circuit.failures,
                circuit.rest,
                server_id,
            )

    def _postponed(self, server_id: str, tenant: str, full: Full) -> PostponedError:
        why, setting = self._why(server_id, tenant, full)
        server = self._servers[server_id]
        kind, table, patience = (
            (CircuitOpenError, "circuit", server.circuit.patience)
            if full.reason == "circuit"
            else (PostponedError, "limits", server.limits.patience)
        )
        return kind(
            why,
            setting=setting,
            wait=self._traffic.send_away(server_id, full, time.monotonic()),
            patience=patience,
            patience_setting=f"servers.{server_id}.{table}.patience",
            spread=round(random.random(), 3),  # noqa: S311 - a spread, no secret
        )

    def _why(self, server_id: str, tenant: str, full: Full) -> tuple[str, str | None]:
        """What keeps a call, for people, and the setting that says so, if one does."""
        setting = f"servers.{server_id}.limits"
        match full.reason:
            case "in_flight":
                told = f"server '{server_id}' has {full.count} under way of the calls of this worker, as many as it may"
                return told, f"{setting}.in_flight"
            case "rate":
                rate = self._servers[server_id].limits.rate
                told = f"server '{server_id}' is called no more than {rate:g} times a second by this worker"
                return told, f"{setting}.rate"
            case "tenant":
                told = f"tenant '{tenant}' has {full.count} under way of the calls of this worker, as many as one may"
                return told, "worker.tenant_activities"
            case "retry_after":
                told = f"server '{server_id}' has told another call that it is to be left alone (Retry-After)"
                return f"{told}, for {full.wait or 0.0:.1f} s more", None
            case "circuit":
                told = f"server '{server_id}' could not be reached {full.count} times in a row"
                follows = (
                    "and another call finds out whether it is back"
                    if full.wait is None
                    else f"and is left alone for {full.wait:.1f} s more"
                )
                return f"{told}, {follows}", f"servers.{server_id}.circuit"


def _limits(server: Server) -> ServerLimits:
    limits, circuit = server.limits, server.circuit
    return ServerLimits(limits.in_flight, limits.rate, limits.most_at_once, circuit.failures, circuit.rest)


def _ending(error: BaseException | None) -> Ending:
    """What the end of a call tells of its server. A status, also 5xx, is an answer: there was a connection."""
    match error:
        case None:
            return "connected"
        case ConnectError() | TimeLimitError(limit="connect"):
            # A host that cannot be spelled is nothing to wait for.
            return "unconnected" if error.retryable else "unknown"
        case InterruptedCallError():
            return "unknown"
        case McpError() if error.delivery is not Delivery.NOT_SENT:
            return "connected"
        case _:
            return "unknown"
