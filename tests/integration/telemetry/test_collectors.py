"""A collector that is away holds no call up and fills no log; a fault of the environment is told at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from tests.integration.telemetry.conftest import SECRET, Watched
from tests.support.cli import cli, python, serving
from tests.support.collector import collector
from tests.support.graphs import node, workflow
from tests.support.patience import PATIENCE

SOON = {"OTEL_BSP_SCHEDULE_DELAY": "50", "OTEL_METRIC_EXPORT_INTERVAL": "100"}


@contextlib.contextmanager
def refusing() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def hanging() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@contextlib.contextmanager
def denying() -> Iterator[str]:
    with collector(401) as heard:
        yield heard.url


@pytest.mark.parametrize("away", [refusing, hanging, denying])
async def test_a_collector_that_takes_nothing_holds_nothing_up_and_is_told_of_once(watched: Watched, away) -> None:
    with away() as url:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TIMEOUT": "1", "TOKEN": "t" * 20, **SOON}
        env["OTEL_EXPORTER_OTLP_HEADERS"] = f"authorization=Bearer {SECRET}"
        async with serving("dev", "--config", str(watched.settings), **env) as dev:
            address = dev.facts["temporal"]
            done = await cli(
                "call", "fake", "done", "--args", "{}", "--config", str(watched.settings),
                OPENWOP_MCP__TEMPORAL__ADDRESS=address, **env,
            )  # fmt: skip
            assert done.status == 0
            # To wait for what hangs would take half a minute.
            said = await dev.end(signal.SIGTERM, within=25.0)
        assert said.status == 0
        told = [line for line in said.err.splitlines() if "WARNING" in line or "ERROR" in line]
        assert [line for line in told if "traces and metrics are not delivered" in line] == told
        assert len(told) == 1
        assert SECRET not in said.err + done.err


async def test_the_end_does_not_wait_for_a_collector_that_hangs() -> None:
    program = (
        "import asyncio, time, os\n"
        "from commands.process import run_async\n"
        "from opentelemetry import trace\n"
        "async def main():\n"
        "    trace.get_tracer('t').start_span('s').end()\n"
        "began = time.monotonic()\n"
        "run_async(main())\n"
        "print(time.monotonic() - began, flush=True)\n"
        "os._exit(0)\n"
    )
    with hanging() as url:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TIMEOUT": "60"}
        done = await python("-c", program, PYTHONPATH=".", **env)
    assert done.status == 0, done.err
    assert float(done.text) < 20


async def test_a_command_that_looks_first_and_then_answers_tells_as_one_process(watched: Watched, tmp_path) -> None:
    asks = workflow([node("gate", "core.approvalGate", config={"title": "T"})])
    (tmp_path / "asks.json").write_text(json.dumps(asks), encoding="utf-8")
    run = (await watched.cli("runs", "start", str(tmp_path / "asks.json"))).text.strip()
    async with asyncio.timeout(PATIENCE):
        while not (await watched.cli("interrupts", "list", run, "--json")).json:
            pass
    done = await watched.cli("interrupts", "answer", run, '{"action": "accept"}')
    assert (done.status, done.err) == (0, f"answered; see 'worker.py runs show {run}'\n")


async def test_a_process_that_tells_nobody_loads_nothing_of_it() -> None:
    program = (
        "import asyncio, os, sys\n"
        "from commands import app\n"
        "from commands.process import run_async\n"
        "async def main():\n"
        "    print([name for name in sys.modules if name.startswith('opentelemetry.sdk')], flush=True)\n"
        "run_async(main())\n"
        "os._exit(0)\n"
    )
    done = await python("-c", program, PYTHONPATH=".")
    assert (done.status, done.text.strip()) == (0, "[]"), done.err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_TRACES_EXPORTER", SECRET),
        ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", SECRET),
    ],
)
async def test_a_fault_of_the_environment_ends_a_command_before_it_begins(
    watched: Watched, name: str, value: str
) -> None:
    began = time.monotonic()
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "TOKEN": "t" * 20, name: value}
    done = await cli("call", "fake", "done", "--args", "{}", "--config", str(watched.settings), **env)
    assert (done.status, done.out) == (2, b"")
    assert name in done.err
    assert "write " in done.err
    assert SECRET not in done.err
    assert time.monotonic() - began < 30


async def test_an_author_who_has_a_provider_sees_the_requests_in_it(watched: Watched) -> None:
    address = watched.host.serving.facts["temporal"]
    with collector() as heard:
        done = await python(
            "-m", "tests.support.traced_author", address, str(watched.settings),
            PYTHONPATH=".:pack", TOKEN="t" * 20, OTEL_EXPORTER_OTLP_ENDPOINT=heard.url,
        )  # fmt: skip
        assert done.status == 0, done.err
        [span] = heard.named("tools/call authored")
        assert [one.name for one in heard.above(span)] == [
            "tools/call authored",
            "RunActivity:mcp.callTool",
            "StartActivity:mcp.callTool",
            "StartWorkflow:Authored",
        ]
        assert span.attributes["openwop_mcp.run_id"] == "authored-1"
        assert heard.points("openwop_mcp.calls", gen_ai__tool__name="authored", openwop_mcp__outcome="result")
