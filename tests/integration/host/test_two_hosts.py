"""Two hosts and two workers of one Temporal, each a process: a client cannot tell which of them it has."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from openwop_mcp.embedded import EmbeddedTemporal
from openwop_mcp.runs.sessions import OPENED
from tests.support.cli import serving
from tests.support.fake_server import FakeServer, Request, modern, result_reply
from tests.support.host_process import Frame, HostProcess, host_process, path_of
from tests.support.patience import PATIENCE

CALLED = b'{ "content":[],"structuredContent":{"n":1.10} }'


class Gate:
    """A tool that answers as often as a test lets it."""

    def __init__(self) -> None:
        self.open = asyncio.Semaphore(0)

    async def called(self, request: Request) -> Any:
        if request.json["params"]["name"] == "held":
            await self.open.acquire()
        return result_reply(request, CALLED)


@dataclass(frozen=True)
class Deployment:
    """What the tests share. Each of the hosts may be asked anything."""

    gate: Gate
    settings: str
    folder: Path
    one: HostProcess
    two: HostProcess

    @contextlib.asynccontextmanager
    async def another(self) -> AsyncIterator[HostProcess]:
        """A host that may be ended."""
        async with host_process("serve", self.settings, self.folder) as running:
            yield running


@pytest.fixture(scope="module")
async def both(temporal: EmbeddedTemporal, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    folder = tmp_path_factory.mktemp("hosts")
    gate = Gate()
    async with FakeServer(modern({"tools/call": gate.called})) as server:
        settings = (
            f'[temporal]\naddress = "{temporal.address}"\n[worker]\ntask_queue = "{uuid.uuid4().hex}"\n'
            f'[host]\nfixtures = true\n[storage]\nfolder = "{folder}/values"\n'
            f'[servers.conformance]\nurl = "{server.url}"\nnetwork = "private"\n'
            '[servers.conformance.tools."*"]\nsafety_tier = "read"\n'
        )
        file = folder / "run.toml"
        file.write_text(settings, encoding="utf-8")
        async with (
            serving("run", "--config", str(file)),
            serving("run", "--config", str(file)),
            host_process("serve", settings, folder) as one,
            host_process("serve", settings, folder) as two,
        ):
            yield Deployment(gate, settings, folder, one, two)
            gate.open = asyncio.Semaphore(100)


def told(answer: httpx.Response) -> tuple[int, bytes, str | None, str | None]:
    """What an answer says, but for what names the request."""
    return answer.status_code, answer.content, answer.headers.get("etag"), answer.headers.get("content-type")


def call(name: str = "echo") -> dict[str, Any]:
    return {"method": "callTool", "serverId": "conformance", "name": name, "arguments": {"low": 1.5}}


async def until_listed(host: HostProcess, workflow_id: str, ids: list[str]) -> list[str]:
    """Wait until a host lists runs of another one, as Temporal does within a second; all of that workflow."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = (await host.http.get(f"/runs?workflowId={workflow_id}&limit=100")).json()["runs"]
            listed = [run["runId"] for run in found]
            if set(ids) <= set(listed):
                return listed


async def test_any_host_gives_the_same_answer_to_the_byte(both):
    ids = [
        await both.one.ended("conformance-mcp-client", call()),
        await both.two.ended("conformance-failure", {"a": 1}, tags=["t"], metadata={"m": None}),
        await both.one.create("conformance-cancellable"),
    ]
    await both.two.until(ids[2], "node.started")
    asked = ["/.well-known/openwop", "/openapi.json", "/workflows/conformance-noop", "/nothing", "/runs?limit=0"]
    for run_id in (*ids, "acme/0123456789abcdef", "umbrella/0123456789abcdef"):
        path = path_of(run_id)
        asked += [
            path,
            f"{path}/events/poll?timeout=1",
            f"{path}/events/poll?timeout=1&afterSequence=1",
            f"{path}/effects",
        ]
        asked += [f"{path}/events?streamMode=bogus"]
    for run_id in ids[:2]:
        asked += [
            f"{path_of(run_id)}/events?streamMode={mode}" for mode in ("updates", "values", "debug", "debug&bufferMs=5")
        ]
    for path in asked:
        first, second = [await at.http.get(path) for at in (both.one, both.two)]
        assert told(first) == told(second), path
        if etag := first.headers.get("etag"):
            assert (await both.two.http.get(path, headers={"If-None-Match": etag})).status_code == 304


