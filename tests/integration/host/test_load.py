"""Many readers of a host at once: none of them is refused or left behind, and the host does not grow with them."""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections.abc import AsyncIterator

import psutil
import pytest

from openwop_mcp.embedded import EmbeddedTemporal
from tests.support.cli import serving, until
from tests.support.graphs import edge, node, workflow
from tests.support.host_process import HostProcess, host_process, path_of

RUNS = 5
POLLS, STREAMS = 200, 50
PAUSES, BETWEEN = 3, 5
"""Of a run: how often it waits, which takes a second each, and nodes that are there at once after each."""

ROUNDS = 3
MIB = 1024**2


@pytest.fixture(scope="module")
async def host(temporal: EmbeddedTemporal, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HostProcess]:
    folder = tmp_path_factory.mktemp("load")
    flows = folder / "flows"
    flows.mkdir()
    kinds = [("core.delay", {"delayMs": 100}), *[("core.noop", {})] * BETWEEN] * PAUSES
    steps = [node(f"n{place}", kind, config=config) for place, (kind, config) in enumerate(kinds)]
    flow = workflow(steps, [edge(one["id"], other["id"]) for one, other in itertools.pairwise(steps)])
    (flows / "steps.json").write_text(json.dumps({**flow, "id": "steps"}), encoding="utf-8")
    settings = (
        f'[temporal]\naddress = "{temporal.address}"\n[worker]\ntask_queue = "{uuid.uuid4().hex}"\n'
        f'[host]\nworkflows = ["{flows}"]\n'
    )
    file = folder / "run.toml"
    file.write_text(settings, encoding="utf-8")
    async with serving("run", "--config", str(file)), host_process("serve", settings, folder) as running:
        yield running


async def polled(host: HostProcess, run_id: str) -> bytes:
    """A run's events as one client gets them that polls until there are no more."""
    events: list[bytes] = []
    after, is_over = "", False
    while not is_over:
        answer = await host.http.get(f"{path_of(run_id)}/events/poll?timeout=10{after}")
        assert answer.status_code == 200, answer.text
        page = answer.json()
        if page["events"]:
            events.append(answer.content.partition(b'"events":[')[2].rpartition(b'],"lastSequence"')[0])
            after = f"&afterSequence={page['events'][-1]['sequence']}"
        is_over = page["isTerminal"]
    return b",".join(events)


async def streamed(host: HostProcess, run_id: str) -> bytes:
    return b",".join([frame.data async for frame in host.frames(run_id)])


async def test_200_polls_and_50_streams_at_once_have_every_event_and_the_host_does_not_grow(host):
    process = psutil.Process(host.serving.process.pid)
    weights: list[int] = []
    for _ in range(ROUNDS):
        ids = [await host.create("steps") for _ in range(RUNS)]
        async with asyncio.timeout(40):
            logs = await asyncio.gather(
                *(polled(host, run_id) for run_id in ids * (POLLS // RUNS)),
                *(streamed(host, run_id) for run_id in ids * (STREAMS // RUNS)),
            )
        for place, run_id in enumerate(ids):
            expected = await polled(host, run_id)
            assert expected.count(b'"type":"node.completed"') == PAUSES * (1 + BETWEEN)
            assert {log == expected for log in logs[place::RUNS]} == {True}
        weights.append(process.memory_info().rss)
    # What a round takes up is there after the first one already.
    assert max(weights[1:]) - weights[0] < 40 * MIB, [weight // MIB for weight in weights]


async def test_readers_that_leave_make_room_for_others(host):
    run_id = await host.create("steps")
    process = psutil.Process(host.serving.process.pid)

    async def left() -> None:
        async for _ in host.frames(run_id):
            return

    before = process.memory_info().rss
    for _ in range(5):
        await asyncio.gather(*(left() for _ in range(STREAMS)))
    expected = await polled(host, run_id)
    assert await streamed(host, run_id) == expected
    await until(lambda: len(process.net_connections()) < STREAMS)
    assert process.memory_info().rss - before < 40 * MIB
