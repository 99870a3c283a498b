"""Blobs in a bucket of S3, or of what speaks its protocol.

Not the S3 driver of Temporal's SDK: that one names objects by run, so that a value that a run carries on would be
copied with each continue-as-new, and by a digest that the record does not have.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Any

from ._blobs import StorageError

__all__ = ("Bucket",)

FRESH = timedelta(days=1)
"""An object that is older is written anew when its value is recorded again, so that a rule of the bucket which expires
objects by their age counts from when they were last recorded, to within this."""

GONE = frozenset({"404", "NoSuchKey"})


class Bucket:
    """Blobs as objects ``<prefix>ab/cd/abcd…``, as in a :class:`Folder`.

    Credentials, and the region where none is given, come from the environment as AWS's own tools take them.

    Args:
        name: The bucket.
        prefix: Begins every key.
        endpoint: URL of another service than AWS's.
        region: Region of the bucket.

    Raises:
        StorageError: The package that this needs is not installed.
    """

    def __init__(self, name: str, *, prefix: str = "", endpoint: str | None = None, region: str | None = None) -> None:
        if find_spec("aiobotocore") is None:
            raise StorageError('storage.driver = "s3" needs aiobotocore: install openwop-mcp-pack[s3]')
        self._name = name
        self._prefix = prefix
        self._endpoint = endpoint
        self._region = region
        self._session: Any = None

    @property
    def where(self) -> str:
        """See :class:`Blobs`."""
        at = "" if self._endpoint is None else f" at {self._endpoint}"
        return f"the bucket {self._name}{at}" + (f" under {self._prefix}" if self._prefix else "")

    async def put(self, digest: str, data: bytes) -> None:
        """See :class:`Blobs`."""
        key = self._key(digest)
        async with self._client("written to") as s3:
            there = await _found(s3.head_object(Bucket=self._name, Key=key))
            if there and there["ContentLength"] == len(data) and datetime.now(UTC) - there["LastModified"] < FRESH:
                return
            # The service refuses what arrives with another digest.
            checksum = base64.b64encode(bytes.fromhex(digest)).decode()
            await s3.put_object(Bucket=self._name, Key=key, Body=data, ChecksumSHA256=checksum)

    async def get(self, digest: str, size: int) -> bytes | None:
        """See :class:`Blobs`."""
        async with self._client("read") as s3:
            there = await _found(s3.get_object(Bucket=self._name, Key=self._key(digest)))
            if there is None:
                return None
            async with there["Body"] as body:
                if there["ContentLength"] != size:
                    return b""
                data: bytes = await body.read()
                return data

    def _key(self, digest: str) -> str:
        return f"{self._prefix}{digest[:2]}/{digest[2:4]}/{digest}"

    @contextlib.asynccontextmanager
    async def _client(self, doing: str) -> AsyncIterator[Any]:
        """A client for one value. One costs 4 ms, little beside the value, and leaves nobody with a pool to close."""
        # Here, since it takes a quarter of a second and only those with a bucket need it.
        from aiobotocore.session import get_session  # noqa: PLC0415
        from aiohttp import ClientError as ConnectionFault  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            if self._session is None:
                self._session = get_session()
            async with self._session.create_client(
                "s3", endpoint_url=self._endpoint, region_name=self._region
            ) as client:
                yield client
        except (ClientError, BotoCoreError, ConnectionFault, OSError) as error:
            why = _code(error) or type(error).__name__
            raise StorageError(
                f"large values lie in {self.where}, which cannot be {doing} ({why}): see whether storage.bucket, its"
                " region and the credentials in the environment are right"
            ) from error


async def _found(asked: Awaitable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """What S3 answers, None where it says that there is no such object."""
    try:
        return await asked
    except Exception as error:
        if _code(error) in GONE:
            return None
        raise


def _code(error: Exception) -> str | None:
    """What S3 calls an error that it answered with."""
    answer = getattr(error, "response", None)
    return answer.get("Error", {}).get("Code") if isinstance(answer, Mapping) else None
