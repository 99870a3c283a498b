"""Tokens of an issuer: what has to hold of one before anyone is let in, and who its bearer then is."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from host.errors import HostError
from host.jwks import IssuerKeys
from host.oidc import LEEWAY, MAX_TOKEN, Cause, RefusedError, Tokens, resolve
from host.principals import Principal
from openwop_mcp.config import SCOPES, Issuer, load
from tests.support.auth_server import Page
from tests.support.token_issuer import AUDIENCE, claims_of, ec_key, public, rsa_key, signed, token_of

DOC = Path(__file__).parents[3] / "docs" / "tokens.md"

ISSUER = "https://login.example.org"
NOW = 1_800_000_000
SETTINGS = Issuer(issuer=ISSUER, audience=AUDIENCE, tenant="acme")
BY_CLAIM = Issuer(issuer=ISSUER, audience=AUDIENCE, tenant_claim="org")
KEYS = {"keys": [public(rsa_key()), public(ec_key())]}


def claims(**more: Any) -> dict[str, Any]:
    return claims_of(ISSUER, **{"iat": NOW, "exp": NOW + 3600, **more})


def cause(told: Mapping[str, Any], settings: Issuer = SETTINGS) -> Cause:
    with pytest.raises(RefusedError) as caught:
        resolve(told, settings, NOW)
    return caught.value.cause


def tokens(settings: Issuer = SETTINGS, keys: Any = KEYS, now: float = NOW) -> Tokens:
    async def fetch(method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Page:
        if url.endswith("/.well-known/openid-configuration"):
            return Page(200, {}, json.dumps({"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}).encode())
        return Page(200, {}, json.dumps(keys).encode())

    return Tokens([settings], lambda network: fetch, now=lambda: now)


async def refusal(text: str, **more: Any) -> HostError:
    with pytest.raises(HostError) as caught:
        await tokens(**more).bearer(text)
    return caught.value


# --- who it is


def test_a_token_tells_tenant_subject_scopes_issuer_and_lane() -> None:
    alice = resolve(claims(), SETTINGS, NOW)
    assert (alice.tenant, alice.subject_id, alice.issuer, alice.lane) == ("acme", "alice", ISSUER, "oidc")
    assert alice.scopes == {"runs:create", "runs:read"}
    assert alice.subject == {"issuer": ISSUER, "subjectId": "alice", "tenant": "acme", "lane": "oidc", "kind": "user"}


def test_bearers_are_told_apart_in_logs_without_being_named() -> None:
    alice, bob = (resolve(claims(sub=sub), SETTINGS, NOW) for sub in ("alice", "bob"))
    assert alice.key_id != bob.key_id
    assert alice.key_id == resolve(claims(scope="runs:read"), SETTINGS, NOW).key_id
    assert alice.key_id.startswith("oidc:")
    assert "alice" not in alice.key_id


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({}, "user"),
        ({"azp": "app", "client_id": "app"}, "user"),
        ({"sub": "app", "client_id": "app"}, "workload"),
        ({"sub": "app", "azp": "app"}, "workload"),
        ({"sub": None, "uid": "alice"}, "user"),
    ],
)
def test_a_program_on_its_own_account_is_a_workload(more: dict[str, Any], kind: str) -> None:
    settings = SETTINGS.model_copy(update={"subject_claim": "uid" if "uid" in more else "sub"})
    assert resolve(claims(**more), settings, NOW).kind == kind


@pytest.mark.parametrize("sub", [None, "", 7, ["alice"], "a b", "repo:acme/x", "x" * 257, "a\u2028"])
def test_a_subject_that_openwop_cannot_name_is_nobody(sub: Any) -> None:
    assert cause(claims(sub=sub)) is Cause.SUBJECT


def test_the_subject_may_stand_in_another_claim() -> None:
    settings = SETTINGS.model_copy(update={"subject_claim": "https://example.org/id"})
    assert resolve(claims(**{"https://example.org/id": "a-1"}), settings, NOW).subject_id == "a-1"
    assert cause(claims(), settings) is Cause.SUBJECT


def test_a_tenant_of_the_settings_is_not_changed_by_a_claim() -> None:
    for claim in ("tenant", "org", "tid"):
        assert resolve(claims(**{claim: "globex"}), SETTINGS, NOW).tenant == "acme"


def test_a_claim_names_the_tenant_where_the_settings_say_so() -> None:
    assert resolve(claims(org="globex"), BY_CLAIM, NOW).tenant == "globex"


@pytest.mark.parametrize("org", [None, "", "*", "a/b", "anon:acme", "a~b", "a b", "acme\n", "x" * 129, 7, ["acme"]])
def test_what_is_no_tenant_is_nobodys(org: Any) -> None:
    assert cause(claims(org=org), BY_CLAIM) is Cause.TENANT


def test_an_issuer_speaks_for_the_tenants_that_it_is_given() -> None:
    settings = BY_CLAIM.model_copy(update={"tenants": ("acme", "globex")})
    assert resolve(claims(org="globex"), settings, NOW).tenant == "globex"
    assert cause(claims(org="initech"), settings) is Cause.TENANT


@pytest.mark.parametrize(
    ("more", "scopes"),
    [
        ({"scope": "runs:read  runs:create openid"}, {"runs:read", "runs:create"}),
        ({"scope": None, "scp": "runs:read"}, {"runs:read"}),
        ({"scope": None, "scp": ["runs:read", 7, {}]}, {"runs:read"}),
        ({"scope": "runs:read", "scp": ["runs:create"]}, {"runs:read"}),
        ({"scope": ["runs:create"]}, {"runs:create"}),
        ({"scope": None}, set()),
        ({"scope": 7}, set()),
        ({"scope": {"runs:read": True}}, set()),
        ({"scope": ""}, set()),
        ({"scope": "*"}, set()),
        ({"scope": "RUNS:READ runs:*"}, set()),
    ],
)
def test_a_token_may_do_what_it_names_among_openwops_scopes(more: dict[str, Any], scopes: set[str]) -> None:
    assert resolve(claims(**more), SETTINGS, NOW).scopes == scopes


def test_scopes_of_the_settings_bound_what_a_token_may_do() -> None:
    settings = SETTINGS.model_copy(update={"scopes": ("runs:read", "audit:read")})
    assert resolve(claims(scope=" ".join(SCOPES)), settings, NOW).scopes == {"runs:read", "audit:read"}


# --- whether it is good


@pytest.mark.parametrize("aud", [AUDIENCE, [AUDIENCE]])
def test_a_token_is_for_this_host(aud: Any) -> None:
    assert resolve(claims(aud=aud), SETTINGS, NOW)


@pytest.mark.parametrize(
    "aud", [None, "", "other", [], ["other"], [[AUDIENCE]], {AUDIENCE: 1}, f"{AUDIENCE}/", AUDIENCE.upper(), 7]
)
def test_a_token_for_others_is_refused(aud: Any) -> None:
    assert cause(claims(aud=aud)) is Cause.AUDIENCE


def test_a_token_for_several_says_who_it_was_issued_to() -> None:
    both = ["other", AUDIENCE]
    assert resolve(claims(aud=both, azp="app"), SETTINGS, NOW)
    assert resolve(claims(aud=both, client_id="app"), SETTINGS, NOW)
    for azp in (None, "", 7):
        assert cause(claims(aud=both, azp=azp)) is Cause.PARTY


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"exp": None}, Cause.DATES),
        ({"exp": "soon"}, Cause.DATES),
        ({"exp": True}, Cause.DATES),
        ({"exp": float("nan")}, Cause.DATES),
        ({"exp": float("inf")}, Cause.DATES),
        ({"exp": 10**400}, Cause.DATES),
        ({"exp": -1}, Cause.DATES),
        ({"nbf": "now"}, Cause.DATES),
        ({"exp": NOW}, Cause.EXPIRED),
        ({"exp": NOW - 1, "iat": NOW - 60}, Cause.EXPIRED),
        ({"iat": None}, Cause.LIFETIME),
        ({"iat": "now"}, Cause.LIFETIME),
        ({"iat": NOW - 3000, "exp": NOW + 661}, Cause.LIFETIME),
        ({"iat": NOW + 600, "exp": NOW + 3661}, Cause.LIFETIME),
        ({"nbf": NOW + LEEWAY + 1}, Cause.EARLY),
        ({"iat": NOW + LEEWAY + 1}, Cause.EARLY),
    ],
)
def test_a_token_is_refused_outside_its_time(more: dict[str, Any], why: Cause) -> None:
    assert cause(claims(**more)) is why


@pytest.mark.parametrize(
    "more",
    [
        {"exp": NOW + 0.5},
        {"exp": NOW + 1, "iat": NOW - 3659},
        {"iat": NOW + LEEWAY, "nbf": NOW + LEEWAY, "exp": NOW + 3660},
        {"nbf": NOW - 10},
    ],
)
def test_clocks_may_differ_by_a_minute_and_an_end_is_an_end(more: dict[str, Any]) -> None:
    assert resolve(claims(**more), SETTINGS, NOW)


def test_a_token_that_needs_a_proof_or_acts_for_another_is_refused() -> None:
    assert cause(claims(cnf={"jkt": "x"})) is Cause.BOUND
    assert cause(claims(act={"sub": "bob"})) is Cause.DELEGATED


# --- the token as it comes


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"typ": None},
        {"typ": "at+jwt"},
        {"typ": "application/AT+JWT"},
        {"nonce": "of the issuer's own"},
        {"x5c": ["A" * 2000]},
    ],
)
async def test_a_genuine_token_opens(header: dict[str, Any]) -> None:
    for key in (rsa_key(), ec_key()):
        found = await tokens().bearer(signed(claims(), key, **header))
        assert found is not None
        assert found.expires_at == NOW + 3600


@pytest.mark.parametrize(
    "text",
    [
        "key-of-dev-0123456789",
        "",
        "..",
        "a.b.c",
        "a.b",
        token_of({"alg": "RS256"}, claims()) + ".x",
        token_of({"alg": "RS256"}, claims()) + "=",
        token_of([], claims()),
        token_of({"alg": "RS256"}, []),
        token_of({"alg": "RS256"}, claims(iss="https://other.example.org")),
        token_of({"alg": "RS256"}, claims(iss=f"{ISSUER}/")),
        token_of({"alg": "RS256"}, claims(iss=[ISSUER])),
        token_of({"alg": "RS256"}, claims(iss=None)),
        token_of({"alg": "RS256"}, claims(more="x" * MAX_TOKEN)),
        "W1tb".join([""] * 4000) + ".e30.x",
    ],
)
async def test_what_is_no_token_of_an_issuer_is_none_of_its_business(text: str) -> None:
    assert await tokens().bearer(text) is None


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({"typ": "logout+jwt"}, Cause.TYPE),
        ({"typ": 7}, Cause.TYPE),
        ({"crit": ["b64"], "b64": True}, Cause.CRITICAL),
        ({"crit": []}, Cause.CRITICAL),
        ({"alg": "PS256"}, Cause.ALGORITHM),
        ({"kid": "another"}, Cause.KEY),
        ({"kid": "../../etc/passwd"}, Cause.KEY),
        ({"kid": ""}, Cause.KEY),
        ({"kid": ["rsa"]}, Cause.KEY),
        ({"kid": None}, None),
    ],
)
async def test_the_header_decides_nothing_but_which_key_of_the_issuers_it_is(
    header: dict[str, Any], why: Cause | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    unsignable = "crit" in header or not all(isinstance(value, str | None) for value in header.values())
    text = (
        token_of({"alg": "RS256", "kid": "rsa", **header}, claims())
        if unsignable
        else signed(claims(), rsa_key(), **header)
    )
    if why is None:
        assert isinstance(await tokens().bearer(text), Principal)
        return
    refused = await refusal(text)
    assert (refused.code, refused.challenge) == ("unauthenticated", {"error": "invalid_token"})
    assert caplog.messages == [f"issuers.0: a token is refused: {why.value}"]


@pytest.mark.parametrize("algorithm", [None, "none", "None", "NONE", "", 7, ["RS256"], {}, "HS256", "RS384", "EdDSA"])
async def test_an_algorithm_that_the_settings_do_not_name_is_refused(algorithm: Any) -> None:
    for signature in (b"", b"x" * 32):
        header = {"kid": "rsa"} if algorithm is None else {"alg": algorithm, "kid": "rsa"}
        text = token_of(header, claims(), signature or b"x")
        assert (await refusal(text)).code == "unauthenticated"


async def test_a_key_signs_with_algorithms_of_its_type_alone() -> None:
    settings = SETTINGS.model_copy(update={"algorithms": ("RS256", "ES256", "ES384", "PS256")})
    confused = [
        token_of({"alg": "ES256", "kid": "rsa"}, claims(), b"x" * 64),
        token_of({"alg": "RS256", "kid": "ec"}, claims(), b"x" * 256),
        token_of({"alg": "ES384", "kid": "ec"}, claims(), b"x" * 96),
    ]
    for text in confused:
        assert (await refusal(text, settings=settings)).code == "unauthenticated"
    marked = {"keys": [public(rsa_key(), alg="RS256")]}
    other = signed(claims(), rsa_key(), alg="PS256")
    assert isinstance(await tokens(settings).bearer(other), Principal)
    assert (await refusal(other, settings=settings, keys=marked)).code == "unauthenticated"


async def test_a_token_is_checked_with_the_issuers_keys_whatever_keys_it_brings() -> None:
    forger = rsa_key("forger")
    for header in (
        {"kid": "rsa"},
        {"kid": "forger"},
        {"kid": "rsa", "jwk": public(forger)},
        {"kid": "rsa", "jku": "https://evil.example.org/keys", "x5u": "https://evil.example.org/x"},
    ):
        text = signed(claims(), forger, **header)
        assert (await refusal(text)).code == "unauthenticated"


async def test_a_token_that_was_altered_is_refused() -> None:
    head, _, signature = signed(claims(), rsa_key()).split(".")
    body = token_of({}, claims(org="globex", scope="audit:read")).split(".")[1]
    assert (await refusal(f"{head}.{body}.{signature}")).code == "unauthenticated"
    assert (await refusal(f"{head}.{body}.{signature[:-1]}")).code == "unauthenticated"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"aud": "other"}, "audience_mismatch"),
        ({"iat": None}, "credential_lifetime_exceeded"),
        ({"act": {"sub": "bob"}}, "identity_unverified"),
        ({"exp": NOW - 1}, "unauthenticated"),
        ({"sub": None}, "unauthenticated"),
    ],
)
async def test_only_a_genuine_token_is_told_what_openwop_has_a_code_for(more: dict[str, Any], code: str) -> None:
    told = claims(**more)
    genuine = await refusal(signed(told, rsa_key()))
    assert (genuine.code, genuine.status, genuine.challenge) == (code, 401, {"error": "invalid_token"})
    assert (await refusal(signed(told, rsa_key("forger"), kid="rsa"))).code == "unauthenticated"


async def test_no_part_of_a_token_is_told_to_anyone(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    text = signed(claims(sub="a secret/name", org="their-org"), rsa_key())
    refused = await refusal(text)
    told = f"{refused.envelope!r} {refused.headers} {caplog.text}"
    assert not [part for part in (*text.split("."), "secret", "their-org") if part in told]


async def test_a_bearer_waits_for_no_keys_where_its_token_cannot_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IssuerKeys, "find", None)
    assert (await refusal(token_of({"alg": "none"}, claims()))).code == "unauthenticated"


def test_the_settings_that_are_described_are_in_order(tmp_path: Path) -> None:
    page = DOC.read_text(encoding="utf-8")
    file = tmp_path / "s.toml"
    file.write_text(page.split("```toml\n")[1].split("```")[0], encoding="utf-8")
    own, partners = load(str(file), environ={}).issuers
    assert (own.tenant, partners.tenant_claim, partners.tenants) == ("acme", "org", ("globex", "initech"))
    assert str(own.max_lifetime) in page
