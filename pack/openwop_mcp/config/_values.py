"""The types of the values that several tables hold, and what is wrong with those that are none.

Knows nothing of the tables that use them.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints

from openwop_mcp.config._tables import fault

__all__ = (
    "CREDENTIAL_FORMS",
    "AsTuple",
    "Folder",
    "HostPort",
    "Identifier",
    "NotEmpty",
    "Seconds",
    "Tenant",
    "TenantOrAll",
    "Text",
    "Url",
)

CREDENTIAL_FORMS = (
    'credential = { bearer = { env = "NAME" } } or { header = { name = "X-Api-Key", value = { env = "NAME" } } } '
    'or { oauth = { grant = "client_credentials", client_id = "...", client_secret = { env = "NAME" } } }'
)

_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\s:/@\[\]]+):([0-9]{1,5})")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]*)?")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")

MAX_PORT = 65535
"""The highest number that a port can have."""

MAX_LABEL = 63
"""Characters between two dots of a name in DNS."""


def _address(text: str) -> str:
    match = _HOST_PORT.fullmatch(text)
    if match is None or int(match[2]) > MAX_PORT:
        raise ValueError
    return text


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError from None
    if parts.username is not None or parts.password is not None or "@" in parts.netloc:
        raise fault(f"user and password do not belong in a URL: take them out and write {CREDENTIAL_FORMS}")
    if parts.fragment or "#" in text:
        raise fault("a URL with a fragment cannot be called: write it without `#` and what follows")
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise ValueError
    if not text.isascii() or not text.isprintable() or " " in text or _HOST.fullmatch(parts.netloc) is None:
        raise ValueError
    labels = parts.hostname.removesuffix(".").split(".")
    if "[" not in parts.netloc and not all(0 < len(label) <= MAX_LABEL for label in labels):
        raise fault("the host is no name: between its dots stand 1 to 63 characters")
    if "[" in parts.netloc:
        ipaddress.IPv6Address(parts.hostname)
    elif _NUMBER.fullmatch(parts.hostname.rstrip(".").rpartition(".")[2]):
        # Other spellings are read differently by whoever reads them, and some name no address that can be judged.
        try:
            ipaddress.IPv4Address(parts.hostname)
        except ValueError:
            raise fault("an IPv4 address is four decimal numbers, as in 127.0.0.1: write it so, or a name") from None
    return text


def _identifier(text: str) -> str:
    if "?" in text:
        raise fault("a URL with a query identifies nothing: write it without `?` and what follows")
    return _url(text)


def _absolute(text: str) -> str:
    # One that is not would be another folder for each process, by where it was started.
    if not Path(text).is_absolute():
        raise ValueError
    return text


def _tuple(value: object) -> object:
    # TOML has arrays only; strict validation takes no list for a tuple.
    return tuple(value) if isinstance(value, list) else value


def _not_empty(values: tuple[str, ...]) -> tuple[str, ...]:
    # A minimal length given to pydantic counts what is left without bad items, and so tells one fault twice.
    if not values:
        raise ValueError
    return values


Text = Annotated[str, StringConstraints(min_length=1)]
Tenant = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._-]{1,128}$")]
TenantOrAll = Annotated[str, StringConstraints(pattern=r"^(\*|[A-Za-z0-9._-]{1,128})$")]
HostPort = Annotated[str, AfterValidator(_address)]
Url = Annotated[str, AfterValidator(_url)]
Identifier = Annotated[str, StringConstraints(max_length=1024), AfterValidator(_identifier)]
Folder = Annotated[str, AfterValidator(_absolute)]
Seconds = Annotated[float, Field(gt=0)]
AsTuple = BeforeValidator(_tuple)
NotEmpty = AfterValidator(_not_empty)
