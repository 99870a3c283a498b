"""Run events as OpenWOP v2 sends them: the closed envelope around a payload that is kept as exact bytes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from openwop_mcp import jsontext
from openwop_mcp.runs.engines import ENGINE_VERSION

__all__ = ("TERMINAL", "RunEvent", "timestamp")

SCHEMA_VERSION = 1
"""Version of the shape of each event; none has changed yet."""

TERMINAL = ("run.completed", "run.failed", "run.cancelled")
"""Types that end a log. Every log has exactly one, as its last event, once the run is over."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp(milliseconds: int) -> str:
    """RFC 3339 in UTC, of milliseconds since 1970."""
    moment = (_EPOCH + timedelta(milliseconds=milliseconds)).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds") + "Z"


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event of a run's log.

    Attributes:
        event_id: Unique for good; a reset of the run gives new ids.
        run_id: The bound id of the run.
        type: The event's type.
        payload: JSON text.
        timestamp: RFC 3339, UTC, milliseconds; never before that of the event before.
        sequence: 0 for the first event, 1 more for each.
        node_id: The node it is about.
        schema_version: Version of this event's shape.
        engine_version: The engine of its run, which tells it.
    """

    event_id: str
    run_id: str
    type: str
    payload: bytes
    timestamp: str
    sequence: int
    node_id: str | None = None
    schema_version: int = SCHEMA_VERSION
    engine_version: int = ENGINE_VERSION

    def encode(self) -> bytes:
        """JSON text of the event, the payload in it byte for byte."""
        return b"".join(self.parts())

    def parts(self) -> tuple[bytes, bytes, bytes]:
        """The same text in three parts. The second is the payload itself: it may be large, and is not copied."""
        before = [
            ("eventId", jsontext.encode(self.event_id)),
            ("runId", jsontext.encode(self.run_id)),
            ("type", jsontext.encode(self.type)),
            ("payload", b""),
        ]
        after = [
            ("timestamp", jsontext.encode(self.timestamp)),
            ("sequence", jsontext.encode(self.sequence)),
            ("schemaVersion", jsontext.encode(self.schema_version)),
            ("engineVersion", jsontext.encode(self.engine_version)),
        ]
        if self.node_id is not None:
            after.append(("nodeId", jsontext.encode(self.node_id)))
        return jsontext.build(before)[:-1], self.payload, b"," + jsontext.build(after)[1:]
