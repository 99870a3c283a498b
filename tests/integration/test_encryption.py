"""Encryption, end to end: nothing of a run can be read in Temporal, and all of it by who has the keys."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import hashlib
import json
import os
import signal
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.converter import PayloadCodec
from temporalio.worker import Worker

from activities import McpPlugin
from openwop_mcp.catalogs import Catalogs
from openwop_mcp.config import Settings, SettingsError, load
from openwop_mcp.embedded import find_temporal
from openwop_mcp.encryption import Encryption, with_encryption
from openwop_mcp.storage import data_converter
from tests.support.author_flows import Author, Call, Calls, Told
from tests.support.cli import Done, Serving, cli, serving
from tests.support.fake_server import FakeServer, Reply, Request, error_reply, modern, notice_event, result_reply
from tests.support.graphs import node, workflow
from tests.support.pack import activity_results, chain
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.timeout(300)
"""Most of these run a command after the other, each a process of its own."""

WORD = "confidential"
"""Stands in everything that somebody says, and so in nothing that Temporal holds."""

KEYS = {name: base64.b64encode(os.urandom(32)).decode() for name in ("OLD_KEY", "NEW_KEY")}
HOST_KEY, READER = "dev-key-of-the-test", "reader-key-of-the-test"
READER_DIGEST = hashlib.sha256(READER.encode()).hexdigest()
UI = "https://temporal.example.org"
ODD = b'{ "structuredContent":{"n":1.0,"big":123456789012345678901234}, "content":[], "x":1E400, "c":"confidential" }'
LARGE = b'{"content":[{"type":"text","text":"confidential %b"}],"structuredContent":{"n":1.10,"x":1e400}}' % (
    b"x" * 3_000_000
)
QUESTION = {
    "resultType": "input_required",
    "inputRequests": {
        "q": {
            "method": "elicitation/create",
            "params": {
                "message": f"{WORD} question",
                "requestedSchema": {"type": "object", "properties": {"n": {"type": "string"}}},
            },
        }
    },
    "requestState": f"{WORD} state",
}
SPOKEN = asyncio.Event()


def speaks(request: Request) -> Reply:
    token = request.json["params"]["_meta"]["progressToken"]
    answer = result_reply(request, b'{"content":[{"type":"text","text":"confidential end"}]}', "sse")
    assert answer.chunks is not None
    told = notice_event("progress", progressToken=token, progress=1, total=2, message=f"{WORD} progress")
    return Reply(headers=answer.headers, chunks=[told, SPOKEN, *answer.chunks])


def asks(request: Request) -> bytes:
    given = request.json["params"].get("inputResponses")
    return json.dumps(QUESTION).encode() if given is None else b'{"content":[{"type":"text","text":"confidential"}]}'


def called(request: Request) -> bytes | Reply:
    match request.json["params"]["name"]:
        case "speaks":
            return speaks(request)
        case "asks":
            return asks(request)
        case "refuses":
            return error_reply(request, -32000, f"{WORD} refusal", {"why": WORD})
        case "stalls":
            return Reply(stall="head")
        case "large":
            return LARGE
        case _:
            return ODD


def listed(_: Request) -> bytes:
    return json.dumps({"tools": [{"name": "odd", "description": WORD, "inputSchema": {}}]}).encode()


def call(node_id: str, tool: str, **inputs: Any) -> dict[str, Any]:
    given = {"arguments": {"say": WORD}, **inputs}
    static = {name: {"type": "static", "value": value} for name, value in given.items()}
    return node(node_id, config={"serverId": "fake", "name": tool}, inputs=static)


FLOWS = {
    "odd": workflow([call("a", "odd", idempotencyKey=f"{WORD}-key")], id="odd", name=WORD),
    "large": workflow([call("a", "large")], id="large"),
    "speaks": workflow([call("a", "speaks")], id="speaks"),
    "asks": workflow([call("a", "asks")], id="asks"),
    "refuses": workflow([call("a", "refuses")], id="refuses"),
    "stalls": workflow([call("a", "stalls")], id="stalls"),
}


@dataclass(frozen=True)
class Setting:
    dev: Serving
    folder: Path
    config: Path

    async def cli(self, *arguments: str, **env: str) -> Done:
        return await cli(*arguments, "--config", str(self.config), **{**KEYS, "HOST_KEY": HOST_KEY, **env})

    async def run(self, name: str, *, status: int = 0) -> str:
        done = await self.cli("runs", "start", name, "--inputs", f'{{"note":"{WORD} input"}}', "--wait", "--json")
        assert done.status == status, done.text
        run_id: str = done.json["runId"]
        return run_id

    async def waiting(self, name: str) -> str:
        """Start a run that does not end by itself; its id."""
        done = await self.cli("runs", "start", name, "--inputs", f'{{"note":"{WORD} input"}}', "--json")
        run_id: str = done.json["runId"]
        return run_id

    async def until(self, run_id: str, event: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while event not in [one["type"] for one in (await self.cli("runs", "events", run_id, "--json")).json]:
                pass

    @property
    def codec(self) -> str:
        address: str = self.dev.facts["codec"]
        return address

    async def client(self, *, keys: bool = True) -> Client:
        address = self.dev.facts["temporal"]
        if not keys:
            return await Client.connect(address)
        return await Client.connect(address, data_converter=data_converter(load(str(self.config), environ=os.environ)))


def settings_text(server: FakeServer, folder: Path, *, keys: str, address: str = "127.0.0.1:1") -> str:
    return f"""\
