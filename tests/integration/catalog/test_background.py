"""Catalogs keep themselves up to date: by what servers tell, and by looking from time to time."""

from __future__ import annotations

import asyncio

import pytest
from temporalio.client import Client

from openwop_mcp.catalog import pacing
from openwop_mcp.catalog.state import Catalog, Failure
from tests.support.catalogs import Shop, keeping, tool
from tests.support.patience import PATIENCE


async def test_a_change_that_the_server_tells_of_is_listed_at_once(client: Client) -> None:
    shop = Shop(subscribable=True)
    async with keeping(client, shop) as at:
        await at.refresh()
        await asyncio.wait_for(shop.listening.wait(), PATIENCE)
        shop.tools.append(tool("three"))
        shop.tell()
        catalog = await at.until(lambda catalog: "three" in catalog.names())
        assert [(change.tool, change.what) for change in catalog.changes] == [("three", "added")]


async def test_a_server_that_tells_of_nothing_is_looked_at_from_time_to_time(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "LEAST", 300)
    async with keeping(client) as at:
        await at.refresh()
        at.shop.tools.append(tool("three"))
        await at.until(lambda catalog: "three" in catalog.names())


async def test_a_server_that_cannot_be_subscribed_to_is_asked_once_an_hour(client: Client) -> None:
    async with keeping(client) as at:
        await at.refresh()
        async with asyncio.timeout(PATIENCE):
            async for event in at.handle.fetch_history_events(wait_new_event=True):
                if event.HasField("activity_task_failed_event_attributes"):
                    break
        for _ in range(2):
            await at.refresh()
        asked = [request for request in at.server.requests if request.json["method"] == "subscriptions/listen"]
        assert len(asked) == 1


async def test_when_the_worker_of_a_listener_stops_another_one_listens(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    shop = Shop(subscribable=True)
    async with keeping(client, shop, worker=False) as at:
        async with at.worker():
            await at.refresh()
            await asyncio.wait_for(shop.listening.wait(), PATIENCE)
        shop.listening.clear()
        shop.tools.append(tool("meanwhile"))
        async with at.worker():
            await at.until(lambda catalog: "meanwhile" in catalog.names())
            await asyncio.wait_for(shop.listening.wait(), PATIENCE)
            shop.tools.append(tool("three"))
            shop.tell()
            await at.until(lambda catalog: "three" in catalog.names())
    assert not [record for record in caplog.records if record.name == "temporalio.activity"]


def test_pauses_double_while_nothing_changes_and_begin_anew_after_a_change() -> None:
    catalog = Catalog("t", "s")
    catalog.listed_at = 1_000_000
    waits, since = [], catalog.listed_at
    for _ in range(7):
        waits.append(pacing.pause(catalog, since))
        catalog.listed_at += waits[-1]
    assert waits == [60_000, 60_000, 120_000, 240_000, 480_000, 900_000, 900_000]
    assert pacing.pause(catalog, catalog.listed_at) == 60_000
    catalog.ttl_ms = 3_600_000
    assert pacing.pause(catalog, 0) == 3_600_000
    waits, failed_at = [], 5_000_000
    for _ in range(8):
        catalog.failure = Failure("upstream_unavailable", "", failed_at, 5_000_000)
        waits.append(pacing.pause(catalog, 0))
        assert pacing.is_backing_off(catalog, failed_at + waits[-1] - 1)
        assert not pacing.is_backing_off(catalog, failed_at + waits[-1])
        failed_at += waits[-1]
    assert waits == [10_000, 10_000, 20_000, 40_000, 80_000, 160_000, 320_000, 600_000]
