"""Event streams of runs: which events a mode lets through, and what a frame looks like on the wire.

Reads the parameters of a stream and encodes its frames; holds no connection and no clock. When a batch is due, and when
a connection was silent for too long, is for whoever has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from openwop_mcp.runs.events import TERMINAL, RunEvent

from .errors import HostError, invalid

__all__ = (
    "KEEP_ALIVE",
    "KEEP_ALIVE_SECONDS",
    "MAX_BUFFER_MS",
    "MODE",
    "MODES",
    "Batch",
    "Frame",
    "StreamMode",
    "buffer_ms",
    "event_frame",
    "last_event_id",
    "snapshot_frame",
)

MODES = ("updates", "values", "messages", "debug")
"""The modes that are served, the default first."""

KEEP_ALIVE = b": keep-alive\n\n"
"""A comment: it says that the connection lives, and nothing else."""

KEEP_ALIVE_SECONDS = 15.0
"""Half of what OpenWOP allows, so that one that is late is still in time."""

MAX_BUFFER_MS = 5000
"""How long OpenWOP lets events wait for company."""

MAX_BATCH_BYTES = 1024 * 1024
"""A batch that has as much is due. It keeps a log of large events from being held in memory as one frame."""

MODE = re.compile(r"values|(?:updates|messages|debug)(?:,(?:updates|messages|debug))*")
"""What a stream may be asked for."""

_SEQUENCE = re.compile(r"0|[1-9][0-9]{0,17}")
_MILLISECONDS = re.compile(r"0|[1-9][0-9]{0,3}")

_UPDATES = frozenset(
    {
        *TERMINAL,
        "run.started",
        "run.paused",
        "run.resumed",
        "node.completed",
        "node.failed",
        "node.skipped",
        "node.cancelled",
        "node.suspended",
        "node.resumed",
        "interrupt.requested",
        "interrupt.resolved",
    }
)
"""Where a run or a node came to stand, and what it waits for; of types that a run here has."""

_LETS_THROUGH: Mapping[str, frozenset[str]] = {
    "updates": _UPDATES,
    "values": _UPDATES,
    "messages": frozenset(),
}
"""The types that a mode lets through; ``debug`` is not here and lets all through. ``messages`` is for the words of a
model as they come, and no node here streams any: its streams are empty, and end with the run."""

_DUE = frozenset({*TERMINAL, "node.suspended"})
"""Types after which a batch waits for no more: a client has something to do."""


@dataclass(frozen=True, slots=True)
class StreamMode:
    """What a stream was asked for.

    Attributes:
        modes: One or more of :data:`MODES`, each once, in that order.
    """

    modes: tuple[str, ...]

    @classmethod
    def parse(cls, asked: str | None) -> StreamMode:
        """Read the parameter ``streamMode``, None if it is absent. Comes before any look at what the client accepts.

        Raises:
            HostError: ``unsupported_stream_mode``.
        """
        if asked is None:
            return cls(MODES[:1])
        if MODE.fullmatch(asked) is None:
            raise HostError(
                "unsupported_stream_mode",
                "streamMode: write values alone, or one or more of updates, messages and debug, with commas between",
                {"supported": list(MODES)},
            )
        return cls(tuple(mode for mode in MODES if mode in asked.split(",")))

    @property
    def of_snapshots(self) -> bool:
        """Whether a frame shows the run as it stands, and not what happened. Such a stream has no batches."""
        return self.modes == ("values",)

    def admits(self, event_type: str) -> str | None:
        """The name of the frame for an event of that type; None if it is not let through.

        A stream of one mode names the event's type, one of several the mode that admitted it.
        """
        for mode in self.modes:
            if event_type in _LETS_THROUGH.get(mode, (event_type,)):
                return event_type if len(self.modes) == 1 else mode
        return None


def buffer_ms(asked: str | None) -> int:
    """Read the parameter ``bufferMs``: how long events may wait for company, 0 for not at all.

    Raises:
        HostError: ``validation_error``.
    """
    if asked is None:
        return 0
    if _MILLISECONDS.fullmatch(asked) is None or int(asked) > MAX_BUFFER_MS:
        raise invalid("bufferMs", f"write a whole number of milliseconds from 0 to {MAX_BUFFER_MS}")
    return int(asked)


def last_event_id(header: str | None) -> int:
    """Read ``Last-Event-ID``: the sequence after which the stream goes on, -1 for from the first event.

    Raises:
        HostError: ``validation_error`` if it is no id that a frame can have had.
    """
    if header is None:
        return -1
    if _SEQUENCE.fullmatch(header) is None:
        raise invalid("Last-Event-ID", "send the id of the last frame, a whole number, or leave the header out")
    return int(header)


Frame = Sequence[bytes]
"""A frame in parts, so that what is large in it is not copied."""


def event_frame(event: RunEvent, name: str) -> Frame:
    """The frame of an event.

    Args:
        event: The event.
        name: What :meth:`StreamMode.admits` called it.
    """
    return _frame(event.sequence, name, event.parts())


def snapshot_frame(sequence: int, snapshot: Iterable[bytes]) -> Frame:
    """The frame of a run as it stands.

    Args:
        sequence: The event that it stands after, -1 for none. Then the frame has no id, as there is nothing to go on
            from.
        snapshot: JSON text of the snapshot, in parts.
    """
    return _frame(sequence, "state.snapshot", snapshot)


@dataclass(slots=True)
class Batch:
    """Events that wait for company."""

    _waiting: list[RunEvent] = field(default_factory=list)
    _size: int = 0

    def add(self, event: RunEvent) -> Frame | None:
        """Take an event that was let through; gives the frame if no more is waited for."""
        self._waiting.append(event)
        self._size += len(event.payload)
        return self.flush() if event.type in _DUE or self._size >= MAX_BATCH_BYTES else None

    def flush(self) -> Frame | None:
        """The frame of what waits, None if nothing does. Due when the time is up and when the stream ends."""
        if not self._waiting:
            return None
        parts = [part for event in self._waiting for part in (b",", *event.parts())]
        frame = _frame(self._waiting[-1].sequence, "batch", (b"[", *parts[1:], b"]"))
        self._waiting, self._size = [], 0
        return frame


def _frame(identity: int, name: str, data: Iterable[bytes]) -> Frame:
    # A line break ends a line of a stream. In JSON it stands between tokens only, where LF is as good as any. No part
    # ends within one: each begins and ends with a token.
    lines = [part.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ") for part in data]
    head = b"id: %d\n" % identity if identity >= 0 else b""
    return (head + b"event: %s\ndata: " % name.encode(), *lines, b"\n\n")
