"""`worker.py runs` and `worker.py replay`: start, read, take away, and check what was recorded."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError
from temporalio.worker import Worker

from commands.app import main
from tests.integration.cli.author_flow import Author, Refused
from tests.integration.cli.conftest import ODD
from tests.support.cli import ROOT, cli, serving
from tests.support.fake_server import FakeServer
from tests.support.legacy_server import LegacyServer
from tests.support.patience import PATIENCE

INPUTS = r'{"method":"callTool","serverId":"fake","name":"odd","arguments":{"n":1.10,"e":"\u00e9"}}'
AUTHOR = "tests.integration.cli.author_flow"
OLD = {"OPENWOP_MCP__WORKER__TASK_QUEUE": "old"}


@pytest.fixture(scope="module")
async def run(dev):
    """A run of the graph `conformance-mcp-client` that has completed."""
    done = await dev.cli("runs", "start", "conformance-mcp-client", "--inputs", INPUTS, "--wait")
    assert done.status == 0, done.err
    return done.text.strip()


@pytest.fixture(scope="module")
async def exported(dev, run, tmp_path_factory):
    """The run's history as a file."""
    file = tmp_path_factory.mktemp("export") / "run.json"
    done = await dev.cli("runs", "export", run, "--out", str(file))
    assert (done.status, done.out) == (0, b"")
    assert str(file) in done.err
    return file


@pytest.fixture(scope="module")
async def authored(dev, tmp_path_factory):
    """The id of an author's workflow that has completed, and its history as a file."""
    client = await Client.connect(dev.serving.facts["temporal"])
    async with Worker(client, task_queue="author", workflows=[Author]):
        await client.execute_workflow("Author", "openwop-mcp", id="author-1", task_queue="author")
    file = tmp_path_factory.mktemp("author") / "author.json"
    assert (await dev.cli("runs", "export", "author-1", "--out", str(file))).status == 0
    return file


async def test_a_workflow_starts_by_its_id_in_a_folder_and_by_its_file(dev, tmp_path):
    (tmp_path / "own.json").write_bytes((ROOT / "examples/fixtures/conformance-identity.json").read_bytes())
    (tmp_path / "inputs.json").write_text('{"payload": {"n": 1.10}}', encoding="utf-8")
    by_id, by_file = await asyncio.gather(
        dev.cli("runs", "start", "from-folder", "--json"),
        dev.cli("runs", "start", "own.json", "--inputs", "@inputs.json", "--wait", "--json", cwd=tmp_path),
    )
    assert (by_id.status, by_id.json["status"]) == (0, "pending")
    assert by_id.json["runId"].startswith("acme/")
    assert (by_file.status, by_file.json["status"]) == (0, "completed")


async def test_a_run_that_fails_is_not_0_and_says_why(dev):
    prose, value = await asyncio.gather(
        dev.cli("runs", "start", "conformance-failure", "--wait"),
        dev.cli("runs", "start", "conformance-failure", "--wait", "--json"),
    )
    assert (prose.status, value.status, value.json["status"]) == (1, 1, "failed")
    assert prose.text.startswith("acme/")
    assert prose.err.strip()
    assert value.json["error"]["message"] == prose.err.strip()
    assert value.err == f"run {value.json['runId']}\n"
    shown = await dev.cli("runs", "show", prose.text.strip())
    assert shown.status == 0
    assert "failed" in shown.text
    assert prose.err.strip() in shown.text


async def test_an_unknown_workflow_is_not_found_and_says_where_it_was_looked_for(dev, tmp_path):
    (tmp_path / "bad.json").write_text('{"id":"bad"}', encoding="utf-8")
    folders = [str(Path(__file__).parent / "flows"), str(tmp_path)]
    unknown, broken, missing = await asyncio.gather(
        dev.cli("runs", "start", "nope", "--json", OPENWOP_MCP__HOST__WORKFLOWS=json.dumps(folders)),
        dev.cli("runs", "start", "bad.json", cwd=tmp_path),
        dev.cli("runs", "start", "missing.json", cwd=tmp_path),
    )
    assert unknown.status == 1
    assert unknown.json["error"]["code"] == "not_found"
    assert str(Path(__file__).parent / "flows") in unknown.json["error"]["message"]
    # A file there that is none would otherwise be a workflow that nobody can find.
    assert "bad.json" in unknown.json["error"]["message"]
    assert broken.status == 1
    assert "bad.json: nodes" in broken.err
    assert missing.status == 1
    assert "missing.json" in missing.err


