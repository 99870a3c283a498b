"""``CatalogWorkflow``: what one server offers one tenant, as a Temporal workflow that lists it anew when it is due.

Decides when the server is asked, and carries on what its state machine keeps. The same machine, fed from history, is
the catalog that others read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError

with workflow.unsafe.imports_passed_through():
    from openwop_mcp import failures, jsontext, terminal
    from openwop_mcp.catalog.drift import differences
    from openwop_mcp.catalog.pacing import pause
    from openwop_mcp.catalog.start import (
        APPROVE,
        CATALOG_WORKFLOW,
        CHANGED,
        CLASSIFY,
        PUBLISH,
        REFRESH,
        CatalogStart,
        decode_pages,
        encode_pages,
    )
    from openwop_mcp.catalog.state import Catalog, Change, Kind

__all__ = ("CatalogWorkflow",)

LISTEN = "mcp.listen"
"""Type of the activity that hears what a server tells of its tools."""

FILTER = b'{"toolsListChanged":true}'
"""What it is to hear of (MCP 2026-07-28, subscriptions)."""

BATCH_TIMEOUT = timedelta(hours=2)
"""Backstop for one batch. The limits that matter are the server's ``timeouts``, in the worker."""

LISTEN_TIMEOUT = timedelta(days=365)
"""A subscription lasts for as long as its worker does."""

LISTEN_HEARTBEAT = timedelta(seconds=60)
"""Seconds without a beat after which the worker of a subscription counts as lost. Meanwhile the server is listed from
time to time, so that nothing is missed for long; more beats would be most of what an idle catalog costs."""

LISTEN_AGAIN = timedelta(hours=1)
"""When a server that would not be listened to is asked again: most of them have no subscriptions."""

JUST_NOW = 1_000
"""Milliseconds for which a list of which the server has not said for how long it is good is new enough for anyone who
does not insist."""

JITTER = 0.25
"""By how much a pause is longer at most, so that catalogs of a worker that was started anew do not stay in step."""

MAX_TOLD = 20
"""Changed tools that one refresh tells in the log, and fields of each: the catalog has all of them."""

MAX_COMPARED = 64 * 1024
"""Bytes of definitions that one refresh compares for the log: to compare more may take longer than a workflow may."""

MAX_NAME = 100
"""Characters of a tool's name, and of the path of a field, in the log."""

INSISTED = "openwop-mcp.forced-list-begins-after"
"""Patch: a list that is forced while the first is under way is another one, which has what the server changed
meanwhile."""

ONE_ATTEMPT = RetryPolicy(maximum_attempts=1)

# Says nothing on replay.
_logger = workflow.LoggerAdapter(logging.getLogger("openwop_mcp.catalog"), None)
_logger.workflow_info_on_message = False


