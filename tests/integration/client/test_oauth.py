"""Authorization against a real authorization server and a real protected server, each grant and each refusal."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import stat
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from joserfc import jwk, jwt

from openwop_mcp.client.auth import CAUSES, OAuthAuthorizer, TokenStore, _authorizer, login
from openwop_mcp.client.auth._authorizer import store_key
from openwop_mcp.client.auth._machine import Machine
from openwop_mcp.client.auth._store import Record, StoreKey
from openwop_mcp.config import OAuth
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import AuthorizationError, InvalidRequestError
from tests.support.auth_server import AuthServer, ProtectedServer, call, fetching, visitor
from tests.support.patience import PATIENCE

REDIRECT = "http://127.0.0.1:1/callback"
KEY = {"env": "SECRET"}
SECRET = "s3cret:with/odd+signs &=%"


class Bench:
    """An authorization server, a protected server, and authorizers between them."""

    def __init__(self, auth: AuthServer, server: ProtectedServer, fetch: Any, folder: Path) -> None:
        self.auth = auth
        self.server = server
        self.fetch = fetch
        self.folder = folder
        self.store = TokenStore(folder)
        self.secrets: list[str] = []
        self.now = 1_000_000.0
        self.environ = {"SECRET": SECRET}
        self.visits: list[str] = []
        self.made: list[OAuthAuthorizer] = []

    def authorizer(self, *, person: bool = False, **oauth: Any) -> OAuthAuthorizer:
        settings = OAuth.model_validate(oauth)

        async def visit(url: str) -> str:
            self.visits.append(url)
            return str(await visitor(self.fetch)(url))

        made = OAuthAuthorizer(
            server_id="weather",
            url=self.server.url,
            oauth=settings,
            environ=self.environ,
            fetch=self.fetch,
            store=self.store,
            on_secret=self.secrets.append,
            visit=visit if person else None,
            redirect_uri=REDIRECT if person else None,
            clock=lambda: self.now,
        )
        self.made.append(made)
        return made

    def machine(self, **more: Any) -> OAuthAuthorizer:
        self.auth.clients["pack"] = SECRET
        return self.authorizer(grant="client_credentials", client_id="pack", client_secret={"env": "SECRET"}, **more)

    async def call(self, authorizer: OAuthAuthorizer, operation: str = "") -> int:
        return await call(authorizer, self.fetch, f"{self.server.url}?op={operation}")

    async def failure(self, authorizer: OAuthAuthorizer, operation: str = "") -> AuthorizationError:
        with pytest.raises(AuthorizationError) as caught:
            await self.call(authorizer, operation)
        error = caught.value
        assert error.cause in CAUSES
        assert error.facts["authorization"] == error.cause
        told = f"{error} {error!r} {error.facts}"
        assert not [secret for secret in self.secrets if secret in told]
        return error

    def scopes(self) -> list[str | None]:
        return [form.get("scope") for form, _ in self.auth.token_requests]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with AuthServer() as auth, ProtectedServer(auth) as server, fetching() as fetch:
        made = Bench(auth, server, fetch, tmp_path / "state" / "tokens")
        yield made
        for authorizer in made.made:
            await authorizer.close()


def record(bench: Bench, **oauth: Any) -> Record:
    settings = OAuth.model_validate({"grant": "authorization_code", **oauth})
    return bench.store.read(store_key("weather", bench.server.url, settings))


# --- machines


async def test_client_credentials_are_sent_as_basic_with_the_resource(bench: Bench) -> None:
    authorizer = bench.machine()
    assert await bench.call(authorizer) == 200
    (form, headers), *more = bench.auth.token_requests
    assert not more
    assert form == {"grant_type": "client_credentials", "resource": bench.server.url}
    assert headers["Authorization"].startswith("Basic ")
    assert bench.server.authorizations[0] is None
    assert bench.server.authorizations[1] in {f"Bearer {secret}" for secret in bench.secrets}
    assert SECRET in bench.secrets


async def test_client_credentials_are_sent_in_the_body_where_nothing_else_is_taken(bench: Bench) -> None:
    bench.auth.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    assert await bench.call(bench.machine()) == 200
    form, headers = bench.auth.token_requests[0]
    assert (form["client_id"], form["client_secret"]) == ("pack", SECRET)
    assert "Authorization" not in headers


async def test_a_configured_method_goes_first(bench: Bench) -> None:
    assert await bench.call(bench.machine(token_auth="client_secret_post")) == 200
    assert bench.auth.token_requests[0][0]["client_secret"] == SECRET


KEYS: dict[str, Callable[[], Any]] = {
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


@pytest.mark.filterwarnings("ignore:EdDSA is deprecated")
@pytest.mark.parametrize("algorithm", KEYS)
async def test_a_private_key_signs_an_assertion_for_the_issuer(bench: Bench, tmp_path: Path, algorithm: str) -> None:
    key = KEYS[algorithm]()
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    file = tmp_path / "key.pem"
    file.write_text(pem)
    bench.auth.clients["pack"] = None
    authorizer = bench.authorizer(grant="client_credentials", client_id="pack", private_key={"file": str(file)})
    assert await bench.call(authorizer) == 200
    form, _ = bench.auth.token_requests[0]
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    kind = {"E": "EC", "R": "RSA"}[algorithm[0]] if algorithm != "EdDSA" else "OKP"
    token = jwt.decode(form["client_assertion"], jwk.import_key(public, kind), algorithms=[algorithm])  # type: ignore[arg-type]
    assert token.header["alg"] == algorithm
    assert (token.claims["iss"], token.claims["sub"], token.claims["aud"]) == ("pack", "pack", bench.auth.issuer)
    assert token.claims["exp"] - token.claims["iat"] <= 300
    assert token.claims["jti"]
    assert pem not in str(bench.auth.token_requests)


async def test_a_private_key_that_is_none_says_what_to_give(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    file.write_text("-----BEGIN NONSENSE-----")
    authorizer = bench.authorizer(grant="client_credentials", client_id="pack", private_key={"file": str(file)})
    error = await bench.failure(authorizer)
    assert error.cause == "credential"
    assert not error.retryable
    assert "NONSENSE" not in str(error)


async def test_an_assertion_is_read_anew_for_each_token_and_never_tried_twice(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "jwt"
    file.write_text("first.assertion.1")
    authorizer = bench.authorizer(grant="jwt_bearer", assertion={"file": str(file)}, client_id="workload")
    assert await bench.call(authorizer) == 200
    form, headers = bench.auth.token_requests[0]
    assert form == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": "first.assertion.1",
        "client_id": "workload",
        "resource": bench.server.url,
    }
    assert "Authorization" not in headers
    file.write_text("second.assertion.2")
    bench.auth.revoke()
    bench.auth.answer_token = lambda _: web.json_response(
        {"error": "invalid_grant", "error_description": "bad second.assertion.2"}, status=400
    )
    error = await bench.failure(authorizer)
    assert (error.cause, error.facts["oauthError"], error.retryable) == ("refused", "invalid_grant", False)
    assert [form["assertion"] for form, _ in bench.auth.token_requests] == ["first.assertion.1", "second.assertion.2"]
    file.unlink()
    assert (await bench.failure(authorizer)).cause == "credential"


async def test_a_token_is_fetched_once_for_all_and_again_before_it_ends(bench: Bench) -> None:
    authorizer = bench.machine()
    for _ in range(3):
        assert await bench.call(authorizer) == 200
    assert len(bench.auth.token_requests) == 1
    bench.now += 3580
    assert await bench.call(authorizer) == 200
    assert len(bench.auth.token_requests) == 2
    assert len(bench.server.authorizations) == 5


async def test_a_token_that_is_still_good_outlives_an_outage_of_its_issuer(bench: Bench) -> None:
    authorizer = bench.machine()
    assert await bench.call(authorizer) == 200
    bench.auth.answer_token = lambda _: web.Response(status=503)
    bench.now += 3580
    assert await bench.call(authorizer) == 200
    bench.now += 30
    error = await bench.failure(authorizer)
    assert (error.cause, error.retryable, error.delivery) == ("unreachable", True, Delivery.NOT_SENT)


async def test_two_calls_that_are_refused_at_once_cost_one_token_request(bench: Bench) -> None:
    authorizer = bench.machine()
    await bench.call(authorizer)
    context = authorizer.context
    bench.auth.revoke()
    bench.auth.token_requests.clear()
    sent = await authorizer.header()
    assert sent is not None
    bench.auth.hold = asyncio.Event()
    bench.auth.asked.clear()
    calls = [asyncio.create_task(authorizer.refused(401, [], sent[1])) for _ in range(20)]
    await asyncio.wait_for(bench.auth.asked.wait(), PATIENCE)
    bench.auth.hold.set()
    assert await asyncio.gather(*calls) == [True] * 20
    assert len(bench.auth.token_requests) == 1
    assert await authorizer.refused(401, [], sent[1]), "a token that is not in use any more is tried again as another"
    assert len(bench.auth.token_requests) == 1
    assert authorizer.context == context


async def test_calls_that_wait_for_one_token_share_its_failure(bench: Bench) -> None:
    authorizer = bench.machine()
    await authorizer.header()
    bench.auth.hold = asyncio.Event()
    bench.auth.answer_token = lambda _: web.Response(status=500)
    calls = [asyncio.create_task(authorizer.refused(401, [], None)) for _ in range(5)]
    await asyncio.wait_for(bench.auth.asked.wait(), PATIENCE)
    bench.auth.hold.set()
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert len(bench.auth.token_requests) == 1
    assert {type(error) for error in errors} == {AuthorizationError}
    assert {error.delivery for error in errors if isinstance(error, AuthorizationError)} == {Delivery.NOT_PROCESSED}


async def test_a_caller_who_gives_up_takes_the_token_from_nobody(bench: Bench) -> None:
    authorizer = bench.machine()
    await authorizer.header()
    bench.auth.hold = asyncio.Event()
    first = asyncio.create_task(authorizer.refused(401, [], None))
    await asyncio.wait_for(bench.auth.asked.wait(), PATIENCE)
    second = asyncio.create_task(authorizer.refused(401, [], None))
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    bench.auth.hold.set()
    assert await asyncio.wait_for(second, PATIENCE)
    assert len(bench.auth.token_requests) == 1


async def test_a_server_that_refuses_new_tokens_is_not_asked_for_ever(bench: Bench) -> None:
    bench.server.broken = True
    error = await bench.failure(bench.machine())
    assert (error.cause, error.retryable, error.delivery) == ("token_refused", False, Delivery.NOT_PROCESSED)
    assert len(bench.auth.token_requests) == 1


async def test_a_server_that_forgets_each_token_after_one_use_is_served(bench: Bench) -> None:
    authorizer = bench.machine()
    for _ in range(5):
        assert await bench.call(authorizer) == 200
        bench.auth.revoke()
    assert len(bench.auth.token_requests) == 5


async def test_a_server_that_lets_strangers_in_gets_a_token_from_the_second_request_on(bench: Bench) -> None:
    bench.server.open = True
    authorizer = bench.machine()
    assert [await bench.call(authorizer) for _ in range(3)] == [200] * 3
    first, *later = bench.server.authorizations
    assert first is None
    assert all(later)
    assert len(bench.auth.token_requests) == 1


async def test_a_server_without_metadata_that_lets_strangers_in_is_asked_no_more(bench: Bench) -> None:
    bench.server.open = True
    bench.server.metadata_path = None
    authorizer = bench.machine()
    assert [await bench.call(authorizer) for _ in range(3)] == [200] * 3
    assert bench.server.authorizations == [None] * 3
    assert len([path for path in bench.server.paths if "well-known" in path]) == 2


async def test_a_403_for_another_reason_is_no_matter_of_tokens(bench: Bench) -> None:
    authorizer = bench.machine()
    await bench.call(authorizer)
    sent = await authorizer.header()
    assert sent is not None
    assert not await authorizer.refused(403, ['Bearer error="access_denied"'], sent[1])
    assert not await authorizer.refused(403, [], sent[1])
    assert not await authorizer.refused(404, [], sent[1])
    assert len(bench.auth.token_requests) == 1


# --- scopes


async def test_the_scope_of_the_challenge_goes_before_what_is_supported(bench: Bench) -> None:
    bench.server.challenge_scope = "basic"
    bench.server.metadata["scopes_supported"] = ["basic", "admin"]
    await bench.call(bench.machine())
    assert bench.scopes() == ["basic"]


async def test_supported_scopes_are_asked_for_where_the_challenge_names_none(bench: Bench) -> None:
    bench.server.metadata["scopes_supported"] = ["read", "write"]
    await bench.call(bench.machine())
    assert bench.scopes() == ["read write"]


async def test_a_step_up_asks_for_all_that_was_asked_for_and_more(bench: Bench) -> None:
    bench.server.challenge_scope = "basic"
    bench.server.needed = {"write": ["write"], "admin": ["admin"]}
    authorizer = bench.machine()
    assert await bench.call(authorizer) == 200
    before = authorizer.context
    assert await bench.call(authorizer, "write") == 200
    assert authorizer.context != before
    assert await bench.call(authorizer, "admin") == 200
    assert bench.scopes() == ["basic", "basic write", "basic write admin"]
    bench.auth.revoke()
    assert await bench.call(authorizer) == 200
    assert bench.scopes()[-1] == "basic write admin"


async def test_a_step_up_that_was_asked_for_in_vain_is_not_asked_for_again(bench: Bench) -> None:
    bench.server.challenge_scope = "basic"
    bench.server.needed = {"admin": ["admin"]}
    bench.auth.granted = lambda _: ("basic",)
    error = await bench.failure(bench.machine(), "admin")
    assert (error.cause, error.retryable) == ("insufficient_scope", False)
    assert "admin" in str(error)
    assert bench.scopes() == ["basic", "basic admin"]


async def test_scopes_of_the_settings_are_a_bound_that_no_server_widens(bench: Bench) -> None:
    bench.server.challenge_scope = "everything"
    bench.server.needed = {"admin": ["admin"]}
    authorizer = bench.machine(scope="read")
    assert await bench.call(authorizer) == 200
    error = await bench.failure(authorizer, "admin")
    assert error.cause == "insufficient_scope"
    assert "oauth.scope" in str(error)
    assert bench.scopes() == ["read"]


async def test_a_server_that_always_wants_something_else_is_stopped(bench: Bench) -> None:
    authorizer = bench.machine()
    await bench.call(authorizer)

    async def ask_for(scope: str) -> None:
        sent = await authorizer.header()
        assert sent is not None
        assert await authorizer.refused(403, [f'Bearer error="insufficient_scope", scope="{scope}"'], sent[1])

    for number in range(10):
        await ask_for(f"s{number}")
    with pytest.raises(AuthorizationError) as caught:
        await ask_for("another")
    assert caught.value.cause == "insufficient_scope"
    assert len(bench.auth.token_requests) == 11


# --- discovery


@pytest.mark.parametrize(
    ("prefix", "well_known"),
    [
        ("", "/.well-known/oauth-authorization-server"),
        ("", "/.well-known/openid-configuration"),
        ("/tenant1", "/.well-known/oauth-authorization-server/tenant1"),
        ("/tenant1", "/.well-known/openid-configuration/tenant1"),
        ("/tenant1", "/tenant1/.well-known/openid-configuration"),
    ],
)
async def test_metadata_is_found_in_each_of_its_places(
    bench: Bench, tmp_path: Path, prefix: str, well_known: str
) -> None:
    async with AuthServer(prefix, well_known) as auth:
        bench.auth = auth
        bench.server.issuers = [auth]
        assert await bench.call(bench.machine()) == 200


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/.well-known/oauth-protected-resource/mcp", False),
        ("/.well-known/oauth-protected-resource", False),
        ("/custom/place.json", True),
    ],
)
async def test_the_servers_metadata_is_found_in_each_of_its_places(bench: Bench, path: str, named: bool) -> None:
    bench.server.metadata_path = path
    bench.server.named = named
    assert await bench.call(bench.machine()) == 200
    root = "/.well-known/oauth-protected-resource"
    assert (root in bench.server.paths) == (path == root)


@pytest.mark.parametrize("resource", ["{origin}", "{origin}/", "{origin}/mcp", "{origin}/mcp/"])
async def test_the_resource_is_sent_as_it_is_published(bench: Bench, resource: str) -> None:
    bench.server.metadata["resource"] = resource.format(origin=bench.server.origin)
    assert await bench.call(bench.machine()) == 200
    assert bench.auth.token_requests[0][0]["resource"] == bench.server.metadata["resource"]


@pytest.mark.parametrize("resource", ["https://evil.example.com/mcp", "{origin}/other", "{origin}/mc", 7, None])
async def test_metadata_of_another_server_is_refused(bench: Bench, resource: Any) -> None:
    other = resource.format(origin=bench.server.origin) if isinstance(resource, str) else resource
    bench.server.metadata["resource"] = other
    error = await bench.failure(bench.machine())
    assert error.cause == "resource_mismatch"
    assert bench.auth.paths == []


@pytest.mark.parametrize("issuer", ["https://attacker.example.com", "{issuer}/", None, 1])
async def test_metadata_of_another_issuer_is_refused(bench: Bench, issuer: Any) -> None:
    bench.auth.metadata["issuer"] = issuer.format(issuer=bench.auth.issuer) if isinstance(issuer, str) else issuer
    error = await bench.failure(bench.machine())
    assert error.cause == "issuer_mismatch"
    assert not bench.auth.token_requests


async def test_an_outage_of_the_metadata_is_not_its_absence(bench: Bench) -> None:
    bench.server.metadata_status = 503
    error = await bench.failure(bench.machine())
    assert (error.cause, error.retryable) == ("unreachable", True)
    assert not [path for path in bench.server.paths if "authorization-server" in path]


@pytest.mark.parametrize("url", ["http://auth.example.com/token", "ftp://127.0.0.1/", "javascript:alert(1)", 3])
async def test_secrets_go_to_https_or_this_machine_only(bench: Bench, url: Any) -> None:
    bench.auth.metadata["token_endpoint"] = url
    error = await bench.failure(bench.machine())
    assert error.cause == "unsafe_url"


async def test_a_secret_of_one_authorization_server_is_not_shown_to_another(bench: Bench) -> None:
    authorizer = bench.machine()
    assert await bench.call(authorizer) == 200
    async with AuthServer() as other:
        bench.server.issuers = [other]
        error = await bench.failure(authorizer)
        assert error.cause == "issuer_mismatch"
        assert not other.token_requests


async def test_a_worker_that_starts_again_shows_a_secret_to_the_authorization_server_of_before_alone(
    bench: Bench,
) -> None:
    assert await bench.call(bench.machine()) == 200
    kept = await asyncio.to_thread(record, bench, grant="client_credentials", client_id="pack", client_secret=KEY)
    assert kept.issuer == bench.auth.issuer
    async with AuthServer() as other:
        other.clients["pack"] = SECRET
        bench.server.issuers = [other]
        error = await bench.failure(bench.machine())
        assert error.cause == "issuer_mismatch"
        assert not other.token_requests
        # The operator's word goes before what was found.
        assert await bench.call(bench.machine(issuer=other.issuer)) == 200


async def test_of_two_workers_that_begin_at_once_with_different_authorization_servers_one_sends_no_secret(
    bench: Bench,
) -> None:
    first, second = bench.machine(), bench.machine()
    async with AuthServer() as other:
        other.clients["pack"] = SECRET
        asked, real = asyncio.Event(), bench.store.read

        async def look(*_: object) -> int:
            asked.set()
            return await bench.call(first)

        def read(key: StoreKey) -> Record:
            return Record(key) if not asked.is_set() else real(key)

        # The second has looked before the first has kept anything.
        bench.store.read = read  # type: ignore[method-assign]
        bench.server.issuers = [other]
        held = second._source
        assert isinstance(held, Machine)
        assert await held._discovery.look() is not None
        bench.server.issuers = [bench.auth]
        assert await look() == 200
        bench.server.issuers = [other]
        error = await bench.failure(second)
        assert error.cause == "issuer_mismatch"
        assert not other.token_requests


async def test_a_secret_is_not_shown_where_it_cannot_be_kept_to_whom(bench: Bench) -> None:
    bench.folder.parent.parent.mkdir(exist_ok=True)
    bench.folder.parent.write_text("no folder")
    error = await bench.failure(bench.machine())
    assert error.cause == "store"
    assert 'write issuer = "https://..."' in error.message
    assert not bench.auth.token_requests
    assert await bench.call(bench.machine(issuer=bench.auth.issuer)) == 200


async def test_a_mismatch_shows_no_path_of_the_server(bench: Bench) -> None:
    bench.server.path = "/s3cret-path"
    bench.server.metadata_path = "/.well-known/oauth-protected-resource/s3cret-path"
    for resource in ("https://user:w0rd@evil.example/mcp", f"{bench.server.origin}/s3cret-path/more"):
        bench.server.metadata["resource"] = resource
        error = await bench.failure(bench.machine())
        assert error.cause == "resource_mismatch"
        assert bench.server.origin in error.message
        assert "s3cret" not in error.message
        assert "w0rd" not in error.message
    bench.server.metadata_status = 503
    error = await bench.failure(bench.machine())
    assert error.cause == "unreachable"
    assert "s3cret" not in error.message


async def test_a_refresh_under_way_when_the_worker_stops_is_not_lost(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_authorizer, "LANDING", PATIENCE)
    assert await bench.call(bench.authorizer(person=True, grant="authorization_code")) == 200
    bench.now += 3600
    worker = bench.authorizer(grant="authorization_code")
    bench.auth.hold = asyncio.Event()
    bench.auth.asked.clear()
    caller = asyncio.create_task(worker.header())
    await asyncio.wait_for(bench.auth.asked.wait(), PATIENCE)
    closing = asyncio.create_task(worker.close())
    caller.cancel()
    await asyncio.wait({caller})
    assert not closing.done()
    bench.auth.hold.set()
    await asyncio.wait_for(closing, PATIENCE)
    assert await bench.call(bench.authorizer(grant="authorization_code")) == 200


async def test_a_worker_that_stops_does_not_wait_for_ever_for_a_token(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_authorizer, "LANDING", 0.01)
    worker = bench.machine()
    bench.auth.hold = asyncio.Event()
    caller = asyncio.create_task(bench.call(worker))
    await asyncio.wait_for(bench.auth.asked.wait(), PATIENCE)
    await asyncio.wait_for(worker.close(), PATIENCE)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    bench.auth.hold.set()


async def test_only_the_issuer_of_the_settings_is_asked(bench: Bench) -> None:
    error = await bench.failure(bench.machine(issuer="https://auth.example.com"))
    assert error.cause == "issuer_mismatch"
    assert bench.auth.paths == []


async def test_the_issuer_of_the_settings_stands_in_for_missing_metadata(bench: Bench) -> None:
    bench.server.metadata_path = None
    assert await bench.call(bench.machine(issuer=bench.auth.issuer)) == 200
    assert bench.auth.token_requests[0][0]["resource"] == bench.server.url


async def test_a_machines_secret_is_sent_to_no_guessed_address(bench: Bench) -> None:
    bench.server.metadata_path = None
    error = await bench.failure(bench.machine())
    assert error.cause == "no_metadata"
    assert "/token" not in bench.server.paths


# --- persons


async def test_a_person_logs_in_and_the_worker_goes_on_without_them(bench: Bench) -> None:
    bench.server.challenge_scope = "basic"
    bench.auth.metadata["scopes_supported"] = ["basic", "offline_access"]
    assert await bench.call(bench.authorizer(person=True, grant="authorization_code")) == 200
    (query,) = bench.auth.authorizations
    assert query["scope"] == "basic offline_access"
    assert query["code_challenge_method"] == "S256"
    assert query["resource"] == bench.server.url
    assert bench.auth.token_requests[0][0]["resource"] == bench.server.url
    (registered,) = bench.auth.registrations
    assert registered["application_type"] == "native"
    assert registered["redirect_uris"] == [REDIRECT]
    assert "refresh_token" in registered["grant_types"]
    worker = bench.authorizer(grant="authorization_code")
    assert await bench.call(worker) == 200
    assert None not in bench.server.authorizations[1:]
    bench.now += 3600
    assert await bench.call(worker) == 200
    assert [form["grant_type"] for form, _ in bench.auth.token_requests] == ["authorization_code", "refresh_token"]
    bench.auth.revoke()
    assert await bench.call(worker) == 200
    assert len(bench.auth.token_requests) == 3
    assert len(bench.visits) == 1


async def test_without_a_login_the_worker_says_which_command_to_run(bench: Bench) -> None:
    error = await bench.failure(bench.authorizer(grant="authorization_code"))
    assert (error.cause, error.retryable, error.delivery) == ("login_required", False, Delivery.NOT_SENT)
    assert "worker.py login weather" in str(error)
    assert bench.server.paths == []


async def test_a_refreshed_token_keeps_the_context_and_another_login_changes_it(bench: Bench) -> None:
    await bench.call(bench.authorizer(person=True, grant="authorization_code"))
    worker = bench.authorizer(grant="authorization_code")
    await bench.call(worker)
    context = worker.context
    bench.now += 3600
    await bench.call(worker)
    assert worker.context == context
    await bench.authorizer(person=True, grant="authorization_code").login()
    bench.auth.tokens = dict(list(bench.auth.tokens.items())[-1:])
    await bench.call(worker)
    assert worker.context != context


async def test_a_refresh_token_that_was_refused_is_not_tried_again(bench: Bench) -> None:
    await bench.call(bench.authorizer(person=True, grant="authorization_code"))
    bench.auth.refresh_tokens.clear()
    bench.now += 3600
    worker = bench.authorizer(grant="authorization_code")
    assert (await bench.failure(worker)).cause == "login_required"
    assert (await bench.failure(worker)).cause == "login_required"
    assert [form["grant_type"] for form, _ in bench.auth.token_requests] == ["authorization_code", "refresh_token"]
    await bench.authorizer(person=True, grant="authorization_code").login()
    assert await bench.call(worker) == 200


async def test_a_client_that_was_forgotten_registers_anew_at_the_next_login(bench: Bench) -> None:
    await bench.call(bench.authorizer(person=True, grant="authorization_code"))
    assert set(record(bench).registrations) == {bench.auth.issuer}
    await bench.authorizer(person=True, grant="authorization_code").login()
    assert len(bench.auth.registrations) == 1
    bench.auth.clients.clear()
    bench.now += 3600
    assert (await bench.failure(bench.authorizer(grant="authorization_code"))).cause == "login_required"
    assert record(bench).registrations == {}
    await bench.authorizer(person=True, grant="authorization_code").login()
    assert len(bench.auth.registrations) == 2


async def test_a_code_that_is_redeemed_in_vain_forgets_a_client_that_is_not_known(bench: Bench) -> None:
    bench.auth.answer_token = lambda _: web.json_response({"error": "invalid_client"}, status=401)
    error = await bench.failure(bench.authorizer(person=True, grant="authorization_code"))
    assert error.facts["oauthError"] == "invalid_client"
    assert record(bench).registrations == {}


async def test_a_token_that_cannot_be_refreshed_serves_to_its_end(bench: Bench) -> None:
    bench.auth.token_extra = {"expires_in": "100"}
    await bench.call(bench.authorizer(person=True, grant="authorization_code"))
    bench.auth.refresh_tokens.clear()
    worker = bench.authorizer(grant="authorization_code")
    bench.now += 99
    assert await bench.call(worker) == 200
    bench.now += 1
    assert (await bench.failure(worker)).cause == "login_required"


async def test_a_refresh_that_failed_for_now_is_tried_again(bench: Bench) -> None:
    await bench.call(bench.authorizer(person=True, grant="authorization_code"))
    bench.now += 3600
    bench.auth.answer_token = lambda _: web.Response(status=502)
    worker = bench.authorizer(grant="authorization_code")
    assert (await bench.failure(worker)).retryable
    bench.auth.answer_token = lambda _: None
    assert await bench.call(worker) == 200


async def test_workers_that_share_a_token_refresh_it_once(bench: Bench) -> None:
    await bench.call(bench.authorizer(person=True, grant="authorization_code"))
    workers = [bench.authorizer(grant="authorization_code") for _ in range(4)]
    for worker in workers:
        await bench.call(worker)
    bench.auth.revoke()
    assert await asyncio.gather(*(bench.call(worker) for worker in workers)) == [200] * 4
    assert [form["grant_type"] for form, _ in bench.auth.token_requests] == ["authorization_code", "refresh_token"]


PROCESS = """
import asyncio, sys
from pathlib import Path
from openwop_mcp.client.auth import OAuthAuthorizer, TokenStore
from openwop_mcp.config import OAuth
from tests.support.auth_server import call, fetching

