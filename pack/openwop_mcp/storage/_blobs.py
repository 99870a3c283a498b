"""The driver that Temporal's SDK stores large payloads with, over any place that keeps bytes by their digest.

A blob is exactly a payload's data, named by its SHA-256, so that who has a digest from the record finds the bytes, and
a value that is recorded twice is kept once. The payload's metadata, with it a result's provenance, travels in the
reference. No reference says where its blob is: blobs can be moved to another place, and found there.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)
from temporalio.exceptions import ApplicationError

__all__ = (
    "DRIVER",
    "BlobStorage",
    "Blobs",
    "Claim",
    "LostValueError",
    "MalformedReferenceError",
    "StorageError",
    "claim_of",
    "payload_of",
    "read_claim",
)

DRIVER = "openwop-mcp"
"""Name of the driver in every reference, so that it is persisted: it is never changed."""


PROBE = b"{}"
"""What is kept to see whether anything can be."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
"""A SHA-256 as it is written here. It becomes part of a path or key, so that nothing else may ever stand there."""

_SIZE = re.compile(r"[0-9]{1,15}")
"""A number of bytes: no value has a petabyte."""


class StorageError(Exception):
    """Storage did not do what it was asked for, and may later. The message names it, the cause and the setting."""

    code = "service_unavailable"


class LostValueError(ApplicationError):
    """A value that history refers to is not there any more, or not what it was.

    Nothing brings it back, so that it ends what needs it instead of being tried for ever: the SDK fails a workflow that
    cannot be given its inputs or results for this reason, and an activity before it does anything.
    """

    def __init__(self, what: str, *, digest: str, size: str, where: str) -> None:
        super().__init__(
            f"the value with SHA-256 {digest} ({size} bytes) {what}",
            {"sha256": digest, "size": size, "where": where},
            type="LostValue",
            non_retryable=True,
        )


class MalformedReferenceError(LostValueError):
    """What looks like a reference to a value says none that could ever have been kept. It is not repeated."""

    def __init__(self) -> None:
        super().__init__(
            "is none that was ever kept: what refers to it was not written by this pack, or was changed",
            digest="unknown",
            size="0",
            where="nowhere",
        )


class Claim(NamedTuple):
    """What a reference says of its value, once it has been looked at.

    Attributes:
        digest: SHA-256 of the data, in lower-case hexadecimal.
        size: Bytes of the data.
        metadata: Of the payload.
    """

    digest: str
    size: int
    metadata: Mapping[str, bytes]


class Blobs(Protocol):
    """A place that keeps bytes by their SHA-256, in lower-case hexadecimal."""

    @property
    def where(self) -> str:
        """The place, for messages."""
        ...

    async def put(self, digest: str, data: bytes) -> None:
        """Keep bytes, or do nothing but note that they are still in use if they are there.

        Raises:
            StorageError: They cannot be kept now.
        """
        ...

    async def get(self, digest: str, size: int) -> bytes | None:
        """The bytes of that name, None if there are none. Whether they have that digest is for the caller to judge.

        What does not have that size is not what was kept, and is not read: ``b""`` stands for it, so that nobody's
        memory is filled by what would be refused.

        Raises:
            StorageError: They cannot be had now.
        """
        ...


class BlobStorage(StorageDriver):
    """Keeps payloads among blobs.

    Args:
        blobs: Where.
    """

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs

    async def check(self) -> None:
        """See whether values can be kept, by keeping a small one.

        Raises:
            StorageError: They cannot.
        """
        await self._blobs.put(_digest(PROBE), PROBE)

    def name(self) -> str:
        """See base class."""
        return DRIVER

    def type(self) -> str:
        """See base class."""
        return DRIVER

    async def store(
        self,
        context: StorageDriverStoreContext,  # noqa: ARG002 - of whom a value is makes no difference to its digest
        payloads: Sequence[Payload],
    ) -> list[StorageDriverClaim]:
        """See base class.

        Raises:
            StorageError: A value cannot be kept now.
        """
        return list(await asyncio.gather(*map(self._store, payloads)))

    async def retrieve(
        self,
        context: StorageDriverRetrieveContext,  # noqa: ARG002 - it is empty
        claims: Sequence[StorageDriverClaim],
    ) -> list[Payload]:
        """See base class.

        Raises:
            LostValueError: A value is gone, or has changed, or there can be none that is as its reference says.
            StorageError: A value cannot be had now.
        """
        return list(await asyncio.gather(*(self._retrieve(claim.claim_data) for claim in claims)))

    async def _store(self, payload: Payload) -> StorageDriverClaim:
        data = payload.data
        digest = await asyncio.to_thread(_digest, data)
        await self._blobs.put(digest, data)
        return StorageDriverClaim(claim_of(digest, len(data), payload.metadata))

    async def _retrieve(self, claim: Mapping[str, str]) -> Payload:
        (digest, length, metadata), where = read_claim(claim), self._blobs.where
        size = str(length)
        data = await self._blobs.get(digest, length)
        if data is None:
            raise LostValueError(
                f"is not in {where}: it was removed, or was written by a worker with another [storage] than this"
                " process has",
                digest=digest,
                size=size,
                where=where,
            )
        if len(data) != length or await asyncio.to_thread(_digest, data) != digest:
            raise LostValueError(f"was changed in {where}", digest=digest, size=size, where=where)
        return payload_of(metadata, data)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def claim_of(digest: str, size: int, metadata: Mapping[str, bytes]) -> dict[str, str]:
    """What stands in history in place of a payload's data, and with its metadata."""
    # Latin-1 has a character for every byte: words stay readable in the record, and anything else comes back as it was.
    told = {key: value.decode("latin-1") for key, value in sorted(metadata.items())}
    return {"sha256": digest, "size": str(size), "metadata": json.dumps(told)}


def read_claim(claim: Mapping[str, str]) -> Claim:
    """What :func:`claim_of` wrote. History may be anybody's, so that nothing of it is believed before it is looked at.

    Raises:
        MalformedReferenceError: It was not written by that.
    """
    digest, size = claim.get("sha256", ""), claim.get("size", "")
    if not _DIGEST.fullmatch(digest) or not _SIZE.fullmatch(size):
        raise MalformedReferenceError
    try:
        told = json.loads(claim.get("metadata", ""))
        metadata = {key: value.encode("latin-1") for key, value in told.items()}
    except (ValueError, AttributeError, RecursionError):
        raise MalformedReferenceError from None
    return Claim(digest, int(size), metadata)


def payload_of(metadata: Mapping[str, bytes], data: bytes) -> Payload:
    """The payload again."""
    return Payload(metadata=metadata, data=data)