async def test_what_one_host_created_is_there_at_the_other_at_once(both):
    for _ in range(10):
        for creates, reads in ((both.one, both.two), (both.two, both.one)):
            run_id = await creates.create("conformance-noop")
            answers = [
                await reads.http.get(path_of(run_id) + rest) for rest in ("", "/events/poll?timeout=1", "/effects")
            ]
            assert [answer.status_code for answer in answers] == [200] * 3


async def test_what_one_host_did_to_a_run_is_seen_at_the_other_at_once(both):
    run_id = await both.one.create("conformance-cancellable")
    await both.one.until(run_id, "node.started")
    path = path_of(run_id)
    assert (await both.two.http.get(path)).json()["status"] == "running"
    for asks, sees, what, status in (
        (both.one, both.two, ":pause", "paused"),
        (both.two, both.one, ":resume", "running"),
        (both.one, both.two, "/cancel", "cancelling"),
    ):
        assert (await asks.http.post(path + what)).is_success
        assert (await sees.http.get(path)).json()["status"] in {status, "cancelled" if what == "/cancel" else status}


async def test_one_key_at_two_hosts_at_once_is_one_run(both):
    for _ in range(5):
        key = {"Idempotency-Key": str(uuid.uuid4())}
        body = {"workflowId": "conformance-noop"}
        answers = await asyncio.gather(
            *(at.http.post("/runs", json=body, headers=key) for at in (both.one, both.two) * 3)
        )
        done = [answer for answer in answers if answer.status_code == 201]
        assert {answer.status_code for answer in answers} <= {201, 409}
        assert {answer.json()["error"] for answer in answers if answer.status_code == 409} <= {"idempotency_in_flight"}
        assert len({answer.content for answer in done}) == 1
        assert len([answer for answer in done if "openwop-idempotent-replay" not in answer.headers]) == 1


async def test_a_list_that_one_host_began_is_gone_on_with_by_the_other(both):
    ids = [await both.one.create("conformance-multi-node") for _ in range(5)]
    await until_listed(both.two, "conformance-multi-node", ids)
    found: list[str] = []
    query = "/runs?workflowId=conformance-multi-node&limit=2"
    cursor = ""
    for at in (both.one, both.two, both.one):
        page = (await at.http.get(query + cursor)).json()
        found += [run["runId"] for run in page["runs"]]
        cursor = f"&cursor={page.get('nextCursor')}"
    # The last page has room for an older run of another test.
    assert found[: len(ids)] == ids[::-1]


async def test_a_client_whose_host_is_killed_misses_nothing_at_the_other(both):
    calls = [await both.one.create("conformance-mcp-client", call("held")) for _ in range(3)]
    seen: dict[str, list[Frame]] = {run_id: [] for run_id in calls}
    async with both.another() as dying:

        async def follow(run_id: str, begun: asyncio.Event) -> None:
            with contextlib.suppress(httpx.TransportError):
                async for frame in dying.frames(run_id):
                    seen[run_id].append(frame)
                    if frame.event == OPENED:
                        begun.set()

        async with asyncio.TaskGroup() as following:
            begun = [asyncio.Event() for _ in calls]
            for run_id, event in zip(calls, begun, strict=True):
                following.create_task(follow(run_id, event))
            for event in begun:
                await event.wait()
            dying.serving.process.kill()
            await dying.serving.process.wait()
    for _ in calls:
        both.gate.open.release()
    for run_id in calls:
        [*_, last] = seen[run_id]
        assert last.event == OPENED
        assert last.id is not None
        rest = [frame async for frame in both.two.frames(run_id, after=int(last.id))]
        log = await both.one.log(run_id)
        assert [frame.json for frame in seen[run_id] + rest] == log
        assert log[-1]["type"] == "run.completed"
        # Bytes too: whoever compares what two hosts gave finds one log.
        page = (await both.two.http.get(f"{path_of(run_id)}/events/poll")).content
        assert b",".join(frame.data for frame in seen[run_id] + rest) in page


