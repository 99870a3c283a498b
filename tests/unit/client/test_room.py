"""Room for large answers: never more than there is, first come first served, and given back by whoever leaves."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openwop_mcp.client import Room
from openwop_mcp.client._room import apart


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Reader:
    """One who asks, takes room, and leaves when told."""

    def __init__(self, room: Room, *sizes: int) -> None:
        self.has = False
        self.leave = asyncio.Event()
        self.task = asyncio.get_running_loop().create_task(self._read(room, sizes))

    async def _read(self, room: Room, sizes: tuple[int, ...]) -> None:
        with room.held():
            for size in sizes:
                await room.take(size)
                # An answer grows as it comes.
                await asyncio.sleep(0)
            self.has = True
            await self.leave.wait()

    async def end(self, *, cancel: bool = False) -> None:
        if cancel:
            self.task.cancel()
        self.leave.set()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task
        await settle()


async def test_who_finds_no_room_waits_until_there_is_some_and_in_order() -> None:
    room = Room(100)
    first, second, third = Reader(room, 60), Reader(room, 60), Reader(room, 10)
    await settle()
    # The third would fit in, and goes behind the second all the same: it would never come to its turn otherwise.
    assert [first.has, second.has, third.has] == [True, False, False]
    await first.end()
    assert [second.has, third.has] == [True, True]
    await second.end()
    await third.end()
    assert room._free == 100


async def test_of_all_who_need_more_one_goes_on_and_then_the_next() -> None:
    room = Room(100)
    first, second, third = Reader(room, 40, 30), Reader(room, 40, 50), Reader(room, 20, 30)
    await settle()
    assert [first.has, second.has, third.has] == [True, False, False]
    # Those who wait keep what they have, and nobody new comes in.
    assert room._free == -30
    await first.end()
    assert [second.has, third.has] == [True, False]
    await second.end()
    assert third.has
    await third.end()
    assert room._free == 100


async def test_who_goes_beyond_the_room_is_not_stopped_again_by_who_came_before() -> None:
    room = Room(100)
    slow = Reader(room, 50)
    await settle()
    # The slow one needs no more for now: it keeps its own and holds up nobody but by that.
    first, second, third = Reader(room, 20, 5, 5), Reader(room, 20, 40, 40, 40), Reader(room, 20)
    await settle()
    assert [slow.has, first.has, second.has, third.has] == [True, False, True, False]
    await second.end()
    assert [first.has, third.has] == [True, True]
    for reader in (first, slow, third):
        await reader.end()
    assert room._free == 100


async def test_who_is_given_what_went_beyond_the_room_is_the_one_beyond_it() -> None:
    room = Room(100)
    reader, caller, other = room.held(), room.held(), room.held()
    assert room.ask(other, 50).done()
    assert room.ask(reader, 50).done()
    assert room.ask(reader, 50).done()
    room.hand_on(80, reader, caller)
    reader.leave()
    # There is none still: the caller goes on, and who has some as well does not.
    more = room.ask(other, 10)
    assert not more.done()
    assert room.ask(caller, 10).done()
    caller.leave()
    assert more.done()
    other.leave()
    assert room._free == 100


async def test_two_answers_of_one_who_asked_are_both_counted() -> None:
    room = Room(100)
    blocker = Reader(room, 100)
    await settle()
    with room.held() as held:
        both = [asyncio.create_task(room.take(size)) for size in (30, 40)]
        await settle()
        await blocker.end()
        await asyncio.gather(*both)
        assert (held.size, room._free) == (70, 30)
    assert room._free == 100


@pytest.mark.parametrize("waits", [False, True])
async def test_work_that_outlives_who_asked_takes_nothing_and_waits_for_nothing(waits: bool) -> None:
    room = Room(100)
    blocker = Reader(room, 100)
    await settle()
    go = asyncio.Event()

    async def work() -> None:
        await go.wait()
        await room.take(60)

    with room.held():
        task = asyncio.create_task(work())
        if waits:
            go.set()
        await settle()
    go.set()
    await asyncio.wait_for(task, 10)
    await blocker.end()
    assert room._free == 100


async def test_work_for_several_holds_its_room_by_itself() -> None:
    room, go, leave = Room(100), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        with apart():
            await go.wait()
            await room.take(60)
            await leave.wait()

    with room.held():
        task = asyncio.create_task(work())
        await settle()
    go.set()
    await settle()
    assert room._free == 40
    leave.set()
    await task
    assert room._free == 100


async def test_work_for_those_whom_nobody_counts_is_not_counted() -> None:
    room = Room(100)
    with apart():
        await room.take(60)
    assert room._free == 100


async def test_what_is_larger_than_all_the_room_is_there_alone() -> None:
    room = Room(100)
    small, large = Reader(room, 1), Reader(room, 5_000)
    await settle()
    assert [small.has, large.has] == [True, False]
    await small.end()
    assert large.has
    await large.end()
    assert room._free == 100


async def test_who_is_cancelled_while_it_waits_lets_those_behind_it_by() -> None:
    room = Room(100)
    first, second, third = Reader(room, 60), Reader(room, 100), Reader(room, 40)
    await settle()
    await second.end(cancel=True)
    assert third.has
    await first.end()
    await third.end()
    assert room._free == 100


async def test_who_is_cancelled_in_the_moment_in_which_it_was_given_room_gives_it_back() -> None:
    room = Room(100)
    first, second = Reader(room, 100), Reader(room, 100)
    await settle()
    first.leave.set()
    await first.task
    # It has its room now, and has not noticed it yet.
    await second.end(cancel=True)
    assert room._free == 100


async def test_who_is_cancelled_in_the_moment_in_which_another_leaves_fails_at_nothing() -> None:
    room = Room(100)
    first, second, third = Reader(room, 100), Reader(room, 100), Reader(room, 100)
    await settle()
    second.task.cancel()
    first.leave.set()
    await settle()
    assert second.task.cancelled()
    assert third.has
    await first.end()
    await third.end()
    assert room._free == 100


async def test_work_that_is_cancelled_with_who_asked_fails_at_nothing() -> None:
    room = Room(100)
    first = Reader(room, 100)
    await settle()
    with room.held():
        task = asyncio.create_task(room.take(50))
        await settle()
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await first.end()
    assert room._free == 100


async def test_who_counts_nothing_waits_for_nothing() -> None:
    room = Room(1)
    await room.take(1_000)
    assert room._free == 1


ASKED = st.lists(st.integers(1, 200), min_size=1, max_size=4)


@pytest.mark.parametrize("total", [1, 64, 1_000])
@given(steps=st.lists(st.tuples(ASKED, st.booleans(), st.integers(0, 20)), max_size=30))
@settings(deadline=None, max_examples=50)
def test_no_more_is_taken_than_there_is_and_the_largest_and_all_of_it_comes_back(
    total: int, steps: list[tuple[list[int], bool, int]]
) -> None:
    async def run() -> None:
        room, readers = Room(total), list[Reader]()
        for sizes, cancel, which in steps:
            readers.append(Reader(room, *sizes))
            await settle()
            assert room._free >= -max(held.size for held in room._present)
            # Whoever waits, somebody does not.
            assert any(reader.has for reader in readers)
            if which < len(readers):
                reader = readers.pop(which)
                # Who still waits would wait for those who are told to leave after it.
                await reader.end(cancel=cancel or not reader.has)
            assert not readers or any(reader.has for reader in readers)
        for reader in readers:
            reader.leave.set()
        await asyncio.wait_for(asyncio.gather(*(reader.task for reader in readers)), 10)
        assert room._free == total
        assert not room._present

    asyncio.run(run())
