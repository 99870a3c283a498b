"""The payload codec: AES-256-GCM, in the format of the samples of Temporal's SDKs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadCodec

from openwop_mcp.sealed import ENCODING, KEY_ID, key_id, told

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ("ENCODING", "KEY_ID", "Encryption", "EncryptionError")

NONCE_BYTES = 12
"""What GCM is made for. They are random, which is safe for 2^32 payloads of one key."""

NOTHING = Payload(metadata={"encoding": b"binary/null"})
"""What is not there. It stays as it is, since Temporal knows by it that a memo is to be taken away."""

IN_THREAD = 256 * 1024
"""Bytes from which on a payload is worked on beside the event loop: below, the way to a thread takes longer."""


class EncryptionError(Exception):
    """A payload cannot be opened. The message names its key and the setting.

    It is an error of a process, and not of what is encrypted: another one may have the key. So it is no failure that
    would end a workflow; Temporal gives the task to a worker again.

    Attributes:
        key_id: The key that the payload names.
    """

    code = "service_unavailable"

    def __init__(self, key_id: str, what: str) -> None:
        super().__init__(what)
        self.key_id = key_id


class Encryption(PayloadCodec):
    """Encrypts payloads, metadata included, and opens them. What is not encrypted passes as it is.

    Nothing beside the payload is bound to it: not the namespace, since a history is to replay in any, nor the key's id,
    which needs no proof where each id has a key of its own.

    Args:
        keys: 32 bytes each, by id. The first one encrypts, and any opens; without one it encrypts nothing and refuses
            what is encrypted.
    """

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._ciphers: dict[str, AESGCM] = {}
        self._first: str | None = next(iter(keys), None)
        self._lacking: EncryptionError | None = None
        self._lacks = asyncio.Event()
        if keys:
            # Here, since it takes 20 ms to import, and most have no keys.
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - see above

            self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}

    @property
    def encrypts(self) -> bool:
        """Whether there is a key."""
        return self._first is not None

    async def missing(self) -> EncryptionError:
        """Wait until a payload came whose key is not here."""
        await self._lacks.wait()
        assert self._lacking is not None
        return self._lacking

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """See base class."""
        if self._first is None:
            return list(payloads)
        return [one if one == NOTHING else await _beside(self._encrypted, one) for one in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """See base class.

        Raises:
            EncryptionError: A payload's key is not here, or does not fit.
        """
        return [await self._open(one) if one.metadata.get("encoding") == ENCODING else one for one in payloads]

    async def glance(self, payload: Payload) -> Payload | None:
        """Open what may be anybody's: None where it is not for this process, which is no fault and told to nobody."""
        if payload.metadata.get("encoding") != ENCODING:
            return payload
        if key_id(payload) not in self._ciphers:
            return None
        try:
            return await _beside(self._decrypted, payload)
        except EncryptionError:
            return None

    async def _open(self, payload: Payload) -> Payload:
        named = key_id(payload)
        if named not in self._ciphers:
            self._lacking = _unknown(named, known=self._ciphers)
            self._lacks.set()
            raise self._lacking
        return await _beside(self._decrypted, payload)

    def _encrypted(self, payload: Payload) -> Payload:
        assert self._first is not None
        nonce = os.urandom(NONCE_BYTES)
        data = nonce + self._ciphers[self._first].encrypt(nonce, payload.SerializeToString(), None)
        return Payload(metadata={"encoding": ENCODING, KEY_ID: self._first.encode()}, data=data)

    def _decrypted(self, payload: Payload) -> Payload:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - it is imported where there are keys alone

        named, data = key_id(payload), payload.data
        try:
            return Payload.FromString(self._ciphers[named].decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], None))
        except (InvalidTag, ValueError):
            raise EncryptionError(
                named,
                f"a value is encrypted with another key than the '{told(named)}' of encryption.keys, or was changed"
                " since: give the id to the key that it was encrypted with",
            ) from None


async def _beside(work: Callable[[Payload], Payload], payload: Payload) -> Payload:
    """Work on a payload: here if it is small, and beside the event loop if it is not."""
    if len(payload.data) < IN_THREAD:
        return work(payload)
    return await asyncio.to_thread(work, payload)


def _unknown(named: str, known: Mapping[str, object]) -> EncryptionError:
    have = f"which is not among {', '.join(known)}" if known else "and this process has none"
    return EncryptionError(
        named,
        f"a value is encrypted with the key '{told(named)}', {have}: add it to encryption.keys, where it has to stay"
        " for as long as what it has encrypted is to be read",
    )
