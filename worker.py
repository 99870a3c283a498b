"""The composition root and command line: the one place that knows settings, library, activities and workflows.

``worker.py --help`` lists the commands. Standard output carries what was asked for, standard error everything else, and
the exit status is 0 only if what was asked for happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import click
import typer
from rich.console import Console
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode, TLSConfig
from temporalio.worker import PollerBehaviorSimpleMaximum, Worker

from activities import Calls, mcp_activities, node_activities
from activities.perform import CLIENT_INFO
from openwop_mcp import jsontext, terminal
from openwop_mcp.client import HttpTransport, McpClient, health
from openwop_mcp.config import TOOLS_COMMANDS, Settings, SettingsError, load
from openwop_mcp.embedded import EmbeddedTemporalError, embedded_temporal
from openwop_mcp.errors import McpError, UnknownServerError
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import Definition, DefinitionError, parse
from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.projection import ProjectionError, Projector
from openwop_mcp.runs.records import CallRecord, records
from openwop_mcp.runs.start import Options, Owner, RunStart
from workflows import RunWorkflow
from workflows.client import histories, mint_run_id, start_run
from workflows.replay import HistoryFileError, ReplayVerdict, export, replay
from workflows.replay import load as load_histories

T = TypeVar("T")

FIXTURES = Path(__file__).parent / "examples" / "fixtures"
"""The conformance fixtures: offered where the settings say so."""

PATIENCE = 10.0
"""Seconds that a command waits for a worker to take its run before it says that there is none."""

TERMINAL = ("run.completed", "run.failed", "run.cancelled")

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=__doc__)
tools = typer.Typer(no_args_is_help=True, help="The tools that servers offer.")
runs = typer.Typer(no_args_is_help=True, help="Start runs and read what is recorded of them.")
app.add_typer(tools, name="tools")
app.add_typer(runs, name="runs")

Config = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings; default openwop-mcp.toml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value, also on failure.")]
Run = Annotated[str, typer.Argument(metavar="RUN", help="A run id, as 'runs start' prints it.")]


class CommandError(Exception):
    """A command did not do what was asked for.

    Attributes:
        code: OpenWOP error code.
        details: JSON object text.
    """

    def __init__(self, message: str, *, code: str = "internal_error", details: bytes = b"{}") -> None:
        super().__init__(message)
        self.code = code
        self.details = details


# --- what a process is made of ----------------------------------------------------------------------------------------


async def connect(settings: Settings) -> Client:
    """Connect to the Temporal of the settings."""
    temporal = settings.temporal
    try:
        return await Client.connect(
            temporal.address, namespace=temporal.namespace, tls=TLSConfig() if temporal.tls else False
        )
    except (RuntimeError, RPCError):
        raise CommandError(
            f"no Temporal server answers at {temporal.address}: start one with 'worker.py dev', or set"
            " temporal.address",
            code="service_unavailable",
        ) from None


@contextlib.asynccontextmanager
async def running_worker(client: Client, settings: Settings, workflows: Sequence[type] = ()) -> AsyncIterator[Worker]:
    """A worker of the pack, polling; it ends with the context, calls under way first."""
    own = settings.worker
    async with Calls(settings) as calls:
        worker = Worker(
            client,
            task_queue=own.task_queue,
            workflows=[RunWorkflow, *workflows],
            activities=[*mcp_activities(calls), *node_activities(calls)],
            max_concurrent_activities=own.max_activities,
            workflow_task_poller_behavior=PollerBehaviorSimpleMaximum(own.workflow_pollers),
            activity_task_poller_behavior=PollerBehaviorSimpleMaximum(own.activity_pollers),
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=own.sticky_timeout),
            graceful_shutdown_timeout=timedelta(seconds=own.shutdown_grace),
        )
        async with worker:
            yield worker


async def until_stopped() -> None:
    """Wait for SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def ready(**facts: str) -> None:
    """Say on standard output, in one JSON line, that the process serves now."""
    print(json.dumps({"ready": True, **facts}), flush=True)


# --- running ----------------------------------------------------------------------------------------------------------


@app.command("run")
def run_command(config: Config = None) -> None:
    """Run a worker against the Temporal of the settings, until SIGINT or SIGTERM."""
    settings = settings_of(config)

    async def main() -> None:
        client = await connect(settings)
        async with running_worker(client, settings):
            ready(temporal=settings.temporal.address, taskQueue=settings.worker.task_queue)
            await until_stopped()

    run_async(main())


