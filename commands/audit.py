"""The commands that check what was recorded: replay with the current code, and the ledger of effects."""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter

from commands.connection import connect
from commands.exported import file_of, read_exported
from commands.options import AsJson, Config, Recorded, unprojected
from commands.printing import LEDGER_COLUMNS, print_json, print_table, print_text
from commands.process import run_async
from commands.settings import settings_of
from openwop_mcp import jsontext
from openwop_mcp.config import Settings
from openwop_mcp.runs.ledger import EffectAttempt, effect_attempts
from openwop_mcp.storage import data_converter
from workflows.client import RecordedRun, effect_ledger, read_run
from workflows.replay import ReplayVerdict, WorkflowClassError, replay
from workflows.replay import load as load_histories

__all__ = ("app",)

app = typer.Typer()


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
    path = file_of(what)

    async def main() -> list[tuple[Path | None, ReplayVerdict]]:
        found: Sequence[tuple[Path | None, WorkflowHistory]]
        if path is None:
            found = [(None, history) for history in (await read_run(await connect(settings), what)).histories]
        else:
            found = load_histories(path)
        replayed = await replay([history for _, history in found], classes, data_converter=for_replay(settings))
        return [(file, verdict) for (file, _), verdict in zip(found, replayed, strict=True)]

    try:
        verdicts = run_async(main())
    except WorkflowClassError as error:
        raise typer.BadParameter(str(error), param_hint="'--workflow'") from None
    if as_json:
        print_json(
            jsontext.encode(
                [{**({} if file is None else {"file": str(file)}), **verdict.facts()} for file, verdict in verdicts]
            )
        )
    else:
        # Of one file it is known which.
        several = path is not None and path.is_dir()
        for file, verdict in verdicts:
            for line in verdict.prose().splitlines():
                print_text(f"{file}: {line}" if several else line)
    if not all(verdict.sound for _, verdict in verdicts):
        raise typer.Exit(1)


@app.command("effects")
def effects_command(run: Recorded, config: Config = None, as_json: AsJson = False) -> None:
    """Show the ledger of a run's effects: one line for each attempt, without arguments and results."""
    settings = settings_of(config, secrets=False)
    tenant = settings.worker.tenant

    async def main() -> tuple[RecordedRun, Sequence[EffectAttempt]]:
        if (file := file_of(run)) is not None:
            found = await read_exported(file, settings)
            parts = [history.events for history in found.histories]
            # What others share has workflows of its own, and what was under way is known to Temporal alone.
            return found, effect_attempts(parts, workflow_id=found.run_id, tenant=tenant)
        client = await connect(settings)
        found = await read_run(client, run)
        return found, await effect_ledger(client, found, tenant=tenant)

    found, ledger = run_async(main())
    rows = [attempt.facts for attempt in ledger if attempt.state is not None]
    if as_json:
        print_json(jsontext.encode({"runId": found.run_id, "effects": rows}))
        return
    columns = ("nodeId", "attempt", "state", "at", "keying", "effectId")
    print_table(list(columns), [[str(row[name]) for name in columns] for row in rows], columns=LEDGER_COLUMNS)


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
