"""Large values on a real Temporal: whole for who asks, outside history in the record, and never a reason for a loop."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import hashlib
import itertools
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from activities import McpPlugin
from openwop_mcp import jsontext
from openwop_mcp.config import Settings
from openwop_mcp.runs.events import RunEvent
from openwop_mcp.storage import Folder, LostValueError, StorageError, data_converter, resolve, values_of, with_storage
from tests.support.author_flows import Author, Call, Calls, Told, TooBig
from tests.support.fake_server import FakeServer, Handler, Reply, Request, error_reply, modern, result_reply
from tests.support.graphs import edge, node, workflow
from tests.support.pack import (
    Pack,
    activity_results,
    chain,
    error_of,
    failed_attempts,
    log_of,
    pack_worker,
    scheduled,
    settings_for,
)
from tests.support.patience import PATIENCE
from workflows.client import histories
from workflows.replay import HistoryFileError, export, read_file, replay

MIB = 1024**2
MB = 10**6
AROUND = len(b'{"content":[{"type":"text","text":""}]}')
MOST_HISTORY = 100_000


def sized(size: int) -> bytes:
    """A result of so many bytes; there is not one like another."""
    mark = uuid.uuid4().hex.encode()
    return b'{"content":[{"type":"text","text":"%b"}]}' % (mark + b"x" * (size - AROUND - len(mark)))


def storage(folder: Path | None) -> dict[str, Any]:
    return {"driver": "none"} if folder is None else {"folder": str(folder)}


def stored(client: Client, settings: Settings) -> Client:
    """The same client with the storage of the settings."""
    config = client.config()
    config["data_converter"] = data_converter(settings)
    return Client(**config)


@dataclass
class Setting:
    pack: Pack
    server: FakeServer
    folder: Path

    @property
    def client(self) -> Client:
        return self.pack.client

    @property
    def files(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]

    async def raw(self, workflow_id: str) -> list[WorkflowHistory]:
        """The histories as Temporal has them."""
        return [history async for history in histories(self.client, workflow_id, whole=False)]

    async def ask(self, *calls: Call) -> tuple[list[Told], WorkflowHistory]:
        """Make calls in an author's workflow."""
        handle = await self.client.start_workflow(
            Author.run,
            Calls(list(calls), self.pack.task_queue),
            id=f"author-{uuid.uuid4().hex}",
            task_queue=f"author-{self.pack.task_queue}",
        )
        return await asyncio.wait_for(handle.result(), PATIENCE), await handle.fetch_history()

    async def made_anew(self, history: WorkflowHistory) -> list[dict[str, Any]]:
        """Reset such a workflow to its first task; what it then told."""
        first_task = next(
            event.event_id for event in history.events if "task_completed" in str(event.WhichOneof("attributes"))
        )
        await self.client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=self.client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=history.workflow_id, run_id=history.run_id),
                reason="again",
                workflow_task_finish_event_id=first_task,
                request_id=uuid.uuid4().hex,
            )
        )
        told: list[dict[str, Any]] = await asyncio.wait_for(
            self.client.get_workflow_handle(history.workflow_id).result(), PATIENCE
        )
        return told


@contextlib.asynccontextmanager
async def setting(client: Client, handler: Handler, folder: Path | None, **options: Any) -> AsyncIterator[Setting]:
    async with FakeServer(handler) as server:
        settings = settings_for(server.url, storage=storage(folder), **options)
        async with (
            pack_worker(stored(client, settings), settings) as pack,
            Worker(pack.client, task_queue=f"author-{pack.task_queue}", workflows=[Author, TooBig]),
        ):
            yield Setting(pack, server, folder or Path("/nowhere"))


def answering(result: bytes, as_: Any = "json") -> Handler:
    return modern({"tools/call": result}, as_=as_)


def call(node_id: str, **inputs: Any) -> dict[str, Any]:
    return node(node_id, config={"serverId": "fake", "name": "echo"}, inputs=inputs)


