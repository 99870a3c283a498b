"""Catalogs of tools as others use them: started, read, had refreshed, and told what an operator says.

Reading takes Temporal and the storage of large values, and no worker: a catalog is projected from its workflow's
history, of which each read takes only what is new. Knows no server and no policy.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType, WorkflowExecutionStatus
from temporalio.api.workflow.v1 import WorkflowExecutionInfo
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, GetWorkflowExecutionHistoryRequest
from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.common import RawValue, WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp import jsontext
from openwop_mcp.catalog.names import catalog_id
from openwop_mcp.catalog.pacing import is_backing_off
from openwop_mcp.catalog.projection import CatalogProjector
from openwop_mcp.catalog.start import (
    APPROVE,
    CATALOG_WORKFLOW,
    CLASSIFY,
    REFRESH,
    CatalogStart,
    catalog_queue,
    encode_pages,
)
from openwop_mcp.catalog.state import Catalog
from openwop_mcp.failures import json_payload
from openwop_mcp.storage import LostValueError, StorageError, resolved

__all__ = ("CatalogRefusedError", "Catalogs", "catalog_queue")

SECONDS = timedelta(seconds=5)
"""What Temporal is given for an answer that it has at once. It takes some milliseconds."""

FRESH_WITHIN = 2.0
"""Seconds that a read waits for a server whose list is stale: then the last good one is as much as there is."""

UPDATE_SECONDS = 10.0
"""Seconds that a worker is given to take what an operator says. It takes some milliseconds."""

ASKED_SECONDS = 60.0
"""Seconds after which nobody waits any more for a refresh that was asked for; its end would be read all the same."""

TAKEN = timedelta(seconds=5)
"""Time after which a worker that is there has taken a request, which takes it some milliseconds."""

ANEW = 1.0
"""Seconds for which one request for a refresh stands for all others, forced ones too."""

MAX_BYTES = 64 * 1024 * 1024
"""Bytes of catalogs kept at once: some hundred servers of usual size. The one that was just read is always kept."""

TOOL_BYTES = 1024
"""Bytes that a tool takes up beside its definition: name, fingerprint and what is known of it, as Python holds them."""

_READ = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED,
        EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    }
)
"""Events whose values a catalog is made of, which may be encrypted, or lie in storage."""


class CatalogRefusedError(Exception):
    """What an operator said was not taken. The message says why.

    Attributes:
        code: OpenWOP error code.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class Catalogs:
    """The catalogs of a Temporal namespace, one of these per process; for one event loop.

    Args:
        client: Connected to the namespace, with the storage of the workers.
        task_queue: The task queue of the pack's workers.
        heartbeat: Seconds without a beat after which a worker that lists tools counts as lost.
    """

    def __init__(self, client: Client, *, task_queue: str, heartbeat: float) -> None:
        self._client = client
        self._queue = catalog_queue(task_queue)
        self._heartbeat = heartbeat
        self._readings: OrderedDict[str, _Reading] = OrderedDict()
        self._asked: dict[str, tuple[float, asyncio.Task[bool]]] = {}

    async def start(self, tenant: str, server_id: str) -> bool:
        """Start the catalog of a server, unless it is there. One of another task queue goes on on this one.

        Returns:
            Whether it begins by this: its first list is asked for from now on.

        Raises:
            RPCError: Temporal does not answer.
            LostValueError: What the catalog knew on another task queue is gone from storage, or has changed.
            StorageError: What the catalog knew on another task queue cannot be had now.
        """
        identity = catalog_id(tenant, server_id)
        start = CatalogStart(tenant, server_id, self._heartbeat)
        pages: Sequence[bytes] = ()
        info = await _described(self._client, identity)
        if info is not None and info.type.name == CATALOG_WORKFLOW and info.task_queue != self._queue:
            catalog = await self._taken_over(tenant, server_id, info.execution.run_id)
            if catalog is not None:
                state, pages = catalog.encode()
                start = replace(start, state=state)
        elif info is not None and info.status == WorkflowExecutionStatus.WORKFLOW_EXECUTION_STATUS_RUNNING:
            return False
        try:
            await self._client.start_workflow(
                CATALOG_WORKFLOW,
                args=[RawValue(json_payload(start.encode())), RawValue(json_payload(encode_pages(pages)))],
                id=identity,
                task_queue=self._queue,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                static_summary=f"tools of {server_id}",
                rpc_timeout=SECONDS,
            )
        except WorkflowAlreadyStartedError:
            return False
        return True

    async def read(self, tenant: str, server_id: str) -> Catalog | None:
        """The catalog as it is now; None if there is none. It goes on with later reads: who keeps it keeps no copy.

        Raises:
            RPCError: Temporal does not answer.
            LostValueError: A value of the catalog is gone from storage, or has changed.
            StorageError: A value of the catalog cannot be had now.
        """
        identity = catalog_id(tenant, server_id)
        reading = self._readings.get(identity)
        if reading is None:
            reading = self._readings[identity] = _Reading(self._client, tenant, server_id)
        self._readings.move_to_end(identity)
        catalog = await reading.now()
        if catalog is None and self._readings.get(identity) is reading:
            del self._readings[identity]
        self._make_room()
        return catalog

    async def refresh(self, tenant: str, server_id: str, *, within: float, force: bool = False) -> bool:
        """Have the server listed, also where there is no catalog of it yet.

        Args:
            tenant: Whose catalog.
            server_id: The server.
            within: Seconds to wait for it. It goes on after that.
            force: Have it listed even if that was done within the last second.

        Returns:
            Whether the server was listed, or could not be, in that time. If not, it is slow or there is no worker.
        """
        identity = catalog_id(tenant, server_id)
        now = asyncio.get_running_loop().time()
        since, task = self._asked.get(identity, (now, None))
        if task is None or task.done() or (force and now - since > ANEW):
            task = asyncio.create_task(self._refreshed(tenant, server_id, force=force))
            self._asked[identity] = now, task
            task.add_done_callback(lambda done: self._forget(identity, done))
        done, _ = await asyncio.wait([task], timeout=within)
        return bool(done) and not task.cancelled() and task.result()

    async def fresh(self, tenant: str, server_id: str, *, now: float) -> Catalog | None:
        """The catalog, refreshed before if it is stale, or started if there is none; that takes 2 s at most.

        A server that is known not to answer is not waited for.

        Args:
            tenant: Whose catalog.
            server_id: The server.
            now: Seconds since 1970.

        Returns:
            What it listed last, however long ago; None if nothing is known of it yet.

        Raises:
            As :meth:`read`.
        """
        now_ms = int(now * 1000)
        catalog = await self.read(tenant, server_id)
        if catalog is not None and (not catalog.is_stale(now_ms) or is_backing_off(catalog, now_ms)):
            return catalog
        await self.refresh(tenant, server_id, within=FRESH_WITHIN)
        return await self.read(tenant, server_id)

    async def classify(
        self,
        tenant: str,
        server_id: str,
        tools: Sequence[tuple[str, str]],
        *,
        by: str,
        why: str,
        safety_tier: str | None = None,
        replay_policy: str | None = None,
        egress: str | None = None,
        approval: str | None = None,
    ) -> int:
        """Say what kind of tools some definitions are; what is None is left to the settings.

        Args:
            tenant: Whose catalog.
            server_id: The server.
            tools: Names, each with the fingerprint of the definition that was looked at.
            by: Who says it.
            why: Why, in their words.
            safety_tier: As the setting of that name, like those that follow.
            replay_policy: See ``safety_tier``.
            egress: See ``safety_tier``.
            approval: See ``safety_tier``.

        Returns:
            Of how many tools it was taken.

        Raises:
            CatalogRefusedError: It was not taken.
            RPCError: Temporal does not answer.
        """
        said = {"safetyTier": safety_tier, "replayPolicy": replay_policy, "egress": egress, "approval": approval}
        members = {name: value for name, value in said.items() if value is not None}
        return await self._say(CLASSIFY, tenant, server_id, tools, {**members, "by": by, "why": why})

    async def clear(self, tenant: str, server_id: str, tools: Sequence[tuple[str, str]], *, by: str, why: str) -> int:
        """Take back what was said of tools: the settings hold again. Arguments and the rest as for :meth:`approve`."""
        return await self._say(CLASSIFY, tenant, server_id, tools, {"clear": True, "by": by, "why": why})

    async def approve(self, tenant: str, server_id: str, tools: Sequence[tuple[str, str]], *, by: str, why: str) -> int:
        """Accept definitions that changed.

        Args:
            tenant: Whose catalog.
            server_id: The server.
            tools: Names, each with the fingerprint of the definition that is accepted.
            by: Who accepts it.
            why: Why, in their words.

        Returns:
            Of how many tools it was taken.

        Raises:
            CatalogRefusedError: It was not taken.
            RPCError: Temporal does not answer.
        """
        return await self._say(APPROVE, tenant, server_id, tools, {"by": by, "why": why})

    async def _taken_over(self, tenant: str, server_id: str, run_id: str) -> Catalog | None:
        """End a catalog that no worker of this task queue can keep, and give what it knew in the end."""
        # What cannot be read stays as it is.
        await self.read(tenant, server_id)
        handle = self._client.get_workflow_handle(catalog_id(tenant, server_id), run_id=run_id)
        try:
            await handle.terminate(reason=f"goes on on task queue {self._queue}", rpc_timeout=SECONDS)
        except RPCError as error:
            # It has ended already: by another one that takes it over, or before its new beginning could be written.
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        return await self.read(tenant, server_id)

    async def _say(
        self, update: str, tenant: str, server_id: str, tools: Sequence[tuple[str, str]], members: Mapping[str, object]
    ) -> int:
        told = [{"name": name, "fingerprint": fingerprint} for name, fingerprint in tools]
        text = jsontext.encode({"tools": told, **members})
        handle = self._client.get_workflow_handle(catalog_id(tenant, server_id))
        try:
            async with asyncio.timeout(UPDATE_SECONDS):
                answer = await handle.execute_update(update, RawValue(json_payload(text)), result_type=RawValue)
        except WorkflowUpdateFailedError as error:
            cause = error.cause
            if not isinstance(cause, ApplicationError):
                raise
            raise CatalogRefusedError(cause.message, cause.type or "internal_error") from None
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError):
            raise CatalogRefusedError(
                "no worker took it: start 'worker.py run' or 'worker.py dev' with the same temporal and worker"
                " settings",
                "service_unavailable",
            ) from None
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            raise CatalogRefusedError(f"there is no catalog of server '{server_id}'", "not_found") from None
        count: int = jsontext.decode(answer.payload.data)["tools"]
        return count

    async def _refreshed(self, tenant: str, server_id: str, *, force: bool) -> bool:
        handle = self._client.get_workflow_handle(catalog_id(tenant, server_id))
        asked = uuid.uuid4().hex
        try:
            async with asyncio.timeout(ASKED_SECONDS):
                while True:
                    try:
                        taken = await handle.start_update(
                            REFRESH,
                            RawValue(json_payload(jsontext.encode({"force": force}))),
                            id=asked,
                            wait_for_stage=WorkflowUpdateStage.ACCEPTED,
                            result_type=RawValue,
                            rpc_timeout=TAKEN,
                        )
                        await taken.result()
                    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
                        if isinstance(error.__cause__, asyncio.CancelledError):
                            raise
                        # Nobody takes it where it is, which may be another task queue that had a worker before.
                        force &= not await self.start(tenant, server_id)
                    except RPCError as error:
                        if error.status is not RPCStatusCode.NOT_FOUND:
                            raise
                        # There is none, or it has just gone on in a history of its own. A new one lists at once, which
                        # the next round waits for: one list of it is enough for who insists, too.
                        force &= not await self.start(tenant, server_id)
                    else:
                        return True
        except (
            TimeoutError,
            RPCError,
            WorkflowUpdateFailedError,
            WorkflowUpdateRPCTimeoutOrCancelledError,
            StorageError,
            LostValueError,
        ):
            return False

    def _forget(self, identity: str, task: asyncio.Task[bool]) -> None:
        if self._asked.get(identity, (0.0, None))[1] is task:
            del self._asked[identity]

    def _make_room(self) -> None:
        held = sum(reading.held for reading in self._readings.values())
        while held > MAX_BYTES and len(self._readings) > 1:
            _, gone = self._readings.popitem(last=False)
            held -= gone.held


