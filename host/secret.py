"""What the hosts of one deployment sign with: made by the first of them, and kept where their runs are.

It proves that something was given out by one of them, and opens nothing: whoever can read it in Temporal can read the
runs there.
"""

from __future__ import annotations

import secrets

from temporalio.client import Client

from openwop_mcp import jsontext

from .siblings import records

__all__ = ("shared_secret",)

NAME = "host:secret"
"""The record that holds it. Persisted: never renamed."""

BYTES = 32
"""As many as the hash has that signs with it."""


async def shared_secret(client: Client) -> bytes:
    """The secret of the namespace's hosts, made now if there is none."""
    while (record := await records.find(client, NAME)) is None:
        await records.make(client, NAME, records.SECRET, jsontext.encode({"secret": secrets.token_hex(BYTES)}))
    return bytes.fromhex(jsontext.decode(record.content)["secret"])
