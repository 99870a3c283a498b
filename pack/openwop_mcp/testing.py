"""Fakes of the pack's activities, for authors who test workflows without servers, settings or a pack worker.

They take the place of the ``mcp.*`` activities and, for graphs, of the node types' own; nothing leaves the process.
What is recorded, and what a workflow sees of it, has the shape that real calls have. A test is also the person who
answers: :func:`pending` tells what a workflow waits with, and :func:`answer` answers it.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import temporalio.api.common.v1
from temporalio import activity
from temporalio.client import WorkflowHandle, WorkflowQueryFailedError
from temporalio.common import RawValue

from openwop_mcp import failures, jsontext
from openwop_mcp.calls import (
    ACTIVITY_NAMES,
    INTERIM,
    METHODS,
    NO_ARGUMENTS,
    NODE,
    ROUND,
    CallRequest,
    Interim,
    interim,
    record,
)
from openwop_mcp.effects.decide import RetryPolicy
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.effects.identity import Effect
from openwop_mcp.errors import (
    KeyMismatchError,
    MalformedAnswerError,
    McpError,
    NotCallableError,
    RoundsExceededError,
    RpcError,
    UnknownServerError,
)
from openwop_mcp.failures import json_payload
from openwop_mcp.nodes import REGISTRY, NodeCall, NodeType
from openwop_mcp.protocol import messages, mrtr
from openwop_mcp.protocol.revisions import MODERN
from openwop_mcp.runs.interrupts import PENDING, RESOLVE, OpenInterrupt, Resolution, read_open
from openwop_mcp.verbatim import Verbatim

__all__ = ("Answer", "FakeCall", "FakeMcp", "Pending", "answer", "asks", "form", "pending", "visit")

OK = 200

TENANT = "default"
"""Tenant of settings that name none."""

MAX_ROUNDS = 8
"""How often a fake may ask in one call, as real servers may where the operator says nothing else."""

POLL = 0.02
"""Seconds between two looks at what a workflow waits with; nothing tells of it when it is there."""

PATIENCE = 10.0
"""Seconds that a test waits for a question: far more than a workflow takes that is to be asked one at all."""

INVALID_PARAMS = -32602
"""What servers answer where a tool or resource is not theirs (MCP 2026-07-28, tools)."""


@dataclass(frozen=True, slots=True)
class FakeCall:
    """A call as it arrived.

    Attributes:
        method: Host method, such as ``callTool``: a key of ``openwop_mcp.calls.METHODS``.
        server_id: The server.
        subject: The tool, prompt or resource, ``""`` where the method has none.
        arguments: The exact bytes of the arguments, None if there are none; for ``complete`` those of an object with
            ``ref``, ``argument`` and perhaps ``context``.
        cursor: The page that was asked for (``listTools`` and the other lists).
        idempotency_key: The author's key.
        attempt: 1 for the first.
        responses: The exact bytes of the answers to what was asked before, see :func:`asks`; None if there are none.
    """

    method: str
    server_id: str
    subject: str
    arguments: bytes | None
    cursor: str | None
    idempotency_key: str | None
    attempt: int
    responses: bytes | None = None


@dataclass(slots=True)
class _Effect:
    """An effect that has an author's key: what it was first asked for with, and its outcome once there is one."""

    digest: str | None = None
    outcome: temporalio.api.common.v1.Payload | McpError | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


Told = Mapping[str, Any] | bytes | Verbatim | McpError
"""A result: a mapping, or its JSON text; or an error of ``openwop_mcp.errors`` to end the call with."""

Answer = Told | Sequence[Told] | Callable[[FakeCall], Told | Awaitable[Told]]
"""What is told, the same each time; a sequence is told one by one, its last item over and over; or a function."""


