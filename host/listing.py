"""The runs of a tenant, newest first, page by page.

Temporal's list has an order of its own, lags, and has a row for every part of a run. So it is asked for one stretch of
time after the other, each run stands where its first part began, and how it stands is told by its log. Knows no route.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, get_args

from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp import jsontext
from openwop_mcp.encryption import EncryptionError
from openwop_mcp.storage import StorageError

from .cursors import Cursors
from .errors import HostError, invalid
from .ids import BoundId
from .secret import shared_secret
from .siblings import client as runs
from .snapshot import RunStatus
from .web import Answer

if TYPE_CHECKING:
    from .logs import RunLogs

__all__ = ("FILTERS", "MAX_PAGE_SIZE", "Asked", "RunList")

logger = logging.getLogger("openwop_mcp.host")

MAX_PAGE_SIZE = 100
"""Runs on a page at most: each costs a question to Temporal, and its log where that is not known yet."""

DEFAULT_PAGE_SIZE = 25
"""Runs on a page where nothing is said of it: what a person looks through at once."""

FILTERS = ("workflowId", "status")
"""What a list can be narrowed by."""

MOST_LOOKED_AT = 1000
"""Rows that one request looks at. A page that has to be found among more is short, and goes on from there."""

STRETCH_ROWS = 500
"""Rows that a stretch of time may have where nobody knows how many of them are wanted. Without a filter it may have
twice as many as a page shows: ten rows cost Temporal more than a count of all does."""

AT_ONCE = 10
"""Runs that are looked at together."""

SECOND = 1_000_000
"""Microseconds, which times are counted in: Temporal's lists know none that are finer."""

FIRST_STRETCH = 60 * SECOND
"""The stretch that is tried first where there are many runs."""

LONGER = 16
"""How much longer the next one is where it was too short: few steps lead from a minute to the last run of a year."""

SHORTEST_STRETCH = SECOND // 1000
"""What began within it is taken whole, however much it is."""

AHEAD = 24 * 3600 * SECOND
"""How far the first stretch reaches into the future: past all that clocks differ by."""

LAG = 5.0
"""Seconds after which Temporal's list shows a run for certain: it takes 25 ms mostly, and a second at worst."""