[temporal]
address = "{address}"

[host]
workflows = ["{folder / "flows"}"]

[storage]
folder = "{folder / "blobs"}"

[worker]
tenant = "sealed"
shutdown_grace = 1

[encryption]
bind = "127.0.0.1:0"
ui_origins = ["{UI}"]
{keys}

[[keys]]
id = "dev"
secret = {{ env = "HOST_KEY" }}
tenant = "sealed"
subject = "dev"
scopes = ["*"]

[[keys]]
id = "reader"
sha256 = "{READER_DIGEST}"
tenant = "sealed"
subject = "reader"
scopes = ["runs:read"]

[servers.fake]
url = "{server.url}"
network = "private"
retry = {{ attempts = 1 }}
timeouts = {{ first_byte = 300, idle = 300 }}
tools = {{ "*" = {{ safety_tier = "write" }} }}

[servers.gone]
url = "http://127.0.0.1:9/mcp"
network = "private"
"""


def key(key_id: str, env: str) -> str:
    return f'[[encryption.keys]]\nid = "{key_id}"\nsecret = {{ env = "{env}" }}\n'


@pytest.fixture(scope="module", autouse=True)
def keys_of_this_process() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**KEYS, "HOST_KEY": HOST_KEY}.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
async def at(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Setting]:
    folder = tmp_path_factory.mktemp("encryption")
    (folder / "flows").mkdir()
    for name, flow in FLOWS.items():
        (folder / "flows" / f"{name}.json").write_text(json.dumps(flow), encoding="utf-8")
    config = folder / "openwop-mcp.toml"
    async with FakeServer(modern({"tools/call": called, "tools/list": listed})) as server:
        config.write_text(settings_text(server, folder, keys=key("old", "OLD_KEY")), encoding="utf-8")
        async with serving("dev", "--config", str(config)) as dev:
            address = dev.facts["temporal"]
            text = settings_text(server, folder, keys=key("old", "OLD_KEY"), address=address)
            config.write_text(text, encoding="utf-8")
            yield Setting(dev, folder, config)


class Foreign(PayloadCodec):
    """A codec of an author's."""

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return list(payloads)


# --- nothing can be read ---


async def everything(client: Client) -> dict[str, bytes]:
    """All that Temporal gives away of each workflow, as it has it."""
    found: dict[str, bytes] = {}
    async for one in client.list_workflows():
        handle = client.get_workflow_handle(one.id, run_id=one.run_id)
        history = await handle.fetch_history()
        description = await handle.describe()
        found[one.id] = b"".join(
            [
                one.raw_info.SerializeToString(),
                description.raw_description.SerializeToString(),
                *(event.SerializeToString() for event in history.events),
            ]
        )
    return found


