"""Sensitive variables in a real run: server and history have them, what is shown and the worker's log have not."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from temporalio.client import Client

from openwop_mcp.runs.events import RunEvent
from tests.support.doubts import asked_of_run, resolve, until_beat
from tests.support.fake_server import FakeServer, Reply, Request, error_reply, modern, notice_event, result_reply
from tests.support.graphs import edge, node, workflow
from tests.support.live_log import LiveLog, told
from tests.support.pack import activity_results, pack_worker, settings_for, types
from workflows.client import read_run
from workflows.replay import replay

SECRET = "hunter2-hunter2"
INPUTS = json.dumps({"token": SECRET, "city": "Bern"}).encode()
TOKEN = {"type": "variable", "variableName": "token"}


def quoting(request: Request) -> Reply:
    """The answer of a server that gives back all that it was sent, in whatever it says."""
    called = request.json["params"]
    quoted = json.dumps(called["arguments"])
    match called["name"]:
        case "refuse":
            return error_reply(request, -32602, f"no: {quoted}", {"got": called["arguments"]})
        case "break":
            return Reply(status=503, headers=[("Content-Type", "text/plain")], body=quoted.encode())
        case _:
            return result_reply(request, json.dumps({"content": [], "got": called["arguments"]}).encode())


def caller(node_id: str, tool: str) -> dict[str, Any]:
    inputs = {"arguments.city": {"type": "variable", "variableName": "city"}, "arguments.token": TOKEN}
    return node(node_id, config={"serverId": "fake", "name": tool}, inputs=inputs)


FLOW = workflow(
    [
        caller("a", "echo"),
        node(
            "b", "core.identity", inputs={"payload": {"type": "connection", "nodeId": "a", "outputKey": "/result/got"}}
        ),
        caller("c", "break"),
        caller("d", "refuse"),
    ],
    [edge("a", "b"), edge("b", "c"), edge("c", "d")],
    [{"name": "token", "type": "string", "sensitive": True}, {"name": "city", "type": "string"}],
)


def outputs(log: list[RunEvent], node_id: str) -> dict[str, Any]:
    [payload] = [event.payload for event in log if (event.type, event.node_id) == ("node.completed", node_id)]
    found: dict[str, Any] = json.loads(payload)["outputs"]
    return found


async def test_a_sensitive_value_reaches_the_server_and_history_and_nothing_that_is_shown(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    # At this level Temporal's SDK logs payloads, but not where a workflow runs.
    caplog.set_level(logging.INFO, "temporalio")
    caplog.set_level(logging.DEBUG, "temporalio.worker._workflow_instance")
    live = LiveLog(monkeypatch)
    async with FakeServer(modern({"tools/call": quoting})) as fake:
        settings = settings_for(fake.url, tools={"*": {"on_doubt": "ask"}})
        async with pack_worker(client, settings) as pack:
            run = await pack.start(FLOW, INPUTS)
            ((identity, asked),) = await asked_of_run(run)
            assert asked["data"]["artifactData"]["arguments"] == {"city": "Bern", "token": "[REDACTED]"}
            answer = json.dumps({"action": "edit-accept", "editedArtifactData": {"content": [SECRET]}}).encode()
            await resolve(run, identity, answer)
            log, found = await pack.end(run)
        calls = [request.json["params"]["arguments"] for request in fake.requests if b"tools/call" in request.body]
    assert calls == [{"city": "Bern", "token": SECRET}] * 3
    assert types(log)[-2:] == ["node.failed d", "run.failed"]
    assert SECRET.encode() in activity_results(found)[0].data

    assert SECRET not in "".join(event.payload.decode() for event in log)
    assert b'"inputs":{"token":"[REDACTED]","city":"Bern"}' in log[0].payload
    assert (outputs(log, "a"), outputs(log, "b")) == ({"result": "[REDACTED]"}, {"payload": "[REDACTED]"})
    error = json.loads(log[-1].payload)["error"]
    assert (error["code"], error["message"], error["details"]["httpStatus"]) == ("mcp_error", "[REDACTED]", 200)
    assert live.of(found) == told(log)

    shown = await read_run(client, run.id)
    assert [call.outcome for call in shown.made] == ["ok", "ok", "failed"]
    assert SECRET not in repr([call.failure for call in shown.made]) + repr(shown.failure)
    assert not [
        record.getMessage() for record in caplog.records if SECRET in record.getMessage() + str(record.exc_text)
    ]
    for verdict in await replay(found, []):
        assert verdict.sound, verdict.prose()
    # Once, since a replay is no news.
    assert [record.getMessage() for record in caplog.records if record.name == "openwop_mcp.runs"] == [
        f"run {run.id} has an effect in doubt, node c: upstream_unavailable",
        f"run {run.id} failed, node d: mcp_error",
    ]


async def test_what_a_server_says_of_the_progress_of_such_a_call_is_in_no_heartbeat(client: Client) -> None:
    let_go = asyncio.Event()

    def slow(request: Request) -> Reply:
        token = request.json["params"]["_meta"]["progressToken"]
        told = notice_event("progress", progressToken=token, progress=1, total=2, message=f"with {SECRET}")
        answer = result_reply(request, b'{"content":[]}', "sse")
        return Reply(headers=answer.headers, chunks=[told, let_go, *(answer.chunks or [])])

    beats: list[dict[str, Any]] = []

    def tells(beat: dict[str, Any]) -> bool:
        beats.append(beat)
        return "progress" in beat

    async with FakeServer(modern({"tools/call": slow})) as fake, pack_worker(client, settings_for(fake.url)) as pack:
        run = await pack.start(workflow([caller("a", "slow")], variables=FLOW["variables"]), INPUTS)
        await until_beat(run, tells)
        let_go.set()
        log, _ = await pack.end(run)
    assert types(log)[-1] == "run.completed"
    assert beats[-1]["progress"] == {"progress": 1, "total": 2}