def completed(log: list[RunEvent], node_id: str) -> bytes:
    (event,) = [event for event in log if event.type == "node.completed" and event.node_id == node_id]
    found = jsontext.pointer(event.payload, ["outputs", "result"])
    assert found is not None
    return found


def size_of(found: list[WorkflowHistory] | WorkflowHistory) -> int:
    whole = [found] if isinstance(found, WorkflowHistory) else found
    return sum(event.ByteSize() for history in whole for event in history.events)


def blob(folder: Path, data: bytes) -> Path:
    digest = hashlib.sha256(data).hexdigest()
    return folder / digest[:2] / digest[2:4] / digest


# --- results ---


@pytest.mark.parametrize("as_", ["json", "sse"])
async def test_a_result_of_20_mb_comes_back_identical_through_a_run_whose_history_stays_small(client, tmp_path, as_):
    result = sized(20 * MB)
    async with setting(client, answering(result, as_), tmp_path / "blobs") as at:
        handle = await at.pack.start(workflow([call("a")]))
        log, found = await at.pack.end(handle)
        assert completed(log, "a") == result
        (payload,) = activity_results(found)
        assert payload.data == result
        assert payload.metadata["openwop-mcp.sha256"].decode() == hashlib.sha256(result).hexdigest()
        assert payload.metadata["openwop-mcp.server-id"] == b"fake"
        assert size_of(await at.raw(handle.id)) < MOST_HISTORY
        assert at.files == [blob(at.folder, result)]
        assert blob(at.folder, result).read_bytes() == result
        assert len(at.server.requests) == 1


@pytest.mark.parametrize("as_", ["json", "sse"])
async def test_a_result_of_20_mb_comes_back_identical_to_an_authors_workflow(client, tmp_path, as_):
    result = sized(20 * MB)
    async with setting(client, answering(result, as_), tmp_path / "blobs") as at:
        [told], history = await at.ask(Call("call_tool", ["fake", "echo"]))
        assert told.raw == hashlib.sha256(result).hexdigest()
        assert size_of(history) < MOST_HISTORY
        await resolve(history.events, at.client.data_converter)
        assert [payload.data == result for payload in activity_results(history)] == [True]
        assert len(at.server.requests) == 1


async def test_the_record_names_digest_and_size_of_a_value_that_it_does_not_hold(client, tmp_path):
    result = sized(MIB)
    async with setting(client, answering(result), tmp_path) as at:
        _, history = await at.ask(Call("call_tool", ["fake", "echo"]))
        (reference,) = activity_results(history)
        claim = json.loads(reference.data)["claimData"]
        assert claim["sha256"] == hashlib.sha256(result).hexdigest()
        assert claim["size"] == str(len(result))
        assert json.loads(claim["metadata"])["openwop-mcp.server-id"] == "fake"


async def test_what_history_holds_itself_is_not_written_to_storage(client, tmp_path):
    async with setting(client, answering(sized(250_000)), tmp_path / "blobs") as at:
        await at.ask(Call("call_tool", ["fake", "echo"]))
        assert not at.folder.exists()


async def test_an_equal_result_of_another_call_is_kept_once(client, tmp_path):
    async with setting(client, answering(sized(MIB)), tmp_path) as at:
        await at.ask(*[Call("call_tool", ["fake", "echo"])] * 3)
        assert len(at.server.requests) == 3
        assert len(at.files) == 1


@pytest.mark.parametrize("where", ["graph", "author"])
async def test_a_result_over_the_ceiling_is_asked_for_once_and_leaves_digest_and_size(client, tmp_path, where):
    result = sized(3 * MIB)
    async with setting(client, answering(result), tmp_path, limits={"result_bytes": 2 * MIB}) as at:
        if where == "graph":
            log, _ = await at.pack.run(workflow([call("a")]))
            error = error_of(log)
            code, message, facts = error["code"], error["message"], error["details"]
        else:
            [told], _ = await at.ask(Call("call_tool", ["fake", "echo"]))
            code, message, facts = told.code, told.message, json.loads(told.facts or "{}")
        assert code == "storage_limit_exceeded"
        assert "the server acted" in str(message)
        assert "limits.result_bytes" in str(message)
        assert facts["delivery"] == "answered"
        assert (facts["setting"], facts["limit"], facts["size"]) == ("limits.result_bytes", 2 * MIB, len(result))
        assert facts["sha256"] == hashlib.sha256(result).hexdigest()
        assert len(at.server.requests) == 1
        assert at.files == []


