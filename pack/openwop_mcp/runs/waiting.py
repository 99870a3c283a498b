"""What nodes of a run wait for people with: each open question, how its answer is read, and what follows from it.

Pure. Knows neither events nor commands; the state machine tells and carries out what follows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from openwop_mcp import jsontext
from openwop_mcp.calls import Input
from openwop_mcp.effects import doubt
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.effects.doubt import Answer
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.failures import CallFailure, Escaped, final, remembered
from openwop_mcp.questions import approvals, elicitation, gates
from openwop_mcp.questions.eligibility import may_answer
from openwop_mcp.questions.expiry import REJECTED, expired_code, expired_message
from openwop_mcp.questions.gates import Outcome
from openwop_mcp.questions.question import Question, Reason, interrupt_id, question_key
from openwop_mcp.runs.definition import ARGUMENTS, Node

__all__ = (
    "Asking",
    "Attempt",
    "Wait",
    "Waits",
    "ask_about_call",
    "ask_about_doubt",
    "ask_for_input",
    "ask_gate",
    "asks_nothing",
    "backoff",
    "check",
    "expired",
    "follow",
    "host_subject",
    "restored",
)

FIRST_BACKOFF = 0.25
"""Seconds before a server that asked nothing, and only wants to be called again, is called again."""

MAX_BACKOFF = 8.0
"""The longest such wait, to which it doubles with every round: by then a server is busy with something of its own."""


def host_subject(tenant: str) -> bytes:
    """The subject, as JSON text, that closes a question which nobody answered in time."""
    return jsontext.encode(
        {
            "issuer": "urn:openwop-mcp:host",
            "subjectId": "host",
            "tenant": tenant,
            "lane": "workload",
            "kind": "workload",
        }
    )


@dataclass(frozen=True, slots=True)
class Wait:
    """An open question of a node.

    Attributes:
        asked: The question.
        record: What its answer is read by: the server's request for input, or the facts of a call to be approved.
        following: What the request after a server's question carries, once the answer is added to it.
    """

    asked: Question
    record: bytes = b"{}"
    following: Input | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """That a node's call is made again, and what it carries then beside what it carried before.

    Attributes:
        answer: What a person decided about its effect, which was in doubt.
        input: What answers its server's question.
        approved: JSON text of what was approved.
    """

    answer: Answer | None = None
    input: Input | None = None
    approved: bytes | None = None


# --- questions --------------------------------------------------------------------------------------------------------


def ask_about_doubt(failure: CallFailure, inputs: Mapping[str, bytes]) -> Wait:
    """Ask what is to become of an effect in doubt."""
    return Wait(doubt.question(failure.details, failure.message, key=_key_of(inputs), arguments=inputs.get(ARGUMENTS)))


def asks_nothing(record: bytes) -> bool:
    """Whether a server that requires input asks nobody, and only wants to be called again."""
    return not elicitation.asked(record)


def backoff(following: Input) -> float:
    """Seconds before a server that asked nothing is called again."""
    # The exponent is bounded, as rounds are by a setting alone.
    return min(MAX_BACKOFF, FIRST_BACKOFF * 2.0 ** min(following.round - 1, 16))


def ask_for_input(spec: Node, attempt: int, record: bytes, following: Input, inputs: Mapping[str, bytes]) -> Wait:
    """Ask what a server asks.

    Args:
        spec: The node that called it.
        attempt: The attempt that it answered so.
        record: JSON text of its answer.
        following: What the next request carries beside what a person gives.
        inputs: The node's inputs.
    """
    key = question_key("input", spec.id, attempt)
    server_id, name, method = (_given(spec, inputs, member) for member in ("serverId", "name", "method"))
    called = spec.type.type_id == "community.mcp.call-tool" or method == "callTool"
    asked = elicitation.input_question(
        record,
        server_id=server_id or "",
        tool=name if called else None,
        key=key,
        timeout_ms=_timeout(spec),
    )
    return Wait(asked, record, following)


def ask_about_call(spec: Node, attempt: int, record: bytes, inputs: Mapping[str, bytes]) -> Wait:
    """Ask whether a call may be made; ``record`` has the facts of it as JSON text."""
    asked = approvals.call_question(
        record,
        inputs.get(ARGUMENTS),
        key=question_key("approval", spec.id, attempt),
        idempotency_key=_key_of(inputs),
        timeout_ms=_timeout(spec),
    )
    return Wait(asked, record)


def ask_gate(spec: Node, attempt: int, inputs: Mapping[str, bytes]) -> Wait:
    """Ask what a gate asks."""
    key = question_key("gate", spec.id, attempt)
    return Wait(gates.gate_question(spec.type.type_id, spec.config, inputs, key=key, node_id=spec.id))


# --- answers ----------------------------------------------------------------------------------------------------------


def check(wait: Wait, spec: Node, resume_value: bytes, room: int) -> None:
    """Tell whether an answer may be given. Takes processor time: not for what a replay does again.

    Args:
        wait: The open question.
        spec: The node that waits.
        resume_value: JSON text of the answer.
        room: Bytes that it may have, where it travels together with the call.

    Raises:
        InvalidRequestError: It may not; the message says what to write.
    """
    match wait.asked.reason:
        case "in-doubt":
            doubt.read_answer(resume_value, wait.asked.round, room)
        case "input-required":
            elicitation.check_input(resume_value, wait.record)
            carried = _answered(wait, resume_value)
            if (size := len(carried.encode())) > room:
                raise InvalidRequestError(
                    f"write a shorter answer: {size} bytes would travel with the call, which has room for {room}"
                )
        case "approval-required":
            approvals.read_call_answer(resume_value)
        case "gate":
            gates.check_gate(spec.type.type_id, spec.config, resume_value)


def follow(wait: Wait, spec: Node, resume_value: bytes, escaped: Escaped) -> Attempt | Outcome:
    """What an answer that :func:`check` has let through means for its node.

    Args:
        wait: The question.
        spec: The node that waits.
        resume_value: JSON text of the answer.
        escaped: Whether an attempt at its call may have had its effect.
    """
    match wait.asked.reason:
        case "in-doubt":
            return Attempt(answer=doubt.read_answer(resume_value, wait.asked.round))
        case "input-required":
            return Attempt(input=_answered(wait, resume_value))
        case "approval-required":
            if approvals.read_call_answer(resume_value) == "reject":
                return _unsent(REJECTED, "the approval that the call needs was rejected", escaped)
            return Attempt(approved=approvals.approved(wait.record))
        case "gate":
            return gates.gate_outcome(spec.type.type_id, spec.config, resume_value)


def expired(wait: Wait, escaped: Escaped) -> Outcome:
    """What the absence of an answer means for its node; ``escaped`` as for :func:`follow`."""
    asked = wait.asked
    assert asked.timeout_ms is not None
    called = asked.reason == "input-required"
    code, message = expired_code(asked.kind), expired_message(asked.timeout_ms, called=called)
    if called:
        return Outcome(None, code, message, _delivery(Delivery.ANSWERED))
    if asked.reason == "approval-required":
        return _unsent(code, message, escaped)
    return Outcome(None, code, message)


def _unsent(code: str, message: str, escaped: Escaped) -> Outcome:
    details = _delivery(Delivery.NOT_SENT)
    failure = remembered(final(code, f"nothing was sent: {message}", Delivery.NOT_SENT, details), escaped)
    return Outcome(None, failure.code, failure.message, failure.details)


def _delivery(delivery: Delivery) -> bytes:
    """What every failure of a call says in its details."""
    return jsontext.encode({"delivery": delivery.value})


def _answered(wait: Wait, resume_value: bytes) -> Input:
    assert wait.following is not None
    given = elicitation.read_input(resume_value, wait.record)
    declined = tuple(dict.fromkeys([*wait.following.declined, *given.declined]))
    return dataclasses.replace(wait.following, responses=given.responses, declined=declined)


def _key_of(inputs: Mapping[str, bytes]) -> str | None:
    key = inputs.get("idempotencyKey")
    return None if key is None else str(jsontext.decode(key))


def _given(spec: Node, inputs: Mapping[str, bytes], member: str) -> str | None:
    value = inputs.get(member) or jsontext.member(spec.config, member)
    return None if value is None else str(jsontext.decode(value))


def _timeout(spec: Node) -> int | None:
    value = jsontext.member(spec.config, "inputTimeoutMs")
    return None if value is None else int(jsontext.decode(value))


# --- all of a run -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Asking:
    """An open question, for who tells somebody of it.

    Attributes:
        ordinal: Names it in the run.
        interrupt_id: Names the interrupt.
        asked: The question; what is asked about a doubt is missing after a continue-as-new.
        due: Milliseconds since 1970 after which nobody is waited for any more.
    """

    ordinal: int
    interrupt_id: str
    asked: Question
    due: int | None


@dataclass(slots=True)
class _Open:
    wait: Wait
    due: int | None
    timer: int | None = None


class Waits:
    """The open questions of a run, by the ordinals that name them in the facts, and the ids of those that are closed.

    Args:
        tenant: Tenant of the run.
        run_id: The run.
    """

    def __init__(self, tenant: str, run_id: str) -> None:
        self._tenant, self._run_id = tenant, run_id
        self._open: dict[int, _Open] = {}
        self._closed: set[str] = set()

    def identity(self, asked: Question) -> str:
        """The id of an interrupt."""
        return interrupt_id(self._tenant, self._run_id, asked.key)

    @property
    def ordinals(self) -> list[int]:
        """Those of the open questions, oldest first."""
        return list(self._open)

    @property
    def asking(self) -> list[Asking]:
        """The open questions, oldest first."""
        return [
            Asking(ordinal, self.identity(one.wait.asked), one.wait.asked, one.due)
            for ordinal, one in self._open.items()
        ]

    @property
    def size(self) -> int:
        """Bytes that are kept to read the answers by."""
        return sum(len(one.wait.record) for one in self._open.values())

    def __getitem__(self, ordinal: int) -> Wait:
        return self._open[ordinal].wait

    def open(self, ordinal: int, wait: Wait, due: int | None) -> None:
        """Open one; ``due`` is when nobody is waited for any more, in milliseconds since 1970."""
        self._open[ordinal] = _Open(wait, due)

    def time(self, ordinal: int, timer: int) -> None:
        """Name the timer that keeps the time of a question."""
        self._open[ordinal].timer = timer

    def timed_by(self, timer: int) -> int | None:
        """The open question whose time a timer keeps."""
        return next((ordinal for ordinal, one in self._open.items() if one.timer == timer), None)

    def close(self, ordinal: int) -> tuple[Wait, int | None]:
        """Close one, as it was answered or nobody is asked any more; with it goes the timer that keeps its time."""
        one = self._open.pop(ordinal)
        self._closed.add(self.identity(one.wait.asked))
        return one.wait, one.timer

    def find(self, identity: str) -> list[int]:
        """The ordinals of the open questions of an id: several where nodes share an effect. One answer is for all."""
        return [ordinal for ordinal, one in self._open.items() if self.identity(one.wait.asked) == identity]

    def was_closed(self, identity: str) -> bool:
        """Whether an interrupt of that id is closed. A node that comes to it later opens it again."""
        return identity in self._closed

    def admits(self, ordinal: int, subject: bytes) -> bool:
        """Whether somebody, given as JSON text of a subject, is among those who may answer."""
        return may_answer(self[ordinal].asked.payload, subject)

    # --- state ---

    def state(self, nodes: Mapping[int, str]) -> list[tuple[str, bytes]]:
        """Members of a run's state; ``nodes`` names the node that waits by each ordinal."""
        rows: list[list[Any]] = []
        records: list[tuple[str, bytes]] = []
        for ordinal, one in self._open.items():
            wait, asked, node_id = one.wait, one.wait.asked, nodes[ordinal]
            if asked.reason == "in-doubt":
                rows.append([node_id, asked.key, asked.kind, asked.round])
                continue
            rows.append([node_id, asked.reason, one.due])
            if asked.reason != "gate":
                carried = [] if wait.following is None else [("following", wait.following.encode())]
                records.append((node_id, jsontext.build([("record", wait.record), *carried])))
        return [
            *([("interrupts", jsontext.encode(rows))] if rows else []),
            *([("asked", jsontext.build(records))] if records else []),
            *([("answered", jsontext.encode(sorted(self._closed)))] if self._closed else []),
        ]

    def restore(self, closed: Sequence[str]) -> None:
        """Take up the ids of what was closed before, out of a run's state."""
        self._closed = set(closed)


def restored(
    row: Sequence[Any], asked: Mapping[str, bytes], spec: Node, attempt: int, inputs: Mapping[str, bytes]
) -> tuple[Wait, int | None]:
    """A question out of a run's state, and when nobody is waited for any more.

    Args:
        row: Its row among the ``interrupts``.
        asked: The state's ``asked``, by node.
        spec: The node that waits.
        attempt: Its attempts so far.
        inputs: The node's inputs.
    """
    if len(row) == 4:  # noqa: PLR2004  a question about a doubt, as it was carried before there were others
        _, key, kind, number = row
        return Wait(Question(key, b"{}", kind, round=number)), None
    node_id, reason, due = row
    told = dict(jsontext.members(asked.get(node_id, b"{}")))
    match cast("Reason", reason):
        case "input-required":
            carried = Input.decode(told["following"])
            return ask_for_input(spec, attempt, told["record"], carried, inputs), due
        case "approval-required":
            return ask_about_call(spec, attempt, told["record"], inputs), due
        case _:
            return ask_gate(spec, attempt, inputs), due
