"""The event log as the live workflow would write it: the machine inside `RunWorkflow`, listened to.

Times are left out: a workflow knows only when its task began, history knows when each thing happened.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory

from openwop_mcp.runs import machine as machines
from openwop_mcp.runs.events import RunEvent

__all__ = ("LiveLog", "told")

_RunMachine = machines.RunMachine

Told = tuple[int, str, str | None, bytes]

_TIMES = re.compile(rb',?"(durationMs|observed)":[0-9]+|,"at":"[0-9TZ:.-]+"')


class LiveLog:
    """Listens to every machine that a workflow of this process makes while it is installed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._logs: dict[str, list[Told]] = {}
        self._machines: dict[str, machines.RunMachine] = {}
        patch.setattr(machines, "RunMachine", self._made)

    def _made(self, start: Any, inputs: bytes, kept: Sequence[bytes] = (), *, emit: None) -> machines.RunMachine:
        info = workflow.info()
        before = self._machines.get(info.continued_run_id or "")
        # A run that is replayed in the same process tells its log anew.
        log = self._logs[info.run_id] = []
        made = _RunMachine(
            start,
            inputs,
            kept,
            emit=lambda sequence, kind, node, payload, _: log.append((sequence, kind, node, _timeless(payload))),
            carried=before.carried if before else None,
        )
        self._machines[info.run_id] = made
        return made

    def of(self, found: Sequence[WorkflowHistory]) -> list[Told]:
        """What was told live of a run with these histories."""
        return [one for history in found for one in self._logs[history.run_id]]


def told(log: Sequence[RunEvent]) -> list[Told]:
    """A projected log in the same form."""
    return [(event.sequence, event.type, event.node_id, _timeless(event.payload)) for event in log]


def _timeless(payload: bytes) -> bytes:
    return _TIMES.sub(b"", payload)