@pytest.mark.timeout(300)
async def test_nothing_that_anybody_said_can_be_read_in_temporal(at, tmp_path):
    raw = await at.client(keys=False)
    async with httpx.AsyncClient(
        base_url=at.dev.facts["host"], headers={"Authorization": f"Bearer {HOST_KEY}"}, timeout=PATIENCE
    ) as host:
        trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": f"vendor={WORD}"}
        keyed = {"Idempotency-Key": "0123456789abcdef-confidential", **trace}
        body = {"workflowId": "odd", "inputs": {"note": WORD}, "tags": [WORD], "metadata": {"of": WORD}}
        first = await host.post("/runs", json=body, headers=keyed)
        assert first.status_code == 201
        # The answer that was recorded for the key is found and opened.
        assert (await host.post("/runs", json=body, headers=keyed)).content == first.content
    await at.run("odd")
    await at.run("refuses", status=1)
    await at.run("large")
    speaking = await at.waiting("speaks")
    await at.until(speaking, "node.started")
    handle = raw.get_workflow_handle(speaking)
    async with asyncio.timeout(PATIENCE):
        # A beat that says how far it is, seen by who has the key.
        while f"{WORD} progress" not in (shown := await at.cli("runs", "show", speaking)).text:
            assert shown.status == 0, shown.err
    beats = (await handle.describe()).raw_description.pending_activities
    assert [bool(beat.heartbeat_details.payloads) for beat in beats] == [True]
    seen = await everything(raw)
    SPOKEN.set()
    asking = await at.waiting("asks")
    await at.until(asking, "node.suspended")
    answer = json.dumps({"q": {"action": "accept", "content": {"n": WORD}}})
    assert (await at.cli("interrupts", "answer", asking, "a", answer)).status == 0
    stalling = await at.waiting("stalls")
    await at.until(stalling, "node.started")
    assert (await at.cli("runs", "cancel", stalling, "--reason", f"{WORD} reason")).status == 0
    for run, end in ((speaking, "run.completed"), (asking, "run.completed"), (stalling, "run.cancelled")):
        await at.until(run, end)
    assert (await at.cli("call", "fake", "odd", "--args", f'{{"say":"{WORD}"}}', "--key", WORD)).status == 0
    # Both ways to say what a tool is: its Update stands in the catalog's history.
    assert (await at.cli("tools", "classify", "fake", "odd", "--tier", "read", "--why", WORD)).status == 0

    seen |= {f"{name} later": text for name, text in (await everything(raw)).items()}
    assert len(seen) > 10
    assert {name for name, text in seen.items() if WORD.encode() in text} == set()
    # Neither can what lies outside.
    assert [
        path.name for path in (at.folder / "blobs").rglob("*") if path.is_file() and WORD.encode() in path.read_bytes()
    ] == []
    # All of it was said, and is there for who has the key.
    log = (await at.cli("runs", "events", stalling, "--json")).out
    assert f"{WORD} reason".encode() in log
    logs = [(await at.cli("runs", "events", run, "--json")).out for run in (speaking, asking)]
    assert f"{WORD} end".encode() in logs[0]
    assert f"{WORD} question".encode() in logs[1]


async def test_what_stays_readable_is_what_the_documents_list(at):
    run = await at.run("refuses", status=1)
    raw = await at.client(keys=False)
    history = await raw.get_workflow_handle(run).fetch_history()
    text = b"".join(event.SerializeToString() for event in history.events)
    for readable in (
        run.encode(),
        b"RunWorkflow",
        b"community.mcp.call-tool",
        b"openwop-mcp",
        b"mcp_error",
        b"Encoded failure",
    ):
        assert readable in text, readable
    for said in (WORD.encode(), b"fake", b"refuses", b"json/plain", b"sealed/dev", b"Traceback"):
        assert said not in text.replace(run.encode(), b""), said


# --- all of it can be read ---


async def test_the_bytes_of_results_are_those_that_the_server_sent(at):
    small, large = await asyncio.gather(at.run("odd"), at.run("large"))
    client = await at.client()
    for run, sent in ((small, ODD), (large, LARGE)):
        [payload] = activity_results(await chain(client, run))
        assert payload.data == sent
        log = await at.cli("runs", "events", run, "--json")
        assert sent in log.out
        shown = await at.cli("runs", "show", run, "--json")
        assert [one["intact"] for one in shown.json["calls"]] == [True]