# Unsandboxed for the same reason as the runs.
@workflow.defn(name=CATALOG_WORKFLOW, sandboxed=False)
class CatalogWorkflow:
    """The tools of one server."""

    @workflow.init
    def __init__(self, start: RawValue, pages: RawValue) -> None:
        self._start = CatalogStart.decode(start.payload.data)
        state, tenant, server_id = self._start.state, self._start.tenant, self._start.server_id
        self._catalog = (
            Catalog(tenant, server_id) if state is None else Catalog.decode(state, decode_pages(pages.payload.data))
        )
        self._since = _now()
        self._begun = 0
        self._ended = 0
        self._ended_at = 0
        self._wanted = False
        self._leaving = False
        self._listening: asyncio.Task[None] | None = None
        # What had drifted before was told by the run before.
        self._told = {name for name in self._catalog.names() if self._has_drifted(name)}

    @workflow.run
    async def run(self, start: RawValue, pages: RawValue) -> None:
        """Keep the catalog, for as long as nobody ends it.

        Args:
            start: JSON text of a ``CatalogStart``.
            pages: JSON text of an array of the pages that are carried on.
        """
        del start, pages  # read in __init__, where a replay finds them as well
        while True:
            await self._refresh()
            if workflow.info().is_continue_as_new_suggested():
                break
            if self._listening is None and self._catalog.failure is None:
                self._listening = asyncio.create_task(self._listen())
            await self._until_due()
        # Who waits for another refresh hears of this one: the next run begins with one.
        self._leaving = True
        await workflow.wait_condition(workflow.all_handlers_finished)
        state, carried = self._catalog.encode()
        parts = [replace(self._start, state=state).encode(), encode_pages(carried)]
        workflow.continue_as_new(args=[RawValue(failures.json_payload(part)) for part in parts])

    @workflow.update(name=REFRESH)
    async def refresh(self, given: RawValue) -> RawValue:
        """Have the server listed, and wait for it.

        Args:
            given: JSON text ``{"force": bool}``: whether also where that was done within the last second, and the list
                is good for as long by its server's word, or the server has said nothing of it.

        Returns:
            JSON text ``{"listedAt": ms or null, "failure"?: {"code", "message", "at", "since"}}``.
        """
        now = _now()
        is_old = self._ended_at < now - JUST_NOW or (self._catalog.ttl_ms > 0 and self._catalog.is_stale(now))
        is_forced = jsontext.member(given.payload.data, "force") == b"true"
        if is_forced or is_old:
            wanted = self._begun + 1
            # The first list of all is under way for whoever asks first, and does not insist on one that begins now.
            if self._is_new and not (is_forced and self._begun and workflow.patched(INSISTED)):
                wanted = 1
            self._wanted |= wanted > self._begun
            await workflow.wait_condition(lambda: self._ended >= wanted or self._leaving)
        failure = self._catalog.failure
        told = {"listedAt": self._catalog.listed_at, **({} if failure is None else {"failure": asdict(failure)})}
        return RawValue(failures.json_payload(jsontext.encode(told)))

    @workflow.update(name=CLASSIFY)
    def classify(self, given: RawValue) -> RawValue:
        """Take what an operator says of tools.

        Args:
            given: JSON text, see ``Catalog.classified``.

        Returns:
            JSON text ``{"tools": …}``: of how many it was taken.
        """
        self._catalog.classified(given.payload.data, _now())
        return _count(given)

    @classify.validator
    def _check_classify(self, given: RawValue) -> None:
        self._check("classify", given)

    @workflow.update(name=APPROVE)
    def approve(self, given: RawValue) -> RawValue:
        """Take that an operator accepts definitions which changed.

        Args:
            given: JSON text, see ``Catalog.approved``.

        Returns:
            As :meth:`classify`.
        """
        self._catalog.approved(given.payload.data, _now())
        # What is accepted, and then changes again, is told again.
        self._told.clear()
        return _count(given)

    @approve.validator
    def _check_approve(self, given: RawValue) -> None:
        self._check("approve", given)

    @workflow.signal(name=CHANGED)
    def changed(self, change: RawValue) -> None:
        """Hear that the server has told of a change, or may have done so unheard.

        Args:
            change: JSON text ``{"serverId", "changes", "missed"}``.
        """
        del change  # whatever it is, it is a reason to look
        self._wanted = True

    def _check(self, kind: Kind, given: RawValue) -> None:
        if (refusal := self._catalog.refuses(kind, given.payload.data)) is not None:
            raise ApplicationError(refusal, type="validation_error", non_retryable=True)

    @property
    def _is_new(self) -> bool:
        return self._catalog.listed_at is None and self._catalog.failure is None

    async def _refresh(self) -> None:
        """List the server, batch by batch."""
        self._wanted = False
        self._begun += 1
        while True:
            try:
                answer: RawValue = await workflow.execute_activity(
                    PUBLISH,
                    RawValue(failures.json_payload(self._catalog.publish_request())),
                    result_type=RawValue,
                    start_to_close_timeout=BATCH_TIMEOUT,
                    heartbeat_timeout=timedelta(seconds=self._start.heartbeat),
                    retry_policy=ONE_ATTEMPT,
                    summary=f"tools of {self._start.server_id}",
                )
            except ActivityError as error:
                self._catalog.failed(*_why(error), _now())
            else:
                version = self._catalog.version
                self._tell(self._catalog.published(answer.payload.data, _now()))
                if self._catalog.version != version:
                    self._since = _now()
            if not self._catalog.is_gathering:
                break
        self._ended, self._ended_at = self._begun, _now()

    async def _until_due(self) -> None:
        """Wait until the server is to be listed again: someone asks for it, or it is time."""
        spread = 1 + JITTER * workflow.random().random()
        due = timedelta(milliseconds=pause(self._catalog, self._since) * spread)
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(lambda: self._wanted, timeout=due, timeout_summary="until listed again")

    async def _listen(self) -> None:
        """Listen to the server, for as long as it can be listened to."""
        start = self._start
        request = {"serverId": start.server_id, "workflowId": workflow.info().workflow_id, "signal": CHANGED}
        asked = [*((name, jsontext.encode(value)) for name, value in request.items()), ("notifications", FILTER)]
        while True:
            try:
                await workflow.execute_activity(
                    LISTEN,
                    RawValue(
                        failures.json_payload(jsontext.build([*asked, ("tenant", jsontext.encode(start.tenant))]))
                    ),
                    result_type=RawValue,
                    start_to_close_timeout=LISTEN_TIMEOUT,
                    heartbeat_timeout=LISTEN_HEARTBEAT,
                    retry_policy=ONE_ATTEMPT,
                    summary=f"changes of {start.server_id}",
                )
            except ActivityError as error:
                if "again" not in dict(asked):
                    asked.append(("again", b"true"))
                if _lost_its_worker(error):
                    continue
            await workflow.sleep(LISTEN_AGAIN, summary="until listened to again")

    def _has_drifted(self, name: str) -> bool:
        standing = self._catalog.standing(name)
        return standing is not None and standing.drifted

    def _tell(self, changes: Sequence[Change]) -> None:
        """Say in the log which tools are no longer what was accepted: once, however often they change after that."""
        changed = [one.tool for one in changes if one.what in {"changed", "returned"} and one.tool not in self._told]
        drifted = [name for name in changed if self._has_drifted(name)]
        self._told.update(drifted)
        if workflow.unsafe.is_replaying():
            return
        of = f"server {self._start.server_id}, tenant {self._start.tenant}"
        left = MAX_COMPARED
        for tool in filter(None, map(self._catalog.tool, drifted[:MAX_TOLD])):
            before = tool.accepted_definition or b""
            size = len(before) + len(tool.definition)
            paths = [one.path for one in differences(before, tool.definition)] if before and size <= left else []
            left -= size if paths else 0
            fields = ", ".join(terminal.escape(path[:MAX_NAME] or "all of it") for path in paths[:MAX_TOLD])
            _logger.warning(
                "%s: the definition of tool %s changed%s; see 'worker.py tools diff %s'",
                of,
                terminal.escape(tool.name[:MAX_NAME]),
                f" ({fields})" if fields else "",
                self._start.server_id,
            )
        if len(drifted) > MAX_TOLD:
            _logger.warning("%s: and so did %d more tools", of, len(drifted) - MAX_TOLD)


def _now() -> int:
    # As whoever projects the history reads the same time: a float of seconds is a millisecond off now and then.
    return workflow.time_ns() // 1_000_000


def _count(given: RawValue) -> RawValue:
    tools = jsontext.decode(given.payload.data)["tools"]
    return RawValue(failures.json_payload(jsontext.encode({"tools": len(tools)})))


def _why(error: ActivityError) -> tuple[str, str]:
    """Code and message of what a batch failed with."""
    assert error.failure is not None
    failure = failures.read(error.failure)
    return failure.code, failure.message


def _lost_its_worker(error: ActivityError) -> bool:
    """Whether a listener ended by what became of its worker: what a server may yet mend it waits for by itself."""
    return error.failure is not None and failures.read(error.failure).happened.retryable
