"""Many strings are found at once, all of them, wherever they are, and none that is not there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp.redaction._search import Search

# Few different bytes, so that strings overlap, repeat themselves and begin alike.
strings = st.lists(st.binary(min_size=8, max_size=60).map(lambda data: bytes(b"ab-"[byte % 3] for byte in data)))
texts = st.binary(max_size=300).map(lambda data: bytes(b"ab-"[byte % 3] for byte in data))


@given(strings, texts, st.data())
def test_what_is_found_is_what_is_there(needles: list[bytes], text: str, data: st.DataObject) -> None:
    for needle in needles[:2]:
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + needle + text[at:]
    there = {(at, at + len(needle)) for needle in needles for at in range(len(text)) if text.startswith(needle, at)}
    search = Search(needles)
    assert set(search.spans(text)) == there
    assert search.may_hold(text) == bool(there)


def test_nothing_is_found_where_nothing_is_looked_for() -> None:
    search = Search([])
    assert not list(search.spans(b"some text with \\u0061 and %61"))
    assert not search.may_hold(b"some text with \\u0061 and %61")


def test_only_escapes_that_could_hide_one_are_worth_reading() -> None:
    search = Search([b"sk-12345678/z"])
    for common in (
        b"\\u00e9",
        b"\\n",
        b'\\"',
        b"\\\\",
        b"%20",
        b"100%",
        b"\\u003c",
        b"c:\\\\z",
        b"&amp;",
        b"&#233;",
        b"a line\\n",
        b"a line\n",
    ):
        assert not search.promising(common), common
    for hiding in (
        b"\\u0073",
        b"\\u004b",
        b"\\\\u002d",
        b"%2d",
        b"%4b",
        b"%252d",
        b"\\/",
        b"\\\\/",
        b"%5c/",
        b"\\u0025",
        b"&#107;",
        b"&#x2f;",
        b"x" * 40 + b"\\n",
        b"x" * 40 + b"\r\n",
    ):
        assert search.promising(hiding), hiding
