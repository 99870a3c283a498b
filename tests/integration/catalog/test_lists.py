"""What a server offers is kept as it came, page by page, and read from history alone."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from temporalio.client import Client

from activities import catalog as activity
from openwop_mcp.catalog.start import PUBLISH
from openwop_mcp.catalogs import Catalogs
from tests.support.catalogs import Shop, keeping, of, tool
from tests.support.fake_server import Request, modern
from tests.support.pack import SERVER, activity_results
from tests.support.patience import PATIENCE
from workflows import catalog as keeper
from workflows.replay import replay


@pytest.fixture
def lasting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A list stays new until someone insists, so that none is asked for twice since a second has passed."""
    monkeypatch.setattr(keeper, "JUST_NOW", 3_600_000)


async def test_a_list_stands_in_history_byte_for_byte_page_by_page(client: Client) -> None:
    shop = Shop([tool(f"t{n}", number=1.0) for n in range(5)], page_size=2)
    async with keeping(client, shop) as at:
        catalog = await at.refresh()
        sent = [shop.page(cursor) for cursor in (None, "2", "4")]
        assert [page.text for page in catalog.pages] == sent
        assert list(catalog.names()) == ["t0", "t1", "t2", "t3", "t4"]
        assert json.loads(of(catalog, "t3").definition) == shop.tools[3]
        first, *_ = activity_results(await at.histories())
        assert all(page in first.data for page in sent)
        assert catalog.failure is None
        assert catalog.ended is None


@pytest.mark.usefixtures("lasting")
async def test_the_first_one_who_asks_starts_the_catalog_and_one_list_answers_all(client: Client) -> None:
    async with keeping(client) as at:
        found = await asyncio.gather(*(at.fresh() for _ in range(20)))
        assert all(catalog.names() == ("one", "two") for catalog in found)
        assert at.shop.lists == 1


