"""Keys: whose they are, without telling anyone else."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest

from host.keys import KeyRing
from host.principals import Principal
from openwop_mcp.config import Key, SecretRef, SettingsError

SECRET = "key-of-dev-0123456789"
OTHER = "key-of-ops-0123456789"
ENVIRON = {"DEV_KEY": SECRET}
DEV = Key(id="dev", secret={"env": "DEV_KEY"}, tenant="acme", subject="dev", scopes=("runs:create", "runs:read"))
OPS = Key(id="ops", sha256=hashlib.sha256(OTHER.encode()).hexdigest(), tenant="globex", subject="ops", scopes=("*",))


@pytest.fixture
def ring() -> KeyRing:
    return KeyRing.of([DEV, OPS], ENVIRON)


def test_a_key_tells_tenant_subject_and_scopes(ring: KeyRing) -> None:
    assert ring.holder(SECRET) == Principal("dev", "acme", "dev", frozenset({"runs:create", "runs:read"}))
    assert ring.holder(OTHER) == Principal("ops", "globex", "ops", frozenset({"*"}))


def test_a_key_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n", encoding="utf-8")
    key = DEV.model_copy(update={"secret": SecretRef(file=str(tmp_path / "key"))})
    holder = KeyRing.of([key], {}).holder(SECRET)
    assert holder is not None
    assert holder.key_id == "dev"


@pytest.mark.parametrize(
    "key",
    ["", f"{SECRET}x", SECRET[:-1], SECRET.upper(), hashlib.sha256(SECRET.encode()).hexdigest(), str(OPS.sha256)],
)
def test_what_is_no_key_is_nobodys(ring: KeyRing, key: str) -> None:
    assert ring.holder(key) is None


def test_a_ring_without_keys_opens_to_nobody() -> None:
    assert KeyRing.of([], {}).holder(SECRET) is None


def test_all_keys_are_compared_in_constant_time_whichever_is_the_right_one(
    ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    genuine = hmac.compare_digest
    monkeypatch.setattr("host.keys.hmac.compare_digest", lambda a, b: compared.append(a) or genuine(a, b))
    for key in (SECRET, OTHER, f"{OTHER}wrong"):
        ring.holder(key)
    assert len(compared) == 6


def test_only_digests_are_held(ring: KeyRing) -> None:
    assert SECRET not in repr(vars(ring))
    assert SECRET not in repr(ring.holder(SECRET))


def test_two_keys_of_one_secret_are_a_fault_that_does_not_show_it() -> None:
    twin = DEV.model_copy(update={"id": "twin", "tenant": "globex"})
    with pytest.raises(SettingsError, match=r"keys\[1\]: another key has the same secret") as caught:
        KeyRing.of([DEV, twin], ENVIRON)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("subject", ["a b", "a/b", "x" * 257, "a\n"])
def test_a_subject_that_openwop_cannot_name_is_a_fault_of_the_settings(subject: str) -> None:
    with pytest.raises(SettingsError, match=r"keys\[0\]\.subject"):
        KeyRing.of([DEV.model_copy(update={"subject": subject})], ENVIRON)
