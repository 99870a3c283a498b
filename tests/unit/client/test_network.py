"""Network policy: which addresses a server may have, pinned on the edges of each range."""

from __future__ import annotations

import ipaddress
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp.client._network import Network, verdict

POLICIES: tuple[Network, ...] = get_args(Network)

PUBLIC = [
    "8.8.8.8",
    "1.1.1.1",
    "9.255.255.255",
    "11.0.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.167.255.255",
    "192.169.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "169.253.255.255",
    "169.255.0.0",
    "192.0.1.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2606:4700:4700::1111",
    "2001:200::",
    "2001:db7:ffff::",
    "2001:db9::",
    "3ffe:ffff::",
    "3fff:1000::",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
]

CLASSES = {
    "loopback": "127.0.0.0 127.0.0.1 127.255.255.255 ::1",
    "private": "10.0.0.0 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 fc00:: fdff:ffff::1",
    "shared": "100.64.0.0 100.127.255.255",
    "link-local": "169.254.0.0 169.254.169.254 169.254.255.255 fe80:: fe80::1%eth0 febf:ffff::",
    "metadata": "fd00:ec2::254 100.100.100.200 168.63.129.16 fd20:ce::254 fd00:c1::a9fe:a9fe",
    "unspecified": "0.0.0.0 :: 2001::",
    "broadcast": "255.255.255.255",
    "multicast": "224.0.0.0 239.255.255.255 ff02::1",
    "reserved": """
        0.0.0.1 0.255.255.255 192.0.0.0 192.0.0.9 192.0.0.255 192.0.2.1 198.18.0.0 198.19.255.255 198.51.100.1
        203.0.113.1 240.0.0.0 255.255.255.254 192.88.99.1 2001:db8:: 2001:db8:ffff:: 2001:1ff:: 3fff:: fec0::1 100::1
        4000:: ::8.8.8.8 64:ff9b:1::8.8.8.8 64:ff9b:2::1 2001:0:808:808::f7f7:f7f7
    """,
}

INSIDE = {
    "mapped": lambda inner: 0xFFFF << 32 | inner,
    "translated": lambda inner: 0xFFFF << 48 | inner,
    "compatible": lambda inner: inner,
    "NAT64": lambda inner: 0x64FF9B << 96 | inner,
    "NAT64 of one's own": lambda inner: 0x64FF9B0001 << 80 | inner,
    "6to4": lambda inner: 0x2002 << 112 | inner << 80 | 1,
    "Teredo's client": lambda inner: 0x20010000 << 96 | 0x08080808 << 64 | (~inner & 0xFFFFFFFF),
    "Teredo's server": lambda inner: 0x20010000 << 96 | inner << 64 | (~0x08080808 & 0xFFFFFFFF),
}

CASES = [(name, address) for name, addresses in CLASSES.items() for address in addresses.split()]


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_dialled_unless_the_policy_is_private(address: str) -> None:
    assert {policy: verdict(address, policy, named=False) for policy in POLICIES} == {
        "public": None,
        "private": "public",
        "any": None,
    }


@pytest.mark.parametrize(("name", "address"), CASES)
def test_the_default_policy_refuses_every_other_class_even_if_named(name: str, address: str) -> None:
    assert verdict(address, "public", named=False) == name
    assert verdict(address, "public", named=True) == name


@pytest.mark.parametrize(("name", "address"), CASES)
@pytest.mark.parametrize("policy", ["private", "any"])
def test_one_s_own_network_is_open_and_the_dangerous_rest_only_by_name(
    name: str, address: str, policy: Network
) -> None:
    own = name in {"loopback", "private", "shared"}
    never = name in {"unspecified", "broadcast", "multicast"}
    assert (verdict(address, policy, named=False) is None) is own
    assert (verdict(address, policy, named=True) is None) is not never


@pytest.mark.parametrize("carrier", INSIDE)
@pytest.mark.parametrize(
    ("name", "inner"), [(n, a) for n, a in CASES if ":" not in a and not (n == "unspecified" or a == "0.0.0.1")]
)
def test_an_address_inside_another_counts_as_itself(carrier: str, name: str, inner: str) -> None:
    number = int(ipaddress.IPv4Address(inner))
    address = str(ipaddress.IPv6Address(INSIDE[carrier](number)))
    assert verdict(address, "public", named=False) == name


def test_a_scope_changes_nothing() -> None:
    assert verdict("::1%lo", "public", named=False) == "loopback"
    assert verdict("::ffff:127.0.0.1%1", "public", named=False) == "loopback"
    assert verdict("2606:4700:4700::1111%9", "public", named=False) is None


@pytest.mark.parametrize(
    "text", ["", "localhost", "127.1", "0177.0.0.1", "2130706433", "1.2.3.4 ", "[::1]", "\u0661.1.1.1"]
)
@pytest.mark.parametrize("policy", POLICIES)
def test_what_is_no_address_is_not_dialled(text: str, policy: Network) -> None:
    assert verdict(text, policy, named=True) == "invalid"


@given(st.ip_addresses())
def test_no_address_is_refused_under_any_that_a_narrower_policy_allows(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    text = str(address)
    for named in (False, True):
        narrow = [verdict(text, policy, named=named) for policy in ("public", "private")]
        if None in narrow:
            assert verdict(text, "any", named=named) is None
    if verdict(text, "public", named=False) is None:
        assert verdict(text, "private", named=False) == "public"


@given(st.ip_addresses(v=4))
def test_the_default_policy_allows_nothing_that_the_standard_library_calls_private(
    address: ipaddress.IPv4Address,
) -> None:
    if address.is_private or address.is_link_local or address.is_multicast or address.is_unspecified:
        assert verdict(str(address), "public", named=False) is not None or address in ipaddress.ip_network(
            "192.0.0.0/24"
        )
