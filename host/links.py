"""Links to interrupts, for people who have no key of the host: its address, and a token that is good for one of them.

Made by whoever tells somebody of an interrupt, a worker or the command line; read by the hosts. All of them sign with
the keys of the settings, or with what the namespace's hosts share.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from temporalio.client import Client

from openwop_mcp import config

from .secret import shared_secret
from .tokens import Claims, Intent, TokenKeys

__all__ = ("Link", "Links")


@dataclass(frozen=True, slots=True)
class Link:
    """A link. Whoever has it can do what it is for.

    Attributes:
        url: The address.
        expires_at: Seconds since 1970 from which on it is good for nothing.
    """

    url: str
    expires_at: int


class Links:
    """Makes links, and reads the tokens in them.

    Args:
        host: The settings of the hosts.
        environ: The environment, where secrets may be.
        client: Connected to the namespace of the runs.

    Raises:
        SettingsError: A key of the settings cannot be had.
    """

    def __init__(self, host: config.Host, environ: Mapping[str, str], client: Client) -> None:
        self._url = host.url
        self._lifetime = host.token_lifetime
        self._client = client
        self._keys = TokenKeys.of(host.token_keys, environ) if host.token_keys else None

    async def make(
        self,
        *,
        run_id: str,
        node_id: str,
        interrupt_id: str,
        until: float | None = None,
        intent: Intent = "resolve",
    ) -> Link | None:
        """Make a link to an interrupt.

        Args:
            run_id: The run.
            node_id: The node that waits.
            interrupt_id: What it waits with.
            until: Seconds since 1970 after which nobody is waited for any more; None for as long as it takes.
            intent: What the link is for.

        Returns:
            None where the settings do not say what address the host has.

        Raises:
            RPCError: Temporal does not answer.
        """
        if self._url is None:
            return None
        now = time.time()
        ends = now + self._lifetime if until is None else min(now + self._lifetime, until)
        claims = Claims(run_id, node_id, interrupt_id, int(ends), intent)
        token = (await self._held()).sign(claims)
        return Link(f"{self._url.rstrip('/')}/interrupts/{token}", claims.expires_at)

    async def read(self, token: str) -> Claims:
        """Read the token of a link.

        Raises:
            HostError: ``interrupt_token_invalid`` or ``interrupt_expired``.
            RPCError: Temporal does not answer.
        """
        return (await self._held()).read(token, now=time.time())

    async def _held(self) -> TokenKeys:
        if self._keys is None:
            self._keys = TokenKeys.shared(await shared_secret(self._client))
        return self._keys
