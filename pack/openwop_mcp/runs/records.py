"""The calls that a Temporal history records, whatever workflow made them: for people who read, and for audits.

Pure: history in, records out. Knows no graph and no server.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import temporalio.api.common.v1
import temporalio.api.history.v1

from openwop_mcp import failures, jsontext
from openwop_mcp.calls import ACTIVITY_NAMES, INTERIM, METHODS, ORIGINAL, REDACTED, recorded
from openwop_mcp.effects.decide import Again, Ask, InDoubt, Parked, decide
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.effects.shared import PERFORM
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.nodes.calls import METHOD_OF
from openwop_mcp.protocol import mrtr
from openwop_mcp.questions.expiry import EXPIRED, REJECTED
from openwop_mcp.questions.question import interrupt_id, question_key
from openwop_mcp.runs.endings import cancelled, ending
from openwop_mcp.runs.interrupts import RESOLVE, Resolution
from openwop_mcp.verbatim import Verbatim

__all__ = ("CallRecord", "MadeCall", "Outcome", "made_calls", "records", "run_failure")

Outcome = Literal["ok", "isError", "failed", "inDoubt", "cancelled", "running", "retrying", "suspended"]
"""What became of a call. ``isError`` is a result that says so itself; ``running`` is all that has not ended;
``suspended`` waits for a person: to say what follows from a doubt, to answer its server, or to approve it."""

Round = Literal["input", "approval", "again"]
"""Why an attempt followed another that had not failed."""

AUTHORS = {name: method for method, name in ACTIVITY_NAMES.items()} | {PERFORM: "callTool"}
"""Host method by the activity types that ``ctx`` and the workflows of shared effects schedule."""

ENDED_FIRST = "the run ended before the call did"

NOT_APPROVED = "nothing was sent: the approval that the call needs was rejected"

UNANSWERED = {
    "approval": (REJECTED, Delivery.NOT_SENT, "nothing was sent: the approval that the call needs was not given"),
    "input": (EXPIRED, Delivery.ANSWERED, "what the server asks was not answered, and it was not called again"),
}
"""How a call ended that a workflow did not go on with: code, delivery and message by what it had asked for. Whether it
ran out of time or was given up is its author's code's to know."""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One answer of a server to a call, be it that it asks something first.

    Attributes:
        event_id: The history event that holds the answer.
        activity_id: The activity that made the call.
        result: The bytes the server sent, with their provenance.
    """

    event_id: int
    activity_id: str
    result: Verbatim

    @property
    def server_id(self) -> str:
        """The server that answered."""
        return self.result.provenance["server-id"]

    @property
    def method(self) -> str:
        """The MCP method, such as ``tools/call``."""
        return self.result.provenance["method"]

    @property
    def subject(self) -> str:
        """The tool, prompt or resource, if the method has one."""
        return self.result.provenance.get("subject", "")

    @property
    def revision(self) -> str:
        """The MCP revision on the wire; empty where nothing was answered, which is a health all the same."""
        return self.result.provenance.get("revision", "")

    @property
    def attempts(self) -> int:
        """Attempts that the answer took."""
        return int(self.result.provenance["attempt"])

    @property
    def sha256(self) -> str:
        """Digest that was taken when the answer arrived; empty where someone took it out of the record."""
        return self.result.provenance.get("sha256", "")

    @property
    def schema(self) -> str:
        """Whether the structured content keeps to the tool's output schema; empty where that was not looked at."""
        return self.result.provenance.get("schema", "")

    @property
    def cached(self) -> bool:
        """Whether the worker still had the answer, and asked nobody."""
        return self.result.provenance.get("cached") == "true"

    @property
    def redacted(self) -> int:
        """In how many places a credential was replaced that the server had sent back."""
        count = self.result.provenance.get(REDACTED, "")
        return int(count) if count.isdecimal() else 0

    @property
    def original_sha256(self) -> str:
        """Digest of what the server sent, where that is not what is recorded; else empty."""
        return self.result.provenance.get(ORIGINAL, "")

    @property
    def asks(self) -> bool:
        """Whether the server asks for input before it goes on, so that this is no result."""
        return self.result.provenance.get(INTERIM) == "input"

    @property
    def found_sha256(self) -> str:
        """Digest of the bytes as they stand in the record now."""
        return hashlib.sha256(self.result.raw).hexdigest()

    @property
    def intact(self) -> bool:
        """Whether the bytes are still those of the digest."""
        return self.found_sha256 == self.sha256


