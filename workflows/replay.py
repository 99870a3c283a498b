"""Replays recorded histories with the current code and checks that their results are still the bytes that arrived."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from openwop_mcp.runs.records import records

from .run import RunWorkflow

__all__ = ("HistoryFileError", "ReplayVerdict", "load", "read_file", "replay")


class HistoryFileError(Exception):
    """A file that should hold an exported history does not; the message names it and says why."""


@dataclass(frozen=True, slots=True)
class ReplayVerdict:
    """What the replay of one history found.

    Attributes:
        workflow_id: The workflow.
        run_id: Its Temporal run.
        results: Number of recorded results.
        divergence: What the current code does differently, as Temporal names it, or None.
        changed: One line for each result whose bytes are not those of its digest.
    """

    workflow_id: str
    run_id: str
    results: int
    divergence: str | None
    changed: Sequence[str]

    def facts(self) -> dict[str, object]:
        """The verdict for machines."""
        return {
            "workflowId": self.workflow_id,
            "runId": self.run_id,
            "results": self.results,
            "sound": self.sound,
            "divergence": self.divergence,
            "changed": list(self.changed),
        }

    def prose(self) -> str:
        """The verdict for people."""
        if self.sound:
            return f"{self.workflow_id}: replayed, {self.results} results are the bytes that arrived"
        faults = [*([] if self.divergence is None else [f"diverged: {self.divergence}"]), *self.changed]
        return "\n".join(f"{self.workflow_id}: {fault}" for fault in faults)

    @property
    def sound(self) -> bool:
        """Whether nothing diverged and nothing was changed."""
        return self.divergence is None and not self.changed


async def replay(
    histories: Iterable[WorkflowHistory], workflows: Sequence[type], *, data_converter: DataConverter | None = None
) -> list[ReplayVerdict]:
    """Replay each history.

    Args:
        histories: As fetched, or as :func:`load` reads them.
        workflows: Workflow classes of authors, beside the pack's own.
        data_converter: That of the worker which made the histories, where it is not the default.
    """
    replayer = Replayer(workflows=[RunWorkflow, *workflows], data_converter=data_converter or DataConverter.default)
    return [await _one(replayer, history) for history in histories]


async def _one(replayer: Replayer, history: WorkflowHistory) -> ReplayVerdict:
    outcome = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    found = records(history.events)
    return ReplayVerdict(
        workflow_id=history.workflow_id,
        run_id=history.run_id,
        results=len(found),
        divergence=None if outcome.replay_failure is None else str(outcome.replay_failure),
        changed=[
            f"event {record.event_id}: result of {record.activity_id} is not what arrived (sha256 {record.sha256})"
            for record in found
            if not record.intact
        ],
    )


def export(histories: Sequence[WorkflowHistory]) -> str:
    """JSON text of a workflow's histories: ``events`` as Temporal's own tools write them.

    The parts of a chain of continue-as-new follow one another; each begins with its own WorkflowExecutionStarted.
    """
    events = [event for history in histories for event in history.to_json_dict()["events"]]
    return json.dumps({"workflowId": histories[0].workflow_id, "events": events}, indent=2)


def load(path: Path) -> list[WorkflowHistory]:
    """Read an exported history, or every ``*.json`` of a folder.

    Raises:
        HistoryFileError: There is none, or one is no history.
    """
    if not path.is_dir():
        return read_file(path)
    files = sorted(path.glob("*.json"))
    if not files:
        raise HistoryFileError(f"{path}: holds no exported history (*.json)")
    return [history for file in files for history in read_file(file)]


def read_file(path: Path) -> list[WorkflowHistory]:
    """Read one exported history; of a chain of continue-as-new each part.

    Raises:
        HistoryFileError: It cannot be read, or is no history.
    """
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise HistoryFileError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise HistoryFileError(f"{path}: is not JSON ({error})") from None
    events = value.get("events") if isinstance(value, dict) else None
    if not isinstance(events, list) or not events:
        raise HistoryFileError(f"{path}: is no exported history: it has no 'events'")
    try:
        whole = WorkflowHistory.from_json(str(value.get("workflowId") or path.stem), {"events": events})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise HistoryFileError(f"{path}: is no exported history ({error})") from None
    starts = [
        index
        for index, event in enumerate(whole.events)
        if event.HasField("workflow_execution_started_event_attributes")
    ]
    if starts[:1] != [0]:
        raise HistoryFileError(f"{path}: is no whole history: it does not begin with WorkflowExecutionStarted")
    return [
        WorkflowHistory(whole.workflow_id, whole.events[begin:end])
        for begin, end in zip(starts, [*starts[1:], len(whole.events)], strict=True)
    ]
