"""``EffectWorkflow``: one round of an effect that several runs share by a key. Its id is what makes it happen once.

It completes with what the round came to: the effect's outcome, a result or the failure that stands for one, or the
question that the server asks first, which the next round answers. It fails only where nothing was sent, so that the key
may be used again.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    from openwop_mcp import failures
    from openwop_mcp.calls import CallRequest
    from openwop_mcp.ctx.attempts import ONE_ATTEMPT, EndedError, attempted
    from openwop_mcp.effects.shared import EFFECT_WORKFLOW, PERFORM

__all__ = ("EffectWorkflow",)

ATTEMPT_TIMEOUT = timedelta(hours=2)
"""Backstop for one attempt. The limits that matter are the server's ``timeouts``, of at most an hour, in the worker."""

HEARTBEAT_TIMEOUT = 10.0
"""Seconds without a beat after which a worker counts as lost, where the first caller did not say."""


# Unsandboxed for the same reason as the runs: the sandbox costs about a third of a small workflow's CPU.
@workflow.defn(name=EFFECT_WORKFLOW, sandboxed=False)
class EffectWorkflow:
    """Carries out one effect and keeps its outcome."""

    @workflow.run
    async def run(self, request: RawValue, arguments: RawValue) -> RawValue:
        """Carry the effect out.

        Args:
            request: JSON text of a ``CallRequest``.
            arguments: JSON text of its arguments.

        Returns:
            The record, as the call gave it, be it an interim one; or the failure that is the outcome, marked as such.
        """
        asked = CallRequest.decode(request.payload.data)
        # Who asked first is nothing to it: it has a chain of its own.
        asked = replace(asked, origin=workflow.info().original_execution_run_id, whole_chain=False, reset=False)

        async def schedule(attempt: CallRequest) -> RawValue:
            answer: RawValue = await workflow.execute_activity(
                PERFORM,
                args=[RawValue(failures.json_payload(attempt.encode())), arguments],
                task_queue=asked.queue,
                result_type=RawValue,
                start_to_close_timeout=ATTEMPT_TIMEOUT,
                heartbeat_timeout=timedelta(seconds=asked.heartbeat or HEARTBEAT_TIMEOUT),
                retry_policy=ONE_ATTEMPT,
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
            return answer

        try:
            return await attempted(asked, schedule)
        except EndedError as ended:
            outcome = failures.conclude(ended.failure, ended.decision)
            if outcome.happened.delivery.nothing_happened:
                raise failures.forward(outcome) from None
            return RawValue(failures.settled(outcome))
