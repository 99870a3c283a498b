"""From settings to the codec of a data converter."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping

from temporalio.converter import DataConverter, DefaultFailureConverter

from openwop_mcp.config import Settings, SettingsError

from ._codec import Encryption
from ._failures import HiddenFailureConverter

__all__ = ("encryption_of", "with_encryption")


def encryption_of(settings: Settings, environ: Mapping[str, str]) -> Encryption:
    """The codec of the settings.

    Raises:
        SettingsError: A key cannot be had, or two are the same.
    """
    keys: dict[str, bytes] = {}
    for index, key in enumerate(settings.encryption.keys):
        place = f"encryption.keys[{index}].secret"
        try:
            secret = key.secret.key(environ)
        except SettingsError as error:
            raise SettingsError(f"{place}: {error}") from None
        if secret in keys.values():
            raise SettingsError(f"{place}: another key has the same secret: give each its own")
        keys[key.id] = secret
    return Encryption(keys)


def with_encryption(
    converter: DataConverter, settings: Settings, environ: Mapping[str, str] | None = None
) -> DataConverter:
    """A data converter of an author's, with the encryption of the settings.

    Without keys in the settings it reads and writes as before, and says so where it comes upon what is encrypted. One
    with a codec of its own keeps that. A failure converter of an author's stays too: whether it hides what a failure
    says is then its own affair.

    Args:
        converter: The author's.
        settings: The settings.
        environ: Where secrets may be; by default the environment of the process.

    Raises:
        SettingsError: A key cannot be had, or there are keys and a codec of the author's.
    """
    if isinstance(converter.payload_codec, Encryption):
        return converter
    if converter.payload_codec is not None:
        if settings.encryption.keys:
            raise SettingsError(
                "encryption.keys: the client has a payload codec of its own: take out the keys, or the codec"
            )
        return converter
    codec = encryption_of(settings, os.environ if environ is None else environ)
    encrypting = dataclasses.replace(converter, payload_codec=codec)
    if codec.encrypts and converter.failure_converter_class is DefaultFailureConverter:
        return dataclasses.replace(encrypting, failure_converter_class=HiddenFailureConverter)
    return encrypting
