"""The requests to one process: who waits for an answer, who hears what comes before it, what is given up.

Knows messages by what :mod:`._matching` says of them, and of the process only that it can be written to.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass

from openwop_mcp import jsontext
from openwop_mcp.client._deadline import Deadline
from openwop_mcp.client._room import Held, Room, holder
from openwop_mcp.client._wire import Incoming, OnMessage, Outgoing
from openwop_mcp.client.stdio._intake import Intake
from openwop_mcp.client.stdio._lines import Cut, Lines
from openwop_mcp.client.stdio._matching import Match, matches, pieces, response_id
from openwop_mcp.client.stdio._process import Process
from openwop_mcp.client.stdio._stderr import ServerLog
from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import ConnectionLostError, McpError, ResultTooLargeError, TimeLimitError
from openwop_mcp.protocol.messages import excerpt
from openwop_mcp.redaction import Redactor

__all__ = ("Flight", "Requests")

logger = logging.getLogger(__name__)

BATCHES = "2025-03-26"
"""The one revision whose servers may put several messages into an array."""

LISTEN = "subscriptions/listen"
"""The one method whose request lasts."""

SETTING = "limits.event_bytes"
"""What bounds a line."""


@dataclass(slots=True, eq=False)
class Flight:
    """A request on its way."""

    out: Outgoing
    deadline: Deadline
    hears: Callable[[bytes], None] | None
    future: asyncio.Future[bytes]
    held: Held | None

    @property
    def settled(self) -> bool:
        """Whether its answer, or what it failed of, is known."""
        return self.future.done() and not self.future.cancelled()

    def settle(self, outcome: bytes | Exception) -> None:
        """Hand the outcome over, if it is the first."""
        if self.future.done():
            return
        if isinstance(outcome, bytes):
            self.future.set_result(outcome)
        else:
            self.future.set_exception(outcome)


class Requests:
    """The requests to one process, which may have answered some; what has a method and belongs to none is handed on."""

    def __init__(
        self, server_id: str, event_bytes: int, redactor: Redactor, on_unmatched: OnMessage, room: Room | None
    ) -> None:
        self._name, self._limit, self._redactor, self._on_unmatched = server_id, event_bytes, redactor, on_unmatched
        self._log = ServerLog(server_id, redactor)
        self._lines = Lines(event_bytes)
        self._flights: dict[int, Flight] = {}
        self._sent = range(sys.maxsize, 0)
        self._noisy = False
        self.answered = False
        self.process = Process(self._received, self._log.feed)
        self._intake = Intake(room, event_bytes, pause=self.process.pause, resume=self.process.resume)

    async def exchange(self, out: Outgoing, limits: Timeouts, on_message: OnMessage | None) -> Incoming:
        """Send a request and wait for its answer; to give it up tells the server so."""
        number = out.request_id
        flight: Flight | None = None
        try:
            async with Deadline(limits, on_connected=out.on_connected) as deadline:
                with self._intake.awaited(deadline, lasting=out.method == LISTEN):
                    await self.process.may_write()
                    # Messages arrive in the context of the process; who hears them has one of its own.
                    context = contextvars.copy_context()
                    hears = on_message and (lambda message: context.run(on_message, message))
                    flight = Flight(out, deadline, hears, asyncio.get_running_loop().create_future(), holder())
                    self._flights[number] = flight
                    self._sent = range(min(self._sent.start, number), max(self._sent.stop, number + 1))
                    self.process.write(out.body)
                    deadline.sending()
                    if self._intake.held_back:
                        deadline.held_back()
                    return Incoming(await flight.future)
        except TimeLimitError as error:
            if flight is not None:
                if flight.settled:
                    return Incoming(flight.future.result())
                self._give_up(flight, f"the {error.limit} limit ran out")
            raise
        except asyncio.CancelledError:
            if flight is not None and flight.settled:
                # Whoever would have waited for a failure is gone; asyncio complains of one that nobody looked at.
                flight.future.exception()
            elif flight is not None:
                self._give_up(flight, "it is no longer wanted")
            raise
        finally:
            self._flights.pop(number, None)

    def close(self) -> str:
        """Take what the process left in its pipes; returns its last words."""
        rest = self._lines.close()
        # A whole object is a message although its line was not ended; a piece of one is none.
        with contextlib.suppress(jsontext.JsonTextError):
            if isinstance(rest, bytes) and jsontext.members(rest):
                self._take(rest)
        return self._log.close()

    def fail(self, make: Callable[[], McpError]) -> None:
        """Fail all requests in flight, each with an error of its own."""
        for flight in self._flights.values():
            flight.settle(make())

    def _give_up(self, flight: Flight, reason: str) -> None:
        if self.process.accepting and flight.out.method != "initialize":
            params = jsontext.encode({"requestId": flight.out.request_id, "reason": reason})
            self.process.write(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%b}' % params)

    def _received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            if isinstance(line, Cut):
                self._too_large(line)
            else:
                for piece in pieces(line):
                    self._take(piece)
        self._intake.grown(self._lines.held)

    def _take(self, line: bytes) -> None:
        if not line or line.isspace():
            return
        for found in matches(line, self._flights.keys(), self._sent):
            if found.request_id is not None:
                self._deliver(found, self._flights[found.request_id], line)
            elif found.kind == "unmatched":
                self._on_unmatched(found.message)
            elif found.kind == "noise":
                self._noise(found.message)
            else:
                logger.debug("server '%s' answered what no request waits for: %s", self._name, excerpt(found.message))

    def _deliver(self, found: Match, flight: Flight, line: bytes) -> None:
        if found.kind == "answer":
            self.answered = True
            message = found.message if flight.out.terms.revision == BATCHES else line
            flight.settle(message)
            self._intake.hand_on(len(message), flight.held)
        elif found.kind == "notice":
            self._hear(flight, found.message)
        elif flight.out.method == LISTEN:
            flight.settle(ConnectionLostError(f"server '{self._name}' ended the subscription: listen again"))
        else:
            # Only a subscription may be ended so from the server's side.
            self._on_unmatched(found.message)

    def _hear(self, flight: Flight, message: bytes) -> None:
        flight.deadline.alive()
        try:
            if flight.hears is not None:
                flight.hears(message)
        except Exception as error:  # noqa: BLE001 - it is the caller's and goes to the caller
            self._give_up(flight, "its messages cannot be taken")
            flight.settle(error)

    def _too_large(self, line: Cut) -> None:
        large = f"larger than {self._limit} bytes and was not read (setting {SETTING})"
        what, delivery = "the answer is {}; the server has acted", Delivery.ANSWERED
        number = response_id(line.head, line.tail)
        if number is None:
            logger.warning("a line of server '%s' is %s; it begins: %s", self._name, large, self._shown(line.head))
            what, delivery = "a line that may hold the answer is {}; the server may have acted", Delivery.UNKNOWN
        self.answered = self.answered or number is not None
        hit = [flight for request_id, flight in self._flights.items() if number in {None, request_id}]
        for flight in hit:
            error = ResultTooLargeError(
                what.format(large), delivery=delivery, limit=self._limit, setting=SETTING, size=line.size
            )
            flight.settle(error)

    def _noise(self, line: bytes) -> None:
        if not self._noisy:
            self._noisy = True
            logger.warning(
                "server '%s' writes to its standard output what is no message of MCP; it is passed over, and this is"
                " said once: %s",
                self._name,
                self._shown(line),
            )

    def _shown(self, line: bytes) -> str:
        return self._redactor.text(excerpt(line))