async def test_without_storage_a_result_that_history_cannot_hold_is_asked_for_once_and_names_the_setting(client):
    result = sized(3 * MB)
    async with setting(client, answering(result), None) as at:
        [told], history = await at.ask(Call("call_tool", ["fake", "echo"]))
        facts = json.loads(told.facts or "{}")
        assert (told.code, told.delivery) == ("storage_limit_exceeded", "answered")
        assert (facts["setting"], facts["size"]) == ("storage.driver", len(result))
        assert facts["sha256"] == hashlib.sha256(result).hexdigest()
        assert len(scheduled(history)) == len(at.server.requests) == 1


async def test_what_the_client_has_counts_and_not_what_the_settings_say(client, tmp_path):
    # An author's own client without storage, and settings with it: what is returned would be lost.
    async with FakeServer(answering(sized(3 * MB))) as server:
        settings = settings_for(server.url, storage=storage(tmp_path))
        async with pack_worker(client, settings) as pack:
            log, _ = await pack.run(workflow([call("a")]))
            assert error_of(log)["details"]["setting"] == "storage.driver"
            assert len(server.requests) == 1


async def test_a_result_that_storage_does_not_take_is_asked_for_once_and_the_error_says_that_the_server_acted(
    client, tmp_path
):
    result = sized(MIB)
    occupied = tmp_path / "blobs"
    occupied.write_text("no folder", encoding="utf-8")
    async with setting(client, answering(result), occupied) as at:
        [told], history = await at.ask(Call("call_tool", ["fake", "echo"]))
        facts = json.loads(told.facts or "{}")
        assert told.delivery == "answered"
        assert "the server acted" in str(told.message)
        assert "storage.folder" in str(told.message)
        assert facts["sha256"] == hashlib.sha256(result).hexdigest()
        assert len(scheduled(history)) == len(at.server.requests) == 1


async def test_a_result_that_takes_storage_longer_than_a_worker_may_be_silent_is_asked_for_once(client, tmp_path):
    result = sized(MIB)

    class Slow(Folder):
        """Takes longer than the heartbeat timeout of the run."""

        async def put(self, digest: str, data: bytes) -> None:
            over = asyncio.Event()
            asyncio.get_running_loop().call_later(3.5, over.set)
            await over.wait()
            await super().put(digest, data)

    async with FakeServer(answering(result)) as server:
        settings = settings_for(server.url, storage=storage(tmp_path))
        slow = stored(client, settings)
        slow.data_converter.external_storage.drivers[0]._blobs = Slow(tmp_path)
        async with pack_worker(slow, settings) as pack:
            log, found = await asyncio.wait_for(pack.run(workflow([call("a")]), heartbeat_timeout=2), PATIENCE)
            assert completed(log, "a") == result
            assert scheduled(found) == ["a:1"]
            assert len(server.requests) == 1


async def test_a_worker_that_shuts_down_while_a_result_is_stored_says_that_the_server_acted(client, tmp_path):
    result = sized(MIB)
    began = asyncio.Event()

    class Stuck(Folder):
        async def put(self, digest: str, data: bytes) -> None:
            began.set()
            await asyncio.Event().wait()

    async with FakeServer(answering(result)) as server:
        settings = settings_for(server.url, storage=storage(tmp_path), worker={"shutdown_grace": 0})
        stuck = stored(client, settings)
        stuck.data_converter.external_storage.drivers[0]._blobs = Stuck(tmp_path)
        async with pack_worker(stuck, settings) as pack:
            handle = await pack.start(workflow([call("a")]), heartbeat_timeout=10)
            await asyncio.wait_for(began.wait(), PATIENCE)
        (failed,) = failed_attempts(await chain(client, handle.id))
        facts = json.loads(failed.details.payloads[0].data)
        assert facts["delivery"] == "answered"
        assert facts["sha256"] == hashlib.sha256(result).hexdigest()
        await handle.terminate()


