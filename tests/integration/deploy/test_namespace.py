"""deploy/temporal: what it does to a Temporal that has just started, and to one that was there before."""

from __future__ import annotations

import asyncio
import os
import sys
import uuid
from datetime import timedelta
from pathlib import Path

from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client

from commands.connection import RETENTION
from tests.support.cli import ROOT
from tests.support.compose import environment


async def script(name: str, path: str, **env: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "sh",
        str(ROOT / "deploy/temporal" / name),
        env={"PATH": path, **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(100):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


async def test_the_namespace_keeps_what_effects_need_and_stays_as_it_is(temporal, tmp_path):
    name = f"deploy-{uuid.uuid4().hex[:8]}"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    given = environment("temporal-namespace") | {
        "TEMPORAL_ADDRESS": temporal.address,
        "TEMPORAL_NAMESPACE": name,
        "SEARCH_ATTRIBUTES": "Team=Keyword Cost=Double",
        "HOME": str(tmp_path),
    }

    async def kept() -> timedelta:
        client = await Client.connect(temporal.address, namespace=name)
        told = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=name))
        return told.config.workflow_execution_retention_ttl.ToTimedelta()

    await script("namespace.sh", path, **given)
    assert await kept() == RETENTION
    client = await Client.connect(temporal.address, namespace=name)
    attributes = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace=name))
    assert {"Team", "Cost"} <= attributes.custom_attributes.keys()
    # As at every start of the whole; what an operator has changed meanwhile is theirs.
    await script("namespace.sh", path, **{**given, "RETENTION": "720h"})
    assert await kept() == RETENTION


async def test_the_schema_waits_for_a_database_that_is_still_starting(tmp_path):
    up, said = tmp_path / "up", tmp_path / "said"
    for name, does in {
        "cat": "echo sesame",
        "temporal-sql-tool": f"[ -e {up} ] || exit 1; echo $* >>{said}",
        "sleep": f"[ -e {said} ] || echo waited >{said}; : >{up}",
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    await script("schema.sh", f"{tmp_path}{os.pathsep}{os.environ['PATH']}", **environment("temporal-schema"))
    first, *others = said.read_text(encoding="utf-8").splitlines()
    assert first == "waited"
    assert [line.split()[-1] for line in others].count("create") == 2


async def test_the_schema_tool_is_told_each_database_and_never_the_password_on_its_command_line(tmp_path):
    tool, said, password = tmp_path / "temporal-sql-tool", tmp_path / "said", tmp_path / "postgres_password"
    tool.write_text(f'#!/bin/sh\necho "$SQL_PASSWORD: $*" >>{said}\n', encoding="utf-8")
    tool.chmod(0o755)
    password.write_text("sesame", encoding="utf-8")
    text = (ROOT / "deploy/temporal/schema.sh").read_text(encoding="utf-8")
    local = tmp_path / "schema.sh"
    local.write_text(text.replace("/run/secrets/postgres_password", str(password)), encoding="utf-8")
    await script(str(local), f"{tmp_path}{os.pathsep}{os.environ['PATH']}", **environment("temporal-schema"))
    lines = said.read_text(encoding="utf-8").splitlines()
    assert [line.split()[-1] for line in lines] == [
        "create",
        "0.0",
        "/etc/temporal/schema/postgresql/v12/temporal/versioned",
        "create",
        "0.0",
        "/etc/temporal/schema/postgresql/v12/visibility/versioned",
    ]
    assert {line.split()[0] for line in lines} == {"sesame:"}
    assert not [line for line in lines if "sesame" in line.removeprefix("sesame:")]
    assert [line.split("--db ")[1].split()[0] for line in lines] == ["temporal"] * 3 + ["temporal_visibility"] * 3
