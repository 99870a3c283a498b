"""The data converter with storage: what it keeps outside, what it brings back, and what workflow code learns of it."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Sequence

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.common import RawValue
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import DataConverter, DefaultPayloadConverter, PayloadCodec

from openwop_mcp.calls import record
from openwop_mcp.ceilings import INLINE_BYTES, MAX_CALL_BYTES, call_ceiling
from openwop_mcp.config import Settings
from openwop_mcp.storage import (
    Folder,
    LostValueError,
    MalformedReferenceError,
    StorageError,
    add_values,
    bare,
    data_converter,
    kept_outside,
    open_payload,
    resolve,
    size_of,
    values_of,
)
from openwop_mcp.storage import with_storage as with_

LARGE = b'{"text":"%b"}' % (b"x" * INLINE_BYTES)


def settings(**tables: object) -> Settings:
    return Settings.model_validate(tables)


@pytest.fixture
def converter(tmp_path) -> DataConverter:
    return data_converter(settings(storage={"folder": str(tmp_path / "blobs")}))


async def test_bytes_and_metadata_come_back_as_they_were(converter, tmp_path):
    payload = record(LARGE, {"server-id": "fake", "schema": "wrong: \u00fc"})
    payload.metadata["binary"] = bytes(range(256))
    [reference] = await converter.encode([RawValue(payload)])
    assert reference.ByteSize() < 2_000
    digest = hashlib.sha256(LARGE).hexdigest()
    assert digest.encode() in reference.data
    assert (tmp_path / "blobs" / digest[:2] / digest[2:4] / digest).read_bytes() == LARGE
    [value] = await converter.decode([reference], [RawValue])
    assert value.payload == payload


async def test_one_value_under_other_metadata_is_one_blob(converter, tmp_path):
    await converter.encode([RawValue(record(LARGE, {"attempt": str(number)})) for number in range(3)])
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


async def test_what_is_small_stays_where_it_is(converter, tmp_path):
    payload = record(b"{}", {})
    assert await converter.encode([RawValue(payload)]) == [payload]
    assert list(tmp_path.iterdir()) == []


def test_without_storage_the_converter_stays_as_it_is():
    none = settings(storage={"driver": "none"})
    assert with_(DataConverter.default, none) is DataConverter.default
    assert not kept_outside(data_converter(none))


def test_storage_that_leaves_in_history_what_it_cannot_hold_does_not_count(converter):
    assert kept_outside(converter)
    external = dataclasses.replace(converter.external_storage, payload_size_threshold=2_000_000)
    own = with_(dataclasses.replace(DataConverter.default, external_storage=external), settings())
    assert not kept_outside(own)
    assert call_ceiling(own.payload_converter) == MAX_CALL_BYTES


def test_the_default_folder_is_in_the_users_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    storage = data_converter(settings()).external_storage
    assert storage is not None
    assert storage.drivers[0]._blobs.where == f"the folder {tmp_path / 'openwop-mcp' / 'blobs'}"


class Reversing(PayloadCodec):
    """A codec: encryption, as far as storage can tell."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload(metadata={"encoding": b"reversed"}, data=one.SerializeToString()[::-1]) for one in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [Payload.FromString(one.data[::-1]) for one in payloads]


async def test_a_codec_of_the_authors_stays_and_what_is_stored_is_encoded(tmp_path):
    own = dataclasses.replace(pydantic_data_converter, payload_codec=Reversing())
    converter = with_(own, settings(storage={"folder": str(tmp_path)}))
    [reference] = await converter.encode([RawValue(record(LARGE, {}))])
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert LARGE not in file.read_bytes()
    [value] = await converter.decode([reference], [RawValue])
    assert value.payload.data == LARGE


# --- what workflow code learns ---


def test_workflow_code_learns_the_ceiling_from_the_payload_converter_alone():
    given = settings(limits={"call_bytes": 5_000_000})
    for own in (DataConverter.default, pydantic_data_converter):
        assert call_ceiling(own.payload_converter) == MAX_CALL_BYTES
        assert call_ceiling(with_(own, given).payload_converter) == 5_000_000


def test_a_converter_that_tells_it_converts_as_before_and_is_one_class():
    telling = data_converter(settings())
    assert telling.payload_converter_class is data_converter(settings()).payload_converter_class
    assert issubclass(telling.payload_converter_class, DefaultPayloadConverter)
    payloads = telling.payload_converter.to_payloads([{"a": 1}, b"b", None])
    assert payloads == DataConverter.default.payload_converter.to_payloads([{"a": 1}, b"b", None])
    assert telling.payload_converter.from_payloads(payloads) == [{"a": 1}, b"b", None]


