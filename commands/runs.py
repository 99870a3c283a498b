"""The commands about runs: start them, read what is recorded of them, take it away."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from commands.arguments import object_argument, unicode_argument
from commands.connection import connect
from commands.ending import Ending
from commands.errors import CommandError
from commands.exported import file_of, read_exported
from commands.options import AsJson, Config, Recorded, Run
from commands.printing import LOG_COLUMNS, complain, print_json, print_table, print_text
from commands.process import run_async
from commands.prose import call_prose, decided
from commands.settings import settings_of
from commands.waiting import failed, start, start_and_wait
from openwop_mcp import jsontext
from openwop_mcp.runs.records import MadeCall
from openwop_mcp.storage import values_of
from openwop_mcp.verbatim import Verbatim
from workflows.client import (
    RecordedRun,
    UnderWay,
    cancel_run,
    histories,
    open_interrupts,
    pinned_to,
    read_run,
    under_way,
)
from workflows.definitions import find_definition
from workflows.replay import export

__all__ = ("app",)

app = typer.Typer(
    no_args_is_help=True,
    help="Start runs and read what is recorded of them. Which there are, the host lists (GET /runs), or"
    " 'temporal workflow list'.",
)


@app.command("start")
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


@app.command("show")
def runs_show_command(run: Recorded, config: Config = None, as_json: AsJson = False) -> None:
    """Show a run, or a workflow of your own, and what each call recorded; the status is 1 if a byte was changed."""
    settings = settings_of(config, secrets=False)

    async def main() -> tuple[RecordedRun, dict[str, UnderWay], bool, str | None]:
        if (file := file_of(run)) is not None:
            return await read_exported(file, settings), {}, False, None
        client = await connect(settings)
        found = await read_run(client, run)
        # A run that is over has forgotten its activities.
        running = any(call.outcome == "running" for call in found.made)
        waits = bool(await open_interrupts(client, found))
        return found, await under_way(client, run) if running else {}, waits, await pinned_to(client, run)

    found, going, waits, version = run_async(main())
    changed = any(call.record is not None and not call.record.intact for call in found.made)
    if as_json:
        calls = [call_facts(call, going.get(call.activity_id)) for call in found.made]
        held = {} if version is None else {"pinnedTo": version}
        stuck = {} if found.stuck is None else {"stuck": found.stuck}
        facts = {"runId": found.run_id, "status": found.status, **held, **stuck, "calls": calls, **run_error(found)}
        print_json(jsontext.encode(facts))
        if changed:
            raise typer.Exit(1)
        return
    where = f", waiting for a worker on task queue '{found.task_queue}'" if found.status == "pending" else ""
    held_by = f", pinned to worker version '{version}'" if version is not None else ""
    print_text(f"{found.run_id}: {found.status}{where}{held_by}")
    if found.stuck is not None:
        print_text(f"its worker cannot go on, and is given the workflow task again and again: {found.stuck}")
    if found.failure is not None and found.status == "failed":
        print_text(f"{found.failed_node}: {found.failure[1]}" if found.failed_node else found.failure[1])
    for call in found.made:
        print_text(call_prose(call, going.get(call.activity_id)))
    if waits:
        print_text(f"waits for a person: see 'worker.py interrupts list {run}'")
    if changed:
        raise typer.Exit(1)


@app.command("events")
def runs_events_command(run: Recorded, config: Config = None, as_json: AsJson = False) -> None:
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


@app.command("cancel")
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


@app.command("export")
def runs_export_command(
    run: Run,
    out_file: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Default standard output.")] = None,
    decode: Annotated[
        bool, typer.Option("--decode", help="Open what is encrypted, and put large values into their places.")
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Write a run's history as JSON, as Temporal's own tools do, and beside it the large values that it refers to."""
    settings = settings_of(config, secrets=False)

    async def main() -> str:
        client = await connect(settings)
        # A chain of continue-as-new is one export: each part is told by its own WorkflowExecutionStarted.
        found = [history async for history in histories(client, run, whole=decode)]
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


def recorded_run(config: str | None, what: str) -> RecordedRun:
    """What Temporal, or an exported history, has of a run."""
    settings = settings_of(config, secrets=False)

    async def main() -> RecordedRun:
        if (file := file_of(what)) is not None:
            return await read_exported(file, settings)
        return await read_run(await connect(settings), what)

    return run_async(main())


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
            **({"redacted": record.redacted, "originalSha256": record.original_sha256} if record.redacted else {}),
        }
    if failure is not None:
        facts["error"] = {
            "code": failure.code,
            "delivery": failure.happened.delivery.value,
            "message": failure.message,
            "details": Verbatim(failure.details),
        }
    return facts
