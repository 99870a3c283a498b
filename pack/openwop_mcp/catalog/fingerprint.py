"""What tells one definition of a tool from another: a hash of what it says, however its JSON is spelled. Pure."""

from __future__ import annotations

import hashlib

from openwop_mcp import jsontext
from openwop_mcp.effects.identity import canonical

__all__ = ("UNSIGNED", "fingerprint")

UNSIGNED = "_meta"
"""The member of a definition that is no part of it: what a server notes there may differ each time that it answers."""


def fingerprint(definition: bytes) -> str:
    """The SHA-256, in hex, of a tool's definition. The order of keys does not count, each digit of a number does.

    Args:
        definition: JSON text of the tool as its server lists it; whatever it holds.

    Raises:
        JsonTextError: if it is not JSON.
    """
    if UNSIGNED.encode() in definition and jsontext.kind(definition) == "object":
        members = jsontext.members(definition)
        definition = jsontext.build((name, value) for name, value in members if name != UNSIGNED)
    return hashlib.sha256(canonical(definition)).hexdigest()
