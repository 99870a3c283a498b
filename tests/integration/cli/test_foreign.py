"""What others have in the namespace, under keys and in encodings of their own, stops no command and no worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import uuid
from collections.abc import AsyncIterator

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue

from openwop_mcp.runs.interrupts import MEMO, WAITING
from tests.support.cli import serving
from tests.support.graphs import node, workflow
from tests.support.patience import PATIENCE

SEALED = RawValue(Payload(metadata={"encoding": b"binary/encrypted", "encryption-key-id": b"theirs"}, data=b"s" * 40))
ODD = RawValue(Payload(metadata={"encoding": b"binary/acme"}, data=b"?"))


@contextlib.asynccontextmanager
async def foreign(dev, **memo: RawValue) -> AsyncIterator[str]:
    """A workflow that nobody here takes on, with a memo."""
    client = await Client.connect(dev.serving.facts["temporal"])
    handle = await client.start_workflow(
        "Foreign", id=f"theirs-{uuid.uuid4()}", task_queue=f"theirs-{uuid.uuid4()}", memo=memo
    )
    try:
        async with asyncio.timeout(PATIENCE):
            # Lists lag.
            while handle.id not in {one.id async for one in client.list_workflows("WorkflowType = 'Foreign'")}:
                pass
        yield handle.id
    finally:
        await handle.terminate()


@pytest.mark.parametrize("name", [WAITING, MEMO, "theirs"])
async def test_questions_are_listed_whatever_else_the_namespace_holds(dev, tmp_path, name):
    gate = node("gate", "core.approvalGate", config={"title": "Go on?"})
    (tmp_path / "asks.json").write_text(json.dumps(workflow([gate])), encoding="utf-8")
    run = (await dev.cli("runs", "start", str(tmp_path / "asks.json"))).text.strip()
    async with foreign(dev, **{name: SEALED, "more": ODD}) as theirs, asyncio.timeout(PATIENCE):
        while run not in (listed := await dev.cli("interrupts", "list")).text:
            assert listed.status == 0, listed.err
    # What waits and cannot be read is named; what is plainly another's is not.
    told = f"{theirs}: what it waits with cannot be read: a value is encrypted with the key 'theirs'"
    assert (told in listed.err) == (theirs in listed.err) == (name == MEMO)
    assert (await dev.cli("runs", "cancel", run)).status == 0


async def test_a_worker_that_measures_goes_on_beside_what_it_cannot_open(dev, tmp_path):
    settings = tmp_path / "settings.toml"
    text = dev.settings.read_text(encoding="utf-8")
    settings.write_text(text.replace("[worker]", '[worker]\ntask_queue = "measured"'), encoding="utf-8")
    told = {"OTEL_METRICS_EXPORTER": "console", "OTEL_METRIC_EXPORT_INTERVAL": "200"}
    async with (
        foreign(dev, **{WAITING: SEALED, "more": ODD}),
        serving("run", "--config", str(settings), **told) as worker,
    ):
        told_to = worker.process.stderr
        assert told_to is not None
        async with asyncio.timeout(PATIENCE):
            for _ in range(3):
                while b"openwop_mcp.interrupts.waiting" not in (line := await told_to.readline()):
                    assert line, "the worker has ended"
        done = await worker.end(signal.SIGTERM)
    assert done.status == 0, done.err
