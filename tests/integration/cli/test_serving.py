"""`worker.py dev` and `worker.py run`: how they start, what they cost, and how they end."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from datetime import timedelta

import psutil
import pytest
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from commands.connection import check_retention
from tests.integration.cli.conftest import settings_text
from tests.support.cli import cli, serving, until
from tests.support.patience import PATIENCE

TWICE = {"SIGTERM": (signal.SIGTERM, signal.SIGTERM), "SIGINT": (signal.SIGINT, signal.SIGINT)}


def listens(address: str) -> bool:
    host, _, port = address.removeprefix("http://").rpartition(":")
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def left(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run. One that waits for its parent to read its status has ended."""
    return [process for process in processes if process.is_running() and not has_ended(process)]


def has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def cpu(processes: list[psutil.Process]) -> float:
    return sum(process.cpu_times().user + process.cpu_times().system for process in processes)


async def test_dev_says_in_one_line_that_it_is_ready_idles_cheaply_and_leaves_nothing_behind(tmp_path):
    async with serving("dev", "--config", write(tmp_path, "")) as dev:
        assert dev.facts["ready"] is True
        assert listens(dev.facts["temporal"])
        assert listens(dev.facts["ui"])
        tree = [psutil.Process(dev.process.pid), *psutil.Process(dev.process.pid).children(recursive=True)]
        # What was started a moment ago still settles, on a busy machine for longer.
        async with asyncio.timeout(PATIENCE):
            while True:
                before = cpu(tree)
                await asyncio.sleep(3)
                if cpu(tree) - before < 0.25 * 3:
                    break
        done = await dev.end(*TWICE["SIGTERM"])
    assert (done.status, done.out) == (0, b"")
    # Without a server it can do little, which is seldom meant.
    assert "no MCP server is configured" in done.err
    assert not listens(dev.facts["temporal"])
    assert not listens(dev.facts["ui"])
    assert left(tree) == []


async def test_dev_ends_in_time_with_a_call_under_way(server, tmp_path):
    config = write(tmp_path, settings_text(server))
    inputs = {"method": "callTool", "serverId": "fake", "name": "stalls", "arguments": {}}
    async with serving("dev", "--config", config) as dev:
        before = len(server.calls("stalls"))
        started = await cli(
            "runs", "start", "conformance-mcp-client", "--inputs", json.dumps(inputs), "--config", config,
            OPENWOP_MCP__TEMPORAL__ADDRESS=dev.facts["temporal"],
        )  # fmt: skip
        assert started.status == 0
        await until(lambda: len(server.calls("stalls")) > before)
        # Waited for, the call would take half a minute, after which the server is given up.
        done = await dev.end(*TWICE["SIGINT"], within=20)
    assert done.status == 0
    assert not listens(dev.facts["temporal"])


async def test_dev_ends_with_status_0_and_nothing_left_when_it_is_stopped_while_it_starts(tmp_path):
    async with serving("dev", "--config", write(tmp_path, ""), ready=False) as dev:
        await until(lambda: bool(psutil.Process(dev.process.pid).children()))
        children = psutil.Process(dev.process.pid).children(recursive=True)
        done = await dev.end(*TWICE["SIGTERM"])
    assert (done.status, done.out) == (0, b"")
    assert left(children) == []


async def test_dev_names_a_port_that_is_taken(server, tmp_path):
    done = await cli("dev", "--port", str(server.port), "--config", write(tmp_path, ""))
    assert (done.status, done.out) == (1, b"")
    assert str(server.port) in done.err


async def test_run_serves_its_task_queue_until_it_is_stopped(dev):
    queue = {"OPENWOP_MCP__WORKER__TASK_QUEUE": "own"}
    async with serving("run", "--config", str(dev.settings), **queue) as run:
        assert run.facts == {
            "ready": True,
            "temporal": dev.serving.facts["temporal"],
            "taskQueues": ["own", "own-catalog", "own-effects"],
        }
        assert (await dev.cli("call", "fake", "echo", **queue)).text == "done\n"
        done = await run.end(*TWICE["SIGTERM"])
    assert (done.status, done.out) == (0, b"")


async def test_run_names_the_temporal_that_does_not_answer_and_the_namespace_that_is_not_there(dev, tmp_path):
    nowhere, no_namespace = await asyncio.gather(
        cli("run", "--config", write(tmp_path, '[temporal]\naddress = "127.0.0.1:1"\n')),
        dev.cli("run", OPENWOP_MCP__TEMPORAL__NAMESPACE="nope"),
    )
    assert (nowhere.status, nowhere.out) == (1, b"")
    assert "127.0.0.1:1" in nowhere.err
    assert (no_namespace.status, no_namespace.out) == (1, b"")
    assert "'nope'" in no_namespace.err


async def keeping(client: Client, hours: int) -> Client:
    """A client of a namespace that keeps closed workflows so long."""
    asked = RegisterNamespaceRequest(namespace=f"keeps-{hours}h")
    asked.workflow_execution_retention_period.FromTimedelta(timedelta(hours=hours))
    try:
        await client.workflow_service.register_namespace(asked)
    except RPCError as error:
        if error.status is not RPCStatusCode.ALREADY_EXISTS:
            raise
    return await Client.connect(client.service_client.config.target_host, namespace=asked.namespace)


@pytest.mark.parametrize(("hours", "warns"), [(24, True), (335, True), (336, False), (720, False)])
async def test_a_namespace_that_forgets_before_14_days_is_warned_of_once(client, caplog, hours, warns):
    await check_retention(await keeping(client, hours))
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == warns
    for message in said:
        assert f"'keeps-{hours}h' keeps closed workflows for {hours} h" in message
        assert "its effect could be repeated" in message
        assert f"temporal operator namespace update --retention 336h -n keeps-{hours}h" in message


async def test_of_a_namespace_that_cannot_be_described_nothing_is_said(client, caplog):
    absent = await Client.connect(client.service_client.config.target_host, namespace="absent")
    await check_retention(absent)
    assert caplog.records == []


async def test_run_warns_of_a_namespace_that_forgets_too_soon_and_other_commands_do_not(client, tmp_path):
    there = await keeping(client, 24)
    config = write(
        tmp_path,
        f'[temporal]\naddress = "{client.service_client.config.target_host}"\nnamespace = "{there.namespace}"\n',
    )
    async with serving("run", "--config", config) as run:
        done = await run.end(*TWICE["SIGTERM"])
    assert done.status == 0
    assert done.err.count("keeps closed workflows for 24 h") == 1
    assert '"level": "warning"' in done.err
    other = await cli("runs", "show", "acme/absent", "--config", config)
    assert other.status == 1
    assert "keeps closed workflows" not in other.err


def write(folder, text):
    file = folder / "settings.toml"
    file.write_text(text, encoding="utf-8")
    return str(file)
