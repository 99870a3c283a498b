"""An MCP server that counts effects and fails at random: it outlives everything and knows what it did.

    python -m tests.chaos.counting_server SEED PORT BOOK

Prints a line when it listens. A line `deaf SECONDS` on standard input makes it refuse connections for so long; when the
input ends, it writes what it saw of each `tools/call` to BOOK, a JSON array in the order of their arrival, and ends.
Knows nothing of the pack.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.chaos.http_server import CHUNKED_STREAM, Connection, Request, chunk, event, head
from tests.chaos.plan import TOOLS
from tests.chaos.sound import envelope, notice

__all__ = ("REFUSALS", "WORKER", "Seen")

WORKER = "x-worker"
"""Header in which each worker process gives its own name; for the pack this is a credential."""

KEY = "dev.openwop-mcp/idempotency-key"

FIRST_BYTE = 2.0
"""Seconds after which the client gives up waiting for an answer; the settings of the workers say so."""

HOLD = 3 * FIRST_BYTE
"""Seconds that a server which hangs says nothing."""

SLOW = (0.05, 0.45 * FIRST_BYTE)
"""Seconds that a slow answer takes: long enough to be killed in, and well below the limit on a loaded machine too."""

UNSTEADY = 0.04
"""Share of the requests beside tools/call that fail."""


@dataclass
class Seen:
    """One `tools/call` as the server saw it.

    Attributes:
        effect: Id from its arguments.
        tool: The tool.
        worker: Name of the process that sent it.
        header_key: Its key, as the header has it.
        meta_key: The same, as `_meta` has it.
        did: Name of what the server did, of `WAYS`.
        result: The result that a whole answer to it holds, which no other answer does.
        at: When it had arrived, in seconds since 1970, as the others.
        executed: When the effect happened, if it did.
        answered: When the whole answer had been handed to a connection that was still open, if it was.
    """

    effect: str
    tool: str
    worker: str
    header_key: str | None
    meta_key: str | None
    did: str
    result: str
    at: float
    executed: float | None = None
    answered: float | None = None


def result(effect: str, nth: int) -> str:
    """A result like no other, with white space of its own."""
    padding = "é\\u0000 " * (nth + len(effect))
    return f'{{ "resultType" :"complete","content":[],"effect":{json.dumps(effect)},"nth":{nth}.0e0,"p":"{padding}"}}'


# --- what becomes of a call -------------------------------------------------------------------------------------------


@dataclass
class Call:
    """A call under way."""

    connection: Connection
    request: Request
    seen: Seen
    random: random.Random
    message: bytes

    def answered(self) -> None:
        """Note that the whole answer is out."""
        if not self.connection.transport.is_closing():
            self.seen.answered = time.time()


async def answers(call: Call) -> None:
    call.connection.reply(call.message)
    call.answered()


async def answers_slowly(call: Call) -> None:
    await asyncio.sleep(call.random.uniform(*SLOW))
    await answers(call)


async def answers_in_a_stream(call: Call) -> None:
    token = call.request.message["params"].get("_meta", {}).get("progressToken")
    call.connection.write(CHUNKED_STREAM)
    for step in range(3):
        said = notice("progress", progressToken=token, progress=step)
        call.connection.write(chunk(event(call.random, said)))
        await asyncio.sleep(call.random.uniform(0, SLOW[1] / 3))
    call.connection.write(chunk(event(call.random, call.message)) + b"0\r\n\r\n")
    call.answered()


async def answers_late(call: Call) -> None:
    await asyncio.sleep(call.random.uniform(1.2, 1.5) * FIRST_BYTE)
    await answers(call)


async def answers_half(call: Call) -> None:
    whole = head(200, "Content-Type: application/json", length=len(call.message)) + call.message
    call.connection.write(whole[: len(whole) - call.random.randint(1, len(call.message))])
    await asyncio.sleep(0.01)
    call.connection.end()


async def hangs(call: Call) -> None:
    await asyncio.sleep(HOLD)


async def resets(call: Call) -> None:
    await asyncio.sleep(call.random.choice((0, 0.001, 0.3)))
    call.connection.reset()


async def drops(call: Call) -> None:
    call.connection.reset()


async def fails(call: Call) -> None:
    call.connection.reply(b"{}", call.random.choice((500, 502, 503)))


async def throttles(call: Call) -> None:
    call.connection.reply(b"{}", 429, f"Retry-After: {call.random.choice((0, 1))}")


async def throttles_for_an_hour(call: Call) -> None:
    call.connection.reply(b"{}", 429, "Retry-After: 3600")


async def errs(call: Call) -> None:
    call.connection.reply(envelope(call.request.id, "error", b'{"code":-32000,"message":"no"}'))
    call.answered()


Way = Callable[[Call], Awaitable[None]]

WAYS: Mapping[str, tuple[int, float, Way]] = {
    made.__name__: (weight, executes, made)
    for weight, executes, made in (
        (26, 1.0, answers),
        (40, 1.0, answers_slowly),
        (8, 1.0, answers_in_a_stream),
        (2, 1.0, answers_late),
        (3, 1.0, answers_half),
        (2, 0.5, hangs),
        (3, 0.5, resets),
        (3, 0.0, drops),
        (4, 0.5, fails),
        (6, 0.0, throttles),
        (1, 0.0, throttles_for_an_hour),
        (2, 0.0, errs),
    )
}
"""How often each is, how likely the effect happens with it, and what it does."""

REFUSALS = frozenset({"throttles", "throttles_for_an_hour"})
"""Ways that tell the client that nothing was done."""


# --- the server -------------------------------------------------------------------------------------------------------

DISCOVER = (
    b'{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},'
    b'"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"counting","version":"1"}},"ttlMs":600000,'
    b'"cacheScope":"private"}'
)
LIST = json.dumps(
    {
        "resultType": "complete",
        "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS],
        "ttlMs": 600_000,
        "cacheScope": "private",
    }
).encode()
KNOWN = {"server/discover": DISCOVER, "tools/list": LIST}


class Steady(Connection):
    """A connection that is not ended before it says anything: what it would have said would not be known."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.server.connections.add(self)