async def test_an_effect_that_calls_share_gives_all_of_them_the_same_large_bytes(client, tmp_path):
    result = sized(5 * MB)
    async with setting(client, answering(result), tmp_path) as at:
        shared = Call("call_tool", ["fake", "echo"], key=uuid.uuid4().hex)
        told, history = await at.ask(shared, shared)
        assert [one.raw for one in told] == [hashlib.sha256(result).hexdigest()] * 2
        assert size_of(history) < MOST_HISTORY
        assert len(at.server.requests) == len(at.files) == 1


async def test_a_workflow_that_was_reset_gets_the_large_bytes_of_the_run_before(client, tmp_path):
    result = sized(MIB)
    async with setting(client, answering(result), tmp_path) as at:
        _, history = await at.ask(Call("call_tool", ["fake", "echo"]))
        [told] = await at.made_anew(history)
        assert told["raw"] == hashlib.sha256(result).hexdigest()
        (payload,) = activity_results(await chain(at.client, history.workflow_id))
        assert payload.data == result
        assert payload.metadata["openwop-mcp.before-reset"] == b"true"
        assert len(at.server.requests) == len(at.files) == 1


async def test_of_the_run_before_a_reset_a_call_reads_only_what_it_came_to_itself(client, tmp_path):
    large, small = sized(MIB), b'{"content":[]}'
    results = {"lost": large, "kept": small}

    def answer(request: Request) -> Reply:
        return result_reply(request, results[request.json["params"]["name"]])

    async with setting(client, modern({"tools/call": answer}), tmp_path) as at:
        _, history = await at.ask(*(Call("call_tool", ["fake", name]) for name in results))
        blob(at.folder, large).unlink()
        lost, kept = await at.made_anew(history)
        assert lost["in_doubt"]
        assert "not whole" in lost["message"]
        assert kept["raw"] == small.decode()
        assert len(at.server.requests) == 2


async def test_a_workflow_that_was_reset_gets_the_large_error_of_the_run_before(client, tmp_path):
    def refuse(request: Request) -> Reply:
        return error_reply(request, -32602, "no", {"why": "w" * MB})

    async with setting(client, modern({"tools/call": refuse}), tmp_path) as at:
        [before], history = await at.ask(Call("call_tool", ["fake", "echo"]))
        [after] = await at.made_anew(history)
        assert len(before.error or "") > MB
        assert after["error"] == before.error
        assert len(at.server.requests) == 1


# --- what is sent ---


async def test_arguments_of_5_mb_reach_the_server_byte_for_byte_from_an_authors_workflow(client, tmp_path):
    arguments = b'{ "text" : "%b" }' % (b"y" * 5 * MB)
    async with setting(client, answering(b'{"content":[]}'), tmp_path) as at:
        [told], history = await at.ask(Call("call_tool", ["fake", "echo"], text=arguments.decode()))
        assert told.code is None
        assert jsontext.pointer(at.server.requests[-1].body, ["params", "arguments"]) == arguments
        assert size_of(history) < MOST_HISTORY


async def test_a_call_over_the_ceiling_is_refused_by_the_workflow_and_nothing_is_scheduled(client, tmp_path):
    async with setting(client, modern(), tmp_path, limits={"call_bytes": 4 * MB}) as at:
        handle = await at.client.start_workflow(
            TooBig.run,
            args=[5 * MB, at.pack.task_queue],
            id=uuid.uuid4().hex,
            task_queue=f"author-{at.pack.task_queue}",
        )
        told = await asyncio.wait_for(handle.result(), PATIENCE)
        facts = json.loads(told.facts or "{}")
        assert (told.code, told.delivery) == ("storage_limit_exceeded", "not_sent")
        assert (facts["setting"], facts["limit"]) == ("limits.call_bytes", 4 * MB)
        assert at.server.requests == []


