"""Lines, cut anywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp.client.stdio._lines import HEAD_BYTES, TAIL_BYTES, Cut, Lines

BOM = b"\xef\xbb\xbf"


def cut(data: bytes, limit: int, *sizes: int) -> list[bytes | Cut]:
    """The lines of data that arrives in pieces of these sizes, the last again and again."""
    lines, found, start = Lines(limit), list[bytes | Cut](), 0
    for size in [*sizes, *[sizes[-1]] * len(data)]:
        found += lines.feed(data[start : start + size])
        start += size
    return [*found, lines.close()]


def test_ends_of_lines_and_a_mark_of_the_byte_order_are_no_part_of_them() -> None:
    data = BOM + b'{"a":1}\r\n\n12345678901234567890\n\xf0\x9f\x98\x80\r\n' + BOM + b"last"
    long = b"12345678901234567890"
    whole = [b'{"a":1}', b"", Cut(long, long, 20), "😀".encode(), BOM + b"last"]
    assert cut(data, 12, len(data)) == whole
    for size in range(1, len(data)):
        assert cut(data, 12, size) == whole


@given(st.lists(st.sampled_from([b"\n", b"\r", BOM, b"a", b"bc" * 9]), max_size=30), st.lists(st.integers(1, 9)))
def test_lines_are_the_same_however_the_bytes_arrive(pieces: list[bytes], sizes: list[int]) -> None:
    data = b"".join(pieces)
    assert cut(data, 12, *sizes, 4) == cut(data, 12, len(data) + 1)


@given(st.integers(1, 20_000), st.integers(1, 5_000))
def test_of_a_long_line_only_the_ends_are_held(size: int, chunk: int) -> None:
    data = bytes(b"0123456789abcdef"[at * at % 13] for at in range(size))
    lines = Lines(5_000)
    for start in range(0, size, chunk):
        assert lines.feed(data[start : start + chunk]) == []
        assert len(lines._held) <= 5_000
    (line,) = lines.feed(b"\n")
    assert line == (data if size <= 5_000 else Cut(data[:HEAD_BYTES], data[-TAIL_BYTES:], size))
