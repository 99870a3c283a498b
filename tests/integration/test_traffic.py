"""Limits of traffic: what finds no room waits durably, uses up no attempt, and is sent once there is some."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities import traffic
from commands.prose import call_prose
from openwop_mcp import jsontext
from openwop_mcp.effects.identity import by_key
from openwop_mcp.effects.shared import effect_workflow_id
from openwop_mcp.runs.records import MadeCall, made_calls
from openwop_mcp.traffic import Full, Pass, Traffic
from tests.support.author_flows import Author, Call, Calls, Told
from tests.support.fake_server import FakeServer, Reply, Request, modern, result_reply
from tests.support.graphs import node, workflow
from tests.support.pack import Pack, chain, error_of, log_of, pack_worker, settings_for, types
from tests.support.patience import PATIENCE
from workflows.client import cancel_run, read_run

DONE = b'{"content":[]}'
ONE_ATTEMPT = {"attempts": 1, "max_wait": 5, "total": 5}
"""Whoever used up an attempt by waiting would fail."""


class Busy:
    """A server that answers when it is let go, and knows how many it had at once and when they came."""

    def __init__(self, *, open_: bool = False) -> None:
        self.let_go = asyncio.Event()
        self.at_once = 0
        self.most = 0
        self.came: list[float] = []
        self.replies: list[Reply] = []
        if open_:
            self.let_go.set()

    async def answer(self, request: Request) -> Reply:
        self.came.append(time.monotonic())
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await self.let_go.wait()
        self.at_once -= 1
        return self.replies.pop(0) if self.replies else result_reply(request, DONE)

    def server(self, kept: socket.socket | None = None) -> FakeServer:
        """The server, at a port that was kept for it, or at any."""
        port = 0 if kept is None else port_of(kept)
        if kept is not None:
            kept.close()
        return FakeServer(modern({"tools/call": self.answer}), listens_on=port)


@contextlib.asynccontextmanager
async def at(client: Client, url: str, **options: Any) -> AsyncIterator[Pack]:
    async with (
        pack_worker(client, settings_for(url, **options)) as pack,
        Worker(client, task_queue=f"author-{pack.task_queue}", workflows=[Author]),
    ):
        yield pack


def limited(**limits: Any) -> dict[str, Any]:
    return {"limits": limits, "retry": ONE_ATTEMPT}


def call(tool: str = "write", server: str = "fake", **config: Any) -> dict[str, Any]:
    return workflow([node("a", config={"serverId": server, "name": tool, **config})])


async def author(pack: Pack, *calls: Call, parallel: bool = False) -> WorkflowHandle[Any, list[Told]]:
    return await pack.client.start_workflow(
        Author.run,
        Calls(list(calls), pack.task_queue, parallel),
        id=f"author-{uuid.uuid4().hex}",
        task_queue=f"author-{pack.task_queue}",
    )


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await holds():  # noqa: ASYNC110 - Temporal tells of nothing
            await asyncio.sleep(0.05)


async def made(client: Client, handle: WorkflowHandle[Any, Any]) -> list[MadeCall]:
    return made_calls([history.events for history in await chain(client, handle.id)])


async def until_postponed(client: Client, handle: WorkflowHandle[Any, Any]) -> MadeCall:
    """Wait until a call waits for room; what was recorded of it then, which a moment later may be another attempt."""
    found: list[MadeCall] = []

    async def is_postponed() -> bool:
        found[:] = [one for one in await made(client, handle) if one.postponed and one.outcome == "retrying"]
        return bool(found)

    await until(is_postponed)
    (one,) = found
    return one


@pytest.fixture
def kept() -> Iterator[socket.socket]:
    """Keeps a port at which nobody listens, until a server of the test does, and which nobody else is given."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


def port_of(sock: socket.socket) -> int:
    port: int = sock.getsockname()[1]
    return port


# --- calls under way ---


async def test_a_server_has_no_more_calls_at_once_than_it_may_and_all_of_them_are_made(client):
    busy = Busy()
    options = {"server": limited(in_flight=2)}
    async with busy.server() as server, at(client, server.url, **options) as pack:
        runs = [await pack.start(call()) for _ in range(3)]
        flow = await author(pack, *[Call("call_tool", ["fake", "write"])] * 3, parallel=True)
        keyed = await author(pack, Call("call_tool", ["fake", "write"], key="k1"))

        async def is_postponed() -> bool:
            calls = [one for run in (*runs, flow) for one in await made(client, run)]
            return sum(one.postponed for one in calls) >= 3

        await until(is_postponed)
        assert busy.most == 2
        busy.let_go.set()
        logs = [await pack.end(run) for run in runs]
        told = [*await flow.result(), *await keyed.result()]
        assert [log[-1].type for log, _ in logs] == ["run.completed"] * 3
        assert [one.raw for one in told] == [DONE.decode()] * 4
        assert busy.most == 2
        assert len(server.requests) == 7


