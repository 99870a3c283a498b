"""What the network's faults are called here.

What the libraries call them is prose; whether a connection was there is the fact. Knows their exceptions and ours.
"""

from __future__ import annotations

import os
import socket
import ssl
from typing import NoReturn

import aiohttp
import httpx

from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import ConnectError, ConnectionLostError, MalformedAnswerError, ResultTooLargeError
from openwop_mcp.protocol import messages

__all__ = ("NETWORK_FAULTS", "name_fault", "too_large")

NETWORK_FAULTS = (httpx.HTTPError, httpx.StreamError, OSError, aiohttp.ClientError)
"""What the libraries raise when the network, or the other end of it, fails."""


def name_fault(error: BaseException, *, connected: bool) -> NoReturn:
    """Raise what a fault of the network is called in our tree.

    Args:
        error: One of :data:`NETWORK_FAULTS`.
        connected: Whether there was a connection to write to.
    """
    cause = error.__cause__ if isinstance(error.__cause__, aiohttp.ClientError | OSError) else error
    if isinstance(cause, aiohttp.ClientResponseError | httpx.DecodingError):
        raise MalformedAnswerError(
            f"the answer {messages.FAULTS['invalid_http']} ({type(cause).__name__})",
            fault="invalid_http",
            delivery=Delivery.UNKNOWN,
        ) from error
    said = _said(getattr(cause, "os_error", cause))
    reason = f"{type(cause).__name__}: {said}" if said else type(cause).__name__
    if connected:
        raise ConnectionLostError(f"the connection broke before the answer was whole ({reason})") from error
    raise ConnectError(f"no connection to the server ({reason})") from error


def too_large(limit: int, setting: str) -> ResultTooLargeError:
    """An answer that was not read further, as it is over a limit."""
    return ResultTooLargeError(
        f"the answer is larger than {limit} bytes and was not read further (setting {setting}); the server has acted",
        delivery=Delivery.ANSWERED,
        limit=limit,
        setting=setting,
    )


def _said(error: object) -> str | None:
    """What the system says of a fault: event loops put words and addresses of their own in its place."""
    if isinstance(error, ssl.SSLError | socket.gaierror) or not isinstance(error, OSError):
        return getattr(error, "strerror", None)
    return os.strerror(error.errno) if error.errno else None
