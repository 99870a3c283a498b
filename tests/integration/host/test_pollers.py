"""Who polls a task queue, and what a host says where nobody does."""

from __future__ import annotations

import asyncio
import logging
import uuid

import pytest
from temporalio.client import Client

from host import pollers
from host.pollers import Pollers, warn_unless_polled, warn_unless_served
from tests.support.pack import pack_worker, settings_for
from tests.support.patience import PATIENCE


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "openwop_mcp.host"]


async def test_a_queue_that_nobody_polls_is_warned_of_by_name_and_setting(client: Client, caplog) -> None:
    queue = f"nobody-{uuid.uuid4()}"
    await warn_unless_polled(client, queue)
    [line] = warnings(caplog)
    assert f"'{queue}'" in line
    assert "worker.task_queue" in line
    assert "worker.py run" in line


async def test_a_queue_that_a_worker_polls_is_not_warned_of(client: Client, caplog) -> None:
    async with pack_worker(client, settings_for("http://127.0.0.1:9/mcp")) as pack, asyncio.timeout(PATIENCE):
        while True:
            caplog.clear()
            await warn_unless_polled(client, pack.task_queue)
            if not warnings(caplog):
                break


async def test_a_worker_that_temporal_tells_of_a_moment_later_is_not_warned_of(
    client: Client, caplog, monkeypatch
) -> None:
    told = iter([False, True])

    async def polled(*_asked: object) -> bool:
        return next(told)

    monkeypatch.setattr(pollers, "SOON", 0)
    monkeypatch.setattr(pollers, "_is_polled", polled)
    await warn_unless_polled(client, "late")
    assert warnings(caplog) == []
    assert list(told) == []


async def test_each_class_that_nobody_serves_is_warned_of_by_name_and_setting(client: Client, caplog) -> None:
    settings = settings_for("http://127.0.0.1:9/mcp", worker={"classes": {"slow": {}, "local": {}}, "serves": ["slow"]})
    async with pack_worker(client, settings) as pack, asyncio.timeout(PATIENCE):
        while True:
            caplog.clear()
            await warn_unless_served(client, pack.task_queue, {"default", "local", "slow"})
            if len(lines := warnings(caplog)) == 2:
                break
        assert f"'{pack.task_queue}'" in lines[0]
        assert f"'{pack.task_queue}-class-local'" in lines[1]
        assert "worker.serves" in lines[1]


async def test_of_many_runs_that_nobody_takes_there_is_one_warning(client: Client, caplog, monkeypatch) -> None:
    monkeypatch.setattr(pollers, "SOON", 0)
    warned = asyncio.Event()
    handler = logging.Handler()
    handler.emit = lambda _record: warned.set()  # type: ignore[method-assign]  # a handler of one line
    stopping = asyncio.Event()
    own = Pollers(client, f"nobody-{uuid.uuid4()}", stopping)
    logger = logging.getLogger("openwop_mcp.host")
    logger.addHandler(handler)
    try:
        for _ in range(10):
            own.created()
        await asyncio.wait_for(warned.wait(), PATIENCE)
        for _ in range(10):
            own.created()
        # In time for many looks, if there were any.
        for _ in range(20):
            await client.service_client.check_health()
    finally:
        stopping.set()
        logger.removeHandler(handler)
    assert len(warnings(caplog)) == 1


async def test_a_host_that_ends_looks_no_more(client: Client, caplog) -> None:
    stopping = asyncio.Event()
    own = Pollers(client, f"nobody-{uuid.uuid4()}", stopping)
    own.created()
    stopping.set()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        if task.get_coro().__qualname__ == "Pollers._look":
            await task
    assert warnings(caplog) == []
