"""The table of encryption: which keys what stands in Temporal is encrypted with, and who may ask to have it opened.

Knows what a key is, and nothing of ciphers or payloads.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from openwop_mcp.config._secrets import SecretRef
from openwop_mcp.config._tables import SettingsError, Table, fault
from openwop_mcp.config._values import AsTuple, HostPort, Url

__all__ = (
    "Encryption",
    "EncryptionKey",
    "EncryptionKeyRef",
)

KEY_BYTES = 32
"""Bytes of a key of AES-256."""


def _origin(text: str) -> str:
    parts = urlsplit(text)
    if text != f"{parts.scheme}://{parts.netloc}":
        raise ValueError
    return text


Origin = Annotated[Url, AfterValidator(_origin)]


class EncryptionKeyRef(SecretRef):
    """Where a key of AES-256 is, as base64."""

    def key(self, environ: Mapping[str, str]) -> bytes:
        """Read the key: 32 bytes.

        Raises:
            SettingsError: If it cannot be had, or is no such key.
        """
        return _decoded(super().reveal(environ))

    def reveal(self, environ: Mapping[str, str]) -> str:
        """See base class."""
        text = super().reveal(environ)
        _decoded(text)
        return text


def _decoded(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise SettingsError(
            f"this is no key: it has to be {KEY_BYTES} bytes as base64, as `openssl rand -base64 32` makes"
        )
    return key


class EncryptionKey(Table):
    """A key that payloads are encrypted with."""

    id: Annotated[str, StringConstraints(pattern="^[A-Za-z0-9._-]{1,64}$")] = Field(
        description='a name for the key, 1 to 64 of A-Z a-z 0-9 . _ -, as in id = "2026-11"'
    )
    """It stands beside everything that the key encrypts, so that a key keeps its name for good."""

    secret: EncryptionKeyRef = Field(
        description='32 bytes as base64: secret = { env = "NAME" } or secret = { file = "PATH" }'
    )
    """What encrypts. Without it nobody reads what it has encrypted."""


class Encryption(Table):
    """With what is encrypted what stands in Temporal, and who may have it opened for Temporal's own tools."""

    keys: Annotated[tuple[EncryptionKey, ...], AsTuple] = Field(
        (), description="tables, each as in [[encryption.keys]]"
    )
    """The first encrypts, and any of them opens. Without one nothing is encrypted."""

    bind: HostPort = Field("127.0.0.1:8081", description='host and port, as in bind = "127.0.0.1:8081"')
    """Where ``worker.py codec`` opens payloads for Temporal's UI and command line."""

    ui_origins: Annotated[tuple[Origin, ...], AsTuple] = Field(
        (), description='addresses without a path, as in ui_origins = ["https://temporal.example.org"]'
    )
    """The pages that a browser lets ask there: those of Temporal's UI."""

    @model_validator(mode="after")
    def _each_key_once(self) -> Self:
        ids = [key.id for key in self.keys]
        if len(set(ids)) < len(ids):
            raise fault("two of the keys have the same id: give each its own")
        return self
