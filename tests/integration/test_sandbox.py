"""The sandbox of temporalio: an author's workflow pays nothing for the pack, and `RunWorkflow` could run in it."""

from __future__ import annotations

import sys
import time
import uuid
import warnings
from collections.abc import Iterator
from datetime import timedelta
from importlib.machinery import ModuleSpec
from typing import Any

import pytest
from temporalio.worker import Worker
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from activities import Calls, mcp_activities, node_activities
from openwop_mcp import jsontext, schemas
from openwop_mcp.runs.interrupts import Resolution
from tests.support import exact
from tests.support.asking import ask, form, place, waiting
from tests.support.asking_flows import Call as AskerCall
from tests.support.author_flows import Author, Bare, Call
from tests.support.author_flows import Calls as Asked
from tests.support.deep_imports import DeepImports
from tests.support.doubts import ALICE, refusal, resolve
from tests.support.fake_server import FakeServer, Reply, Request, modern, result_reply
from tests.support.graphs import edge, node, workflow
from tests.support.pack import Pack, activity_results, pack_worker, settings_for, types
from tests.support.patience import PATIENCE
from tests.support.sandboxed_run import SandboxedRun

EXECUTED_ANEW = {"openwop_mcp"}
"""What a workflow's own import executes again: the package's first file, which then takes all it has from outside."""

LIBRARIES = {"openwop_mcp", "msgspec", "pydantic", "httpx", "aiohttp"}


