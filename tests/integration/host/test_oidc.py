"""Requests with tokens of an identity provider over HTTP: who is let in, and what everybody else is told."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hmac
import json
import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from aiohttp import web
from fastapi import Depends, FastAPI

from host import jwks
from host.app import create_app
from host.authenticators import Authenticators
from host.oidc import Tokens
from host.principals import Principal
from host.protected_resource import ProtectedResource
from host.routes import resource_metadata
from host.surface import Surface
from host.web import caller
from openwop_mcp.config import Host as HostSettings
from openwop_mcp.config import Issuer, Key, Settings
from tests.support import hosts
from tests.support.patience import PATIENCE
from tests.support.token_issuer import TokenIssuer, claims_of, ec_key, public, rsa_key, signed, token_of

SECRET = "key-of-dev-0123456789"
KEY = Key.model_validate({"id": "dev", "secret": {"env": "DEV"}, "tenant": "acme", "subject": "dev", "scopes": ["*"]})
METADATA = "https://openwop.example.org/.well-known/oauth-protected-resource"


class Caller:
    """A client of a host with these issuers."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def get(self, path: str, credential: str | None = None) -> httpx.Response:
        return await self._client.get(path, headers={} if credential is None else {"Authorization": credential})

    async def status(self, token: str) -> int:
        return (await self.get("/runs", f"Bearer {token}")).status_code


@contextlib.asynccontextmanager
async def host(*issuers: Issuer) -> AsyncIterator[Caller]:
    settings = Settings(host=HostSettings(url="https://openwop.example.org"), keys=(KEY,), issuers=issuers)
    async with Authenticators.open(settings, {"DEV": SECRET}) as authenticators:
        app = FastAPI()

        @app.get("/runs")
        async def runs(principal: Principal = Depends(caller(authenticators, "runs:read"))) -> dict[str, Any]:  # noqa: B008, FAST002 - made here
            return principal.subject

        @app.get("/cancel", dependencies=[Depends(caller(authenticators, "runs:read", "runs:cancel"))])
        async def cancel() -> None:
            """Needs two scopes."""

        known: Any = SimpleNamespace(settings=settings)
        app.include_router(resource_metadata.routes(known))
        app.add_middleware(Surface, beside=(), stopping=asyncio.Event(), resource=ProtectedResource.of(settings))
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="https://openwop.example.org"
        ) as client:
            yield Caller(client)


@pytest.fixture
async def issuer() -> AsyncIterator[TokenIssuer]:
    async with TokenIssuer(rsa_key(), ec_key()) as running:
        yield running


# --- who is let in


async def test_a_token_of_an_issuer_opens_beside_keys(issuer: TokenIssuer) -> None:
    async with host(issuer.settings()) as caller_:
        answer = await caller_.get("/runs", f"Bearer {issuer.token()}")
        assert answer.json() == {
            "issuer": issuer.issuer,
            "subjectId": "alice",
            "tenant": "acme",
            "lane": "oidc",
            "kind": "user",
        }
        assert await caller_.status(issuer.token(ec_key(), {"typ": "at+jwt"})) == 200
        assert (await caller_.get("/runs", f"Bearer {SECRET}")).json()["lane"] == "api-key"
    assert issuer.paths == ["/.well-known/openid-configuration", "/keys"]


async def test_keys_may_be_at_a_place_that_the_settings_name(issuer: TokenIssuer) -> None:
    async with host(issuer.settings(jwks_uri=f"{issuer.origin}/keys")) as caller_:
        assert await caller_.status(issuer.token()) == 200
    assert issuer.paths == ["/keys"]


async def test_two_issuers_vouch_for_their_own_alone() -> None:
    async with TokenIssuer(rsa_key("one"), path="/one") as one, TokenIssuer(rsa_key("two"), path="/two") as two:
        both = (one.settings(tenant="acme"), two.settings(tenant="globex"))
        async with host(*both) as caller_:
            for provider, tenant in ((one, "acme"), (two, "globex")):
                answer = await caller_.get("/runs", f"Bearer {provider.token()}")
                assert (answer.json()["issuer"], answer.json()["tenant"]) == (provider.issuer, tenant)
            assert await caller_.status(signed(claims_of(one.issuer), rsa_key("two"))) == 401
            assert await caller_.status(signed(claims_of(one.issuer), rsa_key("two"), kid="one")) == 401


async def test_a_rotated_key_is_found_and_the_old_one_no_longer_taken(
    issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jwks, "MIN_FRESH", 0)
    issuer.headers = {"Cache-Control": "max-age=0"}
    async with host(issuer.settings()) as caller_:
        assert await caller_.status(issuer.token()) == 200
        old = issuer.token()
        issuer.keys = [rsa_key("next")]
        assert await caller_.status(issuer.token()) == 200
        assert await caller_.status(old) == 401


