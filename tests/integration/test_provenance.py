"""What a record says beside the bytes: whether they were kept from before, and whether they keep to the tool's schema.

Neither decides anything: a worker that remembers and one that does not schedule the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from temporalio.client import Client, WorkflowHistory
from temporalio.worker import Replayer, Worker

from commands.prose import call_prose
from openwop_mcp.runs.records import made_calls
from tests.support.author_flows import Author, Call, Calls, Told
from tests.support.fake_server import FakeServer, Handler, Reply, modern
from tests.support.graphs import edge, node, workflow
from tests.support.pack import (
    SERVER,
    Pack,
    activity_results,
    error_of,
    failed_attempts,
    log_of,
    pack_worker,
    payload_of,
    scheduled,
    settings_for,
    types,
)

PAGE = json.dumps(
    {
        "resultType": "complete",
        "tools": [
            {
                "name": "t",
                "inputSchema": {"type": "object", "properties": {"q": {"type": "integer"}}},
                "outputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}},
            },
            {"name": "odd", "inputSchema": {"type": "object"}, "outputSchema": {"$ref": "http://127.0.0.1:9/s.json"}},
        ],
        "ttlMs": 600_000,
        "cacheScope": "private",
    }
).encode()
WRONG = b'{"structuredContent":{"n":"s3cr3t"}, "content":[] ,"later":1.10}'
READ = {"*": {"safety_tier": "read"}}


@dataclass
class At:
    pack: Pack
    server: FakeServer

    async def ask(self, *calls: Call) -> tuple[list[Told], WorkflowHistory]:
        handle = await self.pack.client.start_workflow(
            Author.run,
            Calls(list(calls), self.pack.task_queue),
            id=f"author-{uuid.uuid4().hex}",
            task_queue=f"author-{self.pack.task_queue}",
        )
        return await handle.result(), await handle.fetch_history()


@contextlib.asynccontextmanager
async def at(client: Client, handler: Handler, **options: Any) -> AsyncIterator[At]:
    async with (
        FakeServer(handler) as server,
        pack_worker(client, settings_for(server.url, tools=READ, **options)) as pack,
        Worker(client, task_queue=f"author-{pack.task_queue}", workflows=[Author]),
    ):
        yield At(pack, server)


def _said(payload: Any, key: str) -> str | None:
    found = payload.metadata.get(f"openwop-mcp.{key}")
    return None if found is None else found.decode()


LIST = Call("list_tools", [SERVER])
CALL = Call("call_tool", [SERVER, "t"], text='{"q":1}')


async def test_a_record_says_what_became_of_the_schema_and_its_bytes_are_the_servers(client: Client) -> None:
    results = iter([WRONG, b'{"structuredContent":{"n":1}}', WRONG, b'{"content":[]}'])
    handler = modern({"tools/list": PAGE, "tools/call": lambda _: next(results)})
    odd = Call("call_tool", [SERVER, "odd"], text="{}")
    async with at(client, handler) as here:
        told, history = await here.ask(LIST, CALL, CALL, odd, CALL)
        assert len(here.server.requests) == 5
    _, wrong, right, unjudged, nothing = activity_results(history)
    assert wrong.data == unjudged.data == WRONG == (told[1].raw or "").encode()
    verdicts = [_said(one, "schema") or "" for one in (wrong, right, unjudged, nothing)]
    assert verdicts[0].startswith("mismatch /n ")
    assert verdicts[1] == "ok"
    assert verdicts[2].startswith("unchecked ")
    assert verdicts[3] == ""
    assert "s3cr3t" not in "".join(verdicts)
    assert [one.code for one in told] == [None] * 5


async def test_a_result_that_breaks_its_schema_completes_its_node_and_is_not_asked_for_again(client: Client) -> None:
    handler = modern({"tools/list": PAGE, "tools/call": WRONG})
    async with at(client, handler) as here:
        await here.ask(LIST)
        config = {"serverId": SERVER, "name": "t"}
        log, found = await here.pack.run(workflow([node("a", config=config)]))
        assert types(log)[-1] == "run.completed"
        assert scheduled(found) == ["a:1"]
        (record,) = activity_results(found)
        assert (record.data, (_said(record, "schema") or "").split()[0]) == (WRONG, "mismatch")
        assert [one.json["method"] for one in here.server.requests] == ["tools/list", "tools/call"]


@pytest.mark.parametrize(("validate", "sent"), [("refuse", False), ("warn", True), ("off", True)])
async def test_arguments_that_break_the_schema_go_out_or_not_as_the_settings_say(
    client: Client, validate: str, sent: bool
) -> None:
    handler = modern({"tools/list": PAGE, "tools/call": WRONG})
    async with at(client, handler, server={"validate": validate}) as here:
        told, history = await here.ask(LIST, Call("call_tool", [SERVER, "t"], text='{"q":"s3cr3t"}'))
        assert len(here.server.requests) == 1 + sent
    assert told[1].code == (None if sent else "validation_error")
    assert told[1].delivery == (None if sent else "not_sent")
    assert len(scheduled(history)) == 2
    if validate != "off" and sent:
        assert (_said(activity_results(history)[1], "schema") or "").startswith("mismatch")
    if validate == "off":
        assert _said(activity_results(history)[1], "schema") is None


READS = [
    LIST,
    Call("list_resources", [SERVER]),
    Call("list_resource_templates", [SERVER]),
    Call("list_prompts", [SERVER]),
    Call("read_resource", [SERVER, "fake://one"]),
    Call("server_health", [SERVER]),
]


def _kept() -> Handler:
    def keep(result: bytes) -> bytes:
        return result.replace(b'"ttlMs":0', b'"ttlMs":600000')

    shapes = b'"tools":[],"resources":[],"resourceTemplates":[],"prompts":[],"contents":[]'
    one = keep(
        b'{"resultType":"complete",%b,"supportedVersions":["2026-07-28"],"ttlMs":0,"cacheScope":"private"}' % shapes
    )
    methods = ("tools/list", "resources/list", "resources/templates/list", "prompts/list", "resources/read")
    return modern(dict.fromkeys([*methods, "server/discover"], one))


def _events(history: WorkflowHistory) -> list[int]:
    return [event.event_type for event in history.events]


async def test_a_warm_worker_and_a_cold_one_leave_the_same_history_but_for_what_it_says_of_itself(
    client: Client,
) -> None:
    async with at(client, _kept()) as here:
        cold_told, cold = await here.ask(*READS)
        asked = len(here.server.requests)
        warm_told, warm = await here.ask(*READS)
        assert len(here.server.requests) == asked == len(READS)
    assert warm_told == cold_told
    assert len(scheduled(warm)) == len(scheduled(cold)) == len(READS)
    assert _events(warm) == _events(cold)
    first, second = activity_results(cold), activity_results(warm)
    assert [one.data for one in second] == [one.data for one in first]
    assert [_said(one, "cached") for one in first] == [None] * len(READS)
    assert [_said(one, "cached") for one in second] == ["true"] * len(READS)
    for one, other in zip(first, second, strict=True):
        same = ("method", "revision", "sha256", "server-id", "peer")
        assert [_said(one, key) for key in same] == [_said(other, key) for key in same]
    replayer = Replayer(workflows=[Author])
    for history in (warm, cold):
        await replayer.replay_workflow(history)


async def test_a_run_schedules_the_same_whether_or_not_its_worker_remembers(client: Client) -> None:
    def listing(name: str) -> dict[str, Any]:
        return node(name, "community.mcp.list-tools", config={"serverId": SERVER})

    flow = workflow([listing("a"), listing("b")], [edge("a", "b")])
    ids: list[list[str]] = []
    logs: list[list[str]] = []
    async with at(client, _kept()) as here:
        for _ in range(2):
            log, found = await here.pack.run(flow)
            ids.append(sorted(scheduled(found)))
            logs.append(sorted(types(log)))
        assert len(here.server.requests) <= 2
    assert ids[0] == ids[1] == ["a:1", "b:1"]
    assert logs[0] == logs[1]


async def test_an_address_outside_the_policy_fails_once_and_for_good(client: Client) -> None:
    async with at(client, modern(), server={"network": "public"}) as here:
        config = {"serverId": SERVER, "name": "t"}
        log, found = await here.pack.run(workflow([node("a", config=config)]))
        told, history = await here.ask(LIST)
        assert here.server.connections == 0
    assert error_of(log)["code"] == told[0].code == "egress_denied"
    assert told[0].delivery == "not_sent"
    assert scheduled(found) == ["a:1"]
    assert len(scheduled(history)) == len(failed_attempts(history)) == 1
    assert json.loads(told[0].facts or "{}")["reason"] == "loopback"


async def test_no_history_holds_a_credential_that_a_failing_server_echoes(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "s3cr3t-s3cr3t-s3cr3t"
    monkeypatch.setenv("THE_TOKEN", secret)
    caplog.set_level("DEBUG")

    def echo(request: Any) -> Reply:
        return Reply(status=500, body=f"you sent Authorization: {request.header('Authorization')}".encode())

    handler = modern({"tools/call": echo, "tools/list": echo})
    given = {"credential": {"bearer": {"env": "THE_TOKEN"}}, "retry": {"attempts": 1}}
    async with at(client, handler, server=given) as here:
        log, found = await here.pack.run(workflow([node("a", config={"serverId": SERVER, "name": "t"})]))
        _, history = await here.ask(Call("call_tool", [SERVER, "t"], text="{}", retry=(1, 1.0, 1.0)))
        assert here.server.requests[0].header("Authorization") == f"Bearer {secret}"
    assert types(log)[-1] == "run.failed"
    for one in [*found, history]:
        held = b"".join(event.SerializeToString() for event in one.events)
        assert secret.encode() not in held
        assert b"[credential]" in held
    assert secret not in caplog.text


ECHOES = b'{"structuredContent":{"echo":"Bearer s3cr3t-s3cr3t-s3cr3t"}, "content":[] ,"n":1.10}'


async def test_a_result_that_holds_the_credential_is_told_to_be_without_it_everywhere(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_TOKEN", "s3cr3t-s3cr3t-s3cr3t")
    left = ECHOES.replace(b"s3cr3t-s3cr3t-s3cr3t", b"[credential]")
    given = {"credential": {"bearer": {"env": "THE_TOKEN"}}}
    async with at(client, modern({"tools/call": ECHOES}), server=given) as here:
        log, found = await here.pack.run(workflow([node("a", config={"serverId": SERVER, "name": "t"})]))
        told, history = await here.ask(Call("call_tool", [SERVER, "t"], text="{}"))
    assert told[0].raw == left.decode()
    completed = payload_of(log, "node.completed")
    original = hashlib.sha256(ECHOES).hexdigest()
    assert completed["x-redacted"] == {"count": 1, "originalSha256": original}
    assert log_of(found) == log
    for one in [*found, history]:
        (result,) = activity_results(one)
        assert result.data == left
        (made,) = made_calls([one.events])
        assert made.record is not None
        assert made.record.intact
        assert (made.record.redacted, made.record.original_sha256) == (1, original)
        assert "without a credential that came back (1 times)" in call_prose(made, None)


async def test_a_result_that_may_hold_none_fails_once_and_for_all(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THE_TOKEN", "s3cr3t-s3cr3t-s3cr3t")
    given = {"credential": {"bearer": {"env": "THE_TOKEN"}}, "echoed_credentials": "fail", "retry": {"attempts": 5}}
    async with at(client, modern({"tools/call": ECHOES}), server=given) as here:
        log, found = await here.pack.run(workflow([node("a", config={"serverId": SERVER, "name": "t"})]))
        assert len(here.server.requests) == 1
    error = error_of(log)
    assert error["code"] == "upstream_unavailable"
    assert error["details"]["delivery"] == "answered"
    assert error["details"]["sha256"] == hashlib.sha256(ECHOES).hexdigest()
    assert error["details"]["setting"] == f"servers.{SERVER}.echoed_credentials"
    assert error["details"]["setting"] in error["message"]
    assert scheduled(found) == ["a:1"]
    assert b"s3cr3t" not in b"".join(event.SerializeToString() for one in found for event in one.events)
