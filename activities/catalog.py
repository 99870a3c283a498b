"""The pages of a server's tools for the workflow that keeps them: some at a time, and of those it has only the digest.

Owns how much one batch and one list may hold. Knows no state of a catalog and nothing of what its tools may do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self

from temporalio import activity
from temporalio.client import Client
from temporalio.common import RawValue, VersioningBehavior
from temporalio.exceptions import ApplicationError
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker, WorkerDeploymentConfig

from openwop_mcp import failures, jsontext
from openwop_mcp.catalog.pages import definitions, page_digest, read_page
from openwop_mcp.catalog.start import PUBLISH, catalog_queue
from openwop_mcp.client import CallOptions, McpClient
from openwop_mcp.config import Settings
from openwop_mcp.effects.decide import RetryPolicy
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import InterruptedCallError, McpError, UnexpectedError
from openwop_mcp.failures import json_payload
from openwop_mcp.logs import about
from openwop_mcp.storage import kept_outside

from .beat import Beat, report
from .large import complete_large
from .listen import listen_activities
from .perform import Calls
from .versions import behaving

__all__ = ("catalog_activities", "catalog_worker")

logger = logging.getLogger(__name__)

METHOD = "tools/list"

BATCH_BYTES = 1024 * 1024
"""Bytes of new pages in one batch, more only where a single page has more: what is lost with a worker is read again."""

BATCH_PAGES = 200
"""Pages in one batch, known ones too, each of which is a request: a batch of them takes seconds."""

MAX_PAGES = 5_000
"""Pages of one list. No server is known to have a tenth of it; one that goes on for ever has to end somewhere."""

MAX_TOOLS = 20_000
"""Tools of one list, for the same reason. Where a workflow goes on in a new history it reads all that it knows of them
at once, for which Temporal's SDK gives it 2 s: so many take 0.4 s."""

MAX_BYTES = 64 * 1024 * 1024
"""Bytes of one list, all of which whoever shows it has in memory."""

INLINE_BYTES = 900_000
"""Bytes of one list where history itself has to hold it: with all that is known of tools it goes into what one workflow
hands on to the next, of which Temporal takes 2 MiB."""

TOOL_BYTES = 512
"""Bytes that a tool takes up there beside its definition."""

LONG = 64 * 1024
"""Bytes of a page from which on it is read in a thread: it takes some milliseconds there."""

MAX_AGE = 3_600_000
"""Milliseconds that a list is good for at most, as for any result of a server."""

SLOTS = 5_000
"""Activities at once: they wait for servers, and one of each catalog listens for as long as it can."""

POLLERS = 2
"""Polls for work at once, which is the SDK's least: catalogs have little to do, and nobody waits for most of it."""


def catalog_worker(
    client: Client,
    calls: Calls,
    settings: Settings,
    workflow_class: type,
    *,
    deployment: WorkerDeploymentConfig | None,
) -> Worker:
    """The worker of the catalogs, beside that of a task queue and with slots of its own.

    Args:
        client: Connected to the namespace.
        calls: The calls of the process; entered before the worker runs.
        settings: How much the worker takes on, and the task queue beside which it is.
        workflow_class: ``CatalogWorkflow``.
        deployment: The worker deployment that the process is of, if any.
    """
    own = settings.worker
    return Worker(
        client,
        task_queue=catalog_queue(own.task_queue),
        workflows=[workflow_class],
        activities=[*catalog_activities(calls, settings), *listen_activities(calls)],
        max_concurrent_activities=SLOTS,
        workflow_task_poller_behavior=PollerBehaviorSimpleMaximum(POLLERS),
        activity_task_poller_behavior=PollerBehaviorSimpleMaximum(POLLERS),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=own.sticky_timeout),
        graceful_shutdown_timeout=timedelta(seconds=own.shutdown_grace),
        # It never ends, so that a version that it was pinned to could never be taken down.
        deployment_config=behaving(deployment, VersioningBehavior.AUTO_UPGRADE),
    )


