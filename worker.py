"""The composition root and command line: the one place that knows settings, library, activities and workflows.

Standard output carries what was asked for, standard error everything else, and the exit status is 0 only if what was
asked for happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import difflib
import getpass
import hashlib
import json
import logging
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

import typer
from rich.console import Console
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, Interceptor, WorkflowFailureError, WorkflowHandle
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter
from temporalio.service import RPCError, RPCStatusCode, TLSConfig
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from openwop_mcp import jsontext, storage, terminal
from openwop_mcp.calls import MAX_DEPTH, MAX_KEY
from openwop_mcp.catalog import listing
from openwop_mcp.catalog.state import Catalog, Tool
from openwop_mcp.catalogs import CatalogRefusedError, Catalogs
from openwop_mcp.ceilings import INLINE_BYTES, MAX_CALL_BYTES
from openwop_mcp.config import DEFAULT_FILE, TOOLS_COMMANDS, Key, Server, Settings, SettingsError, load
from openwop_mcp.embedded import EmbeddedTemporalError, embedded_temporal
from openwop_mcp.errors import McpError, RpcError, UnknownServerError
from openwop_mcp.failures import refusal
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.questions import telling
from openwop_mcp.questions.eligibility import takes_tokens
from openwop_mcp.questions.form import NoFormError, NotWantedError, form_of
from openwop_mcp.questions.interview import interview
from openwop_mcp.runs import negotiation
from openwop_mcp.runs.callbacks import Callback
from openwop_mcp.runs.definition import Definition, DefinitionError, parse
from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.interrupts import OpenInterrupt, Resolution, encode_open
from openwop_mcp.runs.limits import limited
from openwop_mcp.runs.projection import ProjectionError
from openwop_mcp.runs.records import CallRecord, MadeCall
from openwop_mcp.runs.single import single_call
from openwop_mcp.runs.start import Options, Owner, RunStart
from openwop_mcp.storage import LostValueError, StorageError, data_converter, values_of
from openwop_mcp.verbatim import Verbatim
from workflows import CatalogWorkflow, EffectWorkflow, RunWorkflow
from workflows.client import (
    InterruptRefusedError,
    RecordedRun,
    RunExpiredError,
    RunNotFoundError,
    UnderWay,
    cancel_run,
    effect_ledger,
    histories,
    mint_run_id,
    open_interrupts,
    read_run,
    resolve_interrupt,
    start_run,
    under_way,
    waiting_runs,
    waits_for_answers,
)
from workflows.definitions import DefinitionNotFoundError, find_definition
from workflows.replay import HistoryFileError, ReplayVerdict, WorkflowClassError, export, replay
from workflows.replay import load as load_histories

if TYPE_CHECKING:
    from host.server import Listening
    from host.serving import Offer
    from openwop_mcp.client import Exchange, McpClient

T = TypeVar("T")

LOOK_PATIENCE = 2.0
"""Seconds that a look at a server's tools waits for Temporal, and for a catalog, before the server itself is asked."""

ASKED_DIRECTLY = "asked the server itself, so that it is not known what was classified or has changed"
"""What is told where a server's list does not come from its catalog: it looks the same, and says less."""

DIRECT_PAGES = 1000
"""Pages of a list that a command asks for itself; a server that goes on for ever has to end somewhere."""

UNSENT = "nothing was sent, and the run waits as before"
"""What became of a question that was not answered after all."""

AT_ONCE = 1000
"""Tools that an operator's word is given for in one message: it stays far under the 2 MB that Temporal carries."""

PATIENCE = 10.0
"""Seconds that a command waits for a worker to take its run before it says that there is none."""

THIS_MACHINE = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Hosts of a Temporal whose workers are all here."""

RETENTION = timedelta(days=14)
"""How long effects are to be remembered at least, which they are as long as the namespace keeps closed workflows."""

STARTED_AT_ONCE = 20
"""Catalogs that are started at once: each takes Temporal some milliseconds."""

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

WATCH = 1.0
"""Seconds between two looks: at whether the embedded Temporal still runs, and at how far a call is, whose worker tells
as often."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="MCP servers as durable workflow nodes on Temporal, recorded byte for byte.",
)
tools = typer.Typer(no_args_is_help=True, help="The tools that servers offer.")
runs = typer.Typer(no_args_is_help=True, help="Start runs and read what is recorded of them.")
app.add_typer(tools, name="tools")
interrupts = typer.Typer(no_args_is_help=True, help="Questions that runs wait with.")
app.add_typer(runs, name="runs")
app.add_typer(interrupts, name="interrupts")

Config = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings; default openwop-mcp.toml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value, also on failure.")]


def unprojected(run: str | None) -> str | None:
    """A run id, also where it is given as paths of the host have it, with ~2F for its slash."""
    if run is None or "~2F" not in run:
        return run
    # Here for the same reason as in `running_worker`.
    from host.errors import HostError
    from host.ids import BoundId

    try:
        return str(BoundId.from_segment(run, name="RUN"))
    except HostError:
        # Workflows of one's own have any id.
        return run


Run = Annotated[str, typer.Argument(metavar="RUN", help="A run id, as 'runs start' prints it.", callback=unprojected)]


def fingerprint_given(value: str | None) -> str | None:
    """A fingerprint, or enough of its beginning to mean one definition."""
    if value is not None and not re.fullmatch(r"[0-9a-f]{8,64}", value):
        raise typer.BadParameter("write at least the first 8 of its digits, as they are shown")
    return value


ServerId = Annotated[str, typer.Argument(metavar="SERVER", help="A server id of the settings.")]
ToolPattern = Annotated[str, typer.Argument(metavar="TOOL", help="A tool's name, or a glob such as 'get_*'.")]
Fingerprint = Annotated[
    str | None,
    typer.Option(
        metavar="HEX", help="Only if its fingerprint still begins so, as it was shown.", callback=fingerprint_given
    ),
]
Why = Annotated[str, typer.Option(metavar="TEXT", help="Kept beside it, for who reads it later.")]
By = Annotated[str | None, typer.Option(metavar="NAME", help="Who says so; default the user of this machine.")]


