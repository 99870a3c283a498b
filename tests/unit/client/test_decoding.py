"""A body that is encoded although it was asked for as it is takes no more memory, and no more turns, than any other."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from openwop_mcp.client._answers import AnswerReader, HttpAnswer
from openwop_mcp.client._deadline import Deadline
from openwop_mcp.client._decoding import PIECE, decoded
from openwop_mcp.client._wire import SizeLimits
from openwop_mcp.config import Timeouts
from openwop_mcp.errors import HttpStatusError, MalformedAnswerError, ResultTooLargeError
from tests.support.patience import PATIENCE

ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{}}'
UNPACKED = 16 * 1024**2
BOMB = gzip.compress(bytes(UNPACKED))
TWICE = gzip.compress(BOMB)


class Body(httpx.AsyncByteStream):
    """A body that is there at once, in chunks as the network's."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = chunks
        self.read = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self.chunks:
            self.read += 1
            yield chunk


def _response(encoding: str, *chunks: bytes, status: int = 200) -> httpx.Response:
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    request = httpx.Request("POST", "http://server.test/mcp")
    return httpx.Response(status, headers=headers, stream=Body(*chunks), request=request)


async def _answer(response: httpx.Response, limit: int) -> HttpAnswer:
    async with Deadline(Timeouts(connect=PATIENCE, first_byte=PATIENCE, idle=PATIENCE, total=PATIENCE)) as deadline:
        return await AnswerReader(SizeLimits(limit, limit), deadline, None).read(response)


def _bare(data: bytes) -> bytes:
    """The encoding "deflate" without the format around it."""
    packing = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packing.compress(data) + packing.flush()


ENCODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "in capitals": (" GZip", gzip.compress),
    "beside one that changes nothing": ("identity, gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "deflate without its format": ("deflate", _bare),
}


@pytest.mark.parametrize(("encoding", "encode"), ENCODINGS.values(), ids=list(ENCODINGS))
@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE])
async def test_every_byte_is_unpacked(encoding: str, encode: Callable[[bytes], bytes], size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    packed = encode(body)
    cuts = [*range(0, len(packed), 500), len(packed)]
    response = _response(encoding, *(packed[start:end] for start, end in itertools.pairwise(cuts)))
    assert b"".join([piece async for piece in decoded(response)]) == body


@pytest.mark.parametrize("encoding", ["identity", "", "utf-8", "identity, x"])
async def test_what_nobody_encoded_comes_as_it_is(encoding: str) -> None:
    assert (await _answer(_response(encoding, ANSWER), 1000)).message == ANSWER


async def test_a_chunk_that_holds_a_thousand_times_as_much_comes_in_pieces_with_turns_between_them() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    sizes = [len(piece) async for piece in decoded(_response("gzip", BOMB))]
    task.cancel()
    assert sum(sizes) == UNPACKED
    assert max(sizes) == PIECE
    assert turns >= UNPACKED // PIECE


@pytest.mark.parametrize("status", [200, 500])
async def test_unpacking_stops_at_the_limit(status: int) -> None:
    limit = 10 * PIECE
    tracemalloc.start()
    try:
        with pytest.raises(ResultTooLargeError if status == 200 else HttpStatusError):
            await _answer(_response("gzip", BOMB, status=status), limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * limit


@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip,deflate", "deflate, identity, GZIP"])
async def test_what_is_encoded_more_than_once_is_refused_unread(encoding: str) -> None:
    response = _response(encoding, TWICE)
    with pytest.raises(MalformedAnswerError, match="Content-Encoding names more than one") as caught:
        await _answer(response, 1000)
    assert caught.value.fault == "invalid_http"
    assert isinstance(response.stream, Body)
    assert response.stream.read == 0


async def test_a_refusal_stands_however_its_body_is_encoded() -> None:
    response = _response("gzip, gzip", TWICE, status=500)
    with pytest.raises(HttpStatusError) as caught:
        await _answer(response, 1000)
    assert caught.value.status == 500
    assert isinstance(response.stream, Body)
    assert response.stream.read == 0


async def test_what_follows_the_end_is_not_kept() -> None:
    response = _response("gzip", gzip.compress(ANSWER), *[bytes(PIECE)] * 100)
    tracemalloc.start()
    try:
        assert (await _answer(response, 1000)).message == ANSWER
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * PIECE