async def test_inputs_of_5_mb_reach_the_server_byte_for_byte_and_the_run_goes_on(client, tmp_path):
    value = b'{ "text" : "%b" }' % (b"z" * 5 * MB)
    variable = {"type": "variable", "variableName": "v"}
    nodes = [call("a", arguments=variable), call("b", arguments=variable)]
    definition = workflow(nodes, [edge("a", "b")], variables=[{"name": "v", "type": "object"}])
    async with setting(client, answering(b'{"content":[]}'), tmp_path) as at:
        handle = await at.pack.start(definition, b'{"v":' + value + b"}")
        log, _ = await asyncio.wait_for(at.pack.end(handle), PATIENCE)
        assert log[-1].type == "run.completed"
        assert [jsontext.pointer(request.body, ["params", "arguments"]) for request in at.server.requests] == [
            value
        ] * 2
        assert jsontext.pointer(log[0].payload, ["inputs", "v"]) == value
        assert size_of(await at.raw(handle.id)) < MOST_HISTORY


@pytest.mark.parametrize("where", ["graph", "author"])
async def test_a_json_rpc_error_of_a_megabyte_is_recorded_unaltered(client, tmp_path, where):
    refused: list[bytes] = []

    def refuse(request: Request) -> Reply:
        reply = error_reply(request, -32602, "no", {"why": "w" * MB})
        (error,) = [jsontext.pointer(reply.body, ["error"])]
        assert error is not None
        refused.append(error)
        return reply

    async with setting(client, modern({"tools/call": refuse}), tmp_path) as at:
        if where == "graph":
            handle = await at.pack.start(workflow([call("a")]))
            log, _ = await at.pack.end(handle)
            assert jsontext.pointer(log[-1].payload, ["error", "details", "error"]) == refused[0]
            assert size_of(await at.raw(handle.id)) < MOST_HISTORY
        else:
            [told], _ = await at.ask(Call("call_tool", ["fake", "echo"]))
            assert (told.error or "").encode() == refused[0]
        assert len(at.server.requests) == 1


@pytest.mark.parametrize("echoes", [False, True])
async def test_a_large_json_rpc_error_of_a_server_with_a_credential_is_kept_without_that_alone(
    client, tmp_path, monkeypatch, echoes
):
    monkeypatch.setenv("FAKE_TOKEN", "s3cr3t-token-1234")
    refused: list[bytes] = []

    def refuse(request: Request) -> Reply:
        why = "w" * MB + (" for s3cr3t-token-1234" if echoes else "")
        reply = error_reply(request, -32602, "no", {"why": why})
        (error,) = [jsontext.pointer(reply.body, ["error"])]
        assert error is not None
        refused.append(error)
        return reply

    shown = {"credential": {"bearer": {"env": "FAKE_TOKEN"}}}
    async with setting(client, modern({"tools/call": refuse}), tmp_path, server=shown) as at:
        [told], _ = await at.ask(Call("call_tool", ["fake", "echo"]))
        assert (told.error or "").encode() == refused[0].replace(b"s3cr3t-token-1234", b"[credential]")
        assert at.server.requests[-1].header("Authorization") == "Bearer s3cr3t-token-1234"


async def test_without_storage_a_large_json_rpc_error_is_told_by_code_size_and_digest(client):
    def refuse(request: Request) -> Reply:
        return error_reply(request, -32602, "no", {"why": "w" * MB})

    async with setting(client, modern({"tools/call": refuse}), None) as at:
        [told], _ = await at.ask(Call("call_tool", ["fake", "echo"]))
        error = json.loads(told.error or "{}")
        assert error["code"] == -32602
        assert error["omittedBytes"] > MB
        assert len(error["sha256"]) == 64


# --- carried state ---


