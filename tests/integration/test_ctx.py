"""`ctx.mcp` from an author's workflow: plain client, plain worker, the sandbox on, the pack on a queue of its own."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.worker import Replayer, Worker

from openwop_mcp import ctx, jsontext
from tests.support import exact
from tests.support.author_flows import MISUSES, Author, Call, Calls, Misuser, Told, TooBig, Uncaught
from tests.support.fake_server import FakeServer, Handler, Reply, Request, error_reply, modern
from tests.support.pack import activity_results, failed_attempts, pack_worker, scheduled, settings_for
from tests.support.patience import PATIENCE

AROUND = len(b'{"content":[{"type":"text","text":""}]}')
READ = {"*": {"safety_tier": "read"}}


@dataclass
class Setting:
    client: Client
    server: FakeServer
    queue: str

    async def ask(self, *calls: Call, parallel: bool = False) -> tuple[list[Told], WorkflowHistory]:
        handle = await self.client.start_workflow(
            Author.run,
            Calls(list(calls), self.queue, parallel),
            id=f"author-{uuid.uuid4().hex}",
            task_queue=f"author-{self.queue}",
        )
        return await handle.result(), await handle.fetch_history()


@contextlib.asynccontextmanager
async def setting(client: Client, handler: Handler, **options: Any) -> AsyncIterator[Setting]:
    async with (
        FakeServer(handler) as server,
        pack_worker(client, settings_for(server.url, **options)) as pack,
        Worker(client, task_queue=f"author-{pack.task_queue}", workflows=[Author, Misuser, TooBig, Uncaught]),
    ):
        yield Setting(client, server, pack.task_queue)


def answers(*replies: bytes | Reply) -> Handler:
    """Answers calls of tools with each of these in turn."""
    left = iter(replies)
    return modern({"tools/call": lambda _: next(left)})


def provenance(payload: Any) -> Mapping[str, bytes]:
    return {key.removeprefix("openwop-mcp."): value for key, value in payload.metadata.items() if "." in key}


async def test_each_method_records_the_servers_bytes_with_their_provenance(client):
    handler = modern(
        {
            "tools/call": exact.RESULT,
            "tools/list": exact.PAGE,
            "resources/list": exact.RESOURCES,
            "resources/templates/list": exact.TEMPLATES,
            "resources/read": exact.RESOURCE,
            "prompts/list": exact.PROMPTS,
            "prompts/get": exact.PROMPT,
            "completion/complete": exact.COMPLETED,
            "server/discover": exact.DISCOVERED,
        }
    )
    parts = {name: part.decode() for name, part in exact.COMPLETION.items()}
    made = {
        "tools/call": Call("call_tool", ["fake", "echo"], text=exact.ARGUMENTS.decode()),
        "tools/list": Call("list_tools", ["fake", ""]),
        "resources/list": Call("list_resources", ["fake", ""]),
        "resources/templates/list": Call("list_resource_templates", ["fake", "é"]),
        "resources/read": Call("read_resource", ["fake", "fake://one"]),
        "prompts/list": Call("list_prompts", ["fake"]),
        "prompts/get": Call("get_prompt", ["fake", "greet"], text=exact.ARGUMENTS.decode()),
        "completion/complete": Call(
            "complete", ["fake"], texts=[parts["ref"], parts["argument"]], context=parts["context"]
        ),
        "server/discover": Call("server_health", ["fake"]),
    }
    async with setting(client, handler) as at:
        told, history = await at.ask(*made.values())
        recorded = dict(zip(made, activity_results(history), strict=True))
        assert {method: payload.data for method, payload in recorded.items()} == {
            "tools/call": exact.RESULT,
            "tools/list": exact.PAGE,
            "resources/list": exact.RESOURCES,
            "resources/templates/list": exact.TEMPLATES,
            "resources/read": exact.RESOURCE,
            "prompts/list": exact.PROMPTS,
            "prompts/get": exact.PROMPT,
            "completion/complete": exact.COMPLETED,
            "server/discover": b'{"state":"reachable","discover":' + exact.DISCOVERED + b"}",
        }
        assert [one.raw.encode() for one in told] == [payload.data for payload in recorded.values()]
        assert told[-1].code == "reachable"
        assert [request.json["method"] for request in at.server.requests] == list(made)
        sent = {request.json["method"]: request for request in at.server.requests}
        origin = at.server.url.removesuffix("/mcp")

    def param(method: str, name: str) -> bytes | None:
        return jsontext.pointer(sent[method].body, ["params", name])

    assert param("tools/call", "arguments") == param("prompts/get", "arguments") == exact.ARGUMENTS
    cursors = {method: param(method, "cursor") for method in made if method.endswith("/list")}
    assert list(cursors.values()) == [b'""', b'""', '"é"'.encode(), None]
    assert {name: param("completion/complete", name) for name in exact.COMPLETION} == exact.COMPLETION

    for method, payload in recorded.items():
        assert payload.metadata["encoding"] == b"json/plain"
        assert provenance(payload)["method"] == method.encode()
        assert provenance(payload)["sha256"] == hashlib.sha256(payload.data).hexdigest().encode()
    assert provenance(recorded["prompts/get"])["subject"] == b"greet"
    told_of_call = dict(provenance(recorded["tools/call"]))
    assert float(told_of_call.pop("duration-ms")) >= 0
    assert told_of_call.pop("effect-id").startswith(b"default/")
    assert told_of_call == {
        "server-id": b"fake",
        "method": b"tools/call",
        "subject": b"echo",
        "peer": hashlib.sha256(origin.encode()).hexdigest().encode(),
        "floor": b"2026-07-28",
        "keying": b"activity-recipe",
        "claim": b"recorded",
        "policy": b"settings",
        "revision": b"2026-07-28",
        "http-status": b"200",
        "attempt": b"1",
        "sha256": hashlib.sha256(exact.RESULT).hexdigest().encode(),
    }


async def test_mappings_complete_as_well_and_what_is_no_object_fails_before_anything_is_scheduled(client):
    ref = {"type": "ref/resource", "uri": "fake://{which}"}
    argument = {"name": "which", "value": ""}
    async with setting(client, modern()) as at:
        told, history = await at.ask(
            Call("complete", ["fake", ref, argument]),
            Call("complete", ["fake", ref], texts=["[]"]),
            Call("complete", ["fake"], texts=['"greet"', "{}"]),
            Call("complete", ["fake", ref, argument], context="null"),
            Call("complete", ["fake", ref], texts=['{"name":']),
        )
        (request,) = at.server.requests
        assert {name: request.json["params"].get(name) for name in exact.COMPLETION} == {
            "ref": ref,
            "argument": argument,
            "context": None,
        }
        assert len(scheduled(history)) == 1
    assert {one.code for one in told[1:]} == {"validation_error"}
    at_fault = [jsontext.decode(one.facts.encode())["path"] for one in told[1:]]
    assert at_fault == ["argument", "ref", "context", "argument"]


async def test_what_only_reads_is_sent_again_although_the_first_may_have_arrived(client):
    replies = {
        method: [result, Reply(headers=[("Content-Type", "application/json")], body=b"x" * 9, abort_after=1)]
        for method, result in {"prompts/get": exact.PROMPT, "completion/complete": exact.COMPLETED}.items()
    }
    handler = modern({method: lambda request: replies[request.json["method"]].pop() for method in replies})
    async with setting(client, handler) as at:
        told, history = await at.ask(
            Call("get_prompt", ["fake", "greet"], retry=(2, 0.0, 0.0)),
            Call(
                "complete",
                ["fake", {"type": "ref/prompt", "name": "greet"}, {"name": "who", "value": "A"}],
                retry=(2, 0.0, 0.0),
            ),
        )
        assert [one.raw for one in told] == [exact.PROMPT.decode(), exact.COMPLETED.decode()]
        assert len(scheduled(history)) == len(at.server.requests) == 4


async def test_a_mapping_is_sent_with_its_numbers_as_they_are_and_none_at_all_is_absent(client):
    async with setting(client, modern()) as at:
        await at.ask(
            Call("call_tool", ["fake", "echo", {"n": 2**70, "s": "é", "x": 1.5}]),
            Call("call_tool", ["fake", "echo", {}]),
            Call("call_tool", ["fake", "echo"]),
        )
        sent = [jsontext.pointer(request.body, ["params", "arguments"]) for request in at.server.requests]
        assert sent == ['{"n":1180591620717411303424,"s":"é","x":1.5}'.encode(), b"{}", None]


async def test_a_result_that_says_error_is_a_result(client):
    result = b'{"content":[{"type":"text","text":"no such city"}],"isError":true}'
    async with setting(client, answers(result)) as at:
        told, history = await at.ask(Call("call_tool", ["fake", "echo"]))
        assert told[0].raw == result.decode()
        assert len(scheduled(history)) == len(at.server.requests) == 1


@pytest.mark.parametrize(
    "error",
    [
        b'{"code": -32000, "message":"no", "data":{"limit":1e400, "n":1.10, "s":"\\u00e9"}, "later":[1.0]}',
        b'{"code":-32602,"message":"unknown tool"}',
    ],
)
async def test_an_error_of_the_server_is_told_with_its_exact_bytes(client, error):
    def refuse(request: Request) -> Reply:
        body = b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (request.json["id"], error)
        return Reply(headers=[("Content-Type", "application/json")], body=body)

    async with setting(client, modern({"tools/call": refuse}), tools=READ) as at:
        told, history = await at.ask(Call("call_tool", ["fake", "echo"]))
        assert told[0].code == "mcp_error"
        assert told[0].error == error.decode()
        assert told[0].delivery == "answered"
        assert not told[0].in_doubt
        (failed,) = failed_attempts(history)
        assert failed.type == "mcp_error"
        assert failed.non_retryable
        assert failed.details.payloads[1].data == error
        assert len(at.server.requests) == 1


async def test_an_error_over_64_kib_is_told_by_its_code_and_size(client):
    def refuse(request: Request) -> Reply:
        return error_reply(request, -32000, "no", data="x" * 70_000)

    async with setting(client, modern({"tools/call": refuse}), tools=READ) as at:
        told, history = await at.ask(Call("call_tool", ["fake", "echo"]))
        error = jsontext.decode(told[0].error.encode())
        assert error["code"] == -32000
        assert error["omittedBytes"] > 70_000
        assert sum(len(payload.data) for payload in failed_attempts(history)[0].details.payloads) < 8_000


@pytest.mark.parametrize("server_id", ["nowhere", "theirs"])
async def test_a_server_that_is_not_there_for_the_tenant_is_not_found_once(client, server_id):
    theirs = {"url": "http://127.0.0.1:9/mcp", "network": "private", "tenants": ["others"]}
    async with setting(client, modern(), servers={"theirs": theirs}) as at:
        told, history = await at.ask(
            Call("call_tool", [server_id, "echo"]), Call("server_health", [server_id]), Call("list_tools", [server_id])
        )
        assert [one.code for one in told] == ["not_found"] * 3
        assert {one.delivery for one in told} == {"not_sent"}
        assert server_id in str(told[0].message)
        assert len(scheduled(history)) == 3
        assert at.server.requests == []


async def test_an_uncaught_failure_ends_the_workflow_with_its_code_as_type(client):
    async with setting(client, modern()) as at:
        with pytest.raises(WorkflowFailureError) as caught:
            await client.execute_workflow(
                Uncaught.run,
                args=["nowhere", at.queue],
                id=f"uncaught-{uuid.uuid4().hex}",
                task_queue=f"author-{at.queue}",
            )
        error = caught.value.cause
        assert isinstance(error, ApplicationError)
        assert error.type == "not_found"
        assert isinstance(error.cause, ActivityError)


async def test_a_result_of_a_mebibyte_passes_and_one_of_three_fails_once_and_for_good(client):
    def sized(request: Request) -> bytes:
        size = request.json["params"]["arguments"]["size"]
        return b'{"content":[{"type":"text","text":"%b"}]}' % (b"x" * size)

    async with setting(client, modern({"tools/call": sized}), tools=READ) as at:
        told, history = await at.ask(
            Call("call_tool", ["fake", "big", {"size": 1024**2 - AROUND}]),
            Call("call_tool", ["fake", "big", {"size": 1024**2}]),
            Call("call_tool", ["fake", "big", {"size": 3 * 1024**2}]),
        )
        recorded = activity_results(history)
        assert [len(payload.data) for payload in recorded] == [1024**2, 1024**2 + AROUND]
        assert [one.raw for one in told[:2]] == [hashlib.sha256(payload.data).hexdigest() for payload in recorded]
        assert told[2].code == "storage_limit_exceeded"
        assert told[2].delivery == "answered"
        assert "storage.driver" in str(told[2].message)
        facts = jsontext.decode(told[2].facts.encode())
        assert facts["size"] == 3 * 1024**2 + AROUND
        assert len(facts["sha256"]) == 64
        assert len(scheduled(history)) == len(at.server.requests) == 3


async def test_what_temporal_cannot_carry_is_refused_before_anything_is_scheduled(client):
    async with setting(client, modern()) as at:
        handle = await client.start_workflow(
            TooBig.run,
            args=[3 * 1024**2, at.queue],
            id=f"big-{uuid.uuid4().hex}",
            task_queue=f"author-{at.queue}",
        )
        told = await handle.result()
        assert told.code == "storage_limit_exceeded"
        assert told.delivery == "not_sent"
        history = await handle.fetch_history()
        assert scheduled(history) == []
        assert at.server.requests == []


@pytest.mark.parametrize("text", ['{"a":01}', "[1]", '"text"', '{"a":'])
async def test_arguments_that_are_no_object_fail_the_call_and_nothing_is_sent(client, text):
    async with setting(client, modern()) as at:
        told, _ = await at.ask(Call("call_tool", ["fake", "echo"], text=text))
        assert told[0].code == "validation_error"
        assert told[0].delivery == "not_sent"
        assert at.server.requests == []


async def test_arguments_that_no_json_can_hold_fail_the_call(client):
    async with setting(client, modern()) as at:
        told, history = await at.ask(Call("call_tool", ["fake", "echo", {"n": float("nan")}]))
        assert told[0].code == "validation_error"
        assert scheduled(history) == []


async def test_calls_made_at_once_are_under_way_at_once(client):
    under_way = 0
    all_there = asyncio.Event()

    async def meet(_: Request) -> bytes:
        nonlocal under_way
        under_way += 1
        if under_way == 5:
            all_there.set()
        await all_there.wait()
        return b'{"content":[]}'

    async with setting(client, modern({"tools/call": meet})) as at:
        told, _ = await at.ask(*(Call("call_tool", ["fake", "echo"]) for _ in range(5)), parallel=True)
        assert [one.raw for one in told] == ['{"content":[]}'] * 5


async def test_an_answer_over_an_event_stream_is_the_same_record(client):
    result = exact.RESULT
    async with setting(client, modern({"tools/call": result}, as_="sse")) as at:
        _, history = await at.ask(Call("call_tool", ["fake", "echo"]))
        assert [payload.data for payload in activity_results(history)] == [result]


@pytest.mark.parametrize("retry", [(3, inf, 15.0), (3, 10.0, nan)])
async def test_retry_limits_that_no_history_can_hold_fail_the_call_and_not_the_workflow_task(client, retry):
    async with setting(client, modern()) as at:
        (told,), history = await asyncio.wait_for(at.ask(Call("call_tool", ["fake", "echo"], retry=retry)), PATIENCE)
        assert told.code == "validation_error"
        assert told.delivery == "not_sent"
        assert "retry" in str(told.message)
        assert scheduled(history) == []
        assert at.server.requests == []


async def test_options_that_would_wedge_or_spoil_a_call_are_refused_by_name_before_anything_is_scheduled(client):
    echo = ["fake", "echo"]
    refused = [
        (Call("call_tool", echo, timeout=0), "timeout", "above 0"),
        (Call("call_tool", echo, timeout=-1), "timeout", "above 0"),
        (Call("call_tool", echo, heartbeat=-5), "heartbeat_timeout", "2 seconds to 1 day"),
        (Call("call_tool", echo, heartbeat=1.9), "heartbeat_timeout", "2 seconds to 1 day"),
        (Call("call_tool", echo, heartbeat=86_401), "heartbeat_timeout", "2 seconds to 1 day"),
        (Call("call_tool", ["fake", "n" * 1_025]), "name", "1024"),
        (Call("get_prompt", ["fake", "n" * 1_025]), "name", "1024"),
        (Call("read_resource", ["fake", "u" * 8_193]), "uri", "8192"),
        (Call("call_tool", echo, text='{"a":' + "[" * 1_000 + "]" * 1_000 + "}"), "arguments", "512 levels"),
    ]
    async with setting(client, modern()) as at:
        told, history = await asyncio.wait_for(at.ask(*(call for call, _, _ in refused)), PATIENCE)
        assert scheduled(history) == []
        assert at.server.requests == []
    for one, (_, option, says) in zip(told, refused, strict=True):
        assert (one.code, one.delivery) == ("validation_error", "not_sent")
        assert jsontext.decode(one.facts.encode())["path"] == option
        assert says in one.message


async def test_what_is_no_value_of_its_option_fails_the_call_and_not_the_workflow_task_for_ever(client):
    async with setting(client, modern()) as at:
        flow = await client.start_workflow(
            Misuser.run, at.queue, id=f"misuser-{uuid.uuid4().hex}", task_queue=f"author-{at.queue}"
        )
        told = await asyncio.wait_for(flow.result(), PATIENCE)
        assert scheduled(await flow.fetch_history()) == []
    assert told.keys() == MISUSES.keys()
    for which, said in told.items():
        option = which.split()[0]
        assert said.startswith(f"validation_error {option} validation_error: {option}: give ")


async def test_a_call_that_went_well_before_its_misuse_was_refused_is_replayed_as_it_was(client, monkeypatch):
    async with setting(client, modern({"tools/call": exact.RESULT})) as at:
        with monkeypatch.context() as before:
            before.setattr(ctx.mcp, "_check_types", lambda *_: None)
            (told,), history = await at.ask(Call("call_tool", ["fake", "echo"], retry=(0, 10.0, 15.0)))
    assert told.raw == exact.RESULT.decode()
    await Replayer(workflows=[Author]).replay_workflow(history)


async def test_options_and_names_at_their_limits_pass(client):
    calls = [Call("call_tool", ["fake", "n" * 1_024], heartbeat=limit, timeout=PATIENCE) for limit in (2, 86_400)]
    # Where a machine stands still for two seconds, the first is made again.
    async with setting(client, modern(), tools=READ) as at:
        told, _ = await at.ask(*calls, Call("read_resource", ["fake", "u" * 8_192]))
    assert [one.code for one in told] == [None] * 3
