"""Where a call's key goes: the carriers that are named, and not one byte of the author's arguments is another."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp import jsontext
from openwop_mcp.protocol import keys
from openwop_mcp.protocol.keys import Carried, KeyArgument, KeyCarrier

KEY = "x3Jc-Kq_0"
QUOTED = b'"x3Jc-Kq_0"'
ARGUMENT = KeyArgument("key")


def test_by_default_a_key_goes_into_a_header_and_into_meta_and_leaves_arguments_alone() -> None:
    assert keys.carry(KEY, keys.DEFAULT_CARRIERS, b'{"q":1}') == Carried(
        b'{"q":1}', headers=[("Idempotency-Key", KEY)], meta=[("dev.openwop-mcp/idempotency-key", QUOTED)]
    )


@pytest.mark.parametrize("arguments", [None, b"{}", b'{"q":1}'])
def test_without_a_key_or_without_a_carrier_a_call_is_as_it_was(arguments: bytes | None) -> None:
    everything: tuple[KeyCarrier, ...] = ("header", "meta", ARGUMENT)
    assert keys.carry(None, everything, arguments) == keys.carry(KEY, (), arguments) == Carried(arguments)


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [
        (None, b'{"key":%b}'),
        (b"{}", b'{"key":%b}'),
        (b" { \n} ", b' { \n"key":%b} '),
        (b'{"q":1.10}', b'{"q":1.10,"key":%b}'),
        (b'{ "q" : "}" } \n', b'{ "q" : "}" ,"key":%b} \n'),
        (b'{"a":{"key":1},"b":[{}]}', b'{"a":{"key":1},"b":[{}],"key":%b}'),
        (b'{"Key":1,"q":1,"q":2}', b'{"Key":1,"q":1,"q":2,"key":%b}'),
        (b'{"s":"\\ud800 \\u00e9"}', b'{"s":"\\ud800 \\u00e9","key":%b}'),
    ],
)
def test_an_argument_is_added_behind_the_authors_own_bytes(arguments: bytes | None, sent: bytes) -> None:
    assert keys.carry(KEY, [ARGUMENT], arguments) == Carried(sent % QUOTED)


@pytest.mark.parametrize("own", [b'{"key":"mine"}', b'{"key":null,"q":1}', b'{"k\\u0065y":7}', b'{"key":1,"key":2}'])
def test_an_argument_of_the_authors_own_stays_and_none_is_added(own: bytes) -> None:
    assert keys.carry(KEY, [ARGUMENT], own).arguments == own


@pytest.mark.parametrize("arguments", [b"[]", b'"{}"', b"null", b'{"q":'])
def test_what_is_no_object_takes_no_argument(arguments: bytes) -> None:
    with pytest.raises(jsontext.JsonTextError):
        keys.carry(KEY, [ARGUMENT], arguments)


SPACE = st.text(" \t\r\n", max_size=3)


@given(
    members=st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.just({"}": "{"}), max_size=4),
    name=st.text(min_size=1),
    spaces=st.tuples(SPACE, SPACE, SPACE),
)
def test_whatever_the_arguments_the_key_is_one_more_of_them(
    members: dict[str, object], name: str, spaces: tuple[str, str, str]
) -> None:
    before, within, after = spaces
    text = json.dumps(members)[:-1]
    arguments = f"{before}{text}{within}}}{after}".encode()
    sent = keys.carry(KEY, [KeyArgument(name)], arguments).arguments
    assert sent is not None
    assert json.loads(sent) == {name: KEY} | members
    if name not in members:
        assert sent.startswith(f"{before}{text}{within}".encode())
        assert sent.endswith(f"}}{after}".encode())
