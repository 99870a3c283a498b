"""The payload codec: what comes back, what cannot be seen, and what is said where a key is missing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload
from temporalio.common import RawValue
from temporalio.converter import DataConverter

from openwop_mcp.calls import record
from openwop_mcp.config import Settings
from openwop_mcp.encryption import ENCODING, KEY_ID, Encryption, EncryptionError, with_encryption
from openwop_mcp.encryption import _codec as codec_module
from tests.support.cli import ROOT

OLD, NEW = os.urandom(32), os.urandom(32)
SECRET = b'{"n":1.0,"big":1e400,"digits":123456789012345678901234,"text":"confidential"}'


async def both_ways(codec: Encryption, payload: Payload) -> Payload:
    [sealed] = await codec.encode([payload])
    [opened] = await codec.decode([sealed])
    return opened


@given(
    data=st.binary(max_size=2_000),
    metadata=st.dictionaries(st.text(max_size=20), st.binary(max_size=40), max_size=4),
)
def test_every_payload_comes_back_byte_for_byte_with_its_metadata(data, metadata):
    payload = Payload(metadata=metadata, data=data)
    assert asyncio.run(both_ways(Encryption({"a": OLD}), payload)) == payload


@pytest.mark.parametrize("size", [0, 1, codec_module.IN_THREAD - 1, codec_module.IN_THREAD, 3_000_000])
async def test_payloads_of_all_sizes_come_back(size):
    payload = record(b"x" * size, {"server-id": "fake"})
    assert await both_ways(Encryption({"a": OLD}), payload) == payload


async def test_nothing_of_a_payload_can_be_seen_but_which_key_opens_it():
    [sealed] = await Encryption({"a": OLD}).encode([record(SECRET, {"server-id": "confidential"})])
    assert dict(sealed.metadata) == {"encoding": ENCODING, KEY_ID: b"a"}
    assert b"confidential" not in sealed.SerializeToString()
    assert b"json/plain" not in sealed.SerializeToString()


async def test_that_there_is_nothing_is_not_hidden_as_temporal_takes_memos_away_by_it():
    nothing, noted = Payload(metadata={"encoding": b"binary/null"}), record(b"", {"server-id": "fake"})
    assert (await Encryption({"a": OLD}).encode([nothing, noted]))[0] == nothing
    noted.metadata["encoding"] = b"binary/null"
    [sealed] = await Encryption({"a": OLD}).encode([noted])
    assert sealed.metadata["encoding"] == ENCODING


async def test_the_same_payload_is_never_encrypted_alike_twice():
    codec = Encryption({"a": OLD})
    sealed = await codec.encode([record(SECRET, {})] * 100)
    assert len({one.data for one in sealed}) == 100


async def test_the_format_is_that_of_temporals_samples_in_both_directions():
    payload = record(SECRET, {"server-id": "fake"})
    [sealed] = await Encryption({"a": OLD}).encode([payload])
    theirs = AESGCM(OLD)
    assert Payload.FromString(theirs.decrypt(sealed.data[:12], sealed.data[12:], None)) == payload
    nonce = os.urandom(12)
    foreign = Payload(
        metadata={"encoding": b"binary/encrypted", "encryption-key-id": b"a"},
        data=nonce + theirs.encrypt(nonce, payload.SerializeToString(), None),
    )
    assert await Encryption({"a": OLD}).decode([foreign]) == [payload]


async def test_the_first_key_encrypts_and_all_of_them_open():
    [before] = await Encryption({"old": OLD}).encode([record(SECRET, {})])
    rotated = Encryption({"new": NEW, "old": OLD})
    [after] = await rotated.encode([record(SECRET, {})])
    assert after.metadata[KEY_ID] == b"new"
    assert await rotated.decode([before, after]) == [record(SECRET, {})] * 2


async def test_what_is_not_encrypted_passes_as_it_is():
    payload = record(SECRET, {})
    assert await Encryption({"a": OLD}).decode([payload]) == [payload]


async def test_without_keys_nothing_is_changed_and_what_is_encrypted_is_refused():
    none = Encryption({})
    payload = record(SECRET, {})
    assert (await none.encode([payload]))[0] is payload
    assert (await none.decode([payload]))[0] is payload
    [sealed] = await Encryption({"2026-11": OLD}).encode([payload])
    with pytest.raises(EncryptionError, match=r"'2026-11'.*has none.*encryption\.keys"):
        await none.decode([sealed])


async def test_a_key_that_is_missing_is_named_with_those_that_are_there_and_the_setting():
    [sealed] = await Encryption({"2026-11": OLD}).encode([record(SECRET, {})])
    codec = Encryption({"2026-12": NEW})
    waiting = asyncio.ensure_future(codec.missing())
    with pytest.raises(EncryptionError, match=r"'2026-11'.*not among 2026-12.*encryption\.keys") as raised:
        await codec.decode([sealed])
    assert raised.value.key_id == "2026-11"
    assert str(await waiting) == str(raised.value)


@pytest.mark.parametrize("harm", ["another key", "a changed byte", "cut short"])
async def test_what_the_key_does_not_fit_is_an_error_and_no_value(harm):
    [sealed] = await Encryption({"a": OLD}).encode([record(SECRET, {})])
    changed = bytearray(sealed.data)
    changed[20] ^= 1
    sealed.data = {"another key": sealed.data, "a changed byte": bytes(changed), "cut short": sealed.data[:5]}[harm]
    codec = Encryption({"a": NEW if harm == "another key" else OLD})
    with pytest.raises(EncryptionError, match=r"'a' of encryption\.keys"):
        await codec.decode([sealed])


async def test_a_key_id_from_outside_is_shown_without_what_could_do_harm():
    sealed = Payload(metadata={"encoding": ENCODING, KEY_ID: b"\x1b[31m" + b"x" * 500}, data=b"")
    with pytest.raises(EncryptionError) as raised:
        await Encryption({}).decode([sealed])
    assert "\x1b" not in str(raised.value)
    assert len(str(raised.value)) < 400


async def test_large_payloads_are_worked_on_beside_the_event_loop(monkeypatch):
    codec = Encryption({"a": OLD})
    threads: list[bool] = []
    encrypted = codec._encrypted

    def noted(payload: Payload) -> Payload:
        threads.append(threading.current_thread() is threading.main_thread())
        return encrypted(payload)

    monkeypatch.setattr(codec, "_encrypted", noted)
    await codec.encode([record(b"x", {}), record(b"x" * codec_module.IN_THREAD, {})])
    assert threads == [True, False]


def test_without_keys_no_cipher_is_imported():
    code = (
        "import sys; from openwop_mcp.config import Settings; from openwop_mcp.storage import data_converter;"
        " data_converter(Settings()); sys.exit('cryptography' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0


# --- from settings to a converter ---


async def test_a_converter_encrypts_what_it_stores_and_hides_what_failures_say(monkeypatch):
    monkeypatch.setenv("ENCRYPTION_KEY", "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWY=")
    settings = Settings.model_validate(
        {"encryption": {"keys": [{"id": "a", "secret": {"env": "ENCRYPTION_KEY"}}]}, "storage": {"driver": "none"}}
    )
    converter = with_encryption(DataConverter.default, settings)
    [sealed] = await converter.encode([RawValue(record(SECRET, {}))])
    assert sealed.metadata["encoding"] == ENCODING
    [value] = await converter.decode([sealed], [RawValue])
    assert value.payload == record(SECRET, {})
    assert with_encryption(converter, settings) is converter
