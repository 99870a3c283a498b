"""Large values of histories that were read: put back into their places, or taken along beside them.

Works on Temporal's protobuf messages as a client fetches them. Workers need none of it: the SDK resolves what it gives
to workflows and activities.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.sdk.v1 import ExternalStorageReference
from temporalio.common import RawValue
from temporalio.converter import DataConverter, JSONProtoPayloadConverter, StorageDriverClaim
from temporalio.converter import StorageDriverRetrieveContext as Retrieval

from ._blobs import DRIVER, LostValueError, StorageError, payload_of

__all__ = ("add_values", "resolve", "resolved", "values_of")

REFERENCE = ExternalStorageReference.DESCRIPTOR.full_name.encode()

AT_ONCE = 8
"""Values that are read at once; each may be as large as the ceiling, and all end up in memory."""


async def resolve(events: Iterable[HistoryEvent], converter: DataConverter) -> None:
    """Put the values in the places of their references, in the events themselves.

    Args:
        events: As fetched from Temporal.
        converter: Of a client that has the storage.

    Raises:
        LostValueError: A value is gone, or has changed.
        StorageError: There is no storage to look in, or it cannot be read now.
    """
    slots = asyncio.Semaphore(AT_ONCE)

    async def put_back(reference: Payload) -> None:
        async with slots:
            try:
                [value] = await converter.decode([reference], [RawValue])
            except ValueError as error:
                # The SDK's word for a driver that it does not know.
                raise StorageError(f"{_named(_read(reference))} cannot be had: {error}") from None
        reference.CopyFrom(value.payload)

    found = list(_references(events))
    if found and converter.external_storage is None:
        raise StorageError(
            f"{_named(_read(found[0]))} is kept outside history, and there is no storage to look in: set storage.driver"
            " as the worker has it that recorded it"
        )
    await asyncio.gather(*map(put_back, found))


async def resolved(event: HistoryEvent, converter: DataConverter) -> HistoryEvent:
    """An event with the values in the places of their references, beside the one that was fetched.

    Messages of one answer are freed together; what is put into a copy is freed with it.

    Raises:
        LostValueError: A value is gone, or has changed.
        StorageError: There is no storage to look in, or it cannot be read now.
    """
    text = event.SerializeToString()
    if REFERENCE not in text:
        return event
    whole = HistoryEvent.FromString(text)
    await resolve([whole], converter)
    return whole


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
        claim = dict(reference.claim_data)
        if claim["sha256"] not in values:
            [value] = await driver.retrieve(Retrieval(), [StorageDriverClaim(claim)])
            values[claim["sha256"]] = value.data
    return values


def add_values(events: Iterable[HistoryEvent], values: Mapping[str, bytes]) -> None:
    """Put values that were taken along in the places of their references.

    Raises:
        LostValueError: One is not among them.
    """
    for payload in _references(events):
        reference = _read(payload)
        digest = reference.claim_data["sha256"]
        if reference.driver_name != DRIVER or digest not in values:
            raise LostValueError(
                "is not among the values beside the history: export it with 'worker.py runs export'",
                digest=digest,
                size=reference.claim_data["size"],
                where="values",
            )
        payload.CopyFrom(payload_of(reference.claim_data, values[digest]))


def _references(events: Iterable[HistoryEvent]) -> Iterator[Payload]:
    for event in events:
        # Most events have none, and to look for the name is much faster than to walk through the fields.
        if REFERENCE in event.SerializeToString():
            yield from _payloads(event)


def _payloads(message: Message) -> Iterator[Payload]:
    """The references anywhere in a message."""
    if isinstance(message, Payload):
        if message.metadata.get("messageType") == REFERENCE:
            yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        several = value.values() if isinstance(value, Mapping) else value
        for item in [value] if isinstance(value, Message) else several:
            if isinstance(item, Message):
                yield from _payloads(item)


def _read(payload: Payload) -> ExternalStorageReference:
    read = JSONProtoPayloadConverter().from_payload(payload, ExternalStorageReference)
    assert isinstance(read, ExternalStorageReference)
    return read


def _named(reference: ExternalStorageReference) -> str:
    digest = reference.claim_data.get("sha256")
    return f"the value with SHA-256 {digest}" if digest else "a value"
