"""Effects under fire: workflows that call a counting tool while workers are killed, its server fails and Temporal goes.

Owns the processes, what is done to them, and the runs. What came of it is judged in `judge`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import random
import re
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError

from openwop_mcp import jsontext
from openwop_mcp.embedded import EmbeddedTemporal, embedded_temporal
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import parse
from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.start import Options, Owner, RunStart
from tests.chaos.counting_server import FIRST_BYTE, WORKER, Seen
from tests.chaos.flows import STICKY, Asked, Caller, Ended
from tests.chaos.judge import EARLIER, IN_DOUBT, Attempt, Evidence, Outcome, Verdict, judge
from tests.chaos.plan import AFTER, KEYED, SERVER, TOOLS, PlannedRun, plan
from tests.support.ports import free_port
from tests.support.servers.mastered import mastered
from workflows.client import read_run, start_run

__all__ = ("Effects", "run")

T = TypeVar("T")

ROOT = Path(__file__).parents[2]

TENANT = "chaos"
"""Of all calls, since a key is one within a tenant."""

QUEUE, AUTHORS = "chaos", "chaos-authors"

HEARTBEAT = 5.0
"""Seconds after which a worker counts as lost. On a machine that starts a worker every second, Temporal can take three
to hear of an answer, in which there are no beats any more."""

WORKERS = 4
"""Workers of the pack that are kept alive; beside them, one of an author."""

RATE = 12.0
"""Calls that begin in a second: what two processors can carry while they start a worker each second."""

BETWEEN_KILLS = (0.5, 1.5)
"""Seconds from one kill to the next, more where the calls take longer to begin."""

AUTHORS_SHARE = 0.15
"""Share of the kills that take the author's worker, which makes no calls."""

DEAF = 1.0
"""Seconds in the storm during which the server refuses connections."""

SETTLE = 90.0
"""Seconds after the storm in which every run must have ended: retries, and a workflow task that a dead worker took."""

STOP = 60.0
"""Seconds that a worker is given to start, or to end when it is told to."""

SHARED = "effect:"
"""How the ids of workflows begin that carry out an effect which several runs share."""

EFFECT = re.compile(rb'"effect": ?"([^"]+)"')
"""An effect's id, in the arguments of a call."""

ENDS = {f"activity_task_{end}_event_attributes": end != "timed_out" for end in ("completed", "failed", "timed_out")}
"""What ends an attempt in a history, and whether its worker said so."""

OWNER = Owner(TENANT, {"issuer": "urn:test", "subjectId": "chaos", "tenant": TENANT, "lane": "api-key", "kind": "user"})


@dataclass
class Effects:
    """What was done, and what came of it."""

    seed: str
    calls: int
    runs: int = 0
    kills: int = 0
    restarts: list[str] = field(default_factory=list)
    seconds: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def violations(self) -> list[str]:
        return self.verdict.violations


def settings(address: str, port: int) -> str:
    """The settings file of the workers."""
    tables: dict[str, Mapping[str, Any]] = {
        "temporal": {"address": address},
        "worker": {
            "tenant": TENANT,
            "task_queue": QUEUE,
            "heartbeat_timeout": HEARTBEAT,
            "sticky_timeout": STICKY,
            "workflow_pollers": 10,
        },
        f"servers.{SERVER}": {"url": f"http://127.0.0.1:{port}/mcp", "network": "private"},
        f"servers.{SERVER}.credential.header": {"name": WORKER},
        f"servers.{SERVER}.credential.header.value": {"env": "CHAOS_WORKER"},
        f"servers.{SERVER}.timeouts": {
            "connect": FIRST_BYTE,
            "first_byte": FIRST_BYTE,
            "idle": FIRST_BYTE,
            "total": 2 * FIRST_BYTE,
        },
        f"servers.{SERVER}.retry": {"attempts": 6, "max_wait": 2, "total": 15},
        **{f"servers.{SERVER}.tools.{name}": policy for name, policy in TOOLS.items()},
    }
    return "\n".join(
        f"[{table}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        for table, values in tables.items()
    )


# --- processes --------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Place:
    """A place in the fleet: one process follows the other in it."""

    command: Sequence[str]
    process: asyncio.subprocess.Process | None = None
    name: str = ""
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    doomed: bool = False


