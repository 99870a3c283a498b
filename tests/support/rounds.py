"""A workflow that makes one call, and answers what comes up on the way from what it was given in place of people."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHandle
from temporalio.common import RawValue

from openwop_mcp import jsontext
from openwop_mcp.calls import ACTIVITY_NAMES, NO_ARGUMENTS, CallRequest, interim
from openwop_mcp.ctx.attempts import ONE_ATTEMPT, EndedError, attempted
from openwop_mcp.effects.doubt import Answer
from openwop_mcp.failures import CallFailure, Escaped, conclude, json_payload
from tests.support.pack import Pack

__all__ = ("Given", "Outcome", "Rounds", "begin")


@dataclass
class Given:
    """What the workflow makes its call with.

    Attributes:
        request: JSON text of the `CallRequest`.
        queue: The task queue of the pack.
        arguments: JSON text.
        answers: JSON texts of `inputResponses`, one for each round that asks; the last is for every further one too.
        declined: Digests of what these answers decline.
        waits: Whether it answers only what it was told to go on with.
    """

    request: str
    queue: str
    arguments: str | None = None
    answers: list[str] = field(default_factory=list)
    declined: list[str] = field(default_factory=list)
    waits: bool = False


@dataclass
class Outcome:
    """What an attempt of the call ended with, or the call."""

    raw: str | None = None
    interim: str | None = None
    code: str | None = None
    message: str | None = None
    facts: str | None = None
    provenance: dict[str, str] = field(default_factory=dict)


# Unsandboxed, as the pack's own workflows are.
@workflow.defn(sandboxed=False)
class Rounds:
    """Makes one call, through however many rounds."""

    def __init__(self) -> None:
        self._told: list[Outcome] = []
        self._leave = 0
        self._given = Given("", "")

    @workflow.query
    def told(self) -> list[Outcome]:
        """What came of it so far."""
        return self._told

    @workflow.signal
    def go_on(self) -> None:
        """Answer the next question."""
        self._leave += 1

    @workflow.run
    async def run(self, given: Given) -> list[Outcome]:
        self._given = given
        request = replace(CallRequest.decode(given.request.encode()), origin=workflow.info().original_execution_run_id)
        arguments = NO_ARGUMENTS if given.arguments is None else given.arguments.encode()

        async def schedule(attempt: CallRequest) -> RawValue:
            answer: RawValue = await workflow.execute_activity(
                ACTIVITY_NAMES[attempt.method],
                args=[RawValue(json_payload(attempt.encode())), RawValue(json_payload(arguments))],
                result_type=RawValue,
                task_queue=given.queue,
                start_to_close_timeout=timedelta(minutes=5),
                heartbeat_timeout=timedelta(seconds=30),
                retry_policy=ONE_ATTEMPT,
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
            payload = answer.payload
            known = {name: value.decode() for name, value in payload.metadata.items() if name != "encoding"}
            self._told.append(Outcome(raw=payload.data.decode(), interim=interim(payload.metadata), provenance=known))
            return answer

        try:
            await attempted(request, schedule, self)
        except EndedError as ended:
            self._tell(conclude(ended.failure, ended.decision))
        return self._told

    async def about_doubt(self, failure: CallFailure) -> Answer:
        """Send it again."""
        self._tell(failure)
        await self._may_answer()
        return Answer("resend", round=jsontext.decode(failure.details).get("round", 0))

    async def for_input(self, request: CallRequest, record: Payload) -> tuple[bytes, tuple[str, ...]]:
        """The next of the answers."""
        await self._may_answer()
        answers = self._given.answers
        return (answers.pop(0) if len(answers) > 1 else answers[0]).encode(), tuple(self._given.declined)

    async def for_approval(self, request: CallRequest, facts: bytes, escaped: Escaped) -> bytes:
        """Approve it."""
        await self._may_answer()
        return jsontext.build([("tier", jsontext.member(facts, "safetyTier") or b"null")])

    async def _may_answer(self) -> None:
        if self._given.waits:
            await workflow.wait_condition(lambda: self._leave > 0)
            self._leave -= 1

    def _tell(self, failure: CallFailure) -> None:
        self._told.append(
            Outcome(code=failure.code, message=failure.message, facts=failure.details.decode(errors="replace"))
        )


async def begin(
    client: Client, pack: Pack, request: CallRequest, arguments: bytes | None = None, **given: Any
) -> WorkflowHandle[Any, list[Outcome]]:
    """Start the workflow on the queue of the authors beside a pack."""
    return await client.start_workflow(
        Rounds.run,
        Given(request.encode().decode(), pack.task_queue, None if arguments is None else arguments.decode(), **given),
        id=f"rounds-{uuid.uuid4().hex}",
        task_queue=f"author-{pack.task_queue}",
    )