async def test_every_command_that_reads_reads_what_is_encrypted(at, tmp_path):
    run = await at.run("odd")
    effects, replayed = await asyncio.gather(at.cli("effects", run, "--json"), at.cli("replay", run, "--json"))
    assert [row["state"] for row in effects.json["effects"]] == ["completed"]
    assert [verdict["sound"] for verdict in replayed.json] == [True]
    tools = await at.cli("tools", "list", "fake", "--json")
    assert WORD in tools.out.decode()
    assert tools.status == 0


async def test_why_a_server_could_not_be_listed_is_read_as_well(at):
    catalogs = Catalogs(await at.client(), task_queue="openwop-mcp", heartbeat=10.0)
    async with asyncio.timeout(PATIENCE):
        while (catalog := await catalogs.read("sealed", "gone")) is None or catalog.failure is None:
            pass
    assert catalog.failure.code == "upstream_unavailable"
    assert "127.0.0.1" in catalog.failure.message


async def test_an_export_stays_encrypted_unless_it_is_asked_to_be_opened_and_both_replay(at, tmp_path):
    run = await at.run("large")
    sealed, opened = tmp_path / "sealed.json", tmp_path / "opened.json"
    for file, more in ((sealed, []), (opened, ["--decode"])):
        assert (await at.cli("runs", "export", run, "--out", str(file), *more)).status == 0
    text = sealed.read_text(encoding="utf-8")
    assert base64.b64encode(b"binary/encrypted").decode() in text
    values = json.loads(text)["values"].values()
    assert [WORD.encode() in base64.b64decode(value) for value in values] == [False] * len(values)
    whole = json.loads(opened.read_text(encoding="utf-8"))
    assert "values" not in whole
    results = [
        one["activityTaskCompletedEventAttributes"]["result"]
        for one in whole["events"]
        if "activityTaskCompletedEventAttributes" in one
    ]
    assert [base64.b64decode(result["payloads"][0]["data"]) for result in results] == [LARGE]

    elsewhere = {"XDG_STATE_HOME": str(tmp_path / "empty")}
    with_keys, without, plain = await asyncio.gather(
        at.cli("replay", str(sealed), "--json", **elsewhere),
        cli("replay", str(sealed), "--json", **elsewhere),
        cli("replay", str(opened), "--json", **elsewhere),
    )
    assert [one["sound"] for one in (*with_keys.json, *plain.json)] == [True, True]
    assert without.status == 1
    assert "'old'" in without.json["error"]["message"]
    assert "encryption.keys" in without.json["error"]["message"]


async def test_a_byte_that_was_changed_in_a_sealed_export_is_told_by_file_and_event(at, tmp_path):
    run = await at.run("odd")
    sealed, changed = tmp_path / "sealed.json", tmp_path / "changed.json"
    assert (await at.cli("runs", "export", run, "--out", str(sealed))).status == 0
    history = json.loads(sealed.read_text(encoding="utf-8"))
    [event] = [one for one in history["events"] if "activityTaskCompletedEventAttributes" in one]
    [payload] = event["activityTaskCompletedEventAttributes"]["result"]["payloads"]
    data = base64.b64decode(payload["data"])
    payload["data"] = base64.b64encode(data[:-1] + bytes([data[-1] ^ 1])).decode()
    changed.write_text(json.dumps(history), encoding="utf-8")
    folder, alone, shown = await asyncio.gather(
        at.cli("replay", str(tmp_path), "--json"),
        at.cli("replay", str(changed), "--json"),
        at.cli("runs", "show", str(changed), "--json"),
    )
    assert [(one["file"], one["sound"]) for one in folder.json] == [(str(changed), False), (str(sealed), True)]
    for done, error in ((folder, folder.json[0]["error"]), (alone, alone.json["error"]), (shown, shown.json["error"])):
        assert (done.status, error["code"]) == (1, "validation_error")
        assert error["message"].startswith(f"{changed}: event {event['eventId']}: ")


async def test_a_failure_is_told_as_it_would_be_without_encryption(at):
    run = await at.run("refuses", status=1)
    shown = await at.cli("runs", "show", run, "--json")
    error = shown.json["error"]
    assert error["code"] == "mcp_error"
    assert f"{WORD} refusal" in json.dumps(error)


# --- keys that come and go ---


