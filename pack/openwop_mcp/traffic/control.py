"""Who may call now: calls under way by server and by tenant, each server's pace, rest and circuit. One worker's view.

Pure; whoever asks says what time it is. Knows nothing of what a call is, of who waits, or of how a wait is spent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from openwop_mcp.traffic.circuit import Circuit, CircuitState
from openwop_mcp.traffic.pace import Pace

__all__ = ("Ending", "Full", "Pass", "ServerLimits", "ServerTraffic", "Traffic")

Ending = Literal["connected", "unconnected", "unknown"]
"""What a call tells of its server: there was a connection, there was none to be had, or nobody knows."""

Reason = Literal["in_flight", "rate", "tenant", "retry_after", "circuit"]
"""What keeps a call from being sent."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What the settings say of one server.

    Attributes:
        in_flight: Calls under way at once; None for any number.
        rate: Calls a second; None for any number.
        burst: Calls that may follow one another at once all the same.
        failures: Connections in a row that fail before the circuit opens; 0 for never.
        rest: Seconds for which it then stays open.
    """

    in_flight: int | None = None
    rate: float | None = None
    burst: int = 1
    failures: int = 0
    rest: float = 0.0


@dataclass(frozen=True, slots=True)
class Pass:
    """Leave for one call to go, which is given back when it has ended.

    Attributes:
        server_id: Where it goes.
        tenant: On whose behalf.
        probe: Whether it is the one that finds out whether the server can be reached again.
    """

    server_id: str
    tenant: str
    probe: bool = False


@dataclass(frozen=True, slots=True)
class Full:
    """Why a call may not go now.

    Attributes:
        reason: What keeps it.
        wait: Seconds until that may be over; None where it depends on how other calls end.
        count: How much of it there is: calls under way, or connections that failed.
    """

    reason: Reason
    wait: float | None = None
    count: int = 0


@dataclass(frozen=True, slots=True)
class ServerTraffic:
    """How one server stands, to be counted.

    Attributes:
        server_id: The server.
        in_flight: Calls under way.
        postponed: Calls that were sent away since the worker began.
        circuit: Where its circuit stands.
    """

    server_id: str
    in_flight: int
    postponed: int
    circuit: CircuitState


class _Server:
    """What is known of one server."""

    __slots__ = ("circuit", "in_flight", "left_alone_until", "limit", "pace", "postponed")

    def __init__(self, limits: ServerLimits) -> None:
        self.limit = limits.in_flight
        self.pace = None if limits.rate is None else Pace(limits.rate, limits.burst)
        self.circuit = Circuit(limits.failures, limits.rest)
        self.in_flight = 0
        self.postponed = 0
        self.left_alone_until = float("-inf")


class Traffic:
    """The calls of one worker.

    Args:
        servers: What holds for each server, by its id.
        tenant_limit: Calls of one tenant under way at once; None for any number.
    """

    def __init__(self, servers: Mapping[str, ServerLimits], tenant_limit: int | None = None) -> None:
        self._servers = {server_id: _Server(limits) for server_id, limits in servers.items()}
        self._tenant_limit = tenant_limit
        self._tenants: dict[str, int] = {}

    def enter(self, server_id: str, tenant: str, now: float) -> Pass | Full:
        """Have a call go, if it may."""
        server = self._servers[server_id]
        full = self._full(server, tenant, now)
        if full is not None:
            return full
        probe = server.circuit.begin()
        if server.pace is not None:
            server.pace.take(now)
        server.in_flight += 1
        self._tenants[tenant] = self._tenants.get(tenant, 0) + 1
        return Pass(server_id, tenant, probe)

    def _full(self, server: _Server, tenant: str, now: float) -> Full | None:
        if server.circuit.state != "closed" and (rest := server.circuit.wait(now)) != 0:
            return Full("circuit", rest, server.circuit.failed)
        if (left := server.left_alone_until - now) > 0:
            return Full("retry_after", left)
        if server.limit is not None and server.in_flight >= server.limit:
            return Full("in_flight", count=server.in_flight)
        mine = self._tenants.get(tenant, 0)
        if self._tenant_limit is not None and mine >= self._tenant_limit:
            return Full("tenant", count=mine)
        # The pace comes last: a call that something else keeps is not to use it up.
        if server.pace is not None and (wait := server.pace.wait(now)) > 0:
            return Full("rate", wait)
        return None

    def leave(self, given: Pass, ending: Ending, now: float) -> bool:
        """Take the end of a call; tells whether its server's circuit opened or closed by it."""
        server = self._servers[given.server_id]
        server.in_flight -= 1
        left = self._tenants[given.tenant] - 1
        if left:
            self._tenants[given.tenant] = left
        else:
            # There may be any number of tenants in the life of a worker.
            del self._tenants[given.tenant]
        return self._judge(server, ending, now, probe=given.probe)

    def heard(self, server_id: str, now: float) -> bool:
        """Hear that a server was reached by what asks whether it is there; tells whether that closes its circuit."""
        return self._judge(self._servers[server_id], "connected", now, probe=True)

    def _judge(self, server: _Server, ending: Ending, now: float, *, probe: bool) -> bool:
        match ending:
            case "connected":
                return server.circuit.connected(probe=probe)
            case "unconnected":
                return server.circuit.unconnected(now, probe=probe)
            case "unknown":
                server.circuit.given_up(probe=probe)
                return False

    def leave_alone(self, server_id: str, seconds: float, now: float) -> None:
        """Send no call to a server for so long: it said so to one of them."""
        server = self._servers[server_id]
        server.left_alone_until = max(server.left_alone_until, now + seconds)

    def send_away(self, server_id: str, full: Full, now: float) -> float | None:
        """Count a call that was not sent, and say in how many seconds it should come again, if that can be said."""
        server = self._servers[server_id]
        server.postponed += 1
        if full.reason == "rate" and server.pace is not None:
            return server.pace.promise(now)
        return full.wait

    def circuit(self, server_id: str) -> CircuitState:
        """Where a server's circuit stands."""
        return self._servers[server_id].circuit.state

    def snapshot(self) -> Iterator[ServerTraffic]:
        """How each server stands."""
        for server_id, server in self._servers.items():
            yield ServerTraffic(server_id, server.in_flight, server.postponed, server.circuit.state)
