"""Headers that mirror the body."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.protocol.headers import decode_value, encode_value, standard


@pytest.mark.parametrize(
    ("value", "spelled"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
        ("\tx", "=?base64?CXg=?="),
        ("a\tb", "=?base64?YQli?="),
        ("a  b", "a  b"),
        ("", ""),
        ("=?base64?open", "=?base64?open"),
        ("\x7f", "=?base64?fw==?="),
        (42, "42"),
        (-7, "-7"),
        (True, "true"),
        (False, "false"),
    ],
)
def test_a_value_is_spelled_as_the_protocol_says(value: str | int | bool, spelled: str) -> None:
    assert encode_value(value) == spelled


@given(st.text())
@example("=?base64?=")
@example("=?base64??=")
@example("=?BASE64?eA==?=")
def test_a_value_survives_the_way_through_a_header(value: str) -> None:
    spelled = encode_value(value)
    assert re.fullmatch(r"|[\x21-\x7e]|[\x21-\x7e][\x20-\x7e]*[\x21-\x7e]", spelled)
    assert decode_value(spelled) == value


@pytest.mark.parametrize("text", ["é", "a\nb", "\x00", "=?base64?a?=", "=?base64?!!!!?=", "=?base64?/w==?="])
def test_what_no_header_can_say_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^a header's value"):
        decode_value(text)


def test_a_lone_surrogate_has_no_form_in_a_header() -> None:
    with pytest.raises(InvalidRequestError, match="lone surrogate"):
        encode_value("\ud800")


def test_every_request_names_revision_and_method() -> None:
    assert standard("2026-07-28", "tools/list", name=None) == [
        ("MCP-Protocol-Version", "2026-07-28"),
        ("Mcp-Method", "tools/list"),
    ]


def test_a_call_names_its_tool_even_if_the_name_is_empty_or_not_ascii() -> None:
    assert standard("2026-07-28", "tools/call", name="wëb")[-1] == ("Mcp-Name", "=?base64?d8OrYg==?=")
    assert standard("2026-07-28", "tools/call", name="")[-1] == ("Mcp-Name", "")
