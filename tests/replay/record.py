"""Makes recorded histories and their event logs: ``python -m tests.replay.record`` makes those that are not there.

A recorded history is a promise that a later version still understands it. Delete one, to have it made anew, only where
a change is meant to break that promise, and say so where the engine version is.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Worker

from examples.two_calls import TwoCalls, TwoCallsInput
from openwop_mcp import embedded
from openwop_mcp.effects.identity import by_key
from openwop_mcp.effects.shared import effect_workflow_id
from openwop_mcp.embedded import embedded_temporal
from openwop_mcp.runs.pauses import Pause
from tests.support import exact
from tests.support.doubts import ACCEPT, asked_of_run, resolve
from tests.support.fake_server import FakeServer, Reply, Request, error_reply, modern, result_reply
from tests.support.graphs import edge, node, workflow
from tests.support.legacy_server import LegacyServer
from tests.support.mcp_client import replies
from tests.support.pack import Pack, chain, log_of, pack_worker, settings_for, toml_for
from tests.support.pauses import pause, resume, until_ended
from workflows.replay import export

__all__ = ("HISTORIES", "LOGS")

HISTORIES = Path(__file__).parent / "histories"
LOGS = Path(__file__).parent / "logs"

TOOLS = {"*": {"safety_tier": "write"}, "read*": {"safety_tier": "read"}, "asked*": {"on_doubt": "ask"}}
SETTINGS: dict[str, Any] = {"tools": TOOLS, "worker": {"tenant": "acme"}}
KEY = {"type": "static", "value": "order-7"}
QUEUE = "openwop-mcp"
SHORT_HISTORY = 40


class Server:
    """Answers by the tool's name."""

    def __init__(self) -> None:
        self.busy = [Reply(status=429, headers=[("Retry-After", "0")]), Reply(status=503)]
        self.doubtful = [Reply(status=503)]
        self.slow = {"read-slow", "write-slow"}
        self.stalled = asyncio.Event()
        self.waiting = asyncio.Semaphore(0)

    async def answer(self, request: Request) -> Reply:
        name = request.json["params"]["name"]
        if name in self.slow:
            self.slow.remove(name)
            return await self.stall(request)
        match name:
            case "read-busy" if self.busy:
                return self.busy.pop()
            case "asked" if self.doubtful:
                return self.doubtful.pop()
            case "bad":
                return error_reply(request, -32000, "no", data={"city": "é"})
            case "read-stalls" | "write-stalls":
                return await self.stall(request)
            case _:
                return result_reply(request, exact.RESULT)

    async def stall(self, request: Request) -> Reply:
        self.waiting.release()
        streamed = result_reply(request, exact.RESULT, "sse")
        assert streamed.chunks is not None
        return Reply(headers=streamed.headers, chunks=[self.stalled, *streamed.chunks])

    async def until_waiting(self, count: int) -> None:
        for _ in range(count):
            await self.waiting.acquire()


def call(node_id: str, tool: str = "write", server: str = "fake", **inputs: Any) -> dict[str, Any]:
    return node(node_id, config={"serverId": server, "name": tool}, inputs=inputs)


def graphs() -> dict[str, bytes]:
    """The graphs that need nothing but a run."""
    on = {"serverId": "fake"}
    methods = workflow(
        [
            call("call", arguments={"type": "static", "value": "HERE"}),
            node("list", "community.mcp.list-tools", config=on, inputs={"cursor": {"type": "static", "value": ""}}),
            node("read", "community.mcp.read-resource", config={**on, "uri": "fake://one"}),
            node("health", "community.mcp.server-health", config=on),
            node(
                "through",
                "core.identity",
                inputs={"payload": {"type": "connection", "nodeId": "call", "outputKey": "/result/structuredContent"}},
            ),
            call("again", arguments={"type": "connection", "nodeId": "through", "outputKey": "payload"}),
        ],
        [
            edge("call", "list"),
            edge("call", "read"),
            edge("call", "health"),
            edge("call", "through"),
            edge("through", "again"),
        ],
    )
    retried = workflow([call("a", "read-busy"), call("b")], [edge("a", "b")])
    failed = workflow(
        [call("bad", "bad"), call("never"), call("good"), node("next", "core.noop")],
        [edge("bad", "never"), edge("good", "next")],
    )
    handled = workflow(
        [
            call("bad", "bad"),
            call("instead"),
            node("wait", "core.delay", config={"delayMs": 20}),
            node("well", "core.noop"),
            node("end", "core.noop"),
        ],
        [edge("bad", "instead", "any_failed"), edge("bad", "well"), edge("instead", "wait"), edge("wait", "end")],
    )
    count = 14
    long = workflow(
        [*(call(f"n{index}") for index in range(count)), node("aside", "core.delay", config={"delayMs": 200})],
        [edge(f"n{index}", f"n{index + 1}") for index in range(count - 1)],
    )
    # Goes on in a new Temporal run after most of these; what was told of a server before is not told again.
    peers = ["fake", "old", "older", "closed", "fake", "old", "older", "closed"]
    terms = [
        *(call(f"{server}-{index}", server=server) for index, server in enumerate(peers)),
        node("health", "community.mcp.server-health", config={"serverId": "older"}),
        call("bad", "bad"),
    ]
    negotiated = workflow(
        terms, [edge(one["id"], other["id"], "all_complete") for one, other in itertools.pairwise(terms)]
    )
    made = {
        "four-methods": methods,
        "retried": retried,
        "failed": failed,
        "handled": handled,
        "continued": long,
        "negotiated": negotiated,
    }
    return {
        name: json.dumps(definition).encode().replace(b'"HERE"', exact.ARGUMENTS) for name, definition in made.items()
    }


