"""A server whose tools ask before they answer, by a plan that its `requestState` carries, and authors who call it."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from openwop_mcp import jsontext
from openwop_mcp.runs.interrupts import OpenInterrupt
from tests.support.asking_flows import Asker, Call, Own, Parts, Told, look_up
from tests.support.doubts import asked_of_author
from tests.support.fake_server import FakeServer, Handler, Reply, Request, modern
from tests.support.pack import Pack, pack_worker, settings_for
from tests.support.patience import PATIENCE

__all__ = ("FORM", "ROUND", "URL", "AskingServer", "Place", "ask", "form", "place", "waiting")

CITY = (
    b'{"type":"object","properties":{"city":{"type":"string","minLength":2},"n":{"type":"number"}},"required":["city"]}'
)


def form(message: str = "Which city?", schema: bytes = CITY) -> bytes:
    """JSON text of a request for a form."""
    params = [("message", jsontext.encode(message)), ("requestedSchema", schema)]
    return jsontext.build([("method", b'"elicitation/create"'), ("params", jsontext.build(params))])


FORM = form()
URL = (
    b'{"method":"elicitation/create","params":{"mode":"url","message":"Sign in","url":"https://bank.example/auth?x=1"}}'
)
ROUND = {"where": FORM}


def ask(requests: Mapping[str, bytes], state: bytes = b'"\\u0073ecret \\/"') -> bytes:
    """A result that asks; the number of the next round is put into its state when it is sent."""
    asked = [] if not requests else [("inputRequests", jsontext.build(requests.items()))]
    return jsontext.build([("resultType", b'"input_required"'), *asked, ("requestState", state)])


@dataclass
class AskingServer:
    """Answers by the name of a tool or prompt, or the URI of a resource: with its plan's results, round by round.

    The last result is made of the answers: it has them as they came.

    Attributes:
        plans: What is answered before the result, by name: results that ask, or other replies.
        requests: Every request that a plan could be for.
        executions: Names of what was carried out.
        first: Is asked before the plans for what goes before them.
    """

    plans: Mapping[str, Sequence[bytes | Reply]]
    requests: list[Request] = field(default_factory=list)
    executions: list[str] = field(default_factory=list)
    first: Callable[[Request], Reply | None] | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def handler(self) -> Handler:
        return modern(dict.fromkeys(("tools/call", "prompts/get", "resources/read"), self.answer))

    async def answer(self, request: Request) -> bytes | Reply:
        async with self.changed:
            self.requests.append(request)
            self.changed.notify_all()
        if self.first is not None and (reply := self.first(request)) is not None:
            return reply
        params = request.json["params"]
        name = params.get("name") or params["uri"]
        state = params.get("requestState")
        number = int(state.rpartition("#")[2]) if state else 0
        plan = self.plans.get(name, ())
        if number < len(plan):
            step = plan[number]
            told = None if isinstance(step, Reply) else jsontext.member(step, "requestState")
            if isinstance(step, Reply) or told is None:
                return step
            members = dict(jsontext.members(step)) | {"requestState": told[:-1] + b'#%d"' % (number + 1)}
            return jsontext.build(members.items())
        self.executions.append(name)
        got = jsontext.pointer(request.body, ["params", "inputResponses"]) or b"null"
        return b'{"content":[],"contents":[],"messages":[], "n":1.10,"got":' + got + b"}"

    async def until_asked(self, times: int) -> None:
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(lambda: len(self.requests) >= times), PATIENCE)


@dataclass
class Place:
    """A worker of the pack, one of authors beside it, and the server that they call."""

    client: Client
    served: AskingServer
    pack: Pack

    @property
    def author_queue(self) -> str:
        return f"author-{self.pack.task_queue}"

    async def asker(self, *calls: Call) -> WorkflowHandle[Any, list[Told]]:
        """Start a workflow that makes these calls."""
        return await self.start(Asker.run, [list(calls), self.pack.task_queue])

    async def start(self, run: Any, args: Sequence[Any]) -> WorkflowHandle[Any, Any]:
        """Start a workflow of an author."""
        return await self.client.start_workflow(
            run, args=args, id=f"asker-{uuid.uuid4().hex}", task_queue=self.author_queue
        )


@contextlib.asynccontextmanager
async def place(
    client: Client,
    plans: Mapping[str, Sequence[bytes | Reply]],
    *,
    tools: Mapping[str, Any] | None = None,
    first: Callable[[Request], Reply | None] | None = None,
    max_cached_workflows: int = 1000,
    **host: Any,
) -> AsyncIterator[Place]:
    """Such a place; `host` are keys of the host's settings."""
    served = AskingServer(plans, first=first)
    async with FakeServer(served.handler()) as fake:
        given = settings_for(fake.url, tools=tools, worker={"tenant": "acme"}, **({"host": host} if host else {}))
        async with (
            pack_worker(client, given) as pack,
            Worker(
                client,
                task_queue=f"author-{pack.task_queue}",
                workflows=[Asker, Own, Parts],
                activities=[look_up],
                max_cached_workflows=max_cached_workflows,
            ),
        ):
            yield Place(client, served, pack)


async def waiting(handle: WorkflowHandle[Any, Any], number: int = 1) -> Sequence[OpenInterrupt]:
    """Wait until a workflow shows so many open questions."""
    times = 0
    while True:
        times += 1
        shown = await asked_of_author(handle, times)
        if len(shown) >= number:
            return shown
