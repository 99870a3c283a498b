"""Effects that several runs share by a key: a workflow of its own carries each out, and whoever asks for it waits.

Who waits holds no slot of the worker: the activity is left open, a task beats for it and completes it. Knows names and
outcomes of effect workflows, and nothing of how a call is made.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import temporalio.api.common.v1
from temporalio import activity
from temporalio.client import (
    AsyncActivityCancelledError,
    AsyncActivityHandle,
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.common import RawValue, WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from openwop_mcp import failures, jsontext
from openwop_mcp.calls import EFFECT_ROUND, METHODS, NO_ARGUMENTS, NODE, CallRequest, interim, noted
from openwop_mcp.effects.decide import RetryPolicy
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.effects.identity import Effect
from openwop_mcp.effects.shared import EFFECT_WORKFLOW, MEMO_CALLER, MEMO_DIGEST, effect_queue, effect_workflow_id
from openwop_mcp.errors import (
    EffectInDoubtError,
    InterruptedCallError,
    KeyMismatchError,
    MalformedAnswerError,
    McpError,
    NotCallableError,
)
from openwop_mcp.runs.ledger import Ledger, needs_values
from openwop_mcp.storage import LostValueError, bare, resolved

from .beat import INTERVAL, is_cancel

__all__ = ("SharedEffects",)

logger = logging.getLogger(__name__)

WAITING = jsontext.encode({"delivery": Delivery.NOT_SENT.value, "repeatSafe": True, "retry": None, "waited": True})
"""What a workflow is to know if the worker that waits is lost: nothing is lost with it."""

Payload = temporalio.api.common.v1.Payload


class SharedEffects:
    """The waits of one worker. Close it after the worker has stopped.

    Args:
        classes: The task queue beside which each class's queue is, by that. An effect that is asked for in a class is
            carried out in it as well, so that its slots bound all calls of its servers.
    """

    def __init__(self, classes: Mapping[str, str]) -> None:
        self._classes = classes
        self._waits: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Hand on what is still waited for: another worker takes it up."""
        for wait in self._waits:
            wait.cancel()
        await asyncio.gather(*self._waits, return_exceptions=True)

    def wait(
        self, effect: Effect, request: CallRequest, arguments: bytes | None, *, ask: bool, refusal: str | None
    ) -> NoReturn:
        """Wait for the effect in place of the activity that runs now, which ends here and keeps no slot.

        Args:
            effect: Which effect.
            request: The call, should this be the first to ask for it.
            arguments: JSON text of its arguments.
            ask: Whether a person decides where the effect is in doubt.
            refusal: Why it may not be sent. What came of it before, the caller gets all the same.
        """
        info = activity.info()
        client = activity.client()
        beats = info.heartbeat_timeout
        base = self._classes.get(info.task_queue)
        request = replace(
            request,
            heartbeat=None if beats is None else beats.total_seconds(),
            queue=None if base is None else info.task_queue,
        )
        node = request.node or info.activity_id
        joined = _Joined(
            client,
            effect,
            request,
            arguments,
            base or info.task_queue,
            node=node,
            # After a reset the run has another id: what it finds is what came of the call before.
            caller=f"{info.workflow_run_id}/{node}",
            ask=ask,
            refusal=refusal,
        )
        handle = client.get_async_activity_handle(task_token=info.task_token)
        task = asyncio.get_running_loop().create_task(_complete(handle, joined.outcome()))
        self._waits.add(task)
        task.add_done_callback(self._waits.discard)
        activity.raise_complete_async()


async def _complete(handle: AsyncActivityHandle, outcome: Coroutine[Any, Any, Payload]) -> None:
    """Await the outcome, beating meanwhile, and end the activity with it."""
    waiting = asyncio.ensure_future(outcome)
    try:
        while not (await asyncio.wait([waiting], timeout=INTERVAL))[0]:
            try:
                await handle.heartbeat(RawValue(failures.json_payload(WAITING)))
            except AsyncActivityCancelledError as error:
                if not is_cancel(error):
                    continue
                await _end(
                    handle, _given_up("the call was cancelled; the effect, which others share, goes on", cancelled=True)
                )
                return
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return
                logger.warning("a heartbeat was not taken: %s", error.status)
        await _end(handle, _ended(waiting))
    except asyncio.CancelledError:
        # The worker stops. Without this the workflow would learn of it only after the heartbeat timeout.
        await _end(
            handle, _given_up("the worker shut down while it waited for an effect, which goes on", cancelled=False)
        )
        raise
    finally:
        waiting.cancel()


def _ended(waiting: asyncio.Future[Payload]) -> Payload | ApplicationError:
    try:
        return waiting.result()
    except ApplicationError as error:
        return error
    except Exception as error:
        # Whatever it is, the workflow has to hear of it, and may wait again.
        logger.exception("waiting for an effect ended by a fault of its own")
        return _given_up(f"waiting for the effect, which goes on, ended with {type(error).__name__}", cancelled=False)


