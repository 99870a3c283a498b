"""A run as it stands: the fold of its event log, and the closed snapshot that a client reads.

Takes events one at a time and keeps what the snapshot needs, so that a host which has folded ten thousand of them takes
the next at the price of one. Knows no history and no Temporal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from openwop_mcp import jsontext
from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.interrupts import waiting_status
from openwop_mcp.runs.start import RunStart

from . import etags
from .discovery import EVENT_LOG_SCHEMA_VERSION

__all__ = ("TERMINAL_STATUS", "RunStatus", "RunView", "Waiting")

RunStatus = Literal[
    "pending",
    "running",
    "paused",
    "waiting-approval",
    "waiting-input",
    "waiting-external",
    "completed",
    "failed",
    "cancelling",
    "cancelled",
]
"""Where a run can stand."""

TERMINAL_STATUS: Mapping[str, RunStatus] = {
    "run.completed": "completed",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
}
"""How a run ended, by the event that ended it."""

_SHOWN_OF_START = ("workflowId", "inputs", "tags", "metadata")
"""What the first event holds that a snapshot shows. Taken from there and not from the run's start, so that what is
masked in the log is masked here."""

_SHOWN_OF_ERROR = frozenset({"code", "message", "details"})
"""The members of an error in a snapshot; an event's error has more."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A question that waits for an answer.

    Attributes:
        interrupt_id: Names the interrupt.
        node_id: The node that waits.
        status: Where the run stands while it does.
        sequence: Of the event that asks.
    """

    interrupt_id: str
    node_id: str
    status: RunStatus
    sequence: int


class RunView:
    """What is known of a run by so much of its log.

    Args:
        start: What the run was started with.
    """

    def __init__(self, start: RunStart) -> None:
        self._start = start
        # What is needed of the last event, and not the event: the one that ends a run holds all its outputs.
        self._sequence = -1
        self._event_id = ""
        self._at = ""
        self._ended: RunStatus | None = None
        self._paused = False
        self._requested = -1
        self._waiting: dict[tuple[str, str | None], Waiting] = {}
        self._asked: set[str] = set()
        self._started_at = ""
        self._shown: list[tuple[str, bytes]] = []
        self._error: list[tuple[str, bytes]] = []

    def take(self, events: Iterable[RunEvent]) -> None:
        """Take the next events of the log."""
        for event in events:
            self._take(event)

    def _take(self, event: RunEvent) -> None:
        self._sequence, self._event_id, self._at = event.sequence, event.event_id, event.timestamp
        match event.type:
            case "run.started":
                self._started_at = event.timestamp
                given = dict(jsontext.members(event.payload))
                self._shown = [(name, given[name]) for name in _SHOWN_OF_START if name in given]
            case "run.paused":
                self._paused = True
            case "run.resumed":
                self._paused = False
            case "interrupt.requested":
                self._requested = event.sequence
            case "node.suspended":
                told = jsontext.decode(event.payload)
                status = waiting_status(told["kind"])
                waiting = Waiting(told["interruptId"], told["nodeId"], status, self._requested)
                # Nodes that share an effect wait with one interrupt.
                self._waiting[waiting.interrupt_id, event.node_id] = waiting
                self._asked.add(waiting.node_id)
            case "interrupt.resolved":
                self._waiting.pop((jsontext.decode(event.payload)["interruptId"], event.node_id), None)
            case "node.cancelled" if (given_up := self.waiting_at(event.node_id)) is not None:
                del self._waiting[given_up.interrupt_id, event.node_id]
            case "run.failed":
                error = jsontext.member(event.payload, "error") or b"{}"
                self._error = [one for one in jsontext.members(error) if one[0] in _SHOWN_OF_ERROR]
        self._ended = TERMINAL_STATUS.get(event.type)

    @property
    def last_sequence(self) -> int:
        """The highest sequence in the log, -1 while it is empty."""
        return self._sequence

    @property
    def is_terminal(self) -> bool:
        """Whether the log is complete."""
        return self._ended is not None

    def status(self, *, cancelling: bool = False) -> RunStatus:
        """Where the run stands.

        Args:
            cancelling: Whether a cancel was accepted; the log says so only once it is done.
        """
        if self._ended is not None:
            return self._ended
        if cancelling:
            return "cancelling"
        if self._sequence < 0:
            return "pending"
        if self._paused:
            return "paused"
        return next((waiting.status for waiting in self._waiting.values()), "running")

    @property
    def definition(self) -> bytes:
        """JSON text of the workflow's definition, as the run was started with it."""
        return self._start.definition

    def waiting_with(self, interrupt_id: str) -> Waiting | None:
        """The question of that id; None where it does not wait for an answer any more, or never did."""
        return next((waiting for waiting in self._open if waiting.interrupt_id == interrupt_id), None)

    def waiting_at(self, node_id: str | None) -> Waiting | None:
        """The question that a node waits with, if it waits."""
        return next((waiting for waiting in self._open if waiting.node_id == node_id), None)

    @property
    def _open(self) -> Iterable[Waiting]:
        return () if self.is_terminal else self._waiting.values()

    def has_asked(self, node_id: str) -> bool:
        """Whether a node waits, or has waited, for an answer."""
        return node_id in self._asked

    def etag(self, *, cancelling: bool = False) -> str:
        """A strong validator of the snapshot: it changes with every event, and with what no event tells."""
        # An event's id and not its sequence, which comes again where a run was reset.
        return etags.strong(f"{self._event_id}.{self.status(cancelling=cancelling)}")

    def encode(self, *, cancelling: bool = False) -> bytes:
        """JSON text of the snapshot; inputs, metadata and details are the bytes that they came as."""
        return b"".join(self.parts(cancelling=cancelling))

    def parts(self, *, cancelling: bool = False) -> Sequence[bytes]:
        """JSON text of the snapshot, in parts, so that nothing of it is copied for a client. Each is some tokens."""
        status = self.status(cancelling=cancelling)
        members = [
            ("runId", jsontext.encode(self._start.run_id)),
            ("status", jsontext.encode(status)),
            ("owner", self._start.owner.encode()),
            ("eventLogSchemaVersion", jsontext.encode(EVENT_LOG_SCHEMA_VERSION)),
            ("engineVersion", jsontext.encode(self._start.engine_version)),
        ]
        if status.startswith("waiting-"):
            node_id = next(waiting.node_id for waiting in self._waiting.values())
            members.append(("currentNodeId", jsontext.encode(node_id)))
        if self._started_at:
            members.append(("startedAt", jsontext.encode(self._started_at)))
        if self._ended is not None:
            members.append(("completedAt", jsontext.encode(self._at)))
        if self._error:
            members.append(("error", jsontext.build(self._error)))
        members += self._shown or self._to_be_shown()
        if self._start.configurable is not None:
            members.append(("configurable", self._start.configurable))
        parts: list[bytes] = []
        for name, value in members:
            parts += (b"," if parts else b"{", jsontext.encode(name), b":", value)
        return (*parts, b"}")

    def _to_be_shown(self) -> list[tuple[str, bytes]]:
        """What a run shows whose log has not begun."""
        return [
            ("workflowId", jsontext.member(self._start.definition, "id") or b'"unknown"'),
            ("tags", jsontext.encode(self._start.tags)),
            ("metadata", self._start.metadata),
        ]