# --- histories ---


async def events_of(converter: DataConverter) -> list[HistoryEvent]:
    """Events with references in many places."""
    [reference] = await converter.encode([RawValue(record(LARGE, {"server-id": "fake"}))])
    small = record(b"{}", {})
    begun, done, failed, marked = (HistoryEvent(event_id=number) for number in range(1, 5))
    begun.workflow_execution_started_event_attributes.input.payloads.extend([small, reference])
    begun.workflow_execution_started_event_attributes.memo.fields["m"].CopyFrom(reference)
    done.activity_task_completed_event_attributes.result.payloads.append(reference)
    cause = failed.activity_task_failed_event_attributes.failure.cause
    cause.application_failure_info.details.payloads.extend([small, reference])
    marked.marker_recorded_event_attributes.details["d"].payloads.append(reference)
    return [begun, done, failed, marked]


def large_values(events: list[HistoryEvent]) -> list[bytes]:
    begun, done, failed, marked = events
    return [
        begun.workflow_execution_started_event_attributes.input.payloads[1].data,
        begun.workflow_execution_started_event_attributes.memo.fields["m"].data,
        done.activity_task_completed_event_attributes.result.payloads[0].data,
        failed.activity_task_failed_event_attributes.failure.cause.application_failure_info.details.payloads[1].data,
        marked.marker_recorded_event_attributes.details["d"].payloads[0].data,
    ]


async def test_values_are_put_back_wherever_in_an_event_they_are_referred_to(converter):
    events = await events_of(converter)
    await resolve(events, converter)
    assert large_values(events) == [LARGE] * 5
    done = events[1].activity_task_completed_event_attributes
    assert done.result.payloads[0].metadata["openwop-mcp.server-id"] == b"fake"


async def test_of_a_bare_event_large_values_have_their_metadata_alone_and_are_not_looked_for(converter, tmp_path):
    events = await events_of(converter)
    as_fetched = [event.SerializeToString() for event in events]
    shutil.rmtree(tmp_path / "blobs")
    bared = [await bare(event, converter) for event in events]
    assert large_values(bared) == [b""] * 5
    done = bared[1].activity_task_completed_event_attributes.result.payloads[0]
    assert done.metadata == record(b"", {"server-id": "fake"}).metadata
    begun = bared[0].workflow_execution_started_event_attributes.input.payloads[0]
    assert begun == record(b"{}", {})
    assert [event.SerializeToString() for event in events] == as_fetched


async def test_of_a_bare_event_metadata_that_are_encrypted_with_a_large_value_are_there(tmp_path, monkeypatch):
    monkeypatch.setenv("ENCRYPTION_KEY", base64.b64encode(bytes(range(32))).decode())
    keys = [{"id": "a", "secret": {"env": "ENCRYPTION_KEY"}}]
    encrypting = data_converter(settings(storage={"folder": str(tmp_path)}, encryption={"keys": keys}))
    events = await events_of(encrypting)
    assert b"server-id" not in events[1].SerializeToString()
    done = (await bare(events[1], encrypting)).activity_task_completed_event_attributes.result.payloads[0]
    assert (done.data, done.metadata["openwop-mcp.server-id"]) == (b"", b"fake")


async def test_a_value_of_another_driver_is_an_error_that_names_the_driver(converter):
    events = await events_of(converter)
    reference = events[1].activity_task_completed_event_attributes.result.payloads[0]
    reference.data = json.dumps({**json.loads(reference.data), "driverName": "another-one"}).encode()
    for ask in (resolve, values_of):
        with pytest.raises(StorageError, match="another-one"):
            await ask(events, converter)
    with pytest.raises(StorageError, match="another-one"):
        await bare(events[1], converter)


async def test_values_that_are_taken_along_are_put_back_without_storage(converter):
    events = await events_of(converter)
    values = await values_of(events, converter)
    assert values == {hashlib.sha256(LARGE).hexdigest(): LARGE}
    with pytest.raises(LostValueError, match="not among the values"):
        add_values(events, {})
    add_values(events, values)
    assert large_values(events) == [LARGE] * 5


# --- references that the pack never wrote ---