async def test_a_call_that_waits_says_why_in_history_in_the_log_and_to_who_looks(client, caplog):
    busy = Busy()
    async with busy.server() as server, at(client, server.url, server=limited(in_flight=1)) as pack:
        first = await pack.start(call())
        await until(lambda: _is(busy.at_once == 1))
        second = await pack.start(call())
        waiting = await until_postponed(client, second)
        assert waiting.failure is not None
        assert "(setting servers.fake.limits.in_flight)" in waiting.failure.message
        assert waiting.failure.happened.delivery == "not_sent"
        assert waiting.tries == 0
        line, below = call_prose(waiting, None).splitlines()
        assert line.startswith("a: waiting for room, fake tools/call write, attempts 0")
        assert below.startswith("    rate_limited, delivery not_sent: nothing was sent: server 'fake' has 1 under way")
        found = await read_run(client, second.id)
        assert found.status == "running"
        busy.let_go.set()
        await pack.end(first)
        log, histories = await pack.end(second)
        retried = [jsontext.decode(event.payload) for event in log if event.type == "node.retried"]
        assert retried
        assert all(one["lastError"]["details"]["postponed"] is True for one in retried)
        assert all(1000 <= one["delayMs"] <= 45_000 for one in retried)
        (done,) = made_calls([history.events for history in histories])
        assert done.outcome == "ok"
        assert done.tries == 1
        assert len(server.requests) == 2
    # That there is no room is no fault, and the process that made the attempt does not warn of it.
    assert [record for record in caplog.records if record.name == "temporalio.activity"] == []


async def _is(what: bool) -> bool:
    return what


async def test_a_call_that_is_let_in_within_a_moment_leaves_no_trace(client, monkeypatch):
    # On a busy machine it takes more than a second until the test has let it in.
    monkeypatch.setattr(traffic, "MOMENT", PATIENCE)
    busy = Busy()
    async with busy.server() as server, at(client, server.url, server=limited(in_flight=1)) as pack:
        flow = await author(pack, *[Call("call_tool", ["fake", "write"])] * 2, parallel=True)
        await until(lambda: _is(busy.at_once == 1))
        busy.let_go.set()
        assert [one.raw for one in await flow.result()] == [DONE.decode()] * 2
        assert [one.attempts for one in await made(client, flow)] == [1, 1]
        assert busy.most == 1
        assert len(server.requests) == 2


async def test_a_tenant_does_not_take_up_a_worker_alone(client):
    busy = Busy()
    async with busy.server() as server, at(client, server.url, worker={"tenant_activities": 1}) as pack:
        first = await pack.start(call(), tenant="acme")
        await until(lambda: _is(busy.at_once == 1))
        second = await pack.start(call(), tenant="acme")
        waiting = await until_postponed(client, second)
        assert waiting.failure is not None
        assert "tenant 'acme'" in waiting.failure.message
        assert "(setting worker.tenant_activities)" in waiting.failure.message
        other = await pack.start(call(), tenant="globex")
        await until(lambda: _is(busy.at_once == 2))
        busy.let_go.set()
        for run in (first, second, other):
            log, _ = await pack.end(run)
            assert log[-1].type == "run.completed"


async def test_a_call_that_is_cancelled_while_it_waits_for_room_leaves_its_place_to_others(client):
    busy = Busy()
    async with busy.server() as server, at(client, server.url, server=limited(in_flight=1)) as pack:
        first = await pack.start(call())
        await until(lambda: _is(busy.at_once == 1))
        second = await pack.start(call())
        await until_postponed(client, second)
        await second.cancel(reason="enough")
        log, _ = await pack.end(second)
        assert log[-1].type == "run.cancelled"
        third = await pack.start(call())
        busy.let_go.set()
        for run in (first, third):
            log, _ = await pack.end(run)
            assert log[-1].type == "run.completed"
        assert len(server.requests) == 2


