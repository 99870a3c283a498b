"""What is read beside an answer leaves others their turns, however much of it comes at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

import httpx
import pytest

from openwop_mcp.client import _answers
from openwop_mcp.client._answers import REST, TURN, AnswerReader
from openwop_mcp.client._deadline import Deadline
from openwop_mcp.client._wire import SizeLimits
from openwop_mcp.config import Timeouts
from tests.support.patience import PATIENCE

NOTICE = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}'
ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{}}'
COUNT = 10 * TURN // len(NOTICE)
LIMITS = Timeouts(connect=PATIENCE, first_byte=PATIENCE, idle=PATIENCE, total=PATIENCE)


class Piece(httpx.AsyncByteStream):
    """A body that is there at once."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.data


async def test_a_flood_of_notices_in_one_piece_leaves_others_their_turns() -> None:
    body = b"".join(b"data: %b\n\n" % one for one in [*[NOTICE] * COUNT, ANSWER])
    turns, heard = 0, list[int]()

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    task = asyncio.create_task(others())
    await asyncio.sleep(0)
    sizes = SizeLimits(len(body), len(body))
    async with Deadline(LIMITS) as deadline:
        reader = AnswerReader(sizes, deadline, lambda _: heard.append(turns))
        answer = await reader.read(
            httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=Piece(body))
        )
    task.cancel()
    assert answer.message == ANSWER
    assert len(heard) == COUNT
    assert max(heard.count(turn) for turn in set(heard)) * len(NOTICE) < TURN + len(NOTICE)


@pytest.mark.parametrize("unit", [b"data:1\n\n", b"data:{}\n\n", b"\n", b"\r", b":\n", b"id:1\n\n"])
@pytest.mark.parametrize("lasting", [False, True])
async def test_what_says_nothing_leaves_others_their_turns_and_a_lasting_stream_rests(
    unit: bytes, lasting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = unit * (20 * TURN // len(unit)) + b"\n\ndata: %b\n\n" % ANSWER
    heard, rests = list[bytes](), list[float]()

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        await asyncio.sleep(0)

    # Of its module alone: others may sleep on this loop.
    monkeypatch.setattr(_answers, "asyncio", SimpleNamespace(**{**vars(asyncio), "sleep": rest}))
    async with Deadline(LIMITS) as deadline:
        reader = AnswerReader(SizeLimits(len(body), len(body)), deadline, heard.append, lasting=lasting)
        answer = await reader.read(
            httpx.Response(200, headers={"Content-Type": "text/event-stream"}, stream=Piece(body))
        )
    assert answer.message == ANSWER
    assert heard == []
    assert len(rests) >= len(body) // TURN - 1
    assert set(rests) == {REST if lasting else 0}
