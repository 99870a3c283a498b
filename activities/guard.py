"""What is decided about a call before it may be sent: which effect it is, and whether that may have happened before.

Knows the host's policy and Temporal's memory of earlier attempts; not how a request is sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import HistoryEvent
from temporalio.converter import DataConverter
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp import failures, jsontext
from openwop_mcp.calls import CallRequest, noted
from openwop_mcp.catalog.policy import Standing, effective, refusal
from openwop_mcp.config import EffectivePolicy, Server
from openwop_mcp.effects.decide import RetryPolicy
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.effects.identity import Effect
from openwop_mcp.encryption import EncryptionError
from openwop_mcp.errors import EffectInDoubtError, InterruptedCallError
from openwop_mcp.runs.ledger import EffectAttempt, Ledger, needs_values
from openwop_mcp.storage import LostValueError, StorageError, bare, resolved

__all__ = ("Guard", "check_unclaimed", "happened_before")

RESET = WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_RESET_WORKFLOW

CLAIMED = "an earlier execution of this attempt had claimed the effect"
"""Why a call is in doubt that was not made now."""


@dataclass(frozen=True, slots=True)
class Guard:
    """What the host's policy says of one call.

    Attributes:
        effect: Which effect it is; None for what has none, which is all but ``tools/call``.
        repeat_safe: Whether it may be sent again where nobody knows what became of it.
        ask: Whether a person decides then.
        retry: Limits of further attempts.
        refusal: Why it may not be sent, though it may have happened before; None where it may.
        policy: Whose word counts for the tool.
        to_approve: JSON text of what a person has to know who approves the call; None where it needs no approval, or
            has it.
    """

    effect: Effect | None = None
    repeat_safe: bool = True
    ask: bool = False
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    refusal: str | None = None
    policy: Literal["settings", "classification", "unclassified"] = "settings"
    to_approve: bytes | None = None

    @classmethod
    def at_first(cls, request: CallRequest, server: Server) -> Guard:
        """What holds before anything is known of a tool."""
        return cls(retry=request.retry or server.retry.policy)

    @classmethod
    def of(
        cls, request: CallRequest, arguments: bytes | None, tenant: str, server: Server, standing: Standing | None
    ) -> Guard:
        """Read it from the settings and from how the tool stands in its catalog, inside the activity."""
        first = cls.at_first(request, server)
        if request.method != "callTool":
            return first
        info = activity.info()
        policy = effective(server, request.name or "", standing)
        effect = request.effect(
            arguments,
            tenant=tenant,
            workflow_id=info.workflow_id or "",
            run_id=info.workflow_run_id or "",
            activity_id=info.activity_id,
        )
        refused = refusal(policy, standing)
        return cls(
            effect,
            repeat_safe=policy.repeat_safe,
            ask=policy.on_doubt == "ask",
            retry=first.retry,
            refusal=refused,
            policy=_counts(standing),
            # What is not sent anyway nobody need approve.
            to_approve=None if refused else _to_approve(request, effect, policy, standing),
        )

    @property
    def facts(self) -> dict[str, object]:
        """What claim and failure say of it."""
        if self.effect is None:
            return {}
        asks = {"onDoubt": "ask"} if self.ask else {}
        return {"effectId": self.effect.effect_id, "keying": self.effect.keying, **asks}

    @property
    def provenance(self) -> dict[str, str]:
        """What the record says of it."""
        if self.effect is None:
            return {}
        return {
            "effect-id": self.effect.effect_id,
            "keying": self.effect.keying,
            "claim": "waived" if self.repeat_safe else "recorded",
            "policy": self.policy,
        }


def _to_approve(
    request: CallRequest, effect: Effect, policy: EffectivePolicy, standing: Standing | None
) -> bytes | None:
    if not policy.needs_approval:
        return None
    fingerprint = None if standing is None else standing.fingerprint
    if request.approved is not None and _still_holds(request.approved, policy.safety_tier, fingerprint):
        return None
    facts = {
        "serverId": request.server_id,
        "name": request.name,
        "safetyTier": policy.safety_tier,
        "approval": policy.approval,
        "effectId": effect.effect_id,
        "keying": effect.keying,
        "providerKey": effect.provider_key,
        "fingerprint": fingerprint,
    }
    return jsontext.encode({name: value for name, value in facts.items() if value is not None})


def _still_holds(approved: bytes, tier: str, fingerprint: str | None) -> bool:
    """Whether what was approved is what would be called now: of a read, or of another tool, nothing follows."""
    told = jsontext.decode(approved)
    known = told.get("fingerprint")
    return told.get("tier") == tier and (known is None or fingerprint is None or known == fingerprint)


def _counts(standing: Standing | None) -> Literal["settings", "classification", "unclassified"]:
    if standing is None:
        return "settings"
    if standing.drifted:
        return "unclassified"
    return "settings" if standing.classification is None else "classification"


def check_unclaimed() -> None:
    """Look first of all for a claim: whatever else comes before the next may fail, and then says that nothing was sent.

    Raises:
        ApplicationError: An earlier execution of this attempt had claimed the effect, and nobody knows what became of
            it. As of a worker that was lost, what the claim says counts.
    """
    for claim in _claims():
        if claim.get("repeatSafe") is not True:
            raise failures.write(EffectInDoubtError(CLAIMED), repeat_safe=False, policy=RetryPolicy(), **claim)


def _claims() -> list[Mapping[str, Any]]:
    """What was claimed and not withdrawn: an operator can have Temporal run the attempt again, which keeps it."""
    beats = activity.info().heartbeat_details
    return [beat for beat in beats if isinstance(beat, dict) and beat.get("delivery") == Delivery.UNKNOWN.value]


async def happened_before(guard: Guard, request: CallRequest) -> Payload | None:
    """Look for an earlier attempt at an effect that must not happen twice.

    Returns:
        Its record, if it has one, be it that of a question of the server's which this call has not answered yet; None
        where it may be sent.

    Raises:
        EffectInDoubtError: There was an attempt, and nobody knows what became of it. Where a person gave leave to send
            again, only those count that came after that.
        ApplicationError: The server answered it with an error, which is the outcome.
    """
    if guard.effect is None or guard.repeat_safe:
        return None
    if _claims():
        # Of a call that could be repeated then.
        raise EffectInDoubtError(CLAIMED)
    if not request.was_reset(activity.info().workflow_run_id or ""):
        return None
    return await _before_reset(guard.effect, request)


async def _before_reset(effect: Effect, request: CallRequest) -> Payload | None:
    """What :func:`happened_before` says, of the runs before a reset."""
    # Where a person gave leave to send again, what came before that was asked about.
    since = 0 if request.answer is None else request.answer.since or request.attempt
    made = []
    async for before in _made_before(effect, whole_chain=request.whole_chain):
        if before.attempt < since:
            continue
        if before.result is not None and before.interim is None:
            return noted(before.result, {"before-reset": "true"})
        made.append(before)
    for before in made:
        if before.state == "completed" and before.failure is not None:
            raise failures.forward(before.failure)
    asked = max((one for one in made if one.interim == "input"), key=lambda one: one.asked, default=None)
    if asked is not None and asked.result is not None and asked.asked > request.round:
        return noted(asked.result, {"before-reset": "true"})
    # What was in doubt in a round before this one has been asked about, or its answer would not be here.
    if any(before.state != "released" and before.round >= request.round for before in made):
        raise EffectInDoubtError("an attempt from before the workflow was reset left the effect in doubt")
    return None


async def _made_before(effect: Effect, *, whole_chain: bool) -> AsyncIterator[EffectAttempt]:
    """The attempts at an effect in the runs before a reset; for one of a whole chain also in what they continued as."""
    info, client = activity.info(), activity.client()
    workflow_id, own = info.workflow_id or "", info.workflow_run_id or ""
    seen, left = {own}, [own]
    while left:
        run_id = left.pop()
        with _readable():
            events = (await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()).events
            made = [] if run_id == own else await _attempts(events, effect, workflow_id, client.data_converter)
        for attempt in made:
            yield attempt
        near = [one for one in (_neighbours(events) if whole_chain else _resets(events)) if one not in seen]
        seen.update(near)
        left += near


async def _attempts(
    events: Sequence[HistoryEvent], effect: Effect, workflow_id: str, converter: DataConverter
) -> list[EffectAttempt]:
    """The attempts at an effect. Large values are read one by one: what was sent, and what this effect came to."""
    ledger = Ledger(workflow_id=workflow_id, tenant=effect.tenant)
    for event in events:
        if needs_values(event):
            # To digest what was sent may take half a second.
            await asyncio.to_thread(ledger.take, await resolved(event, converter))
        else:
            ledger.take(await bare(event, converter))
    ours = {one.activity_id for one in ledger.attempts() if one.effect.effect_id == effect.effect_id}
    asked = {event.event_id for event in events if event.activity_task_scheduled_event_attributes.activity_id in ours}
    for event in events:
        attributes = getattr(event, event.WhichOneof("attributes") or "", None)
        if getattr(attributes, "scheduled_event_id", None) in asked:
            ledger.take(await resolved(event, converter))
    return [one for one in ledger.attempts() if one.effect.effect_id == effect.effect_id]


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """Say of a history that cannot be read what follows for the call."""
    try:
        yield
    except LostValueError as error:
        raise EffectInDoubtError(
            f"the workflow was reset, and the history that it had before is not whole: {error.message}"
        ) from None
    except (StorageError, EncryptionError) as error:
        raise InterruptedCallError(
            f"nothing was sent: what had happened before the reset could not be read: {error}",
            cancelled=False,
            delivery=Delivery.NOT_SENT,
        ) from None
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise EffectInDoubtError(
                "the workflow was reset, and the history that it had before is past the namespace's retention"
            ) from None
        raise InterruptedCallError(
            "nothing was sent: Temporal could not be asked what had happened before the reset",
            cancelled=False,
            delivery=Delivery.NOT_SENT,
        ) from None


def _resets(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """The runs that a run was reset from."""
    for event in events:
        failed = event.workflow_task_failed_event_attributes
        if failed.cause == RESET and failed.base_run_id:
            yield failed.base_run_id


def _neighbours(events: Sequence[HistoryEvent]) -> Iterator[str]:
    """The runs that a run was reset from, continues, and was continued as."""
    yield from _resets(events)
    if before := events[0].workflow_execution_started_event_attributes.continued_execution_run_id:
        yield before
    if after := events[-1].workflow_execution_continued_as_new_event_attributes.new_execution_run_id:
        yield after
