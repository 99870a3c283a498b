"""The run's state machine: facts in, commands and events out. It drives the live workflow and the projection alike.

Pure: no clock, no Temporal, no I/O. The outcome of a batch of facts does not depend on their order in it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from openwop_mcp import jsontext, nodes
from openwop_mcp.calls import MAX_DEPTH, Input, Interim, answering, interim, of_redaction
from openwop_mcp.ceilings import MAX_CALL_BYTES
from openwop_mcp.effects.decide import Again, Ask, Decision, Parked, RetryPolicy, decide
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.effects.doubt import read_verdict
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.failures import CallFailure, Escaped, conclude, remembered
from openwop_mcp.questions.decisions import attributed
from openwop_mcp.questions.decisions import decision as told_decision
from openwop_mcp.questions.gates import Outcome
from openwop_mcp.questions.question import Question
from openwop_mcp.runs import callbacks, masking, negotiation, sessions, values, waiting
from openwop_mcp.runs import definition as definitions
from openwop_mcp.runs.commands import (
    CancelNode,
    CancelRequested,
    CancelRun,
    Command,
    CompleteRun,
    ContinueAsNew,
    DrainRequested,
    End,
    Fact,
    FailRun,
    InterruptResolved,
    NodeFailed,
    NodeSucceeded,
    NoteWaiting,
    PauseRequested,
    ResumeRequested,
    ScheduleNode,
    StartTimer,
    TimerFired,
    Turn,
)
from openwop_mcp.runs.definition import (
    Connection,
    Definition,
    DefinitionError,
    Node,
    Operand,
    Port,
    SourceOutput,
    Static,
)
from openwop_mcp.runs.events import timestamp
from openwop_mcp.runs.graph import UNSETTLED, GraphEdge, GraphNode, Says, Status, graph, rule_holds
from openwop_mcp.runs.start import Options, RunStart

__all__ = (
    "CancelNode",
    "CancelRequested",
    "CancelRun",
    "Carried",
    "Command",
    "CompleteRun",
    "ContinueAsNew",
    "DrainRequested",
    "Emit",
    "Fact",
    "FailRun",
    "InterruptResolved",
    "NodeFailed",
    "NodeSucceeded",
    "NoteWaiting",
    "PauseRequested",
    "ResumeRequested",
    "RunMachine",
    "ScheduleNode",
    "Standing",
    "StartTimer",
    "TimerFired",
    "Turn",
)

CANCEL_GRACE = 3.0
"""Seconds that a cancelled run waits for its activities; OpenWOP expects the end of the run within five."""

MAX_INPUT = 2_000_000
"""Bytes that a run can be started with, start, state and inputs together; over 2 MiB Temporal refuses it for ever."""

BUDGET = 40_000_000
"""Bytes that one history may take. At 50 MiB Temporal ends the run, and what it was about to say is lost."""

MAX_RESULT = 1_572_864
"""Bytes that a result may have. As long as a run has seen none, the next is taken to be of this size."""

MIN_RESULT = 65_536
"""Bytes that are set aside for a call's result however small the others were, since one may be larger than they. In
:data:`BUDGET` this leaves room for some 600 calls at once, of the 2000 that Temporal holds for a workflow."""

MAX_BYTES = 2_000_000
"""Bytes of calls under way above which the next one waits for an answer. What a workflow task schedules travels in one
message of at most 4 MiB, beyond which Temporal ends the workflow; a call takes up at most ``MAX_CALL_BYTES``."""

OVERHEAD = 1_000
"""Bytes that a call, its end or a timer takes up in a message and in history beside what it carries: ids, summary,
limits, provenance, the workflow task that deals with it."""

REFERENCE = 1_000
"""Bytes of history that stand for a value which is kept outside of it: its digest, and the metadata of its payload."""

Emit = Callable[[int, str, str | None, bytes, int], None]
"""Takes an event: sequence, type, node id, payload as JSON text, milliseconds since 1970."""

Standing = Literal["running", "paused", "ending", "over"]
"""Where a run stands for who wants to pause or resume it; one that is ending was cancelled, or went over a limit."""

Members = Sequence[tuple[str, bytes]]
Outputs = Mapping[str, bytes]

_ADMITS_FAILED = ("all_complete", "any_failed")
_NOTHING: Outputs = {}


@dataclass(frozen=True, slots=True)
class _Flight:
    """Something under way: an attempt's activity, a timer due at ``due``, or a question. It took ``size`` bytes.

    An attempt that a pause has ``cut`` stays until its activity has answered.
    """

    purpose: Literal["call", "delay", "retry", "cancel-grace", "input-backoff", "interrupt"]
    node: GraphNode | None
    due: int = 0
    size: int = OVERHEAD
    cut: bool = False


@dataclass(frozen=True, slots=True)
class _Stop:
    """Why a run stops before its nodes are through: it was cancelled, or it fails."""

    reason: str
    failure: FailRun | None = None


@dataclass(frozen=True, slots=True)
class _Error:
    code: str
    message: str
    details: bytes = b"{}"
    retryable: bool = False

    def encode(self) -> bytes:
        return jsontext.build(
            [
                ("code", jsontext.encode(self.code)),
                ("message", jsontext.encode(self.message or self.code)),
                ("details", self.details),
                ("retryable", jsontext.encode(self.retryable)),
            ]
        )


@dataclass(slots=True)
class Carried:
    """What only the log of a run needs of the runs that it continues. The run itself neither knows nor counts it.

    Attributes:
        sinks: Outputs of the nodes without outgoing edges, for the event that ends the run.
        told: What was last told of each peer, by its digest.
        uncounted: Events that are told beside those that the run counts. They follow from what stands in the records
            of calls, which a worker of another version may write otherwise than the worker that drives the run.
        definition: The definition as it was read: to read the same again takes as long as some thousand events.
    """

    sinks: dict[str, Outputs] = field(default_factory=dict)
    told: dict[str, negotiation.Verdict] = field(default_factory=dict)
    uncounted: int = 0
    definition: Definition | None = None

    def copy(self) -> Carried:
        """One that can be added to without changing this."""
        return Carried(dict(self.sinks), dict(self.told), self.uncounted, self.definition)

    def parsed(self, start: RunStart) -> tuple[Definition | None, str | None]:
        """The definition of the run, or why it cannot be run."""
        if self.definition is None or self.definition.raw != start.definition:
            self.definition, refusal = _parsed(start)
            return self.definition, refusal
        return self.definition, None


class _MissingInputError(Exception):
    """An input has no value to take."""


class RunMachine:
    """One run.

    Args:
        start: What the run was started with; its ``state``, if it has one, is taken up.
        inputs: JSON text of the run's inputs, as posted.
        kept: The large values that the state of ``start`` refers to, as ``ContinueAsNew`` named them.
        emit: Takes each event. None costs nothing: no payload is built.
        carried: What the log needs of the run that this one continues; none is needed without a log.
    """

    def __init__(
        self,
        start: RunStart,
        inputs: bytes,
        kept: Sequence[bytes] = (),
        *,
        emit: Emit | None = None,
        carried: Carried | None = None,
    ) -> None:
        self._start = start
        self._inputs = inputs
        self._given: Members = ()
        self._emit = emit
        self._carried = Carried() if carried is None else carried.copy()
        self._definition, self._refusal = self._carried.parsed(start)
        try:
            jsontext.check_depth(inputs, MAX_DEPTH)
            self._given = jsontext.members(inputs)
        except jsontext.JsonTextError as error:
            self._refusal, self._inputs = f"inputs: {error}", b"{}"
        # Of an unsound definition nothing is run, and only a log has something to hide.
        unlogged = emit is None and self._definition is None
        self._masks = None if unlogged else masking.masks(self._definition, start.definition)
        self._values: dict[str, bytes] = {}
        self._nodes: dict[str, GraphNode] = {}
        self._edges: list[GraphEdge] = []
        self._outputs: dict[str, Outputs] = {}
        self._build()

        self._sequence = 0
        self._ordinal = 0
        self._now = 0
        self._began = 0
        self._begun = False
        self._open = len(self._nodes)
        self._flights: dict[int, _Flight] = {}
        self._calls = 0
        self._bytes = 0
        self._inline = start.options.inline_bytes
        self._envelope = len(start.carrying(b"").encode())
        self._history = self._size_of_start(len(start.state or b""), len(kept))
        self._largest: int | None = None
        self._waits = waiting.Waits(start.owner.tenant, start.run_id)
        self._ready: deque[GraphNode] = deque()
        self._held: deque[GraphNode] = deque()
        self._settled: deque[GraphNode] = deque()
        self._commands: list[Command] = []
        self._failure: FailRun | None = None
        self._halted = False
        self._stopping: _Stop | None = None
        self._draining = False
        self._paused = False
        self._untold: list[End] = []
        self._executions = 0
        self._left_ms = start.options.run_timeout_ms
        self._deadline: int | None = None
        self._over: Command | None = None
        self._carried_timers: list[Callable[[], None]] = []
        if start.state is not None:
            self._restore(start.state, kept)
        self._noted = self._waits.ordinals, self._paused

    @property
    def over(self) -> Command | None:
        """The command that ended the run or its part before a continue-as-new, None while it goes on."""
        return self._over

    def is_sensitive(self, node_id: str | None) -> bool:
        """Whether the log masks something that a node takes or gives, so that nothing may be printed of it either."""
        return self._masks is not None and node_id is not None and self._masks.hides(node_id)

    @property
    def carried(self) -> Carried:
        """What the log of the run that continues this one needs, kept only where events are wanted."""
        return self._carried

    def begin(self, at: float) -> list[Command]:
        """Begin the run, or take it up again after a continue-as-new.

        Args:
            at: Seconds since 1970.
        """
        self._tick(at)
        restored = self._begun
        self._announce()
        if restored:
            self._take_up_timers()
            self._start_deadline()
        else:
            faults = self._check_values()
            if faults:
                self._end_failed(FailRun("validation_error", "; ".join(faults), b"{}", None))
                return self._done()
            self._start_deadline()
            for node in self._nodes.values():
                if not node.incoming:
                    self._make_ready(node)
        self._advance()
        self._conclude()
        return self._done()

    def apply(self, facts: Sequence[Fact]) -> list[Command]:
        """Take what one workflow task brought.

        Args:
            facts: In any order. Those of an ordinal that is no longer under way are ignored.

        Returns:
            What to carry out, in this order; nothing once the run is over.
        """
        if self._over is not None:
            return []
        if all(isinstance(fact, InterruptResolved | Turn | DrainRequested) for fact in facts):
            # Answers come before what else their task brings. A cancel may be among it, which a new run never hears of.
            facts = [fact for fact in facts if not isinstance(fact, DrainRequested)]
        # What stops a run is the last fact of its batch, but what the others set free does not start before it.
        self._halted = self._halted or any(self._stops(fact) for fact in facts)
        for fact in sorted(facts, key=self._rank):
            if self._over is not None:
                break
            self._tick(fact.at)
            self._take(fact)
            self._advance()
            self._conclude()
        self._hand_over()
        return self._done()

    def abandon_cancelled(self, at: float, reason: str) -> None:
        """End the log of a run that was cut off from outside: cancelled or terminated without the machine's doing."""
        if self._over is None:
            self._tick(at)
            self._announce()
            self._end_cancelled(reason)

    def abandon_failed(self, at: float, code: str, message: str) -> None:
        """End the log of a run that failed without the machine's doing."""
        if self._over is None:
            self._tick(at)
            self._announce()
            self._cancel_rest(message)
            self._end_failed(FailRun(code, message, b"{}", None))

    # --- the graph ---

    def _build(self) -> None:
        if self._definition is None:
            return
        self._nodes, self._edges = graph(self._definition)
        self._values = {item.name: item.default for item in self._definition.variables if item.default is not None}
        self._values.update(self._given)

    def _check_values(self) -> list[str]:
        if self._refusal is not None or self._definition is None:
            return [self._refusal or "the definition cannot be run"]
        return [f"inputs.{name}: {what}" for name, what in self._definition.misfits(self._values)]

    # --- facts ---

    def _stops(self, fact: Fact) -> bool:
        return isinstance(fact, CancelRequested) or (isinstance(fact, TimerFired) and fact.ordinal == self._deadline)

    def _rank(self, fact: Fact) -> tuple[int, int, float, str]:
        match fact:
            case DrainRequested():
                return 0, 0, fact.at, ""
            case PauseRequested() | ResumeRequested():
                return 1, fact.turn, fact.at, ""
            case CancelRequested():
                return 3, 0, fact.at, fact.reason
            case _:
                return 4 if self._stops(fact) else 2, fact.ordinal, fact.at, ""

    def _take(self, fact: Fact) -> None:
        match fact:
            case DrainRequested():
                # It comes again with every later task, so that what does not fit yet is looked at again.
                self._draining = self._draining or not isinstance(self._fitting_state(), FailRun)
            case PauseRequested():
                self._pause(fact)
            case ResumeRequested():
                self._go_on(fact)
            case CancelRequested():
                self._stop(_Stop(fact.reason))
            case _:
                if fact.ordinal >= self._ordinal:
                    raise ValueError(f"the run has no ordinal {fact.ordinal} yet")
                self._weigh(fact)
                if self._stops(fact):
                    self._time_out()
                else:
                    self._take_end(fact)

    def _take_end(self, fact: End) -> None:
        if isinstance(fact, TimerFired) and (timed := self._waits.timed_by(fact.ordinal)) is not None:
            self._expire(timed)
            return
        flight = self._flights.get(fact.ordinal)
        if flight is None:
            return
        if self._paused and flight.node is not None and self._waits_untold(flight, flight.node, fact):
            self._untold.append(fact)
            return
        del self._flights[fact.ordinal]
        if flight.purpose == "call":
            self._calls -= 1
            self._bytes -= flight.size
        if flight.node is None:
            self._end_stopped()
            return
        node = flight.node
        match fact:
            case NodeSucceeded() | NodeFailed():
                self._tell_terms(node, fact)
                self._attempt_ended(flight, node, fact)
            case TimerFired():
                self._timer_fired(flight)
            case InterruptResolved():
                self._resumed(node, fact)

    def _weigh(self, fact: End) -> None:
        """Count what a fact has taken up in history."""
        self._history += OVERHEAD
        match fact:
            case NodeSucceeded():
                self._history += self._cost(len(fact.result))
                self._largest = max(self._largest or MIN_RESULT, self._inside(len(fact.result)))
            case NodeFailed():
                self._history += self._inside(len(fact.failure.details)) + len(fact.failure.message)
            case InterruptResolved():
                self._history += self._cost(len(fact.resume_value))

    def _outside(self, size: int) -> bool:
        """Whether a value of so many bytes is kept outside history."""
        return self._inline is not None and size > self._inline

    def _cost(self, size: int) -> int:
        """Bytes of history that a value of so many bytes takes up."""
        return REFERENCE if self._outside(size) else size

    def _inside(self, size: int) -> int:
        """Bytes of history that values of up to so many bytes take up at most."""
        return size if self._inline is None else min(size, self._inline)

    def _stop(self, stop: _Stop) -> None:
        """Start nothing more, cut what is under way, and end the run once that is answered, or the grace over."""
        if self._stopping is not None:
            return
        self._stopping = stop
        self._paused = False
        self._tell_untold()
        for node in (*self._held, *self._ready):
            if node.attempt:
                self._cancelled(node, stop.reason)
        self._held.clear()
        self._ready.clear()
        self._settled.clear()
        for ordinal, flight in list(self._flights.items()):
            if not flight.cut:
                self._commands.append(CancelNode(ordinal))
            if flight.purpose == "interrupt":
                self._close_wait(ordinal)
            if flight.purpose != "call" and flight.node is not None:
                del self._flights[ordinal]
                self._cancelled(flight.node, stop.reason)
        if self._calls:
            self._start_timer("cancel-grace", None, CANCEL_GRACE)

    def _timer_fired(self, flight: _Flight) -> None:
        assert flight.node is not None
        if flight.purpose == "delay":
            self._complete(flight.node, _NOTHING)
        else:
            self._ready.append(flight.node)

    def _attempt_ended(self, flight: _Flight, node: GraphNode, fact: NodeSucceeded | NodeFailed) -> None:
        if isinstance(fact, NodeFailed):
            node.escaped = node.escaped.after(fact.failure)
            if flight.cut and self._stopping is None and _nothing_to_lose(fact.failure):
                self._put_back(node)
            else:
                self._attempt_failed(node, fact.failure)
        elif (kind := self._interim(fact)) is None:
            self._complete(node, {"result": fact.result}, of_redaction(fact.metadata))
        else:
            self._ask(node, kind, fact)

    def _attempt_failed(self, node: GraphNode, failure: CallFailure) -> None:
        if self._stopping is not None:
            if failure.cancelled:
                self._cancelled(node, self._stopping.reason)
            else:
                self._fail(node, _error_of(self._remembered(node, failure)))
            return
        decision = self._decide(node, failure)
        if isinstance(decision, Ask):
            # Leave to send again is used up by that.
            node.answer = None
            self._suspend(node, waiting.ask_about_doubt(conclude(failure, decision), dict(self._inputs_of(node))))
            return
        if not isinstance(decision, Again):
            self._fail(node, _error_of(conclude(self._remembered(node, failure), decision)))
            return
        error = _error_of(failure)
        if self._halted:
            self._ready.append(node)
            return
        if failure.happened.postponed is None:
            node.waited += decision.wait
        else:
            node.parked = node.parked.after(decision.wait)
        self._event(
            "node.retried",
            node,
            lambda: [
                ("attempt", jsontext.encode(node.attempt)),
                ("delayMs", jsontext.encode(max(0, round(decision.wait * 1000)))),
                ("lastError", error.encode()),
            ],
        )
        if decision.wait > 0:
            self._start_timer("retry", node, decision.wait)
        else:
            self._ready.append(node)

    def _remembered(self, node: GraphNode, failure: CallFailure) -> CallFailure:
        return remembered(failure, self._escaped(node))

    def _escaped(self, node: GraphNode) -> Escaped:
        return node.escaped if self._start.has("earlier-attempts") else Escaped.NO

    def _decide(self, node: GraphNode, failure: CallFailure) -> Decision:
        attempts = node.attempt - max(node.cut, node.before) - node.parked.times
        return decide(self._policy(failure.policy), attempts, node.waited, failure.happened, node.parked)

    # --- pauses ---

    def standing(self, pending: Sequence[Fact] = ()) -> Standing:
        """Where the run stands once it has taken these facts, as far as pauses go."""
        if self._over is not None:
            return "over"
        if self._stopping is not None:
            return "ending"
        turns = [fact for fact in pending if isinstance(fact, Turn)]
        last = max(turns, key=lambda turn: turn.turn, default=None)
        paused = self._paused if last is None else isinstance(last, PauseRequested)
        return "paused" if paused else "running"

    def _pause(self, fact: PauseRequested) -> None:
        if self._paused or self._stopping is not None:
            return
        self._paused = True
        asked = fact.pause
        cut = self._cut() if asked.drain_policy == "immediate" else None
        self._event(
            "run.paused",
            None,
            lambda: [
                *_reason(asked.reason or ""),
                ("drainPolicy", jsontext.encode(asked.drain_policy)),
                *(
                    []
                    if cut is None
                    else [
                        ("interruptedNodeId", jsontext.encode(cut.spec.id)),
                        ("interruptedAttempt", jsontext.encode(cut.attempt)),
                    ]
                ),
            ],
        )

    def _cut(self) -> GraphNode | None:
        """Cut the attempts under way. An event has room for one node that this was done to: the first of them."""
        first = None
        for ordinal, flight in list(self._flights.items()):
            if flight.node is None or flight.cut or flight.purpose not in {"call", "delay"}:
                continue
            first = first or flight.node
            self._commands.append(CancelNode(ordinal))
            if flight.purpose == "call":
                self._flights[ordinal] = dataclasses.replace(flight, cut=True)
            else:
                del self._flights[ordinal]
                self._put_back(flight.node)
        return first

    def _put_back(self, node: GraphNode) -> None:
        """Have a node whose attempt was cut begin afresh: its attempts and waits so far do not count any more."""
        self._close_session(node, "cancelled")
        node.cut, node.waited, node.parked = node.attempt, 0.0, Parked()
        self._make_ready(node)

    def _waits_untold(self, flight: _Flight, node: GraphNode, fact: End) -> bool:
        """Whether an end is kept until the paused run goes on: that of a cut attempt, and one after which more comes.

        Its flight stays, so that the call counts as under way.
        """
        match fact:
            case NodeSucceeded():
                return flight.cut or self._interim(fact) is not None
            case NodeFailed():
                return flight.cut or isinstance(self._decide(node, fact.failure), Again | Ask)
            case _:
                return flight.cut

    def _go_on(self, fact: ResumeRequested) -> None:
        if not self._paused:
            return
        self._paused = False
        # It is asked for again with the next task that brings more than this.
        self._draining = False
        self._event("run.resumed", None, lambda: _reason(fact.resume.reason or ""))
        self._tell_untold()

    def _tell_untold(self) -> None:
        untold, self._untold = self._untold, []
        for fact in untold:
            self._take_end(fact)

    # --- limits ---

    def _start_deadline(self) -> None:
        if self._left_ms is None:
            return
        if self._left_ms <= 0:
            self._time_out()
            return
        self._deadline = self._ordinal
        self._ordinal += 1
        self._history += OVERHEAD
        self._commands.append(StartTimer(self._deadline, self._left_ms / 1000, "run-timeout", None))

    def _time_out(self) -> None:
        limit = self._start.options.run_timeout_ms
        assert limit is not None
        # Times of history and those of a timer are not of one clock.
        observed = max(self._now - self._began, limit + 1)
        why = (
            f"the run took longer than the {limit} ms that it may (settings.timeout of its workflow, "
            "configurable.run.runTimeoutMs, or the host's own limit)"
        )
        self._breach("run-duration", limit, observed, FailRun("run_timeout", why, _limit(limit), None))

    def _may_start(self) -> bool:
        """Whether one more node may start; the run fails where it may not."""
        limit = self._start.options.max_node_executions
        if limit is None or self._executions < limit:
            self._executions += 1
            return True
        why = (
            f"the run was to start more than the {limit} nodes that it may (configurable.run.recursionLimit, or the "
            "host's own limit)"
        )
        failure = FailRun("recursion_limit_exceeded", why, _limit(limit), None)
        self._breach("node-executions", limit, limit + 1, failure)
        return False

    def _breach(self, kind: str, limit: int, observed: int, failure: FailRun) -> None:
        if self._stopping is not None:
            return
        self._event(
            "cap.breached",
            None,
            lambda: [
                ("kind", jsontext.encode(kind)),
                ("limit", jsontext.encode(limit)),
                ("observed", jsontext.encode(observed)),
            ],
        )
        self._stop(_Stop(failure.code, failure))

    # --- interrupts ---

    def _interim(self, fact: NodeSucceeded) -> Interim | None:
        """What there is to be asked before a call has a result; None where it has one."""
        return interim(fact.metadata) if self._start.has("questions") else None

    def _ask(self, node: GraphNode, kind: Interim, fact: NodeSucceeded) -> None:
        """Go on from an attempt that ended with something to be asked: such an attempt uses up nothing."""
        if self._stopping is not None:
            self._cancelled(node, self._stopping.reason)
            return
        node.before, node.waited, node.parked = node.attempt, 0.0, Parked()
        inputs = dict(self._inputs_of(node))
        if kind == "approval":
            self._suspend(node, waiting.ask_about_call(node.spec, node.attempt, fact.result, inputs))
            return
        # What was decided was carried out: the server has answered.
        node.answer = None
        following = answering(fact.result, fact.metadata, None, before=node.input)
        if not waiting.asks_nothing(fact.result):
            self._suspend(node, waiting.ask_for_input(node.spec, node.attempt, fact.result, following, inputs))
            return
        node.input = following
        if self._halted:
            self._ready.append(node)
        else:
            self._start_timer("input-backoff", node, waiting.backoff(following))

    def _suspend(self, node: GraphNode, wait: waiting.Wait) -> None:
        asked = wait.asked
        node.status = Status.SUSPENDED
        ordinal = self._fly(_Flight("interrupt", node))
        due = None if asked.timeout_ms is None else self._now + asked.timeout_ms
        self._waits.open(ordinal, wait, due)
        if self._start.callback_url is not None:
            # Whoever created the run is told, by an activity that is given what is asked.
            self._history += OVERHEAD + min(len(asked.payload), callbacks.MAX_DATA)
        self._event("interrupt.requested", node, lambda: jsontext.members(asked.payload), verbatim=True)
        self._event(
            "node.suspended",
            node,
            lambda: [
                ("interruptId", jsontext.encode(self._waits.identity(asked))),
                ("kind", jsontext.encode(asked.kind)),
                ("reason", jsontext.encode(asked.reason)),
                ("key", jsontext.encode(asked.key)),
            ],
        )
        if asked.timeout_ms is not None:
            self._time_wait(ordinal, node, asked.timeout_ms / 1000)

    def _time_wait(self, ordinal: int, node: GraphNode, seconds: float) -> None:
        timer = self._ordinal
        self._ordinal += 1
        self._history += OVERHEAD
        self._waits.time(ordinal, timer)
        self._commands.append(StartTimer(timer, seconds, "interrupt-timeout", node.spec.id))

    def _close_wait(self, ordinal: int) -> waiting.Wait:
        wait, timer = self._waits.close(ordinal)
        if timer is not None:
            self._commands.append(CancelNode(timer))
        return wait

    def _resumed(self, node: GraphNode, fact: InterruptResolved) -> None:
        wait = self._close_wait(fact.ordinal)
        resume_value = attributed(wait.asked.kind, fact.resume_value, fact.resolved_by)
        self._tell_resolved(node, wait.asked, resume_value, fact.resolved_by)
        match waiting.follow(wait, node.spec, resume_value, self._escaped(node)):
            case Outcome() as outcome:
                self._end_by(node, outcome)
            case waiting.Attempt() as attempt:
                if attempt.answer is not None:
                    node.answer = replace(attempt.answer, since=node.attempt + 1)
                node.input = attempt.input or node.input
                node.approved = attempt.approved or node.approved
                self._ready.append(node)

    def _expire(self, ordinal: int) -> None:
        """Nobody has answered in time."""
        node = self._flights.pop(ordinal).node
        assert node is not None
        wait, _ = self._waits.close(ordinal)
        self._tell_resolved(node, wait.asked, None, waiting.host_subject(self._start.owner.tenant))
        self._end_by(node, waiting.expired(wait, self._escaped(node)))

    def _end_by(self, node: GraphNode, outcome: Outcome) -> None:
        if outcome.outputs is None:
            self._fail(node, _Error(outcome.code, outcome.message, outcome.details))
        else:
            self._complete(node, outcome.outputs)

    def _tell_resolved(self, node: GraphNode, asked: Question, resume_value: bytes | None, by: bytes) -> None:
        identity = ("interruptId", jsontext.encode(self._waits.identity(asked)))
        answer: Members = [] if resume_value is None else [("resumeValue", resume_value)]
        self._event(
            "interrupt.resolved",
            node,
            lambda: [
                identity,
                ("kind", jsontext.encode(asked.kind)),
                *answer,
                ("resolvedBy", by),
                *told_decision(asked.kind, resume_value),
            ],
        )
        self._event("node.resumed", node, lambda: [identity, *answer])

    def open_interrupts(self, identity: str) -> list[int]:
        """The ordinals of the open interrupts of an id: several where nodes share an effect. One answer is for all."""
        return self._waits.find(identity)

    def was_answered(self, identity: str) -> bool:
        """Whether an interrupt of that id is closed: it has its answer, or nobody waits for one any more."""
        return self._waits.was_closed(identity)

    @property
    def asking(self) -> list[tuple[Node, waiting.Asking]]:
        """The open questions, each with the node that asks."""
        found = [(self._flights[one.ordinal].node, one) for one in self._waits.asking]
        return [(node.spec, one) for node, one in found if node is not None]

    def may_answer(self, ordinal: int, subject: bytes) -> bool:
        """Whether somebody, given as JSON text of a subject, is among those who may answer an open interrupt."""
        return self._waits.admits(ordinal, subject)

    def check_answer(self, ordinal: int, resume_value: bytes) -> None:
        """Tell whether an answer may be given to an open interrupt. Takes processor time: not for a replay.

        Raises:
            InvalidRequestError: It may not.
        """
        node = self._flights[ordinal].node
        assert node is not None
        call = len(node.spec.config) + len(jsontext.build(self._inputs_of(node)))
        room = max(0, self._start.options.call_bytes - call)
        try:
            waiting.check(self._waits[ordinal], node.spec, resume_value, room)
        except InvalidRequestError:
            if not self.is_sensitive(node.spec.id):
                raise
            raise InvalidRequestError(_UNSAID) from None

    def _policy(self, policy: RetryPolicy) -> RetryPolicy:
        most = self._definition.max_retries if self._definition is not None else None
        return policy if most is None else dataclasses.replace(policy, attempts=min(policy.attempts, most + 1))

    # --- sessions of tools ---

    def _open_session(self, node: GraphNode, inputs: Members) -> None:
        """Tell that a node begins to call a tool. Of one that is masked, not even which tool is told."""
        again = node.attempt - node.cut > 1
        if again or self.is_sensitive(node.spec.id) or not self._start.has("tool-sessions"):
            return
        node.tool = sessions.called_tool(node.spec.type.type_id, node.spec.config, dict(inputs))
        if node.tool is not None:
            self._event(sessions.OPENED, node, lambda: self._session_of(node), verbatim=True)

    def _close_session(self, node: GraphNode, outcome: sessions.Outcome) -> None:
        """Tell that a node is done with its tool, if it called one."""
        if node.tool is None:
            return
        told = ("outcome", jsontext.encode(outcome))
        self._event(sessions.CLOSED, node, lambda: [*self._session_of(node), told], verbatim=True)
        node.tool = None

    def _session_of(self, node: GraphNode) -> Members:
        identity = sessions.session_id(self._start.run_id, node.spec.id, node.cut)
        return [("sessionId", jsontext.encode(identity)), ("toolId", jsontext.encode(node.tool))]

    # --- nodes ---

    def _advance(self) -> None:
        """Carry on from what was settled until nothing more follows without a new fact."""
        while not self._paused:
            while self._settled:
                self._spread(self._settled.popleft())
            if self._halted or self._draining or self._over is not None:
                return
            room = self._has_room()
            if room and self._held:
                self._begin_attempt(self._held.popleft())
            elif not self._ready:
                return
            elif (node := self._ready.popleft()).spec.type.run == "activity" and not room:
                self._held.append(node)
            else:
                self._begin_attempt(node)

    def _has_room(self) -> bool:
        """Tell whether one more call of any size, and what those under way may bring, find room."""
        result = self._inside(MAX_RESULT) if self._largest is None else self._largest
        expected = (self._calls + 1) * result + MAX_CALL_BYTES
        return self._bytes < MAX_BYTES and self._history + expected <= BUDGET

    def _make_ready(self, node: GraphNode) -> None:
        node.status = Status.READY
        self._ready.append(node)

    def _begin_attempt(self, node: GraphNode) -> None:
        if node.attempt == 0 and not self._may_start():
            return
        afresh = node.attempt == node.cut
        node.attempt += 1
        node.status = Status.RUNNING
        if afresh:
            node.started = self._now
            self._event(
                "node.started",
                node,
                lambda: [
                    ("typeId", jsontext.encode(node.spec.type.type_id)),
                    ("attempt", jsontext.encode(node.cut)),
                ],
            )
        try:
            self._perform(node, self._inputs_of(node))
        except _MissingInputError as error:
            self._fail(node, _Error("validation_error", str(error)))
        except nodes.NodeError as error:
            self._fail(node, _Error(error.code, error.message))

    def _perform(self, node: GraphNode, inputs: Members) -> None:
        spec = node.spec
        match spec.type.run:
            case "pure":
                self._complete(node, nodes.evaluate(spec.type.type_id, spec.config, dict(inputs)))
            case "timer":
                delay = nodes.delay_ms(spec.config, dict(inputs))
                if delay:
                    self._start_timer("delay", node, delay / 1000)
                else:
                    self._complete(node, _NOTHING)
            case "gate":
                self._suspend(node, waiting.ask_gate(spec, node.attempt, dict(inputs)))
            case "activity":
                given = jsontext.build(inputs)
                carried = 0 if node.input is None else len(node.input.encode())
                if (size := len(spec.config) + len(given) + carried) > self._start.options.call_bytes:
                    self._fail(node, _too_large(size, self._start.options))
                    return
                self._open_session(node, inputs)
                answer = None if node.answer is None else node.answer.encode()
                allowed = self._allowed_of(spec)
                head = len(spec.config) + len(answer or b"") + len(allowed or b"") + carried
                size = self._cost(head) + self._cost(len(given)) + OVERHEAD
                ordinal = self._fly(_Flight("call", node, size=size))
                self._calls += 1
                self._bytes += size
                self._commands.append(
                    ScheduleNode(
                        ordinal,
                        spec.id,
                        spec.type.type_id,
                        node.attempt,
                        spec.config,
                        given,
                        answer,
                        sensitive=self.is_sensitive(spec.id),
                        allowed=allowed,
                        suspends=spec.type.asks and self._start.has("questions"),
                        input=node.input,
                        approved=node.approved,
                    )
                )

    def _allowed_of(self, spec: definitions.Node) -> bytes | None:
        return self._definition.allowed_tools if self._definition is not None and spec.type.changes else None

    def _inputs_of(self, node: GraphNode) -> Members:
        inputs: dict[str, bytes] = {}
        arguments: dict[str, bytes] | None = None
        for name, port in node.spec.inputs:
            value = self._value_of(port)
            member = definitions.argument(name)
            if member is not None and arguments is None:
                arguments = {}
            if value is not None:
                if member is None or arguments is None:
                    inputs[name] = value
                else:
                    arguments[member] = value
            elif not isinstance(port, Static) and not port.optional:
                raise _MissingInputError(f"inputs.{name}: {_absence(port)}{_remedy(port)}")
        if arguments is not None:
            inputs[definitions.ARGUMENTS] = jsontext.build(arguments.items())
        # Absent is not null: what neither the node nor the run sets stays out.
        for name in node.spec.type.ambient:
            if name not in inputs and (value := self._values.get(name)) is not None:
                inputs[name] = value
        return list(inputs.items())

    def _value_of(self, port: Port) -> bytes | None:
        match port:
            case Static():
                return port.value
            case Connection():
                outputs = self._outputs.get(port.node_id)
                return None if outputs is None else values.select(outputs, port.path)
            case definitions.VariableRef():
                return self._values.get(port.name)

    def _complete(self, node: GraphNode, outputs: Outputs, told: Members = ()) -> None:
        node.status = Status.COMPLETED
        self._close_session(node, "completed")
        self._event(
            "node.completed",
            node,
            lambda: [
                ("outputs", jsontext.build(outputs.items())),
                ("durationMs", jsontext.encode(self._now - node.started)),
                *told,
            ],
        )
        if self._emit is not None and not node.outgoing:
            self._carried.sinks[node.spec.id] = outputs
        self._outputs[node.spec.id] = outputs
        self._settle(node)

    def _fail(self, node: GraphNode, error: _Error) -> None:
        node.status = Status.FAILED
        self._close_session(node, "failed")
        self._event(
            "node.failed",
            node,
            lambda: [
                ("error", error.encode()),
                ("attempts", jsontext.encode(node.attempt)),
            ],
        )
        handled = any(edge.spec.trigger_rule in _ADMITS_FAILED for edge in node.outgoing)
        if not handled and self._failure is None:
            self._failure = FailRun(error.code, error.message or error.code, error.details, node.spec.id)
        self._settle(node)

    def _cancelled(self, node: GraphNode, reason: str) -> None:
        node.status = Status.CANCELLED
        self._close_session(node, "cancelled")
        self._event("node.cancelled", node, lambda: _reason(reason))

    def _settle(self, node: GraphNode) -> None:
        node.answer = None
        self._open -= 1
        if self._stopping is None:
            self._settled.append(node)

    def _spread(self, node: GraphNode) -> None:
        """Tell the edges of a settled node how it ended, and let go of outputs that nobody needs any more."""
        for edge in node.outgoing:
            edge.says = self._says(node, edge)
            edge.target.unsettled_sources -= 1
            if edge.target.unsettled_sources == 0:
                self._judge(edge.target)
        for read in (*node.reads, node):
            if read is not node:
                read.unsettled_readers -= 1
            if not read.unsettled_readers and read.status not in UNSETTLED:
                self._outputs.pop(read.spec.id, None)

    def _says(self, node: GraphNode, edge: GraphEdge) -> Says:
        if node.status is Status.FAILED:
            return Says.FAILED
        condition = edge.spec.condition
        if node.status is Status.SKIPPED:
            return Says.SKIPPED
        if condition is None:
            return Says.SUCCESS
        left = self._operand(condition.left, node)
        right = None if condition.right is None else self._operand(condition.right, node)
        if any(values.is_beyond(condition.type, value) for value in (left, right)):
            edge.because = f"a value of over {values.MAX_COMPARED} bytes is not compared"
            return Says.SKIPPED
        if values.holds(condition.type, left, right):
            return Says.SUCCESS
        for operand, value in ((condition.left, left), (condition.right, right)):
            if operand is not None and value is None:
                edge.because = _absence(operand)
                break
        return Says.SKIPPED

    def _operand(self, operand: Operand, source: GraphNode) -> bytes | None:
        if isinstance(operand, SourceOutput):
            return values.select(self._outputs[source.spec.id], operand.path)
        return self._value_of(operand)

    def _judge(self, node: GraphNode) -> None:
        """Start or skip a node whose sources are all settled. Each trigger rule has to hold among its own edges."""
        groups: dict[str, list[GraphEdge]] = {}
        for edge in node.incoming:
            groups.setdefault(edge.spec.trigger_rule, []).append(edge)
        broken = next((rule for rule, edges in groups.items() if not rule_holds(rule, edges)), None)
        if broken is None:
            self._make_ready(node)
            return
        node.status = Status.SKIPPED
        because = ", ".join(
            f"{edge.spec.id}: {edge.because}" if edge.because else f"{edge.spec.id} {edge.says.name.lower()}"
            for edge in groups[broken][:3]
        )
        self._event(
            "node.skipped",
            node,
            lambda: [
                ("reason", jsontext.encode(f"{broken} does not hold: {because}")),
            ],
        )
        self._settle(node)

    # --- timers and ordinals ---

    def _fly(self, flight: _Flight) -> int:
        ordinal = self._ordinal
        self._ordinal += 1
        self._flights[ordinal] = flight
        self._history += flight.size
        return ordinal

    def _start_timer(
        self,
        purpose: Literal["delay", "retry", "cancel-grace", "input-backoff"],
        node: GraphNode | None,
        seconds: float,
    ) -> None:
        ordinal = self._fly(_Flight(purpose, node, self._now + round(seconds * 1000)))
        self._commands.append(StartTimer(ordinal, seconds, purpose, None if node is None else node.spec.id))

    # --- the end ---

    def _conclude(self) -> None:
        """End the run where nothing is left to wait for."""
        if self._over is not None or self._paused:
            return
        if self._stopping is not None:
            if not self._calls:
                self._end_stopped()
        elif self._open == 0:
            if self._failure is not None:
                self._end_failed(self._failure)
            else:
                self._end_completed()

    def _hand_over(self) -> None:
        """Go on in a new Temporal run where that was asked for or this one has no room, and no call is under way."""
        if self._over is not None or self._halted or self._calls or not (self._draining or self._held):
            return
        state = self._fitting_state()
        if not isinstance(state, FailRun):
            self._over = ContinueAsNew(*state)
        elif self._draining:
            # What came in meanwhile is needed further on: nothing is gained by waiting.
            self._draining = False
            self._advance()
            self._conclude()
            self._hand_over()
        elif not self._flights and not self._paused:
            self._cancel_rest(state.message)
            self._end_failed(state)

    def _size_of_start(self, state: int, kept: int) -> int:
        """Bytes of history that a Temporal run is started with: start with the state in it, inputs, large values."""
        return self._cost(self._envelope + state) + self._cost(len(self._inputs)) + kept * REFERENCE

    def _fitting_state(self) -> tuple[bytes, Sequence[bytes]] | FailRun:
        """What :meth:`_state` gives, or what there is to say if no new Temporal run can be started with that."""
        sizes = [len(value) for outputs in self._outputs.values() for value in outputs.values()]
        inside = sum(size for size in sizes if not self._outside(size))
        kept = sum(map(self._outside, sizes))
        # Where the values alone are too many, the state is not put together for its size.
        if (failure := self._overfull(inside, kept)) is not None:
            return failure
        state, large = self._state()
        return self._overfull(len(state), kept) or (state, large)

    def _overfull(self, state: int, kept: int) -> FailRun | None:
        """What there is to say if a state of so many bytes, and so many large values, are too much; else None."""
        if (size := self._size_of_start(state, kept)) > MAX_INPUT:
            return _overfull(size, MAX_INPUT)
        if self._inline is not None and (size := self._envelope + state) > self._most_of_start:
            return _overfull(size, self._most_of_start)
        return None

    @property
    def _most_of_start(self) -> int:
        """Bytes of a start with its state that is kept outside history: workflow code has to read it in one go."""
        return self._start.options.call_bytes + MAX_INPUT

    def _end_completed(self) -> None:
        assert self._definition is not None
        ends = [node for node in self._nodes.values() if not node.outgoing and node.status is Status.COMPLETED]
        references = {node.spec.id: {"nodeId": node.spec.id, "attempt": node.attempt} for node in ends}
        self._event(
            "run.completed",
            None,
            lambda: [
                (
                    "outputs",
                    jsontext.build(
                        (node.spec.id, jsontext.build(self._carried.sinks.get(node.spec.id, _NOTHING).items()))
                        for node in ends
                    ),
                ),
                self._duration(),
            ],
        )
        self._over = CompleteRun(jsontext.encode({"outputs": references}))

    def _end_failed(self, failure: FailRun) -> None:
        self._event(
            "run.failed",
            None,
            lambda: [
                (
                    "error",
                    jsontext.build(
                        [
                            ("code", jsontext.encode(failure.code)),
                            ("message", jsontext.encode(failure.message)),
                            ("details", failure.details),
                        ]
                    ),
                ),
                *([] if failure.node_id is None else [("failedNodeId", jsontext.encode(failure.node_id))]),
                self._duration(),
            ],
        )
        self._over = failure

    def _end_stopped(self) -> None:
        assert self._stopping is not None
        failure, reason = self._stopping.failure, self._stopping.reason
        if failure is None:
            self._end_cancelled(reason)
        else:
            self._cancel_rest(reason)
            self._end_failed(failure)

    def _end_cancelled(self, reason: str) -> None:
        self._cancel_rest(reason)
        self._event("run.cancelled", None, lambda: [*_reason(reason), self._duration()])
        self._over = CancelRun()

    def _cancel_rest(self, reason: str) -> None:
        # In the order in which their answers would be taken, had there been any.
        flying = [flight.node for flight in self._flights.values()]
        for node in (*flying, *self._nodes.values()):
            if node is not None and node.attempt and node.status in UNSETTLED:
                self._cancelled(node, reason)

    def _done(self) -> list[Command]:
        commands, self._commands = self._commands, []
        standing = self._waits.ordinals, self._paused
        if self._over is None and standing != self._noted:
            paused = None if self._paused is self._noted[1] else self._paused
            self._noted = standing
            commands.append(NoteWaiting(len(self._waits.ordinals), paused))
        match self._over:
            case None:
                return commands
            case ContinueAsNew():
                # Timers that were to start now stand in the state.
                return [self._over]
            case _:
                return [*commands, self._over]

    # --- events ---

    def _tick(self, at: float) -> None:
        """Take the time of a fact. History's times go back by some milliseconds; a log's do not."""
        self._now = max(self._now, round(at * 1000))

    def _event(
        self, event_type: str, node: GraphNode | None, payload: Callable[[], Members], *, verbatim: bool = False
    ) -> None:
        """Tell an event; its payload names the node first, unless its shape is of another document, verbatim."""
        sequence = self._sequence
        self._sequence += 1
        if self._emit is not None:
            node_id = None if node is None else node.spec.id
            head = [] if node_id is None or verbatim else [("nodeId", jsontext.encode(node_id))]
            self._tell(sequence, event_type, node_id, jsontext.build([*head, *payload()]))

    def _tell(self, sequence: int, event_type: str, node_id: str | None, payload: bytes) -> None:
        assert self._emit is not None
        if self._masks is not None:
            payload = self._masks.event(event_type, node_id, payload)
        self._emit(sequence + self._carried.uncounted, event_type, node_id, payload, self._now)

    def _tell_terms(self, node: GraphNode, fact: NodeSucceeded | NodeFailed) -> None:
        """Tell what came of negotiating with a server: when the run first meets it, and when something else does."""
        if self._emit is None:
            return
        match fact:
            case NodeSucceeded():
                found = negotiation.of_answer(fact.metadata)
            case NodeFailed():
                found = negotiation.of_failure(fact.failure)
        told = self._carried.told
        if found is None or told.get(found.peer) == found.verdict:
            return
        told[found.peer] = found.verdict
        self._tell(self._sequence, negotiation.EVENT, node.spec.id, found.encode(timestamp(self._now)))
        self._carried.uncounted += 1

    def _announce(self) -> None:
        if self._begun:
            return
        self._begun = True
        self._began = self._now
        start = self._start
        self._event(
            "run.started",
            None,
            lambda: [
                ("workflowId", self._workflow_id()),
                ("inputs", self._inputs),
                ("transport", jsontext.encode(start.transport)),
                ("engineVersion", jsontext.encode(start.engine_version)),
                ("owner", start.owner.encode()),
                ("tags", jsontext.encode(start.tags)),
                ("metadata", start.metadata),
            ],
        )

    def _workflow_id(self) -> bytes:
        if self._definition is not None:
            return jsontext.encode(self._definition.id)
        try:
            return jsontext.member(self._start.definition, "id") or b'"unknown"'
        except jsontext.JsonTextError:
            return b'"unknown"'

    def _duration(self) -> tuple[str, bytes]:
        return "durationMs", jsontext.encode(self._now - self._began)

    @property
    def held(self) -> int:
        """Bytes of the values that are kept for what is to come."""
        kept = {id(outputs): outputs for outputs in (*self._outputs.values(), *self._carried.sinks.values())}
        untold = sum(len(fact.result) for fact in self._untold if isinstance(fact, NodeSucceeded))
        told = sum(len(value) for outputs in kept.values() for value in outputs.values())
        return len(self._inputs) + told + untold + self._waits.size

    # --- state ---

    def _state(self) -> tuple[bytes, Sequence[bytes]]:
        """Everything that the run needs to go on, as JSON text, and large values, each of which travels by itself.

        So they stay references to what is recorded already. Times have a fixed width: the state's size decides.
        """
        large = {
            (key, name): value
            for key, outputs in self._outputs.items()
            for name, value in outputs.items()
            if self._outside(len(value))
        }
        timers = [
            [flight.purpose, flight.node.spec.id, flight.due]
            for flight in self._flights.values()
            if flight.node is not None and flight.purpose != "interrupt"
        ]
        asking = {ordinal: flight.node.spec.id for ordinal, flight in self._flights.items() if flight.node is not None}
        failure = self._failure
        members = [
            ("sequence", jsontext.encode(self._sequence)),
            ("ordinal", jsontext.encode(self._ordinal)),
            ("began", jsontext.encode(self._began)),
            ("now", jsontext.encode(self._now)),
            ("nodes", f"[{','.join([node.encode() for node in self._nodes.values()])}]".encode()),
            ("edges", jsontext.encode("".join([edge.says for edge in self._edges]))),
            (
                "because",
                jsontext.encode(
                    {
                        str(index): edge.because
                        for index, edge in enumerate(self._edges)
                        if edge.because and edge.target.status is Status.WAITING
                    }
                ),
            ),
            ("ready", jsontext.encode([node.spec.id for node in (*self._held, *self._ready)])),
            ("largest", jsontext.encode(self._largest)),
            ("timers", jsontext.encode(timers)),
            (
                "outputs",
                jsontext.build(
                    (
                        key,
                        jsontext.build(
                            # Null holds the place of what travels by itself.
                            (name, b"null" if (key, name) in large else value)
                            for name, value in outputs.items()
                        ),
                    )
                    for key, outputs in self._outputs.items()
                ),
            ),
        ]
        members += self._waits.state(asking)
        members += self._state_of_calls()
        if large:
            members.append(("kept", jsontext.encode(list(large))))
        if self._paused:
            members.append(("paused", b"true"))
        if self._settled:
            members.append(("settled", jsontext.encode([node.spec.id for node in self._settled])))
        if cut := {key: node.cut for key, node in self._nodes.items() if node.cut and node.status in UNSETTLED}:
            members.append(("cut", jsontext.encode(cut)))
        if tools := {key: node.tool for key, node in self._nodes.items() if node.tool is not None}:
            members.append(("tools", jsontext.encode(tools)))
        if failure is not None:
            told = [failure.code, failure.message, failure.node_id]
            members += [("failure", jsontext.encode(told)), ("failureDetails", failure.details)]
        return jsontext.build(members), list(large.values())

    def _state_of_calls(self) -> Members:
        """What the calls of nodes that are not through carry along, and which of their attempts do not count."""
        nodes = {key: node for key, node in self._nodes.items() if node.status in UNSETTLED}
        answers = [(key, node.answer.encode()) for key, node in nodes.items() if node.answer is not None]
        carried = [(key, node.input.encode()) for key, node in nodes.items() if node.input is not None]
        approved = [(key, node.approved) for key, node in nodes.items() if node.approved is not None]
        before = {key: node.before for key, node in nodes.items() if node.before}
        parked = {key: [node.parked.times, node.parked.seconds] for key, node in nodes.items() if node.parked.times}
        escaped = {key: node.escaped for key, node in nodes.items() if node.escaped is not Escaped.NO}
        return [
            *([("answers", jsontext.build(answers))] if answers else []),
            *([("carried", jsontext.build(carried))] if carried else []),
            *([("approved", jsontext.build(approved))] if approved else []),
            *([("before", jsontext.encode(before))] if before else []),
            *([("parked", jsontext.encode(parked))] if parked else []),
            *([("escaped", jsontext.encode(escaped))] if escaped else []),
        ]

    def _restore(self, state: bytes, kept: Sequence[bytes]) -> None:
        members = dict(jsontext.members(state))
        told = {name: jsontext.decode(text) for name, text in members.items() if name not in _EXACT}
        self._begun = True
        self._sequence, self._ordinal = told["sequence"], told["ordinal"]
        self._began, self._now = told["began"], told["now"]
        self._largest = told["largest"]
        self._paused = told.get("paused", False)
        self._restore_graph(told)
        self._ready.extend(self._nodes[node_id] for node_id in told["ready"])
        self._outputs = _whole(members["outputs"], told.get("kept", ()), kept)
        self._restore_calls(told, members)
        if "failure" in told:
            code, message, node_id = told["failure"]
            self._failure = FailRun(code, message, members["failureDetails"], node_id)
        if self._left_ms is not None:
            self._left_ms -= self._now - self._began
        # What is left of a timer is counted from the state alone, so that nothing depends on when this run began.
        self._carried_timers = [
            functools.partial(self._take_up_timer, purpose, self._nodes[node_id], (due - self._now) / 1000)
            for purpose, node_id, due in told["timers"]
        ]
        self._restore_waits(told, members)

    def _restore_calls(self, told: Mapping[str, Any], members: Mapping[str, bytes]) -> None:
        for node_id, answer in jsontext.members(members.get("answers", b"{}")):
            self._nodes[node_id].answer = read_verdict(answer)
        for node_id, carried in jsontext.members(members.get("carried", b"{}")):
            self._nodes[node_id].input = Input.decode(carried)
        for node_id, approved in jsontext.members(members.get("approved", b"{}")):
            self._nodes[node_id].approved = approved
        for node_id, before in told.get("before", {}).items():
            self._nodes[node_id].before = before
        for node_id, (times, seconds) in told.get("parked", {}).items():
            self._nodes[node_id].parked = Parked(times, float(seconds))
        for node_id, escaped in told.get("escaped", {}).items():
            self._nodes[node_id].escaped = Escaped(escaped)

    def _restore_waits(self, told: Mapping[str, Any], members: Mapping[str, bytes]) -> None:
        # At once, as an answer may be there before the run is taken up.
        asked = dict(jsontext.members(members.get("asked", b"{}")))
        for row in told.get("interrupts", ()):
            node = self._nodes[row[0]]
            wait, due = waiting.restored(row, asked, node.spec, node.attempt, dict(self._inputs_of(node)))
            ordinal = self._fly(_Flight("interrupt", node))
            self._waits.open(ordinal, wait, due)
            if due is not None:
                # Not at once, so that an answer that is there already comes first.
                left = max(due - self._now, 1) / 1000
                self._carried_timers.append(functools.partial(self._time_wait, ordinal, node, left))
        self._waits.restore(told.get("answered", ()))

    def _restore_graph(self, told: Mapping[str, Any]) -> None:
        for edge, letter in zip(self._edges, told["edges"], strict=True):
            edge.says = Says(letter)
            if edge.says is not Says.NOTHING:
                edge.target.unsettled_sources -= 1
        for index, because in told["because"].items():
            self._edges[int(index)].because = because
        # Their edges say nothing yet: the run was paused.
        settled = told.get("settled", ())
        self._settled.extend(self._nodes[node_id] for node_id in settled)
        for node, (letter, attempt, started, waited) in zip(self._nodes.values(), told["nodes"], strict=True):
            node.status, node.attempt, node.started, node.waited = Status(letter), attempt, started, float(waited)
            self._executions += attempt > 0
            if node.status in UNSETTLED:
                continue
            self._open -= 1
            if node.spec.id not in settled:
                for read in node.reads:
                    read.unsettled_readers -= 1
        for node_id, cut in told.get("cut", {}).items():
            self._nodes[node_id].cut = cut
        for node_id, tool in told.get("tools", {}).items():
            self._nodes[node_id].tool = tool

    def _take_up_timers(self) -> None:
        carried, self._carried_timers = self._carried_timers, []
        for take_up in carried:
            take_up()

    def _take_up_timer(
        self, purpose: Literal["delay", "retry", "input-backoff"], node: GraphNode, seconds: float
    ) -> None:
        if seconds > 0:
            self._start_timer(purpose, node, seconds)
        else:
            self._timer_fired(_Flight(purpose, node))


