"""The REST surface as `worker.py serve` and `dev` start it: its line, its end, and what can be wrong before it."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import re
import signal
import socket
from pathlib import Path

import httpx
import pytest
import uvicorn.server

from commands.app import main
from tests.integration.cli.conftest import Dev
from tests.support.cli import Serving, cli, serving
from tests.support.graphs import node, workflow

KEY = "k" * 24
KEYS = f"""
[[keys]]
id = "test"
sha256 = "{hashlib.sha256(KEY.encode()).hexdigest()}"
tenant = "acme"
subject = "test"
scopes = ["*"]
"""
LIMIT = 40.0
GIVEN_UP = "timeout graceful shutdown exceeded"


@pytest.fixture
def settings(dev: Dev, tmp_path: Path) -> str:
    """Settings of a host against the Temporal of `dev`."""
    file = tmp_path / "settings.toml"
    file.write_text(dev.settings.read_text(encoding="utf-8") + KEYS, encoding="utf-8")
    return str(file)


def client(served: Serving, key: str = KEY) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=served.facts["host"], headers={"Authorization": f"Bearer {key}"}, timeout=LIMIT)


async def created(http: httpx.AsyncClient, workflow: str, **inputs: object) -> str:
    """The path of a new run."""
    answer = await http.post("/runs", json={"workflowId": workflow, "inputs": inputs})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["statusUrl"])


async def test_serve_says_in_one_line_where_it_is_and_any_host_shows_the_same_run(dev, settings):
    async with serving("serve", "--config", settings) as one, serving("serve", "--config", settings) as two:
        assert one.facts == {
            "ready": True,
            "host": one.facts["host"],
            "temporal": dev.serving.facts["temporal"],
            "taskQueue": "openwop-mcp",
        }
        async with client(one) as first, client(two) as second:
            path = await created(first, "from-folder")
            page = (await second.get(f"{path}/events/poll?timeout=20")).json()
            while not page["isTerminal"]:
                page = (await second.get(f"{path}/events/poll?timeout=20&afterSequence={page['lastSequence']}")).json()
            assert page["status"] == "completed"
            assert (await first.get(path)).json() == (await second.get(path)).json()
        done = await one.end(signal.SIGTERM, signal.SIGTERM)
    assert (done.status, done.out) == (0, b"")
    assert " 201 " in done.err
    assert KEY not in done.err


async def test_serve_ends_in_time_though_streams_and_polls_are_open(settings):
    async with serving("serve", "--config", settings) as served, client(served) as http:
        path = await created(http, "conformance-delay", delayMs=60_000)
        began, polled = asyncio.Event(), asyncio.Event()

        async def follow() -> None:
            async with http.stream("GET", f"{path}/events?streamMode=debug") as answer:
                async for line in answer.aiter_lines():
                    if line == "event: node.started":
                        began.set()

        async def trace(event: str, _: object) -> None:
            if event == "http11.send_request_body.complete":
                polled.set()

        async def poll() -> httpx.Response:
            last = (await http.get(f"{path}/events/poll")).json()["lastSequence"]
            held = f"{path}/events/poll?timeout=60&afterSequence={last}"
            return await http.get(held, extensions={"trace": trace})

        following = asyncio.create_task(follow())
        async with asyncio.timeout(LIMIT):
            await began.wait()
            polling = asyncio.create_task(poll())
            await polled.wait()
            # Its answer comes after the host has read what was sent to it before: the poll is held by then.
            async with client(served) as other:
                await other.get("/.well-known/openwop")
            done = await served.end(signal.SIGTERM, within=LIMIT)
            answer = await polling
        await asyncio.gather(following, return_exceptions=True)
    assert done.status == 0
    # Neither had to be given up, which would be told.
    assert GIVEN_UP in inspect.getsource(uvicorn.server)
    assert GIVEN_UP not in done.err
    assert (answer.status_code, answer.json()["events"]) == (200, [])
    assert "Traceback" not in done.err


async def test_dev_serves_with_the_keys_of_its_settings_and_its_line_has_no_key(server, tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text(f"[host]\nfixtures = true\n{KEYS}", encoding="utf-8")
    async with serving("dev", "--config", str(config)) as dev:
        assert set(dev.facts) == {"ready", "host", "temporal", "ui", "taskQueue"}
        async with client(dev) as http:
            path = await created(http, "conformance-noop")
            page = (await http.get(f"{path}/events/poll?timeout=20")).json()
            assert page["lastSequence"] >= 0
        done = await dev.end(signal.SIGTERM)
    assert (done.status, done.out) == (0, b"")
    assert "no key" not in done.err


async def test_dev_without_a_key_makes_one_that_is_told_on_standard_error_alone(tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text("[worker]\ntenant = 'acme'\n[host]\nfixtures = true\n", encoding="utf-8")
    async with serving("dev", "--config", str(config)) as dev:
        assert dev.process.stderr is not None
        async with asyncio.timeout(LIMIT):
            told = b""
            while b"Bearer" not in told:
                told = await dev.process.stderr.readline()
        found = re.search(r"Authorization: Bearer (\S+)", told.decode())
        assert found is not None
        async with client(dev, found[1]) as http:
            assert (await created(http, "conformance-noop")).startswith("/runs/acme~2F")
        async with client(dev, "another") as http:
            assert (await http.get("/runs")).status_code == 401
        assert found[1] not in json.dumps(dev.facts)


async def test_serve_needs_no_credential_of_any_mcp_server(dev, settings):
    locked = {
        "OPENWOP_MCP__SERVERS__LOCKED": '{"url":"https://a.example/mcp","credential":{"bearer":{"env":"NOT_SET"}}}'
    }
    async with serving("serve", "--config", settings, **locked) as served, client(served) as http:
        assert (await http.get("/runs")).status_code == 200


def started(*arguments: str) -> int:
    return main([*arguments])


@pytest.mark.usefixtures("nothing_starts")
def test_serve_without_a_key_is_refused_since_nobody_could_use_it(tmp_path, capfd):
    file = tmp_path / "mine.toml"
    file.write_text("", encoding="utf-8")
    assert started("serve", "--config", str(file)) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"{file}: keys: ")
    assert "[[keys]]" in err


@pytest.mark.usefixtures("nothing_starts")
@pytest.mark.parametrize("command", ["serve", "dev"])
def test_every_fault_of_workflows_and_keys_is_told_before_anything_starts(tmp_path, capfd, command):
    flows = tmp_path / "flows"
    flows.mkdir()
    (flows / "broken.json").write_text("{", encoding="utf-8")
    (flows / "wrong.json").write_text('{"id":"wrong"}', encoding="utf-8")
    file = tmp_path / "mine.toml"
    file.write_text(
        f"[host]\nworkflows = ['{flows}', 'no-such-folder']\n{KEYS}{KEYS.replace('test', 'twin')}", encoding="utf-8"
    )
    assert started(command, "--config", str(file)) == 2
    out, err = capfd.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if "no MCP server" not in line]
    assert lines[0].startswith(f"{file}: keys[1]: ")
    assert any(line.startswith(f"{flows / 'broken.json'}: ") for line in lines)
    assert any(line.startswith(f"{flows / 'wrong.json'}: nodes: ") for line in lines)
    assert lines[-1].startswith(f"{file}: host.workflows: no-such-folder: ")


@pytest.mark.usefixtures("nothing_starts")
def test_a_secret_of_a_key_that_is_not_there_is_told_with_its_place(tmp_path, capfd, monkeypatch):
    monkeypatch.delenv("OPENWOP_TEST_KEY", raising=False)
    file = tmp_path / "mine.toml"
    file.write_text(
        '[[keys]]\nid = "a"\nsecret = { env = "OPENWOP_TEST_KEY" }\ntenant = "acme"\nsubject = "a"\nscopes = ["*"]\n',
        encoding="utf-8",
    )
    assert started("serve", "--config", str(file)) == 2
    assert capfd.readouterr().err.startswith(f"{file}: keys[0].secret: ")


@pytest.mark.parametrize("command", ["serve", "dev"])
async def test_a_port_that_is_taken_ends_the_command_with_a_sentence_that_names_the_setting(settings, command):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        done = await cli(command, "--config", settings, OPENWOP_MCP__HOST__BIND=bind)
    assert (done.status, done.out) == (1, b"")
    [line] = [line for line in done.err.splitlines() if "host.bind" in line]
    assert bind in line


async def test_serve_names_the_temporal_that_does_not_answer(settings):
    done = await cli("serve", "--config", settings, OPENWOP_MCP__TEMPORAL__ADDRESS="127.0.0.1:1")
    assert (done.status, done.out) == (1, b"")
    assert "127.0.0.1:1" in done.err


async def test_serve_warns_of_what_runs_would_wait_for_or_fail_with_and_serves(settings, tmp_path):
    folder = tmp_path / "flows"
    folder.mkdir()
    nodes = {"a": node("a", "core.nop"), "b": node("b", config={"serverId": "fakes", "name": "t"})}
    for name, one in nodes.items():
        (folder / f"{name}.json").write_text(json.dumps({**workflow([one]), "id": name}), encoding="utf-8")
    env = {"OPENWOP_MCP__WORKER__TASK_QUEUE": "nobody", "OPENWOP_MCP__HOST__WORKFLOWS": json.dumps([str(folder)])}
    async with serving("serve", "--config", settings, **env) as served:
        done = await served.end(signal.SIGTERM)
    assert done.status == 0
    warned = [told["message"] for line in done.err.splitlines() if (told := json.loads(line))["level"] == "warning"]
    assert [word for word in ("did you mean 'core.noop'?", "did you mean 'fake'?", "task queue 'nobody'")
            if sum(word in line for line in warned) != 1] == []  # fmt: skip