def records(events: Iterable[temporalio.api.history.v1.HistoryEvent]) -> list[CallRecord]:
    """List what servers have answered in a history, in its order."""
    scheduled: dict[int, str] = {}
    found: list[CallRecord] = []
    for event in events:
        if event.HasField("activity_task_scheduled_event_attributes"):
            scheduled[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
        elif event.HasField("activity_task_completed_event_attributes"):
            done = event.activity_task_completed_event_attributes
            for payload in done.result.payloads:
                result = recorded(payload)
                # Of a call that a person has to approve first no server knows.
                if result.provenance and result.provenance.get(INTERIM) != "approval":
                    found.append(CallRecord(event.event_id, scheduled.get(done.scheduled_event_id, ""), result))
    return found


@dataclass(frozen=True, slots=True)
class MadeCall:
    """One call, whatever became of it: of a graph one node with all its attempts, of other workflows one activity.

    Attributes:
        name: The node, or the id of the activity.
        activity_id: The activity of the last attempt.
        task_queue: Where that attempt waits for a worker, or did.
        server_id: The server; empty where what was asked cannot be read, like the two after it.
        method: The MCP method, such as ``tools/call``.
        subject: The tool, prompt or resource, if the method has one.
        attempts: Attempts made so far, also those that ended with something to be asked.
        outcome: What became of it.
        record: The answer, if there is one.
        failure: Why there is none, or why the last attempt has none.
        waited: Seconds waited between attempts, since the server asked last.
        parked: How it has waited for room, since then.
        postponed: Attempts that found no room, all of them.
        earlier: Attempts until the server asked last.
        escaped: Whether an attempt so far may have had its effect.
        asks: What the last attempt ended with, where it is for a person to go on from: the server's question, or the
            facts of a call that has to be approved.
        rounds: What was gone on from so far: a person's ``input`` or ``approval``, or ``again`` where the server only
            wanted to be called again.
    """

    name: str
    activity_id: str
    task_queue: str
    server_id: str
    method: str
    subject: str
    attempts: int
    outcome: Outcome = "running"
    record: CallRecord | None = None
    failure: failures.CallFailure | None = None
    waited: float = 0.0
    parked: Parked = field(default_factory=Parked)
    postponed: int = 0
    earlier: int = 0
    escaped: failures.Escaped = failures.Escaped.NO
    asks: Verbatim | None = None
    rounds: tuple[Round, ...] = ()

    @property
    def tries(self) -> int:
        """Attempts, without those that found no room, and those of which the only news is that something is asked."""
        return self.attempts - len(self.rounds) - self.postponed

    def refused(self, code: str, message: str, details: bytes) -> MadeCall:
        """The call after nobody gave what it had asked for; ``details`` are a JSON object's text."""
        _, delivery, _ = UNANSWERED[self._interim]
        failure = failures.final(code, message, delivery, details)
        return replace(self, outcome="failed", failure=failures.remembered(failure, self.escaped))

    @property
    def _interim(self) -> str:
        """What the last attempt asks for."""
        return "" if self.asks is None else self.asks.provenance[INTERIM]

    def ended(self, failure: failures.CallFailure) -> MadeCall:
        """The call after an attempt that came to nothing."""
        if failure.cancelled:
            return replace(self, outcome="cancelled", failure=failures.remembered(failure, self.escaped))
        attempts = self.attempts - self.earlier - self.parked.times
        decision = decide(failure.policy, attempts, self.waited, failure.happened, self.parked)
        wait = decision.wait if isinstance(decision, Again) else 0.0
        escaped = self.escaped.after(failure)
        call = (
            replace(self, waited=self.waited + wait, escaped=escaped)
            if failure.happened.postponed is None
            else replace(self, parked=self.parked.after(wait), postponed=self.postponed + 1, escaped=escaped)
        )
        if isinstance(decision, Again):
            return replace(call, outcome="retrying", failure=failure)
        concluded = failures.conclude(failures.remembered(failure, escaped), decision)
        if isinstance(decision, Ask):
            return replace(call, outcome="suspended", failure=concluded)
        return replace(call, outcome="inDoubt" if isinstance(decision, InDoubt) else "failed", failure=concluded)

    def answered(self, record: CallRecord) -> MadeCall:
        """The call after its answer, or after an attempt that ended with an interim one."""
        if INTERIM in record.result.provenance:
            asks = None if _asks_nobody(record.result) else record.result
            outcome: Outcome = "retrying" if asks is None else "suspended"
            return replace(
                self,
                outcome=outcome,
                failure=None,
                asks=asks,
                earlier=self.attempts,
                waited=0.0,
                parked=Parked(),
            )
        try:
            is_error = self.method == METHODS["callTool"] and record.result.is_error
        except jsontext.JsonTextError:
            is_error = False  # the record was changed since; its digest tells
        return replace(self, outcome="isError" if is_error else "ok", record=record, failure=None)

    def gone_on(self) -> tuple[Round, ...]:
        """The rounds before the attempt that follows this one."""
        if self.attempts != self.earlier:
            return self.rounds
        word: Round = "again" if self.asks is None else "approval" if self._interim == "approval" else "input"
        return (*self.rounds, word)

    def settled(self, *, cut: bool) -> MadeCall:
        """The call after the end of its run: nothing that is open goes on.

        Args:
            cut: Whether somebody ended the run, or its time, and not its code.
        """
        if self.outcome == "suspended" and self.asks is not None:
            code, delivery, message = UNANSWERED[self._interim]
            return self.ended(cancelled(ENDED_FIRST, delivery)) if cut else self.refused(code, message, b"{}")
        if self.outcome in {"retrying", "suspended"}:
            return replace(self, outcome="failed" if self.outcome == "retrying" else "inDoubt")
        return self.ended(cancelled(ENDED_FIRST, Delivery.UNKNOWN)) if self.outcome == "running" else self


def _asks_nobody(interim: Verbatim) -> bool:
    """Whether a server only wants to be called again."""
    if interim.provenance[INTERIM] != "input":
        return False
    try:
        return not mrtr.read(interim.raw).requests
    except (mrtr.MalformedInputError, jsontext.JsonTextError):
        return False  # the record was changed since; its digest tells


def made_calls(parts: Iterable[Sequence[temporalio.api.history.v1.HistoryEvent]]) -> list[MadeCall]:
    """List the calls of a workflow in the order in which they were first scheduled.

    Args:
        parts: The events of each part of a chain of continue-as-new, or of the one history that there is.
    """
    found: dict[tuple[int, str], MadeCall] = {}
    closed, cut = False, False
    for number, events in enumerate(parts):
        scheduled: dict[int, tuple[int, str]] = {}
        identity = ""
        for event in events:
            if event.HasField("workflow_execution_started_event_attributes"):
                began = event.workflow_execution_started_event_attributes
                identity = f"{began.workflow_id}\n{began.original_execution_run_id}"
            elif event.HasField("activity_task_scheduled_event_attributes"):
                _schedule(found, scheduled, number, event)
            elif (rejected := _rejected(event)) is not None:
                found = {
                    name: call.refused(REJECTED, NOT_APPROVED, b"{}")
                    if rejected == _approval_of(call, identity)
                    else call
                    for name, call in found.items()
                }
            elif (end := ending(event)) is not None and (key := scheduled.get(end.scheduled_event_id)) is not None:
                call = found[key]
                result = Verbatim(b"null") if end.result is None else recorded(end.result)
                found[key] = (
                    call.ended(end.failure)
                    if end.failure is not None
                    else call.answered(CallRecord(event.event_id, call.activity_id, result))
                )
            end_of_all = CLOSING.get(event.WhichOneof("attributes") or "")
            closed, cut = end_of_all is not None, end_of_all is True
    return [call.settled(cut=cut) if closed else call for call in found.values()]


CLOSING = {
    f"workflow_execution_{how}_event_attributes": how in {"timed_out", "canceled", "terminated"}
    for how in ("completed", "failed", "timed_out", "canceled", "terminated")
}
"""The attributes of an event after which nothing of a workflow goes on, and whether it was cut short by that."""


def _rejected(event: temporalio.api.history.v1.HistoryEvent) -> str | None:
    """The interrupt that an event rejects, as far as its answer can be read; of no other kind is that an answer."""
    request = event.workflow_execution_update_accepted_event_attributes.accepted_request
    if not event.HasField("workflow_execution_update_accepted_event_attributes") or request.input.name != RESOLVE:
        return None
    try:
        given = Resolution.decode(request.input.args.payloads[0].data)
        said = jsontext.decode(given.resume_value)
    except (ValueError, LookupError):
        return None
    return given.interrupt_id if isinstance(said, dict) and said.get("action") == "reject" else None


def _approval_of(call: MadeCall, identity: str) -> str | None:
    """Id of the interrupt that an author's call waits with for its approval; ``identity`` is the workflow's."""
    if call.asks is None or call.asks.provenance[INTERIM] != "approval":
        return None
    tenant = _text(call.asks.get("effectId")).rpartition("/")[0]
    return interrupt_id(tenant, identity, question_key("approval", call.name, call.attempts))


def _schedule(
    found: dict[tuple[int, str], MadeCall],
    scheduled: dict[int, tuple[int, str]],
    number: int,
    event: temporalio.api.history.v1.HistoryEvent,
) -> None:
    attributes = event.activity_task_scheduled_event_attributes
    kind, activity_id = attributes.activity_type.name, attributes.activity_id
    asked = _asked(kind, attributes.input.payloads)
    if kind in AUTHORS:
        # The first attempt names the call. Activity ids begin anew with each part of a chain.
        name = _text(asked.get("node")) or activity_id
        key = (number, name)
    elif kind in REGISTRY and REGISTRY[kind].run == "activity":
        name = activity_id.rpartition(":")[0] or activity_id
        key = (0, name)
    else:
        return
    before = found.get(key)
    found[key] = MadeCall(
        name=name,
        activity_id=activity_id,
        task_queue=attributes.task_queue.name,
        server_id=_text(asked.get("serverId")),
        method=METHODS.get(_text(AUTHORS.get(kind) or METHOD_OF.get(kind) or asked.get("method")), ""),
        subject=_text(asked.get("name")) or _text(asked.get("uri")),
        attempts=int(asked.get("attempt", 1)),
        waited=before.waited if before else 0.0,
        parked=before.parked if before else Parked(),
        postponed=before.postponed if before else 0,
        earlier=before.earlier if before else 0,
        escaped=before.escaped if before else failures.Escaped.NO,
        rounds=before.gone_on() if before else (),
    )
    scheduled[event.event_id] = key


def _asked(kind: str, payloads: Sequence[temporalio.api.common.v1.Payload]) -> dict[str, Any]:
    """What was asked, as far as it can be read: a codec of the author's may have made it unreadable."""
    try:
        given = [jsontext.decode(payload.data) for payload in payloads]
        if kind in AUTHORS:
            return dict(given[0])
        node, inputs = given
        return {**node["config"], **inputs, "attempt": node["attempt"]}
    except (ValueError, TypeError, LookupError):
        return {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def run_failure(event: temporalio.api.history.v1.HistoryEvent) -> tuple[str, str, bytes] | None:
    """Code, message and details of the failure that ended an author's workflow, if that is what the event tells."""
    if event.HasField("workflow_execution_timed_out_event_attributes"):
        return "run_timeout", "the workflow ran out of its time", b"{}"
    if not event.HasField("workflow_execution_failed_event_attributes"):
        return None
    failure = failures.read(event.workflow_execution_failed_event_attributes.failure)
    return failure.code, failure.message, failure.details