@contextlib.contextmanager
def with_keys(at: Setting, keys: str) -> Any:
    """Settings with other keys."""
    own = at.config.read_text(encoding="utf-8")
    file = at.folder / "other.toml"
    file.write_text(own.replace(key("old", "OLD_KEY"), keys), encoding="utf-8")
    yield str(file)


@pytest.mark.parametrize("command", ["run", "serve"])
async def test_a_process_that_lacks_the_key_of_what_goes_on_does_not_start_and_names_it(at, command):
    run = await at.waiting("asks")
    await at.until(run, "node.suspended")
    for keys, said in (("", "has none"), (key("new", "NEW_KEY"), "not among new")):
        with with_keys(at, keys) as config:
            async with asyncio.timeout(PATIENCE):
                while (done := await cli(command, "--config", config, **KEYS, HOST_KEY=HOST_KEY)).status != 1:
                    pass
        assert "'old'" in done.err
        assert said in done.err
        assert "encryption.keys" in done.err
    assert (await at.cli("runs", "cancel", run)).status == 0
    await at.until(run, "run.cancelled")


async def test_a_worker_ends_that_comes_upon_a_key_which_it_lacks_and_the_run_goes_on_with_another(at):
    queue = {"OPENWOP_MCP__WORKER__TASK_QUEUE": "rotation"}
    # It has no part in the catalog, which would else be written with its key.
    apart = {**KEYS, **queue, "OPENWOP_MCP__WORKER__TENANT": "rotation", "OPENWOP_MCP__KEYS": "[]"}
    with with_keys(at, key("new", "NEW_KEY")) as config:
        async with serving("run", "--config", config, **apart) as worker:
            done = await at.cli("runs", "start", "odd", "--json", **queue)
            run = done.json["runId"]
            ended = await worker.end(within=PATIENCE)
    assert ended.status == 1
    assert "'old'" in ended.err
    assert "encryption.keys" in ended.err
    assert "Traceback" not in ended.err.splitlines()[-1]
    both = key("new", "NEW_KEY") + "\n" + key("old", "OLD_KEY")
    with with_keys(at, both) as config:
        async with serving("run", "--config", config, **apart):
            client = await at.client(keys=False)
            # Temporal answers once it has ended: what it ended with cannot be seen here.
            await asyncio.wait_for(client.get_workflow_handle(run, result_type=RawValue).result(), PATIENCE)
        shown = await cli("runs", "events", run, "--config", config, "--json", **KEYS, HOST_KEY=HOST_KEY)
    assert shown.json[-1]["type"] == "run.completed"
    # What was written since is encrypted with the first key.
    history = await client.get_workflow_handle(run).fetch_history()
    text = b"".join(event.SerializeToString() for event in history.events)
    assert text.count(b"encryption-key-id\x12\x03new") > 1
    assert b"encryption-key-id\x12\x03old" in text


async def test_a_host_that_lacks_the_key_of_a_run_says_that_it_cannot_and_lists_the_others(at):
    run = await at.run("odd")
    with with_keys(at, key("new", "NEW_KEY")) as config:
        async with (
            serving("serve", "--config", config, **KEYS, HOST_KEY=HOST_KEY) as host,
            httpx.AsyncClient(
                base_url=host.facts["host"], headers={"Authorization": f"Bearer {HOST_KEY}"}, timeout=PATIENCE
            ) as http,
        ):
            read = await http.get(f"/runs/{run.replace('/', '~2F')}")
            listed = await http.get("/runs")
            ended = await host.end(signal.SIGTERM)
    assert (read.status_code, read.json()["error"]) == (503, "service_unavailable")
    assert WORD not in read.text
    assert (listed.status_code, [one["runId"] for one in listed.json()["runs"] if one["runId"] == run]) == (200, [])
    assert "'old'" in ended.err