@pytest.mark.parametrize(("cancels_effect", "sent"), [(False, 2), (True, 1)])
async def test_an_effect_with_a_key_that_waits_for_room_is_sent_unless_it_is_cancelled_itself(
    client: Client, cancels_effect: bool, sent: int
) -> None:
    tenant = f"tenant-{uuid.uuid4().hex}"
    keyed = workflow(
        [
            node(
                "a",
                config={"serverId": "fake", "name": "write"},
                inputs={"idempotencyKey": {"type": "static", "value": "order-7"}},
            )
        ]
    )
    effect = client.get_workflow_handle(effect_workflow_id(by_key(tenant, "fake", "write", "order-7", None).effect_id))
    busy = Busy()
    async with busy.server() as server, at(client, server.url, server=limited(in_flight=1)) as pack:
        first = await pack.start(call())
        await until(lambda: _is(busy.at_once == 1))
        second = await pack.start(keyed, tenant=tenant)
        await until(lambda: _started(effect))
        await until_postponed(client, effect)
        await cancel_run(client, second.id, "enough")
        log, _ = await pack.end(second)
        assert log[-1].type == "run.cancelled"
        if cancels_effect:
            await cancel_run(client, effect.id, "enough")
            with pytest.raises(WorkflowFailureError):
                await effect.result()
        busy.let_go.set()
        await pack.end(first)
        if not cancels_effect:
            await effect.result()
        assert len(server.requests) == sent


async def _started(handle: WorkflowHandle[Any, Any]) -> bool:
    try:
        await handle.describe()
    except RPCError:
        return False
    return True


# --- pace ---


async def test_a_server_is_not_called_oftener_than_its_rate_whoever_calls(client, monkeypatch):
    busy, went = Busy(open_=True), list[float]()
    enters = Traffic.enter

    def enter(room: Traffic, server_id: str, tenant: str, now: float) -> Pass | Full:
        entered = enters(room, server_id, tenant, now)
        if isinstance(entered, Pass):
            went.append(now)
        return entered

    monkeypatch.setattr(Traffic, "enter", enter)
    async with busy.server() as server, at(client, server.url, server=limited(rate=4, burst=2)) as pack:
        runs = [await pack.start(call()) for _ in range(4)]
        flow = await author(pack, *[Call("call_tool", ["fake", "write"])] * 4, parallel=True)
        for run in runs:
            log, _ = await pack.end(run)
            assert log[-1].type == "run.completed"
        assert [one.raw for one in await flow.result()] == [DONE.decode()] * 4
    assert len(busy.came) == len(went) == 8
    # Two at once, and then one in a quarter of a second.
    for first, last in itertools.combinations(range(8), 2):
        assert went[last] - went[first] >= (last - first - 1) / 4 - 0.001
    # They arrive later than they were let go, each by as much as the machine takes for it.
    assert all(came >= at_ for came, at_ in zip(busy.came, went, strict=True))


async def test_a_retry_after_that_one_call_was_answered_has_the_others_wait_as_long(client):
    busy = Busy(open_=True)
    busy.replies = [Reply(status=429, headers=[("Retry-After", "10")])]
    retry = {"attempts": 2, "max_wait": 10, "total": 10}
    async with busy.server() as server, at(client, server.url, server={"retry": retry}) as pack:
        first = await pack.start(call())
        await until(lambda: _is(len(busy.came) == 1 and not busy.replies))
        # The answer is on its way.
        await until(lambda: _has_retried(client, first))
        others = [await pack.start(call()) for _ in range(3)]
        waiting = await until_postponed(client, others[0])
        assert waiting.failure is not None
        assert "Retry-After" in waiting.failure.message
        for run in (first, *others):
            log, _ = await pack.end(run)
            assert log[-1].type == "run.completed"
    assert len(busy.came) == 5
    assert all(later - busy.came[0] >= 9.9 for later in busy.came[1:])


async def _has_retried(client: Client, handle: WorkflowHandle[Any, Any]) -> bool:
    return "node.retried a" in types(log_of(await chain(client, handle.id)))


# --- circuit ---


async def test_while_a_server_cannot_be_reached_calls_wait_and_are_made_once_it_is_back(client, caplog, kept):
    caplog.set_level(logging.WARNING, traffic.__name__)
    busy = Busy(open_=True)
    server = {
        # Longer than it takes a busy machine to start all that is to wait meanwhile: who probes too early fails.
        "circuit": {"failures": 2, "rest": 12, "patience": 300},
        "retry": {"attempts": 3, "max_wait": 0.1, "total": 60},
    }
    async with at(client, f"http://127.0.0.1:{port_of(kept)}/mcp", server=server) as pack:
        # The first sees both failures and has one attempt left; the others see none of them.
        first = await pack.start(call())
        await until_postponed(client, first)
        others = [await pack.start(call()) for _ in range(2)]
        flow = await author(
            pack,
            Call("call_tool", ["fake", "write"], retry=(1, 0, 0)),
            Call("call_tool", ["fake", "write"], retry=(1, 0, 0), key="k2"),
            parallel=True,
        )
        waiting = await until_postponed(client, others[0])
        assert waiting.failure is not None
        assert waiting.failure.code == "upstream_unavailable"
        assert waiting.failure.happened.delivery == "not_sent"
        assert "(setting servers.fake.circuit)" in waiting.failure.message
        async with busy.server(kept):
            for run in (first, *others):
                log, _ = await pack.end(run)
                assert log[-1].type == "run.completed"
            assert [one.raw for one in await flow.result()] == [DONE.decode()] * 2
    said = [record.getMessage() for record in caplog.records if record.name == traffic.__name__]
    assert len(said) == 2
    assert "could not be reached 2 times in a row" in said[0]
    assert "can be reached again" in said[1]


