"""How an interrupt is asked and resolved in Temporal: the Update that resolves it, and the memo that shows it.

Knows shapes and names, which are persisted and never renamed; not what is asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from openwop_mcp import jsontext

__all__ = (
    "MEMO",
    "PENDING",
    "RESOLVE",
    "WAITING",
    "OpenInterrupt",
    "Resolution",
    "encode_open",
    "read_open",
    "waiting_status",
)

RESOLVE = "openwop-mcp.resolveInterrupt"
"""The Update that a workflow takes an answer with; its one argument is a :class:`Resolution`."""

MEMO = "openwop-mcp.interrupts"
"""The memo in which an author's workflow shows its open interrupts; those of a run stand in its log."""

PENDING = "openwop-mcp.pendingInterrupts"
"""The Query that an author's workflow answers with all of its open interrupts, in the shape of the memo."""

WAITING = "openwop-mcp.waiting"
"""The memo that says how many open interrupts a run or workflow has: of many, not all are shown."""


@dataclass(frozen=True, slots=True)
class OpenInterrupt:
    """A question that waits for an answer.

    Attributes:
        interrupt_id: Names it.
        node_id: The node that waits; empty where an author's workflow asks.
        payload: JSON text of the ``InterruptPayload`` (OpenWOP v2, interrupts).
        run_id: The run or workflow that waits.
        asked_at: Since when, RFC 3339; empty where that is not known.
    """

    interrupt_id: str
    node_id: str
    payload: bytes
    run_id: str = ""
    asked_at: str = ""

    @property
    def kind(self) -> str:
        """What kind of question it is."""
        return str(jsontext.decode(jsontext.member(self.payload, "kind") or b'""'))

    def encode(self) -> bytes:
        """JSON text."""
        return jsontext.build(
            [
                *([("runId", jsontext.encode(self.run_id))] if self.run_id else []),
                ("interruptId", jsontext.encode(self.interrupt_id)),
                *([("nodeId", jsontext.encode(self.node_id))] if self.node_id else []),
                *([("askedAt", jsontext.encode(self.asked_at))] if self.asked_at else []),
                ("interrupt", self.payload),
            ]
        )


@dataclass(frozen=True, slots=True)
class Resolution:
    """An answer to an interrupt.

    Attributes:
        interrupt_id: Which.
        resume_value: JSON text of the answer, as it was given.
        resolved_by: JSON text of the subject that gave it.
    """

    interrupt_id: str
    resume_value: bytes
    resolved_by: bytes

    def encode(self) -> bytes:
        """JSON text, the answer in it byte for byte."""
        return jsontext.build(
            [
                ("interruptId", jsontext.encode(self.interrupt_id)),
                ("resumeValue", self.resume_value),
                ("resolvedBy", self.resolved_by),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Resolution:
        """Read what :meth:`encode` wrote.

        Raises:
            ValueError: It is no JSON object, or its ``interruptId`` no string.
            KeyError: A member is missing.
        """
        members = dict(jsontext.members(data))
        identity = jsontext.decode(members["interruptId"])
        if not isinstance(identity, str):
            raise ValueError("interruptId is no string")  # noqa: TRY004 - it is the text that is wrong, not the caller
        return cls(identity, members["resumeValue"], members["resolvedBy"])


def encode_open(interrupts: Sequence[OpenInterrupt]) -> bytes:
    """JSON text of the open interrupts, for the memo."""
    return b"[" + b",".join(one.encode() for one in interrupts) + b"]"


def read_open(data: bytes) -> list[OpenInterrupt]:
    """Read what :func:`encode_open` wrote."""
    found = [dict(jsontext.members(one)) for one in jsontext.elements(data)]
    return [
        OpenInterrupt(
            jsontext.decode(one["interruptId"]),
            jsontext.decode(one.get("nodeId", b'""')),
            one["interrupt"],
            asked_at=jsontext.decode(one.get("askedAt", b'""')),
        )
        for one in found
    ]


def waiting_status(kind: str) -> Literal["waiting-approval", "waiting-input", "waiting-external"]:
    """How a run stands that waits with an interrupt of that kind (OpenWOP v2, runs)."""
    match kind:
        case "approval":
            return "waiting-approval"
        case "external-event":
            return "waiting-external"
        case _:
            return "waiting-input"