@dataclass
class FakeMcp:
    """MCP servers that are not there.

    Give what each tool and prompt (by its name) and each resource (by its URI) answers; what the other methods answer
    stands under their names, such as ``listTools``, ``complete`` and ``serverHealth``::

        mcp = FakeMcp({"weather": {"get_forecast": {"content": [{"type": "text", "text": "rain"}]}}})
        async with (
            Worker(client, task_queue="openwop-mcp", activities=mcp.activities),
            Worker(client, task_queue="orders", workflows=[Order]),
        ):
            await client.execute_workflow(Order.run, id="1", task_queue="orders")
        assert mcp.calls[0].arguments == b'{"city":"Bern"}'

    A server or tool that is not given is refused as a real one would be, without a retry. Where a tool and a prompt
    have the same name, give a function: it sees the call's method. Calls that share an ``idempotency_key`` are one
    effect, as long as the fake is there: one of them arrives, and the others have its outcome, or with other arguments
    are refused.

    Args:
        servers: What is answered, by server id and then by name, URI or method.
        repeat_safe: Whether a call whose outcome is unknown may be sent again, as the operator's policy would say.
        retry: The retry limits that the operator would have set. The waits between attempts are real timers of the
            workflow: use a time-skipping environment, or none.
        approval: Tools, as ``SERVER.TOOL``, whose calls a person has to approve, as the operator's policy would say.

    Attributes:
        calls: The calls that arrived, every attempt, in order.
    """

    servers: Mapping[str, Mapping[str, Answer]]
    repeat_safe: bool = False
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    approval: Collection[str] = ()
    calls: list[FakeCall] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._told: dict[tuple[str, str], int] = {}
        self._effects: dict[str, _Effect] = {}
        if isinstance(self.approval, str):
            raise TypeError("approval: give a collection of tools, such as ['SERVER.TOOL']")
        for server_id, answers in self.servers.items():
            for key, answer in answers.items():
                several = isinstance(answer, Sequence) and not isinstance(answer, bytes | str)
                if several and not answer:
                    raise ValueError(f"the answers of '{server_id}' to '{key}' are none: give at least one")
                for told in cast("Sequence[object]", answer) if several else [answer]:
                    if not (isinstance(told, Mapping | bytes | Verbatim | McpError) or callable(told)):
                        raise TypeError(
                            f"the answer of '{server_id}' to '{key}' is of type {type(told).__name__}: give a result as"
                            " a mapping, JSON bytes or Verbatim, an McpError, a function, or a sequence of results"
                        )

    @property
    def activities(self) -> Sequence[Callable[..., Any]]:
        """Activities for a worker on the task queue that the workflows call: ``openwop-mcp``, or their own."""
        nodes = [node_type for node_type in REGISTRY.values() if node_type.run == "activity"]
        return [*map(self._method, ACTIVITY_NAMES.values()), *map(self._node, nodes)]

    def _method(self, name: str) -> Callable[..., Any]:
        @activity.defn(name=name)
        async def perform(request: RawValue, arguments: RawValue) -> RawValue:
            given = arguments.payload.data
            return await self._perform(
                CallRequest.decode(request.payload.data), None if given == NO_ARGUMENTS else given
            )

        return perform

    def _node(self, node_type: NodeType) -> Callable[..., Any]:
        @activity.defn(name=node_type.type_id)
        async def perform(node: RawValue, inputs: RawValue) -> RawValue:
            try:
                request, arguments = NodeCall.decode(node.payload.data).request(node_type, inputs.payload.data)
            except McpError as error:
                raise failures.write(error, repeat_safe=True, policy=self.retry) from None
            return await self._perform(request, arguments)

        return perform

    async def _perform(self, request: CallRequest, arguments: bytes | None) -> RawValue:
        try:
            return RawValue(await self._shared(request, arguments))
        except McpError as error:
            raise failures.write(
                error,
                repeat_safe=self.repeat_safe or request.method != "callTool",
                policy=request.retry or self.retry,
                serverId=request.server_id,
                method=METHODS[request.method],
                name=request.name,
                uri=request.uri,
                attempt=request.attempt,
            ) from None

    async def _shared(self, request: CallRequest, arguments: bytes | None) -> temporalio.api.common.v1.Payload:
        """The outcome of the call, or of the one before it that its author's key says to be the same."""
        if request.idempotency_key is None:
            return await self._outcome(request, arguments)
        asked = _effect(request, arguments)
        effect = self._effects.setdefault(asked.opaque, _Effect())
        # What comes meanwhile waits: by then there may be an outcome.
        async with effect.lock:
            if effect.digest not in {None, asked.digest}:
                raise KeyMismatchError(given=asked.digest, recorded=str(effect.digest))
            if effect.outcome is None:
                effect.digest = asked.digest
                try:
                    outcome = await self._outcome(request, arguments)
                except McpError as error:
                    if error.delivery.nothing_happened:
                        # The key is free again.
                        effect.digest = None
                    elif not error.retryable or (error.delivery is Delivery.UNKNOWN and not self.repeat_safe):
                        effect.outcome = error
                    raise
                if interim(outcome.metadata) is not None:
                    return outcome
                effect.outcome = outcome
            if isinstance(effect.outcome, McpError):
                raise effect.outcome
            return effect.outcome

    async def _outcome(self, request: CallRequest, arguments: bytes | None) -> temporalio.api.common.v1.Payload:
        if (facts := self._to_approve(request, arguments)) is not None:
            return _record(facts, request, _interim("approval", request))
        call = FakeCall(
            request.method,
            request.server_id,
            request.subject,
            arguments,
            request.cursor,
            request.idempotency_key,
            request.attempt,
            None if request.input is None else request.input.responses,
        )
        self.calls.append(call)
        told = await self._tell(call)
        if isinstance(told, McpError):
            raise told
        result = _text(told)
        return _record(result, request, _asking(result, request))

    def _to_approve(self, request: CallRequest, arguments: bytes | None) -> bytes | None:
        """What a person has to know who approves the call; None where it needs no approval, or has it."""
        needs = request.method == "callTool" and f"{request.server_id}.{request.name}" in self.approval
        if not needs or request.approved is not None:
            return None
        if not request.suspends:
            raise NotCallableError("nothing was sent: a person has to approve this call, and its caller cannot ask")
        effect = _effect(request, arguments)
        facts = {
            "serverId": request.server_id,
            "name": request.name,
            "safetyTier": "write",
            "approval": "always",
            "effectId": effect.effect_id,
            "keying": effect.keying,
        }
        return jsontext.encode(facts)

    async def _tell(self, call: FakeCall) -> Told:
        answers = self.servers.get(call.server_id)
        if answers is None:
            return UnknownServerError(call.server_id)
        key = call.subject or call.method
        if key not in answers:
            return _unknown(key)
        answer = answers[key]
        if callable(answer):
            made = answer(call)
            return await made if inspect.isawaitable(made) else made
        if isinstance(answer, Sequence) and not isinstance(answer, bytes):
            told = self._told.get((call.server_id, key), 0)
            self._told[call.server_id, key] = told + 1
            return answer[min(told, len(answer) - 1)]
        return answer