class CommandError(Exception):
    """A command did not do what was asked for.

    Attributes:
        code: OpenWOP error code.
        details: JSON object text.
        delivery: What is known of the request, where it was a call that failed.
    """

    def __init__(
        self, message: str, *, code: str = "internal_error", details: bytes = b"{}", delivery: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.details = details
        self.delivery = delivery


class UnansweredError(Exception):
    """Whoever was asked at the terminal has gone; the message says what follows from it."""


class StartedRunError(Exception):
    """A command ended otherwise than asked for after it had started a run; its cause says how.

    Attributes:
        run_id: The run.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id


# --- what a process is made of ----------------------------------------------------------------------------------------


async def connect(settings: Settings, *, traced: bool = False) -> Client:
    """Connect to the Temporal of the settings.

    Args:
        settings: Where it is.
        traced: Whether the trace that a run is asked for in goes on in it, and in whatever is done for it.
    """
    temporal = settings.temporal
    interceptors: list[Interceptor] = []
    if traced:
        # Here, since it takes a tenth of a second to import, and most commands ask for no runs of others.
        from temporalio.contrib.opentelemetry import TracingInterceptor

        interceptors.append(TracingInterceptor())
    try:
        client = await Client.connect(
            temporal.address,
            namespace=temporal.namespace,
            tls=TLSConfig() if temporal.tls else False,
            data_converter=data_converter(settings),
            interceptors=interceptors,
        )
    except (RuntimeError, RPCError):
        # Temporal's core tells a server without TLS and no server at all in the same words.
        over_tls = " over TLS" if temporal.tls else ""
        without = ", or temporal.tls = false if it has no TLS" if temporal.tls else ""
        raise CommandError(
            f"no Temporal server answers at {temporal.address}{over_tls}: start one with 'worker.py dev', or set"
            f" temporal.address{without}",
            code="service_unavailable",
        ) from None
    try:
        await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError as error:
        # Some servers let only their operators describe a namespace; that says nothing about its use.
        if error.status is RPCStatusCode.NOT_FOUND:
            raise CommandError(
                f"the Temporal server at {temporal.address} has no namespace '{temporal.namespace}': create it, or set"
                " temporal.namespace",
                code="not_found",
            ) from None
    return client


async def check_retention(client: Client) -> None:
    """Warn where effects are forgotten too soon; where the namespace cannot be described, nobody can say so."""
    try:
        answer = await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
    except RPCError:
        return
    kept = answer.config.workflow_execution_retention_ttl.ToTimedelta()
    if kept < RETENTION:
        logging.getLogger(__name__).warning(
            "the namespace '%s' keeps closed workflows for %g h: an idempotency key that is older is forgotten, and its"
            " effect could be repeated. Keep them for 14 days at least: temporal operator namespace update --retention"
            " %.0fh -n %s",
            client.namespace,
            kept / timedelta(hours=1),
            RETENTION / timedelta(hours=1),
            shlex.quote(client.namespace),
        )


async def check_storage(client: Client, settings: Settings) -> None:
    """See whether large results can be kept, and warn where other machines would not find them.

    Raises:
        StorageError: They cannot: it would be noticed by a call that had acted.
    """
    await storage.check_storage(client.data_converter)
    host = settings.temporal.address.rpartition(":")[0]
    if settings.storage.driver == "folder" and settings.storage.folder is None and host not in THIS_MACHINE:
        logging.getLogger(__name__).warning(
            "large values are kept in a folder of this machine, where workers on other machines do not find them: set"
            " storage.folder to one that all of them see, or storage.driver"
        )


@contextlib.asynccontextmanager
async def running_worker(client: Client, settings: Settings, workflows: Sequence[type] = ()) -> AsyncIterator[Worker]:
    """A worker of the pack, polling; it ends with the context, calls under way first."""
    # Here, since the commands that only talk to Temporal start in half the time without an HTTP client.
    from activities import (
        EAGER_CALLS,
        Calls,
        catalog_worker,
        effect_worker,
        listen_activities,
        mcp_activities,
        node_activities,
        notify_activities,
    )
    from host.links import Links

    # What local servers write to standard error, which is bounded, is where they say what is wrong with them. A command
    # that asks one directly would drown its answer in it, and an error repeats the last of it anyway.
    logging.getLogger("openwop_mcp.server").setLevel(logging.INFO)
    own = settings.worker
    links = Links(settings.host, os.environ, client)

    async def link(callback: Callback) -> tuple[str, int] | None:
        until = None if callback.until is None else callback.until / 1000
        made = await links.make(
            run_id=callback.run_id, node_id=callback.node_id, interrupt_id=callback.interrupt_id, until=until
        )
        return None if made is None else (made.url, made.expires_at)

    async with Calls(settings) as calls:
        worker = Worker(
            client,
            task_queue=own.task_queue,
            workflows=[RunWorkflow, *workflows],
            activities=[
                *mcp_activities(calls),
                *node_activities(calls),
                *listen_activities(calls),
                *notify_activities(calls.pool, settings.host, os.environ, link),
            ],
            max_concurrent_activities=own.max_activities,
            max_eager_activity_reservations_per_workflow_task=EAGER_CALLS,
            workflow_task_poller_behavior=PollerBehaviorSimpleMaximum(own.workflow_pollers),
            activity_task_poller_behavior=PollerBehaviorSimpleMaximum(own.activity_pollers),
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=own.sticky_timeout),
            graceful_shutdown_timeout=timedelta(seconds=own.shutdown_grace),
        )
        effects = effect_worker(client, calls, settings, own.task_queue, EffectWorkflow)
        catalogs = catalog_worker(client, calls, settings, CatalogWorkflow)
        async with effects, catalogs, worker:
            try:
                yield worker
            finally:
                # At once: one after the other they would take three times the grace.
                await asyncio.gather(worker.shutdown(), effects.shutdown(), catalogs.shutdown())


async def start_catalogs(client: Client, settings: Settings) -> None:
    """Start the catalog of each server for each tenant that the settings name; it waits for no server."""
    own = settings.worker
    catalogs = Catalogs(client, task_queue=own.task_queue, heartbeat=own.heartbeat_timeout)
    slots = asyncio.Semaphore(STARTED_AT_ONCE)

    async def start(tenant: str, server_id: str) -> None:
        async with slots:
            try:
                await catalogs.start(tenant, server_id)
            except (RPCError, StorageError, LostValueError) as error:
                logging.getLogger(__name__).warning(
                    "the catalog of server %s for tenant %s was not started, and is when it is first asked for: %s",
                    server_id,
                    tenant,
                    error,
                )

    tenants = {own.tenant, *(key.tenant for key in settings.keys)}
    await asyncio.gather(
        *(
            start(tenant, server_id)
            for tenant in sorted(tenants)
            for server_id in settings.servers
            if settings.server(server_id, tenant) is not None
        )
    )


@contextlib.asynccontextmanager
async def starting_catalogs(client: Client, settings: Settings) -> AsyncIterator[None]:
    """Start the catalogs meanwhile: there may be thousands."""
    starting = asyncio.create_task(start_catalogs(client, settings))
    try:
        yield
    finally:
        starting.cancel()
        await asyncio.wait([starting])


def offer_of(settings: Settings, config: str | None) -> Offer:
    """What the host of these settings offers; warns of what runs of it will fail with.

    Raises:
        SettingsError: With all that is wrong with it.
    """
    # Here for the same reason as in `running_worker`.
    from host.serving import Offer

    offer = Offer.of(settings, os.environ, source=config or DEFAULT_FILE)
    for doubt in offer.workflows.doubts(settings.servers):
        logging.getLogger(__name__).warning("%s", terminal.escape(doubt))
    return offer


@contextlib.asynccontextmanager
async def running_host(client: Client, offer: Offer) -> AsyncIterator[Listening]:
    """The REST surface, listening; it ends with the context, requests under way first."""
    from host.server import BindError

    try:
        async with offer.serving(client, options_of(offer.settings)) as host:
            yield host
    except BindError as error:
        raise CommandError(str(error), code="service_unavailable") from None


async def until_stopped(serve: Coroutine[Any, Any, None]) -> None:
    """Serve until SIGINT or SIGTERM; what was started then ends in its own time, however often they are repeated."""
    loop = asyncio.get_running_loop()
    serving = asyncio.ensure_future(serve)
    asked = False

    def stop() -> None:
        nonlocal asked
        if not asked:
            asked = True
            complain("stopping…")
            serving.cancel()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        await serving
    except asyncio.CancelledError:
        if not asked:
            raise
    finally:
        for number in STOP_SIGNALS:
            # A loop that closes gives signals back their power to kill; the process is about to end by itself.
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)


async def ended(process: subprocess.Popen[bytes]) -> None:
    """Watch the embedded Temporal.

    Raises:
        CommandError: It has ended, so that there is nothing left to serve.
    """
    while process.poll() is None:  # noqa: ASYNC110 - a process sends no event
        await asyncio.sleep(WATCH)
    raise CommandError("the embedded Temporal ended by itself", code="service_unavailable")


def ready(**facts: str) -> None:
    """Say on standard output, in one JSON line, that the process serves now."""
    print(json.dumps({"ready": True, **facts}), flush=True)


# --- running ----------------------------------------------------------------------------------------------------------


@app.command("run")
def run_command(config: Config = None) -> None:
    """Run a worker against the Temporal of the settings, until SIGINT or SIGTERM."""
    settings = serving_settings(config)

    async def serve() -> None:
        client = await connect(settings, traced=True)
        await check_retention(client)
        await check_storage(client, settings)
        async with running_worker(client, settings), starting_catalogs(client, settings):
            ready(temporal=settings.temporal.address, taskQueue=settings.worker.task_queue)
            await asyncio.Event().wait()

    run_async(until_stopped(serve()))


@app.command("serve")
def serve_command(config: Config = None) -> None:
    """Run the REST surface against the Temporal of the settings, until SIGINT or SIGTERM."""
    # Here for the same reason as in `running_worker`.
    from host.pollers import warn_unless_polled

    settings = settings_of(config, secrets=False)
    offer = offer_of(settings, config)

    async def serve() -> None:
        client = await connect(settings, traced=True)
        await check_retention(client)
        await check_storage(client, settings)
        async with running_host(client, offer) as host, starting_catalogs(client, settings):
            await warn_unless_polled(client, settings.worker.task_queue)
            ready(host=host.address, temporal=settings.temporal.address, taskQueue=settings.worker.task_queue)
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
    own, key = with_key(serving_settings(config))
    offer = offer_of(own, config)

    async def serve() -> None:
        async with embedded_temporal(
            executable=own.temporal.executable, port=port, ui=True, ui_port=ui_port, db=db
        ) as temporal:
            settings = at(own, temporal.address)
            client = await connect(settings, traced=True)
            await check_storage(client, settings)
            async with running_host(client, offer) as host, running_worker(client, settings):
                await start_catalogs(client, settings)
                if key is not None:
                    complain(f"no key is configured; this one is good until dev ends: Authorization: Bearer {key}")
                ready(
                    host=host.address,
                    temporal=temporal.address,
                    ui=temporal.ui or "",
                    taskQueue=settings.worker.task_queue,
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

    if not run_async(demo(Path(__file__))):
        raise CommandError("the demo did not end as it should: see above")


# --- calling servers --------------------------------------------------------------------------------------------------


@app.command("call")
def call_command(
    server: Annotated[str, typer.Argument(help="A server id of the settings.")],
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    args: Annotated[
        str | None, typer.Option("--args", metavar="JSON", help="Arguments, sent byte for byte; @FILE reads a file.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="An idempotency key of your own for this effect.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Call a tool durably: as a run of one node, by a worker that is already there."""
    settings = settings_of(config, secrets=False)
    for value, hint in ((server, "SERVER"), (tool, "TOOL"), (key or "", "--key")):
        unicode_argument(value, hint)
    if key is not None and not 0 < len(key) <= MAX_KEY:
        raise typer.BadParameter(f"write 1 to {MAX_KEY} characters", param_hint="'--key'")
    given = None if args is None else object_argument(args, "--args", settings)
    text, inputs = single_call(server, tool, given, key)
    definition = parse(text, source="call", node_types=REGISTRY)

    def started(run_id: str) -> None:
        complain(f"run {run_id}")

    run = start_and_wait(settings, definition, inputs, started, progress=True)
    if run.status != "completed":
        error = failed(run)
        if error.code == UnknownServerError.code:
            # The worker's settings lack it. They are mostly those of this folder as well.
            error = CommandError(
                f"{error}{no_file(config)}", code=error.code, details=error.details, delivery=error.delivery
            )
        raise StartedRunError(run.run_id) from error
    made = run.made[-1]
    record = made.record
    assert record is not None, "a call of a run that completed has a result"
    if as_json:
        print_json(record.result.raw)
    else:
        print_text(record.result.text or record.result.raw.decode())
        # A verdict on a schema can quote a server, which must not be able to add a line of its own.
        complain(terminal.escape(described(made, record)))
    if record.result.is_error:
        raise typer.Exit(1)


@app.command("health")
def health_command(
    server: Annotated[str, typer.Argument(help="A server id of the settings.")],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Ask whether a server can be reached; the status is 0 only if it can."""
    from openwop_mcp.client import probe

    settings = settings_of(config)
    reason: McpError | None = None
    older: str | None = None

    async def ask(client: McpClient) -> Exchange:
        nonlocal reason, older
        answer, reason = await probe(client)
        older = client.older_revision
        return answer

    answer = run_async(with_server(settings, server, ask, config))
    # The answer knows only the revision that has discovery; people ask whether the server can be called.
    state = answer.get("state") if older is None else "reachable"
    why = None if reason is None or older is not None else Ending.of(reason)
    if as_json:
        told = [(name, text) for name, text in jsontext.members(answer.raw) if name != "state"]
        members = [("state", jsontext.encode(state)), *told]
        if older is not None:
            members.append(("revision", jsontext.encode(older)))
        if why is not None:
            members.append(("error", why.encode()))
        print_json(jsontext.build(members))
    else:
        print_text(f"{server} is {state}" + ("" if older is None else f" at MCP {older}"))
        if why is not None:
            complain(why.prose)
    if state != "reachable":
        raise typer.Exit(1)


@app.command("login")
def login_command(
    server: Annotated[str, typer.Argument(help="A server id of the settings.")],
    port: Annotated[int, typer.Option(help="Port of this machine to come back to; default a free one.")] = 0,
    config: Config = None,
) -> None:
    """Log in at a server's authorization server; workers of this machine and user then call it in your name."""
    from openwop_mcp.client import log_in

    settings = settings_of(config)
    found = configured(settings, server, config)

    def show(url: str) -> None:
        complain("open this in a browser of this machine:")
        print_text(url)

    login = run_async(log_in(server, found, environ=os.environ, show=show, port=port))
    scopes = f", scopes {' '.join(login.scopes)}" if login.scopes else ""
    ends = "" if login.renewable else "; it cannot be renewed, so that you have to log in again when it ends"
    complain(f"logged in to {server}: issuer {login.issuer}, client {login.client_id}{scopes}{ends}")


@tools.command("list")
def tools_list_command(
    server: Annotated[
        str | None, typer.Argument(metavar="SERVER", help="A server id of the settings; default all.")
    ] = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Have the worker ask the server now.")] = False,
    cursor: Annotated[str | None, typer.Option(help="Ask the server itself for this one page of its list.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the tools that servers offer, and what holds for each. 'tools SERVER' is short for this."""
    if cursor is not None:
        show_page(server, cursor, config, as_json=as_json)
        return
    settings = settings_of(config, secrets=False)
    admitted = [one for one in settings.servers if settings.server(one, settings.worker.tenant) is not None]
    if server is None and not admitted:
        raise CommandError(
            f"no MCP server is configured for tenant '{settings.worker.tenant}': add [servers.ID] to"
            f" {config or DEFAULT_FILE}{no_file(config)}",
            code="not_found",
        )
    found = run_async(read_catalogs(settings, admitted if server is None else [server], config, refresh=refresh))
    if server is not None and isinstance(error := found[server], Exception):
        raise error
    show_catalogs(settings, found, alone=server is not None, as_json=as_json)
    if not all(isinstance(one, Catalog) and not (refresh and one.failure) for one in found.values()):
        raise typer.Exit(1)


@tools.command("show")
def tools_show_command(
    server: ServerId,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool's name.")],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show all that there is to say of a tool: what holds for it, why, and its definition."""
    unicode_argument(tool, "TOOL")
    settings = settings_of(config, secrets=False)
    found = configured(settings, server, config)

    async def main() -> Catalog:
        return await read_catalog(settings, await catalogs_of(settings), server, config)

    catalog = run_async(main())
    one = catalog.tool(tool)
    if one is None:
        raise no_tool(server, tool)
    shown = listing.Offered.of(one, catalog, found)
    if as_json:
        print_json(shown.encode())
    else:
        print_text(listing.prose(shown))


@tools.command("diff")
def tools_diff_command(
    server: ServerId,
    tool: Annotated[str | None, typer.Argument(metavar="TOOL", help="A tool's name or a glob; default all.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show, field by field, how tools have changed since their definitions were accepted."""
    settings = settings_of(config, secrets=False)

    async def main() -> Catalog:
        _, catalog = await kept_catalog(settings, server, config, fresh=True)
        return catalog

    catalog = run_async(main())
    drifted = [one for one in chosen(catalog, tool) if one.standing.drifted]
    if as_json:
        print_json(listing.encode_changed(catalog, drifted))
        return
    for one in drifted:
        print_text(listing.changed(one))
    if not drifted:
        complain("nothing has changed since it was accepted")
        return
    complain("accept what you have seen:")
    for one in drifted:
        words = ["tools", "approve", server, one.name, "--fingerprint", one.fingerprint[: listing.SHORT]]
        complain(terminal.escape(f"  worker.py {shlex.join(words)}"))


@tools.command("classify")
def tools_classify_command(
    server: ServerId,
    tool: ToolPattern,
    tier: Annotated[Literal["pure", "read", "write"] | None, typer.Option(help="What a call may do.")] = None,
    replay_policy: Annotated[
        Literal["deterministic", "idempotent", "non-deterministic"] | None,
        typer.Option(help="What the same call does a second time."),
    ] = None,
    egress: Annotated[
        Literal["none", "safe-fetch", "host-mediated", "host-owned"] | None, typer.Option(help="Where it reaches.")
    ] = None,
    approval: Annotated[
        Literal["never", "write", "always"] | None, typer.Option(help="Whether a person is to be asked first.")
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="Take back what was said, so that the settings hold again.")
    ] = False,
    fingerprint: Fingerprint = None,
    why: Why = "",
    by: By = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Say what tools may do. It goes before the settings, for as long as their definitions stay what they are now."""
    says = any(value is not None for value in (tier, replay_policy, egress, approval))
    if says == clear:
        raise typer.BadParameter(
            "write --clear without any of --tier, --replay-policy, --egress and --approval"
            if clear
            else "write at least one of --tier, --replay-policy, --egress and --approval, or --clear"
        )
    settings = settings_of(config, secrets=False)

    async def main() -> list[Tool]:
        catalogs, catalog = await kept_catalog(settings, server, config)
        found = bound(chosen(catalog, tool, fingerprint))
        who = by or this_user()
        if clear:
            for part in parts(found):
                await catalogs.clear(settings.worker.tenant, server, part, by=who, why=why)
            return found
        if drifted := [one.name for one in found if one.standing.drifted]:
            raise CommandError(
                f"nothing was classified, as these have changed: {', '.join(drifted)}; see"
                f" 'worker.py tools diff {server}', and approve what you have seen first",
                code="proposal_stale",
            )
        for part in parts(found):
            await catalogs.classify(
                settings.worker.tenant,
                server,
                part,
                by=who,
                why=why,
                safety_tier=tier,
                replay_policy=replay_policy,
                egress=egress,
                approval=approval,
            )
        return found

    told_of(server, "cleared" if clear else "classified", run_async(main()), as_json=as_json)


@tools.command("approve")
def tools_approve_command(
    server: ServerId,
    tool: Annotated[str | None, typer.Argument(metavar="TOOL", help="A tool's name or a glob.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All tools of the server that have changed.")] = False,
    fingerprint: Fingerprint = None,
    why: Why = "",
    by: By = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Accept definitions that have changed, so that what was said of the tools in the settings holds again."""
    if (tool is None) != every:
        raise typer.BadParameter("write a tool's name, a glob, or --all", param_hint="'TOOL'")
    settings = settings_of(config, secrets=False)

    async def main() -> list[Tool]:
        catalogs, catalog = await kept_catalog(settings, server, config)
        found = bound([one for one in chosen(catalog, tool, fingerprint) if one.standing.drifted])
        for part in parts(found):
            await catalogs.approve(settings.worker.tenant, server, part, by=by or this_user(), why=why)
        return found

    told_of(server, "approved", run_async(main()), as_json=as_json)


def show_page(server: str | None, cursor: str, config: str | None, *, as_json: bool) -> None:
    """Ask a server for one page of its tools and print that as it came."""
    if server is None:
        raise typer.BadParameter("write the server whose page it is", param_hint="'SERVER'")
    page = run_async(with_server(settings_of(config), server, lambda client: client.list_tools(cursor), config))
    if as_json:
        print_json(page.raw)
        return
    listed = page.get("tools")
    offered = [tool for tool in listed if isinstance(tool, dict)] if isinstance(listed, list) else []
    print_table(["tool", "description"], [[str(tool.get("name", "")), brief(tool)] for tool in offered])
    if isinstance(following := page.get("nextCursor"), str):
        complain(f"more tools follow: --cursor {shlex.quote(following)}")


def show_catalogs(settings: Settings, found: Mapping[str, Catalog | Exception], *, alone: bool, as_json: bool) -> None:
    """Print what servers offer, or why that cannot be told.

    Args:
        settings: What is said of the servers.
        found: By server id.
        alone: Whether one server was asked for by its name.
        as_json: Whether JSON was asked for: of one server its object, else an array of them.
    """
    now = milliseconds()
    if as_json:
        told = [
            listing.encode(one, settings.servers[server_id], now=now)
            if isinstance(one, Catalog)
            else listing.encode_failed(settings.worker.tenant, server_id, Ending.of(one).encode())
            for server_id, one in found.items()
        ]
        print_json(told[0] if alone else b"[" + b",".join(told) + b"]")
        return
    rows = [
        [*([] if alone else [server_id]), *tool.cells()]
        for server_id, one in found.items()
        if isinstance(one, Catalog)
        for tool in listing.offered(one, settings.servers[server_id])
    ]
    print_table([*([] if alone else ["server"]), *listing.COLUMNS], rows, columns=TOOLS_COLUMNS)
    complain(listing.LEGEND)
    for server_id, one in found.items():
        told_line = (
            listing.freshness(one, now=now) if isinstance(one, Catalog) else f"{server_id}: {Ending.of(one).prose}"
        )
        complain(terminal.escape(told_line))


def told_of(server: str, what: str, tools: Sequence[Tool], *, as_json: bool) -> None:
    """Print of which definitions an operator's word was taken."""
    if as_json:
        named = [{"name": tool.name, "fingerprint": tool.fingerprint} for tool in tools]
        print_json(jsontext.encode({"serverId": server, "tools": named}))
        return
    for tool in tools:
        print_text(terminal.escape(f"{what} {tool.name} {tool.fingerprint[: listing.SHORT]}"))
    if not tools:
        complain("nothing has changed since it was accepted")


# --- runs -------------------------------------------------------------------------------------------------------------


@runs.command("start")
def runs_start_command(
    workflow: Annotated[str, typer.Argument(help="Id of a workflow in the settings' folders, or a definition's file.")],
    inputs: Annotated[
        str, typer.Option("--inputs", metavar="JSON", help="The run's inputs, kept byte for byte; @FILE reads a file.")
    ] = "{}",
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the end; the status is 0 only if it completed.")
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Start a run of a workflow definition and print its id."""
    # Here for the same reason as in `running_worker`: it reads schemas.
    from host.workflows import FIXTURES

    settings = settings_of(config, secrets=False)
    folders = [Path(folder) for folder in settings.host.workflows]
    definition = find_definition(workflow, [*folders, FIXTURES] if settings.host.fixtures else folders)
    given = object_argument(inputs, "--inputs", settings, beside=len(definition.raw))

    def started(run_id: str) -> None:
        if not as_json:
            print_text(run_id)
            sys.stdout.flush()
        elif wait:
            complain(f"run {run_id}")

    if not wait:
        run_id = run_async(start(settings, definition, given))
        started(run_id)
        if as_json:
            print_json(jsontext.encode({"runId": run_id, "status": "pending"}))
        return
    run = start_and_wait(settings, definition, given, started)
    if as_json:
        print_json(jsontext.encode({"runId": run.run_id, "status": run.status, **run_error(run)}))
    if run.status != "completed":
        if not as_json:
            complain(Ending.of(failed(run)).prose)
        raise typer.Exit(1)


@runs.command("show")
def runs_show_command(run: Run, config: Config = None, as_json: AsJson = False) -> None:
    """Show a run, or a workflow of your own: where it stands, and what each call recorded."""
    settings = settings_of(config, secrets=False)

    async def main() -> tuple[RecordedRun, dict[str, UnderWay], bool]:
        client = await connect(settings)
        found = await read_run(client, run)
        # A run that is over has forgotten its activities.
        running = any(call.outcome == "running" for call in found.made)
        waits = bool(await open_interrupts(client, found))
        return found, await under_way(client, run) if running else {}, waits

    found, going, waits = run_async(main())
    if as_json:
        calls = [call_facts(call, going.get(call.activity_id)) for call in found.made]
        print_json(jsontext.encode({"runId": run, "status": found.status, "calls": calls, **run_error(found)}))
        return
    where = f", waiting for a worker on task queue '{found.task_queue}'" if found.status == "pending" else ""
    print_text(f"{run}: {found.status}{where}")
    if found.failure is not None and found.status == "failed":
        print_text(f"{found.failed_node}: {found.failure[1]}" if found.failed_node else found.failure[1])
    for call in found.made:
        print_text(call_prose(call, going.get(call.activity_id)))
    if waits:
        print_text(f"waits for a person: see 'worker.py interrupts list {run}'")


@runs.command("events")
def runs_events_command(run: Run, config: Config = None, as_json: AsJson = False) -> None:
    """Print a run's event log."""
    log = recorded_run(config, run).log
    if as_json:
        print_json(b"[" + b",".join(event.encode() for event in log) + b"]")
        return
    print_table(
        ["#", "time", "event", "node", "detail"],
        [[str(event.sequence), event.timestamp, event.type, event.node_id or "", decided(event)] for event in log],
        columns=LOG_COLUMNS,
    )


@runs.command("cancel")
def runs_cancel_command(
    run: Run,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Kept in the run's log.")] = "",
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a run, or a workflow of your own. Effects that were sent stay what they are."""
    unicode_argument(reason, "--reason")
    settings = settings_of(config, secrets=False)

    async def main() -> None:
        await cancel_run(await connect(settings), run, reason)

    run_async(main())
    if as_json:
        print_json(jsontext.encode({"runId": run, "status": "cancelling"}))
    else:
        complain(f"cancelling; see 'worker.py runs show {run}'")


@runs.command("export")
def runs_export_command(
    run: Run,
    out_file: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Default standard output.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Write a run's history as JSON, as Temporal's own tools do, and beside it the large values that it refers to."""
    settings = settings_of(config, secrets=False)

    async def main() -> str:
        client = await connect(settings)
        # A chain of continue-as-new is one export: each part is told by its own WorkflowExecutionStarted.
        found = [history async for history in histories(client, run, whole=False)]
        events = [event for history in found for event in history.events]
        return export(found, await values_of(events, client.data_converter))

    text = run_async(main())
    if out_file is None:
        print_json(text.encode())
        return
    try:
        out_file.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--out: {out_file} cannot be written ({error.strerror})") from None
    if as_json:
        print_json(jsontext.encode({"runId": run, "file": str(out_file)}))
    else:
        complain(f"wrote the history of {run} to {out_file}")


@app.command("replay")
def replay_command(
    what: Annotated[
        str, typer.Argument(metavar="RUN|FOLDER|FILE", help="A run id, or exported histories.", callback=unprojected)
    ],
    workflow: Annotated[
        list[str] | None, typer.Option("--workflow", metavar="MODULE:CLASS", help="A workflow of your own; repeatable.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Replay recorded histories with the current code; the status is 0 only if none diverges and no byte changed."""
    settings = settings_of(config, secrets=False)
    classes = [workflow_class(name) for name in workflow or []]

    # What a replay finds is told by its verdict.
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    path = Path(what)
    is_run = not path.exists() and path.suffix != ".json"

    async def main() -> list[ReplayVerdict]:
        found = (await read_run(await connect(settings), what)).histories if is_run else load_histories(path)
        return await replay(found, classes, data_converter=for_replay(settings))

    try:
        verdicts = run_async(main())
    except WorkflowClassError as error:
        raise typer.BadParameter(str(error), param_hint="'--workflow'") from None
    if as_json:
        print_json(jsontext.encode([verdict.facts() for verdict in verdicts]))
    else:
        for verdict in verdicts:
            print_text(verdict.prose())
    if not all(verdict.sound for verdict in verdicts):
        raise typer.Exit(1)


@app.command("effects")
def effects_command(run: Run, config: Config = None, as_json: AsJson = False) -> None:
    """Show the ledger of a run's effects: one line for each attempt, without arguments and results."""
    settings = settings_of(config, secrets=False)

    async def main() -> list[dict[str, object]]:
        client = await connect(settings)
        ledger = await effect_ledger(client, await read_run(client, run), tenant=settings.worker.tenant)
        return [attempt.facts for attempt in ledger]

    rows = run_async(main())
    if as_json:
        print_json(jsontext.encode({"runId": run, "effects": rows}))
        return
    columns = ("nodeId", "attempt", "state", "at", "keying", "effectId")
    print_table(list(columns), [[str(row[name]) for name in columns] for row in rows], columns=LEDGER_COLUMNS)


InterruptName = Annotated[
    str | None,
    typer.Argument(
        metavar="INTERRUPT", help="Its id, or the node that waits; needed where the run waits with several."
    ),
]


@interrupts.command("list")
def interrupts_list_command(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="A run id; default all that wait.", callback=unprojected)
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the questions that runs, and workflows of your own, wait with."""
    settings = settings_of(config, secrets=False)

    async def main() -> list[tuple[RecordedRun, OpenInterrupt]]:
        client = await connect(settings)
        waiting = [run] if run is not None else [one async for one in waiting_runs(client)]
        read = [await read_run(client, one) for one in waiting]
        return [(found, one) for found in read for one in await open_interrupts(client, found)]

    found = run_async(main())
    if as_json:
        print_json(encode_open([one for _, one in found]))
        return
    if not found:
        complain("no run waits" if run is None else f"'{run}' waits with no question")
    for asking, one in found:
        print_text(named(one))
        print_text(f"    {origin(asking)}")
        for line in telling.in_brief(one.payload, one.asked_at, time.time()):
            print_text(f"    {line}")


@interrupts.command("show")
def interrupts_show_command(
    run: Run,
    interrupt: InterruptName = None,
    link: Annotated[
        bool, typer.Option("--link", help="Also make an address at which it can be answered without a key.")
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show all that a question says, and what it takes as an answer."""
    settings = settings_of(config, secrets=False)

    async def main() -> tuple[RecordedRun, OpenInterrupt, str | None]:
        client = await connect(settings)
        found = await read_run(client, run)
        one = meant(found, await open_interrupts(client, found), interrupt)
        return found, one, await link_to(client, settings, found, one) if link else None

    found, one, url = run_async(main())
    if as_json:
        linked = [] if url is None else [("link", jsontext.encode(url))]
        print_json(jsontext.build([*jsontext.members(one.encode()), *linked]))
        return
    print_text(named(one))
    print_text(origin(found))
    for line in telling.in_full(one.payload, one.asked_at, time.time()):
        print_text(line)
    if url is not None:
        print_text(url)


@interrupts.command("answer")
def interrupts_answer_command(
    run: Run,
    interrupt: InterruptName = None,
    answer: Annotated[
        str | None,
        typer.Argument(
            metavar="JSON", help="The answer; @FILE reads a file. Without it you are asked, if this is a terminal."
        ),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question that a run waits with."""
    if answer is None and interrupt is not None and interrupt.startswith(("{", "@")):
        # No id and no node that one would write by hand begins so.
        interrupt, answer = None, interrupt
    settings = settings_of(config, secrets=False)
    given = None if answer is None else json_argument(answer, "JSON", settings)
    if given is None and (as_json or not (sys.stdin.isatty() and sys.stderr.isatty())):
        raise typer.BadParameter(
            f"write the answer, as 'worker.py interrupts show {run}' says what it may be: nobody can be asked here",
            param_hint="'JSON'",
        )

    async def find() -> OpenInterrupt:
        client = await connect(settings)
        found = await read_run(client, run)
        return meant(found, await open_interrupts(client, found), interrupt)

    async def resolve(interrupt_id: str, value: bytes) -> None:
        resolution = Resolution(interrupt_id, value, jsontext.encode(operator(settings.worker.tenant)))
        await resolve_interrupt(await connect(settings), run, resolution)

    one = None
    if given is None or interrupt is None or "/" not in interrupt:
        one = run_async(find())
        given = given if given is not None else sound_json(asked_here(one), "JSON", settings)
        interrupt = one.interrupt_id
    try:
        run_async(resolve(interrupt, given))
    except InterruptRefusedError as error:
        if one is None or error.code != "validation_error":
            raise
        # What was meant may be a question that the run came to since.
        about = f"node {one.node_id} ({one.kind})" if one.node_id else f"the {one.kind}"
        raise CommandError(f"{about}: {error}", code=error.code) from None
    if as_json:
        print_json(jsontext.encode({"runId": run, "interruptId": interrupt}))
    else:
        complain(f"answered; see 'worker.py runs show {run}'")


# --- what the commands share ------------------------------------------------------------------------------------------


def settings_of(config: str | None, *, secrets: bool = True) -> Settings:
    """The settings, or an end with status 2 and one line for each fault.

    Args:
        config: The file, if one was named.
        secrets: Whether the command talks to servers, and so needs their credentials.
    """
    return load(config, environ=os.environ, secrets=secrets)


def serving_settings(config: str | None) -> Settings:
    """The settings of a worker. Without a server it can do little, which is seldom meant."""
    settings = settings_of(config)
    if not settings.servers:
        complain(f"no MCP server is configured: add [servers.ID] to {config or DEFAULT_FILE}{no_file(config)}")
    return settings


def with_key(settings: Settings) -> tuple[Settings, str | None]:
    """The settings of `dev`, which without a key makes one for itself, and that: nothing has to be set up to try it."""
    if settings.keys or settings.issuers:
        return settings, None
    key = secrets.token_urlsafe(24)
    own = Key(
        id="dev",
        sha256=hashlib.sha256(key.encode()).hexdigest(),
        tenant=settings.worker.tenant,
        subject="dev",
        scopes=("*",),
    )
    return settings.model_copy(update={"keys": (own,)}), key


def no_file(config: str | None) -> str:
    """Says so where the settings lack because there is no file of them."""
    there = config is not None or Path(DEFAULT_FILE).exists()
    return "" if there else f" (no {DEFAULT_FILE} in {Path.cwd()})"


def at(settings: Settings, address: str) -> Settings:
    """The same settings with another Temporal."""
    own = settings.temporal.model_copy(update={"address": address, "namespace": "default", "tls": False})
    return settings.model_copy(update={"temporal": own})


def object_argument(value: str, option: str, settings: Settings, *, beside: int = 0) -> bytes:
    """The JSON text of an option, or of the file that it names with ``@``: an object, byte for byte.

    Args:
        value: What was given.
        option: Its name, for messages.
        settings: They say how much can be carried.
        beside: Bytes of the definition that it travels with.
    """
    text = json_argument(value, option, settings, beside=beside)
    if jsontext.kind(text) != "object":
        raise typer.BadParameter('write a JSON object, as in \'{"city": "Bern"}\'', param_hint=f"'{option}'")
    return text


def json_argument(value: str, option: str, settings: Settings, *, beside: int = 0) -> bytes:
    """The same of any JSON value."""
    if not value.startswith("@"):
        return sound_json(os.fsencode(value), option, settings, beside=beside)
    try:
        text = Path(value[1:]).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{value[1:]} cannot be read ({error.strerror})", param_hint=f"'{option}'") from None
    return sound_json(text, option, settings, beside=beside)


def sound_json(text: bytes, option: str, settings: Settings, *, beside: int = 0) -> bytes:
    """A text that is JSON, and that can be carried."""
    ceiling = options_of(settings).call_bytes
    if len(text) + beside > ceiling:
        together = f", with the {beside} of the definition," if beside else ""
        carries = "Temporal carries" if settings.storage.driver == "none" else "limits.call_bytes lets pass"
        raise typer.BadParameter(
            f"{len(text)} bytes{together} are over the {ceiling} bytes that {carries}",
            param_hint=f"'{option}'",
        )
    try:
        jsontext.check_depth(text, MAX_DEPTH)
        jsontext.check(text)
    except jsontext.JsonTextError as error:
        raise typer.BadParameter(error.within(text), param_hint=f"'{option}'") from None
    return text


def unicode_argument(value: str, hint: str) -> None:
    """Refuse what was not UTF-8 on the command line: no JSON can carry it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("is not valid UTF-8", param_hint=f"'{hint}'") from None


def for_replay(settings: Settings) -> DataConverter:
    """The converter of a worker, but without its storage: what a replay makes is not to be kept."""
    return dataclasses.replace(data_converter(settings), external_storage=None)


def workflow_class(name: str) -> type:
    """An author's workflow, by ``module:class``."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise typer.BadParameter(f"{name}: {error}", param_hint="'--workflow'") from None
    # What an author's module does when it is imported is no fault of this program.
    except (Exception, SystemExit) as error:  # noqa: BLE001 - see above
        raise typer.BadParameter(
            f"{name}: importing {module} raised {type(error).__name__}: {error}", param_hint="'--workflow'"
        ) from None
    if not isinstance(found, type):
        raise typer.BadParameter(f"{name} is no class", param_hint="'--workflow'")
    return found


def configured(settings: Settings, server_id: str, config: str | None) -> Server:
    """The settings of a server.

    Raises:
        CommandError: There is none of that id.
    """
    server = settings.server(server_id, settings.worker.tenant)
    if server is None:
        unknown = UnknownServerError(server_id, barred=settings.barred(server_id, settings.worker.tenant))
        details, delivery = known(unknown)
        raise CommandError(f"{unknown}{no_file(config)}", code=unknown.code, details=details, delivery=delivery)
    return server


async def with_server(
    settings: Settings, server_id: str, ask: Callable[[McpClient], Awaitable[Exchange]], config: str | None
) -> Verbatim:
    """Ask a server directly, outside any workflow: for what has no effect."""
    # Here for the same reason as in `running_worker`.
    from activities.perform import CLIENT_INFO
    from openwop_mcp.client import Clients

    server = configured(settings, server_id, config)
    alone = settings.model_copy(update={"servers": {server_id: server}})
    async with Clients(alone, client_info=CLIENT_INFO, environ=os.environ) as clients:
        return Verbatim((await ask(clients[server_id])).result)


async def catalogs_of(settings: Settings) -> Catalogs | None:
    """The catalogs of the settings' Temporal; None where that does not answer, which is told."""
    try:
        async with asyncio.timeout(LOOK_PATIENCE):
            return catalogs_at(await connect(settings), settings)
    except CommandError as error:
        why = str(error)
    except TimeoutError:
        why = f"no Temporal server answers at {settings.temporal.address} within {LOOK_PATIENCE:g} s"
    complain(terminal.escape(f"{why}; {ASKED_DIRECTLY}"))
    return None


def catalogs_at(client: Client, settings: Settings) -> Catalogs:
    """The catalogs of a Temporal."""
    own = settings.worker
    return Catalogs(client, task_queue=own.task_queue, heartbeat=own.heartbeat_timeout)


async def read_catalogs(
    settings: Settings, server_ids: Sequence[str], config: str | None, *, refresh: bool
) -> dict[str, Catalog | Exception]:
    """What servers offer, all read at once, or why that cannot be told."""
    catalogs = await catalogs_of(settings)

    async def read(server_id: str) -> Catalog | Exception:
        try:
            return await read_catalog(settings, catalogs, server_id, config, refresh=refresh)
        except (*EXPECTED, RPCError) as error:
            return error

    return dict(zip(server_ids, await asyncio.gather(*map(read, server_ids)), strict=True))


async def read_catalog(
    settings: Settings, catalogs: Catalogs | None, server_id: str, config: str | None, *, refresh: bool = False
) -> Catalog:
    """What a server offers: from its catalog, or, while that has no list, from the server itself.

    Raises:
        CommandError: There is no such server, or no worker that could refresh the catalog where that was asked for.
        McpError: The server was asked directly, and does not answer.
    """
    configured(settings, server_id, config)
    if catalogs is not None:
        tenant = settings.worker.tenant
        if refresh and not await catalogs.refresh(tenant, server_id, within=PATIENCE, force=True):
            raise CommandError(unrefreshed(server_id), code="service_unavailable")
        catalog = await catalogs.fresh(tenant, server_id, now=time.time())
        if catalog is not None and catalog.failure is not None:
            # Others are not made to wait for a server that is down; who looks at it may have just mended it.
            await catalogs.refresh(tenant, server_id, within=LOOK_PATIENCE)
            catalog = await catalogs.read(tenant, server_id)
        if catalog is not None and catalog.listed_at is not None:
            return catalog
        failure = None if catalog is None else catalog.failure
        why = "no worker has listed it yet" if failure is None else f"{failure.code}: {failure.message}"
        complain(terminal.escape(f"{server_id}: {why}; {ASKED_DIRECTLY}"))
    return await list_directly(settings_of(config), server_id, config)


async def kept_catalog(
    settings: Settings, server_id: str, config: str | None, *, fresh: bool = False
) -> tuple[Catalogs, Catalog]:
    """The catalog of a server that has been listed at least once, and where it is.

    Args:
        settings: Where.
        server_id: The server.
        config: The settings' file, for messages.
        fresh: Whether a list that is stale is to be renewed, if that can be done in a moment.

    Raises:
        CommandError: There is no Temporal, no such server, or no list of it.
    """
    configured(settings, server_id, config)
    tenant = settings.worker.tenant
    catalogs = catalogs_at(await connect(settings), settings)
    read = catalogs.fresh(tenant, server_id, now=time.time()) if fresh else catalogs.read(tenant, server_id)
    catalog = await read
    if catalog is None or catalog.listed_at is None:
        await catalogs.refresh(tenant, server_id, within=PATIENCE)
        catalog = await catalogs.read(tenant, server_id)
    if catalog is None or catalog.listed_at is None:
        failure = None if catalog is None else catalog.failure
        if failure is None:
            raise CommandError(unrefreshed(server_id), code="service_unavailable")
        raise CommandError(failure.message, code=failure.code)
    return catalogs, catalog


def unrefreshed(server_id: str) -> str:
    """Says that a server's list could not be had in time."""
    return (
        f"'{server_id}' was not listed within {PATIENCE:g} s: it is slow, or there is no worker; start 'worker.py run'"
        " or 'worker.py dev' with the same temporal and worker settings"
    )


def chosen(catalog: Catalog, pattern: str | None, fingerprint: str | None = None) -> list[Tool]:
    """The tools of a catalog that a name or a glob means, or all.

    Raises:
        CommandError: It means none, or not the one definition that has this fingerprint.
    """
    names = catalog.names()
    found = names if pattern is None else listing.matching(names, pattern)
    if not found and pattern is not None:
        raise no_tool(catalog.server_id, pattern)
    tools = [tool for name in found if (tool := catalog.tool(name)) is not None]
    if fingerprint is not None and [tool.fingerprint.startswith(fingerprint) for tool in tools] != [True]:
        raise CommandError(
            "the definition is not the one with that fingerprint, and nothing was done: see"
            f" 'worker.py tools show {catalog.server_id}'",
            code="proposal_stale",
        )
    return tools


def no_tool(server_id: str, pattern: str) -> CommandError:
    """Says that a server does not list what was asked for."""
    return CommandError(
        f"'{server_id}' lists no tool '{pattern}': see 'worker.py tools list {server_id}'", code="not_found"
    )


def bound(tools: Sequence[Tool]) -> list[Tool]:
    """Those of the tools that have one definition, which is what an operator's word is about; of others it is told.

    Raises:
        CommandError: None of them has.
    """
    torn = [tool for tool in tools if tool.standing.fingerprint is None]
    if torn and len(torn) == len(tools):
        raise CommandError(f"{torn[0].name}: {torn[0].unusable}", code="forbidden")
    for tool in torn:
        complain(terminal.escape(f"{tool.name} is left out: {tool.unusable}"))
    return [tool for tool in tools if tool.standing.fingerprint is not None]


def parts(tools: Sequence[Tool]) -> list[list[tuple[str, str]]]:
    """Names and fingerprints of tools, as many together as one message carries."""
    bound = [(tool.name, tool.fingerprint) for tool in tools]
    return [bound[at : at + AT_ONCE] for at in range(0, len(bound), AT_ONCE)]


def this_user() -> str:
    """Who uses the command line, as this machine calls them."""
    try:
        return getpass.getuser()
    # A container may run as a number that has no name.
    except (KeyError, OSError):
        return "operator"


async def list_directly(settings: Settings, server_id: str, config: str | None) -> Catalog:
    """What a server says that it offers, all pages of it, as a catalog that has seen nothing else.

    Raises:
        McpError: The server does not answer.
    """
    pages: list[bytes] = []
    ended: str | None = None

    async def ask(client: McpClient) -> Exchange:
        nonlocal ended
        page = await client.list_tools()
        asked = set[str]()
        while True:
            pages.append(page.result)
            following = Verbatim(page.result).get("nextCursor")
            if not isinstance(following, str):
                return page
            if following in asked or len(pages) == DIRECT_PAGES:
                ended = f"after {len(pages)} pages the server named another one"
                return page
            asked.add(following)
            page = await client.list_tools(following)

    await with_server(settings, server_id, ask, config)
    http = configured(settings, server_id, config).url is not None
    return listing.unkept(settings.worker.tenant, server_id, pages, http=http, ended=ended, at=milliseconds())


def milliseconds() -> int:
    """Now, in milliseconds since 1970."""
    return round(time.time() * 1000)


def operator(tenant: str) -> dict[str, str]:
    """Who uses the command line, as a subject."""
    return {
        "issuer": "urn:openwop-mcp:cli",
        "subjectId": this_user(),
        "tenant": tenant,
        "lane": "workload",
        "kind": "workload",
    }


async def start(settings: Settings, definition: Definition, inputs: bytes, client: Client | None = None) -> str:
    """Start a run as the operator of this machine."""
    client = client or await connect(settings)
    tenant = settings.worker.tenant
    start = RunStart(
        run_id=mint_run_id(tenant),
        definition=definition.raw,
        owner=Owner(tenant, operator(tenant)),
        options=limited(options_of(settings), definition),
    )
    await start_run(client, start, definition, inputs, task_queue=settings.worker.task_queue)
    return start.run_id


def options_of(settings: Settings) -> Options:
    """What a run is to know of the settings."""
    heartbeat = settings.worker.heartbeat_timeout
    if settings.storage.driver == "none":
        return Options(heartbeat, call_bytes=min(settings.limits.call_bytes, MAX_CALL_BYTES))
    return Options(heartbeat, inline_bytes=INLINE_BYTES, call_bytes=settings.limits.call_bytes)


def start_and_wait(
    settings: Settings, definition: Definition, inputs: bytes, started: Callable[[str], None], *, progress: bool = False
) -> RecordedRun:
    """Start a run and wait for its end.

    Args:
        settings: Where.
        definition: What to run.
        inputs: JSON text of the run's inputs.
        started: Told the run's id before anything is waited for: whatever happens then, the run can be looked at.
        progress: Whether to show meanwhile how far its calls are.

    Raises:
        StartedRunError: There is a run, and waiting for its end failed or was given up.
    """
    run_id: str | None = None

    async def main() -> RecordedRun:
        nonlocal run_id
        client = await connect(settings)
        run_id = await start(settings, definition, inputs, client)
        started(run_id)
        return await to_the_end(client, run_id, progress=progress)

    try:
        return run_async(main())
    except (KeyboardInterrupt, Exception) as error:
        if run_id is None or isinstance(error, BrokenPipeError):
            raise
        raise StartedRunError(run_id) from error


async def tell_questions(client: Client, run_id: str, told: dict[str, str]) -> None:
    """Tell that a run waits for a person, once for each time that it does."""
    try:
        waits = await waits_for_answers(client, run_id)
    except RPCError:
        return
    if waits and not told.get(""):
        complain(
            f"the run waits for a person: see 'worker.py interrupts show {run_id}', and"
            f" 'worker.py interrupts answer {run_id}'"
        )
    told[""] = "asked" if waits else ""


async def to_the_end(client: Client, run_id: str, *, progress: bool) -> RecordedRun:
    """Wait until a run has ended, and read it.

    Raises:
        CommandError: No worker took the run; it was ended before anything was sent.
    """
    handle = client.get_workflow_handle(run_id)
    result = asyncio.ensure_future(handle.result())
    told: dict[str, str] = {}
    patient_until = time.monotonic() + PATIENCE
    taken = False
    # Short calls cost no look: the first is due after a second.
    while not (await asyncio.wait([result], timeout=WATCH))[0]:
        if progress:
            await tell_progress(client, run_id, told)
        await tell_questions(client, run_id, told)
        if not taken and time.monotonic() >= patient_until:
            await give_up_unless_taken(handle)
            taken = True
    with contextlib.suppress(WorkflowFailureError):
        await result
    return await read_run(client, run_id)


async def tell_progress(client: Client, run_id: str, told: dict[str, str]) -> None:
    """Tell how far a run's calls are.

    Args:
        client: Where the run is.
        run_id: The run.
        told: What was told of each last, which is not told again.
    """
    try:
        going = await under_way(client, run_id)
    except RPCError:
        # The next look may fare better; that the run cannot be waited for any more is told by the wait.
        return
    for activity_id, activity in going.items():
        if activity.progress is not None and told.get(activity_id) != (line := activity.progress.prose):
            told[activity_id] = line
            # The message is a server's, which must not be able to add a line of its own.
            complain(terminal.escape(line))


async def give_up_unless_taken(handle: WorkflowHandle[Any, Any]) -> None:
    """End a run that no worker has taken: without a worker nothing can have been sent."""
    if EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED in await event_types(handle):
        return
    await handle.terminate("no worker")
    if EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED in await event_types(handle):
        raise CommandError(
            f"no worker took the run within {PATIENCE:g} s; one did while the run was being ended, so that the effect"
            f" may have happened: see 'worker.py runs show {handle.id}'",
            code="service_unavailable",
        )
    raise CommandError(
        f"no worker took the run within {PATIENCE:g} s, and nothing was sent: start 'worker.py run' or 'worker.py dev'"
        " with the same temporal and worker settings",
        code="service_unavailable",
    )


async def event_types(handle: WorkflowHandle[Any, Any]) -> set[int]:
    """What has happened to a workflow so far."""
    return {event.event_type async for event in handle.fetch_history_events()}


def meant(run: RecordedRun, waiting: Sequence[OpenInterrupt], name: str | None) -> OpenInterrupt:
    """The question that is meant: by its id, by the node that waits, or as the only one."""
    found = [one for one in waiting if name in {None, one.interrupt_id, one.node_id or None}]
    # Nodes that share an effect wait with one question.
    if len({one.interrupt_id for one in found}) == 1:
        return found[0]
    if found:
        names = ", ".join(sorted(one.node_id or one.interrupt_id for one in found))
        raise CommandError(
            f"'{run.run_id}' waits with {len(found)} questions: name one of {names}", code="validation_error"
        )
    if waiting:
        raise CommandError(
            f"'{run.run_id}' waits with no question of that name: see 'worker.py interrupts list {run.run_id}'",
            code="not_found",
        )
    raise CommandError(f"'{run.run_id}' waits with no question", code="not_found")


async def link_to(client: Client, settings: Settings, run: RecordedRun, one: OpenInterrupt) -> str:
    """An address at which a question can be answered without a key."""
    # Here for the same reason as in `running_worker`.
    from host.links import Links

    if not run.is_graph:
        raise CommandError("there is no link to it: only questions of graphs have one", code="validation_error")
    nodes = jsontext.elements(jsontext.member(run.definition, "nodes") or b"[]")
    asks = next(node for node in nodes if jsontext.decode(jsontext.member(node, "id") or b'""') == one.node_id)
    if not takes_tokens(one.payload, jsontext.member(asks, "config") or b"{}"):
        raise CommandError(
            "there is no link to it: it has to be known who answers it, with a key of the host", code="forbidden"
        )
    made = await Links(settings.host, os.environ, client).make(
        run_id=one.run_id,
        node_id=one.node_id,
        interrupt_id=one.interrupt_id,
        until=telling.ends_at(one.payload, one.asked_at),
    )
    if made is None:
        raise CommandError(
            "the settings do not say where the host is: set host.url, as in https://openwop.example.org",
            code="validation_error",
        )
    return made.url


def asked_here(one: OpenInterrupt) -> bytes:
    """The answer of whoever sits at this terminal, as JSON text."""
    complain(named(one))
    complain(next(telling.in_brief(one.payload, one.asked_at, time.time())))
    try:
        given = interview(form_of(one.payload), AtTerminal())
    except NoFormError as error:
        raise CommandError(
            f"this cannot be asked here, as {error}: give the answer as JSON (see"
            f" 'worker.py interrupts show {one.run_id}')",
            code="validation_error",
        ) from None
    except (EOFError, KeyboardInterrupt):
        # The prompt's line has no end yet.
        sys.stderr.write("\n")
        raise UnansweredError(UNSENT) from None
    if given is None:
        raise CommandError(UNSENT, code="cancelled")
    return given


class AtTerminal:
    """Whoever sits at this terminal. They are shown everything on standard error, as nothing of it was asked for."""

    LINE = 4_095
    """Bytes that a terminal gives as one line at most; what is typed beyond them is lost without a word."""

    def __init__(self) -> None:
        cast("TextIOWrapper", sys.stdin).reconfigure(encoding="utf-8", errors="surrogateescape")

    def tell(self, text: str) -> None:
        """Show lines."""
        complain(text)

    def ask(self, prompt: str) -> str:
        """Take a line."""
        sys.stderr.write(terminal.escape(prompt))
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line.endswith("\n"):
            raise EOFError
        if len(os.fsencode(line)) >= self.LINE:
            raise NotWantedError("a terminal takes no longer line: answer with JSON, from a file")
        return line.removesuffix("\n")

    def load(self, name: str) -> str:
        """The text of a file."""
        try:
            return Path(name).read_text(encoding="utf-8")
        except (OSError, ValueError):
            raise NotWantedError("that file cannot be read, or is not UTF-8") from None


def recorded_run(config: str | None, run_id: str) -> RecordedRun:
    """What Temporal has recorded of a run."""
    settings = settings_of(config, secrets=False)

    async def main() -> RecordedRun:
        return await read_run(await connect(settings), run_id)

    return run_async(main())


def failed(run: RecordedRun) -> CommandError:
    """Why a run of a graph did not complete."""
    code, message, details = run.failure or ("internal_error", f"the run is {run.status}", b"{}")
    delivery = Verbatim(details).get("delivery")
    return CommandError(message, code=code, details=details, delivery=delivery if isinstance(delivery, str) else None)


def run_error(run: RecordedRun) -> dict[str, object]:
    """The member that tells why a run did not complete, where it did not."""
    if run.failure is None:
        return {}
    code, message, details = run.failure
    return {"error": {"code": code, "message": message, "details": Verbatim(details)}}


def call_facts(call: MadeCall, now: UnderWay | None) -> dict[str, object]:
    """What there is to say of a call, for machines.

    Args:
        call: What history says of it.
        now: What Temporal knows of it while it has not ended.
    """
    record, failure = call.record, call.failure
    facts: dict[str, object] = {
        "node": call.name,
        "serverId": call.server_id,
        "method": call.method,
        "subject": call.subject,
        "outcome": "waiting" if now is not None and now.waits else call.outcome,
        "attempts": call.tries,
        "taskQueue": call.task_queue,
    }
    if questions := call.rounds.count("input"):
        facts["questions"] = questions
    if "approval" in call.rounds:
        facts["approved"] = True
    if now is not None and now.progress is not None:
        facts["progress"] = now.progress.facts
    if record is not None:
        known = record.result.provenance
        facts |= {
            "revision": known.get("revision", ""),
            "bytes": len(record.result),
            "sha256": record.sha256,
            "intact": record.intact,
            **{
                member: int(known[key])
                for member, key in (("httpStatus", "http-status"), ("durationMs", "duration-ms"))
                if known.get(key, "").isdecimal()
            },
            **({"schema": record.schema} if record.schema else {}),
            **({"cached": True} if record.cached else {}),
        }
    if failure is not None:
        facts["error"] = {
            "code": failure.code,
            "delivery": failure.happened.delivery.value,
            "message": failure.message,
            "details": Verbatim(failure.details),
        }
    return facts


# --- what people see --------------------------------------------------------------------------------------------------

TOOLS_COLUMNS = 150
"""What a table of tools takes at least: a fold in a name or a fingerprint is worse than a line that runs over."""

LEDGER_COLUMNS = 170
"""The same for a ledger, whose ids are long and have to be whole to be searched for."""

LOG_COLUMNS = 110
"""What a line of a run's log may take on a narrow terminal too: better one that runs over than times cut in two."""


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, columns: int = 0) -> None:
    """Print a table, at least so wide if it needs that.

    It is plain: where no escape sequence is ever written, one that came from a server cannot hide among others.
    """
    out = Console(soft_wrap=True, force_terminal=False, highlight=False)
    out.width = max(out.width, columns)
    out.print(terminal.table(headers, rows))


def print_text(text: str) -> None:
    """Print text that may come from a server: nothing in it steers the terminal."""
    sys.stdout.write(terminal.escape(text, multiline=True) + "\n")


def print_json(data: bytes) -> None:
    """Print one JSON value; its bytes are kept where no terminal would act on them."""
    sys.stdout.write(terminal.json_for(sys.stdout, data) + "\n")


def complain(text: str) -> None:
    """Tell what went wrong, on standard error."""
    sys.stderr.write(terminal.escape(text, multiline=True) + "\n")


def named(one: OpenInterrupt) -> str:
    """Which question it is, in a line."""
    node = f", node {one.node_id}" if one.node_id else ""
    return terminal.escape(f"run {one.run_id}, interrupt {one.interrupt_id}{node}")


def origin(run: RecordedRun) -> str:
    """Of which workflow a run is, and who started it, as far as that is recorded, in a line."""
    who = run.started_by
    return terminal.escape(f"of workflow {run.workflow_id}" + ("" if who is None else f", started by {who}"))


def described(made: MadeCall, call: CallRecord) -> str:
    """What was recorded of a call, in a line."""
    return f"{asked_of(call.server_id, call.method, call.subject)}, {recorded_as(made, call)}"


def asked_of(server_id: str, method: str, subject: str) -> str:
    """What was asked, and of whom."""
    return " ".join(part for part in (server_id, method, subject) if part) or "a call that cannot be read"


def took(made: MadeCall) -> str:
    """How many attempts a call took, and apart from them for how many answers it waited."""
    answered = made.rounds.count("input")
    questions = "" if not answered else f", answered {answered} question{'s' if answered > 1 else ''}"
    return f"attempts {made.tries}" + questions + (", approved" if "approval" in made.rounds else "")


def recorded_as(made: MadeCall, call: CallRecord) -> str:
    """What tells whether a record is still what arrived."""
    return (
        f"MCP {call.result.provenance.get('revision', 'unknown')}, {len(call.result.raw)} bytes, sha256 {call.sha256},"
        f" {took(made)},"
        + (" intact" if call.intact else " CHANGED since it was recorded")
        + (", cached" if call.cached else "")
        + (", of an earlier call with this key" if call.result.provenance.get("shared") == "true" else "")
        + (", given by a person" if call.result.provenance.get("decided") else "")
        + (f", schema {call.schema}" if call.schema not in {"", "ok"} else "")
    )


def call_prose(call: MadeCall, now: UnderWay | None) -> str:
    """A call in a line: what became of it, what was asked, what was recorded; below, how far it is or why it failed."""
    failure = call.failure
    match call.outcome:
        case "failed" if failure is not None:
            became = f"failed {failure.code}"
        case "retrying":
            became = "waiting to be tried again"
        case "inDoubt":
            became = "in doubt"
        case "suspended":
            became = "waiting for an answer (see 'worker.py interrupts list')"
        case "running" if now is not None and now.waits:
            became = f"waiting for a worker on task queue '{call.task_queue}'"
        case _:
            became = call.outcome
    end = took(call) if call.record is None else recorded_as(call, call.record)
    line = f"{call.name}: {became}, {asked_of(call.server_id, call.method, call.subject)}, {end}"
    if failure is not None:
        below = failure_prose(failure.code, failure.happened.delivery.value, failure.message)
    elif now is not None and now.progress is not None:
        below = now.progress.prose
    else:
        return terminal.escape(line)
    # What stands below may quote a server, which must not be able to add a line of its own.
    return f"{terminal.escape(line)}\n    {terminal.escape(below)}"


def failure_prose(code: str, delivery: str, message: str) -> str:
    """Why a call failed: first the two words that say what follows from it."""
    return f"{code}, delivery {delivery}: {message}"


def decided(event: RunEvent) -> str:
    """What an event says that is asked of somebody, was answered, or went wrong; of the others, names are enough."""
    told = jsontext.decode(event.payload)
    match event.type:
        case negotiation.EVENT:
            parts = [told.get("outcome"), told.get("version"), told.get("reason")]
        case "interrupt.requested":
            parts = [told.get("kind")]
        case "interrupt.resolved":
            by = told.get("resolvedBy")
            who = by.get("subjectId") if isinstance(by, dict) else None
            parts = [told.get("kind"), told.get("action") or told.get("decision"), who and f"by {who}"]
        case "node.failed" | "run.failed":
            parts = [told["error"]["code"]]
        case _:
            parts = []
    # That terms are ok is what accepted says.
    return terminal.escape(" ".join(part for part in parts if part and part != "ok"))


def brief(tool: dict[str, Any]) -> str:
    """The first line of a tool's description, as the server wrote it."""
    lines = str(tool.get("description") or tool.get("title") or "").splitlines()
    return lines[0] if lines else ""


class LogFormatter(terminal.LogFormatter):
    """Tells an activity's failure in a line: where in this program a server's refusal was noticed is no news."""

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the standard library's name
        """Write what was raised."""
        return str(ei[1]) if isinstance(ei[1], ApplicationError) else super().formatException(ei)


# --- the process ------------------------------------------------------------------------------------------------------


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, on uvloop where it is installed: it takes a fifth of the worker's CPU off."""
    # Left alone, the SDK's core logs to standard output, in colour.
    forwarding = LogForwardingConfig(logging.getLogger("temporalio"), append_log_fields_to_message=False)
    telemetry = TelemetryConfig(logging=LoggingConfig(filter=TelemetryFilter("WARN", "ERROR"), forwarding=forwarding))
    Runtime.set_default(Runtime(telemetry=telemetry), error_if_already_set=False)
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        return asyncio.run(main)
    return cast("T", uvloop.run(main))


EXPECTED = (
    CatalogRefusedError,
    CommandError,
    DefinitionError,
    DefinitionNotFoundError,
    EmbeddedTemporalError,
    HistoryFileError,
    InterruptRefusedError,
    LostValueError,
    McpError,
    ProjectionError,
    RunExpiredError,
    RunNotFoundError,
    StorageError,
)
"""What a command can end with that is no fault of this program: told in a sentence, without a traceback."""

USAGE = 2
"""Exit status where the command line or the settings must change first."""

INTERRUPTED = 130
"""Exit status that shells give to what SIGINT ended."""


def known(error: BaseException) -> tuple[bytes, str | None]:
    """What is known beside a failure's message: details (JSON object text), and of a call its delivery."""
    match error:
        case CommandError():
            return error.details, error.delivery
        case McpError():
            details = refusal(error).details
            if isinstance(error, RpcError):
                details = jsontext.build([*jsontext.members(details), ("error", error.error)])
            return details, error.delivery.value
        case _:
            return b"{}", None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command that did not do what was asked for ends."""

    status: int
    code: str
    message: str
    details: bytes = b"{}"
    delivery: str | None = None
    expected: bool = True
    run_id: str | None = None

    @classmethod
    def of(cls, error: BaseException) -> Ending:
        """Read it from what was raised."""
        match error:
            case SettingsError():
                return cls(USAGE, "validation_error", str(error))
            case typer.TyperException():
                context = getattr(error, "ctx", None)
                hint = f" (see '{context.command_path} --help')" if context and error.format_message() else ""
                return cls(error.exit_code, "validation_error", error.format_message() + hint)
            case RPCError():
                return cls(1, "service_unavailable", f"Temporal did not do it: {error.message}")
            case KeyboardInterrupt() | typer.Abort() | UnansweredError():
                return cls(INTERRUPTED, "cancelled", str(error) or "given up; what runs in Temporal goes on")
            case _ if isinstance(error, EXPECTED):
                return cls(1, getattr(error, "code", "internal_error"), str(error), *known(error))
            case _:
                return cls(1, "internal_error", f"{type(error).__name__}: {error}", expected=False)

    @classmethod
    def after_start(cls, error: StartedRunError) -> Ending:
        """Read it from what was raised while a run was under way that the command had started."""
        ending = replace(cls.of(error.__cause__ or error), run_id=error.run_id)
        if ending.status != INTERRUPTED:
            return ending
        return replace(
            ending,
            message=(
                f"given up waiting; the run goes on: see 'worker.py runs show {error.run_id}', or end it with"
                f" 'worker.py runs cancel {error.run_id}'"
            ),
        )

    @property
    def prose(self) -> str:
        """What people are told: of a call its code and delivery first, which is what the documents' tables go by."""
        return self.message if self.delivery is None else failure_prose(self.code, self.delivery, self.message)

    def encode(self) -> bytes:
        """JSON text of code, message and details."""
        return jsontext.build(
            [
                ("code", jsontext.encode(self.code)),
                ("message", jsontext.encode(self.message)),
                ("details", self.details),
            ]
        )

    def tell(self, *, as_json: bool) -> None:
        """Say it: as JSON on standard output where that was asked for, else on standard error."""
        if as_json:
            run = [] if self.run_id is None else [("runId", jsontext.encode(self.run_id))]
            print_json(jsontext.build([("error", self.encode()), *run]))
        elif self.message:
            complain(self.prose)


def main(arguments: list[str]) -> int:
    """Run a command; returns the exit status."""
    prepare_streams()
    try:
        arguments = spelled_out(arguments)
        status = app(arguments, prog_name="worker.py", standalone_mode=False)
    except BrokenPipeError:
        return 1
    # All of them: the interpreter must not tear itself down with a client of Temporal in it, whatever went wrong.
    except (KeyboardInterrupt, Exception) as error:
        ending = Ending.after_start(error) if isinstance(error, StartedRunError) else Ending.of(error)
        if not ending.expected:
            logging.getLogger(__name__).exception("this is a fault of worker.py")
        ending.tell(as_json="--json" in arguments)
        return ending.status
    return status if isinstance(status, int) else 0


def spelled_out(arguments: list[str]) -> list[str]:
    """The arguments, with the command that 'tools SERVER' leaves out.

    Raises:
        typer.BadParameter: It is no server that stands there, since more follows than a server takes.
    """
    if arguments[:1] != ["tools"] or len(arguments) < 2 or arguments[1] in TOOLS_COMMANDS | {"--help"}:  # noqa: PLR2004
        return arguments
    word, *rest = arguments[1:]
    if rest and not rest[0].startswith("-") and not word.startswith("-"):
        near = difflib.get_close_matches(word, sorted(TOOLS_COMMANDS), n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"write one of {', '.join(sorted(TOOLS_COMMANDS))}"
        raise typer.BadParameter(f"no command '{word}': {hint}", param_hint="'tools'")
    return ["tools", "list", *arguments[1:]]


def prepare_streams() -> None:
    """Log to standard error, and make both streams take every character, whatever the locale."""
    for stream in (sys.stdout, sys.stderr):
        cast("TextIOWrapper", stream).reconfigure(encoding="utf-8", errors="backslashreplace")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    # What servers say comes only where the settings or a call ask for it, and from the level that they name.
    logging.getLogger("openwop_mcp.messages").setLevel(logging.DEBUG)


def written(status: int) -> int:
    """Write out what is still in the streams' buffers; returns the exit status, which is not 0 where that failed."""
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    try:
        sys.stdout.flush()
    except OSError:
        return status or 1
    return status


if __name__ == "__main__":
    exit_status = written(main(sys.argv[1:]))
    # A client process of the SDK sometimes crashes or hangs while the interpreter is torn down; everything is written.
    os._exit(exit_status)