@app.command("dev")
def dev_command(
    config: Config = None,
    port: Annotated[int | None, typer.Option(help="Port of Temporal; default a free one.")] = None,
    ui_port: Annotated[int | None, typer.Option(help="Port of Temporal's UI; default a free one.")] = None,
    db: Annotated[Path | None, typer.Option(help="Keep Temporal's data in this file; default in memory.")] = None,
) -> None:
    """Run an embedded Temporal, its UI and a worker in one go, until SIGINT or SIGTERM."""
    settings = settings_of(config)

    async def main() -> None:
        async with embedded_temporal(
            executable=settings.temporal.executable, port=port, ui=True, ui_port=ui_port, db=db
        ) as temporal:
            client = await connect(at(settings, temporal.address))
            async with running_worker(client, settings):
                ready(temporal=temporal.address, ui=temporal.ui or "", taskQueue=settings.worker.task_queue)
                await until_stopped()

    run_async(main())


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
    settings = settings_of(config)
    definition = one_call(server, tool, None if args is None else text_argument(args, "--args"), key)

    async def main() -> CallRecord:
        client = await connect(settings)
        run_id = await start(client, settings, definition, b"{}")
        log = await to_the_end(client, run_id)
        if log[-1].type != "run.completed":
            raise failed(log)
        return (await recorded_calls(client, run_id))[-1]

    record = run_async(main())
    if as_json:
        print_json(record.result.raw)
    else:
        print_text(record.result.text or record.result.raw.decode())
        complain(one_line(record))
    if record.result.is_error:
        raise typer.Exit(1)


