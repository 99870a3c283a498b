"""Replays recorded histories with the current code and checks that their results are still the bytes that arrived."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseError
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer

from openwop_mcp.encryption import EncryptionError
from openwop_mcp.runs.records import records
from openwop_mcp.storage import LostValueError, add_values, open_events

from .catalog import CatalogWorkflow
from .effect import EffectWorkflow
from .run import RunWorkflow

__all__ = (
    "HistoryFileError",
    "ReplayVerdict",
    "WorkflowClassError",
    "export",
    "files_of",
    "open_file",
    "read_file",
    "replay",
)


_SENTENCE = re.compile(r'message: "((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_EVENT = re.compile(r"HistoryEvent\(id: ([0-9]+)")
_AFTER_TASK_STARTED = frozenset(
    {
        None,
        EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED,
        EventType.EVENT_TYPE_WORKFLOW_TASK_TIMED_OUT,
        EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED,
    }
)
_MISMATCH = re.compile(r"of scheduled event '([^']*)'")


class WorkflowClassError(Exception):
    """What an author named is no workflow that a worker could run; the message says why."""


class HistoryFileError(Exception):
    """A file that should hold an exported history does not, or cannot be opened; the message names it and says why."""

    code = "validation_error"


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
            results = "1 result is" if self.results == 1 else f"{self.results} results are"
            return f"{self.workflow_id}: replayed, {results} byte for byte what arrived"
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
        histories: With large values in their places, as :func:`read_file` reads them. What is encrypted is opened in
            them.
        workflows: Workflow classes of authors, beside the pack's own.
        data_converter: That of the worker which made the histories, where it is not the default. With storage in it a
            replay would store again what the workflow sends.

    Raises:
        EncryptionError: The converter lacks a key.
        WorkflowClassError: One of the classes cannot be run.
    """
    histories = list(histories)
    for history in histories:
        await open_events(history.events, data_converter or DataConverter.default)
    replayer = Replayer(
        workflows=[RunWorkflow, EffectWorkflow, CatalogWorkflow, *workflows],
        data_converter=data_converter or DataConverter.default,
    )
    if workflows:
        await _check(replayer)
    return [await _one(replayer, history) for history in histories]


async def _check(replayer: Replayer) -> None:
    """Have the classes prepared, as for a replay. What their modules do in the sandbox can raise anything."""

    async def nothing() -> AsyncIterator[WorkflowHistory]:
        none: Sequence[WorkflowHistory] = ()
        for history in none:
            yield history

    try:
        async with replayer.workflow_replay_iterator(nothing()):
            pass
    except Exception as error:  # noqa: BLE001 - see above
        why = error.__cause__ or error
        raise WorkflowClassError(str(error) if why is error else f"{error}: {type(why).__name__}: {why}") from None


async def _one(replayer: Replayer, history: WorkflowHistory) -> ReplayVerdict:
    failure = await _failure(replayer, history.workflow_id, history.events)
    found = records(history.events)
    return ReplayVerdict(
        workflow_id=history.workflow_id,
        run_id=history.run_id,
        results=len(found),
        divergence=None if failure is None else await _located(replayer, history, failure),
        changed=[
            f"event {record.event_id}: result of {record.activity_id} is not what arrived: recorded with sha256"
            f" {record.sha256 or 'none'}, found {record.found_sha256}"
            for record in found
            if not record.intact
        ],
    )


async def _failure(replayer: Replayer, workflow_id: str, events: Sequence[HistoryEvent]) -> str | None:
    """What Temporal says of a replay, without the structure in which its core wraps the sentence."""
    if not any(event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED for event in events):
        # No worker has had it. The core would wait for a task for ever.
        return None
    outcome = await replayer.replay_workflow(WorkflowHistory(workflow_id, events), raise_on_replay_failure=False)
    if outcome.replay_failure is None:
        return None
    told = str(outcome.replay_failure)
    sentence = _SENTENCE.search(told)
    return _ESCAPED.sub(r"\1", sentence[1]) if sentence else told


async def _located(replayer: Replayer, history: WorkflowHistory, failure: str) -> str:
    """The failure with the event at which it shows."""
    if "is not registered" in failure:
        kind = history.events[0].workflow_execution_started_event_attributes.workflow_type.name
        return f"there is no class for workflow type '{kind}': name one with --workflow MODULE:CLASS"
    if (named := _EVENT.search(failure)) is not None:
        return f"event {named[1]}: {failure}"
    # Not every failure names its event, so find the first workflow task that does not replay.
    tasks = _tasks(history.events)

    async def fails(task: int) -> bool:
        return await _failure(replayer, history.workflow_id, history.events[: tasks[task].stop]) is not None

    low, high = 0, len(tasks) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if await fails(middle) else (middle + 1, high)
    commands = [history.events[index] for index in tasks[low]] if tasks else history.events[:1]
    mismatch = _MISMATCH.search(failure)
    event = next((event for event in commands if mismatch and mismatch[1] in _names(event)), commands[0])
    return f"event {event.event_id}: {failure}"