async def test_a_run_is_shown_with_what_its_calls_recorded(dev, run):
    prose, value = await asyncio.gather(dev.cli("runs", "show", run), dev.cli("runs", "show", run, "--json"))
    assert (prose.status, value.status) == (0, 0)
    [call] = value.json["calls"]
    assert value.json["status"] == "completed"
    assert (call["serverId"], call["method"], call["subject"], call["bytes"], call["intact"]) == (
        "fake", "tools/call", "odd", len(ODD), True,
    )  # fmt: skip
    assert (call["outcome"], call["attempts"], call["httpStatus"], "error" in call) == ("ok", 1, 200, False)
    assert call["sha256"] in prose.text
    assert "intact" in prose.text


async def test_a_run_is_found_by_its_id_as_paths_of_the_host_have_it(dev, run):
    for command in (["runs", "show"], ["runs", "events"], ["effects"], ["interrupts", "list"], ["replay"]):
        plain, projected = await asyncio.gather(*(dev.cli(*command, one) for one in (run, run.replace("/", "~2F"))))
        assert projected == plain
        assert projected.status == 0


async def test_what_the_record_says_beside_an_answer_is_shown(dev):
    async def ran(method, **inputs):
        given = json.dumps({"method": method, "serverId": "fake", **inputs})
        done = await dev.cli("runs", "start", "conformance-mcp-client", "--inputs", given, "--wait")
        run = done.text.strip()
        prose, value = await asyncio.gather(dev.cli("runs", "show", run), dev.cli("runs", "show", run, "--json"))
        [call] = value.json["calls"]
        return prose.text, call

    _, asked = await ran("listTools", cursor="checked")
    kept_prose, kept = await ran("listTools", cursor="checked")
    assert ("cached" in asked, kept["cached"]) == (False, True)
    assert "intact, cached\n" in kept_prose
    prose, call = await ran("callTool", name="checked", arguments={})
    assert call["schema"].startswith("mismatch /n ")
    assert f"intact, schema {call['schema']}\n" in prose
    called = await dev.cli("call", "fake", "checked")
    assert f"schema {call['schema']}" in called.err


async def test_a_call_that_did_not_succeed_is_shown_with_its_reason(dev):
    done = await dev.cli("call", "fake", "refuses", "--json")
    run = done.json["runId"]
    prose, value = await asyncio.gather(dev.cli("runs", "show", run), dev.cli("runs", "show", run, "--json"))
    [call] = value.json["calls"]
    assert (call["node"], call["outcome"], call["attempts"]) == ("call", "failed", 1)
    assert (call["error"]["code"], call["error"]["delivery"]) == ("mcp_error", "answered")
    assert call["error"]["details"]["error"]["data"] == {"why": 1}
    assert (value.json["status"], value.json["error"]["code"]) == ("failed", "mcp_error")
    assert "call: failed mcp_error, fake tools/call refuses, attempts 1" in prose.text
    assert "delivery answered: " in prose.text


async def test_an_authors_workflow_that_failed_says_why_and_so_does_its_call(dev):
    client = await Client.connect(dev.serving.facts["temporal"])
    async with Worker(client, task_queue="author-refused", workflows=[Refused]):
        with pytest.raises(WorkflowFailureError):
            await client.execute_workflow("Refused", id="author-refused", task_queue="author-refused")
    prose, value = await asyncio.gather(
        dev.cli("runs", "show", "author-refused"), dev.cli("runs", "show", "author-refused", "--json")
    )
    assert value.json["error"]["code"] == "mcp_error"
    [call] = value.json["calls"]
    assert (call["outcome"], call["error"]["code"]) == ("failed", "mcp_error")
    assert call["error"]["message"] in prose.text


async def test_a_call_that_no_worker_has_taken_says_which_task_queue_it_waits_on(dev):
    client = await Client.connect(dev.serving.facts["temporal"])
    async with Worker(client, task_queue="author-waits", workflows=[Author]):
        handle = await client.start_workflow("Author", "deserted", id="author-waits", task_queue="author-waits")
        async with asyncio.timeout(PATIENCE):
            while not (await handle.describe()).raw_description.pending_activities:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    prose, value = await asyncio.gather(
        dev.cli("runs", "show", "author-waits"), dev.cli("runs", "show", "author-waits", "--json")
    )
    await handle.terminate()
    assert "waiting for a worker on task queue 'deserted', fake tools/call echo" in prose.text
    [call] = value.json["calls"]
    assert (call["outcome"], call["taskQueue"]) == ("waiting", "deserted")
    [call] = (await dev.cli("runs", "show", "author-waits", "--json")).json["calls"]
    assert call["outcome"] == "cancelled"


