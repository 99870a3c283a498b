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


def name_fault(error: BaseException, *, connected: bool, at: str, setting: str | None = None) -> NoReturn:
    """Raise what a fault of the network is called in our tree.

    Args:
        error: One of :data:`NETWORK_FAULTS`.
        connected: Whether there was a connection to write to.
        at: Host and port of the server.
        setting: The setting that says so, if one does.
    """
    cause = error.__cause__ if isinstance(error.__cause__, aiohttp.ClientError | OSError) else error
    if isinstance(cause, aiohttp.ClientResponseError | httpx.DecodingError):
        raise MalformedAnswerError(
            f"the answer {messages.FAULTS['invalid_http']} ({type(cause).__name__})",
            fault="invalid_http",
            delivery=Delivery.UNKNOWN,
        ) from error
    fault = _beneath(cause)
    said = _said(fault)
    reason = f" ({said})" if said else ""
    if connected:
        raise ConnectionLostError(f"the connection to {at} broke before the answer was whole{reason}") from error
    correct = "" if setting is None else f", or correct the setting {setting}"
    raise ConnectError(f"no connection to the server at {at}{reason}: {_remedy(fault)}{correct}") from error


def too_large(limit: int, setting: str) -> ResultTooLargeError:
    """An answer that was not read further, as it is over a limit."""
    return ResultTooLargeError(
        f"the answer is larger than {limit} bytes and was not read further (setting {setting}); the server has acted",
        delivery=Delivery.ANSWERED,
        limit=limit,
        setting=setting,
    )


def _beneath(error: BaseException) -> object:
    """The fault of the system in one of the library's."""
    for name in ("certificate_error", "os_error"):
        if isinstance(beneath := getattr(error, name, None), OSError):
            return beneath
    return error


def _remedy(fault: object) -> str:
    if isinstance(fault, ssl.SSLError):
        return "see that it speaks TLS there, with a certificate for that name that the worker trusts"
    if isinstance(fault, socket.gaierror):
        return "see that the worker can resolve that name"
    return "see that it runs there"


def _said(error: object) -> str | None:
    """What the system says of a fault: event loops put words and addresses of their own in its place."""
    if isinstance(error, ssl.SSLError):
        return getattr(error, "verify_message", None) or error.reason or error.strerror
    if isinstance(error, socket.gaierror) or not isinstance(error, OSError):
        return getattr(error, "strerror", None)
    return os.strerror(error.errno) if error.errno else None
