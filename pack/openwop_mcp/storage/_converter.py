"""From settings to the data converter that a client of Temporal is given."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from temporalio.converter import DataConverter, ExternalStorage

from openwop_mcp._state import state_folder
from openwop_mcp.ceilings import INLINE_BYTES, INLINE_RESULT, telling
from openwop_mcp.config import Settings, Storage
from openwop_mcp.encryption import with_encryption

from ._blobs import Blobs, BlobStorage
from ._folder import Folder
from ._s3 import Bucket

__all__ = ("check_storage", "data_converter", "kept_outside", "with_storage")


def data_converter(settings: Settings) -> DataConverter:
    """The SDK's own data converter, with the storage and the encryption of the settings.

    Raises:
        StorageError: ``storage.driver`` needs a package that is not installed.
        SettingsError: A key of ``encryption.keys`` cannot be had.
    """
    return with_encryption(with_storage(DataConverter.default, settings), settings)


def with_storage(converter: DataConverter, settings: Settings) -> DataConverter:
    """A data converter of an author's, with the storage of the settings.

    One that has external storage already keeps it, and one with a codec its codec: what is stored is what would have
    stood in history. With ``storage.driver = "none"`` the converter is given back as it is.

    Raises:
        StorageError: ``storage.driver`` needs a package that is not installed.
    """
    external = converter.external_storage
    if external is None:
        blobs = _blobs(settings.storage)
        if blobs is None:
            return converter
        external = ExternalStorage([BlobStorage(blobs)], payload_size_threshold=INLINE_BYTES)
    stored = dataclasses.replace(converter, external_storage=external)
    if not kept_outside(stored):
        return stored
    telling_class = telling(converter.payload_converter_class, settings.limits.call_bytes)
    return dataclasses.replace(stored, payload_converter_class=telling_class)


def kept_outside(converter: DataConverter) -> bool:
    """Whether a client with this converter keeps outside history what history cannot hold."""
    storage = converter.external_storage
    return storage is not None and storage.payload_size_threshold <= INLINE_RESULT


async def check_storage(converter: DataConverter) -> None:
    """See whether large values can be kept, before a server has answered with one.

    Raises:
        StorageError: They cannot.
    """
    storage = converter.external_storage
    for driver in () if storage is None else storage.drivers:
        if isinstance(driver, BlobStorage):
            await driver.check()


def _blobs(storage: Storage) -> Blobs | None:
    match storage.driver:
        case "none":
            return None
        case "s3":
            assert storage.bucket is not None
            return Bucket(storage.bucket, prefix=storage.prefix, endpoint=storage.endpoint, region=storage.region)
        case "folder":
            return Folder(Path(storage.folder) if storage.folder else state_folder(os.environ) / "blobs")
