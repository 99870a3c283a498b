"""Makes recorded histories and their event logs: ``python -m tests.replay.record`` makes those that are not there.

Each released version has a folder of its own; what is made anew goes into that of the version which `pyproject.toml`
names. A recorded history is a promise that every later version still understands it, so that those of a version that
was released are never made anew. Before its release delete one, to have it made anew, only where a change is meant to
break that promise, and say so where the engine version is.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import itertools
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
from temporalio.worker import Worker

from examples.two_calls import TwoCalls, TwoCallsInput
from openwop_mcp.effects.identity import by_key
from openwop_mcp.effects.shared import effect_workflow_id
from openwop_mcp.runs.pauses import Pause
from tests.replay.author import Booking
from tests.support import exact
from tests.support.asking import ROUND, AskingServer, ask
from tests.support.author_flows import Author, Call, Calls
from tests.support.catalogs import Shop, keeping, of, tool
from tests.support.doubts import (
    ACCEPT,
    BUSY,
    REJECT,
    asked_of_run,
    done,
    resolve,
    scene,
    until,
    until_cancelled,
    until_pending,
)
from tests.support.fake_server import FakeServer, Reply, Request, error_reply, modern, result_reply
from tests.support.graphs import edge, node, workflow
from tests.support.legacy_server import LegacyServer
from tests.support.mcp_client import replies
from tests.support.pack import SERVER, Pack, chain, log_of, pack_worker, settings_for, toml_for, types
from tests.support.pauses import pause, resume, until_ended
from tests.support.questions import ELICITATION, input_required
from tests.support.tuned_temporal import tuned_temporal
from workflows.replay import export

__all__ = ("HISTORIES", "LOGS", "VERSION")

VERSION = importlib.metadata.version("openwop-mcp-pack")
HISTORIES = Path(__file__).parent / "histories"
LOGS = Path(__file__).parent / "logs"

TOOLS = {"*": {"safety_tier": "write"}, "read*": {"safety_tier": "read"}, "asked*": {"on_doubt": "ask"}}
SETTINGS: dict[str, Any] = {"tools": TOOLS, "worker": {"tenant": "acme"}}
KEY = {"type": "static", "value": "order-7"}
QUEUE = "openwop-mcp"
PAID = {"kind": "external-event", "data": {"eventType": "paid", "correlation": {"order": 7}}}
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
    file = HISTORIES / VERSION / f"{name}.json"
    if file.exists():
        return
    file.parent.mkdir(exist_ok=True)
    file.write_text(scrubbed(export(found)), encoding="utf-8")
    if log:
        events = [event.encode().decode() for event in log_of(found)]
        file = LOGS / VERSION / f"{name}.events.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text("[\n" + ",\n".join(events) + "\n]\n", encoding="utf-8")


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


async def record_sessions(pack: Pack, served: Server) -> None:
    served.busy.append(Reply(status=503))
    served.doubtful.append(Reply(status=503))
    served.slow.add("read-slow")
    steps = [call("n0", "read-busy"), call("n1", "bad"), *(call(f"n{index}") for index in range(2, 8))]
    steps += [node("list", "community.mcp.list-tools", config={"serverId": "fake"}), call("slow", "read-slow")]
    then = [edge(one["id"], other["id"], "all_complete") for one, other in itertools.pairwise(steps)]
    handle = await pack.start(workflow([call("a", "asked"), *steps], then), run_id="acme/sessions")
    await served.until_waiting(1)
    await pause(handle, Pause("immediate"))
    await until_ended(handle)
    await resume(handle)
    # By now the run goes on in another history than the one in which it asked.
    ((identity, _),) = await asked_of_run(handle)
    await resolve(handle, identity, ACCEPT)
    _, found = await pack.end(handle)
    write("sessions", found)


async def record_gates(client: Client) -> None:
    """Gates that are opened, rejected and left alone, and servers' questions, over more than one history."""
    gates = [
        node("approve", "core.approvalGate", config={"title": "Go on?", "actions": ["accept", "edit-accept"]}),
        node("ask", "core.clarificationGate", config={"questions": [{"id": "q", "question": "Which?"}]}),
        node("paid", "core.interrupt", config=PAID),
        node("late", "core.approvalGate", config={"title": "Now?", "timeoutMs": 500, "onTimeout": "approve"}),
        node("never", "core.noop"),
    ]
    answers = {
        "approve": b'{ "action": "edit-accept", "editedArtifactData": { "n": 1.10 } }',
        "ask": b'{"answers":{"q":"r\\u00e9"}}',
        "paid": b'{"order":7.0,"n":1.10}',
    }
    async with scene(client, {"*": {"safety_tier": "write"}}) as at:
        handle = await at.pack.start(
            workflow(gates, [edge("late", "never"), edge("approve", "never")]), run_id="acme/gates"
        )
        log = await until(handle, lambda log: "node.failed late" in types(log))
        ids = {one.node_id: json.loads(one.payload)["interruptId"] for one in log if one.type == "node.suspended"}
        for node_id, answer in answers.items():
            await resolve(handle, ids[node_id], answer)
        _, found = await at.pack.end(handle)
        write("gates", found)