def _given_up(message: str, *, cancelled: bool) -> ApplicationError:
    # Of a wait that ends early nothing is known of the effect. Another wait is safe, as it sends nothing itself.
    delivery = Delivery.UNKNOWN if cancelled else Delivery.NOT_SENT
    error = InterruptedCallError(message, cancelled=cancelled, delivery=delivery)
    return failures.write(error, repeat_safe=True, policy=RetryPolicy(), waited=None if cancelled else True)


async def _end(handle: AsyncActivityHandle, outcome: Payload | ApplicationError) -> None:
    try:
        if isinstance(outcome, ApplicationError):
            await handle.fail(outcome)
        else:
            await handle.complete(RawValue(outcome))
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            logger.warning("an outcome was not taken: %s", error.status)


class _Joined:
    """One caller's way to the outcome of an effect.

    An effect has rounds, each a workflow: the first sends, and each further one carries out a person's answer to what
    the round before it ended in, a doubt or a question of the server's.
    """

    def __init__(
        self,
        client: Client,
        effect: Effect,
        request: CallRequest,
        arguments: bytes | None,
        queue: str,
        *,
        node: str,
        caller: str,
        ask: bool,
        refusal: str | None,
    ) -> None:
        self._client = client
        self._effect = effect
        self._request = request
        self._arguments = arguments
        self._queue = queue
        self._node = node
        self._caller = caller
        self._ask = ask
        self._refusal = refusal
        self._shared = False
        self._asked = False

    async def outcome(self) -> Payload:
        """Wait for it, or for a question that nobody has answered yet.

        Raises:
            ApplicationError: The effect has no result, or is none that this caller may have.
        """
        number = 0
        before: Payload | failures.CallFailure | None = None
        while True:
            outcome = await self._round(number)
            if outcome is None:
                assert before is not None
                return self._unanswered(before, number)
            failure = failures.read_settled(outcome)
            if failure is not None and not (failure.happened.in_doubt and failure.happened.ask):
                raise failures.forward(failure, self._note)
            asks = failure is None and interim(outcome.metadata) is not None
            if failure is None and not asks:
                return noted(outcome, {"shared": "true"}) if self._shared else outcome
            self._asked = self._asked or asks
            number, before = number + 1, failure or outcome

    def _unanswered(self, before: Payload | failures.CallFailure, number: int) -> Payload:
        """How a round ended that is for this caller to go on from: whose answer is the first starts the next."""
        if isinstance(before, failures.CallFailure):
            raise failures.forward(before, self._note, round=number)
        if not self._request.suspends:
            raise self._failed(
                MalformedAnswerError(
                    "the server asks for input, and this caller of an effect that others share cannot be asked",
                    fault="input_required_undeclared",
                    delivery=Delivery.ANSWERED,
                    retryable=False,
                )
            )
        shared = {"shared": "true"} if self._shared else {}
        return noted(before, {EFFECT_ROUND: str(number - 1), NODE: self._node, **shared})

    @property
    def _note(self) -> str:
        """What a caller has to know of an outcome that is not of its own making."""
        if not self._shared:
            return ""
        if self._request.answer is not None or self._request.input is not None:
            return "; another answer came first, and the one given here was not used"
        return "; that is what came of an earlier call with this key, and nothing was sent now"

    async def _round(self, number: int) -> Payload | None:
        """The outcome of a round; None where nobody has answered what the round before it ended in.

        Whether it is of another caller's making is noted only where there is one: else that of the round before holds.
        """
        # What an answer leads to is decided where it is carried out: to take an effect as done sends nothing.
        may_start = self._refusal is None if number == 0 else self._decides(number) or self._answers(number)
        reuse = WorkflowIDReusePolicy.REJECT_DUPLICATE
        while True:
            handle = await self._started(number, reuse) if may_start else None
            if handle is not None:
                self._shared = False
                return await self._result(handle)
            found = await self._described(number)
            if found is not None:
                if not await self._sent_nothing(found):
                    self._shared = await found.memo_value(MEMO_CALLER, "") != self._caller
                    await self._check(found)
                    return await self._result(
                        self._client.get_workflow_handle(found.id, run_id=found.run_id, result_type=RawValue)
                    )
                reuse = WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY
            if not may_start:
                if number == 0:
                    raise self._failed(NotCallableError(self._refusal or ""))
                return None

    def _decides(self, number: int) -> bool:
        """Whether this caller has the answer to the doubt before a round."""
        return self._request.answer is not None and self._request.answer.round == number

    def _answers(self, number: int) -> bool:
        """Whether this caller has the answer to the server's question before a round."""
        return self._request.input is not None and self._request.input.effect_round == number

    async def _asked_with(self, number: int) -> CallRequest:
        """What a round is started with: its first attempt."""
        request = replace(self._request, tenant=self._effect.tenant, attempt=1, answer=None, input=None, approved=None)
        if number == 0:
            return request
        if self._answers(number):
            return replace(request, input=self._request.input)
        if self._request.answer is not None:
            # A round counts its own attempts.
            request = replace(request, answer=replace(self._request.answer, since=1))
        if not self._asked:
            return request
        # What is in doubt is the request that answered a question, perhaps in another caller's words.
        sent = await self._first_request(number - 1)
        return replace(request, input=sent.input, suspends=sent.suspends)

    async def _first_request(self, number: int) -> CallRequest:
        handle = self._client.get_workflow_handle(effect_workflow_id(self._effect.effect_id, number))
        started = await anext(handle.fetch_history_events(page_size=1))
        whole = await resolved(started, self._client.data_converter)
        return CallRequest.decode(whole.workflow_execution_started_event_attributes.input.payloads[0].data)

    async def _started(self, number: int, reuse: WorkflowIDReusePolicy) -> WorkflowHandle[Any, RawValue] | None:
        """Start a round; None where there is one."""
        request = await self._asked_with(number)
        given = NO_ARGUMENTS if self._arguments is None else self._arguments
        try:
            return await self._client.start_workflow(
                EFFECT_WORKFLOW,
                args=[RawValue(failures.json_payload(request.encode())), RawValue(failures.json_payload(given))],
                id=effect_workflow_id(self._effect.effect_id, number),
                task_queue=effect_queue(self._queue),
                result_type=RawValue,
                id_reuse_policy=reuse,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                memo={MEMO_DIGEST: self._effect.digest, MEMO_CALLER: self._caller},
                static_summary=f"{request.server_id} {request.name}",
            )
        except WorkflowAlreadyStartedError:
            return None

    async def _described(self, number: int) -> WorkflowExecutionDescription | None:
        return await self._latest(effect_workflow_id(self._effect.effect_id, number))

    async def _latest(self, workflow_id: str) -> WorkflowExecutionDescription | None:
        try:
            return await self._client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return None
            raise

    async def _sent_nothing(self, found: WorkflowExecutionDescription) -> bool:
        """Whether a round has ended without anything being sent, so that its key is free again."""
        if found.status in {WorkflowExecutionStatus.RUNNING, WorkflowExecutionStatus.COMPLETED}:
            return False
        return await self._released(found.id, found.run_id)

    async def _released(self, workflow_id: str, run_id: str | None) -> bool:
        """Whether nothing happened by any attempt of a round that has ended without an outcome.

        Its history says it: a round may have been ended from outside, and one of an older version says that it failed
        where its last attempt sent nothing, whatever had become of those before.
        """
        history = await self._client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
        ledger = Ledger(workflow_id=workflow_id, tenant=self._effect.tenant)
        try:
            for event in history.events:
                opened = resolved if needs_values(event) else bare
                ledger.take(await opened(event, self._client.data_converter))
        except LostValueError:
            # What it sent, or why it failed, nobody can say any more.
            return False
        return all(attempt.state == "released" for attempt in ledger.attempts())

    async def _check(self, found: WorkflowExecutionDescription) -> None:
        recorded = await found.memo_value(MEMO_DIGEST, "")
        if recorded != self._effect.digest:
            raise self._failed(KeyMismatchError(given=self._effect.digest, recorded=str(recorded)))

    async def _result(self, handle: WorkflowHandle[Any, RawValue]) -> Payload:
        while True:
            try:
                return (await handle.result()).payload
            except WorkflowFailureError as error:
                cause = error.cause
                if isinstance(cause, ApplicationError) and cause.failure is not None:
                    failure = failures.read(cause.failure)
                    if await self._released(handle.id, handle.run_id or handle.result_run_id):
                        # Nothing was sent, and the workflow says why.
                        raise failures.forward(failure) from None
                    return failures.settled(failures.remembered(failure, failures.Escaped.YES))
                now = await self._latest(handle.id)
                if now is None:
                    return self._doubt(f"the workflow '{handle.id}' is gone")
                if now.run_id != (handle.run_id or handle.result_run_id):
                    # It was reset, and goes on under another name.
                    handle = self._client.get_workflow_handle(handle.id, run_id=now.run_id, result_type=RawValue)
                    continue
                if await self._sent_nothing(now):
                    raise self._failed(
                        InterruptedCallError(
                            f"nothing was sent: the workflow '{handle.id}' was ended from outside"
                            f" ({type(cause).__name__})",
                            cancelled=False,
                            delivery=Delivery.NOT_SENT,
                        )
                    ) from None
                return self._doubt(f"the workflow '{handle.id}' was ended from outside ({type(cause).__name__})")
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return self._doubt(f"the workflow '{handle.id}' is gone")
                # Temporal is out of reach; if it lasts, the beats find that out.
                logger.warning("the outcome of an effect could not be asked for: %s", error.status)
                await asyncio.sleep(INTERVAL)

    def _doubt(self, what: str) -> Payload:
        """The outcome of a round of which nobody knows any more what came of it."""
        doubt = EffectInDoubtError(f"{what}, which carried the effect out")
        return failures.settled(failures.written(self._failed(doubt)))

    def _failed(self, error: McpError) -> ApplicationError:
        return failures.write(error, repeat_safe=False, policy=RetryPolicy(), **self._facts)

    @property
    def _facts(self) -> dict[str, object]:
        return {
            "effectId": self._effect.effect_id,
            "keying": self._effect.keying,
            "serverId": self._request.server_id,
            "method": METHODS[self._request.method],
            "name": self._request.name,
            "attempt": self._request.attempt,
            "onDoubt": "ask" if self._ask else None,
        }