async def test_the_events_of_a_run_hold_the_bytes_of_its_results(dev, run):
    prose, value = await asyncio.gather(dev.cli("runs", "events", run), dev.cli("runs", "events", run, "--json"))
    kinds = [
        *("run.started", "node.started", "tool.session-opened", "negotiation.decided", "tool.session-closed"),
        *("node.completed", "run.completed"),
    ]
    assert [event["type"] for event in value.json] == kinds
    assert ODD in value.out
    assert INPUTS.encode() in value.out
    assert "node.completed" in prose.text
    [decided] = [line.split() for line in prose.text.splitlines() if "negotiation.decided" in line]
    assert decided[1:] == [value.json[3]["timestamp"], "negotiation.decided", "mcp-client", "accepted", "2026-07-28"]


async def test_the_log_says_why_there_was_no_revision_to_talk_in(dev):
    async with (
        FakeServer(LegacyServer()) as old,
        serving("run", "--config", str(dev.settings), OPENWOP_MCP__SERVERS__OLD__URL=old.url, **OLD),
    ):
        done = await dev.cli("call", "old", "echo", **OLD)
    # Between them stands what it may have waited for.
    run, *_, why = done.err.splitlines()
    assert why.startswith("interop_version_unsupported, delivery not_processed: ")
    log = await dev.cli("runs", "events", run.removeprefix("run "))
    [decided] = [line for line in log.text.splitlines() if "negotiation.decided" in line]
    assert decided.split()[-2:] == ["refused", "below-floor"]


async def test_an_export_is_what_is_printed_and_can_be_read_offline(dev, run, exported):
    printed = await dev.cli("runs", "export", run)
    assert printed.out == exported.read_bytes()
    assert json.loads(printed.out)["events"][0]["eventType"] == "EVENT_TYPE_WORKFLOW_EXECUTION_STARTED"


async def test_a_run_a_file_and_a_folder_replay(dev, run, exported):
    # Files need neither settings nor Temporal.
    by_id, by_file, by_folder = await asyncio.gather(
        dev.cli("replay", run), cli("replay", str(exported)), cli("replay", str(exported.parent), "--json")
    )
    assert (by_id.status, by_file.status, by_folder.status) == (0, 0, 0)
    assert by_id.out == by_file.out
    [verdict] = by_folder.json
    assert (verdict["workflowId"], verdict["results"], verdict["sound"]) == (run, 1, True)
    assert verdict["file"] == str(exported)


async def test_a_changed_byte_of_a_result_is_reported_by_its_digest(exported, tmp_path):
    history = json.loads(exported.read_text(encoding="utf-8"))
    [completed] = [event for event in history["events"] if "activityTaskCompletedEventAttributes" in event]
    [payload] = completed["activityTaskCompletedEventAttributes"]["result"]["payloads"]
    data = base64.b64decode(payload["data"])
    payload["data"] = base64.b64encode(data.replace(b"1.10", b"1.11")).decode()
    digest = base64.b64decode(payload["metadata"]["openwop-mcp.sha256"]).decode()
    tampered = tmp_path / "tampered.json"
    tampered.write_text(json.dumps(history), encoding="utf-8")
    other = tmp_path / "other.json"
    other.write_bytes(exported.read_bytes())
    prose, value, folder, shown, facts = await asyncio.gather(
        cli("replay", str(tampered)),
        cli("replay", str(tampered), "--json"),
        cli("replay", str(tmp_path)),
        cli("runs", "show", str(tampered)),
        cli("runs", "show", str(tampered), "--json"),
    )
    assert (prose.status, value.status, folder.status) == (1, 1, 1)
    found = hashlib.sha256(base64.b64decode(payload["data"])).hexdigest()
    assert f"recorded with sha256 {digest}, found {found}" in prose.text
    assert [line.partition(": ")[0] for line in folder.text.splitlines()] == [str(other), str(tampered)]
    assert (shown.status, facts.status, "CHANGED" in shown.text) == (1, 1, True)
    assert [call["intact"] for call in facts.json["calls"]] == [False]
    assert f"event {completed['eventId']}" in prose.text
    [verdict] = value.json
    assert verdict["sound"] is False
    assert len(verdict["changed"]) == 1


