"""What a sound answer to a call is, which the server sends and the runner knows without asking."""

from __future__ import annotations

import hashlib
import json

__all__ = ("LIE", "envelope", "nonce_of", "notice", "sound")

LIE = b'{"resultType":"complete","content":[],"tools":[],"contents":[],"lie":true}'
"""A result that no call may come back with."""

PREFIX = "chaos://"
"""Before the nonce in the URI of a resource."""


def sound(nonce: str) -> bytes:
    """The one result of a call, byte for byte: its digest, odd white space, and padding of a length of its own."""
    digest = hashlib.sha256(nonce.encode()).digest()
    # Mostly small, now and then some kilobytes.
    padding = "é\\u0000 " * (digest[0] if digest[1] % 8 else 8 * digest[0])
    return (
        f'{{ "resultType" :"complete","content":[],"tools":[],"contents":[],"nonce":{json.dumps(nonce)},'
        f'"digest":"{digest.hex()}","n":1.50E+2,\t"padding":"{padding}"}}'
    ).encode()


def nonce_of(message: dict) -> str | None:
    """The nonce that a request carries, if it is one of the calls."""
    params = message.get("params") or {}
    match message.get("method"):
        case "tools/call":
            return params["arguments"]["nonce"]
        case "tools/list":
            return params.get("cursor")
        case "resources/read":
            return params["uri"].removeprefix(PREFIX)
    return None


def envelope(request_id: object, member: str, value: bytes) -> bytes:
    return b'{"jsonrpc":"2.0","id":%b,"%b":%b}' % (json.dumps(request_id).encode(), member.encode(), value)


def notice(method: str, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}).encode()