async def record_questions(client: Client) -> None:
    def replied(request: Request) -> Reply:
        return result_reply(request, results[request.json["params"]["name"]].pop(0))

    asks = input_required({"q": ELICITATION}, 'e30=\u0000 \u00fc"')
    results = {
        "guarded": [asks, input_required({"r": ELICITATION}), exact.RESULT],
        "polls": [input_required(state="s")] * 2 + [exact.RESULT],
        "waits": [asks],
        "write": [exact.RESULT] * 12,
    }
    names = [f"n{index}" for index in range(12)]
    late = {"serverId": "fake", "name": "waits", "inputTimeoutMs": 500}
    nodes = [call("a", "guarded"), call("b", "polls"), node("late", config=late), *map(call, names)]
    answers = [ACCEPT, b'{ "q": {"action":"accept", "content": {"colour":"r\\u00e9d", "count":1.0} } }']
    async with scene(client, {"*": {"safety_tier": "write"}, "guarded": {"approval": "write"}}) as at:
        at.acting.replies = [replied] * 20
        started = await at.pack.start(workflow(nodes), run_id="acme/questions")
        handle = client.get_workflow_handle(started.id)
        # By the time of the first answer the run goes on in another history than the one in which it asked.
        through = {"node.failed late", "node.completed b", *(f"node.completed {name}" for name in names)}
        # What is waited for may come in a history that is not there yet.
        while not through <= set(types(log_of(await chain(client, handle.id)))):  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.1)
        for number, answer in enumerate([*answers, b'{"r":{"action":"decline"}}'], start=1):
            log = await until(handle, lambda log, asked=number: types(log).count("node.suspended a") >= asked)
            identity = next(
                json.loads(one.payload)["interruptId"]
                for one in reversed(log)
                if one.type == "node.suspended" and one.node_id == "a"
            )
            await resolve(handle, identity, answer)
        _, found = await at.pack.end(handle)
        assert len(found) > 1
        write("questions", found)


async def record_doubts(client: Client) -> None:
    # Was recorded before an author's workflow could be asked anything else.
    async with scene(client, {"*": {"on_doubt": "ask"}}) as at:
        at.acting.replies += [BUSY] * 4
        twice = [Call("call_tool", ["fake", "keyed"], key="order-7")] * 2
        calls = [*(Call("call_tool", ["fake", f"write-{name}"]) for name in "abc"), *twice]
        flow = await at.author(*calls, parallel=True)
        answered: set[str] = set()
        for answer in (ACCEPT, REJECT, done(exact.RESULT), ACCEPT):
            shown = await until_pending(flow, lambda shown: any(one.interrupt_id not in answered for one in shown))
            one = next(one for one in shown if one.interrupt_id not in answered)
            await resolve(flow, one.interrupt_id, answer)
            answered.add(one.interrupt_id)
        await flow.result()
        write("author-doubts", await chain(client, flow.id), log=False)


async def record_escaped(client: Client) -> None:
    """Calls that may be repeated, of which one attempt has no answer and the last one is refused."""
    async with scene(client, {"*": {"replay_policy": "idempotent"}}) as at:
        at.acting.replies += [BUSY, Reply(429, headers=[("Retry-After", "3600")])]
        _, found = await at.pack.run(workflow([call("a")]), run_id="acme/escaped")
        write("escaped", found)
        at.acting.replies += [BUSY, Reply(429, headers=[("Retry-After", "3600")])]
        flow = await at.author(Call("call_tool", ["fake", "write"]))
        await flow.result()
        write("author-escaped", await chain(client, flow.id), log=False)


async def record_cancel(client: Client) -> None:
    """A cancel during a call that has a result. `author-cancel-unheard` was recorded when the workflow then went on."""
    async with scene(client, {"*": {"safety_tier": "write"}}) as at:
        flow = await at.author(*(Call("call_tool", ["fake", tool]) for tool in ("slow", "after")))
        await at.acting.until_asked(1)
        await flow.cancel()
        await until_cancelled(flow)
        at.acting.let_go.set()
        with contextlib.suppress(WorkflowFailureError):
            await flow.result()
        write("author-cancelled", await chain(client, flow.id), log=False)


