"""What passes between the state machine and whoever carries a run out: commands one way, facts the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from openwop_mcp.calls import Input
from openwop_mcp.failures import CallFailure
from openwop_mcp.runs.pauses import Pause, Resume

__all__ = (
    "CancelNode",
    "CancelRequested",
    "CancelRun",
    "Command",
    "CompleteRun",
    "ContinueAsNew",
    "DrainRequested",
    "End",
    "Fact",
    "FailRun",
    "InterruptResolved",
    "NodeFailed",
    "NodeSucceeded",
    "NoteWaiting",
    "PauseRequested",
    "ResumeRequested",
    "ScheduleNode",
    "StartTimer",
    "TimerFired",
    "Turn",
)


@dataclass(frozen=True, slots=True)
class ScheduleNode:
    """Schedule one attempt of a node's activity.

    Attributes:
        ordinal: Names this attempt in the facts; unique in the run, also across continue-as-new.
        node_id: The node.
        type_id: The activity's name.
        attempt: 1 for the first.
        config: The node's config as the definition has it.
        inputs: The node's inputs as one JSON object.
        answer: JSON text of what a person decided about the node's effect, which was in doubt.
        sensitive: Whether something that it takes or gives is masked in the log.
        allowed: JSON text of the globs of tools that it may call; None for all, and for what calls none.
        suspends: Whether it may end with what a person has to be asked.
        input: What answers its server's last question.
        approved: JSON text of what a person approved of it.
    """

    ordinal: int
    node_id: str
    type_id: str
    attempt: int
    config: bytes
    inputs: bytes
    answer: bytes | None = None
    sensitive: bool = False
    allowed: bytes | None = None
    suspends: bool = False
    input: Input | None = None
    approved: bytes | None = None

    @property
    def activity_id(self) -> str:
        """The activity's id in Temporal; by it the projection knows the attempt again."""
        return f"{self.node_id}:{self.attempt}"


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Start a timer of more than no time; ``node_id`` is None for what concerns the whole run."""

    ordinal: int
    seconds: float
    purpose: Literal["delay", "retry", "cancel-grace", "run-timeout", "input-backoff", "interrupt-timeout"]
    node_id: str | None


@dataclass(frozen=True, slots=True)
class CancelNode:
    """Cancel the activity or timer of that ordinal. An activity's answer is still waited for, a timer's is not."""

    ordinal: int


@dataclass(frozen=True, slots=True)
class NoteWaiting:
    """Note in Temporal with how many questions the run waits, and whether it is paused where that has changed.

    A task that asked and left nothing in history would be no task of its own to an SDK that replays it: it would be
    taken together with the next one, whose answers then came before their questions.
    """

    questions: int
    paused: bool | None = None


@dataclass(frozen=True, slots=True)
class CompleteRun:
    """End the run as completed; ``result`` refers to the outputs and holds none."""

    result: bytes


@dataclass(frozen=True, slots=True)
class FailRun:
    """End the run as failed."""

    code: str
    message: str
    details: bytes
    node_id: str | None


@dataclass(frozen=True, slots=True)
class CancelRun:
    """End the run as cancelled."""


@dataclass(frozen=True, slots=True)
class ContinueAsNew:
    """Go on in a new Temporal run that starts with ``state``, and with the large values that it holds beside it."""

    state: bytes
    kept: Sequence[bytes] = ()


Command = ScheduleNode | StartTimer | CancelNode | NoteWaiting | CompleteRun | FailRun | CancelRun | ContinueAsNew


@dataclass(frozen=True, slots=True)
class NodeSucceeded:
    """An activity gave a result: the server's bytes. ``at`` is in seconds since 1970, here and below.

    Attributes:
        metadata: That of the result's payload, as it stands in history. It tells whether the result is the call's, or
            what a person has to be asked before there is one.
    """

    ordinal: int
    result: bytes
    at: float
    metadata: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeFailed:
    """An activity ended without a result."""

    ordinal: int
    failure: CallFailure
    at: float


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer ran out."""

    ordinal: int
    at: float


@dataclass(frozen=True, slots=True)
class InterruptResolved:
    """A person answered the question that a node waits with.

    Attributes:
        resume_value: JSON text of the answer, as it was given.
        resolved_by: JSON text of the subject that gave it.
    """

    ordinal: int
    resume_value: bytes
    resolved_by: bytes
    at: float


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Someone asked for the run to be cancelled."""

    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class PauseRequested:
    """Someone asked for the run to be paused.

    Attributes:
        turn: Its place among the pauses and resumes that one workflow task brought.
        pause: What was asked for.
    """

    turn: int
    pause: Pause
    at: float


@dataclass(frozen=True, slots=True)
class ResumeRequested:
    """Someone asked for the paused run to go on; ``turn`` as for a pause."""

    turn: int
    resume: Resume
    at: float


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Temporal suggests a continue-as-new. Comes with other facts, never alone."""

    at: float


End = NodeSucceeded | NodeFailed | TimerFired | InterruptResolved
Turn = PauseRequested | ResumeRequested
Fact = End | Turn | CancelRequested | DrainRequested
