"""Histories that were read: opened, and large values put back into their places, or taken along beside them.

Works on Temporal's protobuf messages as a client fetches them. Workers need none of it: the SDK resolves what it gives
to workflows and activities.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from google.protobuf.json_format import ParseError
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.failure.v1 import Failure
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.sdk.v1 import ExternalStorageReference
from temporalio.common import RawValue
from temporalio.converter import DataConverter, JSONProtoPayloadConverter, StorageDriverClaim
from temporalio.converter import StorageDriverRetrieveContext as Retrieval

from openwop_mcp import failures
from openwop_mcp.encryption import ENCODING, Encryption, shown

from ._blobs import DRIVER, LostValueError, MalformedReferenceError, StorageError, payload_of, read_claim

__all__ = ("add_values", "bare", "open_events", "open_payload", "resolve", "resolved", "size_of", "values_of")

M = TypeVar("M", bound=Message)

REFERENCE = ExternalStorageReference.DESCRIPTOR.full_name.encode()

_AS_REFERENCE = b"json/protobuf"
"""Encoding of a reference. Under another one the SDK takes it for a value, or for a reference of its first releases,
which the pack never wrote."""

_FORMER = b"json/external-storage-reference"
"""Encoding of those. Nothing of the pack's lies behind one, and its size cannot be told."""

AT_ONCE = 8
"""Values that are read at once; each may be as large as the ceiling, and all end up in memory."""


async def resolve(events: Iterable[HistoryEvent], converter: DataConverter) -> None:
    """Open what is encrypted and put the values in the places of their references, in the events themselves.

    Args:
        events: As fetched from Temporal.
        converter: Of a client that has the storage and the keys.

    Raises:
        EncryptionError: A key is missing.
        LostValueError: A value is gone, or has changed.
        StorageError: There is no storage to look in, or it cannot be read now.
    """
    events = list(events)
    await open_events(events, converter)
    slots = asyncio.Semaphore(AT_ONCE)

    async def put_back(reference: Payload) -> None:
        async with slots:
            reference.CopyFrom(await _value(reference, converter))

    await asyncio.gather(*map(put_back, list(_references(events))))


async def _value(reference: Payload, converter: DataConverter) -> Payload:
    if converter.external_storage is None:
        raise StorageError(
            f"{_named(_read(reference))} is kept outside history, and there is no storage to look in: set"
            " storage.driver as the worker has it that recorded it"
        )
    try:
        [value] = await converter.decode([reference], [RawValue])
    except ValueError as error:
        # The SDK's word for a driver that it does not know.
        raise StorageError(f"{_named(_read(reference))} cannot be had: {error}") from None
    found: Payload = value.payload
    return found


async def open_events(events: Iterable[HistoryEvent], converter: DataConverter) -> None:
    """Open what is encrypted, in the events themselves: payloads, what failures say, and why something was cancelled.

    References to large values stay.

    Args:
        events: As fetched from Temporal.
        converter: Of a client that has the keys.

    Raises:
        EncryptionError: A key is missing.
    """
    # One that has no codec of ours may have the author's, or none: what is encrypted must not be taken for a value.
    codec = converter.payload_codec or Encryption({})
    for event in events:
        # Most are small, and to look for the name is much faster than to walk through the fields.
        if ENCODING not in event.SerializeToString():
            continue
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
            if isinstance(codec, Encryption):
                requested = event.workflow_execution_cancel_requested_event_attributes
                requested.cause = await shown(requested.cause, codec)
            continue
        for payload in _messages(event, Payload):
            if payload.metadata.get("encoding") == ENCODING:
                [opened] = await codec.decode([payload])
                payload.CopyFrom(opened)
        for failure in _messages(event, Failure):
            failures.uncover(failure)


async def open_payload(payload: Payload, converter: DataConverter, *, most: int) -> Payload:
    """A payload that is opened, and that of a reference brought back unless it is too large or another driver's.

    Args:
        payload: As it stands in Temporal.
        converter: Of a client that has the storage and the keys.
        most: Bytes that a value may have which is brought back.

    Raises:
        EncryptionError: A key is missing.
        LostValueError: The value is gone, or has changed.
        MalformedReferenceError: There can be no such value.
        StorageError: It cannot be had now.
    """
    if payload.metadata.get("encoding") == _FORMER:
        return payload
    if _refers(payload):
        reference = _read(payload)
        if reference.driver_name != DRIVER or converter.external_storage is None:
            return payload
        if read_claim(reference.claim_data).size > most:
            return payload
    [value] = await converter.decode([payload], [RawValue])
    opened: Payload = value.payload
    return opened


