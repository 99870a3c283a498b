"""Large values, kept outside Temporal's history by their digest; history holds references to them.

A client, worker or ``Replayer`` of an author's that is to read what the pack recorded needs the same storage::

    client = await Client.connect(address, data_converter=data_converter(load("openwop-mcp.toml")))

It is built on the external storage of Temporal's SDK, which the SDK calls experimental.
"""

from ._blobs import Blobs, BlobStorage, LostValueError, MalformedReferenceError, StorageError
from ._converter import check_storage, data_converter, kept_outside, with_storage
from ._folder import Folder
from ._histories import add_values, bare, open_events, open_payload, resolve, resolved, size_of, values_of
from ._s3 import Bucket

__all__ = (
    "BlobStorage",
    "Blobs",
    "Bucket",
    "Folder",
    "LostValueError",
    "MalformedReferenceError",
    "StorageError",
    "add_values",
    "bare",
    "check_storage",
    "data_converter",
    "kept_outside",
    "open_events",
    "open_payload",
    "resolve",
    "resolved",
    "size_of",
    "values_of",
    "with_storage",
)
