"""A run that is asked for: what would keep it from being one, its start, and the answer, which is the same each time.

Knows bodies as they were read, and no request.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp import jsontext
from openwop_mcp.runs.definition import Definition
from openwop_mcp.runs.limits import limited
from openwop_mcp.runs.start import RunStart

from . import callbacks, configurable
from .bodies import CreateRun
from .context import Host
from .errors import HostError, invalid, place
from .ids import BoundId
from .listing import RunList
from .pollers import Pollers
from .principals import Principal
from .records import Keyed
from .scopes import START_WITHIN, Scopes
from .siblings import client as runs
from .web import Answer, beside

__all__ = ("Creation",)


class Creation:
    """Creates runs.

    Args:
        host: What the routes share.
        listed: Told of each run, so that it is listed at once.
    """

    def __init__(self, host: Host, listed: RunList) -> None:
        self._host = host
        self._listed = listed
        self._scopes = Scopes(host.client)
        self._pollers = Pollers(host.client, host.task_queue, host.stopping)

    async def create(self, caller: Principal, asked: CreateRun, keyed: Keyed | None, *, enforced: bool) -> Answer:
        """Create a run, or give the answer that the same request had before.

        With a key the run's id follows from it, so that Temporal itself sees to it that there is one run.

        Args:
            caller: Whose run it is to be.
            asked: The run.
            keyed: The request, where it has a key.
            enforced: Whether it is to be the only one of its scope.

        Raises:
            HostError: Why it is not created.
        """
        if keyed is None:
            run_id = BoundId.parse(runs.mint_run_id(caller.tenant), name="runId")
            return await self._start(caller, asked, run_id, None, enforced=enforced)
        records, created = self._host.records, _created(keyed.run_id)
        try:
            return await self._start(caller, asked, keyed.run_id, keyed.content, enforced=enforced)
        except WorkflowAlreadyStartedError:
            refusal = HostError("service_unavailable", "the run is not to be found: ask again", retry_after=1)
        except HostError as error:
            refusal = error
        # What was answered before goes before what is in the way now, such as the run itself in its own scope.
        if (earlier := await records.earlier(keyed, created)) is not None:
            return earlier
        await records.refused(keyed, refusal)
        raise refusal

    async def _start(
        self, caller: Principal, asked: CreateRun, run_id: BoundId, request: bytes | None, *, enforced: bool
    ) -> Answer:
        host = self._host
        definition = host.workflows.get(asked.workflow_id)
        await _check(asked, definition)
        if asked.callback_url is not None:
            await callbacks.check(asked.callback_url, host.settings.host.callback_network)
        start = RunStart(
            run_id=str(run_id),
            definition=definition.raw,
            owner=caller.owner,
            options=limited(host.options, definition, asked.configurable),
            tags=asked.tags,
            metadata=asked.metadata or b"{}",
            configurable=asked.configurable,
            callback_url=asked.callback_url,
        )
        size = len(start.encode()) + len(asked.inputs)
        if size > host.options.call_bytes:
            raise _too_large(f"has {size} bytes with its workflow, and {host.options.call_bytes} at most can be kept")
        if asked.scope_id is not None:
            await self._scopes.claim(caller.tenant, asked.scope_id, str(run_id), enforced=enforced)
        try:
            async with asyncio.timeout(START_WITHIN):
                await runs.start_run(
                    host.client, start, definition, asked.inputs, task_queue=host.task_queue, request=request
                )
        except TimeoutError:
            raise HostError("service_unavailable", "Temporal does not answer now: try again", retry_after=1) from None
        except RPCError as error:
            # Everything else in it has been checked; how much it takes is for its operator to say.
            if error.status is RPCStatusCode.INVALID_ARGUMENT:
                raise _too_large("is more than this Temporal takes") from None
            raise
        self._listed.created(start.run_id)
        self._pollers.created()
        return _created(run_id)


async def _check(asked: CreateRun, definition: Definition) -> None:
    """Refuse what a run would fail with before its first node."""
    schema = jsontext.member(definition.raw, "configurableSchema")
    if schema is not None:
        configurable.check_by(schema, asked.configurable)
    for name, what in await beside(asked.inputs, lambda inputs: definition.misfits(dict(jsontext.members(inputs)))):
        raise invalid(place("inputs", name), what)


def _too_large(why: str) -> HostError:
    return HostError("payload_too_large", f"the run {why}: send less as inputs, metadata and tags")


def _created(run_id: BoundId) -> Answer:
    """The answer. How far the run is by now is not in it, so that it is the same whenever it is given."""
    status_url = f"/runs/{run_id.segment}"
    body = {
        "runId": str(run_id),
        "status": "pending",
        "eventsUrl": f"{status_url}/events",
        "statusUrl": status_url,
    }
    return Answer(HTTPStatus.CREATED, jsontext.encode(body), {"Location": status_url})
