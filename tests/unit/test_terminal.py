from __future__ import annotations

import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from openwop_mcp.terminal import escape, json_for, table


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


ANY_TEXT = st.text(st.characters(exclude_categories=[]))
ENCODABLE = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    "text",
    [
        "Grüße",
        "天気予報",
        "مرحبا",
        "a b\u00a0c\u3000d",
        "😀 ❤\ufe0f",
        "e\u0301",
        r"C:\temp [bold]x[/bold]",
    ],
)
def test_ordinary_text_of_any_language_stays_as_it_is(text):
    assert escape(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\u{1b}[31mred\u{1b}[0m"),
        ("\x1b]8;;http://evil\x07", r"\u{1b}]8;;http://evil\u{7}"),
        ("\x00\x08\r\x7f", r"\u{0}\u{8}\u{d}\u{7f}"),
        ("\x9b31m\x85", r"\u{9b}31m\u{85}"),
        ("\u202aa\u202eb\u2066c\u2069", r"\u{202a}a\u{202e}b\u{2066}c\u{2069}"),
        ("\u200e\u200f\u061c", r"\u{200e}\u{200f}\u{61c}"),
        ("\u200b\u200c\u200d\u2060\ufeff\u00ad", r"\u{200b}\u{200c}\u{200d}\u{2060}\u{feff}\u{ad}"),
        ("\u2028\u2029", r"\u{2028}\u{2029}"),
        ("\U000e0041\U000e007f\U000e0100", r"\u{e0041}\u{e007f}\u{e0100}"),
        ("\ufe00\u3164\u034f", r"\u{fe00}\u{3164}\u{34f}"),
        ("\ud800x\udfff", r"\u{d800}x\u{dfff}"),
        ("\ue000\uffff", r"\u{e000}\u{ffff}"),
    ],
)
def test_characters_that_act_hide_or_reorder_are_shown_as_escapes(text, shown):
    assert escape(text) == shown


def test_line_feeds_and_tabs_stand_only_where_they_are_allowed():
    assert escape("a\n\tb") == r"a\u{a}\u{9}b"
    assert escape("a\n\tb\r", multiline=True) == "a\n\tb" + r"\u{d}"


@given(ANY_TEXT)
def test_escaped_text_holds_nothing_unsafe_and_can_be_encoded(text):
    shown = escape(text)
    shown.encode()
    assert escape(shown) == shown
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(ENCODABLE)
def test_json_on_a_terminal_is_safe_and_equal(text):
    data = json.dumps({"text": text}, ensure_ascii=False).encode()
    shown = json_for(Terminal(), data)
    assert json.loads(shown) == {"text": text}
    assert escape(shown, multiline=True) == shown


def test_json_into_a_pipe_stands_as_the_server_sent_it():
    text = '{"a":\t"\u202e\x7f\U000e0041",\r\n "b": 1.0}'
    assert json_for(io.StringIO(), text.encode()) == text


def test_json_on_a_terminal_keeps_its_numbers_layout_and_readable_text():
    text = '{\n\t"ü": 1.10, "big": 123456789012345678901234}'
    assert json_for(Terminal(), text.encode()) == text


def test_a_character_beyond_the_basic_plane_becomes_a_surrogate_pair_on_a_terminal():
    assert json_for(Terminal(), '"\U000e0041"'.encode()) == r'"\udb40\udc41"'


def test_a_carriage_return_between_values_cannot_overwrite_the_line_on_a_terminal():
    assert json_for(Terminal(), b'{"a":1,\r"b":2,\r\n"c":3}') == '{"a":1,\n"b":2,\n"c":3}'


def test_a_table_shows_markup_and_control_characters_as_plain_text():
    out = io.StringIO()
    console = Console(file=out, width=120)
    console.print(table(["[red]name"], [["[bold]x[/bold] :smile:"], ["a\x1b[2Jb\nc"]]))
    text = out.getvalue()
    assert "[red]name" in text
    assert "[bold]x[/bold] :smile:" in text
    assert r"a\u{1b}[2Jb\u{a}c" in text


def test_a_table_cuts_nothing_off_on_a_narrow_terminal():
    out = io.StringIO()
    Console(file=out, width=20).print(table(["name", "title"], [["x" * 30, "y" * 30]]))
    assert out.getvalue().count("x") == 30
    assert out.getvalue().count("y") == 30