class Fleet:
    """Keeps workers alive, and kills them."""

    def __init__(self, folder: Path, config: Path, address: str) -> None:
        author = ("-m", "tests.chaos.flows", address, AUTHORS, str(folder))
        self._places = [Place(("worker.py", "run", "--config", str(config))) for _ in range(WORKERS)]
        self._places.append(Place(author))
        self._folder = folder
        self._started = 0
        self._stopping = False
        self.identities: dict[str, str] = {}
        self.ended: dict[str, float] = {}
        self.fell: list[tuple[float, str, int]] = []
        self.kills = 0

    @contextlib.asynccontextmanager
    async def sailing(self) -> AsyncIterator[None]:
        """Keep all places filled; in the end each process is told to stop, and must."""
        keeping = [asyncio.ensure_future(self._keep(place)) for place in self._places]
        try:
            await self._all_ready()
            yield
            await self._all_ready()
            self._stopping = True
            for place in self._places:
                assert place.process is not None
                place.process.terminate()
            await asyncio.wait(keeping, timeout=STOP)
        finally:
            self._stopping = True
            for place in self._places:
                if place.process is not None and place.process.returncode is None:
                    place.process.kill()
            await asyncio.gather(*keeping)

    async def _all_ready(self) -> None:
        async with asyncio.timeout(STOP):
            for place in self._places:
                await place.ready.wait()

    async def _keep(self, place: Place) -> None:
        while not self._stopping:
            self._started += 1
            place.name, place.doomed = f"worker-{self._started:04d}", False
            with (self._folder / f"{place.name}.log").open("wb") as log:
                place.process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    *place.command,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    cwd=ROOT,
                    env={**os.environ, "CHAOS_WORKER": place.name},
                )
            self.identities[f"{place.process.pid}@{socket.gethostname()}"] = place.name
            assert place.process.stdout is not None
            if await place.process.stdout.readline():
                place.ready.set()
            await place.process.stdout.read()
            status = await place.process.wait()
            place.ready.clear()
            self.ended[place.name] = time.time()
            if not place.doomed and (status or not self._stopping):
                self.fell.append((time.time(), place.name, status))
                # What cannot start now, such as while Temporal is away, is not tried without pause.
                await asyncio.sleep(0.2)

    def kill(self, rng: random.Random) -> None:
        """Kill one, a ready one if there is one."""
        author = self._places[-1]
        ready = [place for place in self._places if place.ready.is_set() and not place.doomed]
        chosen = author if rng.random() < AUTHORS_SHARE and author in ready else None
        alive = [place for place in self._places if place.process is not None and place.process.returncode is None]
        others = [place for place in ready if place is not author] or ready or alive
        if chosen is None and others:
            chosen = rng.choice(others)
        if chosen is not None and chosen.process is not None:
            chosen.doomed = True
            with contextlib.suppress(ProcessLookupError):
                chosen.process.kill()
                self.kills += 1


class Temporal:
    """A Temporal that goes and comes back, at the same address and with the same data."""

    def __init__(self, port: int, db: Path) -> None:
        self._port = port
        self._db = db
        self._stack = contextlib.AsyncExitStack()
        self._server: EmbeddedTemporal | None = None
        self.address = f"127.0.0.1:{port}"
        self.outages: list[tuple[float, float]] = []

    async def __aenter__(self) -> Self:
        self._server = await self._stack.enter_async_context(embedded_temporal(port=self._port, db=self._db))
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._stack.aclose()

    async def restart(self, *, kill: bool) -> None:
        """End it, by SIGKILL or in order, and start it again."""
        down = time.time()
        if kill:
            assert self._server is not None
            self._server.process.kill()
        await self._stack.aclose()
        # Who ends the server with its parent has the database's lock too, and lets it go a moment later.
        while left(self._db):  # noqa: ASYNC110 - a process sends no event
            await asyncio.sleep(0.05)
        await self.__aenter__()
        self.outages.append((down, time.time()))


def left(path: Path) -> list[str]:
    """Processes that name a path, as all of ours name the folder."""
    found: list[str] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())
            if str(path) in command and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {command[:200]}")
    return found


# --- runs -------------------------------------------------------------------------------------------------------------


