"""docs/deploy.md: its commands are run, with another `docker`, which runs those of the pack without a container."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.cli import ROOT, serving
from tests.support.compose import compose, services
from tests.support.documents import blocks, read, sample_server, shell
from tests.support.ports import free_port

DOC = read("docs/deploy.md")

DOCKER = """\
#!/bin/sh
[ "$1" = compose ] || exit 64
shift
case $1 in
up|ps) echo "$*" ;;
exec) shift; echo "$*"; cat ;;
run) [ "$2 $3" = "--rm worker" ] || exit 64; shift 3; exec python worker.py "$@" ;;
*) exit 64 ;;
esac
"""
"""Runs commands of the pack, and of the engine's own only those that the page needs."""


@pytest.mark.timeout(300)
async def test_every_command_does_what_is_said_of_it(tmp_path):
    start, use, password = blocks(DOC, "sh")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "docker").write_text(DOCKER, encoding="utf-8")
    (programs / "docker").chmod(0o755)
    (tmp_path / "worker.py").symlink_to(ROOT / "worker.py")
    (tmp_path / "deploy").mkdir()
    for name in ("secrets.sh", "flows"):
        (tmp_path / "deploy" / name).symlink_to(ROOT / "deploy" / name)
    config = tmp_path / "openwop-mcp.toml"
    config.write_bytes((ROOT / "deploy/openwop-mcp.toml").read_bytes())
    sample, host = str(free_port()), f"127.0.0.1:{free_port()}"
    env = {
        "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
        # What containers have by their names and mounts.
        "OPENWOP_MCP__SERVERS__SAMPLE__URL": f"http://127.0.0.1:{sample}/mcp",
        "OPENWOP_MCP__STORAGE__FOLDER": str(tmp_path / "blobs"),
        "OPENWOP_MCP__HOST__BIND": host,
        "OPENWOP_MCP__HOST__WORKFLOWS": json.dumps([str(tmp_path / "deploy/flows")]),
        "OPENWOP_MCP__KEYS__0__SECRET": json.dumps({"file": str(tmp_path / "deploy/secrets/host_key")}),
    }
    begun = await shell(start, tmp_path, env)
    assert begun.splitlines() == ["up --build --detach", "ps"]
    secret = tmp_path / "deploy/secrets/postgres_password"
    before = secret.read_text(encoding="utf-8")
    changed = await shell(password, tmp_path, env)
    after = secret.read_text(encoding="utf-8")
    assert after != before
    assert changed.splitlines() == [
        "-T postgres psql --quiet --username temporal",
        f"ALTER ROLE temporal PASSWORD '{after}'up --detach --force-recreate --no-deps temporal",
    ]
    async with sample_server(sample), serving("dev", "--config", str(config), **env) as dev:
        env["OPENWOP_MCP__TEMPORAL__ADDRESS"] = dev.facts["temporal"]
        shown = await shell(use.replace("127.0.0.1:8080", host), tmp_path, env)
    assert '"eventsUrl":"/runs/acme~2F' in shown
    assert '"workflowId":"forecast"' in shown
    assert "always_error" in shown
    assert '"city":"Bern"' in shown.replace(" ", "")


def test_addresses_are_those_that_are_published():
    published = {port.rpartition(":")[0] for service in services().values() for port in service.get("ports", [])}
    told = {line.split("`")[1].removeprefix("http://") for line in DOC.splitlines() if line.startswith("| `")}
    assert told == published


def test_the_override_is_one_that_compose_reads(tmp_path):
    [shown] = blocks(DOC, "yaml")
    file = tmp_path / "docker-compose.override.yml"
    file.write_text(shown, encoding="utf-8")
    checked = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
    override = yaml.safe_load(shown)
    assert override["services"].keys() <= services().keys()
    [settings] = blocks(DOC, "toml")
    for secret in override["secrets"]:
        assert f"/run/secrets/{secret}" in settings


def test_what_is_told_of_the_namespace_is_what_is_asked_for():
    [service] = [one for name, one in services().items() if name == "temporal-namespace"]
    assert service["environment"]["RETENTION"] == f"{14 * 24}h"
    assert "keeps closed workflows for 14 days" in DOC
    assert {"database", "state"} <= compose()["volumes"].keys()