async def test_what_a_killed_host_had_begun_is_done_once_by_the_other(both):
    keys = [{"Idempotency-Key": str(uuid.uuid4())} for _ in range(20)]
    body = {"workflowId": "conformance-idempotent", "inputs": {"nonce": "n"}}
    async with both.another() as dying:
        asked = [asyncio.create_task(dying.http.post("/runs", json=body, headers=key)) for key in keys]
        await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        dying.serving.process.kill()
        await dying.serving.process.wait()
        first = await asyncio.gather(*asked, return_exceptions=True)
    ids = []
    for key, before in zip(keys, first, strict=True):
        again = await both.one.http.post("/runs", json=body, headers=key)
        assert again.status_code == 201
        assert not isinstance(before, httpx.Response) or again.content == before.content
        ids.append(again.json()["runId"])
        await both.one.log(ids[-1])
    listed = await until_listed(both.two, "conformance-idempotent", ids)
    assert sorted(listed) == sorted(ids)


async def test_a_poll_goes_on_at_the_other_host(both):
    run_id = await both.one.create("conformance-mcp-client", call("held"))
    events: list[dict[str, Any]] = []
    hosts = [both.one, both.two]
    is_over = is_let = False
    async with asyncio.timeout(PATIENCE):
        while not is_over:
            hosts.reverse()
            after = f"&afterSequence={events[-1]['sequence']}" if events else ""
            page = (await hosts[0].http.get(f"{path_of(run_id)}/events/poll?timeout=1{after}")).json()
            events += page["events"]
            is_over = page["isTerminal"]
            # Once: what is let beyond that would be the call of another test.
            if events and events[-1]["type"] == OPENED and not is_let:
                both.gate.open.release()
                is_let = True
    assert events == await both.one.log(run_id)


async def test_a_host_that_is_told_to_end_does_so_in_time_though_clients_read(both):
    run_id = await both.one.create("conformance-mcp-client", call("held"))
    async with both.another() as ending:
        seen: list[Frame] = []
        begun = asyncio.Event()

        async def follow(mode: str) -> None:
            async for frame in ending.frames(run_id, f"streamMode={mode}"):
                seen.append(frame)
                if frame.event == OPENED:
                    begun.set()

        async def poll() -> httpx.Response:
            return await ending.http.get(f"{path_of(run_id)}/events/poll?afterSequence=2&timeout=60")

        following = [asyncio.create_task(follow(mode)) for mode in ("debug", "values", "updates", "messages")]
        await asyncio.wait_for(begun.wait(), PATIENCE)
        polling = [asyncio.create_task(poll()) for _ in range(5)]
        # A request behind them is answered: they have arrived.
        await ending.http.get(path_of(run_id))
        before = time.monotonic()
        done = await ending.serving.end(signal.SIGTERM, within=PATIENCE)
        # Polls wait for a minute, and streams for as long as the run.
        assert time.monotonic() - before < PATIENCE / 2
        assert (done.status, done.out) == (0, b"")
        assert "Traceback" not in done.err
        # They are cut, so that nobody takes what there was for the whole.
        cut = await asyncio.gather(*following, return_exceptions=True)
        assert [type(error) for error in cut] == [httpx.RemoteProtocolError] * len(cut)
        for answer in await asyncio.gather(*polling):
            assert (answer.status_code, answer.json()["events"]) == (200, [])
    both.gate.open.release()
    last = max(int(frame.id or 0) for frame in seen if frame.event != "state.snapshot")
    rest = [frame.json async for frame in both.two.frames(run_id, after=last)]
    assert rest == (await both.one.log(run_id))[last + 1 :]
