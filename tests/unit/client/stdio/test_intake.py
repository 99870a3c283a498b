"""Room for a process's line: it holds the process up, goes to who is answered, and never keeps those who wait apart."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openwop_mcp.client import Room
from openwop_mcp.client._deadline import Deadline
from openwop_mcp.client._room import LARGE, Held, holder
from openwop_mcp.client.stdio._intake import Intake
from openwop_mcp.config import Timeouts
from openwop_mcp.errors import TimeLimitError

LIMIT = 100 * LARGE
HOUR = Timeouts(connect=3600, first_byte=3600, idle=3600, total=3600)


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


class Pipe:
    """What a process writes goes through it, unless it is held up."""

    def __init__(self, room: Room | None) -> None:
        self.flows = asyncio.Event()
        self.flows.set()
        self.intake = Intake(room, LIMIT, pause=self.flows.clear, resume=self.flows.set)

    @contextlib.contextmanager
    def call(self, limits: Timeouts = HOUR, *, lasting: bool = False) -> Iterator[Deadline]:
        deadline = Deadline(limits)
        with self.intake.awaited(deadline, lasting=lasting):
            yield deadline

    async def answer(self, size: int, to: Held | None) -> None:
        """Write a line of so many bytes."""
        for written in range(LARGE, size + LARGE, LARGE):
            self.intake.grown(min(written, size))
            await self.flows.wait()
        self.intake.hand_on(size, to)
        self.intake.grown(0)


@pytest.fixture
def room() -> Room:
    return Room(20 * LARGE)


@contextlib.contextmanager
def crowded(room: Room) -> Iterator[None]:
    """Another one has all of it."""
    other = room.held()
    assert room.ask(other, room._size).done()
    yield
    other.leave()


def taken(room: Room) -> int:
    return room._size - room._free


async def test_a_large_line_has_room_for_what_came_and_as_much_again_and_its_call_keeps_what_it_got(room: Room) -> None:
    pipe = Pipe(room)
    with room.held() as held:
        with pipe.call():
            pipe.intake.grown(LARGE)
            assert taken(room) == 0
            pipe.intake.grown(3 * LARGE)
            assert (taken(room), held.size) == (6 * LARGE, 0)
            pipe.intake.grown(5 * LARGE)
            assert taken(room) == 6 * LARGE
            pipe.intake.hand_on(5 * LARGE, held)
            pipe.intake.grown(0)
        assert (taken(room), held.size) == (5 * LARGE, 5 * LARGE)
    assert taken(room) == 0


async def test_a_line_never_has_more_room_than_its_limit(room: Room) -> None:
    pipe = Pipe(room)
    pipe.intake._limit = 4 * LARGE
    with pipe.call():
        pipe.intake.grown(3 * LARGE)
        assert taken(room) == 4 * LARGE
        pipe.intake.grown(0)


async def test_a_line_that_turns_out_to_be_over_the_limit_gives_its_room_back(room: Room) -> None:
    pipe = Pipe(room)
    with pipe.call():
        pipe.intake.grown(3 * LARGE)
        # Of one over the limit the ends are kept.
        pipe.intake.grown(4_000)
        assert taken(room) == 0


async def test_a_process_is_read_no_further_while_there_is_no_room_and_only_the_total_goes_on(room: Room) -> None:
    pipe, limits = Pipe(room), Timeouts(connect=3600, first_byte=0.01, idle=3600, total=0.2)

    async def asked() -> None:
        async with Deadline(limits) as deadline:
            with pipe.intake.awaited(deadline, lasting=False):
                deadline.sending()
                pipe.intake.grown(2 * LARGE)
                assert pipe.intake.held_back
                await asyncio.Event().wait()

    with crowded(room):
        with pytest.raises(TimeLimitError, match=r"limits\.memory_bytes.*timeouts\.total"):
            await asked()
        await settle()
        # Its call has gone, and another line is nobody's as yet.
        assert pipe.flows.is_set()
    assert taken(room) == 0


async def test_a_process_is_read_on_when_there_is_room(room: Room) -> None:
    pipe = Pipe(room)
    with pipe.call() as deadline:
        with crowded(room):
            pipe.intake.grown(2 * LARGE)
            assert not pipe.flows.is_set()
            assert deadline._held_back
            # One that is ending is read all the same, and asks for no more meanwhile.
            pipe.intake.grown(3 * LARGE)
        await settle()
        assert pipe.flows.is_set()
        assert not deadline._held_back
        assert taken(room) == 4 * LARGE
        pipe.intake.grown(0)


async def test_a_call_that_comes_while_the_process_is_held_up_loses_no_time_either(room: Room) -> None:
    pipe = Pipe(room)
    with crowded(room), pipe.call():
        pipe.intake.grown(2 * LARGE)
        with pipe.call() as late:
            assert late._held_back
        pipe.intake.grown(0)


async def test_a_line_that_is_never_ended_keeps_no_room_once_all_who_waited_for_it_are_gone(room: Room) -> None:
    pipe = Pipe(room)
    with pipe.call(lasting=True), contextlib.ExitStack() as first, room.held() as held:
        first.enter_context(pipe.call())
        pipe.intake.grown(4 * LARGE)
        with pipe.call():
            assert taken(room) == 8 * LARGE
            first.close()
            assert taken(room) == 0
            pipe.intake.grown(9 * LARGE)
            pipe.intake.hand_on(9 * LARGE, held)
            assert taken(room) == 0
            # The next line is another matter.
            pipe.intake.grown(0)
            pipe.intake.grown(2 * LARGE)
            assert taken(room) == 4 * LARGE
            pipe.intake.grown(0)
    assert taken(room) == 0


async def test_a_line_that_no_call_waits_for_is_not_counted(room: Room) -> None:
    pipe = Pipe(room)
    with crowded(room), pipe.call(lasting=True):
        pipe.intake.grown(4 * LARGE)
        assert pipe.flows.is_set()


async def test_an_answer_to_one_who_has_left_or_whom_nobody_counts_gives_its_room_back(room: Room) -> None:
    pipe = Pipe(room)
    with room.held() as held:
        pass
    for to in (held, None):
        with pipe.call():
            await pipe.answer(3 * LARGE, to)
        assert taken(room) == 0


async def test_where_nobody_counts_nothing_waits() -> None:
    pipe = Pipe(None)
    with pipe.call():
        await pipe.answer(5 * LARGE, None)


@pytest.mark.parametrize("late", [False, True])
async def test_a_line_does_not_wait_for_the_room_of_a_call_that_waits_for_it(room: Room, late: bool) -> None:
    pipe = Pipe(room)
    with contextlib.ExitStack() as stack:
        if late:
            stack.enter_context(pipe.call())
        held = stack.enter_context(room.held())
        await room.take(15 * LARGE)
        await room.take(15 * LARGE)
        if late:
            # It grows for another, and there is none.
            pipe.intake.grown(4 * LARGE)
            assert not pipe.flows.is_set()
        stack.enter_context(pipe.call())
        await settle()
        pipe.intake.grown(4 * LARGE)
        await settle()
        assert pipe.flows.is_set()
        pipe.intake.hand_on(4 * LARGE, held)
        pipe.intake.grown(0)
    assert taken(room) == 0


ANSWERS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 12)), min_size=1, max_size=4)


@given(calls=st.lists(ANSWERS, max_size=8), size=st.integers(1, 20))
@settings(deadline=None, max_examples=100)
def test_whatever_calls_keep_and_wait_for_all_of_them_end(calls: list[list[tuple[int, int]]], size: int) -> None:
    async def run() -> None:
        room = Room(size * LARGE)
        pipes = [Pipe(room) for _ in range(3)]
        asked: list[asyncio.Queue[tuple[int, Held | None, asyncio.Event]]] = [asyncio.Queue() for _ in pipes]

        async def process(number: int) -> None:
            while True:
                bytes_, to, done = await asked[number].get()
                await pipes[number].answer(bytes_, to)
                done.set()

        async def call(answers: list[tuple[int, int]]) -> None:
            # Each keeps what it was answered until it has all.
            with room.held():
                for number, megabytes in answers:
                    done = asyncio.Event()
                    with pipes[number].call():
                        asked[number].put_nowait((megabytes * LARGE, holder(), done))
                        await done.wait()

        processes = [asyncio.create_task(process(number)) for number in range(len(pipes))]
        async with asyncio.timeout(10):
            await asyncio.gather(*map(call, calls))
        for one in processes:
            one.cancel()
        await asyncio.wait(processes)
        assert room._free == size * LARGE
        assert not room._present

    asyncio.run(run())
