"""What stands in Temporal, encrypted with keys that Temporal does not have.

Owns the format of an encrypted payload, which is that of the samples of Temporal's SDKs, and what is done where a key
is missing. Knows nothing of where payloads travel or lie.

A client, worker or ``Replayer`` of an author's that is to read what the pack recorded needs the same keys::

    client = await Client.connect(address, data_converter=data_converter(load("openwop-mcp.toml")))
"""

from ._codec import ENCODING, KEY_ID, Encryption, EncryptionError
from ._converter import encryption_of, with_encryption
from ._failures import HiddenFailureConverter
from ._reasons import hidden, shown

__all__ = (
    "ENCODING",
    "KEY_ID",
    "Encryption",
    "EncryptionError",
    "HiddenFailureConverter",
    "encryption_of",
    "hidden",
    "shown",
    "with_encryption",
)