async def test_a_file_of_a_folder_that_cannot_be_read_has_a_line_and_the_others_are_replayed(exported, tmp_path):
    files = [tmp_path / f"{name}.json" for name in ("a-cut", "b-list", "c-sound")]
    whole = exported.read_bytes()
    for file, text in zip(files, (whole[: len(whole) // 2], b"[]", whole), strict=True):
        file.write_bytes(text)
    prose, facts, alone = await asyncio.gather(
        cli("replay", str(tmp_path)), cli("replay", str(tmp_path), "--json"), cli("replay", str(files[0]), "--json")
    )
    assert (prose.status, facts.status, alone.status) == (1, 1, 1)
    assert [line.partition(": ")[0] for line in prose.text.splitlines()] == [str(file) for file in files]
    assert [(one["file"], one["sound"]) for one in facts.json] == [(str(file), file is files[-1]) for file in files]
    assert [one["error"]["code"] for one in facts.json if "error" in one] == ["validation_error"] * 2
    assert alone.json["error"]["code"] == "validation_error"


async def test_an_authors_workflow_is_shown_and_replays_with_its_class(dev, authored):
    shown, events, replayed, unknown = await asyncio.gather(
        dev.cli("runs", "show", "author-1"),
        dev.cli("runs", "events", "author-1", "--json"),
        cli("replay", str(authored), "--workflow", f"{AUTHOR}:Author", cwd=ROOT),
        cli("replay", str(authored)),
    )
    assert shown.status == 0
    assert "author-1: completed" in shown.text
    assert "fake tools/call echo" in shown.text
    assert (events.status, events.json["error"]["code"]) == (1, "not_found")
    assert replayed.status == 0, replayed.text
    assert unknown.status == 1
    assert "--workflow" in unknown.text


async def test_a_history_that_the_code_diverges_from_is_reported_by_its_event(authored):
    done = await cli("replay", str(authored), "--workflow", f"{AUTHOR}:Changed", cwd=ROOT)
    [scheduled] = [
        event["eventId"]
        for event in json.loads(authored.read_text(encoding="utf-8"))["events"]
        if event["eventType"] == "EVENT_TYPE_ACTIVITY_TASK_SCHEDULED"
    ]
    assert done.status == 1
    assert f"event {scheduled}" in done.text


async def test_an_unknown_run_is_not_0(dev):
    commands = (("runs", "show"), ("runs", "events"), ("runs", "export"), ("replay",))
    for done in await asyncio.gather(*(dev.cli(*command, "acme/unknown", "--json") for command in commands)):
        assert done.status == 1
        assert done.json["error"]["code"] == "not_found"
        assert "acme/unknown" in done.json["error"]["message"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("empty", None),
        ("text.json", "[1"),
        ("deep.json", "[" * 100_000),
        ("other.json", '{"events": [{"eventId": "x", "bogus": 1}]}'),
        ("cut.json", '{"events": [{"eventId": "4", "eventType": "EVENT_TYPE_WORKFLOW_TASK_COMPLETED"}]}'),
        ("missing.json", None),
    ],
)
def test_what_holds_no_history_is_not_0(tmp_path, monkeypatch, capfd, name, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    if text is not None:
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert main(["replay", name]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert name in err
    assert "Traceback" not in err


async def test_a_run_that_was_reset_is_shown_as_it_went_on(dev):
    client = await Client.connect(dev.serving.facts["temporal"])
    started = await dev.cli("runs", "start", "conformance-noop", "--wait")
    run = started.text.strip()
    reset = await client.workflow_service.reset_workflow_execution(_reset(client, run))
    await client.get_workflow_handle(run).result()
    value = await dev.cli("runs", "events", run, "--json")
    assert value.status == 0
    assert value.json[-1]["type"] == "run.completed"
    # A reset is a new generation of the log.
    assert {event["eventId"].rpartition("-")[0] for event in value.json} == {reset.run_id}


def _reset(client: Client, run: str) -> ResetWorkflowExecutionRequest:
    return ResetWorkflowExecutionRequest(
        namespace=client.namespace,
        workflow_execution=WorkflowExecution(workflow_id=run),
        reason="test",
        workflow_task_finish_event_id=3,
        request_id="reset-1",
    )