async def test_a_scope_of_the_token_is_needed_and_the_challenge_names_all_that_are(issuer: TokenIssuer) -> None:
    async with host(issuer.settings(scopes=("runs:read",))) as caller_:
        answer = await caller_.get("/cancel", f"Bearer {issuer.token(scope='runs:read runs:cancel')}")
        assert (answer.status_code, answer.json()["error"]) == (403, "forbidden")
        assert answer.headers["WWW-Authenticate"] == (
            'Bearer realm="openwop", error="insufficient_scope", scope="runs:read runs:cancel", '
            f'resource_metadata="{METADATA}"'
        )


# --- who is not


def by_secret(claims: dict[str, Any], secret: bytes) -> str:
    head, body, _ = token_of({"alg": "HS256", "kid": "rsa", "typ": "JWT"}, claims).split(".")
    mac = hmac.digest(secret, f"{head}.{body}".encode(), "sha256")
    return f"{head}.{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def forged(issuer: TokenIssuer) -> dict[str, str]:
    """Tokens that are not good, by what is wrong with them, and that nobody is told what."""
    told = claims_of(issuer.issuer)
    now = told["iat"]
    return {
        "expired": issuer.token(iat=now - 3600, exp=now - 1),
        "not yet": issuer.token(nbf=now + 600),
        "no algorithm": token_of({"alg": "none", "typ": "JWT"}, told, b"")[:-1] + ".",
        "no algorithm, signed": token_of({"alg": "none", "kid": "rsa"}, told),
        "public key as a secret": by_secret(told, rsa_key().as_pem(private=False)),
        "listed key as a secret": by_secret(told, json.dumps(public(rsa_key())).encode()),
        "a key of its own": issuer.token(rsa_key("forger"), {"jwk": public(rsa_key("forger"))}),
        "a key of its own by a known name": issuer.token(rsa_key("forger"), {"kid": "rsa"}),
        "a key somewhere else": issuer.token(rsa_key("forger"), {"jku": f"{issuer.origin}/forged"}),
        "a name that leads elsewhere": issuer.token(header={"kid": "../keys"}),
        "a name with a query": issuer.token(header={"kid": "x' OR '1'='1"}),
        "a condition": token_of({"alg": "RS256", "kid": "rsa", "crit": ["exp"], "exp": 1}, told),
        "of another type": issuer.token(header={"typ": "logout+jwt"}),
        "of another issuer": signed(claims_of("https://other.example.org"), rsa_key()),
        "of almost this issuer": signed(claims_of(f"{issuer.issuer}/"), rsa_key()),
        "with a proof": issuer.token(cnf={"jkt": "x"}),
        "of nobody": issuer.token(sub=None),
        "of a foreign tenant": issuer.token(org="globex"),
        "of no tenant": issuer.token(org=None),
        "of all tenants": issuer.token(org="*"),
        "of a tenant with a path": issuer.token(org="acme/../globex"),
        "too long": issuer.token(more="x" * 16 * 1024),
        "garbage": "not-a-real-credential",
    }


async def test_whatever_is_wrong_the_answer_is_the_same_to_the_byte(
    issuer: TokenIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with host(issuer.settings(tenant=None, tenant_claim="org", tenants=("acme",))) as caller_:
        assert await caller_.status(issuer.token()) == 200
        answers = {name: await caller_.get("/runs", f"Bearer {token}") for name, token in forged(issuer).items()}
        nothing = await caller_.get("/runs")
    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(answers, 401)
    assert {answer.content for answer in answers.values()} == {nothing.content}
    heads = {json.dumps(sorted(answer.headers.items())) for answer in answers.values()}
    assert len(heads) == 1
    assert nothing.headers["WWW-Authenticate"] == f'Bearer realm="openwop", resource_metadata="{METADATA}"'
    assert answers["expired"].headers["WWW-Authenticate"] == (
        f'Bearer realm="openwop", error="invalid_token", resource_metadata="{METADATA}"'
    )
    ours = "".join(record.getMessage() for record in caplog.records if record.name.startswith("openwop_mcp"))
    assert not [word for word in ("eyJ", "alice", "globex", "Bearer", SECRET) if word in ours]
    assert "/forged" not in issuer.paths


@pytest.mark.parametrize(
    ("claims", "code"),
    [
        ({"aud": "https://other.example.org"}, "audience_mismatch"),
        ({"iat": None}, "credential_lifetime_exceeded"),
        ({"exp": 4_000_000_000}, "credential_lifetime_exceeded"),
    ],
)
async def test_a_genuine_token_that_is_not_for_here_is_told_so(
    issuer: TokenIssuer, claims: dict[str, Any], code: str
) -> None:
    async with host(issuer.settings()) as caller_:
        answer = await caller_.get("/runs", f"Bearer {issuer.token(**claims)}")
        assert (answer.status_code, answer.json()["error"]) == (401, code)
        assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]


# --- an issuer that fails