def form(message: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """What a server asks where a form is to be filled in.

    Args:
        message: Its words.
        schema: JSON Schema of the form: an object whose members are strings, numbers, booleans or arrays of strings.
    """
    params = {"mode": "form", "message": message, "requestedSchema": dict(schema)}
    return {"method": mrtr.ELICITATION, "params": params}


def visit(message: str, url: str) -> dict[str, Any]:
    """What a server asks where an address is to be visited."""
    return {"method": mrtr.ELICITATION, "params": {"mode": "url", "message": message, "url": url}}


def asks(requests: Mapping[str, Mapping[str, Any]], state: str | None = "state") -> dict[str, Any]:
    """What a tool, prompt or resource answers that has to ask something before it has a result.

    Such as::

        FakeMcp({"bank": {"transfer": [asks({"sure": form("Really?", {"type": "object"})}), {"content": []}]}})

    Args:
        requests: What is asked, by keys: see :func:`form` and :func:`visit`. Without any the server only wants to be
            called again.
        state: What it wants back; None for nothing.

    Raises:
        MalformedInputError: No server may ask so.
    """
    result = {
        "resultType": "input_required",
        **({"inputRequests": dict(requests)} if requests else {}),
        **({} if state is None else {"requestState": state}),
    }
    mrtr.read_elicitations(jsontext.encode(result))
    return result


@dataclass(frozen=True, slots=True)
class Pending:
    """A question that a workflow waits with.

    Attributes:
        interrupt_id: Names it.
        payload: The ``InterruptPayload`` (OpenWOP v2, interrupts): ``kind``, ``key``, ``data`` and perhaps
            ``resumeSchema`` and ``timeoutMs``.
    """

    interrupt_id: str
    payload: Verbatim


async def pending(handle: WorkflowHandle[Any, Any]) -> list[Pending]:
    """What an author's workflow waits with, the oldest first: servers' questions, approvals, doubts and its own."""
    return [Pending(one.interrupt_id, Verbatim(one.payload)) for one in await _open(handle)]


async def answer(
    handle: WorkflowHandle[Any, Any],
    value: Mapping[str, Any] | bytes | Verbatim,
    question: Pending | None = None,
    *,
    by: str = "tester",
) -> Pending:
    """Answer a question of an author's workflow, as a person would.

    Args:
        handle: The workflow.
        value: The answer, of a server's question ``{"<key>": {"action": "accept", "content": {…}}}``.
        question: Which; else the oldest, for which it waits until there is one.
        by: Subject id of the person.

    Returns:
        The question.

    Raises:
        temporalio.client.WorkflowUpdateFailedError: The answer was refused; its cause says why.
        TimeoutError: Nothing was asked within ten seconds.
    """
    if question is None:
        async with asyncio.timeout(PATIENCE):
            while question is None:
                question = next(iter(await pending(handle)), None)
                await asyncio.sleep(POLL)
    given = Resolution(question.interrupt_id, _text(value), jsontext.encode({"subjectId": by}))
    await handle.execute_update(RESOLVE, RawValue(json_payload(given.encode())))
    return question


async def _open(handle: WorkflowHandle[Any, Any]) -> list[OpenInterrupt]:
    try:
        told: RawValue = await handle.query(PENDING, result_type=RawValue)
        return read_open(told.payload.data)
    except (WorkflowQueryFailedError, ValueError, KeyError):
        # A workflow that was never asked anything does not know the query, or has one of its own for all names.
        return []


def _effect(request: CallRequest, arguments: bytes | None) -> Effect:
    info = activity.info()
    return request.effect(
        arguments,
        tenant=request.tenant or TENANT,
        workflow_id=info.workflow_id or "",
        run_id=info.workflow_run_id or "",
        activity_id=info.activity_id,
    )


def _record(result: bytes, request: CallRequest, noted: Mapping[str, str]) -> temporalio.api.common.v1.Payload:
    return record(
        result,
        {
            "server-id": request.server_id,
            "method": METHODS[request.method],
            "subject": request.subject,
            "revision": MODERN,
            "http-status": str(OK),
            "attempt": str(request.attempt),
            "sha256": hashlib.sha256(result).hexdigest(),
            "duration-ms": "0",
            **noted,
        },
    )


def _interim(kind: Interim, request: CallRequest) -> dict[str, str]:
    return {INTERIM: kind, NODE: request.node or activity.info().activity_id}


def _asking(result: bytes, request: CallRequest) -> dict[str, str]:
    """What the record says of a question; nothing where this is none."""
    if METHODS[request.method] not in messages.INPUT_METHODS or not messages.is_input_required(result):
        return {}
    try:
        asked = mrtr.read_elicitations(result)
    except mrtr.MalformedInputError as error:
        raise _malformed(
            f"the fake server asks in a way that no server may: {error}", "invalid_input_request"
        ) from None
    if not request.suspends:
        raise _malformed("the fake server asks for input, and its caller cannot be asked", "input_required_undeclared")
    rounds = request.round + 1
    declined = () if request.input is None else request.input.declined
    if any(mrtr.request_digest(key, one) in declined for key, one in asked.requests.items()):
        raise RoundsExceededError(rounds=rounds)
    if rounds > MAX_ROUNDS:
        raise RoundsExceededError(rounds=rounds, limit=MAX_ROUNDS)
    return _interim("input", request) | {ROUND: str(rounds)}


def _malformed(message: str, fault: str) -> MalformedAnswerError:
    return MalformedAnswerError(message, fault=fault, delivery=Delivery.ANSWERED, retryable=False)


def _unknown(key: str) -> RpcError:
    message = f"the fake server has no answer for '{key}'"
    error = jsontext.encode({"code": INVALID_PARAMS, "message": message})
    return RpcError(message, rpc_code=INVALID_PARAMS, error=error, http_status=OK, not_processed=False)


def _text(told: Mapping[str, Any] | bytes | Verbatim) -> bytes:
    if isinstance(told, Verbatim):
        return told.raw
    if not isinstance(told, bytes):
        return jsontext.encode(told)
    jsontext.check(told)
    return told
