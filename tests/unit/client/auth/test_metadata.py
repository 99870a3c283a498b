"""Where metadata is looked for, whose it may be, and which URLs are believed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp.client.auth._fetch import usable
from openwop_mcp.client.auth._metadata import authority_urls, canonical, covers, resource_urls
from openwop_mcp.client.auth._scopes import initial, listed, split, union, with_offline_access
from openwop_mcp.errors import AuthorizationError

SCOPES = st.lists(st.sampled_from(["a", "b", "c", "offline_access"]), unique=True).map(tuple)


@pytest.mark.parametrize(
    ("url", "urls"),
    [
        ("https://h", ["https://h/.well-known/oauth-protected-resource"]),
        ("https://h/", ["https://h/.well-known/oauth-protected-resource"]),
        (
            "https://h:8443/a/mcp/?t=1",
            [
                "https://h:8443/.well-known/oauth-protected-resource/a/mcp?t=1",
                "https://h:8443/.well-known/oauth-protected-resource",
            ],
        ),
    ],
)
def test_a_servers_metadata_is_at_its_path_and_then_at_the_root(url: str, urls: list[str]) -> None:
    assert resource_urls(url) == urls


def test_an_issuers_metadata_is_looked_for_in_order() -> None:
    assert authority_urls("https://h/") == [
        "https://h/.well-known/oauth-authorization-server",
        "https://h/.well-known/openid-configuration",
    ]
    assert authority_urls("https://h/t/1") == [
        "https://h/.well-known/oauth-authorization-server/t/1",
        "https://h/.well-known/openid-configuration/t/1",
        "https://h/t/1/.well-known/openid-configuration",
    ]


@pytest.mark.parametrize(
    ("url", "identifier"),
    [
        ("HTTPS://Example.ORG:443/MCP/", "https://example.org/MCP"),
        ("http://example.org:80", "http://example.org"),
        ("http://[::1]:7801/mcp?a=B", "http://[::1]:7801/mcp?a=B"),
    ],
)
def test_a_servers_url_has_one_form_as_an_identifier(url: str, identifier: str) -> None:
    assert canonical(url) == identifier
    assert covers(identifier, url)


@pytest.mark.parametrize(
    ("identifier", "covered"),
    [
        ("https://h/a/mcp", True),
        ("https://H:443/a/mcp/", True),
        ("https://h/a", True),
        ("https://h", True),
        ("https://h/a/mcp?x=1", False),
        ("https://h/a/m", False),
        ("https://h/a/mcp/more", False),
        ("https://h/A/mcp", False),
        ("http://h/a/mcp", False),
        ("https://h:444/a/mcp", False),
        ("https://h.evil.example/a/mcp", False),
        ("https://h/a/mcp#x", False),
        ("https://user@h/a/mcp", False),
        ("https://user:word@h/a/mcp", False),
        ("https://@h/a", False),
        ("https://h:port/", False),
        ("", False),
    ],
)
def test_a_resource_is_the_server_or_what_it_belongs_to(identifier: str, covered: bool) -> None:
    assert covers(identifier, "https://h/a/mcp") is covered


@pytest.mark.parametrize(
    "url", ["https://h/x", "https://h:8443/x?y=1", "http://127.9.9.9/x", "http://[::1]:1/", "http://localhost:1/x"]
)
def test_https_and_this_machine_may_see_secrets(url: str) -> None:
    assert usable(url, "a URL") == url


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "http://h/x",
        "http://localhost.evil.example/",
        "http://10.0.0.1/",
        "http://0x7f000001.evil/",
        "https://user:pass@h/",
        "https://h/#x",
        "https:///x",
        "https://h:0/",
        "https://h:99999/",
        "https://h/\r\nX: y",
        "https://bücher.example/",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "//h/x",
    ],
)
def test_nothing_else_may(url: object) -> None:
    with pytest.raises(AuthorizationError) as caught:
        usable(url, "a URL")
    assert caught.value.cause == "unsafe_url"


def test_a_long_url_is_shown_in_part() -> None:
    with pytest.raises(AuthorizationError) as caught:
        usable("http://h/" + "x" * 100_000, "a URL")
    assert len(str(caught.value)) < 500


@given(SCOPES, SCOPES, SCOPES, SCOPES)
def test_scopes_are_chosen_in_the_order_of_the_specification(
    configured: tuple[str, ...], challenged: tuple[str, ...], supported: tuple[str, ...], before: tuple[str, ...]
) -> None:
    chosen = initial(configured=configured, challenged=challenged, supported=supported, before=before)
    if configured:
        assert chosen == configured
    elif challenged or before:
        assert set(chosen) == {*challenged, *before}
    else:
        assert chosen == supported


@given(SCOPES, SCOPES)
def test_offline_access_is_asked_for_if_it_is_listed_and_not_alone(
    scopes: tuple[str, ...], offered: tuple[str, ...]
) -> None:
    asked = with_offline_access(scopes, offered)
    others = set(scopes) - {"offline_access"}
    assert set(asked) - {"offline_access"} == others
    assert ("offline_access" in asked) == (bool(others) and "offline_access" in offered)


def test_what_is_no_scope_is_left_out() -> None:
    assert split('  a  b "c" a\\ d\n') == ("a", "b")
    assert listed(["a", 1, None, "b c", "a"]) == ("a",)
    assert listed("a b") == ()
    assert len(union(map(str, range(1000)))) == 100