def catalog_activities(calls: Calls, settings: Settings) -> Sequence[Callable[..., Any]]:
    """The activity, bound to the calls of one worker.

    Args:
        calls: The calls.
        settings: What a list may hold, and how its server is reached.
    """

    @activity.defn(name=PUBLISH)
    async def publish(request: RawValue) -> RawValue:
        began = time.monotonic()
        asked = _Asked.decode(request.payload.data)
        about(run=activity.info().workflow_id, server=asked.server_id, tenant=asked.tenant)

        def record() -> bytes:
            return jsontext.encode(
                {"delivery": Delivery.UNKNOWN.value, "repeatSafe": True, "serverId": asked.server_id, "method": METHOD}
            )

        try:
            client = calls.client(asked.server_id, asked.tenant)
            http = settings.servers[asked.server_id].url is not None
            batch = _Batch(client, asked, _Ceiling.of(settings.limits.result_bytes), http=http)
            with calls.room.held():
                async with Beat(record, grace=0) as beat:
                    answer = json_payload(await beat.hold(batch.gather()))
                await complete_large(answer, record, grace=settings.worker.shutdown_grace)
        except (Exception, asyncio.CancelledError) as caught:
            failure = _failure(caught, asked)
            if failure is None:
                raise
            await report(failure, began=began)
            raise failure from None
        await report(answer, began=began)
        return RawValue(answer)

    return [publish]


