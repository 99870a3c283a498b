"""An issuer's keys: which of them count, how long they are held, and how seldom the issuer is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from host import jwks
from host.jwks import MAX_FRESH, MAX_STALE, MIN_FRESH, PAUSE, IssuerKeys, public_keys
from openwop_mcp.config import Issuer
from openwop_mcp.errors import ConnectError
from tests.support.auth_server import Page
from tests.support.patience import PATIENCE
from tests.support.token_issuer import ec_key, public, rsa_key

ISSUER = "https://login.example.org"
CONFIGURATION = f"{ISSUER}/.well-known/openid-configuration"
KEYS = f"{ISSUER}/keys"


class Far:
    """An issuer without a network, and a clock that a test turns."""

    def __init__(self, **settings: Any) -> None:
        self.metadata: Any = {"issuer": ISSUER, "jwks_uri": KEYS}
        self.listed: Any = [public(rsa_key())]
        self.headers: dict[str, str] = {}
        self.status = 200
        self.down = False
        self.hold: asyncio.Event | None = None
        self.asked: list[str] = []
        self.reached = asyncio.Event()
        self.now = 1000.0
        told = Issuer(**{"issuer": ISSUER, "audience": "a", "tenant": "acme", "jwks_uri": KEYS, **settings})
        self.keys = IssuerKeys(told, "issuers.0", self.fetch, clock=lambda: self.now)

    async def fetch(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Page:
        self.asked.append(url)
        self.reached.set()
        if self.hold is not None:
            await self.hold.wait()
        if self.down:
            raise ConnectError("no connection to the server (test): setting servers.<id>.network")
        told = self.metadata if url == CONFIGURATION else {"keys": self.listed}
        return Page(self.status, self.headers, told if isinstance(told, bytes) else json.dumps(told).encode())

    async def has(self, kid: str | None = "rsa", algorithm: str = "RS256") -> bool:
        return await self.keys.find(algorithm, kid) is not None


# --- where they are


async def test_keys_are_where_the_metadata_says() -> None:
    far = Far(jwks_uri=None)
    assert await far.has()
    assert far.asked == [CONFIGURATION, KEYS]


async def test_an_issuer_with_a_path_has_its_metadata_below_it() -> None:
    far = Far(issuer=f"{ISSUER}/realms/a/", jwks_uri=None)
    await far.has()
    assert far.asked == [f"{ISSUER}/realms/a/.well-known/openid-configuration"]


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": f"{ISSUER}/", "jwks_uri": KEYS},
        {"jwks_uri": KEYS},
        {"issuer": ISSUER},
        {"issuer": ISSUER, "jwks_uri": 7},
        {"issuer": ISSUER, "jwks_uri": "http://login.example.org/keys"},
        {"issuer": ISSUER, "jwks_uri": "file:///etc/keys"},
        [],
        b"<html>",
        b"[" * 100_000,
    ],
)
async def test_metadata_that_is_anothers_or_none_leads_to_no_keys(metadata: Any) -> None:
    far = Far(jwks_uri=None)
    far.metadata = metadata
    assert not await far.has()
    assert far.asked == [CONFIGURATION]


@pytest.mark.parametrize("network", ["public", "private"])
async def test_keys_come_over_http_only_from_a_private_network(network: str) -> None:
    far = Far(jwks_uri=None, network=network)
    far.metadata = {"issuer": ISSUER, "jwks_uri": "http://login.example.org/keys"}
    assert await far.has() is (network == "private")


# --- which count


@pytest.mark.parametrize(
    "jwk",
    [
        None,
        "key",
        {},
        {"kty": "RSA"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA", "n": 7, "e": "AQAB"},
        {"kty": ["RSA"], "n": "AQAB", "e": "AQAB"},
        {"kty": "EC", "crv": "P-256", "x": "AQAB", "y": "AQAB"},
        {"kty": "EC", "crv": "P-1", "x": "AQAB", "y": "AQAB"},
        public(rsa_key("short", 1024)),
        public(rsa_key(), use="enc"),
        public(rsa_key(), key_ops=["encrypt"]),
        public(rsa_key(), kid=7),
        rsa_key().as_dict(private=True),
        ec_key().as_dict(private=True),
        OctKey.generate_key(256).as_dict(private=True),
        OKPKey.generate_key("Ed25519").as_dict(private=False),
    ],
    ids=range(17),
)
def test_what_is_no_public_key_for_signatures_is_passed_over(jwk: Any) -> None:
    assert [key.kid for key in public_keys([jwk, public(ec_key())])] == ["ec"]


@pytest.mark.parametrize("name", ["n", "e", "x", "y"])
def test_a_number_that_is_too_long_is_not_even_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    for kind in (RSAKey, ECKey):
        monkeypatch.setattr(kind, "import_key", read.append)
    for key in (rsa_key(), ec_key()):
        public_keys([public(key, **{name: "A" * 1401})])
    assert not read


def test_a_set_is_read_up_to_a_bound() -> None:
    listed = [public(ec_key())] * (jwks.MAX_KEYS + 1)
    assert len(public_keys(listed)) == jwks.MAX_KEYS


@pytest.mark.parametrize(
    ("algorithm", "kid", "there"),
    [
        ("RS256", "rsa", True),
        ("RS256", None, True),
        ("PS512", "rsa", True),
        ("ES256", None, True),
        ("ES384", "ec", False),
        ("ES256", "rsa", False),
        ("RS256", "ec", False),
        ("RS256", "RSA", False),
    ],
)
async def test_a_key_fits_by_name_and_by_type(algorithm: str, kid: str | None, there: bool) -> None:
    far = Far()
    far.listed = [public(rsa_key()), public(ec_key())]
    assert await far.has(kid, algorithm) is there


async def test_a_key_that_is_for_one_algorithm_fits_no_other() -> None:
    far = Far()
    far.listed = [public(rsa_key(), alg="RS256"), public(rsa_key("other"), alg="PS256")]
    assert await far.has(None, "RS256")
    assert await far.has("other", "PS256")
    assert not await far.has("rsa", "PS256")


async def test_of_two_that_fit_none_is_guessed() -> None:
    far = Far()
    far.listed = [public(rsa_key()), public(rsa_key("other"))]
    assert await far.has("other")
    assert not await far.has(None)
    far = Far()
    far.listed = [public(rsa_key()), public(rsa_key("other"), kid="rsa")]
    assert not await far.has("rsa")


# --- how long they hold


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ({}, 300),
        ({"Cache-Control": "public"}, 300),
        ({"Cache-Control": "max-age=600"}, 600),
        ({"Cache-Control": 'Public, Max-Age="600"'}, 600),
        ({"Cache-Control": "max-age=5"}, MIN_FRESH),
        ({"Cache-Control": "max-age=600, no-store"}, MIN_FRESH),
        ({"Cache-Control": "no-cache"}, MIN_FRESH),
        ({"Cache-Control": "max-age=999999999"}, MAX_FRESH),
        ({"Cache-Control": "s-maxage=600, x-max-age=700"}, 300),
    ],
)
async def test_keys_hold_as_long_as_is_said_within_bounds(said: dict[str, str], seconds: int) -> None:
    far = Far()
    far.headers = said
    assert await far.has()
    far.now += seconds - 1
    assert await far.has()
    assert len(far.asked) == 1
    far.now += 1
    assert await far.has()
    assert len(far.asked) == 2


async def test_a_key_that_was_withdrawn_is_no_longer_taken() -> None:
    far = Far()
    assert await far.has()
    far.listed = [public(ec_key())]
    far.now += 300
    assert not await far.has()


async def test_a_new_key_is_found_and_unknown_ones_ask_once_a_minute() -> None:
    far = Far()
    assert await far.has()
    far.listed = [public(rsa_key()), public(rsa_key("next"))]
    for _ in range(3):
        assert not await far.has("next")
    assert len(far.asked) == 1
    far.now += MIN_FRESH
    for _ in range(3):
        assert not await far.has("made up")
    assert len(far.asked) == 2
    assert await far.has("next")
    assert len(far.asked) == 2


async def test_keys_outlast_an_outage_for_a_while_and_are_asked_for_once_a_minute() -> None:
    far = Far()
    assert await far.has()
    far.down = True
    far.now += 300
    for _ in range(3):
        assert await far.has()
    assert len(far.asked) == 2
    far.now += MIN_FRESH
    assert await far.has()
    assert len(far.asked) == 3
    far.now += MAX_STALE - MIN_FRESH - 1
    assert await far.has()
    far.now += 1
    assert not await far.has()


async def test_an_issuer_that_was_not_there_is_soon_asked_again() -> None:
    far = Far()
    far.down = True
    for _ in range(3):
        assert not await far.has()
    assert len(far.asked) == 1
    far.down = False
    far.now += PAUSE
    assert await far.has()


@pytest.mark.parametrize("fault", ["down", 500, 404, 204, "text", "no list"])
async def test_an_answer_without_keys_changes_nothing(fault: Any, caplog: pytest.LogCaptureFixture) -> None:
    far = Far()
    assert await far.has()
    far.down = fault == "down"
    far.status = fault if isinstance(fault, int) else 200
    far.listed = "text" if fault == "text" else {"rsa": 1} if fault == "no list" else far.listed
    far.now += 300
    assert await far.has()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("issuers.0: its keys cannot be had: ")


async def test_a_fault_names_the_setting_of_the_issuer(caplog: pytest.LogCaptureFixture) -> None:
    far = Far()
    far.down = True
    await far.has()
    assert "setting issuers.0.network" in caplog.text


# --- who waits


async def test_all_who_wait_share_one_request_that_outlives_any_of_them() -> None:
    far = Far()
    far.hold = asyncio.Event()
    first, *others = [asyncio.create_task(far.has()) for _ in range(20)]
    await far.reached.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    far.hold.set()
    assert await asyncio.gather(*others) == [True] * 19
    assert len(far.asked) == 1


async def test_nobody_waits_long_for_a_slow_issuer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "PATIENCE", 0.01)
    far = Far()
    assert await far.has()
    far.hold = asyncio.Event()
    far.now += 300
    async with asyncio.timeout(PATIENCE):
        assert await far.has()
        assert await far.has()
    assert len(far.asked) == 2


async def test_a_request_that_is_under_way_ends_with_the_host() -> None:
    far = Far()
    await far.keys.aclose()
    far.hold = asyncio.Event()
    waiting = asyncio.create_task(far.has())
    await far.reached.wait()
    await far.keys.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiting
