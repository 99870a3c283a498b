"""The effect ledger of a workflow, computed from its history: one record for each attempt at each effect.

Pure. Holds no arguments and no credentials; results only as references into the history that was given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import temporalio.api.common.v1
import temporalio.api.history.v1

from openwop_mcp import failures, jsontext
from openwop_mcp.calls import ACTIVITY_NAMES, NO_ARGUMENTS, ROUND, CallRequest, Interim, interim, provenance
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.effects.identity import Effect
from openwop_mcp.effects.shared import PERFORM
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.nodes import REGISTRY, NodeCall
from openwop_mcp.runs.endings import Ending, ending
from openwop_mcp.runs.events import timestamp

__all__ = ("EffectAttempt", "Ledger", "State", "effect_attempts", "needs_values")

State = Literal["claimed", "completed", "released", "escaped"]
"""Under way; answered; nothing happened; nobody knows (OpenWOP v2, effect ledger)."""

STATES: Mapping[Delivery, State] = {
    Delivery.ANSWERED: "completed",
    Delivery.NOT_SENT: "released",
    Delivery.NOT_PROCESSED: "released",
    Delivery.UNKNOWN: "escaped",
}
"""State by what is known of the request of an attempt that failed."""

CALL_TOOL = frozenset({ACTIVITY_NAMES["callTool"], PERFORM})

_CALLS = CALL_TOOL | {type_id for type_id, node_type in REGISTRY.items() if node_type.run == "activity"}
"""The activities that may call a tool."""

CLOSED = frozenset(
    f"workflow_execution_{how}_event_attributes"
    for how in ("completed", "failed", "timed_out", "canceled", "terminated", "continued_as_new")
)


@dataclass(frozen=True, slots=True)
class EffectAttempt:
    """One attempt at an effect.

    Attributes:
        effect: Which effect.
        node: The node, or the activity of the call's first attempt where an author's workflow made it.
        attempt: 1 for the first.
        activity_id: The activity of this attempt.
        at: When it came to its state, in milliseconds since 1970.
        state: Where it stands; None while nothing is known of a claim.
        result: The payload of its result, if it has one.
        failure: Why it has none.
        waits: Whether this attempt sends nothing itself: the workflow of the effect does, and has the ledger of it.
        round: How often the server had asked for input before it.
        interim: What it ended with, where that is no outcome: the server asked before it acted, or a person has to
            approve the call before it is sent. Either way it released its claim, and the next attempt makes another.
    """

    effect: Effect
    node: str
    attempt: int
    activity_id: str
    at: int
    state: State | None = None
    result: temporalio.api.common.v1.Payload | None = None
    failure: failures.CallFailure | None = None
    waits: bool = False
    round: int = 0
    interim: Interim | None = None

    @property
    def asked(self) -> int:
        """How often the server had asked for input after it."""
        number = None if self.result is None else provenance(self.result.metadata, ROUND)
        return self.round if self.interim != "input" or number is None else int(number)

    @property
    def facts(self) -> dict[str, object]:
        """The record as OpenWOP v2 writes it (effect ledger)."""
        return {
            "effectId": self.effect.effect_id,
            "nodeId": self.node,
            "attempt": self.attempt,
            "keying": self.effect.keying,
            "providerKey": self.effect.provider_key,
            "state": self.state,
            "at": timestamp(self.at),
        }


class Ledger:
    """The attempts of a workflow at effects, told from its events one by one.

    Args:
        workflow_id: The workflow.
        tenant: Whose worker made the calls that name no tenant.
    """

    def __init__(self, *, workflow_id: str, tenant: str) -> None:
        self._workflow_id = workflow_id
        self._tenant = tenant
        self._part = ""
        self._before: list[EffectAttempt] = []
        # By the events that scheduled them, which are numbered anew in each part of a chain.
        self._found: dict[int, EffectAttempt] = {}

    def take(self, event: temporalio.api.history.v1.HistoryEvent) -> None:
        """Take the next event; from the first one of each part of a chain of continue-as-new on.

        Large values need to be in their places only where :func:`needs_values` says so; elsewhere their metadata do.
        """
        kind = event.WhichOneof("attributes")
        at = event.event_time.ToMilliseconds()
        if kind == "workflow_execution_started_event_attributes":
            self._part = event.workflow_execution_started_event_attributes.original_execution_run_id
            self._before += self._found.values()
            self._found = {}
        elif kind == "activity_task_scheduled_event_attributes":
            if (asked := self._asked(event.activity_task_scheduled_event_attributes, at)) is not None:
                self._found[event.event_id] = asked
        elif kind in CLOSED:
            # What is open then ended nowhere: no answer of it can be recorded any more.
            for key, one in self._found.items():
                if one.state is None:
                    self._found[key] = replace(one, state="escaped", at=at)
        elif (end := ending(event)) is not None and (found := self._found.get(end.scheduled_event_id)) is not None:
            self._found[end.scheduled_event_id] = replace(_as_told(found, end), at=at)

    def attempts(self) -> list[EffectAttempt]:
        """The attempts so far, in the order in which they were scheduled."""
        return _judged([*self._before, *self._found.values()])

    def _asked(
        self, attributes: temporalio.api.history.v1.ActivityTaskScheduledEventAttributes, at: int
    ) -> EffectAttempt | None:
        if (asked := _asked(attributes)) is None:
            return None
        request, arguments, activity_id = asked
        effect = request.effect(
            arguments,
            tenant=request.tenant or self._tenant,
            workflow_id=self._workflow_id,
            run_id=self._part,
            activity_id=activity_id,
        )
        node = request.node or activity_id
        waits = request.idempotency_key is not None and attributes.activity_type.name != PERFORM
        return EffectAttempt(effect, node, request.attempt, activity_id, at, waits=waits, round=request.round)


def effect_attempts(
    parts: Iterable[Sequence[temporalio.api.history.v1.HistoryEvent]], *, workflow_id: str, tenant: str
) -> list[EffectAttempt]:
    """List the attempts of a workflow at effects, in the order in which they were scheduled.

    Args:
        parts: The events of each part of a chain of continue-as-new, or of the one history that there is.
        workflow_id: The workflow.
        tenant: Whose worker made the calls that name no tenant.
    """
    ledger = Ledger(workflow_id=workflow_id, tenant=tenant)
    for events in parts:
        for event in events:
            ledger.take(event)
    return ledger.attempts()


def needs_values(event: temporalio.api.history.v1.HistoryEvent) -> bool:
    """Whether a ledger takes more of an event than its values' metadata: what was sent, or why there is no answer."""
    return (
        event.activity_task_scheduled_event_attributes.activity_type.name in _CALLS
        or event.HasField("activity_task_failed_event_attributes")
        or event.HasField("activity_task_timed_out_event_attributes")
    )


