"""Questions that are answered days later, and all that ran when they were asked was killed meanwhile.

The server is one of the official SDK. Days pass by Temporal's clock of a workflow, which it can put forward.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.testing import TimeSkipper

from openwop_mcp import embedded, jsontext
from openwop_mcp.embedded import embedded_temporal
from tests.support.asking_flows import Asker, Call, Told
from tests.support.cli import ROOT, cli
from tests.support.doubts import asked_of_author, asked_of_run, pending, resolve, until_pending
from tests.support.graphs import node, workflow
from tests.support.pack import Pack, activity_results, chain, error_of, log_of, payload_of, toml_for
from tests.support.patience import PATIENCE
from tests.support.ports import free_port
from workflows.client import read_run
from workflows.replay import replay

pytestmark = pytest.mark.timeout(300)
"""Each of these starts four processes up to three times."""

MONTH = timedelta(days=30)
WHEN, ROOM = "__main__:ask_when", "__main__:ask_room"
AUTHOR = "author"


@dataclass(frozen=True)
class Round:
    """A call that the server had, and what it answered, as bytes."""

    asked: bytes
    answered: bytes

    def param(self, name: str) -> bytes | None:
        return jsontext.pointer(self.asked, ["params", name])

    @property
    def result(self) -> bytes:
        found = jsontext.member(self.answered, "result")
        assert found is not None, self.answered
        return found


@dataclass(frozen=True)
class Days:
    """A Temporal with a database file, a worker, one of authors, and the server: processes that are killed together."""

    folder: Path
    queue: str
    temporal: int
    server: int

    @classmethod
    def begin(cls, folder: Path) -> Days:
        one = cls(folder, f"days-{uuid.uuid4().hex}", free_port(), free_port())
        url = f"http://127.0.0.1:{one.server}/mcp"
        own = {"task_queue": one.queue, "tenant": "acme"}
        one.config.write_text(toml_for(one.address, url, worker=own), encoding="utf-8")
        return one

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.temporal}"

    @property
    def config(self) -> Path:
        return self.folder / "settings.toml"

    @property
    def journal(self) -> Path:
        return self.folder / "journal"

    @contextlib.asynccontextmanager
    async def up(self, *server: str) -> AsyncIterator[Client]:
        """All of it, until all of it is killed."""
        asking = ("-m", "tests.support.servers.asking", str(self.server), str(self.journal), *server)
        async with (
            embedded_temporal(port=self.temporal, db=self.folder / "temporal.db") as temporal,
            process(*asking),
            process("worker.py", "run", "--config", str(self.config)),
            process("-m", "tests.support.author_process", self.address, AUTHOR),
        ):
            yield await Client.connect(self.address)
            psutil.Process(temporal.process.pid).kill()

    async def start(self, client: Client) -> tuple[WorkflowHandle[Any, Any], WorkflowHandle[Any, list[Told]]]:
        """A run and a workflow of an author with a call each, which they wait a month for."""
        config = {"serverId": "fake", "name": "book", "inputTimeoutMs": MONTH // timedelta(milliseconds=1)}
        given = {"arguments": {"type": "static", "value": {"city": "Bern"}}}
        run = await Pack(client, self.queue).start(workflow([node("a", config=config, inputs=given)]))
        call = Call("call_tool", ["fake", "book", {"city": "Rome"}], patience=MONTH.total_seconds())
        author = await client.start_workflow(Asker.run, args=[[call], self.queue], id="author", task_queue=AUTHOR)
        await asked_of_run(run)
        await asked_of_author(author)
        return run, author

    def rounds(self, city: str) -> list[Round]:
        """The calls of a tool for a city that the server had."""
        lines = [json.loads(line) for line in self.journal.read_text(encoding="utf-8").splitlines()]
        found = [Round(line["asked"].encode(), line["answered"].encode()) for line in lines if line["asked"]]
        return [one for one in found if jsontext.decode(one.param("arguments") or b"null") == {"city": city}]


@contextlib.asynccontextmanager
async def process(*command: str) -> AsyncIterator[None]:
    """A process that has said that it is ready, until it is killed."""
    started = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)
    assert started.stdout is not None
    try:
        said = await asyncio.wait_for(started.stdout.readline(), PATIENCE)
        assert json.loads(said)["ready"] is True
        yield
    finally:
        started.kill()
        await started.wait()


@pytest.fixture
def days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Days:
    # A clock of each workflow's own is something that Temporal has to be told to have.
    clocks = "frontend.WorkflowTimeSkippingEnabled=true"
    monkeypatch.setattr(embedded, "DYNAMIC_CONFIG", (*embedded.DYNAMIC_CONFIG, clocks))
    return Days.begin(tmp_path)


async def pass_by(client: Client, time: timedelta, *workflows: WorkflowHandle[Any, Any]) -> None:
    """Put the clocks of workflows forward."""
    skipper = TimeSkipper(client)
    for one in workflows:
        await skipper.fast_forward(one, time)


async def answer(run: WorkflowHandle[Any, Any], author: WorkflowHandle[Any, Any], value: bytes) -> None:
    """Answer the last question of both."""
    await resolve(run, (await asked_of_run(run))[-1][0], value)
    [asked] = await pending(author)
    await resolve(author, asked.interrupt_id, value)


def seconds_between(log: Sequence[Any], first: str, then: str) -> list[float]:
    """Between events of two types, pair by pair."""
    times = [[datetime.fromisoformat(one.timestamp) for one in log if one.type == name] for name in (first, then)]
    return [(later - earlier).total_seconds() for earlier, later in zip(*times, strict=True)]


async def test_two_questions_are_answered_days_apart_and_all_was_killed_while_each_was_open(days: Days) -> None:
    when = b'{"%b":{"action":"accept","content":{ "day":"2026-12-31", "nights":2.0 }}}' % WHEN.encode()
    room = b'{"%b":{"action":"accept","content":{"beds":"tw\\u006f"}}}' % ROOM.encode()
    async with days.up() as client:
        run, author = await days.start(client)
    async with days.up() as client:
        run, author = (client.get_workflow_handle(one.id) for one in (run, author))
        await pass_by(client, timedelta(days=3), run, author)
        [first] = await pending(author)
        await answer(run, author, when)
        await asked_of_run(run, 2)
        await until_pending(author, lambda shown: shown and shown != [first])
    async with days.up() as client:
        run, author = (client.get_workflow_handle(one.id) for one in (run, author))
        await pass_by(client, timedelta(days=20), run, author)
        await answer(run, author, room)
        await asyncio.wait_for(run.result(), PATIENCE)
        [told] = await asyncio.wait_for(author.result(), PATIENCE)
        found = {"Bern": await chain(client, run.id), "Rome": await chain(client, author.id)}
        log = log_of(found["Bern"])
        assert [seconds // 86_400 for seconds in seconds_between(log, "node.suspended", "node.resumed")] == [3, 20]
        completed = payload_of(log, "node.completed")["outputs"]["result"]
        for city, result in (("Bern", completed), ("Rome", json.loads(told["raw"]))):
            assert result["structuredContent"] == {
                "city": city,
                "when": {"action": "accept", "data": {"day": "2026-12-31", "nights": 2}},
                "room": {"action": "accept", "data": {"beds": "two"}},
            }
            rounds = days.rounds(city)
            assert [payload.data for payload in activity_results(found[city])] == [one.result for one in rounds]
            states = [jsontext.member(one.result, "requestState") for one in rounds]
            assert [one.param("requestState") for one in rounds] == [None, *states[:-1]]
            assert [one.param("inputResponses") for one in rounds] == [None, when, room]
            assert states[-1] is None
        sent = days.journal.read_bytes()
        ids = [json.loads(one.asked)["id"] for city in found for one in days.rounds(city)]
        assert len(set(ids)) == len(ids) == 6
        for verdict in await replay([*found["Bern"], *found["Rome"]], [Asker]):
            assert verdict.sound, verdict.prose()
        replayed = await cli("replay", run.id, "--config", str(days.config))
        assert replayed.status == 0, replayed.err
        assert days.journal.read_bytes() == sent


async def test_a_month_without_an_answer_ends_the_calls_and_the_server_is_not_called_again(days: Days) -> None:
    async with days.up() as client:
        run, author = await days.start(client)
    async with days.up() as client:
        run, author = (client.get_workflow_handle(one.id) for one in (run, author))
        # All that has to start again takes its time as well.
        await pass_by(client, MONTH - timedelta(minutes=10), run, author)
        assert (await read_run(client, run.id)).status == "waiting-input"
        await pass_by(client, timedelta(minutes=20), run, author)
        [told] = await asyncio.wait_for(author.result(), PATIENCE)
        _, found = await asyncio.wait_for(Pack(client, days.queue).end(run), PATIENCE)
        log = log_of(found)
        assert (error_of(log)["code"], told["code"]) == ("interrupt_expired", "interrupt_expired")
        assert seconds_between(log, "node.suspended", "node.resumed")[0] >= MONTH.total_seconds()
        assert [len(days.rounds(city)) for city in ("Bern", "Rome")] == [1, 1]


async def test_a_server_that_has_forgotten_what_it_asked_fails_the_calls_and_leaves_no_doubt(days: Days) -> None:
    async with days.up("forgetful") as client:
        run, author = await days.start(client)
    async with days.up("forgetful") as client:
        run, author = (client.get_workflow_handle(one.id) for one in (run, author))
        await answer(run, author, b'{"%b":{"action":"decline"}}' % WHEN.encode())
        [told] = await asyncio.wait_for(author.result(), PATIENCE)
        log, _ = await asyncio.wait_for(Pack(client, days.queue).end(run), PATIENCE)
        error = error_of(log)
        assert (error["code"], error["details"]["delivery"]) == ("mcp_error", "answered")
        assert "Invalid or expired requestState" in error["message"]
        assert (told["delivery"], told["in_doubt"]) == ("answered", False)
        assert [len(days.rounds(city)) for city in ("Bern", "Rome")] == [2, 2]
