"""Room for large answers: never more than there is, first come first served, and given back by whoever leaves."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openwop_mcp.client import Room


async def settle() -> None:
    for _ in range(5):
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


async def test_who_has_room_never_waits_for_more() -> None:
    room = Room(100)
    first, second = Reader(room, 60, 100), Reader(room, 40, 100)
    await settle()
    assert [first.has, second.has] == [True, True]
    await first.end()
    await second.end()
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


async def test_who_counts_nothing_waits_for_nothing() -> None:
    room = Room(1)
    await room.take(1_000)
    assert room._free == 1


@pytest.mark.parametrize("total", [1, 64, 1_000])
@given(steps=st.lists(st.tuples(st.integers(1, 200), st.booleans(), st.integers(0, 20)), max_size=40))
@settings(deadline=None, max_examples=50)
def test_no_more_is_taken_than_there_is_and_all_of_it_comes_back(
    total: int, steps: list[tuple[int, bool, int]]
) -> None:
    async def run() -> None:
        room, readers = Room(total), list[Reader]()
        for size, cancel, which in steps:
            readers.append(Reader(room, size))
            await settle()
            if which < len(readers):
                reader = readers.pop(which)
                # Who still waits would wait for those who are told to leave after it.
                await reader.end(cancel=cancel or not reader.has)
            assert 0 <= room._free <= total
        for reader in readers:
            reader.leave.set()
        await asyncio.wait_for(asyncio.gather(*(reader.task for reader in readers)), 10)
        assert room._free == total
        assert not room._waiting

    asyncio.run(run())