MOST_RECENT = 1000
"""Runs that a host remembers to have created; within the lag it can hardly be more."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_LIMIT = re.compile(r"[1-9][0-9]{0,8}")

_UNREADABLE = frozenset({"not_found", "payload_unprojectable", "run_expired", "validation_error"})
"""Why something has no log that can be told, or no id that a run can have. It is then left out, so that it does not
take the others with it."""

_ENDED: Mapping[WorkflowExecutionStatus, frozenset[RunStatus]] = {
    WorkflowExecutionStatus.COMPLETED: frozenset({"completed"}),
    WorkflowExecutionStatus.CANCELED: frozenset({"cancelled"}),
    WorkflowExecutionStatus.TERMINATED: frozenset({"cancelled", "failed"}),
    WorkflowExecutionStatus.FAILED: frozenset({"failed"}),
    WorkflowExecutionStatus.TIMED_OUT: frozenset({"failed"}),
}
"""What a run can have come to by how it ended in Temporal, so that no log is read in vain."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A page that is asked for.

    Attributes:
        size: Runs on it at most.
        cursor: Where it begins; None for at the newest.
        workflow_id: Of which workflow the runs are to be.
        status: How they are to stand.
    """

    size: int = DEFAULT_PAGE_SIZE
    cursor: str | None = None
    workflow_id: str | None = None
    status: str | None = None

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Asked:
        """Read the parameters of ``listRuns``. What is none of them is ignored, as OpenWOP has it.

        Raises:
            HostError: ``validation_error``.
        """
        limit = query.get("limit")
        if limit is not None and _LIMIT.fullmatch(limit) is None:
            raise invalid("limit", f"write a whole number from 1 to {MAX_PAGE_SIZE}")
        status = query.get("status")
        if status is not None and status not in get_args(RunStatus):
            raise invalid("status", f"write one of {', '.join(get_args(RunStatus))}")
        size = DEFAULT_PAGE_SIZE if limit is None else min(int(limit), MAX_PAGE_SIZE)
        return cls(size, query.get("cursor"), query.get("workflowId"), status)

    @property
    def narrowed(self) -> dict[str, str]:
        """The filters, which a cursor is bound to."""
        given = {"workflowId": self.workflow_id, "status": self.status}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True, order=True)
class _Row:
    """A part of a run, as Temporal lists it: by when it began, and of those that began together by id."""

    began: int
    run_id: str
    part: str
    status: WorkflowExecutionStatus | None = field(compare=False)

    @property
    def position(self) -> tuple[int, str]:
        return self.began, self.run_id


class RunList:
    """Lists runs.

    Args:
        client: Connected to the namespace of the runs.
        logs: Tell how each stands.
    """

    def __init__(self, client: Client, logs: RunLogs) -> None:
        self._client = client
        self._logs = logs
        self._recent: deque[tuple[float, str]] = deque(maxlen=MOST_RECENT)
        self._cursors: Cursors | None = None

    def created(self, run_id: str) -> None:
        """Remember a run that this host has just created, which Temporal may not list yet."""
        self._recent.append((time.monotonic(), run_id))

    async def page(self, tenant: str, asked: Asked) -> Answer:
        """A page of the tenant's runs.

        Raises:
            HostError: ``validation_error`` if the cursor is none of this list's.
            RPCError: Temporal does not answer.
        """
        before: tuple[int, str] | None = None
        if asked.cursor is not None:
            cursors = await self._sealing()
            began, _, run_id = cursors.open(asked.cursor, tenant=tenant, narrowed=asked.narrowed).partition(" ")
            before = int(began), run_id
        shown: list[bytes] = []
        looked_at, ends_at, more = 0, "", False
        async for stretch in self._rows(tenant, before, asked):
            left = stretch
            while left and not more:
                # One more than is shown tells that there is a next page.
                at_once = min(AT_ONCE, asked.size + 1 - len(shown))
                rows, left = left[:at_once], left[at_once:]
                told = await asyncio.gather(*(self._snapshot(row, asked.status) for row in rows))
                for row, snapshot in zip(rows, told, strict=True):
                    if len(shown) < asked.size:
                        ends_at = f"{row.began} {row.run_id}"
                    if snapshot is not None:
                        shown.append(snapshot)
                looked_at += len(rows)
                more = len(shown) > asked.size or looked_at >= MOST_LOOKED_AT
            if more:
                break
        members = [("runs", b"[" + b",".join(shown[: asked.size]) + b"]")]
        if more:
            # Not before, since a host that lacks its key can still show what one page holds.
            cursors = await self._sealing()
            cursor = cursors.seal(ends_at, tenant=tenant, narrowed=asked.narrowed)
            members.append(("nextCursor", jsontext.encode(cursor)))
        return Answer(200, jsontext.build(members))

    async def _sealing(self) -> Cursors:
        if self._cursors is None:
            self._cursors = Cursors(await shared_secret(self._client), "runs")
        return self._cursors

    async def _snapshot(self, row: _Row, status: str | None) -> bytes | None:
        """How a run stands, without its inputs; None if it is not to be listed, or not by this part."""
        ended = None if row.status is None else _ENDED.get(row.status)
        if status is not None and ended is not None and status not in ended:
            return None
        try:
            log = await self._logs.open(BoundId.parse(row.run_id, name="runId"))
        except HostError as error:
            if error.code in _UNREADABLE:
                return None
            raise
        except (StorageError, EncryptionError) as error:
            # It may stay away, and would keep its tenant from all other runs.
            logger.warning("run %s is left out of a list: %s", row.run_id, error)
            return None
        if log.generation.extent.parts[0] != row.part:
            return None
        if status is not None and log.view.status(cancelling=log.cancelling) != status:
            return None
        snapshot = log.view.encode(cancelling=log.cancelling)
        # Inputs may be megabytes each; who wants them reads the run.
        return jsontext.build([member for member in jsontext.members(snapshot) if member[0] != "inputs"])

    async def _rows(self, tenant: str, before: tuple[int, str] | None, asked: Asked) -> AsyncIterator[Sequence[_Row]]:
        """The rows of a tenant from a position on, newest first, one stretch of time after the other."""
        recent: list[_Row] | None = None
        # One more, for stores that count finer than microseconds.
        async for since, stretch in self._stretches(tenant, None if before is None else before[0] + 1, asked):
            # What is listed and what was remembered may be the same run.
            listed = {row.run_id for row in stretch}
            if recent is None:
                recent = await self._recently(tenant, asked.workflow_id, listed)
            own = [row for row in recent if row.began > since]
            rows = sorted([*stretch, *(row for row in own if row.run_id not in listed)], reverse=True)
            recent = [row for row in recent if row.began <= since]
            yield [row for row in rows if before is None or row.position < before]

    async def _recently(self, tenant: str, workflow_id: str | None, listed: Collection[str]) -> list[_Row]:
        """The rows of what this host has created within the lag and is not listed, as far as a page has room for it."""
        since = time.monotonic() - LAG
        while self._recent and self._recent[0][0] < since:
            self._recent.popleft()
        newest = [run_id for _, run_id in self._recent if run_id.startswith(f"{tenant}/")][-MAX_PAGE_SIZE:]
        own = [run_id for run_id in newest if run_id not in listed]
        found: list[_Row] = []
        for start in range(0, len(own), AT_ONCE):
            some = await asyncio.gather(*map(self._described, own[start : start + AT_ONCE]))
            found += [_row(one) for one in some if one is not None and await _is_of(self._client, one, workflow_id)]
        return found

    async def _described(self, run_id: str) -> WorkflowExecution | None:
        """A run as Temporal has it; None if it was deleted since."""
        try:
            return await self._client.get_workflow_handle(run_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise

    async def _stretches(self, tenant: str, until: int | None, asked: Asked) -> AsyncIterator[tuple[int, list[_Row]]]:
        """Stretches of time, the newest first, each with what began in it; the last one has no beginning.

        Args:
            tenant: Whose.
            until: Where the first one ends; None for all that has begun.
            asked: What is looked for. With a filter nobody knows how many rows that takes.
        """
        most = STRETCH_ROWS if asked.narrowed else min(2 * (asked.size + 1), STRETCH_ROWS)
        # A tenant has no quote in it, nor anything else that would end the string.
        query = f"WorkflowType = '{runs.GRAPH_RUN}' AND WorkflowId STARTS_WITH '{tenant}/'"
        now = _microseconds(datetime.now(UTC))
        until = now + AHEAD if until is None else until
        length = FIRST_STRETCH
        while True:
            older = f"{query} AND StartTime <= '{_moment(until)}'"
            if await self._count(older) <= most:
                yield -1, await self._fetch(tenant, older, asked.workflow_id)
                return
            end = min(until, now)
            length = await self._length(older, end, length, most)
            until = end - length
            stretch = f"{older} AND StartTime > '{_moment(until)}'"
            yield until, await self._fetch(tenant, stretch, asked.workflow_id)

    async def _length(self, older: str, end: int, length: int, most: int) -> int:
        """How long a stretch has to be that has at least half of the rows that it may have, and no more than all.

        Args:
            older: Finds what began before its end, which is more than it may have.
            end: Its end.
            length: What is tried first.
            most: Rows that it may have. What began within a moment is taken whole.
        """
        # The longest one that is known to be too short, and the shortest one that is too long.
        short, long = 0, end
        while long - short > SHORTEST_STRETCH:
            count = await self._count(f"{older} AND StartTime > '{_moment(end - length)}'")
            if most // 2 <= count <= most:
                return length
            if count < most // 2:
                short = length
            else:
                long = length
            # As though they had begun evenly, as long as none is too short.
            length = min(LONGER * short, (short + long) // 2) if short else max(1, long * most * 3 // 4 // count)
        return long

    async def _count(self, query: str) -> int:
        return (await self._client.count_workflows(query)).count

    async def _fetch(self, tenant: str, query: str, workflow_id: str | None) -> list[_Row]:
        listed = self._client.list_workflows(query, page_size=STRETCH_ROWS)
        # Looked at again: SQLite takes capitals for small letters, and another store might take a sign for a wildcard.
        own = [found async for found in listed if found.id.startswith(f"{tenant}/")]
        return [_row(found) for found in own if await _is_of(self._client, found, workflow_id)]


def _row(found: WorkflowExecution) -> _Row:
    return _Row(_microseconds(found.start_time), found.id, found.run_id, found.status)


async def _is_of(client: Client, found: WorkflowExecution, workflow_id: str | None) -> bool:
    """Whether a run is of a workflow, or of any where none is given."""
    if workflow_id is None:
        return True
    # Whatever one is of that cannot be opened, it is left out, and said to be, where it is read.
    return await runs.memo_member(client, found, runs.WORKFLOW_ID) in (workflow_id, runs.SEALED)


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _moment(microseconds: int) -> str:
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="microseconds")