class Counting:
    """Listens, counts, and keeps what it saw."""

    def __init__(self, seed: str, port: int) -> None:
        self.random = random.Random(f"{seed} server")
        self.connections: set[Connection] = set()
        self.failures: list[str] = []
        self.seen: list[Seen] = []
        self._seed = seed
        self._port = port
        self._asked: Counter[str] = Counter()
        self._listening: asyncio.Server | None = None

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        self._listening = await loop.create_server(partial(Steady, self), "127.0.0.1", self._port, backlog=512)

    async def deaf(self, seconds: float) -> None:
        """Refuse connections for a time; those that are there stay."""
        assert self._listening is not None
        self._listening.close()
        await asyncio.sleep(seconds)
        await self.listen()

    async def answer(self, c: Connection, r: Request) -> None:
        method = r.message.get("method")
        if method == "tools/call":
            await self._call(c, r)
        elif method not in KNOWN:
            c.reply(b"", 405, media=None)
        elif self.random.random() < UNSTEADY:
            self.random.choice((c.reset, partial(c.reply, b"{}", 500)))()
        else:
            c.reply(envelope(r.id, "result", KNOWN[method]))

    async def _call(self, c: Connection, r: Request) -> None:
        params: dict[str, Any] = r.message["params"]
        effect = params["arguments"]["effect"]
        nth = self._asked[effect]
        self._asked[effect] += 1
        rng = random.Random(f"{self._seed} {effect} {nth}")
        name = rng.choices(list(WAYS), [weight for weight, _, _ in WAYS.values()])[0]
        _, executes, way = WAYS[name]
        seen = Seen(
            effect,
            params["name"],
            r.headers.get(WORKER, ""),
            r.headers.get("idempotency-key"),
            params.get("_meta", {}).get(KEY),
            name,
            result(effect, nth),
            time.time(),
        )
        self.seen.append(seen)
        if rng.random() < executes:
            # What is answered has happened; what is not may happen later.
            self._execute(seen, 0 if executes == 1 else rng.choice((0, 0, 0.3)))
        await way(Call(c, r, seen, rng, envelope(r.id, "result", seen.result.encode())))

    def _execute(self, seen: Seen, wait: float) -> None:
        def count() -> None:
            seen.executed = time.time()

        # The effect is no part of the connection: it happens whether or not anyone is left to be told.
        if wait:
            asyncio.get_running_loop().call_later(wait, count)
        else:
            count()


async def main(seed: str, port: int) -> str:
    """Serve until the input ends; what was seen."""
    loop = asyncio.get_running_loop()
    server = Counting(seed, port)
    await server.listen()
    sys.stdout.write(json.dumps({"ready": True}) + "\n")
    sys.stdout.flush()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        await server.deaf(float(line.split()[1]))
    return json.dumps({"seen": [asdict(seen) for seen in server.seen], "failures": server.failures})


if __name__ == "__main__":
    Path(sys.argv[3]).write_text(asyncio.run(main(sys.argv[1], int(sys.argv[2]))), encoding="utf-8")
