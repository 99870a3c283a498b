"""What operators decided about a server's tools, read from the history of its catalog: who, when, what and why. Pure.

Knows nothing of what holds now, which is what a catalog is for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent

from openwop_mcp import jsontext
from openwop_mcp.catalog.policy import CLASSIFIED
from openwop_mcp.catalog.start import APPROVE, CATALOG_WORKFLOW, CLASSIFY, CatalogStart
from openwop_mcp.runs.events import timestamp
from openwop_mcp.updates import TakenUpdates

__all__ = ("DECIDING", "Decision", "decisions", "goes_on", "is_catalog")

DECIDING = frozenset(
    {
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    }
)
"""Events that say all of this. The others hold lists of tools, of which there may be megabytes to fetch."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One word of an operator.

    Attributes:
        at: When the catalog took it, as events of runs have it.
        what: What was done.
        by: Who said so.
        why: Why, in their words.
        tools: Names, each with the fingerprint of the definition that was decided about.
        said: Of a classification: its fields, by their names on the wire.
    """

    at: str
    what: Literal["approved", "classified", "cleared"]
    by: str
    why: str
    tools: Sequence[tuple[str, str]]
    said: Mapping[str, str]

    def facts(self) -> dict[str, object]:
        """The decision for machines."""
        tools = [{"name": name, "fingerprint": fingerprint} for name, fingerprint in self.tools]
        return {"at": self.at, "what": self.what, "by": self.by, "why": self.why, "tools": tools, **self.said}


def decisions(events: Iterable[HistoryEvent]) -> list[Decision]:
    """What was decided, in its order.

    Args:
        events: Of a catalog, over all parts of its chain; at least those of :data:`DECIDING`, with values in their
            places and opened.
    """
    found = []
    taken = TakenUpdates()
    for event in events:
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                taken = TakenUpdates()
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ADMITTED:
                taken.admit(event)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
                name, given = taken.accept(event)
                if name in {APPROVE, CLASSIFY}:
                    found.append(_decision(event, name, given))
    return found


def is_catalog(events: Sequence[HistoryEvent]) -> bool:
    """Whether a history is that of a catalog."""
    return events[0].workflow_execution_started_event_attributes.workflow_type.name == CATALOG_WORKFLOW


def goes_on(events: Sequence[HistoryEvent]) -> bool:
    """Whether a catalog began with what another history had come to, where earlier decisions stand."""
    started = events[0].workflow_execution_started_event_attributes
    return CatalogStart.decode(started.input.payloads[0].data).state is not None


def _decision(event: HistoryEvent, name: str, given: bytes) -> Decision:
    asked = jsontext.decode(given)
    said = {} if name == APPROVE else {field: asked[field] for field in CLASSIFIED if field in asked}
    return Decision(
        at=timestamp(event.event_time.ToMilliseconds()),
        what="approved" if name == APPROVE else "classified" if said else "cleared",
        by=asked["by"],
        why=asked["why"],
        tools=[(one["name"], one["fingerprint"]) for one in asked["tools"]],
        said=said,
    )
