"""The notification that a run waits for an answer, sent to whoever created it: signed, and at least once.

It leaves for where the network policy lets it, with what is dialled looked at each time, and follows no redirect. What
a receiver answers beside its status is not read. How a link is made is for who composes the worker.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from openwop_mcp import jsontext
from openwop_mcp.client import HttpPool
from openwop_mcp.config import Host, SettingsError
from openwop_mcp.errors import EgressDeniedError, McpError
from openwop_mcp.logs import about
from openwop_mcp.runs.callbacks import NOTIFY, Callback
from openwop_mcp.runs.events import timestamp

__all__ = ("Linker", "notify_activities")

Linker = Callable[[Callback], Awaitable[tuple[str, int] | None]]
"""Makes the link that an interrupt is answered by, and tells until when it is good, in seconds since 1970; None where
the settings do not say what address the host has."""

EVENT = "interrupt.requested"

DELIVERED = range(200, 300)
AGAIN = frozenset({408, 425, 429, *range(500, 600)})
"""Statuses after which the same notification may be taken."""


def notify_activities(
    pool: HttpPool, host: Host, environ: Mapping[str, str], link: Linker
) -> Sequence[Callable[..., Any]]:
    """The activity that notifies, bound to the connections of one worker.

    Args:
        pool: Its connections, open as long as the worker runs.
        host: The settings of the hosts.
        environ: The environment, where secrets may be.
        link: Makes links.
    """

    @activity.defn(name=NOTIFY)
    async def notify(given: RawValue) -> None:
        callback = Callback.decode(given.payload.data)
        about(run=callback.run_id, node=callback.node_id)
        if callback.until is not None and time.time() * 1000 >= callback.until:
            return
        if host.callback_secret is None:
            raise _failed("this worker's settings have no host.callback_secret to sign it with", again=True)
        try:
            secret = host.callback_secret.reveal(environ)
        except SettingsError as error:
            raise _failed(f"host.callback_secret: {error}", again=True) from None
        body = await _body(callback, link)
        try:
            status = await pool.post(
                callback.url, _headers(callback, body, secret), body, network=host.callback_network
            )
        except EgressDeniedError:
            raise _failed(
                "its receiver is not where callbacks may go (setting host.callback_network)", again=False
            ) from None
        except McpError as error:
            raise _failed(error.message, again=error.retryable) from None
        if status not in DELIVERED:
            raise _failed(f"its receiver answered {status}", again=status in AGAIN)

    return [notify]


async def _body(callback: Callback, link: Linker) -> bytes:
    made = await link(callback) if callback.takes_tokens else None
    if made is None:
        return jsontext.build(callback.shown)
    url, expires_at = made
    return jsontext.build(
        [
            *callback.shown,
            ("resolveUrl", jsontext.encode(url)),
            ("expiresAt", jsontext.encode(timestamp(expires_at * 1000))),
        ]
    )


def _headers(callback: Callback, body: bytes, secret: str) -> dict[str, str]:
    """The headers of a webhook (OpenWOP v2, webhooks)."""
    now = str(int(time.time()))
    signature = hmac.digest(secret.encode(), now.encode() + b"." + body, hashlib.sha256).hex()
    return {
        "Content-Type": "application/json",
        "OpenWOP-Webhook-Id": callback.interrupt_id,
        "OpenWOP-Event-Type": EVENT,
        "OpenWOP-Timestamp": now,
        "OpenWOP-Signature": f"sha256={signature}",
        "OpenWOP-Signature-Algorithm": "v1",
    }


def _failed(why: str, *, again: bool) -> ApplicationError:
    """That it was not delivered. No path and no body: the one may hold a secret, and the other does."""
    return ApplicationError(f"the notification was not delivered: {why}", type="not_delivered", non_retryable=not again)