def _asked(
    attributes: temporalio.api.history.v1.ActivityTaskScheduledEventAttributes,
) -> tuple[CallRequest, bytes | None, str] | None:
    """What an activity was asked for, if that is the call of a tool that can be read."""
    kind, payloads = attributes.activity_type.name, attributes.input.payloads
    node_type = REGISTRY.get(kind)
    try:
        if kind in CALL_TOOL:
            request, given = CallRequest.decode(payloads[0].data), payloads[1].data
            arguments = None if given == NO_ARGUMENTS else given
        elif node_type is not None and node_type.run == "activity":
            request, arguments = NodeCall.decode(payloads[0].data).request(node_type, payloads[1].data)
        else:
            return None
        jsontext.check(arguments or NO_ARGUMENTS)
    except (ValueError, LookupError, TypeError, InvalidRequestError):
        # A request that was refused for its shape, or one that a codec of the author's has hidden.
        return None
    if request.method != "callTool" or not request.name:
        return None
    return request, arguments, attributes.activity_id


def _as_told(one: EffectAttempt, end: Ending) -> EffectAttempt:
    """The attempt after its end. What the worker said goes before what was computed: it knows its own tenant."""
    if end.failure is None:
        told = {} if end.result is None else end.result.metadata
        kind = interim(told)
        return replace(
            one,
            effect=_renamed(one.effect, provenance(told, "effect-id")),
            state="completed" if kind is None else "released",
            result=end.result,
            interim=kind,
        )
    effect_id = jsontext.decode(end.failure.details).get("effectId")
    state = STATES[end.failure.happened.delivery]
    return replace(one, effect=_renamed(one.effect, effect_id), state=state, failure=end.failure)


def _renamed(effect: Effect, effect_id: object) -> Effect:
    if not isinstance(effect_id, str):
        return effect
    tenant, _, opaque = effect_id.rpartition("/")
    return replace(effect, tenant=tenant, opaque=opaque)


def _judged(found: Sequence[EffectAttempt]) -> list[EffectAttempt]:
    """Tell lost attempts that had not claimed from those that need no claim, by what is known of their effects."""
    unclaimed = {id(one) for one in found if one.failure is not None and one.failure.unclaimed}
    waived = {one.effect.effect_id for one in found if id(one) not in unclaimed and _needs_no_claim(one)}
    return [
        # Who only waits sends nothing, claimed or not.
        replace(one, state="released")
        if id(one) in unclaimed and (one.waits or one.effect.effect_id not in waived)
        else one
        for one in found
    ]


def _needs_no_claim(one: EffectAttempt) -> bool:
    if one.result is not None:
        return provenance(one.result.metadata, "claim") == "waived"
    return one.failure is not None and one.failure.happened.repeat_safe and one.failure.happened.retryable