def _broken(events: Sequence[HistoryEvent]) -> str | None:
    """What no history of Temporal can have, or None. Its core does not refuse these: it panics, and never answers."""
    due = 1
    for index, event in enumerate(events):
        if event.HasField("workflow_execution_started_event_attributes"):
            due = 1
            began = event.workflow_execution_started_event_attributes
            if not (began.workflow_type.name and began.HasField("task_queue")):
                return f"event {event.event_id} lacks a workflow type or a task queue"
        if event.event_id != due:
            return f"event {due} is missing or not in its place"
        due += 1
        follows = events[index + 1].event_type if index + 1 < len(events) else None
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED and follows not in _AFTER_TASK_STARTED:
            return f"event {due} does not say how the workflow task of event {event.event_id} ended"
    return None


def _tasks(events: Sequence[HistoryEvent]) -> list[range]:
    """Of each completed workflow task: the indexes of its commands' events, or of its own where it has none."""
    found: list[range] = []
    for index, event in enumerate(events):
        if event.event_type != EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED:
            continue
        end = index + 1
        while end < len(events) and _ordered_by(events[end]) == event.event_id:
            end += 1
        found.append(range(min(index + 1, end - 1), end))
    return found


def _ordered_by(event: HistoryEvent) -> int:
    """The workflow task that ordered what an event tells of; 0 where none did."""
    attributes = getattr(event, event.WhichOneof("attributes") or "", None)
    return int(getattr(attributes, "workflow_task_completed_event_id", 0))


def _names(event: HistoryEvent) -> tuple[str, str]:
    scheduled = event.activity_task_scheduled_event_attributes
    return scheduled.activity_type.name, scheduled.activity_id


def export(histories: Sequence[WorkflowHistory], values: Mapping[str, bytes] | None = None) -> str:
    """JSON text of a workflow's histories: ``events`` as Temporal's own tools write them.

    The parts of a chain of continue-as-new follow one another; each begins with its own WorkflowExecutionStarted.

    Args:
        histories: As Temporal has them, with references to large values.
        values: What they refer to, by SHA-256. It stands beside ``events``, as base64.
    """
    text: dict[str, Any] = {
        "workflowId": histories[0].workflow_id,
        "events": [event for history in histories for event in history.to_json_dict()["events"]],
    }
    if values:
        text["values"] = {digest: base64.b64encode(data).decode() for digest, data in values.items()}
    # Sorted, since metadata has no order of its own: two exports of one run are to be the same file.
    return json.dumps(text, indent=2, sort_keys=True)


def files_of(path: Path) -> list[Path]:
    """The file itself, or every ``*.json`` of a folder.

    Raises:
        HistoryFileError: The folder has none.
    """
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise HistoryFileError(f"{path}: holds no exported history (*.json)")
    return files


async def open_file(path: Path, data_converter: DataConverter) -> list[WorkflowHistory]:
    """Read one exported history as :func:`read_file` does, and open what is encrypted in it.

    Raises:
        HistoryFileError: It cannot be read, is no history, or holds what the converter cannot open.
    """
    histories = read_file(path)
    for event in (event for history in histories for event in history.events):
        try:
            await open_events([event], data_converter)
        except EncryptionError as error:
            raise HistoryFileError(f"{path}: event {event.event_id}: {error}") from None
    return histories


def read_file(path: Path) -> list[WorkflowHistory]:
    """Read one exported history; of a chain of continue-as-new each part. Large values stand in their places.

    Raises:
        HistoryFileError: It cannot be read, or is no history.
    """
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise HistoryFileError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise HistoryFileError(f"{path}: is not JSON ({error})") from None
    events = value.get("events") if isinstance(value, dict) else None
    if not isinstance(events, list) or not events:
        raise HistoryFileError(f"{path}: is no exported history: it has no 'events'")
    try:
        whole = WorkflowHistory.from_json(str(value.get("workflowId") or path.stem), {"events": events})
    except (ParseError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise HistoryFileError(f"{path}: is no exported history ({error})") from None
    _put_back(path, whole.events, value.get("values", {}))
    starts = [
        index
        for index, event in enumerate(whole.events)
        if event.HasField("workflow_execution_started_event_attributes")
    ]
    if starts[:1] != [0]:
        raise HistoryFileError(f"{path}: is no whole history: it does not begin with WorkflowExecutionStarted")
    if (broken := _broken(whole.events)) is not None:
        raise HistoryFileError(f"{path}: is no whole history: {broken}")
    return [
        WorkflowHistory(whole.workflow_id, whole.events[begin:end])
        for begin, end in zip(starts, [*starts[1:], len(whole.events)], strict=True)
    ]


def _put_back(path: Path, events: Sequence[HistoryEvent], values: object) -> None:
    try:
        given = {str(digest): base64.b64decode(text, validate=True) for digest, text in dict(values).items()}  # type: ignore[call-overload]  # what it is not, raises
    except (ValueError, TypeError):
        raise HistoryFileError(f"{path}: is no exported history: its 'values' are no base64 by SHA-256") from None
    changed = [digest for digest, data in given.items() if hashlib.sha256(data).hexdigest() != digest]
    if changed:
        raise HistoryFileError(f"{path}: the value with SHA-256 {changed[0]} is not what was recorded")
    try:
        add_values(events, given)
    except LostValueError as error:
        raise HistoryFileError(f"{path}: {error.message}") from None
