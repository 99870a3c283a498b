"""The reason of a cancellation, which Temporal keeps as text, so that no codec gets to see it."""

from __future__ import annotations

import base64
import binascii

from google.protobuf.message import DecodeError
from temporalio.api.common.v1 import Payload
from temporalio.converter import DataConverter

from ._codec import ENCODING, Encryption

__all__ = ("hidden", "shown")

PREFIX = ENCODING.decode() + ":"
"""What an encrypted reason begins with."""


async def hidden(reason: str, converter: DataConverter) -> str:
    """A reason as it is given to Temporal: encrypted, where the converter encrypts."""
    codec = converter.payload_codec
    if not reason or not isinstance(codec, Encryption) or not codec.encrypts:
        return reason
    [payload] = await codec.encode([Payload(metadata={"encoding": b"binary/plain"}, data=reason.encode())])
    return PREFIX + base64.b64encode(payload.SerializeToString()).decode()


async def shown(reason: str, codec: Encryption) -> str:
    """The reason that Temporal was given.

    Raises:
        EncryptionError: Its key is not here.
    """
    if not reason.startswith(PREFIX):
        return reason
    try:
        payload = Payload.FromString(base64.b64decode(reason.removeprefix(PREFIX), validate=True))
    except (binascii.Error, DecodeError):
        return reason
    [opened] = await codec.decode([payload])
    return opened.data.decode(errors="replace")
