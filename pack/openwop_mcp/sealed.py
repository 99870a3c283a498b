"""What an encrypted payload says of itself, for whoever may come upon one without a key, as workflow code may.

Knows neither keys nor how anything is opened.
"""

from __future__ import annotations

from temporalio.api.common.v1 import Payload

from openwop_mcp.terminal import escape

__all__ = ("ENCODING", "KEY_ID", "SealedError", "check_open", "key_id", "told")

ENCODING = b"binary/encrypted"
"""What an encrypted payload says that it is. It is never changed: histories hold it."""

KEY_ID = "encryption-key-id"
"""Where it says with which key. Never changed either."""

MAX_KEY_ID = 64
"""Characters of a key's id in a message; it comes from outside."""


class SealedError(Exception):
    """The result of a call is encrypted, and the client of the workflow's worker opens nothing.

    It fails the workflow task and not the workflow, which goes on with a worker whose client has the keys.
    """


def key_id(payload: Payload) -> str:
    """The key that an encrypted payload names."""
    return payload.metadata.get(KEY_ID, b"").decode(errors="replace")


def told(named: str) -> str:
    """A key's id, as it stands in a message."""
    return escape(named[:MAX_KEY_ID])


def check_open(payload: Payload) -> None:
    """Refuse a payload that is still encrypted.

    Raises:
        SealedError: It is.
    """
    if payload.metadata.get("encoding") == ENCODING:
        raise SealedError(
            f"the result is encrypted with the key '{told(key_id(payload))}' of encryption.keys: connect the"
            " client of this worker with data_converter=data_converter(settings), of openwop_mcp.storage"
        )
