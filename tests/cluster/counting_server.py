"""An MCP server that honours idempotency keys and counts: it outlives everything and knows what it did.

    python -m tests.cluster.counting_server PORT BOOK

Prints a line when it listens. Of its standard input it takes three words, each a line: `hold` keeps back the answers to
calls that act and come from then on, whose effects happen all the same; `held` prints how many are kept back, by the
process that asked; `release` lets them go. When the input ends, it writes each `tools/call` that it saw to BOOK, a JSON
array in the order of their arrival, and ends. Knows nothing of the pack.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.chaos.counting_server import DISCOVER, KEY, WORKER, Steady
from tests.chaos.http_server import Connection, Request
from tests.chaos.sound import envelope
from tests.cluster.plan import TOOLS, WRITES

__all__ = ("Seen",)

TAKES = (0.005, 0.05)
"""Seconds that a call takes."""

LIST = json.dumps(
    {
        "resultType": "complete",
        "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS],
        "ttlMs": 600_000,
        "cacheScope": "private",
    }
).encode()
KNOWN = {"server/discover": DISCOVER, "tools/list": LIST}


@dataclass(frozen=True)
class Seen:
    """One `tools/call` as the server saw it.

    Attributes:
        effect: From its arguments.
        tool: The tool.
        worker: Name of the process that sent it.
        key: The key that it came with.
        acted: Whether the effect happened for it; not where its key had been there before.
        result: The answer's result, byte for byte.
    """

    effect: str
    tool: str
    worker: str
    key: str | None
    acted: bool
    result: str


class Counting:
    """Listens, counts, and keeps what it saw."""

    def __init__(self) -> None:
        # Of the connections.
        self.random = random.Random(0)
        self.connections: set[Connection] = set()
        self.failures: list[str] = []
        self.seen: list[Seen] = []
        self.held: Counter[str] = Counter()
        self.open = asyncio.Event()
        self.open.set()
        self._done: dict[str, str] = {}

    async def answer(self, c: Connection, r: Request) -> None:
        method = r.message.get("method")
        if method == "tools/call":
            await self._call(c, r)
        elif method in KNOWN:
            c.reply(envelope(r.id, "result", KNOWN[method]))
        else:
            c.reply(b"", 405, media=None)

    async def _call(self, c: Connection, r: Request) -> None:
        params: dict[str, Any] = r.message["params"]
        effect, tool, worker = params["arguments"]["effect"], params["name"], r.headers.get(WORKER, "")
        key = params.get("_meta", {}).get(KEY)
        # It acts when it is asked, and answers later: what is cut off meanwhile has happened.
        seen = self._act(effect, tool, worker, key if key == r.headers.get("idempotency-key") else None)
        self.seen.append(seen)
        await asyncio.sleep(self.random.uniform(*TAKES))
        if tool in WRITES and not self.open.is_set():
            self.held[worker] += 1
            await self.open.wait()
        c.reply(envelope(r.id, "result", seen.result.encode()))

    def _act(self, effect: str, tool: str, worker: str, key: str | None) -> Seen:
        if tool in WRITES and key is not None and key in self._done:
            return Seen(effect, tool, worker, key, acted=False, result=self._done[key])
        # No other answer is like it, and a decoder that writes it anew does not write it like this.
        result = f'{{ "content":[],"structuredContent":{{"effect":{json.dumps(effect)},"nth":{len(self.seen)}.10}} }}'
        if key is not None:
            self._done[key] = result
        return Seen(effect, tool, worker, key, acted=True, result=result)


async def main(port: int) -> str:
    """Serve until the input ends; what was seen."""
    loop = asyncio.get_running_loop()
    server = Counting()
    listening = await loop.create_server(partial(Steady, server), "127.0.0.1", port, backlog=512)
    _say({"ready": True})
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        match line.strip():
            case b"hold":
                server.open.clear()
            case b"release":
                server.open.set()
                server.held.clear()
            case b"held":
                _say(server.held)
    listening.close()
    return json.dumps({"seen": [asdict(seen) for seen in server.seen], "failures": server.failures})


def _say(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(asyncio.run(main(int(sys.argv[1]))), encoding="utf-8")