def stalling(*tools: str) -> dict[str, Any]:
    nodes = [call(tool, tool) for tool in tools]
    return workflow([*nodes, call("quick"), call("after")], [edge(tools[0], "after")])


def scrubbed(text: str) -> str:
    """Without what tells of the machine on which it was recorded; a replay needs none of it."""

    def clean(value: Any) -> Any:
        if isinstance(value, list):
            return [clean(item) for item in value]
        if not isinstance(value, dict):
            return value
        cleaned = {key: clean(item) for key, item in value.items() if key != "stackTrace"}
        for key in ("identity", "buildId"):
            if key in cleaned:
                cleaned[key] = "recorded"
        if cleaned.get("kind") == "TASK_QUEUE_KIND_STICKY":
            cleaned["name"] = "recorded"
        return cleaned

    return json.dumps(clean(json.loads(text)), indent=1, sort_keys=True) + "\n"


def write(name: str, found: Sequence[WorkflowHistory], *, log: bool = True) -> None:
    if (HISTORIES / f"{name}.json").exists():
        return
    (HISTORIES / f"{name}.json").write_text(scrubbed(export(found)), encoding="utf-8")
    if log:
        events = [event.encode().decode() for event in log_of(found)]
        (LOGS / f"{name}.events.json").write_text("[\n" + ",\n".join(events) + "\n]\n", encoding="utf-8")


async def record_pauses(pack: Pack, served: Server) -> None:
    delay = node("wait", "core.delay", config={"delayMs": 2_000})
    nodes = [call("read", "read-slow"), call("write", "write-slow"), delay, call("after")]
    handle = await pack.start(workflow(nodes, [edge("read", "after")]), run_id="acme/paused")
    await served.until_waiting(2)
    await pause(handle, Pause("immediate", "lunch"))
    await until_ended(handle, 2)
    await resume(handle)
    await pause(handle)
    await until_ended(handle, 3)
    await resume(handle, "é")
    _, found = await pack.end(handle)
    write("paused", found)

    limits = b'{ "version": 1, "run": {"runTimeoutMs": 300} }'
    handle = await pack.start(
        workflow([call("a"), node("wait", "core.delay", config={"delayMs": 60_000})]),
        run_id="acme/timed-out",
        configurable=limits,
    )
    _, found = await pack.end(handle)
    write("timed-out", found)


async def record(client: Client, address: str, folder: Path) -> None:
    served = Server()
    handler = modern(
        {
            "tools/call": served.answer,
            "tools/list": exact.PAGE,
            "resources/read": exact.RESOURCE,
            "server/discover": exact.DISCOVERED,
        }
    )
    async with (
        FakeServer(handler) as server,
        FakeServer(LegacyServer()) as old,
        FakeServer(LegacyServer()) as older,
        FakeServer(replies(Reply(status=401))) as closed,
    ):
        servers = {
            "sample": {"url": server.url, "network": "private"},
            "old": {"url": old.url, "network": "private", "minimum_revision": "2025-06-18"},
            "older": {"url": older.url, "network": "private"},
            "closed": {"url": closed.url, "network": "private"},
        }
        settings = settings_for(server.url, servers=servers, **SETTINGS)
        async with pack_worker(client, settings, task_queue=QUEUE) as pack:
            for name, definition in graphs().items():
                _, found = await pack.run(definition, b'{"n": 1.10}', run_id=f"acme/{name}")
                write(name, found)

            handle = await pack.start(stalling("write-stalls", "read-stalls"), run_id="acme/cancelled")
            await served.until_waiting(2)
            await handle.cancel(reason="enough")
            _, found = await pack.end(handle)
            write("cancelled", found)

            handle = await pack.start(workflow([call("a", "asked"), call("b")]), run_id="acme/asked")
            ((identity, _),) = await asked_of_run(handle)
            await resolve(handle, identity, ACCEPT)
            _, found = await pack.end(handle)
            write("asked", found)

            await record_pauses(pack, served)

            _, found = await pack.run(workflow([call("a", idempotencyKey=KEY)]), run_id="acme/keyed")
            write("keyed", found)
            effect = by_key("acme", "fake", "write", str(KEY["value"]), None)
            write("effect", await chain(client, effect_workflow_id(effect.effect_id)), log=False)

            async with Worker(client, task_queue="author", workflows=[TwoCalls]):
                handle = await client.start_workflow(
                    TwoCalls.run, TwoCallsInput(city="Bern", seconds=1), id="acme/two-calls", task_queue="author"
                )
                await handle.result()
                write("two-calls", await chain(client, handle.id), log=False)

        file = folder / "settings.toml"
        file.write_text(toml_for(address, server.url, **SETTINGS), encoding="utf-8")
        async with AsyncExitStack() as stack:
            process = await asyncio.create_subprocess_exec(sys.executable, "worker.py", "run", "--config", str(file))
            stack.callback(lambda: process.returncode is None and process.kill())
            handle = await Pack(client, QUEUE).start(stalling("read-stalls", "write-stalls"), run_id="acme/killed")
            await served.until_waiting(2)
            process.kill()
            await process.wait()
        served.stalled.set()
        async with pack_worker(client, settings, task_queue=QUEUE) as pack:
            _, found = await pack.end(handle)
            write("killed", found)


async def main() -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        suggestion = f"limit.historyCount.suggestContinueAsNew={SHORT_HISTORY}"
        patch.setattr(embedded, "DYNAMIC_CONFIG", (*embedded.DYNAMIC_CONFIG, suggestion))
        async with embedded_temporal() as temporal:
            client = await Client.connect(temporal.address, identity="recorded")
            await record(client, temporal.address, Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()
    os._exit(0)
