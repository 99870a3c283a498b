"""Addresses that servers ask people to visit."""

from __future__ import annotations

import pytest

from openwop_mcp.questions.addresses import host_of, warning


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.com/a", "example.com"),
        ("https://EXAMPLE.com:8443/a?b#c", "example.com"),
        ("https://bank.com@evil.example/", "evil.example"),
        ("https://b\u00fccher.example/", "xn--bcher-kva.example"),
        ("http://[::1]:80/", "::1"),
        ("not an address", None),
        ("https://", None),
        ("https://[::1/", None),
        ("https://a:b:c/", None),
        ("https://" + "a" * 70 + ".com/", None),
        # Where these lead depends on the program that is given them.
        ("https://evil.example\\@bank.com/", None),
        ("https://bank.com\n.evil.example/", None),
        ("https://bank.com\t@evil.example/", None),
        ("https://bank.com/ \u202e", None),
        ("https://bank.com%2eevil.example/", None),
        ("https://[::1%25eth0]/", None),
        ("https://fa\u00df.example/", None),
        ("https://bank\u200d.example/", None),
    ],
)
def test_where_an_address_leads(url: str, host: str | None) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://example.com/", None),
        ("http://example.com/", ["not encrypted", "example.com"]),
        ("javascript:alert(1)", ["no address"]),
        ("https://bank.com@evil.example/", ["before '@'", "the host evil.example"]),
        ("https://b\u00fccher.example/", ["outside of ASCII,", "xn--bcher-kva.example"]),
        ("https://xn--exmple-4nf.com/", ["cyrillic, latin", "xn--exmple-4nf.com"]),
        ("https://xn--a.com/", ["punycode"]),
    ],
)
def test_what_is_to_be_known_of_an_address(url: str, words: list[str] | None) -> None:
    told = warning(url)
    assert (told is None) is (words is None)
    for word in words or []:
        assert word in (told or "")
