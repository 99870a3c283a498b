"""The calls that a Temporal history records, whatever workflow made them: for people who read, and for audits.

Pure: history in, records out. Knows no graph and no server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import temporalio.api.history.v1

from openwop_mcp.calls import recorded
from openwop_mcp.verbatim import Verbatim

__all__ = ("CallRecord", "records")


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One answered call.

    Attributes:
        event_id: The history event that holds the answer.
        activity_id: The activity that made the call.
        result: The bytes the server sent, with their provenance.
    """

    event_id: int
    activity_id: str
    result: Verbatim

    @property
    def server_id(self) -> str:
        """The server that answered."""
        return self.result.provenance["server-id"]

    @property
    def method(self) -> str:
        """The MCP method, such as ``tools/call``."""
        return self.result.provenance["method"]

    @property
    def subject(self) -> str:
        """The tool or resource, if the method has one."""
        return self.result.provenance.get("subject", "")

    @property
    def revision(self) -> str:
        """The MCP revision on the wire."""
        return self.result.provenance["revision"]

    @property
    def attempts(self) -> int:
        """Attempts that the answer took."""
        return int(self.result.provenance["attempt"])

    @property
    def sha256(self) -> str:
        """Digest that was taken when the answer arrived; empty where someone took it out of the record."""
        return self.result.provenance.get("sha256", "")

    @property
    def intact(self) -> bool:
        """Whether the bytes are still those of the digest."""
        return hashlib.sha256(self.result.raw).hexdigest() == self.sha256


def records(events: Iterable[temporalio.api.history.v1.HistoryEvent]) -> list[CallRecord]:
    """List the answered calls of a history, in its order."""
    scheduled: dict[int, str] = {}
    found: list[CallRecord] = []
    for event in events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            scheduled[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
        elif event.HasField("activity_task_completed_event_attributes"):
            done = event.activity_task_completed_event_attributes
            for payload in done.result.payloads:
                result = recorded(payload)
                if result.provenance:
                    found.append(CallRecord(event.event_id, scheduled.get(done.scheduled_event_id, ""), result))
    return found
