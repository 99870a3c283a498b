"""A collector, and one `worker.py dev` that sends to it, with the sample server and one that answers as it is told."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support.cli import ROOT, Done, Serving, cli, serving
from tests.support.collector import Collector, collector
from tests.support.fake_server import FakeServer, Reply, Request, error_reply, modern
from tests.support.graphs import node, workflow
from tests.support.host_process import ACME, SECONDS, HostProcess, keys

BERN = {"arguments": {"type": "static", "value": {"city": "Bern"}}}
"""Inputs of a node that asks for a forecast."""

SECRET = "hush-9d1f"
"""Stands in everything that must not be told; in no name of a tool, and in no code."""


def _called(request: Request) -> bytes | Reply:
    match request.json["params"]["name"]:
        case "refuses":
            return error_reply(request, -32602, f"no: {SECRET}", {"why": SECRET})
        case "fails":
            said = {"content": [{"type": "text", "text": SECRET}], "isError": True, "_meta": {SECRET: SECRET}}
            return json.dumps(said).encode()
        case "lost":
            return Reply(503, body=SECRET.encode())
        case "other":
            return error_reply(request, 4711, SECRET)
        case _:
            return json.dumps({"content": [{"type": "text", "text": SECRET}]}).encode()


def _read(_: Request) -> bytes:
    return json.dumps({"contents": [{"uri": f"fake://{SECRET}", "text": SECRET}]}).encode()


@dataclass(frozen=True)
class Watched:
    """What is watched, and by whom."""

    collector: Collector
    host: HostProcess
    server: FakeServer
    settings: Path

    async def cli(self, *arguments: str) -> Done:
        """A command, which tells the collector too."""
        address = self.host.serving.facts["temporal"]
        return await cli(
            *arguments,
            "--config",
            str(self.settings),
            OPENWOP_MCP__TEMPORAL__ADDRESS=address,
            TOKEN=f"{SECRET}-token",
            **self.collector.environment,
        )


@pytest.fixture(scope="session")
async def watched(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Watched]:
    settings = tmp_path_factory.mktemp("telemetry") / "settings.toml"
    graph = workflow([node("a", config={"serverId": "sample", "name": "get_forecast"}, inputs=BERN)])
    (settings.parent / "flows").mkdir()
    (settings.parent / "flows" / "flow.json").write_text(json.dumps(graph), encoding="utf-8")
    with collector() as heard:
        sample = await asyncio.create_subprocess_exec(
            sys.executable,
            str(ROOT / "examples" / "sample_server.py"),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **heard.environment},
        )
        assert sample.stdout is not None
        url = json.loads(await sample.stdout.readline())["url"]
        async with FakeServer(modern({"tools/call": _called, "resources/read": _read})) as server:
            settings.write_text(_settings(url, server.url, settings.parent / "flows"), encoding="utf-8")
            env = {"TOKEN": f"{SECRET}-token", **heard.environment}
            async with serving("dev", "--config", str(settings), **env) as dev, client_of(dev) as http:
                yield Watched(heard, HostProcess(dev, http), server, settings)
        sample.terminate()
        await sample.wait()


def client_of(dev: Serving) -> httpx.AsyncClient:
    key = {"Authorization": f"Bearer {ACME}"}
    return httpx.AsyncClient(base_url=dev.facts["host"], headers=key, timeout=SECONDS)


def _settings(sample: str, fake: str, workflows: Path) -> str:
    return f"""\
[host]
fixtures = true
workflows = ["{workflows}"]

[worker]
tenant = "acme"
shutdown_grace = 1

[servers.sample]
url = "{sample}"
network = "private"

[servers.fake]
url = "{fake}"
network = "private"
credential = {{ bearer = {{ env = "TOKEN" }} }}
retry = {{ attempts = 1 }}

[servers.again]
url = "{fake}"
network = "private"
retry = {{ attempts = 2 }}
tools = {{ lost = {{ safety_tier = "read" }} }}

[servers.paced]
url = "{fake}"
network = "private"
limits = {{ rate = 0.001, patience = 0 }}

{keys()}"""