async def test_values_that_a_run_carries_on_stay_one_blob_each_and_come_out_of_its_chain_whole(short_client, tmp_path):
    large = {name: sized(MIB) for name in ("a", "b")}

    def answer(request: Request) -> bytes:
        tool = request.json["params"]["name"]
        return large.get(tool, b'{"content":[]}')

    def tool(node_id: str, name: str, **inputs: Any) -> dict[str, Any]:
        return node(node_id, config={"serverId": "fake", "name": name}, inputs=inputs)

    names = [f"n{index}" for index in range(24)]
    read = {name: {"type": "connection", "nodeId": name, "outputKey": "/result"} for name in large}
    nodes = [tool("a", "a"), tool("b", "b"), *(tool(name, "small") for name in names)]
    nodes.append(tool("end", "small", **{"arguments.a": read["a"], "arguments.b": read["b"]}))
    edges = [edge("a", "n0"), edge("b", "n0"), *(edge(*pair) for pair in itertools.pairwise(names))]
    edges += [edge(names[-1], "end"), edge("a", "end"), edge("b", "end")]
    async with setting(short_client, modern({"tools/call": answer}), tmp_path) as at:
        handle = await at.pack.start(workflow(nodes, edges))
        log, found = await asyncio.wait_for(at.pack.end(handle), PATIENCE)
        assert log[-1].type == "run.completed"
        parts = await at.raw(handle.id)
        assert len(parts) > 2
        carried = [part.events[0].workflow_execution_started_event_attributes.input.payloads for part in parts[1:]]
        assert all(len(payloads) == 4 for payloads in carried)
        # Both results, and the arguments of the last node that are made of them.
        assert len(at.files) == 3
        assert all(size_of([part]) < MOST_HISTORY for part in parts)
        assert [completed(log, name) == large[name] for name in large] == [True, True]
        sent = at.server.requests[-1].body
        assert [jsontext.pointer(sent, ["params", "arguments", name]) == large[name] for name in large] == [True, True]
        for verdict in await replay(found, []):
            assert verdict.sound, verdict.prose()


# --- values that are not there ---


async def test_a_value_that_was_removed_is_told_by_digest_and_place(client, tmp_path):
    result = sized(MIB)
    async with setting(client, answering(result), tmp_path) as at:
        handle = await at.pack.start(workflow([call("a")]))
        await handle.result()
        blob(tmp_path, result).unlink()
        with pytest.raises(LostValueError) as lost:
            await chain(at.client, handle.id)
        for told in (hashlib.sha256(result).hexdigest(), str(tmp_path), str(len(result))):
            assert told in str(lost.value)


async def test_a_value_that_was_changed_is_refused(client, tmp_path):
    result = sized(MIB)
    async with setting(client, answering(result), tmp_path) as at:
        handle = await at.pack.start(workflow([call("a")]))
        await handle.result()
        path = blob(tmp_path, result)
        path.write_bytes(path.read_bytes().replace(b"x", b"y", 1))
        with pytest.raises(LostValueError, match="was changed"):
            await chain(at.client, handle.id)


async def test_a_workflow_that_cannot_be_given_a_lost_result_fails_and_is_not_tried_for_ever(client, tmp_path):
    result = sized(MIB)

    class Losing:
        """Storage that loses what it is given."""

        where = "a sieve"

        async def put(self, digest: str, data: bytes) -> None:
            pass

        async def get(self, digest: str, size: int) -> bytes | None:
            return None

    async with FakeServer(answering(result)) as server:
        settings = settings_for(server.url, storage=storage(tmp_path))
        losing = stored(client, settings)
        losing.data_converter.external_storage.drivers[0]._blobs = Losing()
        async with pack_worker(losing, settings) as pack:
            handle = await pack.start(workflow([call("a")]))
            with pytest.raises(WorkflowFailureError) as failed:
                await asyncio.wait_for(handle.result(), PATIENCE)
            assert isinstance(failed.value.cause, ApplicationError)
            assert failed.value.cause.type == "LostValue"
            assert hashlib.sha256(result).hexdigest() in failed.value.cause.message
            assert len(server.requests) == 1