def reference_to(claim: dict[str, str], **members: object) -> Payload:
    text = json.dumps({"driverName": "openwop-mcp", "claimData": claim, **members}).encode()
    metadata = {"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"}
    payload = Payload(metadata=metadata, data=text)
    # Without it the SDK takes a payload for one that holds its value.
    payload.external_payloads.add().size_bytes = 5
    return payload


def claim_with(**changed: str | None) -> dict[str, str]:
    claim = {"sha256": hashlib.sha256(b"12345").hexdigest(), "size": "5", "metadata": "{}", **changed}
    return {name: value for name, value in claim.items() if value is not None}


def event_with(payload: Payload) -> HistoryEvent:
    event = HistoryEvent(event_id=1)
    event.activity_task_completed_event_attributes.result.payloads.append(payload)
    return event


async def asked(reference: Payload, converter: DataConverter) -> list[Exception]:
    """What each way to a value makes of a reference."""
    told: list[Exception] = []
    for ask in (
        lambda: converter.decode([reference], [RawValue]),
        lambda: open_payload(reference, converter, most=10),
        lambda: resolve([event_with(reference)], converter),
        lambda: values_of([event_with(reference)], converter),
    ):
        with pytest.raises(LostValueError) as lost:
            await ask()
        told.append(lost.value)
    return told


@pytest.mark.parametrize(
    "claim",
    [
        {},
        *(
            {**claim_with(), "sha256": digest}
            for digest in ("", "ab", "A" * 64, "0" * 63, "0" * 64 + "\n", "\u0660" * 64)
        ),
        *(claim_with(size=size) for size in ("x", "-5", "5.0", "", "\u0665", "9" * 5000)),
        *(claim_with(metadata=told) for told in ("[", "[]", "1", '{"a":1}', '{"a":"\u0100"}', "[" * 100_000)),
        *({key: value for key, value in claim_with().items() if key != name} for name in claim_with()),
    ],
    ids=lambda claim: json.dumps(claim)[:60],
)
async def test_a_claim_that_the_pack_never_wrote_is_a_lost_value_and_is_not_repeated(converter, tmp_path, claim):
    (tmp_path / "blobs").mkdir()
    reference = reference_to(claim)
    for error in await asked(reference, converter):
        assert isinstance(error, MalformedReferenceError)
        assert str(error).endswith("was not written by this pack, or was changed")
    with pytest.raises(MalformedReferenceError):
        size_of(reference)
    with pytest.raises(MalformedReferenceError):
        add_values([event_with(reference)], {})


@pytest.mark.parametrize("climbing", [False, True])
async def test_a_digest_that_is_a_path_opens_no_file(converter, tmp_path, climbing):
    secret = tmp_path / "secret"
    secret.write_bytes(b"12345")
    (tmp_path / "blobs").mkdir()
    digest = "../../../secret" if climbing else str(secret)
    for error in await asked(reference_to(claim_with(sha256=digest)), converter):
        assert isinstance(error, MalformedReferenceError)
        assert "secret" not in str(error)


async def test_a_value_of_another_size_than_its_reference_says_was_changed(converter, tmp_path):
    [reference] = await converter.encode([RawValue(record(LARGE, {}))])
    for size in (0, 5, len(LARGE) + 1, 10**14):
        told = json.loads(reference.data)
        told["claimData"]["size"] = str(size)
        reference.data = json.dumps(told).encode()
        with pytest.raises(LostValueError, match="was changed"):
            await converter.decode([reference], [RawValue])


async def test_nothing_is_no_value_of_five_bytes(converter, tmp_path):
    digest = hashlib.sha256(b"").hexdigest()
    await Folder(tmp_path / "blobs").put(digest, b"")
    with pytest.raises(LostValueError, match="was changed"):
        await converter.decode([reference_to(claim_with(sha256=digest))], [RawValue])


async def test_what_looks_like_a_reference_and_cannot_be_read_is_a_lost_value(converter):
    for text in (b"", b"[", b"\xff", b'{"claimData":7}'):
        reference = reference_to({})
        reference.data = text
        with pytest.raises(MalformedReferenceError):
            await open_payload(reference, converter, most=10)


async def test_references_of_others_stay_when_a_payload_is_opened(converter):
    another = reference_to({"bucket": "b"}, driverName="another-one")
    former = Payload(
        metadata={"encoding": b"json/external-storage-reference"},
        data=json.dumps({"driver_name": "openwop-mcp", "driver_claim": {"claim_data": claim_with()}}).encode(),
    )
    for payload in (another, former):
        assert await open_payload(payload, converter, most=10) == payload
