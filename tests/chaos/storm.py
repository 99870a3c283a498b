"""Calls through a storm: many at once, some of them cancelled, each one's end judged against what its server did.

Owns the calls and the judgement; knows no server's faults but by their names.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import random
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from openwop_mcp.client import CallOptions, McpClient
from openwop_mcp.client._pool import KEEP_ALIVE, HttpPool
from openwop_mcp.client._wire import SizeLimits
from openwop_mcp.client.stdio import StdioWire
from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import McpError
from openwop_mcp.redaction import Redactor
from tests.chaos.sound import PREFIX, sound
from tests.support.mcp_client import CLIENT_INFO, client_of

__all__ = ("SECTIONS", "Storm", "run")

SECTIONS = ("modern", "legacy", "stdio")

ROOT = Path(__file__).parents[2]

LIMITS = {"connect": 0.5, "first_byte": 0.5, "idle": 0.5, "total": 1.0}
"""Seconds; short, so that what hangs shows."""

SMALLEST = 0.3
"""Seconds of the shortest total limit that a single call has."""

SIZES = SizeLimits(response_bytes=256 * 1024, event_bytes=64 * 1024)

AT_ONCE = 200
"""Calls under way together."""

WARM_UP = 0.2
"""Share of the calls after which memory must not grow: pools, caches and books are filled by then."""

FEW = 5000
"""Calls up to which memory is not judged: there is no telling growth from a warm-up."""

CANCELLED = 0.06
"""Share of the calls that are cancelled at some time, if they are not over by then."""

TOLERANCE = 0.5
"""Seconds over its limit after which a call hangs. On top comes twice the longest stall of the event loop: a timer that
fires late, and a task that has its turn late."""

PARTS = 3
"""Into which the calls after the warm-up are split. What is lost call by call grows in each of them; what a process
keeps once and for all, such as a module that a rare fault needs, in one."""

LOST_BYTES = 1024
"""For each call, from which on memory leaks."""

LOST_OBJECTS = 0.9
"""Likewise: a leak of one object a call is more."""

QUIET = 2 * KEEP_ALIVE + 4
"""Seconds until idle connections and what goes beside calls have ended."""

RESTING = 8.0
"""Seconds until what was left is gone at its other end too."""

RENEGOTIATING = frozenset({"refused", "refused_rpc", "refused_session", "drip_refusal", "lie_json"})
"""Faults that can make a client find out anew what the server speaks: the call may end as that does."""


ELSEWHERE = frozenset({"sound_redirect", "refused_elsewhere"})
"""Answers after which a request begins anew at another place: what is said of it is said of that."""


@dataclass
class Storm:
    """How the calls of one section ended, and what was wrong."""

    name: str
    calls: int
    ends: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    overrun: float = float("-inf")
    stall: float = 0.0
    memory: tuple[int, int] = (0, 0)
    objects: tuple[int, int] = (0, 0)
    descriptors: tuple[int, int] = (0, 0)
    sessions: int = 0

    def wrong(self, what: str) -> None:
        self.violations.append(what)


class Servers:
    """The process with the HTTP servers."""

    def __init__(self, process: asyncio.subprocess.Process, ports: Sequence[int]) -> None:
        self._process = process
        self.ports = ports

    @classmethod
    @contextlib.asynccontextmanager
    async def started(cls, seed: str, modern: int, legacy: int) -> AsyncIterator[Servers]:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.chaos.http_server",
            *(seed, str(modern), str(legacy)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
            limit=64 * 1024**2,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield cls(process, json.loads(await process.stdout.readline()))
        finally:
            process.stdin.close()
            await process.wait()

    async def report(self) -> dict[str, Any]:
        """What they saw, once they have seen all connections end."""
        end = asyncio.get_running_loop().time() + RESTING
        while True:
            report = await self._report()
            if not report["connections"] or asyncio.get_running_loop().time() > end:
                return report
            await asyncio.sleep(0.2)

    async def _report(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        return dict(json.loads(await self._process.stdout.readline()))


class Caller:
    """Makes the calls of one section and keeps how each ended, in as little memory as it can."""

    def __init__(self, storm: Storm, clients: Sequence[McpClient], methods: Sequence[str], seed: str) -> None:
        self._storm = storm
        self._clients = clients
        self._methods = methods
        self._seed = seed
        self._loop = asyncio.get_running_loop()
        self.ends: list[tuple[str, str] | None] = [None] * storm.calls

    async def call(self, numbers: range) -> None:
        """Make calls, so many at once, and wait for them all."""
        turn = iter(numbers)
        await asyncio.gather(*(self._work(turn) for _ in range(AT_ONCE)))

    async def _work(self, turn: Iterator[int]) -> None:
        for number in turn:
            await self._one(number)

    async def _one(self, number: int) -> None:
        rng = random.Random(f"{self._seed} {number}")
        nonce = f"{number}"
        timeout = rng.uniform(SMALLEST, LIMITS["total"]) if rng.random() < 0.2 else None
        client, method = rng.choice(self._clients), rng.choice(self._methods)
        task = self._loop.create_task(_call(client, method, nonce, CallOptions(timeout, on_progress=_ignore)))
        began = self._loop.time()
        limit = LIMITS["total"] if timeout is None else timeout
        cancelled = rng.random() < CANCELLED
        if cancelled:
            given_up = rng.uniform(0, 0.6)
            _, under_way = await asyncio.wait([task], timeout=given_up)
            if under_way:
                task.cancel()
                limit = min(limit, self._loop.time() - began)
        _, hanging = await asyncio.wait([task], timeout=20)
        self._storm.overrun = max(self._storm.overrun, self._loop.time() - began - limit)
        if hanging:
            self._storm.wrong(f"call {number} hangs: {task.get_stack()}")
            task.cancel()
            return
        self.ends[number] = self._end(task, number, nonce, cancelled=cancelled)

    def _end(self, task: asyncio.Task[bytes], number: int, nonce: str, *, cancelled: bool) -> tuple[str, str]:
        if task.cancelled():
            if not cancelled:
                self._storm.wrong(f"call {number} ended as if it were cancelled")
            return ("cancelled", "")
        error = task.exception()
        if error is None:
            if task.result() != sound(nonce):
                self._storm.wrong(f"call {number} has a result that was not sent: {task.result()[:200]!r}")
            return ("result", "")
        if not isinstance(error, McpError):
            self._storm.wrong(f"call {number} ended with {error!r}")
            return (type(error).__name__, "")
        return (type(error).__name__, sys.intern(str(error.delivery)))


def _ignore(_: object) -> None:
    """Hear of progress."""


async def _call(client: McpClient, method: str, nonce: str, options: CallOptions) -> bytes:
    if method == "tools/call":
        return (await client.call_tool("t", b'{"nonce":"%b"}' % nonce.encode(), options)).result
    if method == "tools/list":
        return (await client.list_tools(nonce, options)).result
    return (await client.read_resource(PREFIX + nonce, options)).result


# --- judgement --------------------------------------------------------------------------------------------------------


def judge(storm: Storm, ends: Sequence[tuple[str, str] | None], seen: Mapping[str, Sequence[str]]) -> None:
    """Compare how calls ended with what their server did."""
    for number, end in enumerate(ends):
        if end is None:
            continue
        kind, delivery = end
        storm.ends[f"{kind}" + (f" ({delivery})" if delivery else "")] += 1
        did = seen.get(f"{number}", ())
        what = _contradiction(kind, delivery, did)
        if what is not None:
            storm.wrong(f"call {number}, to which the server did {list(did)}, {what}: {kind} {delivery}")


def _contradiction(kind: str, delivery: str, did: Sequence[str]) -> str | None:
    last = did[-1] if did else ""
    poisoned = "poisoned" in last
    if delivery == Delivery.NOT_SENT and did and last not in ELSEWHERE:
        return "is said not to have been sent"
    if delivery == Delivery.ANSWERED and not did:
        return "is said to have been answered"
    if delivery == Delivery.NOT_PROCESSED and not poisoned and not any(_refuses(name) for name in did):
        return "is said not to have been processed"
    if kind == "result" and not last.removeprefix("poisoned ").startswith("sound"):
        return "has a result"
    if last == "sound_json" and not poisoned and kind not in {"result", "TimeLimitError", "cancelled"}:
        return "has none" if not RENEGOTIATING.intersection(did) else None
    return None


def _refuses(name: str) -> bool:
    return name in RENEGOTIATING or name.startswith("refused") or name in {"huge", "lie_page"}


# --- what a storm leaves behind ---------------------------------------------------------------------------------------


class Watch:
    """Hears of what goes wrong where no caller sees it, and of stalls of the event loop."""

    def __init__(self, storm: Storm) -> None:
        self._storm = storm

    def _handler(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self._storm.wrong(f"the event loop: {context.get('message')}: {context.get('exception')!r}")

    def _unraisable(self, unraisable: Any) -> None:
        self._storm.wrong(f"unraisable: {unraisable.err_msg}: {unraisable.exc_value!r} in {unraisable.object!r}")

    def _warned(self, message: Warning | str, *_: Any) -> None:
        self._storm.wrong(f"warning: {message!r}")

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        before, hook = loop.get_exception_handler(), sys.unraisablehook
        loop.set_exception_handler(self._handler)
        sys.unraisablehook = self._unraisable
        lag = loop.create_task(self._lag())
        client_log = logging.getLogger("openwop_mcp")
        level = client_log.level
        # What is said of servers like these fills pages.
        client_log.setLevel(logging.CRITICAL)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                warnings.showwarning = self._warned  # type: ignore[assignment]
                yield
                gc.collect()
                await asyncio.sleep(0)
        finally:
            lag.cancel()
            client_log.setLevel(level)
            sys.unraisablehook = hook
            loop.set_exception_handler(before)

    async def _lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(0.02)
            self._storm.stall = max(self._storm.stall, loop.time() - before - 0.02)


async def _becomes(condition: Any, seconds: float) -> bool:
    """Wait for something that no event tells."""
    end = asyncio.get_running_loop().time() + seconds
    while not condition():
        if asyncio.get_running_loop().time() > end:
            return False
        await asyncio.sleep(0.05)
    return True


def _memory() -> tuple[int, int]:
    gc.collect()
    # What was freed and is kept for reuse depends on the last peak alone; glibc gives it back when it is told to.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return psutil.Process().memory_info().rss, len(gc.get_objects())


@dataclass(frozen=True)
class Held:
    """Descriptors and tasks of this process."""

    descriptors: int
    tasks: int

    @classmethod
    def now(cls) -> Held:
        return cls(psutil.Process().num_fds(), len(asyncio.all_tasks()))

    def with_processes(self, count: int) -> Held:
        """What living servers take besides: three pipes and a task each."""
        return Held(self.descriptors + 3 * count, self.tasks + count)

    async def again(self) -> list[str]:
        """Wait until no more is held; what is, if that does not come."""
        if await _becomes(lambda: len(asyncio.all_tasks()) <= self.tasks and self._descriptors() <= 0, QUIET):
            return []
        left = [repr(task) for task in asyncio.all_tasks()]
        return [f"left are {self._descriptors()} descriptors and {len(left) - self.tasks} tasks, of {left}"]

    def _descriptors(self) -> int:
        return psutil.Process().num_fds() - self.descriptors


async def _blow(storm: Storm, caller: Caller, held: Held) -> None:
    """Make all calls; then nothing of them may be left, with the clients still open."""
    loop = asyncio.get_running_loop()
    warm_up = int(storm.calls * WARM_UP) if storm.calls > FEW else 0
    began = loop.time()
    await caller.call(range(warm_up))
    storm.seconds = loop.time() - began
    if warm_up:
        await held.again()
    found = [_memory()]
    edges = [warm_up + (storm.calls - warm_up) * part // PARTS for part in range(PARTS + 1)]
    for first, last in pairwise(edges):
        began = loop.time()
        await caller.call(range(first, last))
        storm.seconds += loop.time() - began
        storm.violations += await held.again()
        found.append(_memory())
    storm.memory, storm.objects = (found[0][0], found[-1][0]), (found[0][1], found[-1][1])
    storm.descriptors = (held.descriptors, psutil.Process().num_fds())
    if storm.overrun > TOLERANCE + 2 * storm.stall:
        storm.wrong(
            f"a call took {storm.overrun:.2f} s more than its limit; the event loop stalled {storm.stall:.2f} s"
        )
    if warm_up:
        calls = edges[1] - edges[0]
        grown = [min(after[kind] - before[kind] for before, after in pairwise(found)) for kind in (0, 1)]
        if grown[0] > LOST_BYTES * calls:
            storm.wrong(f"memory grew by {grown[0] / 1024**2:.1f} MB or more in each {calls} calls")
        if grown[1] > LOST_OBJECTS * calls:
            storm.wrong(f"{grown[1]} more objects live after each {calls} calls")


async def _http(storm: Storm, seed: str, *, modern: int, legacy: int) -> None:
    async with Servers.started(seed, modern, legacy) as servers, Watch(storm)():
        held = Held.now()
        async with HttpPool() as pool:
            options = {"floor": "2025-03-26"} if legacy else {}
            clients = [
                client_of(
                    f"http://127.0.0.1:{port}/mcp",
                    pool,
                    response_bytes=SIZES.response_bytes,
                    event_bytes=SIZES.event_bytes,
                    options={"name": f"server-{port}", **options},
                    **LIMITS,
                )
                for port in servers.ports
            ]
            caller = Caller(storm, clients, ("tools/call", "tools/call", "tools/list", "resources/read"), seed)
            await _blow(storm, caller, held)
            report = await servers.report()
            storm.sessions = report["sessions"]
            if report["connections"]:
                storm.wrong(f"the servers still have {report['connections']} connections")
            storm.violations += [f"a server of the tests failed: {failure}" for failure in report["failures"]]
            judge(storm, caller.ends, report["seen"])
            for client in clients:
                await client.close()
        storm.violations += await held.again()


async def _stdio(storm: Storm, seed: str) -> None:
    process = psutil.Process()
    # The caller may have processes of its own, which are none of ours.
    before = set(process.children())
    with tempfile.TemporaryDirectory() as folder:
        book = _book(folder)
        async with Watch(storm)():
            held = Held.now()
            command = (sys.executable, "-m", "tests.chaos.stdio_server", seed, str(book))
            wires = [
                StdioWire(f"chaos-{number}", command, {"PYTHONPATH": str(ROOT)}, sizes=SIZES, redactor=Redactor(()))
                for number in range(3)
            ]
            clients = [McpClient(wire, timeouts=Timeouts(**LIMITS), client_info=CLIENT_INFO) for wire in wires]
            caller = Caller(storm, clients, ("tools/call",), seed)
            await _blow(storm, caller, held.with_processes(len(wires)))
            for client in clients:
                await client.close()
            storm.violations += await held.again()
        if not await _becomes(lambda: set(process.children()) <= before, RESTING):
            storm.wrong(f"processes are left: {set(process.children()) - before}")
        judge(storm, caller.ends, _read(book))


def _book(folder: str) -> Path:
    book = Path(folder, "seen")
    book.touch()
    return book


def _read(book: Path) -> dict[str, list[str]]:
    seen: dict[str, list[str]] = {}
    for line in book.read_text().splitlines():
        nonce, name = line.split()
        seen.setdefault(nonce, []).append(name)
    return seen


async def run(name: str, calls: int, seed: str) -> Storm:
    """One section: calls to servers of revision 2026-07-28, to one with sessions, or to local processes."""
    storm = Storm(name, calls)
    if name == "stdio":
        await _stdio(storm, seed)
    else:
        await _http(storm, seed, modern=3 if name == "modern" else 0, legacy=0 if name == "modern" else 2)
    return storm