async def record_author(client: Client) -> None:
    again = ask({})
    plans = {"book": [ask(ROUND), again, ask(ROUND)], "asking://seats": [ask(ROUND)], "late": [ask(ROUND)]}
    answers = [
        ACCEPT,
        b'{"where":{"content":{"city":"\\u0042ern", "n":1.10},"action":"accept"}}',
        b'{"where":{"action":"accept","content":{"city":"Rome"}}}',
        b"[1.10]",
    ]
    async with FakeServer(AskingServer(plans).handler()) as server:
        servers = {"asking": {"url": server.url, "network": "private", "tools": {"*": {"approval": "always"}}}}
        settings = settings_for(server.url, servers=servers, worker={"tenant": "acme"})
        async with (
            pack_worker(client, settings, task_queue=QUEUE),
            Worker(client, task_queue="author", workflows=[Booking]),
        ):
            handle = await client.start_workflow(Booking.run, id="acme/author-asked", task_queue="author")
            answered: set[str] = set()
            for answer in answers:
                (one,) = await until_pending(handle, lambda shown: shown and shown[0].interrupt_id not in answered)
                await resolve(handle, one.interrupt_id, answer)
                answered.add(one.interrupt_id)
            await handle.result()
            write("author-asked", await chain(client, handle.id), log=False)


async def record_classes(client: Client, url: str) -> None:
    """A run whose calls are on the queue of a class, and an effect that is carried out there."""
    apart = {"apart": {"url": url, "network": "private", "class": "slow"}}
    settings = settings_for(url, servers=apart, worker={"tenant": "acme", "classes": {"slow": {}}})
    key = {"type": "static", "value": "order-8"}
    nodes = [call("own"), call("apart", server="apart"), call("keyed", server="apart", idempotencyKey=key)]
    async with pack_worker(client, settings, task_queue=QUEUE) as pack:
        _, found = await pack.run(workflow(nodes), run_id="acme/classes")
        write("classes", found)
        effect = by_key("acme", "apart", "write", "order-8", None)
        write("effect-in-class", await chain(client, effect_workflow_id(effect.effect_id)), log=False)


async def record_postponed(client: Client, url: str) -> None:
    """Calls that wait for room: of a run, which goes on in another history meanwhile, and of an author's workflow."""
    narrow = {"narrow": {"url": url, "network": "private", "limits": {"rate": 0.25, "burst": 1}}}
    settings = settings_for(url, servers=narrow, worker={"tenant": "acme"})
    names = [f"n{index}" for index in range(14)]
    nodes = [call("a", server="narrow"), call("b", server="narrow"), *map(call, names)]
    async with (
        pack_worker(client, settings, task_queue=QUEUE) as pack,
        Worker(client, task_queue="author", workflows=[Author]),
    ):
        then = [edge(one, other) for one, other in itertools.pairwise(names)]
        _, found = await pack.run(workflow(nodes, then), run_id="acme/postponed")
        write("postponed", found)
        calls = [Call("call_tool", ["narrow", f"write-{name}"]) for name in "ab"]
        handle = await client.start_workflow(
            Author.run, Calls(calls, parallel=True), id="acme/author-postponed", task_queue="author"
        )
        await handle.result()
        write("author-postponed", await chain(client, handle.id), log=False)


async def record_catalog(client: Client) -> None:
    """A catalog that is classified, drifts, is approved, finds its server down, and goes on in another history."""
    async with keeping(client, Shop([tool("mail"), tool("gone"), tool("other")], page_size=2)) as at:
        kept = of(await at.refresh(), "mail")
        word = [("mail", kept.fingerprint)]
        await at.catalogs.classify(at.tenant, SERVER, word, by="ann", why="so", safety_tier="read")
        at.shop.tools[1:] = [tool("other", "changed")]
        changed = of(await at.refresh(), "other")
        await at.catalogs.approve(at.tenant, SERVER, [("other", changed.fingerprint)], by="ann", why="seen")
        at.shop.fault = lambda _: Reply(status=503)
        await at.refresh()
        at.shop.fault = None
        while len(found := await at.histories()) < 2:
            await at.refresh()
        await at.refresh()
        await at.handle.terminate("recorded")
        found = await at.histories()
        write("catalog", found, log=False)


async def record_insistence(client: Client) -> None:
    """A catalog whose first list is under way when somebody insists on one."""
    async with keeping(client, shop := Shop()) as at:
        shop.gate.clear()
        await at.catalogs.start(at.tenant, SERVER)
        await shop.until_asked(1)
        insisting = asyncio.create_task(at.refresh())
        async for event in at.handle.fetch_history_events(wait_new_event=True):
            if event.HasField("workflow_execution_update_accepted_event_attributes"):
                break
        shop.gate.set()
        await insisting
        await at.handle.terminate("recorded")
        write("catalog-insisted", await at.histories(), log=False)


ALONE = (
    record_catalog,
    record_insistence,
    record_gates,
    record_questions,
    record_doubts,
    record_escaped,
    record_cancel,
    record_author,
)
"""Each has servers and workers of its own."""


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
            await record_sessions(pack, served)

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

        await record_classes(client, server.url)
        await record_postponed(client, server.url)
        for one in ALONE:
            await one(client)

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
    suggestion = f"limit.historyCount.suggestContinueAsNew={SHORT_HISTORY}"
    with tempfile.TemporaryDirectory() as folder:
        async with tuned_temporal(suggestion) as temporal:
            client = await Client.connect(temporal.address, identity="recorded")
            await record(client, temporal.address, Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
    sys.stdout.flush()
    os._exit(0)