@app.command("health")
def health_command(
    server: Annotated[str, typer.Argument(help="A server id of the settings.")],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Ask whether a server can be reached; the status is 0 only if it can."""
    settings = settings_of(config)
    answer = run_async(with_server(settings, server, health)).result
    state = jsontext.decode(jsontext.member(answer, "state") or b"null")
    if as_json:
        print_json(answer)
    else:
        print_text(f"{server} is {state}")
    if state != "reachable":
        raise typer.Exit(1)


@tools.command("list")
def tools_list_command(
    server: Annotated[str, typer.Argument(help="A server id of the settings.")],
    cursor: Annotated[str | None, typer.Option(help="The page to read, as a page before it named it.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List a server's tools, one page as the server sends it. 'tools SERVER' is short for this."""
    settings = settings_of(config)
    page = run_async(with_server(settings, server, lambda client: client.list_tools(cursor))).result
    if as_json:
        print_json(page)
        return
    listed = jsontext.decode(page)
    rows = [[str(tool.get("name", "")), first_line(tool)] for tool in listed.get("tools", []) if isinstance(tool, dict)]
    out.print(terminal.table(["tool", "description"], rows))
    if isinstance(following := listed.get("nextCursor"), str):
        print_text(f"more tools follow: --cursor {json.dumps(following)}")


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
    settings = settings_of(config)
    definition = find_definition(settings, workflow)
    given = text_argument(inputs, "--inputs")

    async def main() -> tuple[str, list[RunEvent]]:
        client = await connect(settings)
        run_id = await start(client, settings, definition, given)
        return run_id, await to_the_end(client, run_id) if wait else []

    run_id, log = run_async(main())
    status = status_of(log) if log else "running"
    if as_json:
        print_json(jsontext.encode({"runId": run_id, "status": status}))
    else:
        print_text(run_id)
    if log and status != "completed":
        if not as_json:
            complain(str(failed(log)))
        raise typer.Exit(1)


@runs.command("show")
def runs_show_command(run: Run, config: Config = None, as_json: AsJson = False) -> None:
    """Show a run: where it stands, and what each call recorded."""
    settings = settings_of(config)

    async def main() -> tuple[list[RunEvent], list[CallRecord]]:
        client = await connect(settings)
        return await event_log(client, run), await recorded_calls(client, run)

    log, calls = run_async(main())
    status = status_of(log)
    if as_json:
        print_json(
            jsontext.encode(
                {
                    "runId": run,
                    "status": status,
                    "calls": [
                        {
                            "node": node_of(call),
                            **call.result.provenance,
                            "bytes": len(call.result.raw),
                            "intact": call.intact,
                        }
                        for call in calls
                    ],
                }
            )
        )
        return
    print_text(f"{run}: {status}")
    if status == "failed":
        print_text(str(failed(log)))
    out.print(call_table(calls))


@runs.command("events")
def runs_events_command(run: Run, config: Config = None, as_json: AsJson = False) -> None:
    """Print a run's event log."""
    settings = settings_of(config)

    async def main() -> list[RunEvent]:
        return await event_log(await connect(settings), run)

    log = run_async(main())
    if as_json:
        print_json(b"[" + b",".join(event.encode() for event in log) + b"]")
        return
    out.print(
        terminal.table(
            ["#", "time", "event", "node"],
            [[str(event.sequence), event.timestamp, event.type, event.node_id or ""] for event in log],
        )
    )


@runs.command("export")
def runs_export_command(
    run: Run,
    out_file: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Default standard output.")] = None,
    config: Config = None,
) -> None:
    """Write a run's history as JSON, as Temporal's own tools do."""
    settings = settings_of(config)

    async def main() -> list[WorkflowHistory]:
        return await all_histories(await connect(settings), run)

    # A chain of continue-as-new is one export: each part is told by its own WorkflowExecutionStarted.
    text = export(run_async(main()))
    if out_file is None:
        sys.stdout.write(text + "\n")
    else:
        out_file.write_text(text + "\n", encoding="utf-8")


@app.command("replay")
def replay_command(
    what: Annotated[str, typer.Argument(metavar="RUN|FOLDER|FILE", help="A run id, or exported histories.")],
    workflow: Annotated[
        list[str] | None, typer.Option("--workflow", metavar="MODULE:CLASS", help="A workflow of your own; repeatable.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Replay recorded histories with the current code; the status is 0 only if none diverges and no byte changed."""
    settings = settings_of(config)
    classes = [workflow_class(name) for name in workflow or []]

    path = Path(what)
    exported = load_histories(path) if path.exists() else None

    async def main() -> list[ReplayVerdict]:
        found = exported if exported is not None else await all_histories(await connect(settings), what)
        return await replay(found, classes)

    verdicts = run_async(main())
    if as_json:
        print_json(jsontext.encode([verdict.facts() for verdict in verdicts]))
    else:
        for verdict in verdicts:
            print_text(verdict.prose())
    if not all(verdict.sound for verdict in verdicts):
        raise typer.Exit(1)


# --- what the commands share ------------------------------------------------------------------------------------------


def settings_of(config: str | None) -> Settings:
    """The settings, or an end with status 2 and one line for each fault."""
    return load(config, environ=os.environ)


def at(settings: Settings, address: str) -> Settings:
    """The same settings with another Temporal."""
    own = settings.temporal.model_copy(update={"address": address, "namespace": "default", "tls": False})
    return settings.model_copy(update={"temporal": own})


def text_argument(value: str, option: str) -> bytes:
    """The JSON text of an option, or of the file that it names with ``@``."""
    if value.startswith("@"):
        try:
            text = Path(value[1:]).read_bytes()
        except OSError as error:
            raise CommandError(
                f"{option}: {value[1:]} cannot be read ({error.strerror})", code="validation_error"
            ) from None
    else:
        text = value.encode(errors="surrogateescape")
    try:
        jsontext.check(text)
        sound = jsontext.kind(text) == "object"
    except jsontext.JsonTextError as error:
        raise CommandError(f"{option}: {error}", code="validation_error") from None
    if not sound:
        raise CommandError(f'{option}: write a JSON object, as in \'{{"city": "Bern"}}\'', code="validation_error")
    return text


def one_call(server: str, tool: str, arguments: bytes | None, key: str | None) -> Definition:
    """The workflow of one call, arguments in it byte for byte."""
    inputs = [] if arguments is None else [("arguments", jsontext.build([("type", b'"static"'), ("value", arguments)]))]
    if key is not None:
        inputs.append(("idempotencyKey", jsontext.encode({"type": "static", "value": key})))
    node = jsontext.build(
        [
            ("id", b'"call"'),
            ("typeId", b'"community.mcp.call-tool"'),
            ("name", jsontext.encode(f"{server} {tool}")),
            ("position", b'{"x":0,"y":0}'),
            ("config", jsontext.encode({"serverId": server, "name": tool})),
            ("inputs", jsontext.build(inputs)),
        ]
    )
    text = jsontext.build(
        [
            ("id", b'"call"'),
            ("name", jsontext.encode(f"call {server} {tool}")),
            ("version", b'"1"'),
            ("nodes", b"[" + node + b"]"),
            ("edges", b"[]"),
            ("triggers", b'[{"id":"manual","type":"manual","enabled":true}]'),
            ("variables", b"[]"),
            ("metadata", b"{}"),
            ("settings", b"{}"),
        ]
    )
    return parse(text, source="call", node_types=REGISTRY)


def find_definition(settings: Settings, workflow: str) -> Definition:
    """A definition by its file, or by its id in the folders of the settings."""
    named = Path(workflow)
    if named.suffix == ".json":
        return read_definition(named)
    folders = [Path(folder) for folder in settings.host.workflows] + ([FIXTURES] if settings.host.fixtures else [])
    for folder in folders:
        for file in sorted(folder.glob("*.json")):
            definition = read_definition(file)
            if definition.id == workflow:
                return definition
    where = ", ".join(map(str, folders)) or "no folder: set host.workflows"
    raise CommandError(f"no workflow '{workflow}' (looked in {where})", code="not_found")


def read_definition(file: Path) -> Definition:
    """Parse one definition file."""
    try:
        text = file.read_bytes()
    except OSError as error:
        raise CommandError(f"{file}: cannot be read ({error.strerror})", code="not_found") from None
    return parse(text, source=str(file), node_types=REGISTRY)


def workflow_class(name: str) -> type:
    """An author's workflow, by ``module:class``."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise CommandError(f"--workflow {name}: {error}", code="validation_error") from None
    if not isinstance(found, type):
        raise CommandError(f"--workflow {name}: is no class", code="validation_error")
    return found


async def with_server(settings: Settings, server_id: str, ask: Callable[[McpClient], Awaitable[T]]) -> T:
    """Ask a server directly, outside any workflow: for what has no effect."""
    server = settings.server(server_id, settings.worker.tenant)
    if server is None:
        raise UnknownServerError(server_id)
    async with HttpTransport() as transport:
        return await ask(McpClient.of(server, settings.limits, transport, client_info=CLIENT_INFO, environ=os.environ))


async def start(client: Client, settings: Settings, definition: Definition, inputs: bytes) -> str:
    """Start a run as the operator of this machine."""
    tenant = settings.worker.tenant
    start = RunStart(
        run_id=mint_run_id(tenant),
        definition=definition.raw,
        owner=Owner(
            tenant,
            {
                "issuer": "urn:openwop-mcp:cli",
                "subjectId": "operator",
                "tenant": tenant,
                "lane": "workload",
                "kind": "workload",
            },
        ),
        options=Options(heartbeat_timeout=settings.worker.heartbeat_timeout),
    )
    await start_run(client, start, definition, inputs, task_queue=settings.worker.task_queue)
    return start.run_id


async def to_the_end(client: Client, run_id: str) -> list[RunEvent]:
    """Wait until a run has ended, and read its log.

    Raises:
        CommandError: No worker took the run; it was ended before anything was sent.
    """
    handle = client.get_workflow_handle(run_id)
    result = asyncio.ensure_future(handle.result())
    with contextlib.suppress(WorkflowFailureError):
        try:
            await asyncio.wait_for(asyncio.shield(result), PATIENCE)
        except TimeoutError:
            await give_up_unless_taken(handle)
            await result
    return await event_log(client, run_id)


async def give_up_unless_taken(handle: WorkflowHandle[Any, Any]) -> None:
    """End a run that no worker has taken: without a worker nothing can have been sent."""
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            return
    await handle.terminate("no worker")
    raise CommandError(
        f"no worker took the run within {PATIENCE:g} s, and nothing was sent: start 'worker.py run' or 'worker.py dev'"
        " with the same temporal and worker settings",
        code="service_unavailable",
    )


async def all_histories(client: Client, run_id: str) -> list[WorkflowHistory]:
    """The histories of a run or of any other workflow."""
    try:
        return [history async for history in histories(client, run_id)]
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            raise CommandError(f"no run '{run_id}' in this namespace", code="not_found") from None
        raise


async def event_log(client: Client, run_id: str) -> list[RunEvent]:
    """A run's events, from its histories."""
    projector = Projector(run_id)
    found = await all_histories(client, run_id)
    return [event for history in found for event in projector.project(history.events)]


async def recorded_calls(client: Client, run_id: str) -> list[CallRecord]:
    """The calls that a run recorded."""
    return [call for history in await all_histories(client, run_id) for call in records(history.events)]


def status_of(log: Sequence[RunEvent]) -> str:
    """Where a run stands by its log: pending, running, completed, failed or cancelled."""
    if not log:
        return "pending"
    return log[-1].type.removeprefix("run.") if log[-1].type in TERMINAL else "running"


def failed(log: Sequence[RunEvent]) -> CommandError:
    """The error that ended a run."""
    error = jsontext.decode(log[-1].payload).get("error", {})
    details = jsontext.pointer(log[-1].payload, ["error", "details"]) or b"{}"
    return CommandError(
        error.get("message", f"the run was {status_of(log)}"), code=error.get("code", "internal_error"), details=details
    )


def node_of(call: CallRecord) -> str:
    """The node or activity of a call, without its attempt."""
    return call.activity_id.rpartition(":")[0] or call.activity_id


# --- what people see --------------------------------------------------------------------------------------------------

out = Console(soft_wrap=True)


def print_text(text: str) -> None:
    """Print text that may come from a server: nothing in it steers the terminal."""
    sys.stdout.write(terminal.escape(text, multiline=True) + "\n")


def print_json(data: bytes) -> None:
    """Print one JSON value; its bytes are kept where no terminal would act on them."""
    sys.stdout.write(terminal.json_for(sys.stdout, data) + "\n")


def complain(text: str) -> None:
    """Tell what went wrong, on standard error."""
    sys.stderr.write(terminal.escape(text, multiline=True) + "\n")


def one_line(call: CallRecord) -> str:
    """What was recorded of a call, in a line."""
    return (
        f"recorded: {call.server_id} {call.method} {call.subject}, MCP {call.revision}, {len(call.result.raw)} bytes,"
        f" sha256 {call.sha256}, attempts {call.attempts}"
    )


def call_table(calls: Sequence[CallRecord]) -> Any:
    """What was recorded of each call."""
    return terminal.table(
        ["node", "server", "method", "tool", "revision", "bytes", "sha256", "attempts", "intact"],
        [
            [
                node_of(call),
                call.server_id,
                call.method,
                call.subject,
                call.revision,
                str(len(call.result.raw)),
                call.sha256,
                str(call.attempts),
                "yes" if call.intact else "NO",
            ]
            for call in calls
        ],
    )


def first_line(tool: dict[str, Any]) -> str:
    """The first line of a tool's description, as the server wrote it."""
    lines = str(tool.get("description") or tool.get("title") or "").splitlines()
    return lines[0] if lines else ""


# --- the process ------------------------------------------------------------------------------------------------------


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, on uvloop where it is installed: it takes a fifth of the worker's CPU off."""
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        return asyncio.run(main)
    return cast("T", uvloop.run(main))


EXPECTED = (
    CommandError,
    DefinitionError,
    EmbeddedTemporalError,
    HistoryFileError,
    McpError,
    ProjectionError,
    RPCError,
)
"""What a command can end with that is no fault of this program: told in a sentence, without a traceback."""


def main() -> int:
    """Run a command; returns the exit status."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("temporalio").setLevel(logging.WARNING)
    arguments = sys.argv[1:]
    if arguments[:1] == ["tools"] and len(arguments) > 1 and arguments[1] not in TOOLS_COMMANDS | {"--help"}:
        arguments.insert(1, "list")
    try:
        status = app(arguments, standalone_mode=False)
    except SettingsError as error:
        return tell("validation_error", str(error), b"{}", 2, as_json="--json" in arguments)
    except click.ClickException as error:
        return tell("validation_error", error.format_message(), b"{}", error.exit_code, as_json="--json" in arguments)
    except EXPECTED as error:
        code = getattr(error, "code", "internal_error")
        details = error.details if isinstance(error, CommandError) else b"{}"
        return tell(code, str(error), details, 1, as_json="--json" in arguments)
    except (KeyboardInterrupt, click.Abort):
        return 130
    return status if isinstance(status, int) else 0


def tell(code: str, message: str, details: bytes, status: int, *, as_json: bool) -> int:
    """Say why a command failed: as JSON on standard output where that was asked for, else on standard error."""
    if as_json:
        members = [("code", jsontext.encode(code)), ("message", jsontext.encode(message)), ("details", details)]
        print_json(jsontext.build([("error", jsontext.build(members))]))
    else:
        complain(message)
    return status


if __name__ == "__main__":
    exit_status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # A client process of the SDK sometimes crashes or hangs while the interpreter is torn down; everything is written.
    os._exit(exit_status)