async def test_runs_from_before_it_was_turned_on_go_on_and_can_be_read_and_replayed(at, temporal):
    there = {
        "OPENWOP_MCP__WORKER__TASK_QUEUE": "before",
        "OPENWOP_MCP__TEMPORAL__ADDRESS": temporal.address,
        "HOST_KEY": HOST_KEY,
    }
    with with_keys(at, "") as config:
        async with serving("run", "--config", config, **there):
            ended = await cli("runs", "start", "odd", "--wait", "--json", "--config", config, **there)
            assert ended.status == 0, ended.err
            goes_on = await cli("runs", "start", "asks", "--json", "--config", config, **there)
            run, other = ended.json["runId"], goes_on.json["runId"]
            async with asyncio.timeout(PATIENCE):
                while "node.suspended" not in (await cli("runs", "events", other, "--config", config, **there)).text:
                    pass
    async with serving("run", "--config", str(at.config), **KEYS, **there):
        log, replayed = await asyncio.gather(
            at.cli("runs", "events", run, "--json", **there), at.cli("replay", run, "--json", **there)
        )
        assert ODD in log.out
        assert [verdict["sound"] for verdict in replayed.json] == [True]
        answer = '{"q":{"action":"accept","content":{"n":"1"}}}'
        assert (await at.cli("interrupts", "answer", other, "a", answer, **there)).status == 0
        async with asyncio.timeout(PATIENCE):
            while "run.completed" not in (await at.cli("runs", "events", other, **there)).text:
                pass


# --- a worker of an author's ---


async def test_a_plugin_brings_the_keys_to_its_client_and_refuses_one_that_encrypts_nothing(at, client):
    settings = load(str(at.config), environ=os.environ)
    plugin = McpPlugin(settings)
    encrypting = await Client.connect(at.dev.facts["temporal"], plugins=[plugin])
    codec = encrypting.data_converter.payload_codec
    assert isinstance(codec, Encryption)
    assert codec.encrypts
    worker = Worker(client, task_queue="author", workflows=[Author], plugins=[McpPlugin(settings)])
    with pytest.raises(SettingsError, match=r"encryption\.keys: the client of this worker encrypts nothing"):
        await worker.run()
    own = dataclasses.replace(client.data_converter, payload_codec=Foreign())
    assert with_encryption(own, Settings()) is own
    with pytest.raises(SettingsError, match=r"encryption\.keys: the client has a payload codec of its own"):
        with_encryption(own, settings)


SEALED = ("SealedError: ", "'old'", "encryption.keys", "data_converter=data_converter(settings)")
UNKNOWN = ("Unknown payload encoding binary/encrypted",)
"""What Temporal's SDK says of a failure, before anything of the pack sees it."""


@pytest.mark.parametrize(("tool", "why"), [("odd", SEALED), ("refuses", UNKNOWN)])
async def test_a_workflow_whose_client_has_no_keys_is_shown_as_stuck_and_goes_on_with_one_that_has_them(at, tool, why):
    raw, seeing = await at.client(keys=False), await at.client()
    queue = f"author-{uuid.uuid4().hex}"
    asked = Calls([Call("call_tool", ["fake", tool])], queue="openwop-mcp")
    handle = await raw.start_workflow(Author.run, asked, id=queue, task_queue=queue)
    async with Worker(raw, task_queue=queue, workflows=[Author]):
        async with asyncio.timeout(PATIENCE):
            while "stuck" not in (shown := (await at.cli("runs", "show", queue, "--json")).json):
                pass
        lines = (await at.cli("runs", "show", queue)).text.splitlines()
    assert shown["status"] == "running"
    assert [word for word in why if word not in shown["stuck"]] == []
    assert lines[1].endswith(shown["stuck"])
    async with Worker(seeing, task_queue=queue, workflows=[Author]):
        [told] = await seeing.get_workflow_handle(handle.id, result_type=list[Told]).result()
    assert told.raw == (ODD.decode() if tool == "odd" else None)
    assert told.code == ("mcp_error" if tool == "refuses" else None)
    assert "stuck" not in (await at.cli("runs", "show", queue, "--json")).json


# --- the codec server ---


def payloads(*found: Mapping[str, Any]) -> dict[str, Any]:
    return {"payloads": list(found)}


def plain(data: bytes) -> dict[str, Any]:
    metadata = {"encoding": base64.b64encode(b"json/plain").decode()}
    return {"metadata": metadata, "data": base64.b64encode(data).decode()}


@pytest.fixture(scope="module")
async def http(at: Setting) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {HOST_KEY}"}
    async with httpx.AsyncClient(base_url=at.codec, headers=headers, timeout=PATIENCE) as client:
        yield client


