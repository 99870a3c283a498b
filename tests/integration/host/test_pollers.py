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


def warnings(caplog: pytest.LogCaptureFixture, queue: str) -> list[str]:
    """What is said of a queue and of those of its classes: hosts of other tests may still look after theirs."""
    told = [record.getMessage() for record in caplog.records if record.name == "openwop_mcp.host"]
    return [line for line in told if f"'{queue}" in line]


async def test_a_queue_that_nobody_polls_is_warned_of_by_name_and_setting(client: Client, caplog) -> None:
    queue = f"nobody-{uuid.uuid4()}"
    await warn_unless_polled(client, queue)
    [line] = warnings(caplog, queue)
    assert f"'{queue}'" in line
    assert "worker.task_queue" in line
    assert "worker.py run" in line


async def test_a_queue_that_a_worker_polls_is_not_warned_of(client: Client, caplog) -> None:
    async with pack_worker(client, settings_for("http://127.0.0.1:9/mcp")) as pack, asyncio.timeout(PATIENCE):
        while True:
            caplog.clear()
            await warn_unless_polled(client, pack.task_queue)
            if not warnings(caplog, pack.task_queue):
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
    assert warnings(caplog, "late") == []
    assert list(told) == []


async def test_each_class_that_nobody_serves_is_warned_of_by_name_and_setting(client: Client, caplog) -> None:
    settings = settings_for("http://127.0.0.1:9/mcp", worker={"classes": {"slow": {}, "local": {}}, "serves": ["slow"]})
    async with pack_worker(client, settings) as pack, asyncio.timeout(PATIENCE):
        while True:
            caplog.clear()
            await warn_unless_served(client, pack.task_queue, {"default", "local", "slow"})
            if len(lines := warnings(caplog, pack.task_queue)) == 2:
                break
        assert f"'{pack.task_queue}'" in lines[0]
        assert f"'{pack.task_queue}-class-local'" in lines[1]
        assert "worker.serves" in lines[1]


async def test_of_many_runs_that_nobody_takes_there_is_one_warning(client: Client, caplog, monkeypatch) -> None:
    monkeypatch.setattr(pollers, "SOON", 0)
    queue, warned, stopping = f"nobody-{uuid.uuid4()}", asyncio.Event(), asyncio.Event()
    handler = logging.Handler()

    def emit(record: logging.LogRecord) -> None:
        if queue in record.getMessage():
            warned.set()

    handler.emit = emit  # type: ignore[method-assign]  # a handler of one line
    own = Pollers(client, queue, stopping)
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
    assert len(warnings(caplog, queue)) == 1


async def test_a_host_that_ends_looks_no_more(client: Client, caplog) -> None:
    queue, stopping = f"nobody-{uuid.uuid4()}", asyncio.Event()
    own = Pollers(client, queue, stopping)
    own.created()
    stopping.set()
    assert own._looking is not None
    await own._looking
    assert warnings(caplog, queue) == []
