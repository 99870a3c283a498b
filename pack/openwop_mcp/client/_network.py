"""Classes of addresses, and which of them a server may have under the network policy of its settings.

Pure: judges the very address that is dialled. Knows no name, no resolver and no socket.
"""

from __future__ import annotations

import ipaddress
from typing import Final, Literal

__all__ = ("Network", "verdict")

Network = Literal["public", "private", "any"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Ranges and not the properties of ipaddress, whose answers differ between releases of Python (RFC 6890 and IANA's
# special-purpose registries, as of 2026). The first that holds an address tells its class.
_CLASSES: Final = tuple(
    (name, tuple(map(ipaddress.ip_network, ranges)))
    for name, ranges in (
        ("unspecified", ("0.0.0.0/32", "::/128")),
        ("broadcast", ("255.255.255.255/32",)),
        ("multicast", ("224.0.0.0/4", "ff00::/8")),
        # Services of clouds for their machines that stand outside link-local ranges: Alibaba's, Azure's (in public
        # space), and the IPv6 ones of AWS, Google and Oracle.
        (
            "metadata",
            (
                "100.100.100.200/32",
                "168.63.129.16/32",
                "fd00:ec2::254/128",
                "fd20:ce::254/128",
                "fd00:c1::a9fe:a9fe/128",
            ),
        ),
        ("link-local", ("169.254.0.0/16", "fe80::/10")),
        ("loopback", ("127.0.0.0/8", "::1/128")),
        ("private", ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")),
        ("shared", ("100.64.0.0/10",)),
        (
            "reserved",
            (
                "0.0.0.0/8",  # this network
                "192.0.0.0/24",  # protocol assignments
                "192.0.2.0/24",  # documentation, like the next two
                "198.51.100.0/24",
                "203.0.113.0/24",
                "192.88.99.0/24",  # the former 6to4 relays
                "198.18.0.0/15",  # benchmarks
                "240.0.0.0/4",  # future use
            ),
        ),
    )
)

_GLOBAL_IPV6: Final = ipaddress.IPv6Network("2000::/3")
"""All that is allotted as global unicast; the rest of IPv6 is not."""

_RESERVED_IPV6: Final = tuple(
    map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20"))  # protocol assignments, documentation
)

_CARRIERS: Final = (
    # Where an IPv4 address stands in these, as a shift from the right; Teredo's is inverted.
    (ipaddress.IPv6Network("::ffff:0:0/96"), 0),  # mapped
    (ipaddress.IPv6Network("::ffff:0:0:0/96"), 0),  # translated
    (ipaddress.IPv6Network("::/96"), 0),  # compatible
    (ipaddress.IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (ipaddress.IPv6Network("64:ff9b:1::/48"), 0),  # NAT64 of one's own
    (ipaddress.IPv6Network("2002::/16"), 80),  # 6to4
)

_AS_CARRIED: Final = (ipaddress.IPv6Network("::ffff:0:0/96"), ipaddress.IPv6Network("64:ff9b::/96"))
"""Carriers outside global unicast that are reachable exactly where the address inside is."""

_TEREDO: Final = ipaddress.IPv6Network("2001::/32")

_PRIVATE: Final = frozenset({"loopback", "private", "shared"})
"""What the policy ``private`` means: this machine and the operator's own network."""

_NEVER: Final = frozenset({"unspecified", "multicast", "broadcast"})
"""No server has such an address: not even naming it makes sense of it."""


def verdict(address: str, policy: Network, *, named: bool) -> str | None:
    """Say why an address may not be dialled, or None if it may be.

    Args:
        address: An IPv4 or IPv6 address as the resolver gives it, with a scope id or without.
        policy: ``public``: global addresses alone. ``private``: loopback, RFC 1918, unique local and shared ones alone.
            ``any``: all of these. Others are refused under each.
        named: Whether the operator's URL has this very address and no name. Under ``private`` and ``any`` it may then
            be link-local, reserved or a metadata service.

    Returns:
        The class of the address in a word: ``public``, ``loopback``, ``private``, ``shared``, ``link-local``,
        ``metadata``, ``unspecified``, ``multicast``, ``broadcast``, ``reserved``; or ``invalid``, if it is none.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "invalid"
    found = _class_of(parsed)
    if found == "public":
        allowed = policy != "private"
    elif found in _PRIVATE:
        allowed = policy != "public"
    else:
        allowed = named and policy != "public" and found not in _NEVER
    return None if allowed else found


def _class_of(address: Address) -> str:
    """The class of an address; of one that carries an IPv4 address, the class of that where it is not public.

    A gateway delivers to what is carried, so that counts first. A public one makes a carrier public only where that is
    reachable from everywhere.
    """
    if isinstance(address, ipaddress.IPv6Address):
        address = ipaddress.IPv6Address(int(address))  # without its scope
    for name, ranges in _CLASSES:
        if any(address in range_ for range_ in ranges if range_.version == address.version):
            return name
    if isinstance(address, ipaddress.IPv4Address):
        return "public"
    carried = [_class_of(inner) for inner in _carried(address)]
    delivered = next((found for found in carried if found != "public"), None)
    if delivered is not None:
        return delivered
    if any(address in range_ for range_ in _AS_CARRIED):
        return "public"
    if address not in _GLOBAL_IPV6 or any(address in range_ for range_ in _RESERVED_IPV6):
        return "reserved"
    return "public"


def _carried(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses inside an IPv6 one: Teredo has a server and a client."""
    number = int(address)
    if address in _TEREDO:
        return [ipaddress.IPv4Address(number >> 64 & 0xFFFFFFFF), ipaddress.IPv4Address(~number & 0xFFFFFFFF)]
    return [ipaddress.IPv4Address(number >> shift & 0xFFFFFFFF) for range_, shift in _CARRIERS if address in range_]
