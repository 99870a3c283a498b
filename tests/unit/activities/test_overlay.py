"""How old what a call is told of its tool may be, what waits for it, and what does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio import activity
from temporalio.service import RPCError, RPCStatusCode

from activities import overlay as overlays
from activities.overlay import MAX_AGE, PATIENCE, RENEW_AGE, Known, Overlay
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import InterruptedCallError
from openwop_mcp.storage import LostValueError, StorageError
from tests.support.patience import PATIENCE as BOUND

UNAVAILABLE = RPCError("gone", RPCStatusCode.UNAVAILABLE, b"")
LOST = LostValueError("gone", digest="00", size="1", where="here")


class World:
    """A clock that is set by hand, and catalogs that count who reads them."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.asked: list[tuple[str, str]] = []
        self.changed = asyncio.Condition()
        self.answer: Callable[[], Awaitable[Any]] = self.at_once
        self.overlay = Overlay("queue")

    async def at_once(self) -> str:
        return f"catalog {len(self.asked)}"

    async def read(self, tenant: str, server_id: str) -> Any:
        async with self.changed:
            self.asked.append((tenant, server_id))
            self.changed.notify_all()
        return await self.answer()

    async def until_asked(self, times: int) -> None:
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(lambda: len(self.asked) >= times), BOUND)

    async def get(self, tenant: str = "acme", server_id: str = "s") -> tuple[Any, bool]:
        """The catalog, and whether a call had to wait for it."""
        known = self.overlay.known(tenant, server_id)
        if known is not None:
            return cast("Any", known.catalog), False
        return cast("Any", (await self.overlay.read(tenant, server_id)).catalog), True


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(overlays, "Catalogs", lambda _, **__: made)
    monkeypatch.setattr(activity, "client", object)
    monkeypatch.setattr(overlays, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


async def test_the_first_call_waits_and_those_that_come_soon_after_do_not(world: World) -> None:
    assert await world.get() == ("catalog 1", True)
    world.now += RENEW_AGE - 0.1
    assert await world.get() == ("catalog 1", False)
    assert world.asked == [("acme", "s")]


async def test_a_catalog_in_use_is_read_anew_beside_the_calls_and_none_waits(world: World) -> None:
    await world.get()
    go_on = asyncio.Event()

    async def later() -> str:
        await go_on.wait()
        return "new"

    world.answer = later
    world.now += RENEW_AGE
    assert [await world.get() for _ in range(3)] == [("catalog 1", False)] * 3
    await world.until_asked(2)
    go_on.set()
    await asyncio.wait_for(asyncio.gather(*world.overlay._reading.values()), BOUND)
    assert await world.get() == ("new", False)
    assert len(world.asked) == 2


async def test_what_is_too_old_counts_no_more_and_the_age_is_that_of_the_question(world: World) -> None:
    await world.get()
    world.now += MAX_AGE
    assert await world.get() == ("catalog 2", True)

    async def slow() -> str:
        world.now += 3.0
        return "slow"

    world.now += MAX_AGE
    world.answer = slow
    assert await world.get() == ("slow", True)
    world.now += MAX_AGE - 3.0
    assert (await world.get())[1]


async def test_calls_that_wait_at_once_are_one_read(world: World) -> None:
    assert await asyncio.gather(*(world.get() for _ in range(5))) == [("catalog 1", True)] * 5


async def test_tenants_and_servers_each_have_a_catalog_of_their_own(world: World) -> None:
    got = [await world.get(*key) for key in (("a", "s"), ("b", "s"), ("a", "t"), ("a", "s"))]
    assert [catalog for catalog, _ in got] == ["catalog 1", "catalog 2", "catalog 3", "catalog 1"]
    assert world.asked == [("a", "s"), ("b", "s"), ("a", "t")]


async def test_that_nobody_keeps_a_catalog_is_known_for_as_long(world: World) -> None:
    async def none() -> None:
        return None

    world.answer = none
    assert await world.get() == (None, True)
    assert await world.get() == (None, False)


@pytest.mark.parametrize("error", [UNAVAILABLE, StorageError("no bucket"), LOST, ValueError("odd")])
async def test_a_catalog_that_cannot_be_read_means_that_nothing_was_sent_and_may_be_tried_again(
    world: World, error: Exception
) -> None:
    async def fail() -> None:
        raise error

    world.answer = fail
    with pytest.raises(InterruptedCallError) as caught:
        await world.get()
    assert (caught.value.delivery, caught.value.retryable) == (Delivery.NOT_SENT, True)
    world.answer = world.at_once
    assert await world.get() == ("catalog 2", True)


async def test_while_what_is_known_still_counts_a_failed_read_stops_no_call(world: World) -> None:
    await world.get()

    async def fail() -> None:
        raise UNAVAILABLE

    world.answer = fail
    world.now += RENEW_AGE
    assert await world.get() == ("catalog 1", False)
    await world.until_asked(2)
    assert await world.get() == ("catalog 1", False)
    world.now += RENEW_AGE
    with pytest.raises(InterruptedCallError):
        await world.get()


async def test_a_call_waits_so_long_and_no_longer_and_the_read_is_there_for_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PATIENCE == 2.0
    monkeypatch.setattr(overlays, "PATIENCE", 0.01)
    go_on = asyncio.Event()

    async def later() -> str:
        await go_on.wait()
        return "late"

    world.answer = later
    with pytest.raises(InterruptedCallError, match=r"within 0\.01 s"):
        await world.get()
    go_on.set()
    assert await world.get() == ("late", True)
    assert len(world.asked) == 1


async def test_catalogs_that_no_call_asks_for_any_more_are_not_kept(world: World) -> None:
    await world.get("a")
    world.now += MAX_AGE
    await world.get("b")
    kept: dict[tuple[str, str], Known] = world.overlay._known
    assert list(kept) == [("b", "s")]


async def test_closing_gives_up_what_is_being_read(world: World) -> None:
    ended = asyncio.Event()

    async def for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    world.answer = for_ever
    waiting = asyncio.create_task(world.get())
    await world.until_asked(1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not ended.is_set()
    await world.overlay.close()
    assert ended.is_set()