_UNSAID = "this is not what was asked for; what is, is not said, as it is masked in the log"
"""Why an answer is refused where the words of whoever asked may quote what is sensitive."""

_EXACT = frozenset({"outputs", "answers", "asked", "carried", "approved"})
"""Members of a state whose parts are taken as they stand."""


def _parsed(start: RunStart) -> tuple[Definition | None, str | None]:
    """The definition, or why it cannot be run."""
    types = {name: one for name, one in nodes.REGISTRY.items() if one.run != "gate" or start.has("questions")}
    try:
        return definitions.parse(start.definition, source="definition", node_types=types), None
    except DefinitionError as error:
        return None, str(error)


def _whole(outputs: bytes, places: Sequence[Sequence[str]], kept: Sequence[bytes]) -> dict[str, Outputs]:
    """Outputs of a state, with the values in them that travelled by themselves."""
    whole = {key: dict(jsontext.members(found)) for key, found in jsontext.members(outputs)}
    for (key, name), value in zip(places, kept, strict=True):
        whole[key][name] = value
    return dict(whole)


def _nothing_to_lose(failure: CallFailure) -> bool:
    """Whether an attempt that was cut may simply be made again."""
    return failure.cancelled and not failure.happened.in_doubt


def _limit(limit: int) -> bytes:
    return jsontext.encode({"limit": limit})