async def test_the_codec_server_encrypts_and_opens(http):
    given = [plain(b'{"n":1.0,"x":1e400}'), plain(b"")]
    sealed = (await http.post("/encode", json=payloads(*given))).json()["payloads"]
    assert [base64.b64decode(one["metadata"]["encoding"]) for one in sealed] == [b"binary/encrypted"] * 2
    opened = (await http.post("/decode", json=payloads(*sealed, plain(b"1")))).json()["payloads"]
    assert opened[0] == given[0]
    assert opened[2] == plain(b"1")
    assert (await http.post("/decode", json={})).json() == {"payloads": []}


@pytest.mark.parametrize("path", ["/decode", "/encode", "/download"])
@pytest.mark.parametrize(
    ("authorization", "wanted"),
    [
        (None, (401, "unauthenticated")),
        ("Bearer nobody-has-this", (401, "unauthenticated")),
        (f"Bearer {READER}", (403, "forbidden")),
    ],
)
async def test_nothing_is_opened_for_who_has_no_key_with_the_scope(at, path, authorization, wanted):
    headers = {} if authorization is None else {"Authorization": authorization}
    async with httpx.AsyncClient(base_url=at.codec, headers=headers, timeout=PATIENCE) as stranger:
        answer = await stranger.post(path, json=payloads(plain(b"1")))
        assert (answer.status_code, answer.json()["error"]) == wanted
        assert (await stranger.get("/healthz")).text == "ok\n"


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (b"nonsense", (400, "validation_error")),
        (b'{"payloads":[{"data":7}]}', (400, "validation_error")),
        (b"[" * 100_000, (400, "validation_error")),
        (b"[]", (400, "validation_error")),
        (b'{"payloads":[{"metadata":{"encoding":"!!!"}}]}', (400, "validation_error")),
        (b'{"payloads":[{"data":"MTIz NDU="}]}', (400, "validation_error")),
        (b'{"payloads":[{"data":"MQ==","data":"Mg=="}]}', (400, "validation_error")),
        (b'{"payloads":[{"metadata":{"a\xff":"AAAA"}}]}', (400, "validation_error")),
        (b'{"payloads":[' + b" " * 18_000_000 + b"]}", (413, "payload_too_large")),
    ],
)
async def test_what_is_no_list_of_payloads_is_refused(http, body, wanted):
    answer = await http.post("/decode", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["error"]) == wanted


async def test_an_unknown_key_is_named_to_who_asks(http):
    metadata = {
        "encoding": base64.b64encode(b"binary/encrypted").decode(),
        "encryption-key-id": base64.b64encode(b"gone").decode(),
    }
    answer = await http.post("/decode", json=payloads(plain(b"1"), {"metadata": metadata, "data": ""}))
    assert answer.status_code == 400
    assert "'gone'" in answer.json()["message"]
    assert answer.json()["details"] == {"field": "payloads[1]", "keyId": "gone"}


async def test_a_browser_lets_the_pages_of_the_settings_ask_and_no_others(http):
    asked = {
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-namespace",
    }
    ours = await http.options("/decode", headers={"Origin": UI, **asked})
    assert (ours.status_code, ours.headers["access-control-allow-origin"]) == (200, UI)
    theirs = await http.options("/decode", headers={"Origin": "https://evil.example", **asked})
    assert "access-control-allow-origin" not in theirs.headers
    # Also a refusal can be read by the page.
    refused = await http.post("/decode", json={}, headers={"Origin": UI, "Authorization": "Bearer nobody-has-this"})
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, UI)


async def their_cli(at: Setting, *arguments: str) -> tuple[int, str]:
    """Temporal's own command line."""
    process = await asyncio.create_subprocess_exec(
        str(find_temporal(None)),
        *arguments,
        "--address",
        at.dev.facts["temporal"],
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "HOME": str(at.folder), "TEMPORAL_VERSION_CHECK_DISABLED": "1"},
    )
    out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert process.returncode is not None
    return process.returncode, out.decode()


async def test_temporals_command_line_shows_what_is_encrypted_to_who_has_a_key(at):
    run = await at.run("refuses", status=1)
    show = ("workflow", "show", "--workflow-id", run, "--output", "json")
    _, blind = await their_cli(at, *show)
    status, seeing = await their_cli(at, *show, "--codec-endpoint", at.codec, "--codec-auth", f"Bearer {HOST_KEY}")
    assert status == 0, seeing
    assert WORD not in blind
    found = [base64.b64decode(text) for text in _data(json.loads(seeing))]
    assert any(f"{WORD} input".encode() in data for data in found)
    assert any(f"{WORD} refusal".encode() in data for data in found) or f"{WORD} refusal" in seeing
    assert all(base64.b64decode(text) != b"binary/encrypted" for text in _encodings(json.loads(seeing)))


