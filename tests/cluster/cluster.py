"""Two workers and two hosts under load, of which one each is killed. Owns the story; what came of it is for `judge`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from openwop_mcp.embedded import embedded_temporal
from tests.chaos.effects import left
from tests.cluster.clients import Clients, RefusedError
from tests.cluster.counting_server import Seen
from tests.cluster.judge import Told, Verdict, judge
from tests.cluster.plan import TOOLS, PlannedRun, plan
from tests.cluster.processes import AUTHORIZATION, Process, Server, counting, hosts, workers, write_settings
from tests.support.host_process import path_of
from tests.support.ports import free_port

__all__ = ("Report", "run")

AT_ONCE = 40
"""Runs under way at most: what two processors carry without the runs waiting for one another. Of fewer runs it is a
quarter, so that there are creations to come when the processes are killed."""

KILLED = 2
"""Processes that are killed: a host and a worker."""

THEN = 1 / 3
"""Share of the runs that have ended when the processes are killed."""

CHANCE = 20.0
"""Seconds in which there is something under way to be cut off; as long as runs are made there always is."""

LISTED = 30.0
"""Seconds for Temporal to list every run; it takes one."""

SETTLE = 300.0
"""Seconds from its creation after which a run counts as lost. It takes ten, and twenty where a worker was killed; a
machine that has other things to do takes many times as long, and has lost nothing."""


@dataclass
class Report:
    """What was done, and what came of it."""

    runs: int
    seconds: float = 0.0
    killed: list[str] = field(default_factory=list)
    caught: int = 0
    """Calls of the killed worker that were under way."""
    cut: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def violations(self) -> list[str]:
        return self.verdict.violations


class Cluster:
    """One deployment, from its start to its judgement."""

    def __init__(self, runs: int, folder: Path) -> None:
        self.report = Report(runs)
        self._planned = plan(runs)
        self._folder = folder
        self._at_once = max(2, min(AT_ONCE, runs // 4))
        self._told: dict[int, tuple[list[str], list[bytes]]] = {}
        self._refused: list[str] = []
        self._ended = 0
        self._progress = asyncio.Condition()

    async def go(self) -> None:
        """Start everything, make all runs, end everything, and judge."""
        rng = random.SystemRandom()
        book, ports = self._folder / "seen.json", [free_port(rng) for _ in range(3)]
        began = time.monotonic()
        async with (
            counting(ports[0], book) as server,
            embedded_temporal(db=self._folder / "temporal.db") as temporal,
            contextlib.AsyncExitStack() as stack,
        ):
            settings = write_settings(self._folder, temporal.address, ports[0])
            working, hosting = workers(self._folder, settings, 2), hosts(self._folder, settings, ports[1:])
            processes = [*working, *hosting]
            for process in processes:
                stack.push_async_callback(process.kill)
            await asyncio.gather(*(process.start() for process in processes))
            http = await stack.enter_async_context(
                aiohttp.ClientSession(
                    headers=AUTHORIZATION,
                    connector=aiohttp.TCPConnector(limit=0),
                    timeout=aiohttp.ClientTimeout(total=None, sock_read=SETTLE),
                )
            )
            clients = Clients(http, [process.facts["host"] for process in hosting])
            async with asyncio.TaskGroup() as both:
                both.create_task(self._make(clients))
                both.create_task(self._kill(server, working[0], hosting[0], clients))
            told = await self._tell(clients)
            listed = await self._listed(clients)
            await asyncio.gather(*(process.stop() for process in processes))
        self.report.seconds = time.monotonic() - began
        self.report.cut, self.report.repeated = dict(clients.cut), clients.repeated
        self._judge(told, listed, json.loads(book.read_text(encoding="utf-8")), processes)

    async def _make(self, clients: Clients) -> None:
        slots = asyncio.Semaphore(self._at_once)

        async def one(planned: PlannedRun) -> None:
            ids, events = self._told[planned.number] = ([], [])
            async with slots:
                try:
                    async with asyncio.timeout(SETTLE):
                        ids += await clients.create(planned)
                        await clients.follow(ids[0], planned, events)
                except RefusedError as error:
                    self._refused.append(str(error))
                except TimeoutError:
                    # What is missing is for the judge to miss.
                    pass
            async with self._progress:
                self._ended += 1
                self._progress.notify_all()

        async with asyncio.TaskGroup() as making:
            for planned in self._planned:
                making.create_task(one(planned))

    async def _kill(self, server: Server, worker: Process, host: Process, clients: Clients) -> None:
        """Kill a host while it creates runs and tells of them, and a worker in the middle of its calls."""
        async with self._progress:
            await self._progress.wait_for(lambda: self._ended >= THEN * len(self._planned))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHANCE):
                while not (clients.creating[0] and clients.following[0]):  # noqa: ASYNC110 - both last for milliseconds
                    await asyncio.sleep(0)
            await host.kill()
            self.report.killed.append(host.name)
            server.hold()
            async with asyncio.timeout(CHANCE):
                while not (caught := (await server.held()).get(worker.name, 0)):  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0.01)
            await worker.kill()
            self.report.killed.append(worker.name)
            self.report.caught = caught
        server.release()
        await asyncio.gather(*(process.start() for process in (worker, host) if process.name in self.report.killed))

    async def _tell(self, clients: Clients) -> list[Told]:
        """All that there is to know of each run, from each host."""
        slots = asyncio.Semaphore(self._at_once)

        async def one(planned: PlannedRun) -> Told:
            ids, events = self._told[planned.number]
            if not ids:
                return Told(planned)
            path = path_of(ids[0])
            async with slots:
                logs = await clients.everywhere(f"{path}/events/poll?timeout=1")
                return Told(planned, ids, events, logs, await clients.everywhere(f"{path}/effects"))

        return list(await asyncio.gather(*(one(planned) for planned in self._planned)))

    async def _listed(self, clients: Clients) -> list[str]:
        """All runs that there are; what Temporal does not list yet is waited for."""
        listed: list[str] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LISTED):
                while len(listed) < len(self._planned):
                    listed = [run_id async for run_id in clients.listed()]
        return listed

    def _judge(
        self, told: Sequence[Told], listed: Sequence[str], book: dict[str, list], processes: Sequence[Process]
    ) -> None:
        self.report.verdict = judge(told, listed, [Seen(**one) for one in book["seen"]])
        self.report.violations.extend(self._refused)
        if len(self.report.killed) < KILLED:
            self.report.violations.append(f"nobody could be killed in the middle but {self.report.killed}")
        self.report.violations.extend(f"the server of the tests failed: {failure}" for failure in book["failures"])
        for process in processes:
            if process.fell:
                self.report.violations.append(f"{process.name} ended by itself")
            self.report.violations.extend(f"{process.name} complains: {line}" for line in process.complaints)
        self.report.violations.extend(f"left is {process}" for process in left(self._folder))


def table(done: Report) -> list[str]:
    """The report as people read it."""
    verdict = done.verdict
    acted = ", ".join(f"{tool} {verdict.acted[tool]} of {verdict.planned[tool]}" for tool in TOOLS)
    cut = ", ".join(f"{count} {what}" for what, count in sorted(done.cut.items())) or "nothing"
    return [
        f"cluster: {done.runs} runs of {len(TOOLS)} calls, 2 workers, 2 hosts, in {done.seconds:.1f} s",
        f"  killed                                    {', '.join(done.killed) or 'nothing'}",
        f"  calls of the killed worker under way      {done.caught}",
        f"  cut off with the host, and made again     {cut}",
        f"  creations answered as made before         {done.repeated}",
        f"  effects that happened                     {acted}",
        f"  requests that the server knew by key      {verdict.repeats}",
        f"  in doubt                                  {verdict.doubts}",
        *(f"  {count:6d} {end}" for end, count in verdict.ends.most_common()),
    ]


async def run(runs: int) -> Report:
    """So many runs while a worker and a host are killed.

    What the processes said is kept in a folder, which is named among the violations, if there are any.
    """
    folder = Path(tempfile.mkdtemp(prefix="openwop-mcp-cluster-"))
    cluster = Cluster(runs, folder)
    try:
        await cluster.go()
    except BaseException:
        sys.stderr.write(f"what the processes said is in {folder}\n")
        raise
    if cluster.report.violations:
        cluster.report.violations.append(f"what the processes said is in {folder}")
    else:
        shutil.rmtree(folder)
    return cluster.report
