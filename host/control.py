"""What is done to a run that is under way: cancelled, paused, resumed. Knows Temporal's answers and no request."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import NoReturn

from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp import jsontext
from openwop_mcp.encryption import hidden
from openwop_mcp.runs.pauses import PAUSE, RESUME, Pause, Resume

from .bodies import BulkCancel
from .errors import HostError
from .ids import BoundId
from .logs import RunLogs
from .siblings import client as runs
from .updates import RunOverError, UpdateRefusedError, update
from .web import Answer

__all__ = ("Control",)

AT_ONCE = 10
"""Runs that one request cancels together."""

CANCELLING = "cancelling"
"""How a run stands whose cancel was accepted. It says itself when it is cancelled."""


class Control:
    """Cancels, pauses and resumes runs.

    Args:
        client: Connected to the namespace of the runs.
        logs: Tell how a run stands that does not do what was asked for.
    """

    def __init__(self, client: Client, logs: RunLogs) -> None:
        self._client = client
        self._logs = logs

    async def cancel(self, run_id: BoundId, reason: str | None) -> Answer:
        """Cancel a run. A second cancel changes nothing and is as good.

        Raises:
            HostError: ``not_found`` or ``run_terminal``.
            RPCError: Temporal does not answer.
        """
        handle = await self._under_way(run_id)
        try:
            await handle.cancel(reason=await hidden(reason or "", self._client.data_converter))
        except RPCError as error:
            _ended_meanwhile(error)
        body = {"runId": str(run_id), "status": CANCELLING}
        return Answer(HTTPStatus.OK, jsontext.encode(body))

    async def cancel_all(self, tenant: str, asked: BulkCancel) -> Answer:
        """Cancel runs, each with a verdict of its own, in the order in which they were named.

        Raises:
            RPCError: Temporal does not answer. Some may be cancelled; to ask again does no harm.
        """
        room = asyncio.Semaphore(AT_ONCE)

        async def verdict(text: str) -> bytes:
            named = ("runId", jsontext.encode(text))
            try:
                run_id = BoundId.parse(text, name="runIds")
                run_id.require_tenant(tenant)
                async with room:
                    await self.cancel(run_id, asked.reason)
            except HostError as error:
                return jsontext.build([named, ("ok", b"false"), ("error", error.envelope)])
            return jsontext.build([named, ("ok", b"true"), ("status", jsontext.encode(CANCELLING))])

        verdicts: Sequence[bytes] = await asyncio.gather(*map(verdict, asked.run_ids))
        return Answer(HTTPStatus.OK, jsontext.build([("results", b"[" + b",".join(verdicts) + b"]")]))

    async def pause(self, run_id: BoundId, asked: Pause, *, again: str | None = None) -> Answer:
        """Pause a run.

        Args:
            run_id: The run.
            asked: How, and why.
            again: Names the request where it may come again; it then counts once.

        Raises:
            HostError: ``not_found``, ``run_terminal``, ``run_state_conflict``, or ``service_unavailable`` if no worker
                took it in time.
            RPCError: Temporal does not answer.
        """
        at = await self._update(run_id, PAUSE, asked.encode(), again)
        body = {"runId": str(run_id), "status": "paused", "pausedAt": at}
        return Answer(HTTPStatus.ACCEPTED, jsontext.encode(body))

    async def resume(self, run_id: BoundId, asked: Resume, *, again: str | None = None) -> Answer:
        """Let a paused run go on. See :meth:`pause`."""
        at = await self._update(run_id, RESUME, asked.encode(), again)
        body = {"runId": str(run_id), "status": "running", "resumedAt": at}
        return Answer(HTTPStatus.ACCEPTED, jsontext.encode(body))

    async def _update(self, run_id: BoundId, name: str, given: bytes, again: str | None) -> str:
        await self._under_way(run_id)
        try:
            taken = await update(self._client, run_id, name, given, again=again)
        except UpdateRefusedError as error:
            await self._refuse(run_id, error)
        except RunOverError:
            raise _ended() from None
        return str(jsontext.decode(taken)["at"])

    async def _under_way(self, run_id: BoundId) -> WorkflowHandle[object, object]:
        handle: WorkflowHandle[object, object] = self._client.get_workflow_handle(str(run_id))
        try:
            found = await handle.describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise _not_found() from None
            raise
        if found.workflow_type != runs.GRAPH_RUN:
            raise _not_found()
        if found.status is not WorkflowExecutionStatus.RUNNING:
            raise _ended()
        return handle

    async def _refuse(self, run_id: BoundId, error: UpdateRefusedError) -> NoReturn:
        """Tell why a run did not take what was asked for."""
        if error.code not in {"run_state_conflict", "run_terminal"}:
            raise error
        log = await self._logs.open(run_id)
        if error.code == "run_terminal" or log.view.is_terminal:
            raise _ended() from None
        status = log.view.status(cancelling=log.cancelling)
        raise HostError(error.code, error.message, {"runStatus": status}) from None


def _not_found() -> HostError:
    return HostError("not_found", "there is no such run")


def _ended() -> HostError:
    return HostError("run_terminal", "the run has ended: nothing of it can be changed any more")


def _ended_meanwhile(error: RPCError) -> NoReturn:
    if error.status is RPCStatusCode.NOT_FOUND:
        raise _ended() from None
    raise error