def _data(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["data"]] if isinstance(value.get("data"), str) else []
        return own + [text for one in value.values() for text in _data(one)]
    return [text for one in value for text in _data(one)] if isinstance(value, list) else []


def _encodings(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["encoding"]] if isinstance(value.get("encoding"), str) else []
        return own + [text for one in value.values() for text in _encodings(one)]
    return [text for one in value for text in _encodings(one)] if isinstance(value, list) else []


async def test_a_large_value_comes_where_it_is_asked_for_and_on_a_page_if_it_is_not_too_large(at, http):
    run = await at.run("large")
    raw = await at.client(keys=False)
    [reference] = activity_results(await raw.get_workflow_handle(run).fetch_history())
    given = {
        "metadata": {name: base64.b64encode(value).decode() for name, value in reference.metadata.items()},
        "data": base64.b64encode(reference.data).decode(),
    }
    whole = (await http.post("/download", json=payloads(given))).json()["payloads"]
    assert [base64.b64decode(one["data"]) for one in whole] == [LARGE]
    page = (await http.post("/decode", json=payloads(given, given))).json()["payloads"]
    assert base64.b64decode(page[0]["data"]) == LARGE
    assert page[1] == given
    lost = json.loads(reference.data)
    lost["claimData"]["sha256"] = "0" * 64
    gone = {**given, "data": base64.b64encode(json.dumps(lost).encode()).decode()}
    assert (await http.post("/decode", json=payloads(gone))).json()["payloads"] == [gone]
    refused = await http.post("/download", json=payloads(given, gone))
    assert (refused.status_code, refused.json()["error"]) == (404, "not_found")
    told = refused.json()["details"]
    assert (told["field"], told["sha256"]) == ("payloads[1]", "0" * 64)
    assert str(at.folder) not in refused.text


@pytest.mark.parametrize(
    "claim",
    [
        {},
        {"sha256": "ab"},
        {"sha256": "/dev/zero", "size": "5", "metadata": "{}"},
        {"sha256": "../../../../etc/hostname", "size": "9", "metadata": "{}"},
        {"sha256": "0" * 64, "size": "x", "metadata": "["},
    ],
    ids=lambda claim: claim.get("sha256", "none"),
)
async def test_what_was_never_a_reference_is_refused_and_keeps_no_page_from_the_rest(http, claim):
    metadata = {"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"}
    text = json.dumps({"driverName": "openwop-mcp", "claimData": claim}).encode()
    garbage = {
        "metadata": {name: base64.b64encode(value).decode() for name, value in metadata.items()},
        "data": base64.b64encode(text).decode(),
        "externalPayloads": [{"sizeBytes": "5"}],
    }
    refused = await http.post("/download", json=payloads(plain(b"1"), garbage))
    assert (refused.status_code, refused.json()["error"]) == (400, "validation_error")
    assert refused.json()["details"] == {"field": "payloads[1]"}
    [sealed] = (await http.post("/encode", json=payloads(plain(b"1")))).json()["payloads"]
    page = await http.post("/decode", json=payloads(garbage, sealed))
    assert page.json()["payloads"] == [garbage, plain(b"1")]


async def test_the_codec_server_is_a_process_of_its_own_and_needs_keys(at, tmp_path):
    async with serving("codec", "--config", str(at.config), **KEYS, HOST_KEY=HOST_KEY) as codec:
        async with httpx.AsyncClient(base_url=codec.facts["codec"], timeout=PATIENCE) as http:
            assert (await http.get("/healthz")).status_code == 200
        assert (await codec.end(signal.SIGTERM)).status == 0
    empty = tmp_path / "empty.toml"
    empty.write_text("", encoding="utf-8")
    done = await cli("codec", "--config", str(empty))
    assert done.status == 2
    assert "encryption.keys: there is nothing to open with" in done.err
    assert "keys: nobody could use it" in done.err
