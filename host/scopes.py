"""``OpenWOP-Dedup``: of the runs of a tenant with the same ``scopeId``, one is active at a time.

A scope is a record in Temporal that names its run. It is free once that run has ended, whether or not anybody has
closed it by then; what is left behind is closed now and then. Knows no body and no answer.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from openwop_mcp import jsontext

from .errors import HostError, invalid
from .siblings import records

__all__ = ("HEADER", "Scopes", "asked")

HEADER = "OpenWOP-Dedup"
"""The header that asks for it."""

GRACE = timedelta(seconds=30)
"""How long a scope waits for its run to be there: longer than a start takes, or a host to give it up."""

START_WITHIN = 20.0
"""Seconds that the start of a scope's run is given: well within the grace."""

RETRY_AFTER = 5
"""Seconds after which to ask again for a scope whose run is active. Nobody knows how long that takes."""

TIDIED_EVERY = 600.0
"""Seconds between two looks for scopes that are free and not closed. They only take up room."""

FREE = "its run has ended"
"""Reason of a scope's end."""

TAKEN = "another run of it is active"
"""Reason of the end of a scope that was claimed in vain."""


def asked(header: str | None, scope_id: str | None) -> bool:
    """Read the header: whether a run is to be the only one of its scope.

    Raises:
        HostError: ``validation_error``.
    """
    if header is None:
        return False
    if header != "enforce":
        raise invalid(HEADER, "write enforce, or leave the header out")
    if scope_id is None:
        raise invalid("scopeId", f"write it: {HEADER} asks for a run that is the only one of a scope")
    return True


class Scopes:
    """The scopes of a deployment.

    Args:
        client: Connected to the namespace of the runs.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def claim(self, tenant: str, scope_id: str, run_id: str, *, enforced: bool) -> None:
        """Claim a scope for a run that is about to be started. Of two who do, one gets it.

        It is not given back where the start fails: whether the run came to be is then known after the grace only.

        Args:
            tenant: Whose scope it is.
            scope_id: Which.
            run_id: The run. A scope that has its name is its own.
            enforced: Whether the run is to be the only one. One that need not be is remembered beside those that are
                active, and found among them as soon as Temporal lists it.

        Raises:
            HostError: ``run_already_active``, with the id of the active run.
        """
        name = _name(tenant, scope_id)
        beside = f"{name}:"
        content = jsontext.encode({"runId": run_id})
        while (made := await records.make(self._client, name, records.SCOPE, content, again=True)) is None:
            held = await records.find(self._client, name)
            if held is None or not held.is_open:
                continue
            holder = _run_of(held)
            if holder == run_id:
                return
            if await self._is_active(held):
                if enforced:
                    raise _active(held)
                own = beside + run_id.rpartition("/")[2]
                await records.make(self._client, own, records.SCOPE, content, again=True)
                return
            # Of those who see that it is free, one closes it, and nobody closes what another made in its place.
            await records.close(self._client, name, held.run_id, b"{}", why=FREE)
        if not enforced:
            return
        async for held in records.open_records(self._client, records.SCOPE, prefix=beside):
            if await self._is_active(held):
                await records.close(self._client, name, made, b"{}", why=TAKEN)
                raise _active(held)

    async def tidy(self) -> None:
        """Close the scopes that are free."""
        async for held in records.open_records(self._client, records.SCOPE):
            if not await self._is_active(held):
                await records.close(self._client, held.record_id, held.run_id, b"{}", why=FREE)

    async def keep_tidy(self) -> None:
        """Close what is free, again and again. Several hosts that do it do no harm."""
        while True:
            await asyncio.sleep(TIDIED_EVERY * random.uniform(0.5, 1.5))  # noqa: S311 - so that hosts take turns
            with suppress(RPCError):
                await self.tidy()

    async def _is_active(self, held: records.Record) -> bool:
        run = await records.find(self._client, _run_of(held))
        if run is None:
            return datetime.now(UTC) - held.made_at < GRACE
        return run.status is WorkflowExecutionStatus.RUNNING


def _name(tenant: str, scope_id: str) -> str:
    digest = hashlib.sha256(jsontext.encode([tenant, scope_id])).digest()
    return f"scope:{tenant}/{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _active(held: records.Record) -> HostError:
    return HostError(
        "run_already_active",
        "scopeId: a run of this scope is active: wait for its end, or cancel it",
        {"runId": _run_of(held)},
        retry_after=RETRY_AFTER,
    )


def _run_of(held: records.Record) -> str:
    return str(jsontext.decode(held.content)["runId"])