@pytest.mark.usefixtures("lasting")
async def test_a_tool_that_appears_is_seen_by_the_first_read_after_the_list_is_stale(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(ttl_ms=3_600_000)
    async with keeping(client, shop) as at:
        await at.fresh()
        # From here on: who began the catalog has its first list, however late that is asked for.
        monkeypatch.setattr(keeper, "JUST_NOW", 0)
        shop.tools.append(tool("three"))
        assert "three" not in (await at.fresh(after=3_000)).names()
        assert shop.lists == 1
        assert "three" in (await at.fresh(after=3_601)).names()


async def test_a_list_that_is_good_for_less_than_a_second_is_had_anew_after_that(client: Client) -> None:
    async with keeping(client, Shop([tool("one")], ttl_ms=1)) as at:
        await at.refresh()
        for name in ("two", "three", "four"):
            at.shop.tools.append(tool(name))
            assert name in (await at.fresh(after=0.002)).names()


async def test_a_list_that_is_good_for_no_time_is_had_anew_once_a_second_at_most(client: Client) -> None:
    async with keeping(client) as at:
        began = time.monotonic()
        for _ in range(20):
            await at.fresh()
        assert at.shop.lists <= 2 + (time.monotonic() - began)


@pytest.mark.usefixtures("lasting")
async def test_whoever_insists_has_the_server_asked_although_its_list_is_fresh(client: Client) -> None:
    shop = Shop(ttl_ms=3_600_000)
    async with keeping(client, shop) as at:
        await at.refresh()
        shop.tools.append(tool("three"))
        assert "three" in (await at.refresh(force=True)).names()
        assert shop.lists == 2


async def test_whoever_insists_while_the_first_list_is_under_way_has_what_changed_meanwhile(client: Client) -> None:
    shop = Shop()
    async with keeping(client, shop) as at:
        before = [shop.page(None)]
        shop.fault = lambda _: before.pop() if before else shop.page(None)
        shop.gate.clear()
        await at.catalogs.start(at.tenant, SERVER)
        await shop.until_asked(1)
        shop.tools.append(tool("three"))
        insisting = asyncio.create_task(at.refresh(force=True))
        async with asyncio.timeout(PATIENCE):
            async for event in at.handle.fetch_history_events(wait_new_event=True):
                if event.HasField("workflow_execution_update_accepted_event_attributes"):
                    break
        shop.gate.set()
        assert "three" in (await insisting).names()
        assert shop.lists == 2
        for verdict in await replay(await at.histories(), []):
            assert verdict.sound, verdict.prose()


@pytest.mark.usefixtures("lasting")
async def test_an_unchanged_list_is_one_digest_a_page(client: Client) -> None:
    shop = Shop([tool(f"t{n}", "x" * 1000) for n in range(20)], page_size=10)
    async with keeping(client, shop) as at:
        version = (await at.refresh()).version
        assert (await at.refresh()).version == version
        first, second = (payload.data for payload in activity_results(await at.histories()))
        assert len(first) > 20_000
        assert len(second) < 400
        assert shop.lists == 4


@pytest.mark.usefixtures("lasting")
async def test_of_a_list_that_changed_only_the_page_that_did_is_recorded_again(client: Client) -> None:
    shop = Shop([tool(f"t{n}", "x" * 1000) for n in range(20)], page_size=10)
    async with keeping(client, shop) as at:
        await at.refresh()
        shop.tools[15] = tool("t15", "y")
        catalog = await at.refresh()
        _, second = (payload.data for payload in activity_results(await at.histories()))
        assert second.count(b"inputSchema") == 10
        assert [page.text for page in catalog.pages] == [shop.page(None), shop.page("10")]


async def test_a_catalog_is_read_without_a_worker_and_by_several_readers_at_once(client: Client) -> None:
    async with keeping(client) as at:
        await at.refresh()
    readers = [Catalogs(client, task_queue=at.settings.worker.task_queue, heartbeat=2) for _ in range(5)]
    found = await asyncio.gather(*(reader.read(at.tenant, SERVER) for reader in readers for _ in range(10)))
    assert all(catalog is not None and catalog.names() == ("one", "two") for catalog in found)
    assert await readers[0].read(at.tenant, "other") is None


async def test_where_there_is_no_room_for_a_catalog_it_is_read_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openwop_mcp.catalogs.MAX_BYTES", 1)
    async with keeping(client) as at, keeping(client, Shop([tool("three")])) as other:
        for kept in (at, other):
            await kept.refresh()
        for _ in range(3):
            found = [await at.catalogs.read(kept.tenant, SERVER) for kept in (at, other)]
            assert [catalog and catalog.names() for catalog in found] == [("one", "two"), ("three",)]
            assert len(at.catalogs._readings) == 1


async def test_where_no_worker_is_a_refresh_says_so_in_the_time_that_it_has(client: Client) -> None:
    catalogs = Catalogs(client, task_queue="nobody", heartbeat=2)
    assert not await catalogs.refresh("t-nobody", SERVER, within=0.3)
    # It goes on after that, and may begin the catalog only then.
    async with asyncio.timeout(PATIENCE):
        while (found := await catalogs.read("t-nobody", SERVER)) is None:
            pass
    assert found.listed_at is None
    await client.get_workflow_handle("catalog:t-nobody/fake").terminate()


# --- lists without an end ---


def _pages(make: Any) -> Any:
    def answer(request: Request) -> bytes:
        cursor = request.json["params"].get("cursor", "")
        return json.dumps({"resultType": "complete", **make(cursor), "ttlMs": 0, "cacheScope": "private"}).encode()

    return modern({"tools/list": answer})


def _next(cursor: str) -> dict[str, Any]:
    return {"tools": [tool(f"t{cursor}")], "nextCursor": f"{cursor}."}


ENDLESS = {
    "the same cursor": (lambda cursor: {"tools": [tool(f"t{cursor}")], "nextCursor": "again"}, {}, "names itself"),
    "the same page": (
        lambda cursor: {"tools": [tool("t")], "nextCursor": "b" if cursor == "a" else "a"} if cursor else _next("a"),
        {},
        "for the second time",
    ),
    "too many pages": (_next, {"MAX_PAGES": 7, "BATCH_PAGES": 3}, "more than 7 pages"),
    "too many tools": (_next, {"MAX_TOOLS": 7}, "more than 7 tools"),
    "too many bytes": (_next, {"INLINE_BYTES": 5_000}, "storage.driver"),
}


@pytest.mark.usefixtures("lasting")
@pytest.mark.parametrize("case", ENDLESS)
async def test_a_list_that_does_not_end_is_ended_with_the_reason(
    client: Client, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    make, limits, reason = ENDLESS[case]
    for name, value in limits.items():
        monkeypatch.setattr(activity, name, value)
    async with keeping(client, handler=_pages(make)) as at:
        catalog = await at.refresh()
        assert reason in (catalog.ended or "")
        assert catalog.failure is None
        assert 0 < len(catalog.names()) <= 8
        assert len(at.server.requests) <= 10
        # And so it stays.
        version = catalog.version
        assert (await at.refresh()).version == version


TTLS = {"1e400": 3_600_000, "9" * 400: 3_600_000, "5e3": 5_000, "1E-400": 0, "-1e400": 0, "1.5": 0, '"5"': 0, "null": 0}


@pytest.mark.parametrize("written", TTLS)
async def test_whatever_a_server_writes_as_the_time_its_list_is_good_for_the_list_counts(
    client: Client, written: str
) -> None:
    page = b'{"tools":[{"name":"one","inputSchema":{}}],"ttlMs":%b}' % written.encode()
    async with keeping(client, Shop(fault=lambda _: page)) as at:
        catalog = await at.refresh()
        assert (catalog.ttl_ms, catalog.failure, catalog.names()) == (TTLS[written], None, ("one",))


@pytest.mark.usefixtures("lasting")
async def test_a_list_of_many_pages_comes_in_batches(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "BATCH_PAGES", 3)
    shop = Shop([tool(f"t{n}") for n in range(10)], page_size=1)
    async with keeping(client, shop) as at:
        assert len((await at.refresh()).names()) == 10
        (history,) = await at.histories()
        types = [
            event.activity_task_scheduled_event_attributes.activity_type.name
            for event in history.events
            if event.HasField("activity_task_scheduled_event_attributes")
        ]
        assert types.count(PUBLISH) == 4