class _Reading:
    """One catalog, as far as its history was read."""

    def __init__(self, client: Client, tenant: str, server_id: str) -> None:
        self._client = client
        self._tenant = tenant
        self._server_id = server_id
        self._lock = asyncio.Lock()
        self._began = 0.0
        self._run_id = ""
        self._token: bytes | None = b""
        self._taken = 0
        self._projector: CatalogProjector | None = None
        self._version = -1
        self.held = 0

    async def now(self) -> Catalog | None:
        """The catalog as it is now, or as it is found by a read that another began meanwhile."""
        clock = asyncio.get_running_loop().time
        asked = clock()
        async with self._lock:
            if self._began <= asked:
                self._began = clock()
                try:
                    await self._read_on()
                except BaseException:
                    # Those who wait for this read are to read themselves.
                    self._began = 0.0
                    raise
        if self._projector is None:
            return None
        catalog = self._projector.catalog
        if catalog.version != self._version:
            self._version = catalog.version
            self.held = sum(len(page.text) + TOOL_BYTES * len(page.tools) for page in catalog.pages)
        return catalog

    async def _read_on(self) -> None:
        info = await _described(self._client, catalog_id(self._tenant, self._server_id))
        if info is None or info.type.name != CATALOG_WORKFLOW:
            self._projector = None
            return
        if info.execution.run_id != self._run_id or self._projector is None:
            # Each run carries on the state of the one before: the latest is enough.
            self._run_id, self._token, self._taken = info.execution.run_id, b"", 0
            self._projector = CatalogProjector(self._tenant, self._server_id)
        try:
            while self._taken < info.history_length and self._token is not None:
                await self._page(self._projector, self._token)
        except BaseException:
            # Where it was left is not known: the next read begins anew.
            self._projector = None
            raise

    async def _page(self, projector: CatalogProjector, token: bytes) -> None:
        request = GetWorkflowExecutionHistoryRequest(
            namespace=self._client.namespace,
            execution=WorkflowExecution(workflow_id=catalog_id(self._tenant, self._server_id), run_id=self._run_id),
            next_page_token=token,
            # Without it the last page has no token to go on from. It does not wait: there is something to read.
            wait_new_event=True,
        )
        found = await self._client.workflow_service.get_workflow_execution_history(request, retry=True, timeout=SECONDS)
        for event in found.history.events:
            if event.event_type in _READ:
                projector.take(await resolved(event, self._client.data_converter))
            else:
                projector.take(event)
            self._taken = event.event_id
        # None where the run is over; what it was continued as is for the next read.
        self._token = found.next_page_token or None


async def _described(client: Client, identity: str) -> WorkflowExecutionInfo | None:
    """The latest run of a workflow; None if there is none."""
    execution = WorkflowExecution(workflow_id=identity)
    request = DescribeWorkflowExecutionRequest(namespace=client.namespace, execution=execution)
    try:
        described = await client.workflow_service.describe_workflow_execution(request, retry=True, timeout=SECONDS)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return None
    return described.workflow_execution_info
