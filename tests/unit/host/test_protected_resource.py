"""The host as a resource of OAuth: where its metadata is and what it says."""

from __future__ import annotations

import json

import pytest

from host.protected_resource import ProtectedResource
from openwop_mcp.config import SCOPES, Host, Issuer, Settings

ISSUER = Issuer(issuer="https://login.example.org", audience="a", tenant="acme")


def resource(url: str = "https://h.example", *issuers: Issuer) -> ProtectedResource:
    found = ProtectedResource.of(Settings(host=Host(url=url), issuers=issuers or (ISSUER,)))
    assert found is not None
    return found


def test_a_host_that_takes_keys_alone_is_none() -> None:
    assert ProtectedResource.of(Settings(host=Host(url="https://h.example"))) is None


@pytest.mark.parametrize(
    ("url", "metadata"),
    [
        ("https://h.example", "https://h.example/.well-known/oauth-protected-resource"),
        ("https://h.example/", "https://h.example/.well-known/oauth-protected-resource"),
        ("https://h.example:8443/api", "https://h.example:8443/.well-known/oauth-protected-resource/api"),
        ("https://h.example/api/", "https://h.example/.well-known/oauth-protected-resource/api"),
        ("http://[::1]:80/a/b", "http://[::1]:80/.well-known/oauth-protected-resource/a/b"),
    ],
)
def test_its_metadata_stands_between_host_and_path(url: str, metadata: str) -> None:
    assert resource(url).metadata_url == metadata
    assert metadata.endswith(resource(url).path)
    assert json.loads(resource(url).metadata)["resource"] == url


def test_its_metadata_tells_whose_tokens_are_taken_and_what_they_can_be_for() -> None:
    other = ISSUER.model_copy(update={"issuer": "https://other.example.org", "scopes": ("runs:read",)})
    assert json.loads(resource("https://h.example", other).metadata) == {
        "resource": "https://h.example",
        "authorization_servers": ["https://other.example.org"],
        "scopes_supported": ["runs:read"],
        "bearer_methods_supported": ["header"],
    }
    both = json.loads(resource("https://h.example", other, ISSUER).metadata)
    assert both["authorization_servers"] == ["https://other.example.org", "https://login.example.org"]
    assert both["scopes_supported"] == list(SCOPES)


def test_a_challenge_points_to_it_and_other_headers_stay() -> None:
    assert resource().point({"WWW-Authenticate": 'Bearer realm="x"', "Retry-After": "2"}) == {
        "WWW-Authenticate": (
            'Bearer realm="x", resource_metadata="https://h.example/.well-known/oauth-protected-resource"'
        ),
        "Retry-After": "2",
    }
