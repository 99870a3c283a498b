"""Undoes the encoding of a body, which was asked for without one, in pieces of a bounded size.

Knows encodings, and nothing of what they hold.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Mapping
from typing import Final, cast

import httpx

from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import MalformedAnswerError
from openwop_mcp.protocol import messages

__all__ = ("decoded", "is_encoded")

PIECE = 64 * 1024
"""Bytes that are unpacked before whoever counts them is asked whether to go on: a chunk of 16 KiB may hold 16 MiB."""

WINDOWS: Final[Mapping[str, tuple[int, ...]]] = {
    "gzip": (zlib.MAX_WBITS | 16,),
    "deflate": (zlib.MAX_WBITS, -zlib.MAX_WBITS),
}
"""The encodings that are undone, and what zlib calls each: some servers send "deflate" without the format around it
that it should have (RFC 9110, section 8.4.1.2), which shows at its beginning."""


def decoded(response: httpx.Response) -> AsyncIterator[bytes]:
    """Pieces of a body, decoded where a server encodes it although it was asked not to.

    What is in an encoding that is not known here is given as it came.

    Raises:
        MalformedAnswerError: It is encoded more than once: each time can make a thousand times as much of it.
        httpx.DecodingError: It is not in the encoding that it claims, as it is read.
    """
    encodings = _encodings(response)
    if len(encodings) > 1:
        raise MalformedAnswerError(
            f"the answer {messages.FAULTS['invalid_http']} (its Content-Encoding names more than one, and none was"
            " asked for)",
            fault="invalid_http",
            delivery=Delivery.UNKNOWN,
        )
    # The stream itself: httpx's own iterators cost a layer of generators for each small answer.
    stream = cast("httpx.AsyncByteStream", response.stream)
    return _unpacked(stream, *WINDOWS[encodings[0]]) if encodings else aiter(stream)


def is_encoded(response: httpx.Response) -> bool:
    """Whether the body as it comes is something else than what :func:`decoded` gives."""
    return bool(_encodings(response))


def _encodings(response: httpx.Response) -> list[str]:
    named = response.headers.get("content-encoding", "").lower().split(",")
    return [encoding for each in named if (encoding := each.strip()) in WINDOWS]


async def _unpacked(stream: httpx.AsyncByteStream, window: int, *others: int) -> AsyncIterator[bytes]:
    unpacking = zlib.decompressobj(window)
    async for chunk in stream:
        held = chunk
        # What follows the end is no part of it, and zlib would keep it all.
        while not unpacking.eof:
            try:
                piece = unpacking.decompress(held, PIECE)
            except zlib.error as error:
                if not others:
                    raise httpx.DecodingError(str(error)) from error
                unpacking, others = zlib.decompressobj(others[0]), ()
                continue
            others = ()
            if piece:
                yield piece
            if len(piece) < PIECE:
                break
            held = unpacking.unconsumed_tail
            await asyncio.sleep(0)
