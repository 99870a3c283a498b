"""The commands that serve until they are told to stop, and the demo."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import logging
import os
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from commands.away import watched
from commands.connection import (
    WATCH,
    check_encryption,
    check_retention,
    check_storage,
    compression,
    connect,
    ends_without_key,
)
from commands.deployment import deployment_of, version_of, warn_unless_current
from commands.errors import CommandError
from commands.options import Config
from commands.printing import complain
from commands.process import run_async, until_stopped
from commands.running import offer_of, running_codec, running_host, running_worker, start_catalogs, starting_catalogs
from commands.settings import at, no_file, serving_settings, settings_of, with_key
from openwop_mcp.config import DEFAULT_CLASS, DEFAULT_FILE, Settings
from openwop_mcp.embedded import embedded_temporal
from openwop_mcp.telemetry.exporting import plan_of

__all__ = ("app", "ended")

app = typer.Typer()

logger = logging.getLogger(__name__)

PROGRAM = Path(__file__).parents[1] / "worker.py"
"""The command line as a file, whose worker the demo runs, and kills."""


async def ended(process: subprocess.Popen[bytes]) -> None:
    """Watch the embedded Temporal.

    Raises:
        CommandError: It has ended, so that there is nothing left to serve.
    """
    while process.poll() is None:  # noqa: ASYNC110 - a process sends no event
        await asyncio.sleep(WATCH)
    raise CommandError("the embedded Temporal ended by itself", code="service_unavailable")


def ready(**facts: str | list[str]) -> None:
    """Say on standard output, in one JSON line, that the process serves now."""
    print(json.dumps({"ready": True, **facts}), flush=True)


def tell_start(settings: Settings, config: str | None, does: str) -> None:
    """Log what is about to serve, before anything can fail: which code, by which settings, and who hears of it."""
    temporal = settings.temporal
    plan = plan_of(os.environ)
    sent = {"traces": plan.traces, "metrics": plan.metrics}
    telemetry = ", ".join(f"{what} to {' and '.join(sorted(targets))}" for what, targets in sent.items() if targets)
    logger.info(
        "openwop-mcp-pack %s, settings %s%s, %d servers: %s; Temporal %s, namespace %s, %s TLS, compression %s;"
        " telemetry: %s",
        importlib.metadata.version("openwop-mcp-pack"),
        config or DEFAULT_FILE,
        no_file(config),
        len(settings.servers),
        does,
        temporal.address,
        temporal.namespace,
        "with" if temporal.tls else "without",
        compression(temporal),
        telemetry or "none",
    )


@app.command("run")
def run_command(
    config: Config = None,
    healthy: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file to touch every 5 s while all is well, for whoever watches."),
    ] = None,
) -> None:
    """Run a worker against the Temporal of the settings, until SIGINT or SIGTERM."""
    # Here for the same reason as in `running_worker`.
    from host.pollers import warn_unless_served

    settings = serving_settings(config, form="json")
    own = settings.worker
    deployment_of(own)
    others = {DEFAULT_CLASS, *settings.server_classes.values()}.difference(own.served)

    async def serve() -> None:
        version = "".join(f", {name} {value}" for name, value in version_of(own).items())
        tell_start(settings, config, f"takes on {', '.join(own.served)}{version}")
        client = await connect(settings, traced=True)
        await check_retention(client)
        await check_storage(client, settings)
        await check_encryption(client, settings.worker.task_queue)
        async with running_worker(client, settings) as queues, starting_catalogs(client, settings):
            await warn_unless_current(client, own)
            await warn_unless_served(client, own.task_queue, others)
            async with watched(client, healthy):
                ready(temporal=settings.temporal.address, taskQueues=queues, **version_of(own))
                await ends_without_key(client)

    run_async(until_stopped(serve()))


@app.command("serve")
def serve_command(config: Config = None) -> None:
    """Run the REST surface against the Temporal of the settings, until SIGINT or SIGTERM."""
    # Here for the same reason as in `running_worker`.
    from host.pollers import warn_unless_served

    settings = settings_of(config, secrets=False, form="json", level="info")
    offer = offer_of(settings, config)

    async def serve() -> None:
        tell_start(settings, config, "serves the REST surface")
        client = await connect(settings, traced=True)
        await check_retention(client)
        await check_storage(client, settings)
        await check_encryption(client, settings.worker.task_queue)
        async with running_host(client, offer) as host, starting_catalogs(client, settings):
            classes = {DEFAULT_CLASS, *settings.server_classes.values()}
            await warn_unless_served(client, settings.worker.task_queue, classes)
            ready(host=host.address, temporal=settings.temporal.address, taskQueue=settings.worker.task_queue)
            async with watched(client):
                await asyncio.Event().wait()

    run_async(until_stopped(serve()))


@app.command("dev")
def dev_command(
    config: Config = None,
    port: Annotated[int | None, typer.Option(help="Port of Temporal; default a free one.")] = None,
    ui_port: Annotated[int | None, typer.Option(help="Port of Temporal's UI; default a free one.")] = None,
    db: Annotated[Path | None, typer.Option(help="Keep Temporal's data in this file; default in memory.")] = None,
) -> None:
    """Run an embedded Temporal, its UI, a worker and the REST surface in one go, until SIGINT or SIGTERM."""
    own, key = with_key(serving_settings(config, form="text"))
    offer = offer_of(own, config)

    async def serve() -> None:
        async with embedded_temporal(
            executable=own.temporal.executable, port=port, ui=True, ui_port=ui_port, db=db
        ) as temporal:
            settings = at(own, temporal.address)
            client = await connect(settings, traced=True)
            await check_storage(client, settings)
            await check_encryption(client, settings.worker.task_queue)
            async with (
                running_host(client, offer) as host,
                running_worker(client, settings),
                running_codec(settings) as codec,
            ):
                await start_catalogs(client, settings)
                if key is not None:
                    complain(f"no key is configured; this one is good until dev ends: Authorization: Bearer {key}")
                ready(
                    host=host.address,
                    temporal=temporal.address,
                    ui=temporal.ui or "",
                    taskQueue=settings.worker.task_queue,
                    **({} if codec is None else {"codec": codec.address}),
                )
                try:
                    await ended(temporal.process)
                finally:
                    # While the worker ends, so that both take the time of one.
                    host.stop()

    run_async(until_stopped(serve()))


@app.command("demo")
def demo_command() -> None:
    """Show the pack at work: real servers, a worker killed in the middle of a call, and what was recorded."""
    from examples.demo import demo

    if not run_async(demo(PROGRAM)):
        raise CommandError("the demo did not end as it should: see above")
