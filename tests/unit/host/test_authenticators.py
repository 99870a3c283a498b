"""Authenticators: one header, several lanes, and one refusal for all that is wrong."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from host.authenticators import Authenticators
from host.errors import HostError
from host.keys import KeyRing
from host.oidc import Tokens
from openwop_mcp.config import Key, Settings
from tests.support.token_issuer import claims_of, rsa_key, signed, token_of

SECRET = "key-of-dev-0123456789"
SHA256 = hashlib.sha256(SECRET.encode()).hexdigest()
DEV = Key(id="dev", sha256=SHA256, tenant="acme", subject="dev", scopes=("*",))
PLAIN = 'Bearer realm="openwop"'
REFUSED = f'{PLAIN}, error="invalid_token"'


@pytest.fixture
def keys_alone() -> Authenticators:
    return Authenticators(KeyRing.of([DEV], {}))


async def refusal(authenticators: Authenticators, header: str | None) -> HostError:
    with pytest.raises(HostError) as caught:
        await authenticators.authenticate(header)
    return caught.value


@pytest.mark.parametrize("header", [f"Bearer {SECRET}", f"bearer  {SECRET}", f"BEARER {SECRET} "])
async def test_a_key_opens(keys_alone: Authenticators, header: str) -> None:
    assert (await keys_alone.authenticate(header)).key_id == "dev"


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Basic {SECRET}",
        f"Bearer{SECRET}",
        f"Bearer {SECRET} {SECRET}",
        "Bearer \u00e9",
        "Bearer \ud800",
    ],
)
async def test_a_request_without_a_credential_is_challenged_without_an_error(
    keys_alone: Authenticators, header: str | None
) -> None:
    refused = await refusal(keys_alone, header)
    assert (refused.code, refused.status) == ("unauthenticated", 401)
    assert refused.headers == {"WWW-Authenticate": PLAIN}


@pytest.mark.parametrize(
    "credential",
    [
        f"{SECRET}x",
        SECRET[:-1],
        SHA256,
        "a.b.c",
        signed(claims_of("https://nobody.example.org"), rsa_key()),
        token_of({"alg": "none"}, {"iss": "https://nobody.example.org"}),
    ],
)
async def test_whatever_is_wrong_with_a_credential_the_refusal_is_the_same(
    keys_alone: Authenticators, credential: str
) -> None:
    refused = await refusal(keys_alone, f"Bearer {credential}")
    assert refused.headers == {"WWW-Authenticate": REFUSED}
    assert refused.envelope == (await refusal(keys_alone, None)).envelope


async def test_no_header_matches_where_a_key_is_the_digest_of_nothing() -> None:
    empty = DEV.model_copy(update={"sha256": hashlib.sha256(b"").hexdigest()})
    ring = Authenticators(KeyRing.of([empty], {}))
    assert (await refusal(ring, "Basic x")).code == "unauthenticated"


async def test_a_host_with_keys_alone_opens_no_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tokens, "open", None)
    async with Authenticators.open(Settings(keys=(DEV,)), {}) as authenticators:
        assert (await authenticators.authenticate(f"Bearer {SECRET}")).tenant == "acme"


async def test_a_key_may_have_the_form_of_a_token() -> None:
    looks: Any = token_of({"alg": "RS256"}, {"iss": "https://nobody.example.org"})
    key = DEV.model_copy(update={"sha256": hashlib.sha256(looks.encode()).hexdigest()})
    assert (
        await Authenticators(KeyRing.of([key], {}), Tokens([], lambda _: looks)).authenticate(f"Bearer {looks}")
    ).key_id
