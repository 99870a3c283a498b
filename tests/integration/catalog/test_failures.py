"""A server that does not answer costs nobody what it said before."""

from __future__ import annotations

import asyncio
import time

import pytest
from temporalio.client import Client

from openwop_mcp.catalog import pacing
from tests.support.catalogs import Shop, keeping, tool
from tests.support.fake_server import Reply, Request
from tests.support.pack import SERVER
from tests.support.patience import PATIENCE
from workflows import catalog as keeper


def _broken(_: object) -> Reply:
    return Reply(status=500)


async def test_a_server_that_fails_keeps_its_last_good_list_and_says_since_when(client: Client) -> None:
    async with keeping(client) as at:
        before = (await at.refresh()).listed_at
        at.shop.fault = _broken
        catalog = await at.refresh()
        first = catalog.failure
        assert first is not None
        assert first.code == "upstream_unavailable"
        assert "500" in first.message
        assert first.since == first.at
        assert catalog.names() == ("one", "two")
        catalog = await at.refresh()
        assert catalog.failure is not None
        assert catalog.failure.since == first.since < catalog.failure.at
        assert catalog.listed_at == before
        at.shop.fault = None
        assert (await at.refresh()).failure is None


async def test_a_list_that_breaks_off_leaves_the_one_before(client: Client) -> None:
    shop = Shop([tool(f"t{n}") for n in range(6)], page_size=2)

    def breaks_off(request: Request) -> bytes | Reply:
        cursor = request.json["params"].get("cursor")
        return Reply(status=500) if cursor == "4" else shop.page(cursor)

    async with keeping(client, shop) as at:
        await at.refresh()
        shop.tools = [tool(f"new{n}") for n in range(6)]
        shop.fault = breaks_off
        catalog = await at.refresh()
        assert catalog.failure is not None
        assert catalog.names() == ("t0", "t1", "t2", "t3", "t4", "t5")


async def test_a_server_that_is_known_not_to_answer_is_not_waited_for(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "JUST_NOW", 0)
    monkeypatch.setattr(pacing, "LEAST_AFTER_FAILURE", 600_000)
    async with keeping(client) as at:
        at.shop.fault = _broken
        await at.refresh()
        asked = at.shop.lists
        # Whoever waited for it would do so as long as a test does.
        at.shop.gate.clear()
        began = time.monotonic()
        catalog = await at.catalogs.fresh(at.tenant, SERVER, now=time.time())
        assert time.monotonic() - began < PATIENCE / 2
        assert catalog is not None
        assert catalog.failure is not None
        assert at.shop.lists == asked


async def test_a_server_that_is_slow_is_waited_for_two_seconds(client: Client) -> None:
    async with keeping(client) as at:
        await at.refresh()
        at.shop.tools.append(tool("three"))
        at.shop.gate.clear()
        began = time.monotonic()
        forced = asyncio.create_task(at.catalogs.refresh(at.tenant, SERVER, within=2, force=True))
        assert not await forced
        assert 1.5 < time.monotonic() - began < PATIENCE / 2
        assert (await at.read()).names() == ("one", "two")
        at.shop.gate.set()
        await at.until(lambda catalog: "three" in catalog.names())


async def test_a_server_that_comes_back_is_found_without_anyone_asking(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "LEAST_AFTER_FAILURE", 200)
    async with keeping(client) as at:
        at.shop.fault = _broken
        await at.refresh()
        at.shop.fault = None
        catalog = await at.until(lambda catalog: catalog.listed_at is not None)
        assert catalog.names() == ("one", "two")


async def test_a_server_that_the_settings_do_not_name_is_a_failure(client: Client) -> None:
    async with keeping(client) as at:
        assert await at.catalogs.refresh(at.tenant, "other", within=PATIENCE)
        catalog = await at.catalogs.read(at.tenant, "other")
        assert catalog is not None
        assert catalog.failure is not None
        assert catalog.failure.code == "not_found"
        await client.get_workflow_handle(f"catalog:{at.tenant}/other").terminate()
