"""Where the caller of a run wants to be told that it waits: whether anything may be sent there.

Looks at the URL, and at what its name stands for now. What is dialled is looked at again with each delivery, by the
worker, since a name may stand for something else by then.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from .bodies import CALLBACK_URL
from .errors import HostError, invalid

if TYPE_CHECKING:
    from openwop_mcp.client import Network

__all__ = ("check",)

SECONDS = 2.0
"""What a resolver is given. Where it does not answer, that is found out with the delivery, which is tried for long."""


async def check(url: str, network: Network) -> None:
    """Refuse what is not to be told of anything.

    Args:
        url: The URL.
        network: Where it must lie.

    Raises:
        HostError: ``validation_error``.
    """
    from openwop_mcp.client import denied  # noqa: PLC0415 - an HTTP client costs a start of a host that needs none

    parts = _parts(url, network)
    assert parts.hostname is not None
    addresses = await _resolved(parts.hostname)
    if addresses and all(denied(address, network, named=False) is not None for address in addresses):
        raise _refused("what it names is not where callbacks may go (setting host.callback_network)")


def _parts(url: str, network: Network) -> SplitResult:
    """The parts of a URL that can be called."""
    schemes = {"https", "http"} if network == "private" else {"https"}
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _refused("write a URL") from None
    if not url.isascii() or not url.isprintable() or " " in url or not parts.hostname or port == 0:
        raise _refused("write a URL")
    if parts.scheme not in schemes:
        raise _refused(f"write a URL that begins with {' or '.join(sorted(schemes))}")
    if "@" in parts.netloc or "#" in url:
        raise _refused("write it without user, password and fragment")
    return parts


async def _resolved(name: str) -> list[str]:
    """What a name stands for now; nothing where that is not known."""
    try:
        async with asyncio.timeout(SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError):
        return []
    return [str(address[0]) for *_, address in found]


def _refused(what: str) -> HostError:
    return invalid(CALLBACK_URL, what)
