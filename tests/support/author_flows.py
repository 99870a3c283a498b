"""Workflows as an author would write them: a plain workflow module that imports `ctx`, run in the sandbox."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy as TemporalsRetryPolicy

from openwop_mcp import McpCallError, RetryPolicy, Verbatim, ctx

TELLABLE = 100_000
"""Bytes: a workflow's own result must fit into history too, so that of larger ones the digest is told."""


@dataclass
class Call:
    """One call: the name of a function of `ctx.mcp` and what it is given."""

    do: str
    given: list[Any] = field(default_factory=list)
    text: str | None = None
    """Arguments as JSON text, in place of a mapping."""
    texts: list[str] = field(default_factory=list)
    """What comes after `given`, where it is more than arguments, as JSON texts."""
    context: str | None = None
    retry: tuple[int, float, float] | None = None
    timeout: float | None = None
    heartbeat: float | None = None
    key: str | None = None
    log_level: str | None = None


@dataclass
class Calls:
    """What `Author` is started with. Without a queue `ctx` chooses it."""

    calls: list[Call]
    queue: str | None = None
    parallel: bool = False


@dataclass
class Told:
    """What came of a call."""

    raw: str | None = None
    code: str | None = None
    message: str | None = None
    delivery: str | None = None
    in_doubt: bool = False
    error: str | None = None
    facts: str | None = None


@workflow.defn
class Author:
    """Makes calls, one after the other or all at once, and tells what came of each."""

    @workflow.run
    async def run(self, asked: Calls) -> list[Told]:
        if asked.parallel:
            return list(await asyncio.gather(*(self.make(call, asked.queue) for call in asked.calls)))
        return [await self.make(call, asked.queue) for call in asked.calls]

    async def make(self, call: Call, queue: str | None) -> Told:
        options: dict[str, Any] = {} if queue is None else {"task_queue": queue}
        if call.retry is not None:
            options["retry"] = RetryPolicy(*call.retry)
        if call.timeout is not None:
            options["timeout"] = timedelta(seconds=call.timeout)
        if call.heartbeat is not None:
            options["heartbeat_timeout"] = timedelta(seconds=call.heartbeat)
        if call.key is not None:
            options["idempotency_key"] = call.key
        if call.log_level is not None:
            options["log_level"] = call.log_level
        if call.context is not None:
            options["context"] = call.context.encode()
        texts = call.texts if call.text is None else [call.text]
        given = [*call.given, *(text.encode() for text in texts)]
        try:
            answer = await getattr(ctx.mcp, call.do)(*given, **options)
        except McpCallError as error:
            return Told(
                code=error.code,
                message=str(error),
                delivery=error.delivery.value,
                in_doubt=error.in_doubt,
                error=None if error.error is None else error.error.raw.decode(),
                facts=error.facts.raw.decode(),
            )
        if isinstance(answer, ctx.mcp.ServerHealth):
            return Told(raw=answer.record.raw.decode(), code=answer.state)
        assert isinstance(answer, Verbatim)
        return Told(raw=answer.raw.decode() if len(answer) < TELLABLE else answer.sha256)


MISUSES: dict[str, tuple[str, dict[str, Any]]] = {
    "server_id": ("list_tools", {"server_id": 1}),
    "server_id of none": ("list_tools", {"server_id": None}),
    "name": ("call_tool", {"server_id": "fake", "name": 1}),
    "uri": ("read_resource", {"server_id": "fake", "uri": 1}),
    "cursor": ("list_tools", {"server_id": "fake", "cursor": 1}),
    "retry as Temporal's": ("list_tools", {"server_id": "fake", "retry": TemporalsRetryPolicy(maximum_attempts=1)}),
    "retry as a mapping": ("list_tools", {"server_id": "fake", "retry": {"attempts": 1}}),
    "retry as a number": ("list_tools", {"server_id": "fake", "retry": 3}),
    "retry of a text": ("list_tools", {"server_id": "fake", "retry": RetryPolicy(attempts="3")}),  # type: ignore[arg-type] # the misuse
    "retry of none": ("list_tools", {"server_id": "fake", "retry": RetryPolicy(attempts=0)}),
    "retry of ages": ("list_tools", {"server_id": "fake", "retry": RetryPolicy(max_wait=1e12)}),
    "task_queue": ("list_tools", {"server_id": "fake", "task_queue": 1}),
    "task_queue of many letters": ("list_tools", {"server_id": "fake", "task_queue": "q" * 1_001}),
    "on_input": ("call_tool", {"server_id": "fake", "name": "echo", "on_input": 1}),
    "log_level": ("list_tools", {"server_id": "fake", "log_level": []}),
}
"""Calls of functions of `ctx.mcp` with one option that no type checker would let pass: it is the first word."""


@workflow.defn
class Misuser:
    """Makes them, and tells what each was refused with, by its key."""

    @workflow.run
    async def run(self, queue: str) -> dict[str, str]:
        told: dict[str, str] = {}
        for which, (do, options) in MISUSES.items():
            try:
                await getattr(ctx.mcp, do)(**{"task_queue": queue, **options})
            except McpCallError as error:
                told[which] = f"{error.code} {error.facts.value['path']} {error}"
        return told


@workflow.defn
class TooBig:
    """Gives `ctx` arguments of so many bytes."""

    @workflow.run
    async def run(self, size: int, queue: str) -> Told:
        return await Author().make(Call("call_tool", ["fake", "echo", {"value": "x" * size}]), queue)


@workflow.defn
class Uncaught:
    """Lets a failed call end the workflow."""

    @workflow.run
    async def run(self, server_id: str, queue: str) -> str:
        return (await ctx.mcp.call_tool(server_id, "echo", task_queue=queue)).text


@workflow.defn
class Bare:
    """Imports `ctx` and calls nothing."""

    @workflow.run
    async def run(self) -> str:
        assert ctx.mcp is not None
        return "done"


@dataclass
class Left:
    """How many parts of `InParts` are left, and the queue of the pack."""

    parts: int
    queue: str


@workflow.defn
class InParts:
    """Calls the same tool with the same arguments in each of its parts."""

    @workflow.run
    async def run(self, left: Left) -> str:
        answer = await ctx.mcp.call_tool("fake", "write", {"x": 1}, task_queue=left.queue)
        if left.parts > 1:
            workflow.continue_as_new(Left(left.parts - 1, left.queue))
        return answer.raw.decode()


@workflow.defn
class GivesUp:
    """Makes two calls that share an effect, and gives up the first when it is told to."""

    @workflow.run
    async def run(self, key: str, queue: str) -> str:
        self._first, second = (
            asyncio.create_task(ctx.mcp.call_tool("fake", "write", idempotency_key=key, task_queue=queue))
            for _ in range(2)
        )
        return (await second).raw.decode()

    @workflow.update
    async def give_up(self) -> None:
        self._first.cancel()
        await workflow.wait([self._first])
