"""Fakes of the pack's activities, for authors who test workflows without servers, settings or a pack worker.

They take the place of the ``mcp.*`` activities and, for graphs, of the node types' own; nothing leaves the process.
What is recorded, and what a workflow sees of it, has the shape that real calls have.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from temporalio import activity
from temporalio.common import RawValue

from openwop_mcp import failures, jsontext
from openwop_mcp.calls import ACTIVITY_NAMES, METHODS, NO_ARGUMENTS, CallRequest, record
from openwop_mcp.effects.decide import RetryPolicy
from openwop_mcp.errors import McpError, RpcError, UnknownServerError
from openwop_mcp.nodes import REGISTRY, NodeCall, NodeType
from openwop_mcp.protocol.revisions import MODERN
from openwop_mcp.verbatim import Verbatim

__all__ = ("Answer", "FakeCall", "FakeMcp")

OK = 200

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
    """

    method: str
    server_id: str
    subject: str
    arguments: bytes | None
    cursor: str | None
    idempotency_key: str | None
    attempt: int


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
    have the same name, give a function: it sees the call's method.

    Args:
        servers: What is answered, by server id and then by name, URI or method.
        repeat_safe: Whether a call whose outcome is unknown may be sent again, as the operator's policy would say.
        retry: The retry limits that the operator would have set. The waits between attempts are real timers of the
            workflow: use a time-skipping environment, or none.

    Attributes:
        calls: The calls that arrived, every attempt, in order.
    """

    servers: Mapping[str, Mapping[str, Answer]]
    repeat_safe: bool = False
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    calls: list[FakeCall] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._told: dict[tuple[str, str], int] = {}
        for server_id, answers in self.servers.items():
            for key, answer in answers.items():
                several = isinstance(answer, Sequence) and not isinstance(answer, bytes | str)
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
        call = FakeCall(
            request.method,
            request.server_id,
            request.subject,
            arguments,
            request.cursor,
            request.idempotency_key,
            request.attempt,
        )
        self.calls.append(call)
        told = await self._tell(call)
        if isinstance(told, McpError):
            raise failures.write(
                told,
                repeat_safe=self.repeat_safe or request.method != "callTool",
                policy=request.retry or self.retry,
                serverId=request.server_id,
                method=METHODS[request.method],
                name=request.name,
                uri=request.uri,
                attempt=request.attempt,
            )
        result = _text(told)
        return RawValue(
            record(
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
                },
            )
        )

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