async def insist(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask Temporal until it is there to answer."""
    while True:
        try:
            return await ask()
        except RPCError:
            await asyncio.sleep(0.2)


class Runs:
    """Starts runs and tells how each of their calls ended."""

    def __init__(self, client: Client, seed: str) -> None:
        self._client = client
        self._seed = seed

    async def graph(self, planned: PlannedRun) -> list[Outcome]:
        """A run of a graph."""
        text = json.dumps(planned.definition()).encode()
        run_id = f"{TENANT}/{self._seed}-{planned.number:05d}"
        start = RunStart(run_id, text, OWNER, options=Options(heartbeat_timeout=HEARTBEAT))
        definition = parse(text, source="chaos", node_types=REGISTRY)
        with contextlib.suppress(WorkflowAlreadyStartedError):
            await insist(lambda: start_run(self._client, start, definition, b"{}", task_queue=QUEUE))
        with contextlib.suppress(WorkflowFailureError):
            await insist(self._client.get_workflow_handle(run_id).result)
        log = (await insist(lambda: read_run(self._client, run_id))).log
        last = {event.node_id: event for event in log if event.node_id is not None}
        return [_of_node(run_id, planned, number, last.get(f"n{number}")) for number, _ in planned.numbered]

    async def author(self, planned: PlannedRun) -> list[Outcome]:
        """An author's workflow."""
        run_id = f"author-{self._seed}-{planned.number:05d}"
        calls = [(call.tool, call.arguments, call.key) for call in planned.calls]
        asked = Asked(SERVER, calls, planned.parallel, QUEUE, HEARTBEAT)
        with contextlib.suppress(WorkflowAlreadyStartedError):
            await insist(
                lambda: self._client.start_workflow(Caller.run, asked, id=run_id, task_queue=AUTHORS),
            )
        handle: WorkflowHandle[Caller, list[Ended]] = self._client.get_workflow_handle_for(Caller.run, run_id)
        told = await insist(handle.result)
        return [
            Outcome(
                run_id,
                call,
                "failed" if one.result is None else "result",
                one.at,
                one.result,
                one.code,
                one.message,
                one.delivery,
                in_doubt=one.in_doubt,
            )
            for call, one in zip(planned.calls, told, strict=True)
        ]


async def attempts(client: Client, names: Mapping[str, str]) -> dict[str, list[Attempt]]:
    """The attempts at each effect that have ended, from the histories of all workflows.

    Args:
        client: Connected.
        names: The workers, by the identity that Temporal knows them by.
    """
    found: dict[str, list[Attempt]] = {}
    async for workflow in client.list_workflows():
        carries_out = workflow.id.startswith(SHARED)
        scheduled: dict[int, str] = {}
        started: dict[int, tuple[str, float]] = {}
        for event in (await client.get_workflow_handle(workflow.id, run_id=workflow.run_id).fetch_history()).events:
            given = event.activity_task_scheduled_event_attributes.input.payloads
            if (named := EFFECT.search(b" ".join(payload.data for payload in given))) is not None:
                effect = named[1].decode()
                # Who asks for an effect with a key only waits for the workflow that carries it out.
                if carries_out or not effect.startswith(KEYED):
                    scheduled[event.event_id] = effect
            begun = event.activity_task_started_event_attributes
            if begun.scheduled_event_id in scheduled:
                started[begun.scheduled_event_id] = names.get(begun.identity, begun.identity), _moment(event)
            for name, told in ENDS.items():
                if (ended := getattr(event, name)).scheduled_event_id in started:
                    worker, since = started[ended.scheduled_event_id]
                    attempt = Attempt(worker, since, _moment(event), told)
                    found.setdefault(scheduled[ended.scheduled_event_id], []).append(attempt)
    return found


def _moment(event: HistoryEvent) -> float:
    return event.event_time.ToDatetime(tzinfo=UTC).timestamp()


def _of_node(run_id: str, planned: PlannedRun, number: int, event: RunEvent | None) -> Outcome:
    call = planned.calls[number]
    if event is None:
        return Outcome(run_id, call, "lost", time.time())
    at = datetime.fromisoformat(event.timestamp).timestamp()
    if event.type == "node.completed":
        exact = jsontext.pointer(event.payload, ["outputs", "result"])
        assert exact is not None
        return Outcome(run_id, call, "result", at, exact.decode())
    if event.type == "node.failed":
        error = jsontext.decode(event.payload)["error"]
        delivery = error["details"].get("delivery", "")
        in_doubt = IN_DOUBT in error["message"] and EARLIER not in error["message"]
        return Outcome(run_id, call, "failed", at, None, error["code"], error["message"], delivery, in_doubt)
    return Outcome(run_id, call, "skipped" if event.type == "node.skipped" else "lost", at)


@functools.cache
def runtime() -> Runtime:
    """One that says nothing of Temporal being away. It is never let go: where that happens its threads are waited for,
    and that may be in a child that has just been forked."""
    quiet = LoggingConfig(TelemetryFilter(core_level="ERROR", other_level="ERROR"))
    return Runtime(telemetry=TelemetryConfig(logging=quiet))


# --- the storm --------------------------------------------------------------------------------------------------------


class Storm:
    """One storm: what happens, and when."""

    def __init__(self, calls: int, kills: int, seed: str, folder: Path) -> None:
        self.report = Effects(seed, calls)
        self._planned = plan(calls, seed)
        self._kills = kills
        self._folder = folder
        self._random = random.Random(f"{seed} storm")
        self._span = max(kills * sum(BETWEEN_KILLS) / 2, calls / RATE)
        self._outcomes: list[Outcome] = []

    async def blow(self) -> None:
        """Start everything, make all calls, end everything, and judge."""
        ports = free_port(self._random), free_port(self._random)
        book, config = self._folder / "seen.json", self._folder / "settings.toml"
        began = time.monotonic()
        async with (
            mastered("tests.chaos.counting_server", self.report.seed, str(ports[0]), str(book)) as server,
            Temporal(ports[1], self._folder / "temporal.db") as temporal,
        ):
            config.write_text(settings(temporal.address, ports[0]), encoding="utf-8")
            fleet = Fleet(self._folder, config, temporal.address)
            async with fleet.sailing():
                client = await Client.connect(temporal.address, runtime=runtime())
                await self._all(Runs(client, self.report.seed), fleet, temporal, server)
                made = await attempts(client, fleet.identities)
        self.report.seconds = time.monotonic() - began
        self.report.runs, self.report.kills = len(self._planned), fleet.kills
        seen = json.loads(book.read_text(encoding="utf-8"))
        evidence = Evidence(fleet.ended, temporal.outages, made)
        self.report.verdict = judge(self._outcomes, [Seen(**one) for one in seen["seen"]], evidence)
        self.report.violations.extend(f"the server of the tests failed: {failure}" for failure in seen["failures"])
        self.report.violations.extend(
            f"{name} ended by itself with {status}"
            for at, name, status in fleet.fell
            if not evidence.away(at - STOP, at)
        )
        self.report.violations.extend(f"left is {process}" for process in left(self._folder))

    async def _all(self, runs: Runs, fleet: Fleet, temporal: Temporal, server: asyncio.subprocess.Process) -> None:
        async with asyncio.TaskGroup() as storm:
            storm.create_task(self._kill(fleet))
            storm.create_task(self._restart(temporal))
            storm.create_task(self._deafen(server))
            storm.create_task(
                self._make(runs, [planned for planned in self._planned if planned.at < AFTER], self._span)
            )
        await self._make(runs, [planned for planned in self._planned if planned.at >= AFTER], 0.0)

    async def _make(self, runs: Runs, planned: Sequence[PlannedRun], span: float) -> None:
        """Make these runs, each at its moment, and wait for them."""

        async def one(run: PlannedRun) -> list[Outcome]:
            await asyncio.sleep(run.at * span)
            return await (runs.graph if run.graph else runs.author)(run)

        tasks = {asyncio.ensure_future(one(run)): run for run in planned}
        if not tasks:
            return
        _, hanging = await asyncio.wait(tasks, timeout=span + SETTLE)
        for task, run in tasks.items():
            if task in hanging:
                task.cancel()
                self._outcomes += [Outcome(f"run {run.number}", call, "lost", time.time()) for call in run.calls]
            else:
                self._outcomes += task.result()
        await asyncio.gather(*hanging, return_exceptions=True)

    async def _kill(self, fleet: Fleet) -> None:
        stretch = self._span / (self._kills * sum(BETWEEN_KILLS) / 2) if self._kills else 0
        while fleet.kills < self._kills:
            await asyncio.sleep(self._random.uniform(*BETWEEN_KILLS) * stretch)
            fleet.kill(self._random)

    async def _restart(self, temporal: Temporal) -> None:
        rng = random.Random(f"{self.report.seed} temporal")
        kill = rng.random() < 0.5
        await asyncio.sleep(rng.uniform(0.35, 0.65) * self._span)
        await temporal.restart(kill=kill)
        self.report.restarts.append("killed" if kill else "stopped")

    async def _deafen(self, server: asyncio.subprocess.Process) -> None:
        await asyncio.sleep(0.2 * self._span)
        assert server.stdin is not None
        server.stdin.write(f"deaf {DEAF}\n".encode())


async def run(calls: int, kills: int, seed: str) -> Effects:
    """So many calls while so many workers are killed.

    What the processes said is kept in a folder, which is named among the violations, if there are any.
    """
    folder = Path(tempfile.mkdtemp(prefix="openwop-mcp-chaos-"))
    storm = Storm(calls, kills, seed, folder)
    try:
        await storm.blow()
    except BaseException:
        sys.stderr.write(f"what the processes said is in {folder}\n")
        raise
    if storm.report.violations:
        storm.report.violations.append(f"what the processes said is in {folder}")
    else:
        shutil.rmtree(folder)
    return storm.report
