"""The wheel, installed as an author would install it: beside modules of theirs that are named like the pack's."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import ROOT
from tests.support.fake_server import FakeServer, modern
from tests.support.patience import PATIENCE

PROJECT = Path(__file__).parent / "author_project"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(out), str(ROOT)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    [file] = out.glob("*.whl")
    return file


@dataclass(frozen=True)
class Project:
    """An author's project, and the interpreter of its environment."""

    python: Path
    folder: Path
    installed: Path

    async def start(self, program: str, *arguments: str) -> asyncio.subprocess.Process:
        """Start a program of the project. Any warning ends it."""
        return await asyncio.create_subprocess_exec(
            str(self.python), "-W", "error", program, *arguments,
            cwd=self.folder,
            env={"PATH": "/usr/bin:/bin"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    async def run(self, program: str, *arguments: str) -> dict[str, Any]:
        """Run a program of the project; the JSON that it prints."""
        process = await self.start(program, *arguments)
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        printed: dict[str, Any] = json.loads(out)
        return printed


@pytest.fixture(scope="module")
def project(wheel, tmp_path_factory) -> Project:
    home = tmp_path_factory.mktemp("author")
    venv.create(home / "venv", with_pip=False)
    python = home / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install"]
    subprocess.run([*install, "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    [site] = (home / "venv" / "lib").glob("python*/site-packages")
    # The pack's dependencies are those that are here. A path in a .pth file is searched last, and its own .pth files,
    # the one of this checkout among them, are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    shutil.copytree(PROJECT, home / "project", ignore=shutil.ignore_patterns("__pycache__"))
    return Project(python, home / "project", site)


@pytest.fixture
async def settings(tmp_path) -> AsyncIterator[str]:
    async with FakeServer(modern()) as server:
        file = tmp_path / "settings.toml"
        file.write_text(f'[servers.fake]\nurl = "{server.url}"\nnetwork = "private"\n', encoding="utf-8")
        yield str(file)


def test_the_wheel_holds_the_library_its_licence_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    [info] = {name.split("/")[0] for name in names if not name.startswith("openwop_mcp/")}
    assert info.endswith(".dist-info")
    assert {"openwop_mcp/py.typed", "openwop_mcp/activities/plugin.py", "openwop_mcp/workflows/run.py"} <= set(names)
    assert f"{info}/licenses/LICENSE" in names
    sources = {
        f"openwop_mcp/{file.relative_to(folder.parent) if folder.name != 'openwop_mcp' else file.relative_to(folder)}"
        for folder in (ROOT / "pack/openwop_mcp", ROOT / "activities", ROOT / "workflows", ROOT / "host")
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    sources |= {f"openwop_mcp/host/fixtures/{file.name}" for file in (ROOT / "examples/fixtures").iterdir()}
    assert {name for name in names if name.startswith("openwop_mcp/")} == sources


async def test_an_authors_plain_worker_calls_through_a_worker_of_the_pack(project, temporal, settings):
    pack = await project.start("pack_worker.py", temporal.address, settings)
    assert pack.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            line = await pack.stdout.readline()
        printed = await project.run("author_worker.py", temporal.address)
    finally:
        _, err = await pack.communicate(b"")  # the end of its input is what ends it
    assert (line, pack.returncode) == (b"ready\n", 0), err.decode()
    assert printed["result"] == "DONE"
    assert Path(printed["activities"]) == project.folder / "activities.py"
    assert Path(printed["workflows"]) == project.folder / "workflows.py"
    assert Path(printed["openwop_mcp"]) == project.installed / "openwop_mcp" / "__init__.py"


async def test_the_plugin_embeds_the_pack_in_an_authors_worker(project, temporal, settings):
    assert (await project.run("embedded_worker.py", temporal.address, settings))["result"] == "DONE"


async def test_the_host_is_in_the_wheel_with_its_fixtures_beside_the_packs_own_workflows(project):
    printed = await project.run("pack_host.py")
    assert Path(printed["host"]).is_relative_to(project.installed / "openwop_mcp")
    assert Path(printed["workflows"]).is_relative_to(project.installed / "openwop_mcp")
    assert printed["fixtures"] == sorted(file.stem for file in (ROOT / "examples/fixtures").glob("*.json"))
    assert "/runs/{runId}/events" in printed["paths"]