def size_of(payload: Payload) -> int:
    """Bytes of the value that a payload refers to; 0 where it refers to none.

    Raises:
        MalformedReferenceError: There can be no such value.
    """
    return read_claim(_read(payload).claim_data).size if _refers(payload) else 0


async def resolved(event: HistoryEvent, converter: DataConverter) -> HistoryEvent:
    """An event that is opened, with the values in the places of their references, beside the one that was fetched.

    Messages of one answer are freed together; what is put into a copy is freed with it.

    Raises:
        EncryptionError: A key is missing.
        LostValueError: A value is gone, or has changed.
        StorageError: There is no storage to look in, or it cannot be read now.
    """
    text = event.SerializeToString()
    if REFERENCE not in text and ENCODING not in text:
        return event
    whole = HistoryEvent.FromString(text)
    await resolve([whole], converter)
    return whole


async def bare(event: HistoryEvent, converter: DataConverter) -> HistoryEvent:
    """An event that is opened, with the metadata of large values in place of them, beside the one that was fetched.

    A large value is read only where its metadata is encrypted with it, or another's driver keeps it.

    Raises:
        EncryptionError: A key is missing.
        LostValueError: A value that is read is gone, or has changed.
        StorageError: There is no storage to look in, or it cannot be read now.
    """
    text = event.SerializeToString()
    if REFERENCE not in text and ENCODING not in text:
        return event
    opened = HistoryEvent.FromString(text)
    await open_events([opened], converter)
    for payload in list(_references([opened])):
        reference = _read(payload)
        metadata = read_claim(reference.claim_data).metadata if reference.driver_name == DRIVER else {}
        if metadata.get("encoding", ENCODING) == ENCODING:
            metadata = (await _value(payload, converter)).metadata
        payload.CopyFrom(payload_of(metadata, b""))
    return opened


async def values_of(events: Iterable[HistoryEvent], converter: DataConverter) -> dict[str, bytes]:
    """The values that events refer to, by their SHA-256, as :func:`add_values` takes them.

    Raises:
        LostValueError: A value is gone, or has changed.
        StorageError: There is no storage to look in, or it cannot be read now.
    """
    storage = converter.external_storage
    drivers = {} if storage is None else {driver.name(): driver for driver in storage.drivers}
    values: dict[str, bytes] = {}
    for payload in _references(events):
        reference = _read(payload)
        driver = drivers.get(reference.driver_name)
        if reference.driver_name != DRIVER or driver is None:
            raise StorageError(
                f"{_named(reference)} is kept by the driver '{reference.driver_name}', which this process does not have"
            )
        digest = read_claim(reference.claim_data).digest
        if digest not in values:
            [value] = await driver.retrieve(Retrieval(), [StorageDriverClaim(dict(reference.claim_data))])
            values[digest] = value.data
    return values


def add_values(events: Iterable[HistoryEvent], values: Mapping[str, bytes]) -> None:
    """Put values that were taken along in the places of their references.

    Raises:
        LostValueError: One is not among them.
    """
    for payload in _references(events):
        reference = _read(payload)
        digest, size, metadata = read_claim(reference.claim_data)
        if reference.driver_name != DRIVER or digest not in values:
            raise LostValueError(
                "is not among the values beside the history: export it with 'worker.py runs export'",
                digest=digest,
                size=str(size),
                where="values",
            )
        payload.CopyFrom(payload_of(metadata, values[digest]))


def _references(events: Iterable[HistoryEvent]) -> Iterator[Payload]:
    for event in events:
        # Most events have none, and to look for the name is much faster than to walk through the fields.
        if REFERENCE in event.SerializeToString():
            yield from filter(_refers, _messages(event, Payload))


def _refers(payload: Payload) -> bool:
    told = payload.metadata
    return told.get("messageType") == REFERENCE and told.get("encoding") == _AS_REFERENCE


def _messages(message: Message, kind: type[M]) -> Iterator[M]:
    """The messages of a kind anywhere in a message, each before those that are in it."""
    if isinstance(message, kind):
        yield message
    if isinstance(message, Payload):
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        several = value.values() if isinstance(value, Mapping) else value
        for item in [value] if isinstance(value, Message) else several:
            if isinstance(item, Message):
                yield from _messages(item, kind)


def _read(payload: Payload) -> ExternalStorageReference:
    try:
        read = JSONProtoPayloadConverter().from_payload(payload, ExternalStorageReference)
    except (ParseError, RuntimeError, UnicodeDecodeError, RecursionError):
        raise MalformedReferenceError from None
    assert isinstance(read, ExternalStorageReference)
    return read


def _named(reference: ExternalStorageReference) -> str:
    digest = reference.claim_data.get("sha256")
    return f"the value with SHA-256 {digest}" if digest else "a value"