def _absence(operand: Operand) -> str:
    match operand:
        case SourceOutput():
            return f"'{values.pointer(operand.path)}' has no value"
        case Connection():
            return f"'{values.pointer(operand.path)}' of node '{operand.node_id}' has no value"
        case definitions.VariableRef():
            return f"variable '{operand.name}' has no value"
        case _:
            return "no value"


def _remedy(operand: Operand) -> str:
    """What to do about an input without a value."""
    if not isinstance(operand, Connection):
        return ""
    text = (
        " (a tool that answers with text alone has no structuredContent: take /result/content/0/text as a whole)"
        if operand.path[:2] == ("result", "structuredContent")
        else ""
    )
    return f': its output has no such member{text}; correct outputKey, or mark the connection "optional": true'


def _too_large(size: int, options: Options) -> _Error:
    limit = options.call_bytes
    carries = "Temporal carries" if options.inline_bytes is None else "may be carried (setting limits.call_bytes)"
    return _Error(
        "storage_limit_exceeded",
        f"nothing was sent: config and inputs of {size} bytes are over the {limit} that {carries}",
        jsontext.encode({"delivery": Delivery.NOT_SENT.value, "limit": limit, "size": size}),
    )


def _overfull(size: int, limit: int) -> FailRun:
    return FailRun(
        "storage_limit_exceeded",
        f"the history of this run is full, and to go on in a new one it would have to take along {size} bytes, over "
        f"the {limit} that Temporal carries: definition, inputs and the results that later nodes still need",
        jsontext.encode({"limit": limit, "size": size, "history": BUDGET}),
        None,
    )


def _error_of(failure: CallFailure) -> _Error:
    happened = failure.happened
    may_repeat = happened.repeat_safe or happened.delivery is not Delivery.UNKNOWN
    return _Error(failure.code, failure.message, failure.details, happened.retryable and may_repeat)


def _reason(reason: str) -> Members:
    return [("reason", jsontext.encode(reason))] if reason else []