async def main(url: str, folder: str, now: float) -> None:
    async with fetching() as fetch:
        authorizer = OAuthAuthorizer(
            server_id="weather", url=url, oauth=OAuth(grant="authorization_code"), environ={}, fetch=fetch,
            store=TokenStore(Path(folder)), on_secret=lambda _: None, clock=lambda: now,
        )
        print("ready", flush=True)
        sys.stdin.readline()
        print(await call(authorizer, fetch, url), flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
"""


async def test_processes_that_share_a_token_refresh_it_once(bench: Bench) -> None:
    await bench.call(bench.authorizer(person=True, grant="authorization_code"))
    bench.now += 3600
    arguments = [bench.server.url, str(bench.folder), str(bench.now)]
    root = Path(__file__).parents[3]
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            textwrap.dedent(PROCESS),
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{root / 'pack'}"},
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), PATIENCE) == b"ready\n"
    ends = await asyncio.wait_for(asyncio.gather(*(process.communicate(b"go\n") for process in processes)), PATIENCE)
    assert [out for out, _ in ends] == [b"200\n", b"200\n"]
    assert [form["grant_type"] for form, _ in bench.auth.token_requests] == ["authorization_code", "refresh_token"]


async def test_a_client_that_is_known_uses_its_own_credentials(bench: Bench) -> None:
    bench.auth.metadata |= {
        "registration_endpoint": None,
        "token_endpoint_auth_methods_supported": ["client_secret_basic"],
    }
    bench.auth.clients["known"] = SECRET
    oauth = {"grant": "authorization_code", "client_id": "known", "client_secret": {"env": "SECRET"}}
    assert await bench.call(bench.authorizer(person=True, **oauth)) == 200
    form, headers = bench.auth.token_requests[0]
    pair = base64.b64decode(headers["Authorization"].removeprefix("Basic "))
    assert pair == b"known:s3cret%3Awith%2Fodd%2Bsigns+%26%3D%25"
    assert "client_secret" not in form


async def test_a_metadata_document_goes_before_registering(bench: Bench) -> None:
    url = "https://client.example.com/pack.json"
    bench.auth.metadata["client_id_metadata_document_supported"] = True
    bench.auth.clients[url] = None
    oauth = {"grant": "authorization_code", "client_metadata_url": url}
    assert await bench.call(bench.authorizer(person=True, **oauth)) == 200
    assert bench.auth.authorizations[0]["client_id"] == url
    assert not bench.auth.registrations
    bench.now += 3600
    assert await bench.call(bench.authorizer(**oauth)) == 200


@pytest.mark.parametrize("method", ["none", "client_secret_basic", "client_secret_post"])
async def test_a_registered_client_proves_itself_as_registered(bench: Bench, method: str) -> None:
    bench.auth.metadata["token_endpoint_auth_methods_supported"] = [method]
    if method != "none":
        bench.auth.registered["client_secret"] = "registered-secret"
    assert await bench.call(bench.authorizer(person=True, grant="authorization_code")) == 200
    form, headers = bench.auth.token_requests[0]
    assert ("Authorization" in headers) == (method == "client_secret_basic")
    assert ("client_secret" in form) == (method == "client_secret_post")
    assert bench.auth.registrations[0]["token_endpoint_auth_method"] == method
    bench.now += 3600
    assert await bench.call(bench.authorizer(grant="authorization_code")) == 200


async def test_without_any_way_to_become_a_client_the_error_says_what_to_write(bench: Bench) -> None:
    bench.auth.metadata["registration_endpoint"] = None
    error = await bench.failure(bench.authorizer(person=True, grant="authorization_code"))
    assert error.cause == "no_client"
    assert "client_id" in str(error)


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
async def test_no_login_is_begun_where_codes_are_not_checked(bench: Bench, methods: Any) -> None:
    bench.auth.metadata["code_challenge_methods_supported"] = methods
    error = await bench.failure(bench.authorizer(person=True, grant="authorization_code"))
    assert error.cause == "unsupported"
    assert not bench.auth.authorizations


def _without_iss(answer: dict[str, str]) -> None:
    del answer["iss"]


def _other_iss(answer: dict[str, str]) -> None:
    answer.update(iss="https://evil.example.com", error="access_denied", error_description="call 555-1234")


def _nearly_iss(answer: dict[str, str]) -> None:
    answer["iss"] += "/"


def _other_state(answer: dict[str, str]) -> None:
    answer["state"] = "guessed"


@pytest.mark.parametrize(
    ("advertised", "alter", "cause"),
    [
        (True, _without_iss, "issuer_mismatch"),
        (True, _other_iss, "issuer_mismatch"),
        (None, _other_iss, "issuer_mismatch"),
        (True, _nearly_iss, "issuer_mismatch"),
        (None, _nearly_iss, "issuer_mismatch"),
        (True, _other_state, "login_failed"),
    ],
)
async def test_an_answer_of_another_issuer_redeems_no_code(
    bench: Bench, advertised: bool | None, alter: Any, cause: str
) -> None:
    bench.auth.metadata["authorization_response_iss_parameter_supported"] = advertised
    bench.auth.redirect = alter
    error = await bench.failure(bench.authorizer(person=True, grant="authorization_code"))
    assert error.cause == cause
    assert "555" not in str(error)
    assert "access_denied" not in f"{error} {error.facts}"
    assert not bench.auth.token_requests


async def test_an_answer_without_iss_is_taken_where_none_was_announced(bench: Bench) -> None:
    bench.auth.metadata["authorization_response_iss_parameter_supported"] = None
    bench.auth.redirect = _without_iss
    assert await bench.call(bench.authorizer(person=True, grant="authorization_code")) == 200


async def test_another_authorization_server_gets_nothing_of_the_former(bench: Bench) -> None:
    authorizer = bench.authorizer(person=True, grant="authorization_code")
    assert await bench.call(authorizer) == 200
    former = set(bench.auth.clients)
    async with AuthServer() as other:
        bench.server.issuers = [other]
        assert await bench.call(authorizer) == 200
        assert len(other.registrations) == 1
        assert [form["grant_type"] for form, _ in other.token_requests] == ["authorization_code"]
        assert not former & {query["client_id"] for query in other.authorizations}
        assert set(record(bench).registrations) == {bench.auth.issuer, other.issuer}
    assert len(bench.auth.token_requests) == 1


async def test_a_worker_says_so_when_the_authorization_server_changed(bench: Bench) -> None:
    await bench.call(bench.authorizer(person=True, grant="authorization_code"))
    worker = bench.authorizer(grant="authorization_code")
    async with AuthServer() as other:
        bench.server.issuers = [other]
        assert (await bench.failure(worker)).cause == "login_required"
        assert not other.token_requests
    assert len(bench.auth.token_requests) == 1


async def test_a_person_steps_up_and_a_worker_asks_for_a_login_that_does(bench: Bench) -> None:
    bench.server.challenge_scope = "basic"
    bench.server.needed = {"write": ["write"]}
    person = bench.authorizer(person=True, grant="authorization_code")
    assert await bench.call(person) == 200
    worker = bench.authorizer(grant="authorization_code")
    error = await bench.failure(worker, "write")
    assert error.cause == "insufficient_scope"
    assert "worker.py login weather" in str(error)
    assert record(bench).wanted == ("write",)
    await bench.authorizer(person=True, grant="authorization_code").login()
    assert bench.auth.authorizations[-1]["scope"] == "basic write"
    assert record(bench).wanted == ()
    assert await bench.call(person, "write") == 200


async def test_offline_access_is_not_asked_for_where_it_is_not_listed(bench: Bench) -> None:
    bench.server.metadata["scopes_supported"] = ["read", "offline_access"]
    bench.auth.metadata["scopes_supported"] = ["read"]
    await bench.call(bench.authorizer(person=True, grant="authorization_code"))
    assert bench.auth.authorizations[0]["scope"] == "read"


async def test_servers_of_2025_03_26_are_their_own_authorization_servers(bench: Bench) -> None:
    async with AuthServer() as both:
        bench.server.metadata_path = None
        bench.auth = both
        paths: list[str] = []

        async def fetch(method: str, url: str, headers: Any, body: bytes | None) -> Any:
            path = url.removeprefix(bench.server.origin)
            paths.append(path.partition("?")[0])
            if not path.startswith(("/authorize", "/token", "/register")):
                return await bench.fetch(method, url, headers, body)
            return await bench.fetch(method, f"{both.origin}{path}", headers, body)

        authorizer = OAuthAuthorizer(
            server_id="weather",
            guess=True,
            url=bench.server.url,
            oauth=OAuth(grant="authorization_code"),
            environ={},
            fetch=fetch,
            store=bench.store,
            on_secret=bench.secrets.append,
            visit=visitor(fetch),
            redirect_uri=REDIRECT,
        )
        both.redirect = _without_iss
        bench.server.issuers = [both]
        assert await call(authorizer, bench.fetch, bench.server.url) == 200
        assert paths[-3:] == ["/register", "/authorize", "/token"]
        assert both.token_requests[0][0]["resource"] == bench.server.url


# --- the command line's part


async def test_login_listens_on_this_machine_and_keeps_what_comes(bench: Bench) -> None:
    opened: list[asyncio.Task[Any]] = []

    async def browse(url: str) -> None:
        location = await visitor(bench.fetch)(url)
        stranger = await bench.fetch("GET", location.partition("?")[0] + "?code=stolen&state=guessed", {}, None)
        assert stranger.status == 404
        assert (await bench.fetch("GET", location, {}, None)).status == 200

    done = await login(
        server_id="weather",
        url=bench.server.url,
        oauth=OAuth(grant="authorization_code"),
        environ={},
        fetch=bench.fetch,
        store=bench.store,
        on_secret=bench.secrets.append,
        show=lambda url: opened.append(asyncio.create_task(browse(url))),
        clock=lambda: bench.now,
    )
    await asyncio.gather(*opened)
    assert done.issuer == bench.auth.issuer
    assert done.renewable
    assert done.expires_at == bench.now + 3600
    assert await bench.call(bench.authorizer(grant="authorization_code")) == 200


async def test_a_login_that_nobody_answers_ends(bench: Bench) -> None:
    with pytest.raises(AuthorizationError) as caught:
        await login(
            server_id="weather",
            url=bench.server.url,
            oauth=OAuth(grant="authorization_code"),
            environ={},
            fetch=bench.fetch,
            store=bench.store,
            on_secret=bench.secrets.append,
            show=lambda _: None,
            patience=0.05,
        )
    assert caught.value.cause == "login_failed"


async def test_a_port_that_is_taken_is_named(bench: Bench) -> None:
    port = int(bench.server.origin.rpartition(":")[2])
    with pytest.raises(AuthorizationError) as caught:
        await login(
            server_id="weather",
            url=bench.server.url,
            oauth=OAuth(grant="authorization_code"),
            environ={},
            fetch=bench.fetch,
            store=bench.store,
            on_secret=bench.secrets.append,
            show=lambda _: None,
            port=port,
        )
    assert str(port) in str(caught.value)


async def test_a_machine_needs_no_login(bench: Bench) -> None:
    with pytest.raises(InvalidRequestError):
        await login(
            server_id="weather",
            url=bench.server.url,
            oauth=OAuth.model_validate(
                {"grant": "client_credentials", "client_id": "pack", "client_secret": {"env": "SECRET"}}
            ),
            environ=bench.environ,
            fetch=bench.fetch,
            store=bench.store,
            on_secret=bench.secrets.append,
            show=lambda _: None,
        )


async def test_what_is_kept_is_private_and_nothing_of_it_is_shown(bench: Bench) -> None:
    authorizer = bench.authorizer(person=True, grant="authorization_code")
    await bench.call(authorizer)
    assert stat.S_IMODE(bench.folder.stat().st_mode) == 0o700
    files = [path for path in bench.folder.iterdir() if path.suffix == ".json"]
    assert [stat.S_IMODE(path.stat().st_mode) for path in bench.folder.iterdir()] == [0o600] * 2
    kept = json.loads(files[0].read_text())
    shown = f"{record(bench)!r} {authorizer!r} {authorizer._held!r}"
    assert kept["grant"]["access_token"] in bench.secrets
    assert not [secret for secret in bench.secrets if secret in shown]


@pytest.mark.parametrize(
    "token",
    [
        {"access_token": "a b"},
        {"access_token": "line\r\nbreak"},
        {"access_token": 7},
        {"access_token": None},
        {"token_type": "DPoP"},
        {"token_type": None},
    ],
)
async def test_what_is_no_bearer_token_is_refused(bench: Bench, token: dict[str, Any]) -> None:
    answer = {"access_token": "fine-token", "token_type": "bearer", **token}
    bench.auth.answer_token = lambda _: web.json_response(answer)
    error = await bench.failure(bench.machine())
    assert error.cause in {"malformed", "unsupported"}
    assert not error.retryable


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"\xff", b"{" * 10_000])
async def test_a_token_answer_that_is_none_is_refused(bench: Bench, body: bytes) -> None:
    bench.auth.answer_token = lambda _: web.Response(body=body)
    assert (await bench.failure(bench.machine())).cause == "malformed"


@pytest.mark.parametrize("code", ["invalid_client", "x" * 10_000, 'a"b', 5, None])
async def test_an_error_repeats_a_code_and_never_what_is_said_beside_it(bench: Bench, code: Any) -> None:
    bench.auth.answer_token = lambda form: web.json_response({"error": code, "error_description": SECRET}, status=400)
    error = await bench.failure(bench.machine())
    assert error.cause == "refused"
    assert len(str(error)) < 600
    assert error.facts.get("oauthError") == ("invalid_client" if code == "invalid_client" else None)


async def test_an_authorization_server_out_of_reach_says_nothing_of_the_call(bench: Bench) -> None:
    bench.auth.metadata["token_endpoint"] = "http://127.0.0.1:9/token"
    error = await bench.failure(bench.machine())
    assert (error.cause, error.retryable, error.delivery) == ("unreachable", True, Delivery.NOT_PROCESSED)


async def test_where_a_server_names_nobody_nothing_is_guessed(bench: Bench) -> None:
    bench.server.metadata_path = None
    with pytest.raises(AuthorizationError) as caught:
        await bench.authorizer(person=True, grant="authorization_code").login()
    assert caught.value.facts["authorization"] == "no_metadata"
    assert bench.visits == []


async def test_a_server_that_lets_strangers_in_needs_no_login(bench: Bench) -> None:
    bench.server.open = True
    with pytest.raises(InvalidRequestError, match="needs no login"):
        await login(
            server_id="weather",
            url=bench.server.url,
            oauth=OAuth.model_validate({"grant": "authorization_code"}),
            environ={},
            fetch=bench.fetch,
            store=bench.store,
            on_secret=bench.secrets.append,
            show=bench.visits.append,
        )
    assert bench.visits == []