async def test_a_dead_issuer_lets_nobody_in_and_stops_no_key(
    issuer: TokenIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    dead = issuer.settings(issuer="http://127.0.0.1:9")
    async with host(dead) as caller_:
        answer = await caller_.get("/runs", f"Bearer {signed(claims_of(dead.issuer), rsa_key())}")
        assert (answer.status_code, answer.json()["error"]) == (401, "unauthenticated")
        assert (await caller_.get("/runs", f"Bearer {SECRET}")).status_code == 200
    assert [message for message in caplog.messages if message.startswith("issuers.0: its keys cannot be had")]


async def test_a_slow_issuer_holds_up_its_own_bearers_alone_and_not_for_long(
    issuer: TokenIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As long as a slow machine takes until the issuer has been asked.
    monkeypatch.setattr(jwks, "PATIENCE", 3)
    issuer.hold = asyncio.Event()
    async with host(issuer.settings()) as caller_, asyncio.timeout(PATIENCE):
        waiting = asyncio.create_task(caller_.status(issuer.token()))
        await issuer.asked.wait()
        assert (await caller_.get("/runs", f"Bearer {SECRET}")).status_code == 200
        assert await waiting == 401
    issuer.hold.set()


async def test_no_request_outlives_the_host(issuer: TokenIssuer) -> None:
    issuer.hold = asyncio.Event()
    async with Tokens.open([issuer.settings()]) as tokens:
        waiting = asyncio.create_task(tokens.bearer(issuer.token()))
        await issuer.asked.wait()
        flight = tokens._issuers[issuer.issuer].keys._flight
        waiting.cancel()
    issuer.hold.set()
    assert flight is not None
    assert flight.cancelled()


async def test_many_bearers_at_once_ask_for_keys_once(issuer: TokenIssuer) -> None:
    async with host(issuer.settings()) as caller_:
        assert await asyncio.gather(*(caller_.status(issuer.token()) for _ in range(50))) == [200] * 50
    assert issuer.paths == ["/.well-known/openid-configuration", "/keys"]


@pytest.mark.parametrize(
    "answer",
    [
        lambda: web.json_response({"keys": [{"kty": "RSA", "n": "x" * 2 * 1024**2}]}),
        lambda: web.Response(body=b'{"keys":' + b"[" * 900_000),
        lambda: web.Response(text="<html>"),
        lambda: web.Response(status=500),
        lambda: web.Response(status=302, headers={"Location": "http://127.0.0.1:9/keys"}),
    ],
    ids=["huge", "deep", "page", "fault", "redirect"],
)
async def test_what_is_no_set_of_keys_lets_nobody_in(issuer: TokenIssuer, answer: Any) -> None:
    issuer.answers["/keys"] = answer
    async with host(issuer.settings()) as caller_:
        assert await caller_.status(issuer.token()) == 401


async def test_metadata_of_another_issuer_lets_nobody_in(issuer: TokenIssuer) -> None:
    issuer.metadata = {"issuer": "https://other.example.org"}
    async with host(issuer.settings()) as caller_:
        assert await caller_.status(issuer.token()) == 401
    assert "/keys" not in issuer.paths


async def test_keys_are_not_asked_for_where_the_network_policy_forbids(
    issuer: TokenIssuer, caplog: pytest.LogCaptureFixture
) -> None:
    # A name with https, so that the settings are in order, and an address that is not.
    told = issuer.settings(issuer=issuer.issuer.replace("http://127.0.0.1", "https://localhost"), network="public")
    async with host(told) as caller_:
        assert await caller_.status(signed(claims_of(told.issuer), rsa_key())) == 401
    assert not issuer.paths
    assert "loopback" in caplog.text


# --- the metadata of the host


async def test_anyone_can_learn_whose_tokens_are_taken(issuer: TokenIssuer) -> None:
    async with host(issuer.settings(scopes=("runs:read",))) as caller_:
        answer = await caller_.get("/.well-known/oauth-protected-resource")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json() == {
        "resource": "https://openwop.example.org",
        "authorization_servers": [issuer.issuer],
        "scopes_supported": ["runs:read"],
        "bearer_methods_supported": ["header"],
    }


async def test_the_application_tells_of_its_issuers_wherever_it_is_looked_for(issuer: TokenIssuer) -> None:
    settings = {"host": {"url": "https://h.example/api"}, "issuers": [issuer.settings(max_lifetime=600).model_dump()]}
    where = "/.well-known/oauth-protected-resource/api"
    async with hosts.asked(create_app(hosts.host(settings))) as client:
        lanes = (await client.get("/.well-known/openwop")).json()["auth"]["lanes"]
        assert [lane["lane"] for lane in lanes] == ["api-key", "oidc"]
        assert (lanes[1]["issuers"], lanes[1]["revocationWindowSeconds"]) == ([issuer.issuer], 600)
        assert (await client.get(where)).json()["resource"] == "https://h.example/api"
        challenge = (await client.get("/workflows/any")).headers["WWW-Authenticate"]
        assert f'resource_metadata="https://h.example{where}"' in challenge


async def test_a_host_that_takes_keys_alone_points_nowhere() -> None:
    async with host() as caller_:
        assert (await caller_.get("/runs")).headers["WWW-Authenticate"] == 'Bearer realm="openwop"'
        assert (await caller_.get("/.well-known/oauth-protected-resource")).status_code == 404