def _failure(caught: BaseException, asked: _Asked) -> ApplicationError | None:
    """What the workflow is told of a batch that was not listed; None for what is Temporal's own."""
    match caught:
        case McpError():
            error = caught
        case asyncio.CancelledError() if activity.is_worker_shutdown():
            error = InterruptedCallError(
                "the worker shut down while it listed the server's tools", cancelled=False, delivery=Delivery.UNKNOWN
            )
        case Exception():
            logger.error("a list of tools ended by a fault of the client itself", exc_info=caught)
            error = UnexpectedError(type(caught).__name__)
        case _:
            return None
    return failures.write(error, repeat_safe=True, policy=RetryPolicy(), serverId=asked.server_id, method=METHOD)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked for: the next pages of a list.

    Attributes:
        tenant: On whose behalf.
        server_id: The server.
        cursor: Of the first page; None for the beginning of the list.
        pages: Pages that were listed before.
        tools: Tools on them.
        size: Bytes of them.
        known: Digests of pages of which the workflow has the text.
        seen: Digests of the pages that were listed before.
    """

    tenant: str
    server_id: str
    cursor: str | None
    pages: int
    tools: int
    size: int
    known: frozenset[str]
    seen: frozenset[str]

    @classmethod
    def decode(cls, data: bytes) -> Self:
        told = jsontext.decode(data)
        return cls(
            told["tenant"],
            told["serverId"],
            told.get("cursor"),
            int(told["from"]),
            int(told["tools"]),
            int(told["bytes"]),
            frozenset(told["known"]),
            frozenset(told["seen"]),
        )


@dataclass(frozen=True, slots=True)
class _Ceiling:
    """How much one list may hold.

    Attributes:
        size: Bytes of its pages.
        tool: Bytes that each tool counts beside its definition.
        why: What the ceiling is, for people.
    """

    size: int
    tool: int
    why: str

    @classmethod
    def of(cls, result_bytes: int) -> Self:
        if not kept_outside(activity.client().data_converter):
            return cls(
                INLINE_BYTES,
                TOOL_BYTES,
                f"the {INLINE_BYTES} bytes that Temporal's history has room for; this worker's client has no storage"
                " for more (setting storage.driver)",
            )
        if result_bytes < MAX_BYTES:
            return cls(result_bytes, 0, f"the {result_bytes} bytes of the setting limits.result_bytes")
        return cls(MAX_BYTES, 0, f"{MAX_BYTES} bytes")


class _Batch:
    """Some pages of a list.

    Args:
        client: The server's.
        asked: Which pages.
        ceiling: How much the list may hold.
        http: Whether the server is reached over HTTP.
    """

    def __init__(self, client: McpClient, asked: _Asked, ceiling: _Ceiling, *, http: bool) -> None:
        self._client = client
        self._asked = asked
        self._ceiling = ceiling
        self._http = http
        self._options = CallOptions(tenant=asked.tenant, revalidate=True)
        self._entries: list[bytes] = []
        self._new_bytes = 0
        self._pages = asked.pages
        self._tools = asked.tools
        self._size = asked.size
        self._seen = set(asked.seen)
        self._ttl = MAX_AGE

    async def gather(self) -> bytes:
        """List the pages.

        Returns:
            JSON text of the batch, see the workflow's state.

        Raises:
            McpError: The server did not give one of them.
        """
        listed_at = _now()
        cursor = self._asked.cursor
        ended: str | None = None
        while True:
            page = (await self._client.list_tools(cursor, self._options)).result
            digest = page_digest(page, http=self._http)
            if digest in self._seen:
                ended = "the server sent a page for the second time"
                break
            if (ended := await self._add(page, digest)) is not None:
                break
            following = _cursor(page)
            if following is None:
                cursor = None
                break
            if following == cursor:
                ended = "a page names itself as the one that follows it"
                break
            cursor = following
            if self._new_bytes >= BATCH_BYTES or len(self._entries) >= BATCH_PAGES:
                break
        members = [
            ("from", jsontext.encode(self._asked.pages)),
            ("pages", b"[" + b",".join(self._entries) + b"]"),
            ("ttlMs", jsontext.encode(self._ttl)),
            ("listedAt", jsontext.encode(listed_at)),
        ]
        if ended is not None:
            members.append(("ended", jsontext.encode(ended)))
        elif cursor is not None:
            members.append(("next", jsontext.encode(cursor)))
        return jsontext.build(members)

    async def _add(self, page: bytes, digest: str) -> str | None:
        """Take a page into the batch; why the list ends before it, where it does."""
        found = await _apart(len(page), definitions, page)
        if self._pages + 1 > MAX_PAGES:
            return f"it has more than {MAX_PAGES} pages"
        if self._tools + len(found) > MAX_TOOLS:
            return f"it has more than {MAX_TOOLS} tools"
        if self._size + len(page) + self._ceiling.tool * (self._tools + len(found)) > self._ceiling.size:
            return f"it is larger than {self._ceiling.why}"
        self._pages += 1
        self._tools += len(found)
        self._size += len(page)
        self._seen.add(digest)
        self._ttl = min(self._ttl, _ttl(page))
        entry = [("digest", jsontext.encode(digest))]
        if digest not in self._asked.known:
            tools = await _apart(len(page), self._read, page)
            entry += [("page", page), ("tools", tools)]
            self._new_bytes += len(page)
        self._entries.append(jsontext.build(entry))
        return None

    def _read(self, page: bytes) -> bytes:
        tools = read_page(page, http=self._http)
        return jsontext.encode([[tool.name, tool.fingerprint, tool.unusable] for tool in tools])


async def _apart(size: int, work: Callable[[bytes], Any], page: bytes) -> Any:
    """Work through a page; through a large one in a thread, so that calls of this worker go on meanwhile."""
    return work(page) if size < LONG else await asyncio.to_thread(work, page)


def _cursor(page: bytes) -> str | None:
    """The cursor of the page that follows; None where none does."""
    found = jsontext.member(page, "nextCursor")
    if found is None or jsontext.kind(found) != "string":
        return None
    cursor: str = jsontext.decode(found)
    return cursor


def _ttl(page: bytes) -> int:
    """Milliseconds that a page is good for: what is no whole positive number of them means not at all."""
    found = jsontext.member(page, "ttlMs")
    if found is None or jsontext.kind(found) != "number":
        return 0
    value = jsontext.decode(found)
    if value >= MAX_AGE:
        return MAX_AGE
    return int(value) if value > 0 and value % 1 == 0 else 0


def _now() -> int:
    return int(time.time() * 1000)