async def test_a_probe_that_has_its_connection_lets_the_others_go_however_long_it_takes_itself(client, kept):
    busy = Busy()
    server = {
        "circuit": {"failures": 1, "rest": 3, "patience": 300},
        "retry": {"attempts": 20, "max_wait": 0.01, "total": 60},
    }
    async with at(client, f"http://127.0.0.1:{port_of(kept)}/mcp", server=server) as pack:
        probe = await pack.start(call())
        await until_postponed(client, probe)
        async with busy.server(kept):
            await until(lambda: _is(busy.at_once == 1))
            other = await pack.start(call())
            await until(lambda: _is(busy.at_once == 2))
            busy.let_go.set()
            for run in (probe, other):
                log, _ = await pack.end(run)
                assert log[-1].type == "run.completed"


async def test_who_probes_in_vain_uses_up_an_attempt_and_nobody_else_does(client, kept):
    server = {
        "circuit": {"failures": 1, "rest": 0.2, "patience": 300},
        "retry": {"attempts": 2, "max_wait": 0.01, "total": 60},
    }
    async with at(client, f"http://127.0.0.1:{port_of(kept)}/mcp", server=server) as pack:
        log, histories = await pack.run(call())
        error = error_of(log)
        assert "(setting servers.fake.retry.attempts)" in error["message"]
        (failed,) = made_calls([history.events for history in histories])
        assert failed.tries == 2


async def test_a_run_that_waits_for_a_server_ends_by_patience_and_names_it(client, kept):
    server = {
        "circuit": {"failures": 1, "rest": 600, "patience": 2},
        "retry": {"attempts": 2, "max_wait": 0.01, "total": 60},
    }
    async with at(client, f"http://127.0.0.1:{port_of(kept)}/mcp", server=server) as pack:
        log, histories = await pack.run(call())
        error = error_of(log)
        (ended,) = made_calls([history.events for history in histories])
        # The rest of the circuit is longer; all the same it has looked once more at the end.
        assert ended.parked.seconds == pytest.approx(2, abs=0.001)
        assert ended.postponed == 2
        flow = await author(pack, Call("call_tool", ["fake", "write"]), Call("call_tool", ["fake", "write"], key="k3"))
        for told in [error, *[vars(one) for one in await flow.result()]]:
            assert told["code"] == "upstream_unavailable"
            assert "could not be reached" in told["message"]
            assert "(setting servers.fake.circuit.patience)" in told["message"]
        assert error["details"]["delivery"] == "not_sent"
        assert error["details"]["ended"] == "servers.fake.circuit.patience"


async def test_who_asks_whether_a_server_is_there_is_never_put_off_and_closes_its_circuit(client, kept):
    busy = Busy(open_=True)
    server = {"circuit": {"failures": 1, "rest": 600, "patience": 600}, "retry": {"attempts": 1}}
    async with at(client, f"http://127.0.0.1:{port_of(kept)}/mcp", server=server) as pack:
        log, _ = await pack.run(call())
        assert log[-1].type == "run.failed"
        async with busy.server(kept):
            flow = await author(pack, Call("server_health", ["fake"]), Call("call_tool", ["fake", "write"]))
            health, told = await asyncio.wait_for(flow.result(), PATIENCE)
            assert '"state":"reachable"' in str(health.raw)
            assert told.raw == DONE.decode()


async def test_an_answer_with_an_error_status_is_no_reason_to_leave_a_server_alone(client):
    busy = Busy(open_=True)
    busy.replies = [Reply(status=500)] * 4
    server = {"circuit": {"failures": 1, "rest": 600}, "retry": {"attempts": 1}}
    async with busy.server() as fake, at(client, fake.url, server=server) as pack:
        logs = [await pack.run(call()) for _ in range(4)]
        assert [error_of(log)["details"]["httpStatus"] for log, _ in logs] == [500] * 4
        log, _ = await pack.run(call())
        assert log[-1].type == "run.completed"
        assert len(fake.requests) == 5


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("limits", {"burst": 3}, "rate"),
        ("limits", {"rate": 0}, "0.001"),
        ("circuit", {"rest": 0}, "0.1"),
    ],
)
def test_a_fault_in_the_limits_says_what_to_write(key, value, told):
    with pytest.raises(ValueError, match=told):
        settings_for("http://127.0.0.1:1/mcp", server={key: value})
