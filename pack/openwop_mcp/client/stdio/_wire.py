"""The way to one server over standard input and output: which process it is now, and when there is another.

Knows nothing of pipes and lines.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Final

from openwop_mcp.client._deadline import Deadline
from openwop_mcp.client._room import Room
from openwop_mcp.client._wire import Incoming, OnMessage, Outgoing, SizeLimits, StaleTermsError, Terms
from openwop_mcp.client.stdio._process import environment as whole
from openwop_mcp.client.stdio._requests import Requests
from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import ConnectError, ConnectionLostError, InterruptedCallError
from openwop_mcp.protocol.messages import excerpt
from openwop_mcp.redaction import Redactor

__all__ = ("StdioWire",)

logger = logging.getLogger(__name__)

QUICK = 10.0
"""Seconds: a process that ended sooner and answered nothing never worked. Slow starters take a few seconds."""

FIRST_REST = 0.5
"""Seconds before the restart after one quick end; doubled with each further one."""

LONGEST_REST = 30.0
"""Seconds that a restart is put off at most, so that a server is soon back once its fault is mended."""

NOTIFY = 2.0
"""Seconds that a notification waits for a server that does not read; calls have limits of their own."""


class StdioWire:
    """One server over standard input and output; its process is started when it is needed and again when it died.

    Implements :class:`openwop_mcp.client._wire.Wire` (MCP 2026-07-28, stdio).

    Args:
        server_id: The server's id in the settings; names its logger, ``openwop_mcp.server.<server_id>``.
        command: Program and arguments.
        environment: Variables beside those of the worker that every program needs.
        sizes: ``event_bytes`` bounds a message.
        redactor: Knows the credentials in the environment: no log and no error repeats them.
        room: What large answers have to find room in; None for none that anybody counts.
    """

    http: Final = False
    context: Final = 0

    def __init__(
        self,
        server_id: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        sizes: SizeLimits,
        redactor: Redactor,
        room: Room | None = None,
    ) -> None:
        self.on_unmatched: OnMessage | None = None
        self._name, self._command, self._environment = server_id, tuple(command), dict(environment)
        self._sizes, self._redactor, self._room = sizes, redactor, room
        self._current: Requests | None = None
        self._generation = 0
        self._starting: asyncio.Task[None] | None = None
        self._life: asyncio.Task[None] | None = None
        self._closed = False
        self._rest = self._rest_until = 0.0
        self._last_end = ""

    @property
    def origin(self) -> str:
        """What the server is known by. Not its command line, which can hold a secret."""
        return f"stdio:{self._name}"

    async def open(self, limits: Timeouts) -> int:
        """See to it that there is a process; says which one, counted from 1.

        Raises:
            ConnectError: It cannot be started, or ends at once each time it is.
            InterruptedCallError: The wire is closed.
            TimeLimitError: The ``connect`` limit ran out.
        """
        if self._accepting:
            return self._generation
        until = asyncio.get_running_loop().time() + min(limits.connect, limits.total)
        async with Deadline(limits):
            while not self._accepting:
                if self._closed:
                    raise InterruptedCallError(
                        f"the worker has stopped server '{self._name}'", cancelled=False, delivery=Delivery.NOT_SENT
                    )
                if self._life is not None:
                    await asyncio.wait([self._life])
                else:
                    await self._rested(until)
                    await asyncio.shield(self._started())
        return self._generation

    async def exchange(self, out: Outgoing, *, limits: Timeouts, on_message: OnMessage | None = None) -> Incoming:
        """Send a request and wait for its answer; to give it up tells the server so. See ``Wire``.

        ``connect`` bounds the wait for a server that does not read, with nothing sent; ``first_byte`` ends with the
        first message about the request.
        """
        return await self._agreed(out.terms).exchange(out, limits, on_message)

    async def tell(self, message: bytes, terms: Terms, limits: Timeouts) -> None:
        """Write a message that has to be taken, once the process of the terms reads. See ``Wire``."""
        process = self._agreed(terms).process
        async with Deadline(limits):
            await process.may_write()
            process.write(message)

    async def notify(self, message: bytes, terms: Terms) -> None:
        """Write a message that no answer comes to, if the process of the terms still takes it."""
        try:
            process = self._agreed(terms).process
            async with asyncio.timeout(NOTIFY):
                await process.may_write()
        except (StaleTermsError, TimeoutError) as error:
            logger.debug("server '%s' was not told: %r", self._name, error)
        else:
            process.write(message)

    def attend(self, terms: Terms) -> None:
        """Do nothing: all that a process says comes through one pipe."""

    async def end(self, terms: Terms) -> None:
        """Do nothing: the session of a process ends with it."""

    async def close(self) -> None:
        """End the process, in at most three times two seconds, whoever waits for it. Requests in flight fail."""
        self._closed = True
        if self._current is not None:
            self._current.process.stop()
            self._current.fail(
                lambda: InterruptedCallError(
                    f"the worker stopped server '{self._name}' before it answered",
                    cancelled=False,
                    delivery=Delivery.UNKNOWN,
                )
            )
        if self._starting is not None:
            # One that is under way sees that it is not wanted any more.
            await asyncio.wait([self._starting])
        if self._life is not None:
            await asyncio.wait([self._life])

    @property
    def _accepting(self) -> bool:
        return self._current is not None and self._current.process.accepting

    def _agreed(self, terms: Terms) -> Requests:
        if self._current is None or terms.generation != self._generation or not self._accepting:
            raise StaleTermsError
        return self._current

    async def _rested(self, until: float) -> None:
        """Wait until a process may be started after others that ended at once."""
        rest = self._rest_until - asyncio.get_running_loop().time()
        if self._rest_until >= until:
            raise ConnectError(
                f"the process of server '{self._name}' ends each time at once: it {self._last_end}. It is not"
                f" started again for {rest:.1f} s: run its command by hand, and mend it or the setting"
                f" servers.{self._name}.command"
            )
        if rest > 0:
            await asyncio.sleep(rest)

    def _started(self) -> asyncio.Task[None]:
        """The start of a process, for all who want one the same; it is started even if they all stop waiting."""
        if self._starting is None or self._starting.done():
            # A context of its own: the process outlives the call that happened to need it first.
            self._starting = asyncio.get_running_loop().create_task(self._start(), context=contextvars.Context())
            # A failure that nobody waits for any more is looked at, since asyncio complains of others.
            self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._starting

    async def _start(self) -> None:
        if self._life is not None or self._closed:
            return
        requests = Requests(self._name, self._sizes.event_bytes, self._redactor, self._unmatched, self._room)
        try:
            await requests.process.start(self._command, whole(os.environ, self._environment))
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
            raise ConnectError(
                f"the program '{excerpt(os.fsencode(self._command[0]))}' of server '{self._name}' cannot be"
                f" started ({reason}): install it where the worker's PATH finds it, or correct the setting"
                f" servers.{self._name}.command"
            ) from None
        self._generation += 1
        self._current = requests
        self._life = asyncio.get_running_loop().create_task(self._live(requests))
        logger.info("server '%s' runs as process %d", self._name, requests.process.pid)
        if self._closed:
            requests.process.stop()

    async def _live(self, requests: Requests) -> None:
        """See a process to its end; one that ended at once puts off the next."""
        process = requests.process
        try:
            how = await process.ending()
            words = requests.close()
            self._last_end = f"{how}; its last words: {words}" if words else how
            requests.fail(
                # Whether the call was sent says its delivery: this may be the handshake before it.
                lambda: ConnectionLostError(
                    f"the process of server '{self._name}' ended before it answered: it {self._last_end}"
                )
            )
        finally:
            gone = await process.drop()
        if not gone:
            logger.warning("server '%s' does not go: SIGKILL has not ended it yet", self._name)
        if not self._closed:
            logger.warning("the process of server '%s' %s", self._name, self._last_end)
        now = asyncio.get_running_loop().time()
        quick = not requests.answered and now - process.started < QUICK
        self._rest = min(LONGEST_REST, max(FIRST_REST, 2 * self._rest)) if quick else 0.0
        self._rest_until = now + self._rest
        self._current = self._life = None

    def _unmatched(self, message: bytes) -> None:
        if self.on_unmatched is None:
            return
        try:
            self.on_unmatched(message)
        except Exception:
            logger.exception("a message of server '%s' could not be taken", self._name)
