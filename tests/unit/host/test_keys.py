"""Keys: who a request comes from, without telling anyone else."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest

from host.errors import HostError
from host.keys import KeyRing, Principal
from openwop_mcp.config import Key, SecretRef, SettingsError

SECRET = "key-of-dev-0123456789"
OTHER = "key-of-ops-0123456789"
ENVIRON = {"DEV_KEY": SECRET}
DEV = Key(id="dev", secret=SecretRef(env="DEV_KEY"), tenant="acme", subject="dev", scopes=("runs:create", "runs:read"))
OPS = Key(id="ops", sha256=hashlib.sha256(OTHER.encode()).hexdigest(), tenant="globex", subject="ops", scopes=("*",))


@pytest.fixture
def ring() -> KeyRing:
    return KeyRing.of([DEV, OPS], ENVIRON)


def refusal(ring: KeyRing, header: str | None) -> HostError:
    with pytest.raises(HostError) as caught:
        ring.authenticate(header)
    return caught.value


def test_a_key_tells_tenant_subject_and_scopes(ring: KeyRing) -> None:
    dev = ring.authenticate(f"Bearer {SECRET}")
    assert dev == Principal("dev", "acme", "dev", frozenset({"runs:create", "runs:read"}))
    assert ring.authenticate(f"bearer  {OTHER}").tenant == "globex"


def test_a_key_may_lie_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{SECRET}\n", encoding="utf-8")
    key = DEV.model_copy(update={"secret": SecretRef(file=str(tmp_path / "key"))})
    assert KeyRing.of([key], {}).authenticate(f"Bearer {SECRET}").key_id == "dev"


def test_a_subject_is_closed_and_owns_what_it_starts(ring: KeyRing) -> None:
    dev = ring.authenticate(f"Bearer {SECRET}")
    subject = {
        "issuer": "urn:openwop-mcp:api-key",
        "subjectId": "dev",
        "tenant": "acme",
        "lane": "api-key",
        "kind": "user",
    }
    assert dev.subject == subject
    assert (dev.owner.tenant, dev.owner.subject, dev.owner.workspace) == ("acme", subject, None)


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Basic {SECRET}",
        f"Bearer{SECRET}",
        f"Bearer {SECRET}x",
        f"Bearer {SECRET[:-1]}",
        f"Bearer {SECRET} {SECRET}",
        f"Bearer {hashlib.sha256(SECRET.encode()).hexdigest()}",
        f"Bearer {OPS.sha256}",
        "Bearer \u00e9",
        "Bearer \ud800",
    ],
)
def test_whatever_is_wrong_the_refusal_is_the_same(ring: KeyRing, header: str | None) -> None:
    refused = refusal(ring, header)
    assert (refused.code, refused.status) == ("unauthenticated", 401)
    assert refused.envelope == refusal(ring, None).envelope
    assert refused.headers == {"WWW-Authenticate": 'Bearer realm="openwop"'}


def test_no_header_matches_where_a_key_is_the_digest_of_nothing() -> None:
    empty = OPS.model_copy(update={"sha256": hashlib.sha256(b"").hexdigest()})
    assert refusal(KeyRing.of([empty], {}), "Basic x").code == "unauthenticated"


def test_a_ring_without_keys_opens_to_nobody() -> None:
    assert refusal(KeyRing.of([], {}), f"Bearer {SECRET}").code == "unauthenticated"


def test_all_keys_are_compared_in_constant_time_whichever_is_the_right_one(
    ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []
    genuine = hmac.compare_digest
    monkeypatch.setattr("host.keys.hmac.compare_digest", lambda a, b: compared.append(a) or genuine(a, b))
    ring.authenticate(f"Bearer {SECRET}")
    for header in (f"Bearer {OTHER}wrong", None):
        refusal(ring, header)
    assert len(compared) == 6


def test_only_digests_are_held(ring: KeyRing) -> None:
    assert SECRET not in repr(vars(ring))
    assert SECRET not in repr(ring.authenticate(f"Bearer {SECRET}"))


def test_a_scope_is_had_by_name_or_with_all(ring: KeyRing) -> None:
    dev = ring.authenticate(f"Bearer {SECRET}")
    dev.require("runs:read")
    dev.require("runs:create", "runs:read")
    dev.require()
    ring.authenticate(f"Bearer {OTHER}").require("runs:cancel")
    with pytest.raises(HostError) as caught:
        dev.require("runs:read", "runs:cancel")
    assert (caught.value.code, caught.value.status) == ("forbidden", 403)
    assert caught.value.details == {"missingScopes": ["runs:cancel"]}
    assert caught.value.headers == {}


def test_two_keys_of_one_secret_are_a_fault_that_does_not_show_it() -> None:
    twin = DEV.model_copy(update={"id": "twin", "tenant": "globex"})
    with pytest.raises(SettingsError, match=r"keys\[1\]: another key has the same secret") as caught:
        KeyRing.of([DEV, twin], ENVIRON)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("subject", ["a b", "a/b", "x" * 257, "a\n"])
def test_a_subject_that_openwop_cannot_name_is_a_fault_of_the_settings(subject: str) -> None:
    with pytest.raises(SettingsError, match=r"keys\[0\]\.subject"):
        KeyRing.of([DEV.model_copy(update={"subject": subject})], ENVIRON)