async def test_who_reads_without_storage_is_told_what_to_set(client, tmp_path):
    async with setting(client, answering(sized(MIB)), tmp_path) as at:
        handle = await at.pack.start(workflow([call("a")]))
        await handle.result()
        with pytest.raises(StorageError, match=r"set storage\.driver"):
            await chain(client, handle.id)


# --- away from storage ---


@pytest.fixture
async def exported(client, tmp_path) -> tuple[Path, bytes]:
    """An export of a run with a large result, whose storage is gone."""
    result = sized(2 * MIB)
    async with setting(client, answering(result), tmp_path / "blobs") as at:
        handle = await at.pack.start(workflow([call("a"), call("b")], [edge("a", "b")]))
        await handle.result()
        found = await at.raw(handle.id)
        events = [event for history in found for event in history.events]
        file = tmp_path / "run.json"
        file.write_text(export(found, await values_of(events, at.client.data_converter)), encoding="utf-8")
        blob(at.folder, result).unlink()
    return file, result


async def test_an_exported_run_replays_and_shows_its_log_without_storage(exported):
    file, result = exported
    found = read_file(file)
    assert completed(log_of(found), "a") == result
    for verdict in await replay(found, []):
        assert verdict.sound, verdict.prose()
        assert verdict.results == 2


async def test_an_export_leaves_references_as_they_are_and_has_each_value_once(exported):
    file, result = exported
    text = json.loads(file.read_bytes())
    assert text["values"] == {hashlib.sha256(result).hexdigest(): base64.b64encode(result).decode()}
    assert len(json.dumps(text["events"])) < MOST_HISTORY


async def test_an_export_without_its_values_or_with_others_is_refused(exported, tmp_path):
    file, result = exported
    text = json.loads(file.read_bytes())
    digest = hashlib.sha256(result).hexdigest()
    for values, told in (
        ({}, f"SHA-256 {digest}"),
        ({digest: base64.b64encode(b"x" + result[1:]).decode()}, "not what was recorded"),
        ({digest: "*"}, "no base64"),
        ([1], "no base64"),
    ):
        other = tmp_path / "other.json"
        other.write_text(json.dumps({**text, "values": values}), encoding="utf-8")
        with pytest.raises(HistoryFileError, match=told):
            read_file(other)


async def test_a_replay_of_large_arguments_refuses_none_that_the_run_sent(client, tmp_path):
    async with setting(client, answering(b'{"content":[]}'), tmp_path) as at:
        [told], history = await at.ask(Call("call_tool", ["fake", "echo"], text='{"text":"%s"}' % ("y" * 3 * MB)))
        assert told.code is None
        found = await chain(at.client, history.workflow_id)
        # As worker.py replays: with the ceilings of the worker, and without its storage.
        converter = dataclasses.replace(at.client.data_converter, external_storage=None)
        (verdict,) = await replay(found, [Author], data_converter=converter)
        assert verdict.divergence is None


# --- an author's own worker ---


async def test_a_client_with_the_plugin_has_the_storage_and_one_of_its_own_stays(temporal, tmp_path):
    result = sized(5 * MB)
    async with FakeServer(answering(result)) as server:
        settings = settings_for(server.url, storage=storage(tmp_path))
        client = await Client.connect(temporal.address, plugins=[McpPlugin(settings)])
        queue = uuid.uuid4().hex
        async with Worker(client, task_queue=queue, workflows=[Author]):
            [told] = await client.execute_workflow(
                Author.run, Calls([Call("call_tool", ["fake", "echo"])]), id=queue, task_queue=queue
            )
        assert told.raw == hashlib.sha256(result).hexdigest()
        assert blob(tmp_path, result).exists()
    own = with_storage(DataConverter.default, settings).external_storage
    assert (
        with_storage(dataclasses.replace(DataConverter.default, external_storage=own), settings).external_storage is own
    )
