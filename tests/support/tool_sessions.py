"""The events around the calls of a log, and the log without them, for tests of all else that a run tells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.sessions import CLOSED, OPENED

__all__ = ("BRACKETS", "check_sessions", "types")

BRACKETS = frozenset({OPENED, CLOSED})
"""The types of these events."""

_ENDS = {"node.completed": "completed", "node.failed": "failed", "node.cancelled": "cancelled"}


def types(log: Sequence[RunEvent]) -> list[str]:
    """A log as `type node`, without the events around its calls."""
    told = [event for event in log if event.type not in BRACKETS]
    return [f"{event.type} {event.node_id}" if event.node_id else event.type for event in told]


def check_sessions(log: Sequence[RunEvent]) -> None:
    """Each execution of a node that calls a tool is in one session, which begins after its start and ends as it does.

    That every such node has one, and no other node has any, is for the caller to see to.
    """
    open_now: dict[str | None, dict[str, Any]] = {}
    closed: set[str] = set()
    for event, before, after in zip(log, [None, *log], [*log[1:], None], strict=False):
        said = json.loads(event.payload)
        if event.type == OPENED:
            assert before is not None
            assert (before.type, before.node_id) == ("node.started", event.node_id)
            assert set(said) == {"sessionId", "toolId"}
            assert event.node_id not in open_now
            assert said["sessionId"] not in closed
            open_now[event.node_id] = said
        elif event.type == CLOSED:
            assert after is not None
            outcome = said.pop("outcome")
            assert said == open_now.pop(event.node_id)
            closed.add(said["sessionId"])
            if after.node_id == event.node_id and after.type in _ENDS:
                assert outcome == _ENDS[after.type]
            else:
                # A pause cut it off: the node begins afresh.
                assert outcome == "cancelled"
        elif event.type in {*_ENDS, "node.started"}:
            assert event.node_id not in open_now
    assert not open_now or log[-1].type not in {"run.completed", "run.failed", "run.cancelled"}
