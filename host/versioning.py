"""Which contract a request asks for, and which one answers (OpenWOP v2, versioning). Knows two headers and no route."""

from __future__ import annotations

import re

from .errors import HostError

__all__ = ("CLIENT_HEADER", "HEADER", "PROTOCOL_VERSIONS", "VERSION", "client_version", "negotiate")

HEADER = "OpenWOP-Version"
"""Stands in a request that chooses a contract, and in every answer."""

CLIENT_HEADER = "OpenWOP-Client-Version"
"""What the client implements. It chooses nothing."""

VERSION = "2.0"
"""The contract of every answer: what is preferred is all there is."""

PROTOCOL_VERSIONS = (VERSION,)
"""The contracts that are served."""

_ASKED = re.compile(r"(0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*))?")
_CLIENT = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})(?:\.[0-9A-Za-z.+-]{1,64})?")
_MAJORS = frozenset(version.partition(".")[0] for version in PROTOCOL_VERSIONS)


def negotiate(asked: str | None) -> str:
    """Choose the contract for a request.

    Only the major chooses: a minor says what the client knows, and minors only add.

    Args:
        asked: The request's :data:`HEADER`, None if it has none.

    Returns:
        What the answer carries in :data:`HEADER`. A refusal carries :data:`VERSION` too.

    Raises:
        HostError: ``protocol_version_unsupported`` if it is none of ours, or no version at all.
    """
    if asked is None:
        return VERSION
    match = _ASKED.fullmatch(asked.strip(" \t"))
    if match is None or match[1] not in _MAJORS:
        served = ", ".join(PROTOCOL_VERSIONS)
        raise HostError(
            "protocol_version_unsupported",
            f"{HEADER}: this host speaks {served}: ask for that, or leave the header out",
            {"protocolVersions": list(PROTOCOL_VERSIONS)},
        )
    return VERSION


def client_version(header: str | None) -> tuple[int, int] | None:
    """Major and minor of what the client implements; None if it does not say so, or not in these words."""
    match = None if header is None else _CLIENT.fullmatch(header.strip(" \t"))
    return None if match is None else (int(match[1]), int(match[2]))
