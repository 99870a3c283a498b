"""The logs of runs as this host knows them: what was read of them, and what of that is kept.

A log is read once, and from then on by what is new. What is not kept any more is told again from Temporal's history.
Knows no request.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any
from weakref import WeakValueDictionary

from temporalio.client import Client

from openwop_mcp.runs.events import RunEvent

from . import history
from .generations import Generation, Memory
from .history import Extent
from .ids import BoundId
from .kept import Kept
from .snapshot import RunView

__all__ = ("MAX_BYTES", "RunLog", "RunLogs")

MAX_BYTES = 64 * 1024 * 1024
"""What all logs of a host may take up that nobody reads just now: one event may be as large."""


class RunLogs:
    """The logs of the runs that this host was asked for.

    Args:
        client: Connected to the namespace of the runs, with the storage of large values.
        max_bytes: What they may take up together while nobody reads them.
        stopping: Set when the host is about to end, by :meth:`close` or from outside: nobody waits any longer.
    """

    def __init__(self, client: Client, *, max_bytes: int = MAX_BYTES, stopping: asyncio.Event | None = None) -> None:
        self.client = client
        self.stopping = stopping or asyncio.Event()
        self.memory = Memory(client, Kept(max_bytes))
        # Also those that are not kept any more and in use: there is never a second log of a run.
        self._logs: WeakValueDictionary[str, RunLog] = WeakValueDictionary()

    async def open(self, run_id: BoundId) -> RunLog:
        """The log of a run as far as Temporal has recorded it by now.

        Raises:
            HostError: See :meth:`RunLog.refresh`.
            StorageError: See there.
            RPCError: See there.
        """
        name = str(run_id)
        log = self._logs.get(name)
        if log is None:
            log = self._logs[name] = RunLog(self, name)
        await log.refresh()
        return log

    async def close(self) -> None:
        """Let nobody wait any longer."""
        self.stopping.set()


class RunLog:
    """The log of a run.

    Attributes:
        cancelling: Whether a cancel was accepted, and the run has not ended.
    """

    def __init__(self, logs: RunLogs, run_id: str) -> None:
        self.cancelling = False
        self._logs = logs
        self._run_id = run_id
        self._generation: Generation | None = None
        self._refreshing = asyncio.Lock()
        self._asked = 0
        self._answered = 0
        self._fault: Exception | None = None
        self._told: tuple[Generation, int] | None = None
        self._news = asyncio.get_running_loop().create_future()
        self._waiting = 0
        self._follower: asyncio.Task[None] | None = None

    @property
    def generation(self) -> Generation:
        """What is told of the run. A reset begins another one, in which the same sequence is another event's."""
        assert self._generation is not None
        return self._generation

    @property
    def view(self) -> RunView:
        """The run as it stands by what was read."""
        return self.generation.view

    @property
    def is_stopping(self) -> bool:
        """Whether the host is about to end."""
        return self._logs.stopping.is_set()

    async def refresh(self) -> None:
        """Read all that Temporal has recorded by now.

        Raises:
            HostError: ``not_found`` if there is no such run, ``run_expired`` if a part of it is gone,
                ``payload_unprojectable`` if its history is none that this version can have produced.
            StorageError: A large value cannot be had now.
            RPCError: Temporal does not answer.
        """
        self._asked += 1
        mine = self._asked
        async with self._refreshing:
            # One reading serves all who asked before it began, also one that fails: it did so after many tries.
            if self._answered < mine:
                asked = self._asked
                self._fault = None
                try:
                    await self._read()
                except Exception as error:  # noqa: BLE001 - raised below, for all
                    self._fault = error
                self._answered = asked
            if self._fault is not None:
                raise self._fault

    def events(self, after: int) -> AsyncIterator[RunEvent]:
        """The events after a sequence, one by one, up to the last one that is known when the first is asked for.

        The iterator raises what :meth:`refresh` does, where what is not kept has to be read again. It goes on with the
        log that it began with, though the run be reset.
        """
        return self.generation.events(after)

    async def wait(self, after: int, seconds: float) -> None:
        """Wait for an event after a sequence, or for no more: the log is complete or another one, or the host stops.

        Args:
            after: The sequence.
            seconds: How long to wait at most.

        Raises:
            HostError: See :meth:`refresh`.
            StorageError: See there.
            RPCError: See there.
        """
        generation, until = self.generation, time.monotonic() + seconds

        def over() -> bool:
            return generation.has(after) or self._generation is not generation or self.is_stopping

        if over():
            return
        with self._followed() as follower, _under_way(self._logs.stopping.wait()) as stopping:
            while not over() and (left := until - time.monotonic()) > 0:
                await asyncio.wait((self._news, follower, stopping), timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if follower.done():
                    follower.result()

    @contextlib.contextmanager
    def _followed(self) -> Iterator[asyncio.Task[None]]:
        """Have the log followed while somebody waits, by one task for all."""
        if self._follower is None or self._follower.done():
            self._follower = asyncio.create_task(self._follow())
            # Those who wait are told; if they all left a moment before, nobody is.
            self._follower.add_done_callback(lambda follower: follower.cancelled() or follower.exception())
        self._waiting += 1
        try:
            yield self._follower
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._follower.cancel()
                self._follower = None

    async def _follow(self) -> None:
        while (reading := self.generation.reading) is not None:
            if not reading.is_ahead:
                await reading.fetch()
            await self.refresh()

    async def _read(self) -> None:
        stands = await history.standing(self._logs.client, self._run_id)
        generation, parts = await self._generation_of(stands.latest)
        await generation.read(Extent(parts, stands.length))
        self._generation = generation
        self.cancelling = stands.cancelling and not generation.view.is_terminal
        kept = self._logs.memory.kept
        stands_at = generation, generation.last_sequence
        if stands_at != self._told or kept.get(self._run_id) is not self:
            kept.put(self._run_id, self, generation.size)
        if stands_at != self._told:
            self._told = stands_at
            self._news.set_result(None)
            self._news = asyncio.get_running_loop().create_future()

    async def _generation_of(self, latest: str) -> tuple[Generation, tuple[str, ...]]:
        """The generation that a run of Temporal's belongs to, and its parts up to that run."""
        ours = self._generation
        known = () if ours is None else ours.extent.parts
        if ours is not None and known[-1] == latest:
            return ours, known
        parts = await history.chain(self._logs.client, self._run_id, latest, known)
        goes_on = ours is not None and ours.reading is not None and parts[: len(known)] == known
        return (ours if ours is not None and goes_on else Generation(self._logs.memory, self._run_id)), parts


@contextlib.contextmanager
def _under_way(waiting: Coroutine[Any, Any, object]) -> Iterator[asyncio.Task[object]]:
    task = asyncio.create_task(waiting)
    try:
        yield task
    finally:
        task.cancel()
