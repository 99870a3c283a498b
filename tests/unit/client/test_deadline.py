"""Limits of a request are the server's: what came in time counts, however late this side looks at it."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable

import pytest
import uvloop

from openwop_mcp.client._deadline import Deadline
from openwop_mcp.config import Timeouts
from openwop_mcp.errors import TimeLimitError
from tests.support.patience import PATIENCE

LIMIT = 0.05


async def _read(*, answers: bool) -> bytes:
    """Wait for an answer in a loop that stands still from before it comes until after the limit."""
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)

    def stand_still() -> None:
        if answers:
            theirs.send(b"x")
        until = time.monotonic() + 2 * LIMIT
        while time.monotonic() < until:
            pass

    try:
        async with Deadline(Timeouts(connect=PATIENCE, first_byte=LIMIT, idle=PATIENCE, total=PATIENCE)) as deadline:
            deadline.sending()
            asyncio.get_running_loop().call_soon(stand_still)
            return await reader.read(1)
    finally:
        theirs.close()
        writer.close()


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_an_answer_that_came_while_the_loop_stood_still_is_in_time(run: Callable[..., bytes]) -> None:
    assert run(_read(answers=True)) == b"x"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_limit_ends_what_has_no_answer(run: Callable[..., bytes]) -> None:
    with pytest.raises(TimeLimitError, match=r"'first_byte' limit of 0\.05 s"):
        run(_read(answers=False))
