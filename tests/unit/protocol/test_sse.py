"""Event streams, cut anywhere."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from openwop_mcp.protocol.sse import EventStreamDecoder, EventTooLargeError

LIMIT = 1_000


def decoded(stream: bytes, *, limit: int = LIMIT) -> list[bytes]:
    return EventStreamDecoder(limit).feed(stream)


def outcome(chunks: list[bytes], limit: int) -> list[bytes] | None:
    """The messages, or None where the limit was passed."""
    decoder = EventStreamDecoder(limit)
    try:
        return [message for chunk in chunks for message in decoder.feed(chunk)]
    except EventTooLargeError:
        return None


@pytest.mark.parametrize(
    ("stream", "messages"),
    [
        (b"data: {}\n\n", [b"{}"]),
        (b"data:{}\r\n\r\n", [b"{}"]),
        (b"data: {}\r\r", [b"{}"]),
        (b"data: a\r\n\ndata: b\n\r", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\r\ndata\r\ndata: b\r\n\r\n", [b"a\n\nb"]),
        (b"data:  a \n\n", [b" a "]),
        (b"\xef\xbb\xbfdata: a\n\n", [b"a"]),
        (b"data: a\n\n\xef\xbb\xbfdata: b\n\n", [b"a"]),
        (b": keep-alive\n\n:\n\ndata: a\n: inside\n\n", [b"a"]),
        (b"event: message\ndata: a\n\n", [b"a"]),
        (b"event: ping\ndata: a\n\ndata: b\n\n", [b"b"]),
        (b"event: ping\n\ndata: b\n\n", [b"b"]),
        (b"event: ping\nevent\ndata: b\n\n", [b"b"]),
        (b"id: 1\nretry: 10\ndata: a\nother: x\n\n", [b"a"]),
        (b"id: 1\ndata:\n\n", []),
        (b"data\n\n", []),
        (b"data: cut off\n", []),
        (b"data: cut off", []),
        (b"\n\n\n", []),
        (b"", []),
        ("data: a\u2028b\u0085c\x0bd\x0ce\n\n".encode(), ["a\u2028b\u0085c\x0bd\x0ce".encode()]),
        (b"data: \xff\n\n", [b"\xff"]),
        (b"Data: a\n data: b\n\n", []),
    ],
)
def test_a_stream_is_cut_as_the_standard_says(stream: bytes, messages: list[bytes]) -> None:
    assert decoded(stream) == messages
    assert outcome([stream[at : at + 1] for at in range(len(stream))], LIMIT) == messages


STREAMS = st.lists(
    st.sampled_from(
        [b"data", b"data: ", b"event: ", b"message", b":", b" ", b"\r", b"\n", b"\r\n", b"\xef\xbb\xbf", b"x"]
    ),
    max_size=30,
).map(b"".join)


@given(STREAMS, st.lists(st.integers(0, 120), max_size=8), st.integers(0, 30) | st.just(LIMIT))
@example(b"data: a\r\n\r\ndata: b\r\n\r\n", [8, 10], LIMIT)
def test_where_the_bytes_are_split_changes_nothing(stream: bytes, cuts: list[int], limit: int) -> None:
    ends = sorted(min(cut, len(stream)) for cut in cuts)
    chunks = [stream[start:end] for start, end in zip([0, *ends], [*ends, len(stream)], strict=True)]
    assert outcome(chunks, limit) == outcome([stream], limit)


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), min_size=1), max_size=5))
def test_what_was_framed_comes_out(texts: list[str]) -> None:
    stream = "".join(f"data: {text}\n\n" for text in texts).encode()
    assert decoded(stream, limit=len(stream) + 1) == [text.encode() for text in texts]


@pytest.mark.parametrize(
    "chunks",
    [
        [b"data: " + b"x" * LIMIT],
        [b"data: " + b"x" * LIMIT + b"\n\n"],
        [b"data: x\n"] * (LIMIT // 7 + 1),
        [b":" + b"x" * LIMIT],
        [b"x"] * (LIMIT + 1),
    ],
)
def test_an_event_or_a_line_over_the_limit_is_refused(chunks: list[bytes]) -> None:
    decoder = EventStreamDecoder(LIMIT)
    for chunk in chunks[:-1]:
        decoder.feed(chunk)
    with pytest.raises(EventTooLargeError, match="over 1000 bytes") as caught:
        decoder.feed(chunks[-1])
    assert caught.value.limit == LIMIT


def test_the_limit_is_per_event_and_not_per_stream() -> None:
    event = b"data: " + b"x" * (LIMIT - 6) + b"\n\n"
    assert len(decoded(event * 5)) == 5
    assert decoded(b": keep-alive\n" * LIMIT + event) == [b"x" * (LIMIT - 6)]


def test_an_event_that_the_end_cuts_off_is_forgotten() -> None:
    decoder = EventStreamDecoder(LIMIT)
    assert decoder.feed(b"event: ping\ndata: a\ndata: b") == []
    decoder.close()
    assert decoder.feed(b"\n\ndata: c\n\n") == [b"c"]
