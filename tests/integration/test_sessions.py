"""The events around the calls of real runs: told live as they are read, the same after a reset, none of an old run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from temporalio.client import WorkflowHistory

from openwop_mcp import jsontext
from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.pauses import Pause
from openwop_mcp.runs.sessions import CLOSED, OPENED
from tests.integration.test_resets import TOOLS, reset, run_of
from tests.support.doubts import ACCEPT, BUSY, asked_of_run, resolve, scene
from tests.support.fake_server import Reply, Request, result_reply
from tests.support.graphs import edge, node, workflow
from tests.support.live_log import LiveLog, told
from tests.support.pack import log_of
from tests.support.pauses import pause, resume
from tests.support.tool_sessions import BRACKETS, check_sessions
from workflows.replay import replay

BEFORE = 1
"""The version of the engine that tells of no sessions."""

KEPT = workflow(
    [
        node(
            "a",
            config={"serverId": "fake"},
            inputs={"name": {"type": "variable", "variableName": "which"}},
        )
    ],
    variables=[{"name": "which", "type": "string", "sensitive": True}],
)


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> LiveLog:
    return LiveLog(monkeypatch)


def sessions(log: Sequence[RunEvent]) -> list[tuple[str | None, dict[str, Any]]]:
    return [(event.node_id, jsontext.decode(event.payload)) for event in log if event.type in BRACKETS]


async def sound(live: LiveLog, log: Sequence[RunEvent], found: Sequence[WorkflowHistory]) -> None:
    """The log is the one that was told live, its sessions are whole, and a replay agrees."""
    check_sessions(log)
    assert live.of(found) == told(log)
    for verdict in await replay(found, []):
        assert verdict.sound, verdict.prose()


async def test_each_call_has_its_session_whatever_becomes_of_it(client, live):
    async with scene(client, TOOLS) as at:
        at.acting.replies += [BUSY]
        run = await at.pack.start(at.flow("asked.1/2"))
        ((identity, _),) = await asked_of_run(run)
        so_far = log_of([await run.fetch_history()])
        assert [event.type for event in so_far if event.type in BRACKETS] == [OPENED]
        await resolve(run, identity, ACCEPT)
        log, found = await at.pack.end(run)
    (_, opened), (_, closed) = sessions(log)
    assert opened["toolId"] == "mcp:fake.asked.1~2F2"
    assert closed == {**opened, "outcome": "completed"}
    await sound(live, log, found)


async def test_a_cut_call_and_a_cancelled_one_close_theirs(client, live):
    async with scene(client, TOOLS) as at:
        run = await at.pack.start(at.flow("read-slow"))
        await at.acting.until_asked(1)
        await pause(run, Pause("immediate"))
        await resume(run)
        await at.acting.until_asked(2)
        await run.cancel(reason="enough")
        log, found = await at.pack.end(run)
    kinds = [event.type for event in log if event.type in BRACKETS]
    assert kinds == [OPENED, CLOSED, OPENED, CLOSED]
    assert [said["outcome"] for _, said in sessions(log) if "outcome" in said] == ["cancelled", "cancelled"]
    await sound(live, log, found)


async def test_the_sessions_of_a_run_that_was_reset_are_the_same(client):
    async with scene(client, TOOLS) as at:
        first = await at.pack.start(at.flow("write"))
        log, _ = await at.pack.end(first)
        again, _ = await run_of(await reset(client, first))
    assert len(sessions(log)) == 2
    assert sessions(log) == sessions(again)


async def test_a_question_that_outlives_its_history_keeps_its_session(short_client, live):
    async with scene(short_client, TOOLS) as at:

        def answer(request: Request) -> Reply:
            if request.json["params"]["name"] == "asked":
                return BUSY
            at.acting.replies.append(answer)
            return result_reply(request, b'{"content":[]}')

        at.acting.replies.append(answer)
        names = [f"n{index}" for index in range(9)]
        calls = [node(name, config={"serverId": "fake", "name": "write"}) for name in names]
        asks = node("a", config={"serverId": "fake", "name": "asked"})
        edges = [edge(one, other) for one, other in itertools.pairwise(names)]
        run = await at.pack.start(workflow([asks, *calls], edges))
        ((identity, _),) = await asked_of_run(run)
        await at.acting.until_asked(1 + len(names))
        at.acting.replies.clear()
        await resolve(run, identity, ACCEPT)
        log, found = await at.pack.end(run)
    assert len(found) > 1
    assert [event.type for event in log if event.node_id == "a" and event.type in BRACKETS] == [OPENED, CLOSED]
    assert len(sessions(log)) == 2 * (1 + len(names))
    await sound(live, log, found)


async def test_a_node_that_is_masked_shows_no_session_and_nowhere_its_tool(client, live):
    async with scene(client, TOOLS) as at:
        log, found = await at.pack.run(KEPT, b'{"which":"write-quietly"}')
    assert log[-1].type == "run.completed"
    assert sessions(log) == []
    assert b"write-quietly" not in b"".join(event.payload for event in log)
    await sound(live, log, found)


async def test_a_run_of_the_engine_before_goes_on_as_it_was(client, live):
    async with scene(client, TOOLS) as at:
        log, found = await at.pack.run(at.flow("write"), engine_version=BEFORE)
    assert log[-1].type == "run.completed"
    assert {event.engine_version for event in log} == {BEFORE}
    assert sessions(log) == []
    await sound(live, log, found)
