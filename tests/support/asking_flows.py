"""Workflows of authors whose calls are asked something: a plain module that imports `ctx`, run in the sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, ApplicationError

from openwop_mcp import McpCallError, ctx

__all__ = ("Asker", "Call", "Codes", "Own", "OwnQuestion", "Parts", "Told", "look_up")


@dataclass
class Call:
    """One call, and how it is answered."""

    do: str
    given: list[Any]
    key: str | None = None
    patience: float | None = None
    code: str | None = None
    """The method of `Codes` that answers in place of a person."""


@dataclass
class Told:
    """What came of a call."""

    raw: str | None = None
    code: str | None = None
    message: str | None = None
    delivery: str | None = None
    in_doubt: bool = False


@activity.defn
async def look_up(name: str) -> str:
    """An activity of the author's own."""
    if name == "fails":
        raise ApplicationError("no such city", type="NoSuchCity", non_retryable=True)
    return f"{name}!"


class Codes:
    """Ways of an author to answer a server."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def accepts(self, asked: ctx.mcp.Asked) -> Mapping[str, Any]:
        """Look the answer up, after a while."""
        self.seen.append(f"{asked.server_id} {asked.subject} {asked.round} {sorted(asked.requests)}")
        await workflow.sleep(0.01)
        found = await workflow.execute_activity(look_up, "Bern", start_to_close_timeout=timedelta(seconds=30))
        return {key: {"action": "accept", "content": {"city": found}} for key in asked.requests}

    async def exact(self, asked: ctx.mcp.Asked) -> bytes:
        """Answer with bytes of the author's."""
        return b'{"where": {"action":"accept", "content":{ "n": 1.10, "city":"\\u0042ern" } }}'

    async def declines(self, asked: ctx.mcp.Asked) -> Mapping[str, Any]:
        """Decline."""
        return {key: {"action": "decline"} for key in asked.requests}

    async def raises(self, asked: ctx.mcp.Asked) -> Mapping[str, Any]:
        """A fault of the author's."""
        return {"where": self.seen[7]}

    async def answers_another(self, asked: ctx.mcp.Asked) -> Mapping[str, Any]:
        """Another fault."""
        return {"other": {"action": "accept", "content": {}}}

    async def answers_nothing_sensible(self, asked: ctx.mcp.Asked) -> Any:
        """Another."""
        return {"where": float("inf")}

    async def fails(self, asked: ctx.mcp.Asked) -> Mapping[str, Any]:
        """An activity that fails."""
        return {"where": await workflow.execute_activity(look_up, "fails", start_to_close_timeout=timedelta(seconds=9))}

    def is_no_coroutine(self, asked: ctx.mcp.Asked) -> Mapping[str, Any]:
        """A fault that type checkers see."""
        return {}


async def make(call: Call, queue: str, codes: Codes) -> Told:
    options: dict[str, Any] = {"task_queue": queue}
    if call.key is not None:
        options["idempotency_key"] = call.key
    if call.patience is not None:
        options["input_timeout"] = timedelta(seconds=call.patience)
    if call.code is not None:
        options["on_input"] = getattr(codes, call.code)
    try:
        result = await getattr(ctx.mcp, call.do)(*call.given, **options)
    except McpCallError as error:
        return Told(None, error.code, str(error), error.delivery.value, error.in_doubt)
    except ActivityError as error:
        return Told(code="activity", message=str(error.cause))
    return Told(result.raw.decode())


@workflow.defn
class Asker:
    """Makes calls all at once. What it is told and asked by others is its own."""

    def __init__(self) -> None:
        self.codes = Codes()
        self.nudged = 0
        self.tasks: list[asyncio.Task[Told]] = []

    @workflow.run
    async def run(self, calls: list[Call], queue: str) -> list[Told]:
        self.tasks = [asyncio.create_task(make(call, queue, self.codes)) for call in calls]
        await workflow.wait(self.tasks)
        return [Told(code="cancelled") if task.cancelled() else task.result() for task in self.tasks]

    @workflow.signal
    def nudge(self) -> None:
        self.nudged += 1

    @workflow.signal
    def drop(self, number: int) -> None:
        self.tasks[number].cancel()

    @workflow.query
    def seen(self) -> list[str]:
        return [str(self.nudged), *self.codes.seen]

    @workflow.update
    async def give_up(self, number: int) -> None:
        self.tasks[number].cancel()
        await workflow.wait([self.tasks[number]])

    @workflow.query(dynamic=True)
    def anything(self, name: str, args: Sequence[RawValue]) -> str:
        return f"asked {name}"

    @workflow.update(dynamic=True)
    async def any_update(self, name: str, args: Sequence[RawValue]) -> str:
        return f"updated {name}"


@dataclass
class OwnQuestion:
    """A question of the author's."""

    kind: str
    data: Any
    key: str
    schema: Any = None
    patience: float | None = None


@workflow.defn
class Own:
    """Asks questions of its own all at once."""

    @workflow.run
    async def run(self, questions: list[OwnQuestion]) -> list[Told]:
        return list(await asyncio.gather(*map(self.ask, questions)))

    async def ask(self, one: OwnQuestion) -> Told:
        try:
            answer = await ctx.interrupt(
                one.kind,  # type: ignore[arg-type]  # some of them are wrong on purpose
                one.data,
                key=one.key,
                resume_schema=one.schema,
                timeout=None if one.patience is None else timedelta(seconds=one.patience),
            )
        except ctx.InterruptRejectedError as error:
            return Told(error.answer.raw.decode(), error.code, str(error), "rejected")
        except ctx.InterruptExpiredError as error:
            return Told(None, error.code, str(error), "expired")
        except ctx.InterruptError as error:
            return Told(None, error.code, str(error))
        return Told(answer.raw.decode())


@dataclass
class Left:
    """What is left of `Parts`."""

    parts: int
    queue: str
    leaves: bool = False
    told: list[str] = field(default_factory=list)


@workflow.defn
class Parts:
    """Makes a call that is asked in each part of its chain, and in the first may leave a question open."""

    @workflow.run
    async def run(self, left: Left) -> list[str]:
        call = asyncio.create_task(ctx.mcp.call_tool("fake", "ask", task_queue=left.queue))
        if left.leaves:
            await workflow.wait_condition(lambda: self.leave)
            workflow.continue_as_new(Left(left.parts, left.queue))
        told = [*left.told, (await call).raw.decode()]
        await workflow.wait_condition(workflow.all_handlers_finished)
        if left.parts > 1:
            workflow.continue_as_new(Left(left.parts - 1, left.queue, told=told))
        return told

    def __init__(self) -> None:
        self.leave = False

    @workflow.signal
    def go(self) -> None:
        self.leave = True
