"""Tokens of interrupts: what one says, and everything that is none."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from host.errors import HostError
from host.tokens import MAX_TOKEN, Claims, TokenKeys
from openwop_mcp.config import SettingsError, SigningRef, TokenKey

OLD, NEW = b"o" * 32, b"n" * 32
NOW = 1_700_000_000.5
CLAIMS = Claims("acme/0123456789abcdef", "gate", "acme/fedcba9876543210", 1_700_001_800)
KEYS = TokenKeys({"2026-11": NEW, "2026-10": OLD})
TOKEN = KEYS.sign(CLAIMS)


def refusal(token: str, *, keys: TokenKeys = KEYS, now: float = NOW) -> str:
    with pytest.raises(HostError) as caught:
        keys.read(token, now=now)
    # Nothing of what was sent.
    assert caught.value.details is None
    assert caught.value.message.startswith("the link is ")
    return caught.value.code


def signed(head: str, payload: bytes, key: bytes = NEW) -> str:
    text = f"{head}.{base64.urlsafe_b64encode(payload).rstrip(b'=').decode()}"
    mac = base64.urlsafe_b64encode(hmac.digest(key, text.encode(), hashlib.sha256)).rstrip(b"=").decode()
    return f"{text}.{mac}"


@pytest.mark.parametrize("intent", ["resolve", "inspect"])
def test_a_token_says_what_was_signed(intent):
    claims = dataclasses.replace(CLAIMS, intent=intent)
    assert KEYS.read(KEYS.sign(claims), now=NOW) == claims


def test_a_token_has_the_form_of_openwop_and_fits_into_a_path():
    head, algorithm, kid, payload, mac = TOKEN.split(".")
    assert (head, algorithm, kid) == ("ow2", "hs256", "2026-11")
    told = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert told["runId"] == CLAIMS.run_id
    assert told["expiresAt"] == CLAIMS.expires_at
    assert len(mac) == 43
    assert set(TOKEN) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.")
    longest = Claims(f"{'t' * 128}/{'r' * 128}", "n" * 128, f"{'t' * 128}/{'i' * 128}", 2**40, "inspect")
    assert len(KEYS.sign(longest)) < MAX_TOKEN
    assert KEYS.read(KEYS.sign(longest), now=NOW) == longest


def test_the_first_key_signs_and_what_an_older_one_signed_is_taken_until_it_is_gone():
    before = TokenKeys({"2026-10": OLD}).sign(CLAIMS)
    assert KEYS.read(before, now=NOW) == CLAIMS
    assert refusal(before, keys=TokenKeys({"2026-11": NEW})) == "interrupt_token_invalid"


def test_a_token_is_good_until_it_ends_and_no_longer():
    assert KEYS.read(TOKEN, now=CLAIMS.expires_at - 0.001) == CLAIMS
    assert refusal(TOKEN, now=CLAIMS.expires_at) == "interrupt_expired"


def test_what_was_not_signed_is_refused_before_it_is_looked_at():
    head, algorithm, kid, payload, mac = TOKEN.split(".")
    forged = base64.urlsafe_b64encode(json.dumps({"runId": "acme/x"}).encode()).rstrip(b"=").decode()
    for token in (
        "",
        ".",
        "....",
        "ow2.hs256",
        TOKEN[:-1],
        TOKEN + "A",
        TOKEN + "=",
        TOKEN.replace("ow2.", "", 1),
        TOKEN.swapcase(),
        f"ow1.{algorithm}.{kid}.{payload}.{mac}",
        f"{head}.none.{kid}.{payload}.",
        f"{head}.hs512.{kid}.{payload}.{mac}",
        f"{head}.{algorithm}.2026-10.{payload}.{mac}",
        f"{head}.{algorithm}.other.{payload}.{mac}",
        f"{head}.{algorithm}.{kid}.{forged}.{mac}",
        f"{head}.{algorithm}.{kid}.{payload}.\u00fc",
        f"x.{TOKEN}",
    ):
        assert refusal(token) == "interrupt_token_invalid"


def test_the_last_letter_of_a_signature_has_one_spelling():
    # Its last two bits say nothing, so that other letters decode to the same bytes.
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    last = alphabet.index(TOKEN[-1])
    assert refusal(TOKEN[:-1] + alphabet[last ^ 1]) == "interrupt_token_invalid"


@pytest.mark.parametrize(
    "head", ["ow2.hs512.2026-11", "ow3.hs256.2026-11", "hs256.2026-11", "2026-11", "ow2.hs256.a.2026-11"]
)
def test_a_key_that_is_held_signs_nothing_of_another_kind(head):
    assert refusal(signed(head, b"{}")) == "interrupt_token_invalid"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{}",
        b"[]",
        b"1",
        b"\xff",
        b'{"runId":1}',
        json.dumps({**dataclasses.asdict(CLAIMS), "intent": "own"}).encode(),
    ],
)
def test_a_payload_of_another_version_is_refused_though_it_is_genuine(payload):
    assert refusal(signed("ow2.hs256.2026-11", payload)) == "interrupt_token_invalid"


@given(st.text(max_size=200))
def test_no_text_is_a_token_by_accident(text):
    assert refusal(text) == "interrupt_token_invalid"
    assert refusal(f"ow2.hs256.2026-11.{text}") == "interrupt_token_invalid"


def test_what_hosts_share_signs_tokens_with_a_key_of_their_own():
    shared = TokenKeys.shared(NEW)
    token = shared.sign(CLAIMS)
    assert token.split(".")[2] == "host"
    assert TokenKeys.shared(NEW).read(token, now=NOW) == CLAIMS
    assert refusal(token, keys=TokenKeys({"host": NEW})) == "interrupt_token_invalid"


def test_keys_of_the_settings_are_read_where_they_say():
    keys = [TokenKey(id=name, secret=SigningRef(env=name.upper())) for name in ("new", "old")]
    environ = {"NEW": NEW.decode(), "OLD": OLD.decode()}
    held = TokenKeys.of(keys, environ)
    assert held.sign(CLAIMS) == TokenKeys({"new": NEW}).sign(CLAIMS)
    assert held.read(TokenKeys({"old": OLD}).sign(CLAIMS), now=NOW) == CLAIMS
    with pytest.raises(SettingsError, match=r"^host\.token_keys\[1\]\.secret: .* OLD is not set"):
        TokenKeys.of(keys, {"NEW": NEW.decode()})
    with pytest.raises(SettingsError, match="under 32 characters"):
        TokenKeys.of(keys, {"NEW": "n" * 31})