class Imports:
    """Notes each module that is about to be executed; it finds none itself."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        self.names.append(name)
        return None


@pytest.fixture
def imports() -> Iterator[Imports]:
    noted = Imports()
    sys.meta_path.insert(0, noted)
    yield noted
    sys.meta_path.remove(noted)


async def test_a_workflow_that_imports_the_pack_executes_none_of_its_libraries_again(client, imports):
    async with Worker(client, task_queue="sandbox", workflows=[Bare]):
        imports.names.clear()
        for _ in range(3):
            await client.execute_workflow(Bare.run, id=f"bare-{uuid.uuid4().hex}", task_queue="sandbox")
        # The sandbox is there and this sees into it: the workflow's own module is executed for each run.
        assert imports.names.count("tests.support.author_flows") == 3
        ours = {name for name in imports.names if name.partition(".")[0] in LIBRARIES}
        assert ours <= EXECUTED_ANEW


def test_what_a_sandboxed_workflow_sees_of_the_pack_is_the_processs_own() -> None:
    author = sys.modules[Bare.__module__]
    assert author.ctx is sys.modules["openwop_mcp.ctx"]
    assert sys.modules["openwop_mcp"].ctx is author.ctx


async def test_a_name_imported_from_the_module_that_defines_it_is_the_same_name(client):
    arguments = '{"a":1.10,"b":-0,"c":1.0E+5,"d":1e-400}'
    async with (
        FakeServer(modern()) as server,
        pack_worker(client, settings_for(server.url)) as pack,
        Worker(client, task_queue="sandbox-deep", workflows=[DeepImports]),
    ):
        told = await client.execute_workflow(
            DeepImports.run,
            args=[arguments, pack.task_queue],
            id=f"deep-{uuid.uuid4().hex}",
            task_queue="sandbox-deep",
            execution_timeout=timedelta(seconds=PATIENCE),
        )
        assert told == [arguments, "True", "not_found", "True", "validation_error", "True"]
        assert jsontext.pointer(server.requests[0].body, ["params", "arguments"]) == arguments.encode()


async def test_an_authors_workflow_makes_calls_in_the_sandbox_without_a_warning(client):
    calls = [
        Call("call_tool", ["fake", "echo"], text=exact.ARGUMENTS.decode()),
        Call("list_tools", ["fake"]),
        Call("read_resource", ["fake", "fake://one"]),
        Call("list_resources", ["fake"]),
        Call("list_resource_templates", ["fake"]),
        Call("list_prompts", ["fake"]),
        Call("get_prompt", ["fake", "greet", {"who": "Ada"}]),
        Call("complete", ["fake", {"type": "ref/prompt", "name": "greet"}, {"name": "who", "value": "A"}]),
        Call("server_health", ["fake"]),
        Call("complete", ["fake", [], {}]),
        Call("call_tool", ["nowhere", "echo"]),
        Call("call_tool", ["fake", "echo", {"n": float("inf")}]),
    ]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        async with (
            FakeServer(modern()) as server,
            Calls(settings_for(server.url)) as performed,
            Worker(client, task_queue="sandbox-pack", activities=mcp_activities(performed)),
            Worker(client, task_queue="sandbox-author", workflows=[Author]),
        ):
            told = await client.execute_workflow(
                Author.run,
                Asked(calls, "sandbox-pack"),
                id=f"author-{uuid.uuid4().hex}",
                task_queue="sandbox-author",
            )
    assert [one.code for one in told] == [
        *[None] * 8,
        "reachable",
        "validation_error",
        "not_found",
        "validation_error",
    ]
    assert [str(one.message) for one in warned] == []


async def test_answers_are_checked_in_the_sandbox_as_fast_as_outside_and_with_the_libraries_of_the_process(
    client, imports, monkeypatch
):
    taken: list[float] = []
    check = schemas.check

    def timed(schema: bytes, instance: bytes) -> schemas.Verdict:
        began = time.thread_time()
        verdict = check(schema, instance)
        taken.append(time.thread_time() - began)
        return verdict

    monkeypatch.setattr(schemas, "check", timed)
    options = [f"city-{number}" for number in range(50)]
    schema = {"type": "object", "properties": {"city": {"enum": options}, "code": {"pattern": "^[A-Z]+$"}}}
    plan = [ask({"where": form(schema=jsontext.encode(schema))})]
    answer = b'{"where":{"action":"accept","content":{"city":"%s","code":"B"}}}'
    async with place(client, {"ask": plan}) as at:
        flow = await at.asker(AskerCall("call_tool", ["fake", "ask"]))
        (one,) = await waiting(flow)
        imports.names.clear()
        for _ in range(5):
            wrong = Resolution(one.interrupt_id, answer % b"nowhere", ALICE)
            assert await refusal(flow, wrong.encode()) == "validation_error"
        await resolve(flow, one.interrupt_id, answer % b"city-7")
        assert len(await flow.result()) == 1
    assert len(taken) == 6
    assert min(taken) < 0.01
    assert not {name for name in imports.names if name.partition(".")[0] in LIBRARIES | {"jsonschema", "re2"}}


async def test_run_workflow_keeps_the_rules_of_the_sandbox(client):
    busy = [Reply(status=503)]

    def answer(request: Request) -> Reply:
        return busy.pop() if busy else result_reply(request, exact.RESULT)

    on = {"serverId": "fake", "name": "echo"}
    definition = workflow(
        [
            node("a", config=on),
            node("wait", "core.delay", config={"delayMs": 5}),
            node("b", config=on, inputs={"arguments": {"type": "connection", "nodeId": "a", "outputKey": "result"}}),
        ],
        [edge("a", "wait"), edge("wait", "b")],
    )
    async with FakeServer(modern({"tools/call": answer})) as server:
        settings = settings_for(
            server.url, tools={"*": {"safety_tier": "read"}}, server={"retry": {"attempts": 2, "max_wait": 0.02}}
        )
        async with (
            Calls(settings) as performed,
            Worker(
                client,
                task_queue="sandboxed-run",
                workflows=[SandboxedRun],
                activities=node_activities(performed),
                workflow_runner=SandboxedWorkflowRunner(),
            ),
        ):
            log, found = await Pack(client, "sandboxed-run").run(definition)
        assert types(log)[-1] == "run.completed"
        assert "node.retried a" in types(log)
        assert [payload.data for payload in activity_results(found)] == [exact.RESULT] * 2
