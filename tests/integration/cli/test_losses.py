"""What is missing: a worker, or Temporal itself. A worker is waited for, so both ways to wait are tried at once."""

from __future__ import annotations

import asyncio
import subprocess
from typing import NamedTuple

import pytest

from commands.errors import CommandError
from commands.serving import ended
from tests.support.cli import Done, cli

NOBODY = {"OPENWOP_MCP__WORKER__TASK_QUEUE": "nobody"}


class Losses(NamedTuple):
    call: Done
    start: Done


@pytest.fixture(scope="module")
async def losses(dev):
    return Losses(
        *await asyncio.gather(
            dev.cli("call", "fake", "never-called", "--json", **NOBODY),
            dev.cli("runs", "start", "conformance-noop", "--wait", **NOBODY),
        )
    )


def test_a_call_that_no_worker_takes_is_ended_and_says_that_nothing_was_sent(losses, server):
    assert losses.call.status == 1
    error = losses.call.json["error"]
    assert error["code"] == "service_unavailable"
    assert "nothing was sent" in error["message"]
    assert all(b"never-called" not in request.body for request in server.requests)


def test_a_run_that_no_worker_takes_says_what_to_start(losses):
    assert losses.start.status == 1
    assert "worker.py run" in losses.start.err
    # It was printed before anything was waited for.
    assert losses.start.text.startswith("acme/")


def test_dev_does_not_go_on_without_its_temporal():
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with pytest.raises(CommandError, match="the embedded Temporal ended by itself"):
        asyncio.run(ended(process))


async def test_without_temporal_a_command_names_the_address_and_what_to_start(dev):
    done = await cli(
        "call", "fake", "echo", "--json", "--config", str(dev.settings), OPENWOP_MCP__TEMPORAL__ADDRESS="127.0.0.1:1"
    )
    assert done.status == 1
    error = done.json["error"]
    assert error["code"] == "service_unavailable"
    assert "127.0.0.1:1" in error["message"]
    assert "worker.py dev" in error["message"]
    assert "over TLS" not in error["message"]


async def test_where_tls_was_asked_for_its_setting_is_named_as_a_possible_reason(dev):
    done = await dev.cli("runs", "show", "x", OPENWOP_MCP__TEMPORAL__TLS="true")
    assert done.status == 1
    assert "temporal.tls = false" in done.err
