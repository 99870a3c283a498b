"""Principals: who sent a request, as OpenWOP names them, and what they may do."""

from __future__ import annotations

import pytest

from host.errors import HostError
from host.principals import Principal, is_subject_id

DEV = Principal("dev", "acme", "dev", frozenset({"runs:create", "runs:read"}))
ALICE = Principal("oidc:1", "acme", "alice", frozenset(), "https://login.example.org", "oidc", "workload")


def test_a_subject_is_closed_and_owns_what_it_starts() -> None:
    subject = {
        "issuer": "urn:openwop-mcp:api-key",
        "subjectId": "dev",
        "tenant": "acme",
        "lane": "api-key",
        "kind": "user",
    }
    assert DEV.subject == subject
    assert (DEV.owner.tenant, DEV.owner.subject, DEV.owner.workspace) == ("acme", subject, None)


def test_a_subject_says_who_vouches_for_it_and_what_it_is() -> None:
    assert ALICE.subject == {
        "issuer": "https://login.example.org",
        "subjectId": "alice",
        "tenant": "acme",
        "lane": "oidc",
        "kind": "workload",
    }


def test_a_scope_is_had_by_name_or_with_all() -> None:
    DEV.require("runs:read")
    DEV.require("runs:create", "runs:read")
    DEV.require()
    Principal("ops", "acme", "ops", frozenset({"*"})).require("runs:cancel")
    with pytest.raises(HostError) as caught:
        DEV.require("runs:read", "runs:cancel")
    assert (caught.value.code, caught.value.status) == ("forbidden", 403)
    assert caught.value.details == {"missingScopes": ["runs:cancel"]}


def test_a_challenge_for_a_scope_names_all_that_the_operation_needs() -> None:
    with pytest.raises(HostError) as caught:
        DEV.require("runs:read", "runs:cancel")
    assert caught.value.headers == {
        "WWW-Authenticate": 'Bearer realm="openwop", error="insufficient_scope", scope="runs:read runs:cancel"'
    }


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("dev", True), ("auth0|a:b@c", True), ("\u00e9", True), ("x" * 256, True)]
    + [(text, False) for text in ("", "a b", "a/b", "x" * 257, "a\n")],
)
def test_a_subject_has_no_space_and_no_slash(text: str, is_one: bool) -> None:
    assert is_subject_id(text) is is_one
